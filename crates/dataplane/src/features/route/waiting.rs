//! Packets that wait until the Ethernet address of their next hop is known.
//!
//! Theory of operation. A worker keeps packets for a neighbour without an address here and requests the
//! address ([`super::requests`]). The answer comes as new routes. Then the next hop of every waiting packet
//! is looked up. A packet returns to the graph if its neighbour is known, is known not to answer, or is no
//! longer its next hop. A packet waits at most [`PATIENCE`].
//!
//! Room is bounded in total and for each neighbour, in buffers. The newest packet always gets some (RFC 1122,
//! 2.3.2.2): it replaces the oldest packets of the same neighbour, or of the neighbour that has most, or the
//! oldest of all if none has many. So neighbours that do not answer take no room from others, and a scan of
//! addresses replaces its own packets first.

use std::collections::VecDeque;

use mmb_dpdk::Mbuf;

use super::requests::NeighborRequest;

/// Most buffers of packets that wait.
const MOST: usize = 512;
/// Most buffers of packets that wait for one neighbour. Linux keeps some 90 to 200 (`unres_qlen_bytes`).
const MOST_EACH: usize = 128;
/// Buffers for one neighbour that packets to others do not replace while older ones wait.
const SHARE: usize = 32;
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

impl WaitingPacket {
    fn buffers(&self) -> usize {
        self.packet.nb_segs().into()
    }
}

/// The waiting packets of one worker.
pub(crate) struct WaitingPackets {
    /// The oldest packet first.
    packets: VecDeque<WaitingPacket>,
    /// The neighbours of these packets, and the number of buffers of each.
    neighbors: Vec<(NeighborRequest, usize)>,
    /// Routes have changed since the last [`WaitingPackets::decide`].
    have_routes_changed: bool,
}

impl Default for WaitingPackets {
    fn default() -> Self {
        WaitingPackets {
            packets: VecDeque::with_capacity(MOST),
            neighbors: Vec::with_capacity(MOST),
            have_routes_changed: false,
        }
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

    /// Adds a packet. Calls a closure with each packet that makes room for it.
    pub fn push(&mut self, packet: Mbuf, neighbor: NeighborRequest, now: u32, mut evict: impl FnMut(Mbuf)) {
        let new = WaitingPacket { packet, neighbor, since: now, outcome: Outcome::Wait };
        while self.buffers_of(neighbor) + new.buffers() > MOST_EACH
            && let Some(oldest) = self.remove_oldest(neighbor)
        {
            evict(oldest);
        }
        while self.buffers() + new.buffers() > MOST
            && let Some(oldest) = self.largest().and_then(|largest| self.remove_oldest(largest))
        {
            evict(oldest);
        }
        self.insert(self.packets.len(), new);
    }

    fn buffers(&self) -> usize {
        self.neighbors.iter().map(|(_, buffers)| buffers).sum()
    }

    fn buffers_of(&self, neighbor: NeighborRequest) -> usize {
        self.neighbors.iter().find(|(one, _)| *one == neighbor).map_or(0, |(_, buffers)| *buffers)
    }

    /// The neighbour whose packets make room for others: the one that has most, if that is more than
    /// [`SHARE`], else that of the oldest packet.
    fn largest(&self) -> Option<NeighborRequest> {
        let (largest, buffers) = *self.neighbors.iter().max_by_key(|(_, buffers)| *buffers)?;
        if buffers > SHARE { Some(largest) } else { self.packets.front().map(|oldest| oldest.neighbor) }
    }

    fn insert(&mut self, at: usize, new: WaitingPacket) {
        match self.neighbors.iter_mut().find(|(one, _)| *one == new.neighbor) {
            Some((_, buffers)) => *buffers += new.buffers(),
            None => self.neighbors.push((new.neighbor, new.buffers())),
        }
        self.packets.insert(at, new);
    }

    fn remove(&mut self, at: usize) -> Option<WaitingPacket> {
        let removed = self.packets.remove(at)?;
        if let Some(at) = self.neighbors.iter().position(|(one, _)| *one == removed.neighbor) {
            self.neighbors[at].1 -= removed.buffers();
            if self.neighbors[at].1 == 0 {
                self.neighbors.swap_remove(at);
            }
        }
        Some(removed)
    }

    fn remove_oldest(&mut self, neighbor: NeighborRequest) -> Option<Mbuf> {
        let oldest = self.packets.iter().position(|one| one.neighbor == neighbor)?;
        Some(self.remove(oldest)?.packet)
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
            let Some(one) = self.remove(at) else { return };
            if let Err(packet) = take(one.packet) {
                // The walk is full; the packet is released in the next one.
                self.have_routes_changed = true;
                self.insert(at, WaitingPacket { packet, ..one });
                return;
            }
        }
    }
}
