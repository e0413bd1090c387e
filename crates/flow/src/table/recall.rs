//! A cache of recent lookups, in front of the index.
//!
//! # Theory of operation
//!
//! The marker of a packet selects a slot, and the slot names the flow of the last packet with that marker
//! (Barbette et al., "Combined stateful classification and session splicing", II-F). The marker comes from
//! the NIC's RSS hash if the packet has one. Otherwise it comes from the key, by two independent
//! multiplications. It contains no secret. The slot is only a candidate: the flow's key must equal the
//! packet's, and the flow must be in use. So the end of a session clears no slot, and any function can serve
//! as marker.
//!
//! A hit saves the hash of the key and the comparison of tags. A miss costs the access to the slot. The cache
//! is therefore enabled while at least 80 % of the packets hit, and otherwise only probed now and then. Ticks
//! of the time-stamp counter per packet to find its session (release build, vectors of 256, random flows and
//! directions, 4th generation EPYC shared with other work; `examples/cost.rs` with and without the cache in
//! turn, the minimum of seven runs each):
//!
//! | sessions | IPv4: index alone | with the cache | IPv6: index alone | with the cache | state |
//! |---|---|---|---|---|---|
//! | 1,000 | 19.7 | 17.3 | 25.7 | 21.1 | enabled |
//! | 4,000 | 20.6 | 19.7 | 26.3 | 23.4 | enabled |
//! | 16,000 | 22.2 | 20.9 | 28.4 | 28.3 | mostly disabled |
//! | 64,000 | 53.8 | 49.5 | 61.1 | 59.1 | disabled |
//! | 1,000,000 | 68.7 | 67.2 | 74.9 | 68.7 | disabled |
//!
//! In the disabled rows the differences are noise (medians of the same runs differ in both directions). A
//! cache that is always enabled, with enough slots for a hit rate of 90 %, gained nothing at 64,000 sessions
//! and mostly lost: its slots are then as far away as the buckets.

use crate::fcb::FlowRef;
use crate::key::has_tail;

/// Number of slots: 128 KiB, which stay in the L2 cache.
const SLOTS: usize = 1 << 14;
/// Number of packets over which hits are counted.
const SPAN: u32 = 4_096;
/// Number of packets for which the cache is disabled after too few hits: few the first time, when the slots
/// are empty, then more.
const PAUSES: std::ops::RangeInclusive<u32> = SPAN..=1 << 18;

/// Selects the slot of a packet: the number of the slot above a tag.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marker(u64);

impl Marker {
    /// The marker of a packet with this key.
    #[inline(always)]
    pub fn of(head: &[u64; 2], tail: &[u64; 3]) -> Marker {
        let ([a, b], [c, d, e]) = (*head, *tail);
        let tail = if has_tail(head) { c ^ d.rotate_left(23) ^ e.rotate_left(41) } else { 0 };
        Marker::of4(&[a ^ tail, b])
    }

    /// The marker of a packet with an IPv4 key.
    #[inline(always)]
    pub fn of4(&[a, b]: &[u64; 2]) -> Marker {
        let product = a.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Marker(product.wrapping_add(b.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)))
    }

    /// The marker of a packet with an RSS hash, which may be equal for both directions. `higher`: 1 if the
    /// source has the higher address.
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

/// The cache. Its slots are candidates for any table.
#[derive(Debug)]
pub(super) struct Recall {
    /// Tag in the upper half, number of the flow in the lower half.
    slots: Box<[u64; SLOTS]>,
    on: bool,
    /// Packets until the next decision.
    left: u32,
    missed: u32,
    pause: u32,
    /// Enables or disables the cache independently of hits.
    #[cfg(test)]
    pub forced: Option<bool>,
}

impl Default for Recall {
    fn default() -> Self {
        Recall {
            // No flow has this number.
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
    /// Whether the next vector uses the cache.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        #[cfg(test)]
        if let Some(forced) = self.forced {
            return forced;
        }
        self.on
    }

    /// The slot of a packet, for a prefetch.
    #[inline(always)]
    pub fn slot(&self, marker: Marker) -> &u64 {
        &self.slots[marker.slot()]
    }

    /// The candidate for a packet with this marker, and whether the tag of the slot matches.
    #[inline(always)]
    pub fn guess(&self, marker: Marker) -> (FlowRef, bool) {
        let slot = *self.slot(marker);
        (FlowRef(slot as u32), slot >> 32 == marker.tag())
    }

    /// Stores the flow of a packet, if there is one.
    #[inline(always)]
    pub fn keep(&mut self, marker: Marker, found: FlowRef) {
        if found.is_some() {
            self.slots[marker.slot()] = marker.tag() << 32 | u64::from(found.0);
        }
    }

    /// Counts the packets of a vector and those that missed, and decides whether the cache stays enabled.
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
