//! Which first chunks of the window no rule tells apart.
//!
//! Theory of operation. A client's next connection to a server differs from its last one in the source port, and rules
//! hardly ever ask for more of that than a range. So what matched the last one matches the next: [`Alike::key`] is the same
//! for both. It leaves out bits that no entry asks for, and takes the start of its piece for a port, where the ends of all
//! ranges cut the numbers into pieces. Pieces that are smaller than they need be are no harm: what rules asked for that
//! are gone stays until the tree is made anew.

use std::sync::Arc;

use mmb_packet::window::CHUNK;

use crate::pattern::{Entry, Test};
use crate::ranges::largest;

/// How far up in the first chunk, read as a big-endian number, each port is.
const SHIFTS: [u32; 2] = [48, 32];

/// The bits of a port.
const PORT: u128 = u16::MAX as u128;

/// Both.
const PORTS: u128 = PORT << SHIFTS[0] | PORT << SHIFTS[1];

/// Words of a map of all ports.
const WORDS: usize = 1 << 10;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alike {
    /// The bits that entries ask for, ports not included, as in the window.
    asked: u128,
    /// How the ports are cut.
    ports: [Pieces; 2],
}

/// Numbers of 16 bits in pieces; none: they are all in one.
#[derive(Clone, Debug, Default)]
struct Pieces(Option<Arc<Starts>>);

/// Where pieces start: a bit for each number, in words of 64. Kept small, since packets of many flows read it everywhere, and
/// read without a branch.
#[derive(Clone, Debug)]
struct Starts {
    words: [Word; WORDS],
    /// Words with their first bit set: the first number of a word in which a piece starts always starts one, too. The
    /// first is for all other words and has no further bit.
    bits: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Word {
    /// What the number of a bit is added to: the word's first number, or where no piece starts in the word the last
    /// start before it.
    base: u16,
    /// Where the word stands in [`Starts::bits`].
    at: u16,
}

impl Alike {
    /// From now on an entry is asked for, too.
    pub fn add(&mut self, entry: &Entry) {
        let mask = u128::from_be(entry.cover.mask()[0]);
        let key = u128::from_be(entry.cover.key()[0]);
        self.ask(mask & !PORTS);
        for (shift, pieces) in SHIFTS.iter().zip(&mut self.ports) {
            let (mask, key) = ((mask >> shift) as u16, (key >> shift) as u16);
            if mask.leading_ones() == mask.count_ones() {
                pieces.cut(key, key | !mask);
            } else {
                pieces.cut_all();
            }
        }
        for test in &entry.tests {
            self.add_test(test);
        }
    }

    fn add_test(&mut self, test: &Test) {
        let Test::Within { field, ranges, .. } = test else { return };
        if let Some(up) = (CHUNK - 1).checked_sub(field.present.byte.into()) {
            self.ask(u128::from(field.present.mask) << (up * 8));
        }
        if field.chunk != 0 {
            return;
        }
        let bits = largest(field.width).checked_shl(field.shift.into()).unwrap_or(0);
        match SHIFTS.iter().position(|shift| bits == PORT << shift) {
            Some(port) => {
                for (low, high) in ranges.iter().filter(|(low, _)| *low <= PORT) {
                    self.ports[port].cut(low as u16, high.min(PORT) as u16);
                }
            }
            None => self.ask(bits),
        }
    }

    /// Bits of the chunk, read as a big-endian number, are asked for.
    fn ask(&mut self, bits: u128) {
        self.asked |= (bits & !PORTS).to_be();
        for (shift, pieces) in SHIFTS.iter().zip(&mut self.ports) {
            if bits & PORT << shift != 0 {
                pieces.cut_all();
            }
        }
    }

    /// The same for first chunks that match the same entries, if these ask for nothing else.
    #[inline(always)]
    pub fn key(&self, chunk: u128) -> u128 {
        let [source, destination] = SHIFTS.map(|shift| (u128::from_be(chunk) >> shift) as u16);
        let source = self.ports[0].start(source);
        let destination = self.ports[1].start(destination);
        let ports = u64::from(source) << SHIFTS[0] | u64::from(destination) << SHIFTS[1];
        chunk & self.asked | u128::from(ports).to_be()
    }
}

impl Pieces {
    /// Cuts before `low` and behind `high`.
    fn cut(&mut self, low: u16, high: u16) {
        self.start_at(low);
        if let Some(next) = high.checked_add(1) {
            self.start_at(next);
        }
    }

    fn start_at(&mut self, number: u16) {
        if number == 0 || self.start(number) == number {
            return;
        }
        let empty = || Arc::new(Starts { words: [Word::default(); WORDS], bits: vec![1] });
        let Starts { words, bits } = Arc::make_mut(self.0.get_or_insert_with(empty));
        let (word, behind) = words[usize::from(number >> 6)..].split_at_mut(1);
        if word[0].at == 0 {
            word[0] = Word { base: number & !63, at: bits.len() as u16 };
            bits.push(1);
        }
        bits[usize::from(word[0].at)] |= 1 << (number & 63);
        for word in behind {
            word.base = word.base.max(number);
        }
    }

    fn cut_all(&mut self) {
        let mut bits = vec![1];
        bits.resize(WORDS + 1, u64::MAX);
        let words = std::array::from_fn(|word| Word { base: word as u16 * 64, at: word as u16 + 1 });
        self.0 = Some(Arc::new(Starts { words, bits }));
    }

