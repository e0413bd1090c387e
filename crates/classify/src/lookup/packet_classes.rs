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
        let mask = u128::from_be(entry.mask(0));
        let key = u128::from_be(entry.key(0));
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
mod tests;
