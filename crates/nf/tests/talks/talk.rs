//! A connection through a chain, in the numbers of its ends.

use mmb_flow::SessionSettings;
use mmb_nf::Registry;
use mmb_nf::harness::{Harness, Sent};
use mmb_packet::build::{Frame, Ip4, Tcp};
use mmb_stream::Policy;

use crate::count::Count;
use crate::left;
use crate::substitute::{Forbid, Substitute};

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;

/// Direction, distance of the number from the first byte, acknowledged bytes of the other direction, flags
/// and payload.
pub type Left = (usize, i32, i32, u8, String);

pub fn segment(direction: usize, from: i32, acked: i32, flags: u8, bytes: &str) -> Left {
    (direction, from, acked, flags, bytes.to_owned())
}

/// An editor, a function that does not look at bytes, and one that resets connections with a `!`.
pub const LINES: &str = "nf add e substitute evil harmless\nnf add n count-packets\nnf add g forbid !\n";

/// Most connections.
const SESSIONS: u32 = 20_000;

pub struct Bench {
    pub harness: Harness,
    initial: [u32; 2],
    /// Options of all segments.
    pub options: Vec<u8>,
    /// The client's.
    pub port: u16,
}

impl Bench {
    pub fn new(chain: &str) -> Bench {
        let mut registry = Registry::default();
        registry.add_stream::<Substitute>().add_stream::<Forbid>().add_stream::<Count>();
        let lines = format!("{LINES}chain add c {chain}");
        let harness = Harness::with_sessions(registry, &lines, SESSIONS).expect("valid");
        Bench { harness, initial: [1000, 0xffff_fff0], options: Vec::new(), port: 4000 }
    }

    /// A bench with a connection of which functions see the beginning.
    pub fn open(chain: &str) -> Bench {
        let mut bench = Bench::new(chain);
        bench.connect();
        bench
    }

    /// Opens a connection.
    pub fn connect(&mut self) {
        for (direction, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let from = if flags & SYN != 0 { -1 } else { 0 };
            assert_eq!(self.send(direction, from, 0, flags, "").len(), 1);
        }
    }

    pub fn set_policy(&mut self, streams: Policy) {
        let program = self.harness.program().clone();
        let settings = SessionSettings { streams, ..SessionSettings::default() };
        self.harness.runner().set_program(&program, &settings);
    }

    pub fn set_chain(&mut self, chain: &str) {
        self.harness.load(&format!("{LINES}chain add c {chain}")).expect("valid");
    }

    pub fn frame(&self, direction: usize, from: i32, acked: i32, flags: u8, bytes: &str) -> Vec<u8> {
        let number = |direction: usize, at: i32| self.initial[direction].wrapping_add(at as u32);
        let (sport, dport) = if direction == 0 { (self.port, 80) } else { (80, self.port) };
        let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let tcp = Tcp {
            seq: number(direction, from),
            ack: if flags == SYN { 0 } else { number(1 - direction, acked) },
            flags,
            window: 10_000,
            options: self.options.clone(),
            ..Tcp::new(sport, dport)
        };
        Frame::new(Ip4::new(ends[direction], ends[1 - direction]), tcp).payload(bytes).build()
    }

    /// Sends frames. Returns what became of them, and of those that waited.
    pub fn send_frames(&mut self, frames: &[Vec<u8>]) -> Vec<Sent> {
        let mut sent = self.harness.send("c", frames);
        loop {
            let released = self.harness.released();
            if released.is_empty() {
                return sent;
            }
            sent.extend(released);
        }
    }

    pub fn left(&self, sent: &[Sent]) -> Vec<Left> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let left = left::left(sent, self.initial).into_iter();
        left.map(|one| (one.direction, one.from, one.acked, one.flags, text(one.bytes))).collect()
    }

    /// Sends a segment. Returns what leaves.
    pub fn send(&mut self, direction: usize, from: i32, acked: i32, flags: u8, bytes: &str) -> Vec<Left> {
        let frame = self.frame(direction, from, acked, flags, bytes);
        let sent = self.send_frames(&[frame]);
        self.left(&sent)
    }
}
