//! Classes of packets that no rule distinguishes.
//!
//! Theory of operation. A client's next connection to a server mostly differs in the source port only, and
//! rules test the source port for ranges at most. So both connections match the same rules.
//! [`PacketClasses::key`] maps a first chunk to a representative of its class. It clears the bits that no
//! entry reads, and replaces each port by the start of its class. The ends of all ranges divide the port
//! numbers into classes. Classes that are smaller than necessary do no harm: the ends of removed rules remain
//! until the tree is rebuilt.

use std::sync::Arc;

use mmb_packet::window::CHUNK;

use crate::pattern::{Entry, Test, largest};

/// Bit shifts of the source port and the destination port in the first chunk, read as a big-endian number.
const SHIFTS: [u32; 2] = [48, 32];

/// The bits of a port.
const PORT: u128 = u16::MAX as u128;

/// The bits of both ports.
const PORTS: u128 = PORT << SHIFTS[0] | PORT << SHIFTS[1];

/// Number of 64-bit words in a bit map of all ports.
const WORDS: usize = 1 << 10;

/// The classes; see the module's documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct PacketClasses {
    /// The bits that entries read, without ports, in the window's byte order.
    read_bits: u128,
    /// The classes of each port.
    ports: [PortClasses; 2],
}

/// Classes of 16-bit numbers. None: all numbers are in one class.
#[derive(Clone, Debug, Default)]
struct PortClasses(Option<Arc<ClassStarts>>);

/// The starts of the classes: a bit for each number, in words of 64. It is compact, since packets access it
/// at random, and is read without branches.
#[derive(Clone, Debug)]
struct ClassStarts {
    words: [Word; WORDS],
    /// Words with at least one start. Their first bit is set, so the first number of such a word always
    /// starts a class. Element 0 stands for all words without a start.
    bits: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Word {
    /// The value that a bit's index is added to: the word's first number. In words without a start, the last
    /// start before it.
    base: u16,
    /// Index of the word in [`ClassStarts::bits`].
    at: u16,
}

impl PacketClasses {
    /// Takes the conditions of an entry into account.
    pub fn add(&mut self, entry: &Entry) {
        let mask = u128::from_be(entry.cover.mask()[0]);
        let key = u128::from_be(entry.cover.key()[0]);
        self.mark_read(mask & !PORTS);
        for (shift, classes) in SHIFTS.iter().zip(&mut self.ports) {
            let (mask, key) = ((mask >> shift) as u16, (key >> shift) as u16);
            if mask.leading_ones() == mask.count_ones() {
                classes.cut(key, key | !mask);
            } else {
                classes.cut_all();
            }
        }
        for test in &entry.tests {
            self.add_test(test);
        }
    }

    fn add_test(&mut self, test: &Test) {
        let Test::InRanges { field, ranges, .. } = test else { return };
        if let Some(up) = (CHUNK - 1).checked_sub(field.present.byte.into()) {
            self.mark_read(u128::from(field.present.mask) << (up * 8));
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
            None => self.mark_read(bits),
        }
    }

    /// Marks bits of the chunk (read as a big-endian number) as read by an entry.
    fn mark_read(&mut self, bits: u128) {
        self.read_bits |= (bits & !PORTS).to_be();
        for (shift, classes) in SHIFTS.iter().zip(&mut self.ports) {
            if bits & PORT << shift != 0 {
                classes.cut_all();
            }
        }
    }

    /// The representative of a first chunk's class. Chunks with the same key match the same entries, if these
    /// read nothing else.
    #[inline(always)]
    pub fn key(&self, chunk: u128) -> u128 {
        let [source, destination] = SHIFTS.map(|shift| (u128::from_be(chunk) >> shift) as u16);
        let source = self.ports[0].start(source);
        let destination = self.ports[1].start(destination);
        let ports = u64::from(source) << SHIFTS[0] | u64::from(destination) << SHIFTS[1];
        chunk & self.read_bits | u128::from(ports).to_be()
    }
}

impl PortClasses {
    /// Splits the classes before `low` and behind `high`.
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
        let empty = || Arc::new(ClassStarts { words: [Word::default(); WORDS], bits: vec![1] });
        let ClassStarts { words, bits } = Arc::make_mut(self.0.get_or_insert_with(empty));
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
        self.0 = Some(Arc::new(ClassStarts { words, bits }));
    }

