//! Heads: the packets of a vector that are looked up.
//!
//! Theory of operation. Consecutive packets often have equal windows and therefore match the same rules. Only
//! the first packet of such a train, its head, is looked up. Heads whose hits are in the match cache are not
//! looked up, either.

use std::hint::select_unpredictable;

use mmb_packet::Window;

use super::match_cache::{CachedHits, MatchCache};
use super::packet_classes::PacketClasses;
use crate::table::Seeds;
use crate::vector::{ALL, VECTOR};

/// The heads of a vector.
#[derive(Clone, Debug)]
pub(crate) struct Heads {
    /// The packets that are heads, ascending.
    packets: [u16; VECTOR],
    pub len: usize,
    /// Key of each head in the match cache.
    pub keys: [u128; VECTOR],
    /// For each packet the number of its head, before [cached](Heads::take_cached) heads are removed.
    head_of: [u16; VECTOR],
    /// For each such number the head's present number, or [`CACHED`] plus the old number if its hits are
    /// cached.
    renumbered: [u16; VECTOR],
    /// The hits in the cache.
    cached_hits: [CachedHits; VECTOR],
    /// Number of heads whose hits are cached.
    pub cached: usize,
}

const CACHED: u16 = 1 << 15;

impl Default for Heads {
    fn default() -> Self {
        let cached_hits = [CachedHits::NONE; VECTOR];
        Heads {
            packets: [0; VECTOR],
            len: 0,
            keys: [0; VECTOR],
            head_of: [0; VECTOR],
            renumbered: [0; VECTOR],
            cached_hits,
            cached: 0,
        }
    }
}

impl Heads {
    /// Finds the heads. Windows are equal if the chunks in `chunks` (a bit set) are. Without `has_trains`
    /// every packet is a head.
    pub fn find(&mut self, windows: &[Window], chunks: u8, has_trains: bool) {
        (self.len, self.cached) = (0, 0);
        if !has_trains {
            (self.packets, self.head_of, self.len) = (ALL, ALL, windows.len());
            return;
        }
        let mut before = None;
        for (packet, window) in windows.iter().enumerate() {
            let is_head = before.is_none_or(|before| differ(before, window, chunks));
            self.packets[self.len % VECTOR] = packet as u16;
            self.len += usize::from(is_head);
            self.head_of[packet % VECTOR] = self.len as u16 - 1;
            before = Some(window);
        }
    }

    /// The packets that are heads.
    pub fn packets(&self) -> &[u16] {
        &self.packets[..self.len]
    }

    /// Looks up the heads in the cache, and removes those that are found.
    pub fn take_cached(
        &mut self,
        cache: &mut MatchCache,
        seeds: Seeds,
        windows: &[Window],
        classes: &PacketClasses,
    ) {
        let (mut sets, heads) = ([0; VECTOR], std::mem::take(&mut self.len));
        for ((key, set), packet) in self.keys.iter_mut().zip(&mut sets).zip(&self.packets[..heads]) {
            *key = classes.key(windows[usize::from(*packet)].chunk[0]);
            *set = cache.prefetch_set(seeds, *key);
        }
        for ((known, set), &key) in self.cached_hits.iter_mut().zip(&sets[..heads]).zip(&self.keys) {
            *known = cache.find(*set, key);
        }
        for head in 0..heads {
            let (is_known, len) = (self.cached_hits[head].is_known(), self.len);
            self.renumbered[head] = select_unpredictable(is_known, CACHED | head as u16, len as u16);
            (self.packets[len], self.keys[len]) = (self.packets[head], self.keys[head]);
            self.len += usize::from(!is_known);
        }
        self.cached = heads - self.len;
        cache.record_lookups(heads as u32, self.cached as u32);
    }

    /// For each packet the number of its head; see [`Heads::renumbered`].
    #[inline(always)]
    pub fn head_numbers(&self, packets: usize) -> impl Iterator<Item = u16> {
        let number = |of: u16| if self.cached == 0 { of } else { self.renumbered[usize::from(of) % VECTOR] };
        self.head_of[..packets].iter().map(move |of| number(*of))
    }

    /// A buffer for packet numbers, to be filled before [`Heads::set_first`].
    pub fn packet_buffer(&mut self) -> &mut [u16; VECTOR] {
        &mut self.packets
    }

    /// Makes the first `few` packets of [`Heads::packet_buffer`] the heads. Other packets have no head.
    pub fn set_first(&mut self, few: usize) {
        (self.len, self.cached) = (few.min(VECTOR), 0);
    }

    /// The range of cached hits for a head number, if it is a cached one.
    #[inline(always)]
    pub fn cached_run(&self, of: u16) -> Option<(usize, usize)> {
        let head = of.checked_sub(CACHED)?;
        Some(self.cached_hits[usize::from(head) % VECTOR].run())
    }
}

#[inline(always)]
fn differ(a: &Window, b: &Window, chunks: u8) -> bool {
    let mut differ = (a.chunk[0] ^ b.chunk[0]) != 0;
    let mut others = chunks & !1;
    while others != 0 && !differ {
        let chunk = others.trailing_zeros() as usize;
        differ |= a.chunk.get(chunk) != b.chunk.get(chunk);
        others &= others - 1;
    }
    differ
}
