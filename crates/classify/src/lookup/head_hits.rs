//! The hits of a vector's heads, and their expansion to all packets.
//!
//! Theory of operation. Each head has room for some slots. The passes ([`super::walk`]) add slots in any
//! order of heads. What finds no room, and the hits of nodes and other places that only some packets visit,
//! are in a list that is sorted by head in the end. Then every packet gets the hits of its head.

use bytemuck::cast;
use wide::u8x16;

use super::heads::Heads;
use super::match_cache::MatchCache;
use crate::table::Seeds;
use crate::vector::{Hit, Simd, VECTOR};

/// Number of hits that are written at once. Most packets have no more.
const STEP: usize = 8;

/// Room for the slots of a head. The rest of its hits is among those in any order.
const ROOM: usize = 32;

/// Shuffle masks that place two of four slots into their hits. A byte with the top bit set yields zero.
const SLOT_BYTES: [[u8; 16]; 2] = [
    [0x80, 0x80, 0x80, 0x80, 0, 1, 2, 3, 0x80, 0x80, 0x80, 0x80, 4, 5, 6, 7],
    [0x80, 0x80, 0x80, 0x80, 8, 9, 10, 11, 0x80, 0x80, 0x80, 0x80, 12, 13, 14, 15],
];

/// Appends the hits of a run of slots. It writes whole steps and truncates the excess, because the number of
/// hits is hard to predict.
#[inline(always)]
fn append(hits: &mut Vec<Hit>, pkt: u16, slots: &[u32], (from, to): (usize, usize)) {
    let end = hits.len() + (to - from);
    let packet: u8x16 = cast([Hit::new(pkt, 0); 2]);
    for at in (from..to).step_by(STEP) {
        let Some(slots) = slots[at..].first_chunk::<STEP>() else {
            hits.extend(slots[at..to].iter().map(|&slot| Hit::new(pkt, slot)));
            continue;
        };
        let [first, second]: [u8x16; 2] = cast(*slots);
        let two = |slots: u8x16, half: usize| slots.shuffle(u8x16::new(SLOT_BYTES[half])) | packet;
        let eight = [two(first, 0), two(first, 1), two(second, 0), two(second, 1)];
        hits.extend_from_slice(&cast::<[u8x16; 4], [Hit; STEP]>(eight));
    }
    hits.truncate(end);
}

/// Shuffle mask for each set of lanes (a bit set) that moves the selected lanes to the front.
static PACK: [[u8; 16]; 16] = {
    let mut pack = [[0; 16]; 16];
    let mut lanes = 0;
    while lanes < 16 {
        let (mut at, mut lane) = (0, 0);
        while lane < 4 {
            if lanes & 1 << lane != 0 {
                let mut byte = 0;
                while byte < 4 {
                    pack[lanes][at] = (lane * 4 + byte) as u8;
                    at += 1;
                    byte += 1;
                }
            }
            lane += 1;
        }
        lanes += 1;
    }
    pack
};

/// The hits of a vector's heads.
#[derive(Clone, Debug)]
pub(crate) struct HeadHits {
    /// The slots of each head. Elements behind its length are undefined.
    slots: Box<[[u32; ROOM]; VECTOR]>,
    lens: [u16; VECTOR],
    /// Hits in any order.
    pub unordered: Vec<Hit>,
    /// Slots of `unordered`, sorted by head.
    sorted: Vec<u32>,
    starts: [u32; VECTOR + 2],
}

impl Default for HeadHits {
    fn default() -> Self {
        HeadHits {
            slots: Box::new([[0; ROOM]; VECTOR]),
            lens: [0; VECTOR],
            unordered: Vec::new(),
            sorted: Vec::new(),
            starts: [0; VECTOR + 2],
        }
    }
}

impl HeadHits {
    pub fn clear(&mut self) {
        self.lens = [0; VECTOR];
        self.unordered.clear();
    }

    /// Adds those of four slots whose bit is set in `lanes`, for a head. It has no branches on `lanes`, since
    /// they are hard to predict.
    #[inline(always)]
    pub fn push4(&mut self, head: u16, lanes: u32, slots: &[u32; 4]) {
        let order = u8x16::new(PACK[lanes as usize % 16]);
        let packed: [u32; 4] = cast(cast::<[u32; 4], u8x16>(*slots).shuffle(order));
        self.push_first(head, &packed, lanes.count_ones() as usize);
    }

