//! Packets that wait until the Ethernet address of their next hop is known.
//!
//! Theory of operation. A worker keeps packets for a neighbour without an address here and requests the
//! address ([`super::requests`]). The answer comes as new routes. Then the next hop of every waiting packet
//! is looked up. A packet returns to the graph if its neighbour is known, is known not to answer, or is no
//! longer its next hop. Room is bounded in total and for each neighbour; the newest packet replaces the
//! oldest packet of the same neighbour (RFC 1122, 2.3.2.2). A packet waits at most [`PATIENCE`].

use std::collections::VecDeque;

use mmb_dpdk::Mbuf;

use super::requests::NeighborRequest;

/// Most packets that wait.
const MOST: usize = 256;
/// Most packets that wait for one neighbour.
const MOST_EACH: usize = 8;
/// How long a packet waits, in milliseconds: as long as the kernel takes to give a neighbour up.
const PATIENCE: u32 = 3_000;

/// What happens to a waiting packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It continues to wait.
    Wait,
    /// Its route is looked up again.
    Retry,
    /// The neighbour has not answered in time.
    TimedOut,
}

struct WaitingPacket {
    packet: Mbuf,
    neighbor: NeighborRequest,
    /// When it came, in milliseconds.
    since: u32,
    outcome: Outcome,
}

/// The waiting packets of one worker.
pub(crate) struct WaitingPackets {
    /// The oldest packet first.
    packets: VecDeque<WaitingPacket>,
    /// Routes have changed since the last [`WaitingPackets::decide`].
    have_routes_changed: bool,
}

impl Default for WaitingPackets {
    fn default() -> Self {
        WaitingPackets { packets: VecDeque::with_capacity(MOST), have_routes_changed: false }
    }
}

impl WaitingPackets {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Makes the next [`WaitingPackets::decide`] look up all packets.
    pub fn routes_changed(&mut self) {
        self.have_routes_changed = true;
    }

    /// Adds a packet. Returns the packet that makes room for it, which may be the same packet.
    pub fn push(&mut self, packet: Mbuf, neighbor: NeighborRequest, now: u32) -> Option<Mbuf> {
        let of_neighbor = self.packets.iter().filter(|one| one.neighbor == neighbor).count();
        let mut evicted = None;
        if of_neighbor == MOST_EACH || self.packets.len() == MOST {
            let oldest = self.packets.iter().position(|one| one.neighbor == neighbor);
            let Some(oldest) = oldest.and_then(|at| self.packets.remove(at)) else { return Some(packet) };
            evicted = Some(oldest.packet);
        }
        self.packets.push_back(WaitingPacket { packet, neighbor, since: now, outcome: Outcome::Wait });
        evicted
    }

    /// Milliseconds until the oldest packet has waited too long; none without packets.
    pub fn next_timer(&self, now: u32) -> Option<u32> {
        let oldest = self.packets.front()?;
        Some(PATIENCE.saturating_sub(now.wrapping_sub(oldest.since)))
    }

    /// Decides what happens to each packet. `waits` returns whether a packet still waits for its neighbour.
    /// Returns false if there is nothing to do.
    pub fn decide(&mut self, now: u32, waits: impl Fn(&Mbuf, NeighborRequest) -> bool) -> bool {
        let has_new_routes = std::mem::take(&mut self.have_routes_changed);
        if !has_new_routes && self.next_timer(now) != Some(0) {
            return false;
        }
        for one in &mut self.packets {
            one.outcome = match now.wrapping_sub(one.since) {
                _ if has_new_routes && !waits(&one.packet, one.neighbor) => Outcome::Retry,
                age if age >= PATIENCE => Outcome::TimedOut,
                _ => Outcome::Wait,
            };
        }
        true
    }

    /// Takes the packets with this outcome out that `which` selects, the oldest first, until `take` returns
    /// one.
    pub fn release(
        &mut self,
        outcome: Outcome,
        which: impl Fn(&Mbuf) -> bool,
        mut take: impl FnMut(Mbuf) -> Result<(), Mbuf>,
    ) {
        let mut at = 0;
        while let Some(one) = self.packets.get(at) {
            if one.outcome != outcome || !which(&one.packet) {
                at += 1;
                continue;
            }
            let Some(one) = self.packets.remove(at) else { return };
            if let Err(packet) = take(one.packet) {
                // The walk is full; the packet is released in the next one.
                self.have_routes_changed = true;
                self.packets.insert(at, WaitingPacket { packet, ..one });
                return;
            }
        }
    }
}
