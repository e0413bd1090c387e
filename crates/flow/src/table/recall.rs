//! Where the last packets' sessions stood: a cache in front of the index.
//!
//! Theory of operation. A packet brings a hash along that somebody else has computed: the network card for spreading its
//! traffic (RSS), or the parser ([`mmb_packet::Meta::flow_hash`]). It names a slot, and the slot the half in which the
//! last packet with that hash was found (Barbette et al., "Combined stateful classification and session splicing", II-F).
//! What it names is a guess: the half's own key has to be the packet's, and the half to be in use. So no slot has to
//! be cleared when a session ends, and any hash will do. A hash may be the same for both directions: the slot holds the
//! half of packets whose source is the lower address, and that of the others is its neighbour.
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
//! Where it is off, differences are the machine's (medians of the same runs go either way) and those of the loop in
//! `Lookups::fill`, which has no branch for the cache within. A cache that was always on, with as many slots as it
//! takes for nine hits of ten, gained nothing at 64,000 sessions and mostly lost: its slots are as far away as buckets then.

use crate::fcb::Found;

/// Slots: 128 KiB, which stay in the second-level cache.
const SLOTS: usize = 1 << 14;
/// Packets over which hits are counted.
const SPAN: u32 = 4_096;
/// Packets for which the cache is off when too few have hit: few the first time, when its slots are empty, then more.
const PAUSES: std::ops::RangeInclusive<u32> = SPAN..=1 << 18;

/// The cache. Its slots are guesses about any table.
#[derive(Debug)]
pub(super) struct Recall {
    /// Hash in the upper half, number of the half that was found in the lower one.
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

    /// The slot of packets with that hash. Some of its bits say which worker or queue has the packet, which ones depends on who
    /// computed it.
    #[inline(always)]
    fn at(hash: u32) -> usize {
        (hash.wrapping_mul(0x9e37_79b1) >> (u32::BITS - SLOTS.trailing_zeros())) as usize % SLOTS
    }

    /// A packet's slot, to be asked for early.
    #[inline(always)]
    pub fn slot(&self, hash: u32) -> &u64 {
        &self.slots[Recall::at(hash)]
    }

    /// The half of a packet with that hash, and whether there is a guess at all. `higher`: 1 if its source is the higher
    /// address.
    #[inline(always)]
    pub fn guess(&self, hash: u32, higher: u32) -> (Found, bool) {
        let slot = *self.slot(hash);
        (Found(slot as u32 ^ higher), (slot >> 32) as u32 == hash)
    }

    /// Keeps where a packet's session was found, if it was.
    #[inline(always)]
    pub fn keep(&mut self, hash: u32, higher: u32, found: Found) {
        if found.is_some() {
            self.slots[Recall::at(hash)] = u64::from(hash) << 32 | u64::from(found.0 ^ higher);
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
