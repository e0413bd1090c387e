//! The hits of a vector's heads, and their expansion to all packets.
//!
//! Theory of operation. Hits of heads arrive in two forms. The passes ([`super::walk`]) deliver slots in
//! ascending order of heads, with a run for each head. Nodes and other places that only some packets visit
//! deliver hits in any order. In the end every packet gets the hits of its head.

use bytemuck::cast;
use wide::u8x16;

use super::heads::Heads;
use super::match_cache::MatchCache;
use crate::table::Seeds;
use crate::vector::{Hit, Simd, VECTOR};

/// Number of hits that are written at once. Most packets have no more.
const STEP: usize = 8;

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

/// Makes room for more slots.
#[cold]
#[inline(never)]
fn grow(slots: &mut Vec<u32>) {
    slots.resize(slots.len() * 2 + VECTOR, 0);
}

/// Writes slots of matching rules, head by head. The compiler keeps its length in a register.
pub(crate) struct HitWriter<'a> {
    slots: &'a mut Vec<u32>,
    len: u32,
    runs: &'a mut [(u32, u32); VECTOR],
    /// Receives the length in the end.
    end: &'a mut usize,
}

impl HitWriter<'_> {
    /// Adds those of four slots whose bit is set in `lanes`, for the
    /// [current head](HitWriter::begin_head). It has no branches on `lanes`, since they are hard to predict.
    #[inline(always)]
    pub fn push4(&mut self, lanes: u32, slots: &[u32; 4]) {
        let order = u8x16::new(PACK[lanes as usize % 16]);
        let packed: [u32; 4] = cast(cast::<[u32; 4], u8x16>(*slots).shuffle(order));
        self.push_first(&packed, lanes.count_ones() as usize);
    }

    /// Adds those of some slots whose bit is set in `lanes`.
    #[inline(always)]
    pub fn push_quads<const N: usize>(&mut self, lanes: u32, slots: &[u32; N]) {
        for (quad, slots) in slots.as_chunks().0.iter().enumerate() {
            self.push4(lanes >> (4 * quad) & 0xf, slots);
        }
    }

    /// Adds the first `n` of some slots. It writes all of them, in order not to branch.
    #[inline(always)]
    pub fn push_first<const N: usize>(&mut self, slots: &[u32; N], n: usize) {
        let from = self.len as usize;
        let out = loop {
            match self.slots.get_mut(from..from + N).and_then(|rest| rest.first_chunk_mut::<N>()) {
                Some(out) => break out,
                None => grow(self.slots),
            }
        };
        *out = *slots;
        self.len += n as u32;
    }

    /// Adds all slots.
    #[inline(always)]
    pub fn push_all(&mut self, slots: &[u32]) {
        match slots {
            [] => {}
            [slot] => self.push_first(&[*slot; 1], 1),
            _ => self.push_many(slots),
        }
    }

    #[inline(never)]
    fn push_many(&mut self, slots: &[u32]) {
        for slots in slots.chunks(4) {
            let mut four = [0; 4];
            four.iter_mut().zip(slots).for_each(|(place, slot)| *place = *slot);
            self.push_first(&four, slots.len());
        }
    }

    /// Starts the hits of a head. Returns the position for [`HitWriter::end_head`].
    #[inline(always)]
    pub fn begin_head(&self) -> u32 {
        self.len
    }

    /// Ends the hits of a head that began at `from`. They are appended if the head directly before was the
    /// same.
    #[inline(always)]
    pub fn end_head(&mut self, head: usize, from: u32) {
        let run = &mut self.runs[head % VECTOR];
        *run = (if run.1 == 0 { from } else { run.0 }, self.len);
    }

    /// Ends the writing.
    #[inline(always)]
    pub fn finish(self) {
        *self.end = self.len as usize;
    }
}

/// The hits of a vector's heads.
#[derive(Clone, Debug)]
pub(crate) struct HeadHits {
    /// Slots in order of heads, up to `len`. Elements beyond are undefined.
    slots: Vec<u32>,
    len: usize,
    /// For each head the start and end of its slots. The end is 0 if there are none.
    runs: [(u32, u32); VECTOR],
    /// Hits in any order.
    pub unordered: Vec<Hit>,
    /// Slots of `unordered`, sorted by head.
    sorted: Vec<u32>,
    starts: [u32; VECTOR + 2],
}

impl Default for HeadHits {
    fn default() -> Self {
        let (slots, unordered, sorted) = (Vec::new(), Vec::new(), Vec::new());
        HeadHits { slots, len: 0, runs: [(0, 0); VECTOR], unordered, sorted, starts: [0; VECTOR + 2] }
    }
}

impl HeadHits {
    pub fn clear(&mut self) {
        if self.len > 0 {
            self.runs.fill((0, 0));
        }
        self.len = 0;
        self.unordered.clear();
    }

    /// A writer for the hits of some heads.
    #[inline(always)]
    pub fn writer(&mut self) -> HitWriter<'_> {
        HitWriter { len: self.len as u32, slots: &mut self.slots, runs: &mut self.runs, end: &mut self.len }
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
        if self.len == 0 && self.unordered.is_empty() && heads.cached == 0 {
            return;
        }
        if !self.unordered.is_empty() {
            self.sort_unordered();
        }
        hits.reserve(self.len + self.unordered.len() + STEP);
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
            let (from, to) = self.runs[usize::from(of) % VECTOR];
            append(hits, pkt, &self.slots, (from as usize, to as usize));
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
        let slots = self.runs.get(head).and_then(|(from, to)| self.slots.get(*from as usize..*to as usize));
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
