//! A chain with functions in processes that are only memory, between two ends.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeMap;
use std::sync::Arc;

use mmb_nf::harness::{Harness, Sent};
use mmb_nf::{ChainVerdict, Registry};
use mmb_packet::build::{Frame, Ip4, Net, Tcp, Udp};
use proptest::prelude::*;

#[path = "left.rs"]
mod left;

use crate::memory::MemoryHost;
use crate::substitute::{Forbid, Gate, Substitute};
pub use left::Left;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;
const INITIAL: [u32; 2] = [1000, 0xffff_fff0];

pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add_stream::<Substitute>();
    registry.add_stream::<Forbid>();
    registry.add_stream::<Gate>();
    registry
}

pub struct Bench {
    pub harness: Harness,
    pub host: Arc<MemoryHost>,
    /// Functions in processes on the way of a packet.
    pub hops: usize,
}

fn net(direction: usize) -> Net {
    let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
    Ip4::new(ends[direction], ends[1 - direction]).into()
}

pub fn frame(direction: usize, from: i32, acked: i32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    frame_of(4000, direction, (from, acked), flags, bytes)
}

/// A frame of the connection of a client's port.
pub fn frame_of(port: u16, direction: usize, (from, acked): (i32, i32), flags: u8, bytes: &[u8]) -> Vec<u8> {
    let number = |direction: usize, at: i32| INITIAL[direction].wrapping_add(at as u32);
    let (seq, ack) = (number(direction, from), number(1 - direction, acked));
    let (sport, dport) = if direction == 0 { (port, 80) } else { (80, port) };
    Frame::new(net(direction), Tcp { seq, ack, flags, ..Tcp::new(sport, dport) }).payload(bytes).build()
}

pub fn left(sent: &[Sent]) -> Vec<Left> {
    left::left(sent, INITIAL)
}

impl Bench {
    /// A chain of one function in a process. `domain`: settings of its domain.
    pub fn new(words: &str, domain: &str) -> Bench {
        let lines =
            format!("domain add d private {domain}\nnf add w substitute {words} process d\nchain add c w");
        Bench::with(&lines)
    }

    /// The chain `c` of some lines, with an open connection.
    pub fn with(lines: &str) -> Bench {
        let host = Arc::new(MemoryHost::new(registry));
        let harness = Harness::with_processes(registry(), lines, host.clone()).unwrap();
        let hops = lines.matches(" process ").count();
        let mut bench = Bench { harness, host, hops };
        bench.harness.released();
        for (direction, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let from = if flags & SYN != 0 { -1 } else { 0 };
            let frame = frame(direction, from, 0, flags, b"");
            assert_eq!(left(&bench.send(std::slice::from_ref(&frame), 9)).len(), 1);
        }
        bench
    }

    /// Sends frames, and lets the process work on so many items. Returns what goes on.
    pub fn send(&mut self, frames: &[Vec<u8>], items: usize) -> Vec<Sent> {
        self.harness.runner().poll_processes();
        let mut sent = self.harness.send("c", frames);
        sent.retain(|one| one.verdict != ChainVerdict::Hold);
        sent.extend(self.work(items));
        sent
    }

    pub fn work(&mut self, items: usize) -> Vec<Sent> {
        let mut sent = Vec::new();
        for _ in 0..self.hops {
            self.host.each(|memory| memory.run(items));
            sent.extend(self.harness.released());
        }
        sent
    }

    /// Sends a segment, which comes back from the process. Returns the payloads of what leaves.
    pub fn texts(&mut self, from: i32, flags: u8, bytes: &str) -> Vec<(i32, String)> {
        let sent = self.send(&[frame(0, from, 0, ACK | flags, bytes.as_bytes())], 9);
        let text = |one: &Left| (one.from, String::from_utf8_lossy(&one.bytes).into_owned());
        left(&sent).iter().filter(|one| one.direction == 0).map(text).collect()
    }
}

pub fn datagram(bytes: &str) -> Vec<u8> {
    Frame::new(net(0), Udp::new(5000, 53)).payload(bytes.as_bytes()).build()
}

/// The sender's bytes, and what its receiver has.
pub struct Ends {
    content: Vec<u8>,
    pub acked: usize,
    pub received: Vec<u8>,
    early: BTreeMap<usize, Vec<u8>>,
    pub is_reset: bool,
}

impl Ends {
    fn take(&mut self, all: &[Left]) {
        for one in all {
            self.is_reset |= one.flags & RST != 0;
            match one.direction {
                0 => {
                    let (from, bytes) = (one.from as usize, &one.bytes);
                    let known = self.early.entry(from).or_default();
                    if bytes.len() > known.len() {
                        known.clone_from(bytes);
                    }
                }
                _ if one.flags & ACK != 0 => self.acked = self.acked.max(one.acked.max(0) as usize),
                _ => {}
            }
        }
        while let Some((&from, _)) =
            self.early.first_key_value().filter(|(from, _)| **from <= self.received.len())
        {
            let bytes = self.early.remove(&from).unwrap_or_default();
            let new = bytes.get(self.received.len() - from..).unwrap_or_default();
            self.received.extend_from_slice(new);
        }
    }
}

/// What happens in each round: bytes to skip in front of what is sent, sizes of segments, lost ones, items
/// that the process works on.
pub type Round = (u8, Vec<(u8, bool)>, u8, bool);

pub fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let segments = prop::collection::vec((1..40_u8, prop::bool::weighted(0.8)), 0..6);
    prop::collection::vec((0..30_u8, segments, 0..12_u8, prop::bool::weighted(0.7)), 40)
}

/// Transfers content through a chain. `kill`: the process ends in front of this round.
pub fn transfer(bench: &mut Bench, content: &[u8], rounds: &[Round], kill: Option<usize>) -> Ends {
    let mut ends = Ends {
        content: content.to_vec(),
        acked: 0,
        received: Vec::new(),
        early: BTreeMap::new(),
        is_reset: false,
    };
    for (number, (skip, sizes, items, is_acked)) in rounds.iter().cycle().take(4000).enumerate() {
        if ends.acked >= content.len() || ends.is_reset {
            break;
        }
        if kill == Some(number) {
            bench.host.with(|memory| memory.kill());
        }
        let mut from = ends.acked + usize::from(*skip) * usize::from(number % 3 == 0);
        let mut frames = Vec::new();
        for &(size, arrives) in sizes {
            let to = (from + usize::from(size)).min(ends.content.len());
            if from < to && arrives {
                frames.push(frame(0, from as i32, 0, ACK, &ends.content[from..to]));
            }
            from = to;
        }
        let sent = left(&bench.send(&frames, (*items).into()));
        // Some of what leaves is lost as well.
        let kept: Vec<_> = sent.into_iter().enumerate().filter(|(n, _)| (n + number) % 5 != 0).collect();
        ends.take(&kept.into_iter().map(|(_, one)| one).collect::<Vec<_>>());
        if *is_acked {
            let sent = bench.send(&[frame(1, 0, ends.received.len() as i32, ACK, b"")], (*items).into());
            ends.take(&left(&sent));
        }
    }
    ends
}
