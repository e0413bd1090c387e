//! Domains whose processes read packets where they are.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use mmb_fabric::{SharedMemory, Words, write_bytes};
use mmb_nf::process::PacketMemory;
use mmb_nf::{ChainVerdict, DropReason};
use rustix::process::{Pid, Signal, kill_process};

use super::world::{World, frame, payload};

/// Bytes of a buffer, and buffers.
const BUFFER: usize = 2048;
const BUFFERS: usize = 512;

/// Packet memory for frames of the harness, which lie elsewhere: a frame is written to a free buffer when it
/// is pinned. So what the process reads is here and nowhere else.
pub struct Packets {
    memory: SharedMemory,
    /// Open to read only.
    file: OwnedFd,
    free: Mutex<Vec<u32>>,
}

impl Packets {
    fn new() -> Arc<Packets> {
        let memory = SharedMemory::create("packets", BUFFERS * BUFFER / 8).unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory.as_fd()));
        let file = std::fs::File::open(path).unwrap().into();
        Arc::new(Packets { memory, file, free: Mutex::new((0..BUFFERS as u32).collect()) })
    }

    fn pinned(&self) -> usize {
        BUFFERS - self.free.lock().unwrap().len()
    }

    /// The sum of all words: it changes if somebody else writes.
    fn sum(&self) -> u64 {
        let words = self.memory.words().iter();
        words.fold(0, |sum, word| sum.wrapping_mul(31) ^ word.load(std::sync::atomic::Ordering::Relaxed))
    }
}

impl PacketMemory for Packets {
    fn file(&self) -> (BorrowedFd<'_>, u64) {
        (self.file.as_fd(), 0)
    }

    fn bytes(&self) -> usize {
        BUFFERS * BUFFER
    }

    fn pin(&self, frame: &[u8]) -> Option<(u64, u32)> {
        let buffer = self.free.lock().unwrap().pop()?;
        let start = buffer as usize * BUFFER;
        write_bytes(&self.memory.words()[start / 8..][..BUFFER / 8], frame);
        Some((start as u64, buffer))
    }

    fn unpin(&self, buffer: u32) {
        let mut free = self.free.lock().unwrap();
        assert!(!free.contains(&buffer), "a pin ends once");
        free.push(buffer);
    }
}

fn world(lines: &str) -> (World, Arc<Packets>) {
    let packets = Packets::new();
    (World::with_packets(lines, Some(packets.clone())), packets)
}

const READS: &str = "domain add d zero-copy buffers 256\nnf add p probe reads process d\nchain add c p";

/// A function that changes no packet reads it where it is; its verdicts and scratchpads are as ever.
pub fn zero_copy_packets_are_read_where_they_are() {
    let (mut world, packets) = world(READS);
    let long = "x".repeat(1400);
    let sent = world.send(&[frame(1, "."), frame(1, "D."), frame(2, &long), frame(1, ".")]);
    let verdicts: Vec<_> = sent.iter().map(|one| one.verdict).collect();
    let pass = ChainVerdict::Pass;
    assert_eq!(verdicts, [pass, ChainVerdict::Drop(DropReason::Acl), pass, pass]);
    assert_eq!(payload(&sent[2].frame), long);
    assert_eq!((world.value("p", "in place"), packets.pinned()), (4, 0));
    assert_eq!((world.value("p", "rejected"), world.value("p", "opened")), (0, 2));
    world.until("no buffer is in use", |world| world.value("p", "buffers") == 0);
}

/// A function that writes although it has said that it does not: its process ends, and nobody's bytes change.
pub fn zero_copy_processes_cannot_write() {
    let (mut world, packets) = world(READS);
    world.send(&[frame(1, ".")]);
    let mut before = 0;
    for round in 1..=3 {
        world.harness.runner().poll_processes();
        let sent = world.harness.send("c", &[frame(1, "N.")]);
        assert_eq!(sent[0].verdict, ChainVerdict::Hold);
        before = packets.sum();
        world.until("another process", |world| {
            let status = world.instance("p").process().unwrap().status();
            status.restarts == round && status.process.is_some()
        });
        assert_eq!(packets.sum(), before);
    }
    assert_ne!(before, 0);
    let failure = world.instance("p").process().unwrap().status().last_failure;
    assert_eq!(failure.as_deref(), Some("has ended (signal 11)"));
    world.until("no packet is pinned", |_| packets.pinned() == 0);
    // It has no descriptor left by which it could make another mapping, nor the call that changes one.
    world.send(&[frame(1, "S")]);
    assert_eq!(world.text("p", "allowed"), "tried");
    let process = world.value("p", "pid");
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let mut of_packets = maps.lines().filter(|line| line.contains("memfd:packets"));
    assert!(of_packets.all(|line| line.contains(" r--s ")) && maps.contains("memfd:packets"), "{maps}");
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let names = files.map(|file| std::fs::read_link(file.unwrap().path()).unwrap_or_default());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("memfd:packets")));
}

