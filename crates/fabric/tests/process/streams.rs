//! Stream functions in processes.

use std::sync::Arc;
use std::time::Duration;

use mmb_nf::harness::Sent;
use mmb_nf::{
    ArgError, ChainVerdict, Context, DropReason, LineSource, Setup, StreamData, StreamFunction, StreamVerdict,
};
use mmb_packet::build::{Frame, Ip4, Tcp};
use rustix::process::{Pid, Signal, kill_process};

use super::faults::until_replaced_of;
use super::world::{self, World, frame};

const FIN: u8 = 1;
pub const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

const COUNT: &str = "domain add d private buffers 256\nnf add p payload-count process d\nchain add c p";

/// A connection: the client's port, and the bytes that both ends have sent.
pub struct Connection(pub u16);

impl Connection {
    fn segment(&self, is_reverse: bool, (seq, ack, flags): (u32, u32, u8), payload: &[u8]) -> Vec<u8> {
        let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (net, ports) = match is_reverse {
            false => (Ip4::new(near, far), (self.0, 80)),
            true => (Ip4::new(far, near), (80, self.0)),
        };
        let tcp = Tcp { seq, ack, flags, ..Tcp::new(ports.0, ports.1) };
        Frame::new(net, tcp).payload(payload.to_vec()).build()
    }

    /// A segment of the client with options, and without bytes.
    pub fn with_options(&self, (seq, ack, flags): (u32, u32, u8), options: &[u8]) -> Vec<u8> {
        let tcp = Tcp { seq, ack, flags, options: options.to_vec(), ..Tcp::new(self.0, 80) };
        Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), tcp).build()
    }

    /// The client's bytes from a position on.
    pub fn data(&self, at: u32, payload: &[u8]) -> Vec<u8> {
        self.segment(false, (1001 + at, 5001, ACK), payload)
    }

    pub fn answer(&self, at: u32, payload: &[u8]) -> Vec<u8> {
        self.segment(true, (5001 + at, 1001, ACK), payload)
    }

    pub fn fin(&self, at: u32) -> Vec<u8> {
        self.segment(false, (1001 + at, 5001, ACK | FIN), b"")
    }

    pub fn handshake(&self) -> [Vec<u8>; 3] {
        [
            self.segment(false, (1000, 0, SYN), b""),
            self.segment(true, (5000, 1001, SYN | ACK), b""),
            self.segment(false, (1001, 5001, ACK), b""),
        ]
    }

    fn open(&self, world: &mut World) {
        for frame in self.handshake() {
            assert_eq!(world.send(&[frame])[0].verdict, ChainVerdict::Pass);
        }
    }
}

fn opened(world: &mut World, port: u16) -> Connection {
    let connection = Connection(port);
    connection.open(world);
    connection
}

fn verdicts(sent: &[Sent]) -> Vec<ChainVerdict> {
    sent.iter().map(|one| one.verdict).collect()
}

/// The flags of the frames that were sent because of packets, with their output ports.
fn emitted(sent: &[Sent]) -> Vec<(u16, u8)> {
    sent.iter().flat_map(|one| &one.emitted).map(|(port, frame)| (*port, frame[47])).collect()
}

fn pid(world: &World) -> Pid {
    let words = world.text("p", "process");
    Pid::from_raw(words.split(',').next().unwrap().parse().unwrap()).unwrap()
}

/// Segments out of order, repeated and in both directions: each byte is read once, and packets go on in the
/// order of their bytes.
pub fn streams_are_read_in_order() {
    let lines = "domain add d private buffers 256\nnf add p payload-count process d\n\
                 nf add words match ab reset process d\nchain add c p | words";
    let mut world = World::new(lines);
    let one = opened(&mut world, 2000);
    let early = [one.data(6, b"345"), one.data(3, b"012"), one.answer(0, b"xyz")];
    let before = until_all(&mut world, &early);
    assert_eq!(before.iter().map(|one| &one.frame).collect::<Vec<_>>(), [&early[2]]);
    let sent = until_all(&mut world, &[one.data(0, b"...")]);
    let forward = [one.data(0, b"..."), one.data(3, b"012"), one.data(6, b"345")];
    assert_eq!(sent.iter().map(|one| &one.frame).collect::<Vec<_>>(), forward.iter().collect::<Vec<_>>());
    assert_eq!(world.value("p", "bytes forward"), 9);
    assert_eq!(world.value("p", "bytes reverse"), 3);
    // What comes again goes on, and is not read again.
    assert_eq!(verdicts(&world.send(&[one.data(0, b"...012"), one.data(9, b"a")])), [ChainVerdict::Pass; 2]);
    assert_eq!(world.value("p", "bytes forward"), 10);
    // A word in two segments.
    let sent = world.send(&[one.data(10, b"b"), one.data(11, b"more")]);
    assert_eq!(verdicts(&sent), [ChainVerdict::Refuse(DropReason::Match); 2]);
    assert_eq!(
        emitted(&sent).iter().filter(|(_, flags)| flags & RST != 0).count(),
        2,
        "{:?}",
        emitted(&sent)
    );
    assert_eq!((world.value("words", "matches"), world.value("words", "reset sessions")), (1, 1));
    // Other connections go on.
    let two = opened(&mut world, 2001);
    assert_eq!(verdicts(&world.send(&[two.data(0, b"a"), two.fin(1)])), [ChainVerdict::Pass; 2]);
    assert_eq!((world.value("p", "ended streams"), world.value("p", "rejected")), (1, 0));
    world.until("all buffers are free", |world| world.free_buffers("p") == 256);
}