    /// Adds those of some slots whose bit is set in `lanes`.
    #[inline(always)]
    pub fn push_quads<const N: usize>(&mut self, head: u16, lanes: u32, slots: &[u32; N]) {
        for (quad, slots) in slots.as_chunks().0.iter().enumerate() {
            self.push4(head, lanes >> (4 * quad) & 0xf, slots);
        }
    }

    /// Adds the first `n` of some slots. It writes all of them, in order not to branch.
    #[inline(always)]
    pub fn push_first<const N: usize>(&mut self, head: u16, slots: &[u32; N], n: usize) {
        match self.room(head) {
            Some((place, len)) => {
                *place = *slots;
                *len += n as u16;
            }
            None => self.push_each(head, &slots[..n.min(N)]),
        }
    }

    /// The place of the next slots of a head, and the number of its slots. None if there is no room for so
    /// many.
    #[inline(always)]
    pub fn room<const N: usize>(&mut self, head: u16) -> Option<(&mut [u32; N], &mut u16)> {
        let at = usize::from(head) % VECTOR;
        let len = &mut self.lens[at];
        let place = self.slots[at].get_mut(usize::from(*len)..).and_then(|rest| rest.first_chunk_mut::<N>());
        place.map(|place| (place, len))
    }

    /// Adds those of some slots whose bit is set in `lanes`, of which there may be more than room.
    #[cold]
    #[inline(never)]
    pub fn push_lanes(&mut self, head: u16, lanes: u32, slots: &[u32]) {
        for (lane, slot) in slots.iter().enumerate() {
            if lanes >> lane & 1 != 0 {
                self.push_each(head, &[*slot]);
            }
        }
    }

    /// Adds slots of which there may be more than room.
    #[inline(never)]
    pub fn push_each(&mut self, head: u16, slots: &[u32]) {
        let at = usize::from(head) % VECTOR;
        for slot in slots {
            match self.slots[at].get_mut(usize::from(self.lens[at])) {
                Some(place) => {
                    *place = *slot;
                    self.lens[at] += 1;
                }
                None => self.unordered.push(Hit::new(head, *slot)),
            }
        }
    }

