//! Edits as 16-bit words: `new = (old & keep) | key`, and the change that makes to a ones'-complement sum.

use mmb_packet::Loc;

/// The parts of a packet that differ in which checksums cover them. The order is that of [`crate::EditProgram`]'s words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Part {
    /// IPv4 before the addresses: IPv4 header checksum.
    Ip4,
    /// IPv4 addresses: IPv4 header checksum and pseudo header.
    Ip4Addresses,
    /// IPv6 before the addresses: no checksum.
    Ip6,
    /// Pseudo header.
    Ip6Source,
    /// Pseudo header, except behind a routing header with segments left.
    Ip6Destination,
    /// Transport headers: their own checksum.
    Tcp,
    Udp,
    Icmp,
    Icmp6,
}

type PartOf = fn(u8) -> Part;

impl Part {
    /// How many parts there are.
    pub const COUNT: usize = Part::Icmp6 as usize + 1;

    /// The bit that stands for the part in a set of parts.
    pub const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// The first bit of the field at `loc` in its header, and which part of that header a byte is in; `None` for what is
    /// not a header field.
    fn of(loc: Loc) -> Option<(u16, PartOf)> {
        Some(match loc {
            Loc::InPort | Loc::OutPort | Loc::Ethertype => return None,
            // Their place is the window's, not the packet's.
            Loc::TcpOption(_) | Loc::TcpOptionAny | Loc::Ip6Ext(_) => return None,
            Loc::Ip4(first) => (first, |byte| if byte < 12 { Part::Ip4 } else { Part::Ip4Addresses }),
            Loc::Ip6(first) => (first, |byte| match byte {
                0..8 => Part::Ip6,
                8..24 => Part::Ip6Source,
                _ => Part::Ip6Destination,
            }),
            Loc::Tcp(first) => (first, |_| Part::Tcp),
            Loc::Udp(first) => (first, |_| Part::Udp),
            Loc::Icmp(first) => (first, |_| Part::Icmp),
            Loc::Icmp6(first) => (first, |_| Part::Icmp6),
        })
    }
}

/// One aligned 16-bit word of a header and what becomes of it. `keep` and `key` hold the bytes as they lie in the
/// packet, read natively: ones'-complement sums do not depend on the byte order (RFC 1071, 2.B), so nothing is swapped
/// per packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Word {
    /// Byte offset in the header.
    pub at: u8,
    /// Bits of the old word that stay.
    pub keep: u16,
    /// Bits that are set; none of them in `keep`.
    pub key: u16,
}

/// What a run of word edits changes in a checksum (RFC 1624, equation 3): the sum of `~old + new` over the words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delta {
    sum: u32,
    changed: u16,
}

impl Delta {
    /// Applies `words` to `header` and adds their change. Words beyond `header` are left out. A program has at most 41
    /// words, so that the sum stays far from overflowing.
    #[inline]
    pub fn apply(mut self, words: &[Word], header: &mut [u8]) -> Delta {
        for word in words {
            let at = usize::from(word.at);
            let Some(bytes) = header.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) else { continue };
            let old = u16::from_ne_bytes(*bytes);
            let new = old & word.keep | word.key;
            *bytes = new.to_ne_bytes();
            self.sum += u32::from(!old) + u32::from(new);
            self.changed |= old ^ new;
        }
        self
    }

    /// The checksum after the change, given the one before (native order); `None` if nothing changed, so that a
    /// checksum is never respelled (0x0000 for 0xffff) without cause.
    #[inline]
    pub fn update(self, checksum: u16) -> Option<u16> {
        if self.changed == 0 {
            return None;
        }
        Some(!mmb_packet::checksum::fold(u32::from(!checksum) + self.sum))
    }
}

/// Gathers edits word by word; a later edit of the same bits replaces the earlier one.
#[derive(Default)]
pub(crate) struct Words(Vec<(Part, Word)>);

impl Words {
    /// Sets the `width` bits at `loc` to the low bits of `value`. False if `loc` is not a header field.
    pub fn set(&mut self, loc: Loc, width: u16, value: u128) -> bool {
        let Some((first, part_of)) = Part::of(loc) else { return false };
        let end = first + width;
        for start in (first / 16 * 16..end).step_by(16) {
            // The field's bits in this word: those from `low` to `high`, counted from the left.
            let (low, high) = (first.max(start), end.min(start + 16));
            let mask = (0xffff >> (16 - (high - low))) << (start + 16 - high);
            let bits = ((value >> (end - high)) as u16) << (start + 16 - high);
            let at = (start / 8) as u8;
            let word = self.word(part_of(at), at);
            // Kept big endian here: turned in `finish`.
            word.keep &= !mask;
            word.key = word.key & !mask | bits & mask;
        }
        true
    }

    fn word(&mut self, part: Part, at: u8) -> &mut Word {
        let place = (part, at);
        let i = match self.0.binary_search_by_key(&place, |(part, word)| (*part, word.at)) {
            Ok(i) => i,
            Err(i) => {
                self.0.insert(i, (part, Word { at, keep: 0xffff, key: 0 }));
                i
            }
        };
        &mut self.0[i].1
    }

    /// The parts that have any words, as a set of [`Part::bit`]s.
    pub fn parts(&self) -> u16 {
        self.0.iter().fold(0, |parts, (part, _)| parts | part.bit())
    }

    /// The words in the order of parts and offsets, and the end of each part's run.
    pub fn finish(self) -> (Box<[Word]>, [u8; Part::COUNT]) {
        let mut ends = [0; Part::COUNT];
        for (part, _) in &self.0 {
            for end in &mut ends[*part as usize..] {
                *end += 1;
            }
        }
        let native =
            |(_, word): (Part, Word)| Word { keep: word.keep.to_be(), key: word.key.to_be(), ..word };
        (self.0.into_iter().map(native).collect(), ends)
    }
}