/// Both ends of a connection get a FIN in the place of the bytes.
pub fn a_process_closes_connections() {
    let mut world = World::new("domain add d private\nnf add p match bad close process d\nchain add c p");
    let one = opened(&mut world, 2000);
    let sent = world.send(&[one.data(0, b"good"), one.data(4, b" bad"), one.data(8, b"more")]);
    let dropped = ChainVerdict::Drop(DropReason::Match);
    assert_eq!(verdicts(&sent), [ChainVerdict::Pass, dropped, dropped]);
    assert_eq!(emitted(&sent).iter().filter(|(_, flags)| flags & FIN != 0).count(), 2);
    assert_eq!(world.value("p", "closed sessions"), 1);
}

/// Words are replaced by longer ones in both directions, and wait where they may begin. When the process
/// ends, the connection is reset, and the next one is edited.
pub fn a_process_edits_streams() {
    let mut world = World::new(
        "domain add d private buffers 256\nnf add p match evil replace harmless process d\nchain add c p",
    );
    let one = opened(&mut world, 2000);
    let payloads = |sent: &[Sent]| {
        let passed = sent.iter().filter(|one| one.verdict == ChainVerdict::Pass).map(|one| &one.frame);
        let emitted = sent.iter().flat_map(|one| &one.emitted).map(|(_, frame)| frame);
        let all: Vec<String> =
            emitted.chain(passed).map(|frame| String::from_utf8_lossy(&frame[54..]).into_owned()).collect();
        all.concat()
    };
    let sent = world.send(&[one.data(0, b"an ev"), one.data(5, b"il "), one.data(8, &b"evil".repeat(300))]);
    let expected = format!("an harmless {}", "harmless".repeat(300));
    assert_eq!(payloads(&sent).len(), expected.len(), "{}", payloads(&sent));
    assert_eq!(payloads(&world.send(&[one.answer(0, b"evil.")])), "harmless.");
    assert_eq!((world.value("p", "edited"), world.value("p", "rejected")), (302, 0));
    kill_process(pid(&world), Signal::KILL).unwrap();
    until_replaced_of(&mut world, "p", 1);
    let sent = world.send(&[one.data(1208, b"evil")]);
    assert_eq!(verdicts(&sent), [ChainVerdict::End(DropReason::ProcessFailed)]);
    assert_eq!(emitted(&sent).iter().filter(|(_, flags)| flags & RST != 0).count(), 2);
    let two = opened(&mut world, 2001);
    assert_eq!(payloads(&world.send(&[two.data(0, b"evil.")])), "harmless.");
    world.until("all buffers are free", |world| world.free_buffers("p") == 256);
}

/// Datagrams are streams, too.
pub fn datagrams_are_read() {
    let mut world = World::new(COUNT);
    world.send(&[frame(1, "12345"), frame(2, "6"), frame(1, "789")]);
    assert_eq!(world.value("p", "bytes forward"), 9);
}

