//! A connection through a chain of functions that edit.

use mmb_nf::harness::{Harness, Sent};
use mmb_nf::{ChainVerdict, Registry};
use mmb_packet::build::{Frame, Ip4, Net, Tcp};

use crate::count::Count;
use crate::left;
use crate::substitute::Substitute;

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;
pub const FIN: u8 = 1;

pub struct Bench {
    pub harness: Harness,
    pub net: [Net; 2],
    pub initial: [u32; 2],
    /// The window of segments.
    pub window: u16,
}

/// A segment that has left: direction, distance of its number from the first byte, acknowledged bytes of the
/// other direction, flags and payload.
pub type Left = (usize, i32, i32, u8, String);

impl Bench {
    pub fn new(functions: &str, chain: &str) -> Bench {
        Bench::with_window(functions, chain, 10_000)
    }

    pub fn with_window(functions: &str, chain: &str, window: u16) -> Bench {
        let mut registry = Registry::default();
        registry.add_stream::<Substitute>();
        registry.add_stream::<Count>();
        let harness = Harness::new(registry, &format!("{functions}\nchain add c {chain}")).expect("valid");
        let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let net = [Ip4::new(ends[0], ends[1]).into(), Ip4::new(ends[1], ends[0]).into()];
        let mut bench = Bench { harness, net, initial: [1000, 0xffff_fff0], window };
        bench.open();
        bench
    }

    pub fn open(&mut self) {
        for (direction, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let from = if flags & SYN != 0 { -1 } else { 0 };
            let frame = self.frame(direction, from, 0, flags, b"");
            let sent = self.harness.send("c", std::slice::from_ref(&frame));
            assert_eq!((sent[0].verdict, &sent[0].frame), (ChainVerdict::Pass, &frame));
        }
    }

    /// Returns what is counted of several paths, and of refused edits.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let contexts = self.harness.program().instances().iter().flat_map(|one| one.stream_counters());
        let is_it = |text: &str| text.contains("several paths") || text.contains("not-editable");
        contexts
            .filter(|(counter, count)| *count != 0 && is_it(counter.text))
            .map(|(counter, count)| (counter.text.to_owned(), count))
            .collect()
    }

    pub fn frame(&self, direction: usize, from: i32, acked: i32, flags: u8, bytes: &[u8]) -> Vec<u8> {
        let number = |direction: usize, at: i32| self.initial[direction].wrapping_add(at as u32);
        let (seq, ack) = (number(direction, from), number(1 - direction, acked));
        let (sport, dport) = if direction == 0 { (4000, 80) } else { (80, 4000) };
        let tcp = Tcp { seq, ack, flags, window: self.window, ..Tcp::new(sport, dport) };
        Frame::new(self.net[direction].clone(), tcp).payload(bytes).build()
    }

    pub fn left(&self, sent: &[Sent]) -> Vec<Left> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let left = left::left(sent, self.initial).into_iter();
        left.map(|one| (one.direction, one.from, one.acked, one.flags, text(one.bytes))).collect()
    }

    /// Sends a segment. Returns what leaves.
    pub fn send(&mut self, direction: usize, from: i32, acked: i32, flags: u8, bytes: &str) -> Vec<Left> {
        let frame = self.frame(direction, from, acked, flags, bytes.as_bytes());
        let sent = self.harness.send("c", &[frame]);
        let mut left = self.left(&sent);
        let released = self.harness.released();
        left.extend(self.left(&released));
        left
    }
}

pub fn segment(direction: usize, from: i32, acked: i32, flags: u8, bytes: &str) -> Left {
    (direction, from, acked, flags, bytes.to_owned())
}
