//! Where the last packets' sessions stood: a cache in front of the index.
//!
//! Theory of operation. A packet's marker names a slot, and the slot the half in which the last packet with that marker was
//! found (Barbette et al., "Combined stateful classification and session splicing", II-F). It is made of the hash by which the
//! network card spreads its traffic (RSS) if the packet brings one along, or else of the key, by two multiplications that need
//! not wait for each other: no secret is in it. What a slot names is a guess: the half's own key has to be the packet's, and
//! the half to be in use. So no slot has to be cleared when a session ends, and any marker will do.
//!
//! A hit saves the hash of the key and the comparison of tags; a miss costs what was done in vain. So the cache is on while
//! four of five packets hit and off otherwise, but for a trial now and then. Ticks of the time-stamp counter per packet to
//! find its session (release build, vectors of 256, flows and directions at random, EPYC of the fourth generation, shared
//! with other work; `examples/cost.rs` with and without the cache in turn, seven times each, the lowest):
//!
//! | sessions | IPv4: index alone | with the cache | IPv6: index alone | with the cache | it is |
//! |---|---|---|---|---|---|
//! | 1,000 | 19.7 | 17.3 | 25.7 | 21.1 | on |
//! | 4,000 | 20.6 | 19.7 | 26.3 | 23.4 | on |
//! | 16,000 | 22.2 | 20.9 | 28.4 | 28.3 | mostly off |
//! | 64,000 | 53.8 | 49.5 | 61.1 | 59.1 | off |
//! | 1,000,000 | 68.7 | 67.2 | 74.9 | 68.7 | off |
//!
//! Where it is off, differences are the machine's (medians of the same runs go either way). A cache that was always on, with as many slots as it
//! takes for nine hits of ten, gained nothing at 64,000 sessions and mostly lost: its slots are as far away as buckets then.

use crate::fcb::FlowRef;
use crate::key::has_tail;

/// Slots: 128 KiB, which stay in the second-level cache.
const SLOTS: usize = 1 << 14;
/// Packets over which hits are counted.
const SPAN: u32 = 4_096;
/// Packets for which the cache is off when too few have hit: few the first time, when its slots are empty, then more.
const PAUSES: std::ops::RangeInclusive<u32> = SPAN..=1 << 18;

/// What a packet's slot is found by: the slot's number above a tag.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marker(u64);

impl Marker {
    /// Of a packet with a key of that head and, if it has one, tail.
    #[inline(always)]
    pub fn of(head: &[u64; 2], tail: &[u64; 3]) -> Marker {
        let ([a, b], [c, d, e]) = (*head, *tail);
        let tail = if has_tail(head) { c ^ d.rotate_left(23) ^ e.rotate_left(41) } else { 0 };
        Marker::of4(&[a ^ tail, b])
    }

    /// The same where the key has no tail.
    #[inline(always)]
    pub fn of4(&[a, b]: &[u64; 2]) -> Marker {
        let product = a.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Marker(product.wrapping_add(b.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)))
    }

    /// Of a packet that brings a hash along, which may be the same for both directions; `higher`: 1 if its source is the higher
    /// address.
    #[inline(always)]
    pub fn of_hash(hash: u32, higher: u32) -> Marker {
        Marker(u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(higher) << 63)
    }

    #[inline(always)]
    fn slot(self) -> usize {
        (self.0 >> (u64::BITS - SLOTS.trailing_zeros())) as usize % SLOTS
    }

    #[inline(always)]
    fn tag(self) -> u64 {
        self.0 >> 16 & 0xffff_ffff
    }
}

/// The cache. Its slots are guesses about any table.
#[derive(Debug)]
pub(super) struct Recall {
    /// Tag in the upper half, number of the half that was found in the lower one.
    slots: Box<[u64; SLOTS]>,
    on: bool,
    /// Packets until the next decision.
    left: u32,
    missed: u32,
    pause: u32,
    /// On or off whatever hits.
    #[cfg(test)]
    pub forced: Option<bool>,
}

impl Default for Recall {
    fn default() -> Self {
        Recall {
            // No half has the number that is in these.
            slots: Box::new([u64::MAX; SLOTS]),
            on: true,
            left: SPAN,
            missed: 0,
            pause: *PAUSES.start(),
            #[cfg(test)]
            forced: None,
        }
    }
}

impl Recall {
    /// Whether the next vector is to be looked up by the cache.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        #[cfg(test)]
        if let Some(forced) = self.forced {
            return forced;
        }
        self.on
    }

    /// A packet's slot, to be asked for early.
    #[inline(always)]
    pub fn slot(&self, marker: Marker) -> &u64 {
        &self.slots[marker.slot()]
    }

    /// The half of a packet with that marker, and whether there is a guess at all.
    #[inline(always)]
    pub fn guess(&self, marker: Marker) -> (FlowRef, bool) {
        let slot = *self.slot(marker);
        (FlowRef(slot as u32), slot >> 32 == marker.tag())
    }

    /// Keeps where a packet's session was found, if it was.
    #[inline(always)]
    pub fn keep(&mut self, marker: Marker, found: FlowRef) {
        if found.is_some() {
            self.slots[marker.slot()] = marker.tag() << 32 | u64::from(found.0);
        }
    }

    /// Counts the packets of a vector and those that were not where the cache said, and decides whether to go on.
    #[inline]
    pub fn count(&mut self, packets: u32, missed: u32) {
        self.missed += missed;
        self.left = self.left.saturating_sub(packets.max(1));
        if self.left > 0 {
            return;
        }
        let was_on = self.on;
        self.on = !was_on || self.missed <= SPAN / 5;
        self.left = SPAN;
        if !self.on {
            self.left = self.pause;
            self.pause = (self.pause * 4).min(*PAUSES.end());
        } else if was_on {
            self.pause = *PAUSES.start();
        }
        self.missed = 0;
    }
}
