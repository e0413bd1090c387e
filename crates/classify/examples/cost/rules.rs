//! Rules and packets of many shapes.

use mmb_classify::{Entry, Field, MaskedKey, Pattern, Presence, Ranges, Test};
use mmb_packet::window::KIND;
use mmb_packet::{Kind, Window};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// An IPv4 rule as in filter sets.
pub struct Shape {
    pub source: u32,
    pub source_len: usize,
    pub destination: u32,
    pub destination_len: usize,
    pub sport: (u16, u16),
    pub dport: (u16, u16),
    pub proto: Option<u8>,
}

impl Default for Shape {
    fn default() -> Self {
        let all = (0, u16::MAX);
        Shape {
            source: 0,
            source_len: 0,
            destination: 0,
            destination_len: 0,
            sport: all,
            dport: all,
            proto: None,
        }
    }
}

/// The transport nibble of a protocol.
pub fn transport(proto: u8) -> u8 {
    match proto {
        6 => Kind::TCP,
        17 => Kind::UDP,
        1 => Kind::ICMP,
        _ => Kind::L4_NONE,
    }
}

fn bits(at: usize, width: usize, value: u128) -> MaskedKey {
    if width == 0 { MaskedKey::ANY } else { MaskedKey::bits(at, width, value).expect("inside one chunk") }
}

fn all(parts: impl IntoIterator<Item = MaskedKey>) -> MaskedKey {
    parts.into_iter().fold(MaskedKey::ANY, |a, b| a.and(&b).expect("no contradiction"))
}

impl Shape {
    pub fn pattern(&self) -> Pattern {
        let mut parts = vec![
            MaskedKey::kind((Kind::L3_MASK, Kind::IP4)),
            bits(0, self.source_len, u128::from(self.source) >> (32 - self.source_len)),
            bits(32, self.destination_len, u128::from(self.destination) >> (32 - self.destination_len)),
        ];
        if let Some(proto) = self.proto {
            parts.push(bits(13 * 8, 8, proto.into()));
            if transport(proto) != Kind::L4_NONE {
                parts.push(MaskedKey::kind((Kind::L4_MASK, transport(proto))));
            }
        }
        let mut tests = Vec::new();
        for (at, (low, high)) in [(64, self.sport), (80, self.dport)] {
            let common = (low ^ high).leading_zeros() as usize;
            parts.push(bits(at, common, u128::from(low) >> (16 - common)));
            if u32::from(high - low) + 1 != 1 << (16 - common) {
                tests.push(within(at, 16, low.into(), high.into()));
            }
        }
        one(&all(parts), tests)
    }
}

fn one(cover: &MaskedKey, tests: Vec<Test>) -> Pattern {
    let entry = Entry::new(cover, tests).expect("about IP");
    Pattern::new(vec![entry], Vec::new()).expect("one entry")
}

fn within(at: usize, width: u8, low: u128, high: u128) -> Test {
    let present = Presence { byte: KIND as u8, mask: 0, value: 0 };
    let field =
        Field { chunk: (at / 128) as u8, shift: (128 - at % 128 - usize::from(width)) as u8, width, present };
    Test::InRanges { field, ranges: Ranges::new([(low, high)]), absent: false }
}

/// 5-tuples with sources in `block`/8.
pub fn exact(n: usize, block: u32, random: &mut Random) -> Vec<Pattern> {
    let shape = |random: &mut Random| {
        let (a, b) = (random.next(), random.next());
        let (sport, dport) = ((b >> 8) as u16, (b >> 24) as u16);
        Shape {
            source: block << 24 | a as u32 >> 8,
            source_len: 32,
            destination: (a >> 32) as u32,
            destination_len: 32,
            sport: (sport, sport),
            dport: (dport, dport),
            proto: Some(if b & 1 == 0 { 6 } else { 17 }),
        }
    };
    (0..n).map(|_| shape(random).pattern()).collect()
}

/// Prefixes of all lengths from 8 with ranges of ports.
pub fn mixed(n: usize, random: &mut Random) -> Vec<Pattern> {
    let range = |random: &mut Random, one_in: u64| {
        let (a, b) = (random.next() as u16, random.next() as u16);
        if random.below(one_in) == 0 { (a.min(b), a.max(b)) } else { (0, u16::MAX) }
    };
    let shape = |random: &mut Random| Shape {
        source: random.next() as u32,
        source_len: 8 + random.below(25) as usize,
        destination: random.next() as u32,
        destination_len: 8 + random.below(25) as usize,
        sport: range(random, 4),
        dport: range(random, 2),
        proto: Some(if random.below(2) == 0 { 6 } else { 17 }),
    };
    (0..n).map(|_| shape(random).pattern()).collect()
}

