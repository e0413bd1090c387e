//! Log events and usage figures for the operator.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::config::PortProto;

/// Maximum number of queued events. Further events are only counted.
const WAITING: usize = 4096;
/// Minimum time between two reports of exhaustion by a pool, in milliseconds.
const SILENCE: u32 = 1000;

/// An event in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatEvent {
    /// Time of the event, in milliseconds of the worker's clock.
    pub at: u32,
    /// Name of the pool.
    pub pool: Arc<str>,
    /// The internal host.
    pub host: Ipv4Addr,
    /// The event.
    pub what: NatEventKind,
}

/// The kind of an event in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatEventKind {
    /// The host got a block of ports.
    BlockAllocated(PortBlock),
    /// The host returned a block of ports.
    BlockFreed(PortBlock),
    /// No external port was left for the host and this protocol. Reported at most once per second.
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

/// The queue of events.
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

/// Passes one event per [`SILENCE`].
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

/// Usage of a pool by one worker. The figures of several workers add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Name of the pool.
    pub pool: String,
    /// Internal hosts with mappings.
    pub hosts: u64,
    /// Ports in use by [`PortProto`], without those of forwards.
    pub ports: [u64; 3],
    /// Number of ports for each protocol.
    pub ports_total: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Number of blocks; 0 if the pool has no blocks.
    pub blocks_total: u64,
    /// Sessions that internal hosts have opened.
    pub sessions: u64,
    /// Number of requests that failed for lack of ports.
    pub exhausted: u64,
    /// Number of requests that exceeded the limit of a host.
    pub limited: u64,
}

impl PoolUsage {
    /// Adds the figures of another worker for the same pool.
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