/// The lines of a function in a process are written here, by the log of its line.
pub fn lines_of_processes_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    let lines = format!(
        "domain add d private\nnf add p digest sha256 forward file {0} process d\n\
         nf add words match evil alert log {0} process d event\n\
         chain add c p | words",
        path.display()
    );
    let mut world = World::new(&lines);
    let one = opened(&mut world, 2000);
    world.send(&[one.data(0, b"a"), one.data(1, b"b"), one.data(2, b"c"), one.fin(3)]);
    let two = opened(&mut world, 2001);
    world.send(&[two.data(0, b"an ev"), two.data(5, b"il word")]);
    let text = || std::fs::read_to_string(&path).unwrap_or_default();
    world.until("two lines", |_| text().lines().count() == 2);
    // SHA-256 of `abc`: FIPS 180-2, B.1.
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let is_digest = |line: &str| line.contains(&format!("sha256 {digest} tcp 10.0.0.1:2000 -> 10.0.0.2:80"));
    assert!(text().lines().any(is_digest), "{}", text());
    assert!(text().contains(r#"match: "evil" ends at byte 7 of tcp 10.0.0.1:2001"#), "{}", text());
    assert_eq!((world.value("p", "streams"), world.value("words", "matches")), (1, 1));
    assert_eq!((world.value("words", "written"), world.text("words", "trouble")), (1, String::new()));
    std::fs::remove_file(&path).unwrap();
    folder.close().unwrap();
    let three = opened(&mut world, 2002);
    world.send(&[three.data(0, b"evil")]);
    world.until("a log that cannot be written", |world| !world.text("words", "trouble").is_empty());
}

/// A pool that is too small drops segments: they are read when they come again, and nothing passes unread.
pub fn what_has_no_room_is_read_when_it_comes_again() {
    let mut world = World::new(
        "domain add d private buffers 64\nnf add p digest crc32c forward file /dev/null process d poll\n\
         nf add n payload-count process d\nchain add c p | n",
    );
    let one = opened(&mut world, 2000);
    let bytes: Vec<u8> = (0..2000_u32).map(|n| (n * 31 % 251) as u8).collect();
    let segments: Vec<_> =
        bytes.chunks(10).enumerate().map(|(n, part)| one.data(n as u32 * 10, part)).collect();
    let mut todo: Vec<usize> = (0..segments.len()).collect();
    let (mut rounds, mut dropped) = (0, 0);
    while !todo.is_empty() {
        rounds += 1;
        assert!(rounds < 500, "{} segments are left", todo.len());
        let frames: Vec<_> = todo.iter().map(|&n| segments[n].clone()).collect();
        let sent = until_all(&mut world, &frames);
        let has_passed =
            |n: usize| sent.iter().any(|one| one.verdict == ChainVerdict::Pass && one.frame == segments[n]);
        dropped +=
            sent.iter().filter(|one| one.verdict == ChainVerdict::Drop(DropReason::ProcessFull)).count();
        todo.retain(|&n| !has_passed(n));
    }
    assert!(dropped > 0, "the pool is full at times");
    assert_eq!(world.value("n", "bytes forward"), 2000);
    world.send(&[one.fin(2000)]);
    assert_eq!(world.value("p", "bytes"), 2000);
}

/// Sends frames, and waits until nothing of them is in a process. Segments that wait for others stay.
pub fn until_all(world: &mut World, frames: &[Vec<u8>]) -> Vec<Sent> {
    world.harness.runner().poll_processes();
    let mut sent = world.harness.send("c", frames);
    sent.retain(|one| one.verdict != ChainVerdict::Hold);
    let begin = std::time::Instant::now();
    loop {
        sent.extend(world.harness.released());
        if !world.harness.runner().has_packets_in_processes() {
            sent.extend(world.harness.released());
            return sent;
        }
        assert!(begin.elapsed() < world::PATIENCE);
        std::thread::yield_now();
    }
}

/// kill -9: a connection of which the function has not returned bytes is reset, or goes on unread; all others
/// are read on if their state is in their scratchpads.
pub fn killed_processes_and_streams() {
    for on_failure in ["drop", "pass"] {
        let mut world = World::new(&COUNT.replace("256", &format!("256 on-failure {on_failure}")));
        let (one, two) = (opened(&mut world, 2000), opened(&mut world, 2001));
        world.send(&[one.data(0, b"1234"), two.data(0, b"5678")]);
        kill_process(pid(&world), Signal::STOP).unwrap();
        // It is sent to a process that does not look at it any more. Such a process is killed.
        let held = world.harness.send("c", &[one.data(4, b"lost")]);
        assert_eq!(verdicts(&held), [ChainVerdict::Hold]);
        let mut sent = Vec::new();
        let begin = std::time::Instant::now();
        while sent.is_empty() {
            assert!(begin.elapsed() < world::PATIENCE);
            sent = world.harness.released();
            std::thread::yield_now();
        }
        until_replaced_of(&mut world, "p", 1);
        let more = world.send(&[two.data(4, b"90")]);
        assert_eq!(verdicts(&more), [ChainVerdict::Pass]);
        if on_failure == "drop" {
            assert_eq!(verdicts(&sent), [ChainVerdict::End(DropReason::ProcessFailed)]);
            assert_eq!(emitted(&sent).iter().filter(|(_, flags)| flags & RST != 0).count(), 2);
        } else {
            assert_eq!((verdicts(&sent), emitted(&sent).len()), (vec![ChainVerdict::Pass], 0));
            let unread = world.send(&[one.data(8, b"unread"), one.data(14, b"too")]);
            assert_eq!(verdicts(&unread), [ChainVerdict::Pass; 2]);
        }
        // The counters of the instance begin anew with a process, those of a session do not.
        assert_eq!(world.value("p", "bytes forward"), 2);
        world.until("all buffers are free", |world| world.free_buffers("p") == 256);
    }
}

/// State that a process keeps for itself is gone with it: connections that it was reading are not taken for
/// others.
pub fn state_of_a_killed_process_is_not_used() {
    for on_failure in ["drop", "pass"] {
        let mut world = World::new(&format!(
            "domain add d private on-failure {on_failure}\n\
             nf add p digest crc32c forward file /dev/null process d\nchain add c p"
        ));
        let (one, two) = (opened(&mut world, 2000), opened(&mut world, 2001));
        world.send(&[one.data(0, b"12"), two.data(0, b"12")]);
        kill_process(pid(&world), Signal::KILL).unwrap();
        until_replaced_of(&mut world, "p", 1);
        let three = opened(&mut world, 2002);
        world.send(&[three.data(0, b"abc")]);
        let sent = world.send(&[one.data(2, b"34")]);
        let expected = if on_failure == "drop" {
            ChainVerdict::End(DropReason::ProcessFailed)
        } else {
            ChainVerdict::Pass
        };
        assert_eq!(verdicts(&sent), [expected]);
        world.send(&[three.data(3, b"def"), three.fin(6)]);
        assert_eq!((world.value("p", "streams"), world.value("p", "bytes")), (1, 6));
    }
}

/// Counters of sessions move with them; what a worker keeps for sessions does not.
pub fn stream_functions_move() {
    let mut world = World::new(COUNT);
    let one = opened(&mut world, 2000);
    world.send(&[one.data(0, b"1234")]);
    let local = COUNT.replace(" process d", "");
    world.load(&local);
    world.send(&[one.data(4, b"56")]);
    let described = world.harness.describe(&one.data(4, b"56")).unwrap();
    assert!(described.iter().any(|(_, text)| text == "6/0 bytes in 2/0 packets"), "{described:?}");
    world.load(COUNT);
    assert_eq!(verdicts(&world.send(&[one.data(6, b"7")])), [ChainVerdict::Pass]);
    world.load(&local);
    world.send(&[one.data(7, b"8")]);
    let described = world.harness.describe(&one.data(7, b"8")).unwrap();
    assert!(described.iter().any(|(_, text)| text == "8/0 bytes in 4/0 packets"), "{described:?}");
}

/// A stream function whose process writes messages with lines as fast as it can, or instead of answers.
pub struct Shouter {
    is_silent: bool,
}

/// A message with a line.
const LINES: &[u8] = br#"{"Lines":{"text":"a line\u001b[31m\n","lost":0}}"#;

/// A log that nobody reads.
struct NoLog;

impl LineSource for NoLog {
    fn is_waiting(&self) -> bool {
        false
    }

    fn take(&self, _: &mut String) {}

    fn count_lost(&self, _: u64) {}

    fn limit(&self) -> u32 {
        0
    }

    fn append(&self, _: usize, _: &str) {}

    fn report(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl StreamFunction for Shouter {
    const TYPE: &'static str = "shouter";
    const USAGE: &'static str = "[silent]";
    const HELP: &'static str = "floods its log";
    type State = u32;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Shouter { is_silent: setup.args == ["silent"] })
    }

    fn data(&self, _: &StreamData<'_, '_>, _: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        for _ in 0..100_000 {
            let _ = rustix::io::write(std::io::stdin(), LINES);
        }
        StreamVerdict::Pass
    }

    fn report(&self) -> Vec<(String, String)> {
        if !self.is_silent {
            return Vec::new();
        }
        loop {
            let _ = rustix::io::write(std::io::stdin(), LINES);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn lines(&self) -> Option<Arc<dyn LineSource>> {
        Some(Arc::new(NoLog))
    }
}

/// A process that sends lines as fast as it can is killed.
pub fn floods_of_lines() {
    let mut world = World::new("domain add d private\nnf add p shouter process d\nchain add c p");
    let one = opened(&mut world, 2000);
    world.send(&[one.data(0, b"a")]);
    until_replaced_of(&mut world, "p", 1);
    assert_eq!(world.text("p", "last failure"), "has sent more lines than a log takes, and was killed");
}

/// What cannot be, in one sentence.
pub fn stream_functions_that_are_refused() {
    let functions: String = (0..9).map(|n| format!("nf add m{n} match x mask process d\n")).collect();
    let names: Vec<_> = (0..9).map(|n| format!("m{n}")).collect();
    assert_eq!(
        World::refused(&format!("domain add d private\n{functions}chain add c {}", names.join(" | "))),
        "`m8` is one stream function in a process too many: at most 8 stand beside one that edits, so leave \
         `process` out of its line"
    );
}