/// One rule on each of `n` masks: pairs of prefix lengths, with a port beyond those.
pub fn masks(n: usize, random: &mut Random) -> Vec<Pattern> {
    let mut shape = |i: usize| {
        let port = if i / 25 < 33 { (0, u16::MAX) } else { (i as u16, i as u16) };
        Shape {
            source: 11 << 24 | random.next() as u32 >> 8,
            source_len: 8 + i % 25,
            destination: random.next() as u32,
            destination_len: i / 25 % 33,
            dport: port,
            ..Shape::default()
        }
    };
    (0..n).map(|i| shape(i).pattern()).collect()
}

/// Bit offset and width of fields that every TCP packet over IPv4 has.
const FIELDS: [(usize, usize); 14] = [
    (0, 32),
    (32, 32),
    (64, 16),
    (80, 16),
    (384, 32),
    (416, 32),
    (448, 4),
    (456, 8),
    (464, 16),
    (520, 8),
    (528, 16),
    (544, 16),
    (576, 8),
    (600, 8),
];

/// One rule on each of `n` sets of fields.
pub fn subsets(n: usize, random: &mut Random) -> Vec<Pattern> {
    let mut seen = std::collections::HashSet::new();
    let mut rules = Vec::new();
    while rules.len() < n {
        let set = random.below(1 << FIELDS.len());
        if set.count_ones() < 2 || !seen.insert(set) {
            continue;
        }
        let fields = FIELDS.iter().enumerate().filter(|(i, _)| set & 1 << i != 0);
        let fields = fields.map(|(_, &(at, width))| bits(at, width, random.next().into()));
        let tcp = MaskedKey::kind((0xff, Kind::IP4 | Kind::TCP));
        rules.push(one(&all(fields.chain([tcp])), Vec::new()));
    }
    rules
}

/// Ranges and inequalities on single fields.
pub fn ranges(n: usize, random: &mut Random) -> Vec<Pattern> {
    const FIELDS: [(usize, u8); 8] =
        [(64, 16), (80, 16), (520, 8), (528, 16), (544, 16), (576, 8), (464, 16), (384, 32)];
    let tcp = MaskedKey::kind((0xff, Kind::IP4 | Kind::TCP));
    let mut rule = || {
        let mut tests = Vec::new();
        for _ in 0..2 {
            let (at, width) = FIELDS[random.below(8) as usize];
            let largest = (1u128 << width) - 1;
            let low = u128::from(random.next()) & largest;
            let span = u128::from(random.next()) % (largest / 64 + 1);
            tests.push(match random.below(8) {
                0 => within(at, width, 0, largest / 64),
                _ => within(at, width, low, (low + span).min(largest)),
            });
        }
        one(&tcp, tests)
    };
    (0..n).map(|_| rule()).collect()
}

/// Values of TCP options: timestamps, segment sizes and window scales.
pub fn options(n: usize, random: &mut Random) -> Vec<Pattern> {
    let tcp = MaskedKey::kind((Kind::L4_MASK, Kind::TCP));
    let mut rule = || {
        let (at, width, has) = match random.below(4) {
            0 => (88 * 8, 16, 0x80),
            1 => (90 * 8, 8, 0x40),
            _ => (80 * 8, 64, 0x08),
        };
        let has = MaskedKey::byte(92, has, has).expect("inside the window");
        one(&all([tcp, has, bits(at, width, random.next().into())]), Vec::new())
    };
    (0..n).map(|_| rule()).collect()
}

/// Packets that match rules, one each; bits that a rule does not test are random.
pub fn matching(rules: &[Pattern], n: usize, random: &mut Random) -> Vec<Window> {
    let mut packet = || {
        let rule = &rules[random.below(rules.len() as u64) as usize];
        let mut window = packets(1, random)[0];
        let cover = rule.entries()[0].cover();
        for (chunk, (mask, key)) in window.chunk.iter_mut().zip(cover.mask().iter().zip(cover.key())) {
            *chunk = *chunk & !mask | key;
        }
        window
    };
    (0..n).map(|_| packet()).collect()
}

/// TCP packets over IPv4 with random addresses, ports, timestamps and other fields.
pub fn packets(n: usize, random: &mut Random) -> Vec<Window> {
    let mut packet = || {
        let mut window = Window::default();
        for bytes in window.bytes_mut().chunks_exact_mut(8) {
            bytes.copy_from_slice(&random.next().to_ne_bytes());
        }
        let bytes = window.bytes_mut();
        bytes[12..16].copy_from_slice(&[Kind::IP4 | Kind::TCP, 6, 0, 0]);
        bytes[16..48].fill(0);
        bytes[88..96].copy_from_slice(&[0, 0, 0, 0x09, 0x08, 0, 0, 0]);
        window
    };
    (0..n).map(|_| packet()).collect()
}
