//! The sessions of one worker, and the packets that wait for them.

use mmb_dpdk::{Mbuf, Packet, Vector};
use mmb_packet::DropReason;
use mmb_policy::Batch;
use mmb_session::{Next, PrefetchToken, ReleasedFragment, Sessions};

use crate::engine::config::PortId;
use crate::engine::counters::DropCounters;
use crate::engine::node::vector::{VECTOR, WholeVector};
use crate::engine::snapshot::{WorkerSnapshot, port_bit};

/// Most sessions that end between two walks.
const MOST_ENDS: usize = 64;

/// Packets that wait, by the ticket that the sessions gave out.
#[derive(Default)]
pub(crate) struct HeldPackets(Vec<Option<Mbuf>>);

impl HeldPackets {
    /// Makes room for the tickets below a number.
    pub fn reserve(&mut self, tickets: usize) {
        if tickets > self.0.len() {
            self.0.resize_with(tickets, || None);
        }
    }

    /// Keeps a packet under its ticket. The place is free: the sessions give a ticket out again only after
    /// they have released the packet that had it.
    pub fn hold(&mut self, packet: Mbuf) {
        let ticket = packet.meta().stage.ticket();
        if let Some(place) = self.0.get_mut(ticket as usize) {
            *place = Some(packet);
        }
    }

    /// Takes the packet with a ticket out.
    pub fn release(&mut self, ticket: u32) -> Option<Mbuf> {
        self.0.get_mut(ticket as usize)?.take()
    }

    /// Drops the packet with a ticket and counts it.
    pub fn drop_held(&mut self, ticket: u32, reason: DropReason, drops: &DropCounters) {
        if let Some(packet) = self.release(ticket) {
            drops.add(packet.port(), reason as u8, 1);
        }
    }

    /// Packets that would go out by one of these ports, one bit for each port id, go out by none: `port-tx`
    /// drops them.
    pub fn detach_ports(&mut self, ports: u32) {
        let packets = if ports == 0 { &mut [] } else { &mut self.0[..] };
        for packet in packets.iter_mut().flatten() {
            if port_bit(packet.meta().out_port) & ports != 0 {
                packet.meta_mut().out_port = PortId::GONE.0;
            }
        }
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Takes the packets with outcome [`Next::Hold`] out of the vector. The packets behind them move up, as
    /// their `next` do. Returns how many were taken.
    #[cold]
    pub fn extract(&mut self, vector: &mut Vector<'_>, next: &mut [Next; VECTOR]) -> usize {
        let (all, n) = (*next, vector.len());
        let staying = all[..n].iter().filter(|next| **next != Next::Hold);
        next.iter_mut().zip(staying).for_each(|(to, next)| *to = *next);
        vector.extract_if(|at| all[at] == Next::Hold, |packet| self.hold(packet));
        n - vector.len()
    }
}

/// Counts a fragment whose datagram's first fragment did not come in time.
pub(crate) fn count_lost(packet: &Packet, drops: &DropCounters) {
    drops.add(packet.port(), DropReason::FragmentLost as u8, 1);
}

/// A vector whose sessions were prefetched.
pub(crate) type PrefetchedVector = (PrefetchToken, WholeVector);

/// The flow manager of one worker.
pub(crate) struct FlowManager {
    /// The sessions of the flows that this worker owns.
    pub sessions: Sessions,
    /// The vector that the input nodes have prefetched for `flow-lookup`.
    pub prefetched: Option<PrefetchedVector>,
    /// Matches of the rules that are asked for each packet of a session.
    pub per_packet: Box<Batch>,
    /// Fragments that wait for the first fragment of their datagram.
    pub held: HeldPackets,
    /// Packets that functions of chains hold.
    pub held_in_chains: HeldPackets,
    /// Emissions of functions that had been lost when they were counted last.
    pub emissions_lost: u64,
    /// Work of sessions is due at once, even without a packet.
    pub has_due_work: bool,
    /// There are sessions that the snapshot does not need any more, or timers that run.
    pub has_timers: bool,
}

impl FlowManager {
    /// Sessions that run on `snapshot`.
    pub fn new(mut sessions: Sessions, snapshot: &WorkerSnapshot<'_>) -> FlowManager {
        let mut held = HeldPackets::default();
        held.reserve(Sessions::TICKETS);
        sessions.adopt(snapshot, snapshot);
        let mut held_in_chains = HeldPackets::default();
        held_in_chains.reserve(sessions.held_capacity());
        FlowManager {
            sessions,
            prefetched: None,
            per_packet: Box::default(),
            held,
            held_in_chains,
            emissions_lost: 0,
            has_due_work: false,
            has_timers: false,
        }
    }

    /// Adopts a snapshot.
    pub fn adopt(&mut self, old: &WorkerSnapshot<'_>, new: &WorkerSnapshot<'_>) {
        match &new.snapshot.elements {
            Some(change) if new.snapshot.generation == old.snapshot.generation + 1 => {
                return self.sessions.adopt_elements(change, old);
            }
            _ => self.sessions.adopt(old, new),
        }
        // Until these packets go on, their ports may go, and other ports get the numbers.
        self.held_in_chains.detach_ports(old.snapshot.replaced_ports(new.snapshot));
        self.held_in_chains.reserve(self.sessions.held_capacity());
    }

    /// Ends sessions whose time has come, and drops fragments that waited in vain. When the policy needs no
    /// sessions (`is_needed` is false), the ones that are left end as well.
    pub fn expire(&mut self, now: u32, snapshot: &WorkerSnapshot<'_>, is_needed: bool, drops: &DropCounters) {
        self.has_due_work = self.sessions.tick(now, snapshot, MOST_ENDS);
        if !is_needed {
            self.has_due_work |= self.sessions.clear_batch(MOST_ENDS, snapshot);
        }
        while let Some(ReleasedFragment::Retry(ticket) | ReleasedFragment::TimedOut(ticket)) =
            self.sessions.next_released_fragment()
        {
            self.held.drop_held(ticket, DropReason::FragmentLost, drops);
        }
    }

    /// Milliseconds until sessions have work without a packet; none when no timer runs.
    pub fn next_timer(&self) -> Option<u32> {
        if self.has_due_work { Some(0) } else { self.sessions.next_tick() }
    }
}

#[cfg(test)]
mod tests;
