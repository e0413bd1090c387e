//! The sessions of one worker, and the packets that wait for them.

use mmb_dpdk::{Mbuf, Packet};
use mmb_packet::DropReason;
use mmb_policy::Batch;
use mmb_session::{ReleasedFragment, Sessions};

use super::prefetched::PrefetchedVector;
use crate::engine::counters::DropCounters;
use crate::engine::snapshot::WorkerSnapshot;

/// Most sessions that end between two walks.
const MOST_ENDS: usize = 64;

/// Fragments that wait for the first fragment of their datagram, by the ticket that the sessions gave out.
pub(crate) struct HeldFragments(Box<[Option<Mbuf>]>);

impl HeldFragments {
    fn new() -> HeldFragments {
        HeldFragments((0..Sessions::TICKETS).map(|_| None).collect())
    }

    /// Keeps a packet under its ticket. The place is free: the sessions give a ticket out again only after
    /// they have released the packet that had it.
    pub fn hold(&mut self, ticket: u32, packet: Mbuf) {
        if let Some(place) = self.0.get_mut(ticket as usize) {
            *place = Some(packet);
        }
    }

    /// Takes the packet with a ticket out.
    pub fn release(&mut self, ticket: u32) -> Option<Mbuf> {
        self.0.get_mut(ticket as usize)?.take()
    }

    /// Drops the packet with a ticket and counts it.
    pub fn drop_held(&mut self, ticket: u32, drops: &DropCounters) {
        if let Some(packet) = self.release(ticket) {
            count_lost(&packet, drops);
        }
    }

    /// Whether packets wait.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// Counts a fragment whose datagram's first fragment did not come in time.
pub(crate) fn count_lost(packet: &Packet, drops: &DropCounters) {
    drops.add(packet.port(), DropReason::FragmentLost as u8, 1);
}

/// The flow manager of one worker.
pub(crate) struct FlowManager {
    /// The sessions of the flows that this worker owns.
    pub sessions: Sessions,
    /// The vector that the input nodes have prefetched for `flow-lookup`.
    pub prefetched: Option<PrefetchedVector>,
    /// Matches of the rules that are asked for each packet of a session.
    pub per_packet: Box<Batch>,
    pub held: HeldFragments,
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
        sessions.adopt(snapshot, snapshot);
        FlowManager {
            sessions,
            prefetched: None,
            per_packet: Box::default(),
            held: HeldFragments::new(),
            emissions_lost: 0,
            has_due_work: false,
            has_timers: false,
        }
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
            self.held.drop_held(ticket, drops);
        }
    }

    /// Milliseconds until sessions have work without a packet; none when no timer runs.
    pub fn next_timer(&self) -> Option<u32> {
        if self.has_due_work { Some(0) } else { self.sessions.next_tick() }
    }
}