    /// Where the number's piece starts.
    #[inline(always)]
    fn start(&self, number: u16) -> u16 {
        let Some(starts) = &self.0 else { return 0 };
        let Word { base, at } = starts.words[usize::from(number >> 6) % WORDS];
        let below = starts.bits[usize::from(at)] & (u64::MAX >> (63 - (number & 63)));
        base + (63 - (below | 1).leading_zeros()) as u16
    }
}

#[cfg(test)]
mod tests {
    use mmb_packet::Window;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::masked::Masked;
    use crate::pattern::{Facts, Field, Presence};
    use crate::ranges::Ranges;

    fn test() -> impl Strategy<Value = Test> {
        let present = (0u8..16, 0u8..4, 0u8..4).prop_map(|(byte, mask, value)| Presence {
            byte,
            mask,
            value: value & mask,
        });
        let ranges = vec((0u128..400, 0u128..400), 0..4);
        let place = prop_oneof![
            3 => Just((48u8, 16u8)), 3 => Just((32, 16)), 1 => Just((40, 16)), 1 => Just((56, 8)), 1 => Just((16, 8))
        ];
        (place, present, ranges, any::<bool>()).prop_map(|((shift, width), present, ranges, absent)| {
            Test::Within {
                field: Field { chunk: 0, shift, width, present },
                ranges: Ranges::new(ranges),
                absent,
            }
        })
    }

    fn cover() -> impl Strategy<Value = Masked> {
        let bits = (0usize..128, 1usize..20, 0u128..3)
            .prop_filter_map("inside a chunk", |(at, width, value)| Masked::bits(at, width, value));
        vec(bits, 0..3).prop_filter_map("no contradiction", |all| {
            all.iter().try_fold(Masked::ANY, |all, one| all.and(one))
        })
    }

    /// Small numbers and few bits, so that packets are alike.
    fn window() -> impl Strategy<Value = Window> {
        (vec(0u8..2, CHUNK), 0u16..500, 0u16..500).prop_map(|(bytes, sport, dport)| {
            let mut window = Window::default();
            window.bytes_mut()[..CHUNK].copy_from_slice(&bytes);
            window.bytes_mut()[8..10].copy_from_slice(&sport.to_be_bytes());
            window.bytes_mut()[10..12].copy_from_slice(&dport.to_be_bytes());
            window
        })
    }

    proptest! {
        /// What has the same key matches the same entries.
        #[test]
        fn nothing_tells_packets_with_the_same_key_apart(
            entries in vec((cover(), vec(test(), 0..3)), 0..8), windows in vec(window(), 2..60),
        ) {
            let entries: Vec<Entry> = entries.into_iter().filter_map(|(cover, tests)| Entry::new(&cover, tests)).collect();
            let mut alike = Alike::default();
            entries.iter().for_each(|entry| alike.add(entry));
            let matched = |window: &Window| entries.iter().map(|e| e.holds(window, Facts::NONE)).collect::<Vec<_>>();
            for a in &windows {
                for b in windows.iter().filter(|b| alike.key(b.chunk[0]) == alike.key(a.chunk[0])) {
                    prop_assert_eq!(matched(a), matched(b));
                }
            }
        }

        /// A number's piece starts at the last end of a range before it, or behind that at a multiple of 64.
        #[test]
        fn pieces_start_where_ranges_begin_and_behind_their_ends(ranges in vec((any::<u16>(), any::<u16>()), 0..20), numbers: Vec<u16>) {
            let mut pieces = Pieces::default();
            let mut starts = vec![0];
            for (a, b) in ranges {
                let (low, high) = (a.min(b), a.max(b));
                pieces.cut(low, high);
                starts.push(low);
                starts.extend(high.checked_add(1));
            }
            let edges = starts.iter().flat_map(|at| [at.saturating_sub(1), *at, at.saturating_add(1)]);
            for number in numbers.into_iter().chain(edges.collect::<Vec<_>>()) {
                let (start, last) = (pieces.start(number), starts.iter().copied().filter(|at| *at <= number).max());
                prop_assert!(start <= number && (Some(start) == last || Some(start) > last && start % 64 == 0));
                let gap = starts.iter().all(|at| at >> 6 != number >> 6);
                prop_assert!(!gap || Some(start) == last);
            }
            pieces.cut_all();
            prop_assert!((0..=u16::MAX).all(|number| pieces.start(number) == number));
        }
    }

    #[test]
    fn a_port_at_which_no_rule_looks_makes_no_difference() {
        let web = Masked::bits(80, 16, 80).expect("inside");
        let mut alike = Alike::default();
        alike.add(&Entry::new(&web, None).expect("about IP"));
        let key = |sport: u16, dport: u16| {
            let mut window = Window::default();
            window.bytes_mut()[8..10].copy_from_slice(&sport.to_be_bytes());
            window.bytes_mut()[10..12].copy_from_slice(&dport.to_be_bytes());
            alike.key(window.chunk[0])
        };
        assert_eq!(key(1, 80), key(60_000, 80));
        assert_eq!(key(1, 81), key(1, 65_535));
        assert!(key(1, 79) != key(1, 80) && key(1, 80) != key(1, 81) && key(1, 79) != key(1, 81));
    }
}