    /// The start of the number's class.
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
    use crate::pattern::{Field, MaskedKey, Presence, Ranges, TruePredicates};

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
            Test::InRanges {
                field: Field { chunk: 0, shift, width, present },
                ranges: Ranges::new(ranges),
                absent,
            }
        })
    }

    fn cover() -> impl Strategy<Value = MaskedKey> {
        let bits = (0usize..128, 1usize..20, 0u128..3)
            .prop_filter_map("inside a chunk", |(at, width, value)| MaskedKey::bits(at, width, value));
        vec(bits, 0..3).prop_filter_map("no contradiction", |all| {
            all.iter().try_fold(MaskedKey::ANY, |all, one| all.and(one))
        })
    }

    /// Small numbers and few bits, so that windows often share a class.
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
        /// Windows with the same key match the same entries.
        #[test]
        fn packets_of_one_class_match_the_same_entries(
            entries in vec((cover(), vec(test(), 0..3)), 0..8), windows in vec(window(), 2..60),
        ) {
            let entries: Vec<Entry> = entries.into_iter().filter_map(|(cover, tests)| Entry::new(&cover, tests)).collect();
            let mut classes = PacketClasses::default();
            entries.iter().for_each(|entry| classes.add(entry));
            let matched = |window: &Window| entries.iter().map(|e| e.holds(window, TruePredicates::NONE)).collect::<Vec<_>>();
            for a in &windows {
                for b in windows.iter().filter(|b| classes.key(b.chunk[0]) == classes.key(a.chunk[0])) {
                    prop_assert_eq!(matched(a), matched(b));
                }
            }
        }

        /// A class starts at the last end of a range before the number, or behind that at a multiple of 64.
        #[test]
        fn classes_start_at_range_ends(ranges in vec((any::<u16>(), any::<u16>()), 0..20), numbers: Vec<u16>) {
            let mut classes = PortClasses::default();
            let mut starts = vec![0];
            for (a, b) in ranges {
                let (low, high) = (a.min(b), a.max(b));
                classes.cut(low, high);
                starts.push(low);
                starts.extend(high.checked_add(1));
            }
            let edges = starts.iter().flat_map(|at| [at.saturating_sub(1), *at, at.saturating_add(1)]);
            for number in numbers.into_iter().chain(edges.collect::<Vec<_>>()) {
                let (start, last) = (classes.start(number), starts.iter().copied().filter(|at| *at <= number).max());
                prop_assert!(start <= number && (Some(start) == last || Some(start) > last && start % 64 == 0));
                let gap = starts.iter().all(|at| at >> 6 != number >> 6);
                prop_assert!(!gap || Some(start) == last);
            }
            classes.cut_all();
            prop_assert!((0..=u16::MAX).all(|number| classes.start(number) == number));
        }
    }

    #[test]
    fn untested_ports_do_not_split_classes() {
        let web = MaskedKey::bits(80, 16, 80).expect("inside");
        let mut classes = PacketClasses::default();
        classes.add(&Entry::new(&web, None).expect("about IP"));
        let key = |sport: u16, dport: u16| {
            let mut window = Window::default();
            window.bytes_mut()[8..10].copy_from_slice(&sport.to_be_bytes());
            window.bytes_mut()[10..12].copy_from_slice(&dport.to_be_bytes());
            classes.key(window.chunk[0])
        };
        assert_eq!(key(1, 80), key(60_000, 80));
        assert_eq!(key(1, 81), key(1, 65_535));
        assert!(key(1, 79) != key(1, 80) && key(1, 80) != key(1, 81) && key(1, 79) != key(1, 81));
    }
}