/// Functions that change packets get copies, before and behind those that read.
pub fn zero_copy_domains_mix_with_copies() {
    for on_failure in ["drop", "pass"] {
        let lines = format!(
            "domain add d zero-copy buffers 256 on-failure {on_failure}\nnf add p monitor process d\n\
             nf add q probe process d\nnf add r monitor process d\nchain add c p | q | r"
        );
        let (mut world, packets) = world(&lines);
        for round in 1..=3 {
            let sent = world.send(&(0..40).map(|n| frame(n, "O..")).collect::<Vec<_>>());
            assert!(sent.iter().all(|one| one.verdict == ChainVerdict::Pass));
            assert!(
                sent.iter().all(|one| payload(&one.frame).as_bytes()[1] != b'.'),
                "the second one writes"
            );
            assert!(sent.iter().all(|one| super::world::has_checksums(&one.frame)));
            assert_eq!((world.value("p", "in place"), world.value("q", "in place")), (40 * round, 0));
        }
        world.until("no buffer is in use", |world| {
            ["p", "q", "r"].iter().all(|name| world.value(name, "buffers") == 0)
        });
        assert_eq!(packets.pinned(), 0);
    }
}

/// kill -9 under load: all pins end, once each.
pub fn zero_copy_faults_lose_no_packet() {
    for on_failure in ["pass", "drop"] {
        let (mut world, packets) = world(&READS.replace("256", &format!("256 on-failure {on_failure}")));
        world.send(&[frame(1, ".")]);
        for round in 1..=6 {
            let process = world.instance("p").process().unwrap().status().process.unwrap();
            let killer = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_micros(u64::from(round) * 50));
                kill_process(Pid::from_raw(process as i32).unwrap(), Signal::KILL).unwrap();
            });
            let frames: Vec<_> = (0..100).map(|n| frame(n % 7, &format!("packet {n}"))).collect();
            let sent = world.send(&frames);
            killer.join().unwrap();
            assert_eq!(sent.len(), frames.len());
            // A packet that passes is as it was, since nobody could write to it.
            let passed = sent.iter().filter(|one| one.verdict == ChainVerdict::Pass);
            assert!(passed.map(|one| payload(&one.frame)).all(|text| text.starts_with("packet ")));
            world.until("another process", |world| {
                let status = world.instance("p").process().unwrap().status();
                status.restarts == round && status.process.is_some()
            });
        }
        world.until("no packet is pinned", |_| packets.pinned() == 0);
        world.until("no buffer is in use", |world| world.value("p", "buffers") == 0);
    }
}

/// Functions leave the chain while their processes have packets: all pins end, and all buffers come back.
pub fn a_chain_that_changes_under_load() {
    let with =
        "domain add d zero-copy buffers 256\nnf add p monitor process d\nnf add m monitor\nchain add c p";
    let (mut world, packets) = world(with);
    for round in 0..20 {
        world.harness.runner().poll_processes();
        let frames: Vec<_> = (0..50).map(|n| frame(n % 7, &format!("{round}"))).collect();
        let sent = world.harness.send("c", &frames);
        assert!(sent.iter().any(|one| one.verdict == ChainVerdict::Hold));
        world.load(&with.replace("chain add c p", "chain add c m"));
        // The next packets move their sessions.
        world.harness.send("c", &frames);
        world.until("no packet is pinned", |_| packets.pinned() == 0);
        world.until("no buffer is in use", |world| world.value("p", "buffers") == 0);
        world.load(with);
    }
    assert_eq!((world.value("p", "rejected"), world.value("p", "restarts")), (0, 0));
}

/// Without packet memory that others can map, the domain has no functions, and the sentence says what to do.
pub fn zero_copy_needs_packets_that_can_be_mapped() {
    assert_eq!(
        World::refused(READS),
        "the process of `p` has not started: packets are in memory that no other process can map (devices use \
         physical addresses, or the kernel makes no memory files): make the domain `private`"
    );
}
