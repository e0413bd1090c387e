//! What operators are to hear about.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::config::PortProto;

/// Events that wait to be fetched; those that come when there are more are counted only.
const WAITING: usize = 4096;
/// How long a pool keeps silent after it has said that it is exhausted, in milliseconds.
const SILENCE: u32 = 1000;

/// Something that happened in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatEvent {
    /// When, in milliseconds of the worker's clock.
    pub at: u32,
    /// Name of the pool.
    pub pool: Arc<str>,
    /// The host inside.
    pub host: Ipv4Addr,
    /// What.
    pub what: NatEventKind,
}

/// What happened in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatEventKind {
    /// The host was given a block of ports.
    BlockAllocated(PortBlock),
    /// The host has given a block of ports back.
    BlockFreed(PortBlock),
    /// There was no external port for the host, for packets of this protocol. Said once a second at most.
    Exhausted(PortProto),
}

/// Consecutive ports of an external address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortBlock {
    /// The address.
    pub address: Ipv4Addr,
    /// First and last port.
    pub ports: (u16, u16),
}

/// Events in order.
#[derive(Debug)]
pub(super) struct Events {
    waiting: VecDeque<NatEvent>,
    lost: u64,
}

impl Events {
    pub(super) fn new() -> Events {
        Events { waiting: VecDeque::with_capacity(WAITING), lost: 0 }
    }

    pub(super) fn push(&mut self, event: NatEvent) {
        if self.waiting.len() == WAITING {
            self.lost += 1;
        } else {
            self.waiting.push_back(event);
        }
    }

    pub(super) fn pop(&mut self) -> Option<NatEvent> {
        self.waiting.pop_front()
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

/// Lets one event through for each [`SILENCE`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gate(Option<u32>);

impl Gate {
    pub(super) fn open(&mut self, now: u32) -> bool {
        let open = self.0.is_none_or(|last| now.wrapping_sub(last) >= SILENCE);
        if open {
            self.0 = Some(now);
        }
        open
    }
}

/// How much of a pool is in use, as far as one worker is concerned; figures of several workers are to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Name of the pool.
    pub pool: String,
    /// Hosts inside that have something.
    pub hosts: u64,
    /// Ports in use, by [`PortProto`], those of forwards not counted.
    pub ports: [u64; 3],
    /// Ports that there are, for each protocol.
    pub ports_total: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Blocks that there are; zero: the pool has none.
    pub blocks_total: u64,
    /// Sessions that hosts inside have opened.
    pub sessions: u64,
    /// How often there was no port left.
    pub exhausted: u64,
    /// How often a host was at its limit.
    pub limited: u64,
}

impl PoolUsage {
    /// Adds what another worker has of the same pool.
    pub fn add(&mut self, other: &PoolUsage) {
        self.hosts += other.hosts;
        self.ports.iter_mut().zip(other.ports).for_each(|(sum, n)| *sum += n);
        self.ports_total += other.ports_total;
        self.blocks += other.blocks;
        self.blocks_total += other.blocks_total;
        self.sessions += other.sessions;
        self.exhausted += other.exhausted;
        self.limited += other.limited;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_events_are_counted() {
        let mut events = Events::new();
        let event = |at| NatEvent {
            at,
            pool: "p".into(),
            host: Ipv4Addr::new(10, 0, 0, 1),
            what: NatEventKind::Exhausted(PortProto::Udp),
        };
        (0..WAITING as u32 + 3).for_each(|at| events.push(event(at)));
        assert_eq!((events.lost(), events.pop().map(|e| e.at)), (3, Some(0)));
        assert_eq!(std::iter::from_fn(|| events.pop()).count(), WAITING - 1);
    }

    #[test]
    fn a_gate_opens_once_a_second_also_when_the_clock_wraps() {
        let mut gate = Gate::default();
        let open = [u32::MAX - 10, u32::MAX, 500, 988, 989, 990].map(|now| gate.open(now));
        assert_eq!(open, [true, false, false, false, true, false]);
    }
}
