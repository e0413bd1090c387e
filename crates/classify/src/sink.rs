//! Where hits go.
//!
//! Theory of operation. Packets of one flow come in trains; a packet whose window is that of the packet before it matches
//! what that one does, and is not looked at: only the first of a train, its head, is. The heads' hits come in two
//! kinds: in ascending order of heads, from [`crate::walk`], as bare slots with an end for each head; and in any order, from
//! nodes and other places that only some packets come to. In the end every packet gets the hits of its head.

use std::hint::select_unpredictable;

use bytemuck::cast;
use mmb_packet::Window;
use wide::u8x16;

use crate::alike::Alike;
use crate::batch::{Hit, VECTOR};
use crate::hash::Seeds;
use crate::recent::{Known, Recent};
use crate::wide::Wide512;

/// Hits that come in any order; `pkt` is the number of a head.
#[derive(Debug)]
pub(crate) struct Sink<'a> {
    hits: &'a mut Vec<Hit>,
    head: u16,
}

impl<'a> Sink<'a> {
    /// What follows is about this head.
    pub fn new(hits: &'a mut Vec<Hit>, head: u16) -> Self {
        Sink { hits, head }
    }

    /// Gives a packet's hits.
    #[inline(always)]
    pub fn with(&mut self, visit: impl FnOnce(u16, &mut Vec<Hit>)) {
        visit(self.head, self.hits);
    }

    /// One hit.
    #[inline(always)]
    pub fn one(&mut self, slot: u32) {
        self.hits.push(Hit::new(self.head, slot));
    }

    /// Those of a block's slots whose bit is set in `lanes`.
    #[inline(always)]
    pub fn lanes<const N: usize>(&mut self, mut lanes: u32, slots: &[u32; N]) {
        while lanes != 0 {
            self.one(slots[lanes.trailing_zeros() as usize % N]);
            lanes &= lanes - 1;
        }
    }
}

/// The heads of a vector of packets.
#[derive(Clone, Debug)]
pub(crate) struct Heads {
    /// Their packets, ascending.
    packets: [u16; VECTOR],
    len: usize,
    /// By which flow each is [recalled](Heads::recall).
    keys: [u128; VECTOR],
    /// For each packet the number of its head before any was [recalled](Heads::recall).
    of: [u16; VECTOR],
    /// If any was, for each such number the one that it has now; for one whose hits are recalled, [`RECALLED`] and the number.
    number: [u16; VECTOR],
    /// What is known of flows.
    flows: [Known; VECTOR],
    /// How many of them are.
    recalled: usize,
}

const RECALLED: u16 = 1 << 15;

impl Default for Heads {
    fn default() -> Self {
        let flows = [Known::NOTHING; VECTOR];
        Heads {
            packets: [0; VECTOR],
            len: 0,
            keys: [0; VECTOR],
            of: [0; VECTOR],
            number: [0; VECTOR],
            flows,
            recalled: 0,
        }
    }
}

impl Heads {
    /// Finds the heads; windows are alike if the chunks in `chunks` (bits) are. Unless `trains`, all packets are heads.
    pub fn find(&mut self, windows: &[Window], chunks: u8, trains: bool) {
        (self.len, self.recalled) = (0, 0);
        let mut before = None;
        for (packet, window) in windows.iter().enumerate() {
            let is_head = !trains || before.is_none_or(|before| differ(before, window, chunks));
            self.packets[self.len % VECTOR] = packet as u16;
            self.len += usize::from(is_head);
            self.of[packet % VECTOR] = self.len as u16 - 1;
            before = Some(window);
        }
    }

    /// The heads' packets.
    pub fn packets(&self) -> &[u16] {
        &self.packets[..self.len]
    }

    /// Leaves only those heads whose flows are not known.
    pub fn recall(&mut self, recent: &mut Recent, seeds: Seeds, windows: &[Window], alike: &Alike) {
        let (mut sets, heads) = ([0; VECTOR], std::mem::take(&mut self.len));
        for ((key, set), packet) in self.keys.iter_mut().zip(&mut sets).zip(&self.packets[..heads]) {
            *key = alike.key(windows[usize::from(*packet)].chunk[0]);
            *set = recent.set(seeds, *key);
        }
        for ((known, set), &key) in self.flows.iter_mut().zip(&sets[..heads]).zip(&self.keys) {
            *known = recent.find(*set, key);
        }
        for head in 0..heads {
            let (is_known, len) = (self.flows[head].is_known(), self.len);
            self.number[head] = select_unpredictable(is_known, RECALLED | head as u16, len as u16);
            (self.packets[len], self.keys[len]) = (self.packets[head], self.keys[head]);
            self.len += usize::from(!is_known);
        }
        self.recalled = heads - self.len;
        recent.judge(heads as u32, self.recalled as u32);
    }