    /// Appends the hits of every packet to `hits`, in order of packets. Cached hits come from `cache`. If
    /// there are as many heads as packets, head `i` belongs to the `i`-th packet of `heads`. Uses AVX-512 if
    /// available.
    #[allow(unsafe_code)]
    pub fn expand(
        &mut self,
        heads: &Heads,
        (cache, packets): (&MatchCache, usize),
        simd: Simd,
        hits: &mut Vec<Hit>,
    ) {
        if self.unordered.is_empty() && heads.cached == 0 && self.lens == [0; VECTOR] {
            return;
        }
        if !self.unordered.is_empty() {
            self.sort_unordered();
        }
        hits.reserve(self.unordered.len() + STEP);
        #[cfg(target_arch = "x86_64")]
        if simd.has_avx512() {
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { self.expand_avx512(heads, cache, packets, hits) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = simd;
        self.expand_with(heads, cache, packets, hits, append);
    }

    /// [`HeadHits::expand`] with AVX-512; the caller has the level for it.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn expand_avx512(&self, heads: &Heads, cache: &MatchCache, packets: usize, hits: &mut Vec<Hit>) {
        self.expand_with(heads, cache, packets, hits, |hits, pkt, slots, run| {
            super::avx512::append(hits, pkt, slots, run)
        });
    }

    #[inline(always)]
    fn expand_with(
        &self,
        heads: &Heads,
        cache: &MatchCache,
        packets: usize,
        hits: &mut Vec<Hit>,
        append: impl Fn(&mut Vec<Hit>, u16, &[u32], (usize, usize)),
    ) {
        let mut give = |pkt: u16, of: u16| {
            if let Some(run) = heads.cached_run(of) {
                return append(hits, pkt, cache.hits(), run);
            }
            let of_head = usize::from(of) % VECTOR;
            append(hits, pkt, &self.slots[of_head], (0, self.lens[of_head].into()));
            if !self.unordered.is_empty() {
                hits.extend(self.of_head(of.into()).1.iter().map(|&slot| Hit::new(pkt, slot)));
            }
        };
        if heads.len == packets {
            heads.packets().iter().zip(0..).for_each(|(&pkt, head)| give(pkt, head));
        } else {
            heads.head_numbers(packets).zip(0..).for_each(|(of, pkt)| give(pkt, of));
        }
    }

    /// The hits of a head: ordered and unordered ones.
    fn of_head(&self, head: usize) -> (&[u32], &[u32]) {
        let slots = self.slots.get(head).zip(self.lens.get(head));
        let slots = slots.and_then(|(slots, len)| slots.get(..usize::from(*len)));
        let others =
            (!self.unordered.is_empty()).then(|| self.starts.get(head).zip(self.starts.get(head + 1)));
        let others = others.flatten().and_then(|(from, to)| self.sorted.get(*from as usize..*to as usize));
        (slots.unwrap_or_default(), others.unwrap_or_default())
    }

    /// Stores the hits of the heads in `cache`.
    pub fn store_in_cache(&self, heads: &Heads, cache: &mut MatchCache, seeds: Seeds) {
        for (head, flow) in heads.keys[..heads.len].iter().enumerate() {
            let (slots, others) = self.of_head(head);
            cache.insert(seeds, *flow, slots, others);
        }
    }

    /// Sorts the unordered hits by head. It is a counting sort, since there are few heads and possibly many
    /// hits. Afterwards the hits of head `i` are `sorted[starts[i]..starts[i + 1]]`.
    fn sort_unordered(&mut self) {
        let starts = &mut self.starts;
        starts.fill(0);
        for hit in &self.unordered {
            starts[usize::from(hit.pkt) % VECTOR + 2] += 1;
        }
        for i in 2..starts.len() {
            starts[i] += starts[i - 1];
        }
        self.sorted.clear();
        self.sorted.resize(self.unordered.len(), 0);
        for hit in &self.unordered {
            let at = &mut starts[usize::from(hit.pkt) % VECTOR + 1];
            self.sorted[*at as usize] = hit.slot;
            *at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        #[allow(unsafe_code)]
        fn every_packet_gets_the_hits_of_its_head(
            n in 1..=VECTOR,
            pushes in proptest::collection::vec((0..4u16, any::<[u8; 4]>(), any::<bool>()), 0..60),
            portable: bool,
        ) {
            let simd = if portable { Simd::PORTABLE } else { Simd::detect() };
            let (mut heads, mut head_hits) = (Heads::default(), HeadHits::default());
            heads.find(&vec![Default::default(); n], 1, false);
            let mut expected: Vec<Vec<u32>> = vec![Vec::new(); n];
            for (number, (head, [lanes, more, few, kind], is_unordered)) in (0..).zip(pushes) {
                let head = head * 7 % n as u16;
                let slots: [u32; 16] = std::array::from_fn(|lane| number * 16 + lane as u32);
                let lanes = match kind % 4 {
                    0 => u32::from(lanes) | u32::from(more) << 8,
                    1 => lanes.into(),
                    2 => (lanes & 0xf).into(),
                    _ => (1 << (few % 17)) - 1,
                };
                let own = (0..16).filter(|lane| lanes >> lane & 1 != 0).map(|lane| slots[lane]);
                expected[usize::from(head)].extend(own.clone());
                match kind % 4 {
                    _ if is_unordered => head_hits.unordered.extend(own.map(|slot| Hit::new(head, slot))),
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the level says that the processor has the instructions.
                    0 if simd.has_avx512() => unsafe {
                        crate::lookup::avx512::push_matches16(&mut head_hits, head, lanes, &slots);
                    },
                    0 => head_hits.push_quads(head, lanes, &slots),
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the level says that the processor has the instructions.
                    1 if simd.has_avx512() => unsafe {
                        let eight = slots.first_chunk().copied().unwrap_or_default();
                        crate::lookup::avx512::push_matches8(&mut head_hits, head, lanes, &eight);
                    },
                    1 => head_hits.push_quads(head, lanes, &slots.first_chunk::<8>().copied().unwrap_or_default()),
                    2 => head_hits.push4(head, lanes, &slots.first_chunk().copied().unwrap_or_default()),
                    _ => head_hits.push_first(head, &slots, (few % 17).into()),
                }
            }
            let mut hits = Vec::new();
            head_hits.expand(&heads, (&MatchCache::default(), n), simd, &mut hits);
            prop_assert!(hits.is_sorted_by_key(|hit| hit.pkt));
            for (pkt, expected) in (0..).zip(&mut expected) {
                let mut own: Vec<u32> = hits.iter().filter(|hit| hit.pkt == pkt).map(|hit| hit.slot).collect();
                own.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(&own, expected);
            }
            head_hits.clear();
            hits.clear();
            head_hits.expand(&heads, (&MatchCache::default(), n), simd, &mut hits);
            prop_assert!(hits.is_empty());
        }
    }
}
