//! Packets that wait until the Ethernet address of their next hop is known.
//!
//! Theory of operation. A worker that has a packet for a neighbour without an address keeps it here and asks for the address
//! ([`crate::features::route::requests`]). New routes are how the answer comes: then the next hop of every packet that waits is looked up, and those
//! whose neighbour is known now, or known not to answer, or not their next hop any more, go back to where they came from.
//! Room is bounded, in all and for each neighbour; where that has no more, its oldest packet gives way to the newest one
//! (RFC 1122, 2.3.2.2). After [`PATIENCE`] a packet waits no longer.

use std::collections::VecDeque;

use mmb_dpdk::Mbuf;

use crate::features::route::requests::Want;

/// Packets that wait, at most.
const MOST: usize = 256;
/// … of them for one neighbour.
const MOST_EACH: usize = 8;
/// How long a packet waits, in milliseconds: as long as it takes the kernel to find out that nobody answers.
const PATIENCE: u32 = 3_000;

/// What is to become of a packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It waits on.
    Wait,
    /// Its route is looked up once more.
    Again,
    /// Nobody has answered.
    Lost,
}

struct One {
    packet: Mbuf,
    neighbor: Want,
    /// When it came, in milliseconds.
    since: u32,
    way: Way,
}

/// A worker's packets that wait; see the module's theory of operation.
pub(crate) struct Waiting {
    /// By age.
    packets: VecDeque<One>,
    /// Routes have changed since the packets were looked at.
    look: bool,
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting { packets: VecDeque::with_capacity(MOST), look: false }
    }
}

impl Waiting {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Routes have changed.
    pub fn look_again(&mut self) {
        self.look = true;
    }

    /// Adds a packet; the one that has to make room, which may be the same.
    pub fn push(&mut self, packet: Mbuf, neighbor: Want, now: u32) -> Option<Mbuf> {
        let of_neighbor = self.packets.iter().filter(|one| one.neighbor == neighbor).count();
        let mut evicted = None;
        if of_neighbor == MOST_EACH || self.packets.len() == MOST {
            let oldest = self.packets.iter().position(|one| one.neighbor == neighbor);
            let Some(oldest) = oldest.and_then(|at| self.packets.remove(at)) else { return Some(packet) };
            evicted = Some(oldest.packet);
        }
        self.packets.push_back(One { packet, neighbor, since: now, way: Way::Wait });
        evicted
    }

    /// Milliseconds until a packet has waited too long; none without packets.
    pub fn next_tick(&self, now: u32) -> Option<u32> {
        let oldest = self.packets.front()?;
        Some(PATIENCE.saturating_sub(now.wrapping_sub(oldest.since)))
    }

    /// Decides what is to become of each packet, `waits` saying whether one still has to wait for its neighbour; false if there
    /// is nothing to do.
    pub fn decide(&mut self, now: u32, waits: impl Fn(&Mbuf, Want) -> bool) -> bool {
        let look = std::mem::take(&mut self.look);
        if !look && self.next_tick(now) != Some(0) {
            return false;
        }
        for one in &mut self.packets {
            one.way = match now.wrapping_sub(one.since) {
                _ if look && !waits(&one.packet, one.neighbor) => Way::Again,
                age if age >= PATIENCE => Way::Lost,
                _ => Way::Wait,
            };
        }
        true
    }

    /// Takes the packets out that go this way and are `which`, the oldest first, until `take` gives one back.
    pub fn release(
        &mut self,
        way: Way,
        which: impl Fn(&Mbuf) -> bool,
        mut take: impl FnMut(Mbuf) -> Result<(), Mbuf>,
    ) {
        let mut at = 0;
        while let Some(one) = self.packets.get(at) {
            if one.way != way || !which(&one.packet) {
                at += 1;
                continue;
            }
            let Some(one) = self.packets.remove(at) else { return };
            if let Err(packet) = take(one.packet) {
                // The walk is full; the packet gets its turn in the next one.
                self.look = true;
                self.packets.insert(at, One { packet, ..one });
                return;
            }
        }
    }
}