    /// For each of some packets where its hits are; see [`Heads::number`].
    #[inline(always)]
    fn of(&self, packets: usize) -> impl Iterator<Item = u16> {
        let number = |of: u16| if self.recalled == 0 { of } else { self.number[usize::from(of) % VECTOR] };
        self.of[..packets].iter().map(move |of| number(*of))
    }

    /// Room for some packets' numbers, while there are no heads.
    pub fn room(&mut self) -> &mut [u16; VECTOR] {
        &mut self.packets
    }

    /// The first few packets in [`Heads::room`] are the heads, and others have none.
    pub fn take(&mut self, few: usize) {
        (self.len, self.recalled) = (few.min(VECTOR), 0);
    }

    /// Where a recalled flow's hits stand among those of [`Recent`].
    #[inline(always)]
    fn recalled(&self, of: u16) -> Option<(usize, usize)> {
        let flow = of.checked_sub(RECALLED)?;
        Some(self.flows[usize::from(flow) % VECTOR].run())
    }
}

/// Hits that are written at once: most packets have no more.
const STEP: usize = 8;

/// Where the bytes of the first two of four slots stand in their hits, and of the last two; with the top bit set: none.
const PLACES: [[u8; 16]; 2] = [
    [0x80, 0x80, 0x80, 0x80, 0, 1, 2, 3, 0x80, 0x80, 0x80, 0x80, 4, 5, 6, 7],
    [0x80, 0x80, 0x80, 0x80, 8, 9, 10, 11, 0x80, 0x80, 0x80, 0x80, 12, 13, 14, 15],
];

/// Appends the hits in a run of slots. Writes some at once and takes back what is too many, since how many there are is hard to
/// predict.
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
        let two = |slots: u8x16, places: usize| slots.shuffle(u8x16::new(PLACES[places])) | packet;
        let eight = [two(first, 0), two(first, 1), two(second, 0), two(second, 1)];
        hits.extend_from_slice(&cast::<[u8x16; 4], [Hit; STEP]>(eight));
    }
    hits.truncate(end);
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

/// For each set of lanes (bits), the places of their bytes: those of the first lane in the set, then those of the next.
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

/// The hits of a vector before every packet has its own.
#[derive(Clone, Debug)]
pub(crate) struct Hits {
    /// Hits in order of heads, up to `len`; what is beyond means nothing.
    slots: Vec<u32>,
    len: usize,
    /// Where each head's are: from, to; to is 0 where there are none.
    runs: [(u32, u32); VECTOR],
    /// Hits in any order.
    pub others: Vec<Hit>,
    /// The same in order of heads, and where those of each head start.
    sorted: Vec<u32>,
    starts: [u32; VECTOR + 2],
}

impl Default for Hits {
    fn default() -> Self {
        let (slots, others, sorted) = (Vec::new(), Vec::new(), Vec::new());
        Hits { slots, len: 0, runs: [(0, 0); VECTOR], others, sorted, starts: [0; VECTOR + 2] }
    }
}

impl Hits {
    pub fn clear(&mut self) {
        self.len = 0;
        self.runs.fill((0, 0));
        self.starts.fill(0);
        self.others.clear();
    }

    /// Those of four slots whose bit is set in `lanes`, for the head that [began](Hits::begin); without branches, since
    /// which do is hard to predict.
    #[inline(always)]
    pub fn four(&mut self, lanes: u32, slots: &[u32; 4]) {
        if self.slots.len() < self.len + 4 {
            self.grow();
        }
        if let Some(out) = self.slots[self.len..].first_chunk_mut::<4>() {
            let order = u8x16::new(PACK[lanes as usize % 16]);
            *out = cast(cast::<[u32; 4], u8x16>(*slots).shuffle(order));
            self.len += lanes.count_ones() as usize;
        }
    }

    /// The same of sixteen slots.
    #[inline(always)]
    pub fn sixteen(&mut self, lanes: u32, slots: &[u32; 16]) {
        for (quad, slots) in slots.as_chunks().0.iter().enumerate() {
            self.four(lanes >> (4 * quad) & 0xf, slots);
        }
    }

    /// The first few of sixteen slots.
    #[inline(always)]
    pub fn first_of(&mut self, slots: &[u32; 16], n: usize) {
        if self.slots.len() < self.len + 16 {
            self.grow();
        }
        if let Some(out) = self.slots[self.len..].first_chunk_mut::<16>() {
            *out = *slots;
            self.len += n;
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.slots.resize(self.len * 2 + VECTOR, 0);
    }

    /// Some hits, for the same head.
    #[inline(always)]
    pub fn several(&mut self, slots: &[u32]) {
        match slots {
            [] => {}
            [slot] => self.four(1, &[*slot; 4]),
            _ => self.many(slots),
        }
    }

    #[inline(never)]
    fn many(&mut self, slots: &[u32]) {
        for slots in slots.chunks(4) {
            let mut four = [0; 4];
            four.iter_mut().zip(slots).for_each(|(place, slot)| *place = *slot);
            self.four((1 << slots.len()) - 1, &four);
        }
    }

    /// What follows is about one head; to be given to [`Hits::end`].
    #[inline(always)]
    pub fn begin(&self) -> u32 {
        self.len as u32
    }

    /// What came since it [began](Hits::begin) are hits of this head, which may have got some right before.
    #[inline(always)]
    pub fn end(&mut self, head: usize, from: u32) {
        let run = &mut self.runs[head % VECTOR];
        *run = (if run.1 == 0 { from } else { run.0 }, self.len as u32);
    }

    /// Appends every packet's hits to `hits`, in order of packets; those of recalled flows are in `recent`. If there are as many
    /// packets as heads, only these get any. As fast as the machine can.
    #[allow(unsafe_code)]
    pub fn spread(
        &mut self,
        heads: &Heads,
        (recent, packets): (&Recent, usize),
        wide: Option<Wide512>,
        hits: &mut Vec<Hit>,
    ) {
        if self.len == 0 && self.others.is_empty() && heads.recalled == 0 {
            return;
        }
        if !self.others.is_empty() {
            self.sort_others();
        }
        hits.reserve(self.len + self.others.len() + STEP);
        #[cfg(target_arch = "x86_64")]
        if wide.is_some() {
            // SAFETY: where there is a `Wide512`, the processor has the instructions.
            return unsafe { self.spread_by_sixteen(heads, recent, packets, hits) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = wide;
        self.spread_with(heads, recent, packets, hits, append);
    }

    /// With instructions that a [`Wide512`] stands for.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    fn spread_by_sixteen(&self, heads: &Heads, recent: &Recent, packets: usize, hits: &mut Vec<Hit>) {
        self.spread_with(heads, recent, packets, hits, |hits, pkt, slots, run| {
            crate::wide::append(hits, pkt, slots, run)
        });
    }

    #[inline(always)]
    fn spread_with(
        &self,
        heads: &Heads,
        recent: &Recent,
        packets: usize,
        hits: &mut Vec<Hit>,
        append: impl Fn(&mut Vec<Hit>, u16, &[u32], (usize, usize)),
    ) {
        let mut give = |pkt: u16, of: u16| {
            if let Some(run) = heads.recalled(of) {
                return append(hits, pkt, recent.hits(), run);
            }
            let (from, to) = self.runs[usize::from(of) % VECTOR];
            append(hits, pkt, &self.slots, (from as usize, to as usize));
            if !self.others.is_empty() {
                hits.extend(self.of(of.into()).1.iter().map(|&slot| Hit::new(pkt, slot)));
            }
        };
        if heads.len == packets {
            heads.packets().iter().zip(0..).for_each(|(&pkt, head)| give(pkt, head));
        } else {
            heads.of(packets).zip(0..).for_each(|(of, pkt)| give(pkt, of));
        }
    }

    /// A head's hits: those in order, and those that came in any.
    fn of(&self, head: usize) -> (&[u32], &[u32]) {
        let slots = self.runs.get(head).and_then(|(from, to)| self.slots.get(*from as usize..*to as usize));
        let others = self.starts.get(head).zip(self.starts.get(head + 1));
        let others = others.and_then(|(from, to)| self.sorted.get(*from as usize..*to as usize));
        (slots.unwrap_or_default(), others.unwrap_or_default())
    }

    /// Lets `recent` remember what was found for the heads.
    pub fn remember(&self, heads: &Heads, recent: &mut Recent, seeds: Seeds) {
        for (head, flow) in heads.keys[..heads.len].iter().enumerate() {
            let (slots, others) = self.of(head);
            recent.remember(seeds, *flow, slots, others);
        }
    }

    /// Puts the hits that came in any order in order of heads: a counting sort, since there are few heads and maybe many
    /// hits. Afterwards the hits of head `i` are `sorted[starts[i]..starts[i + 1]]`.
    fn sort_others(&mut self) {
        let starts = &mut self.starts;
        for hit in &self.others {
            starts[usize::from(hit.pkt) % VECTOR + 2] += 1;
        }
        for i in 2..starts.len() {
            starts[i] += starts[i - 1];
        }
        self.sorted.clear();
        self.sorted.resize(self.others.len(), 0);
        for hit in &self.others {
            let at = &mut starts[usize::from(hit.pkt) % VECTOR + 1];
            self.sorted[*at as usize] = hit.slot;
            *at += 1;
        }
    }
}
