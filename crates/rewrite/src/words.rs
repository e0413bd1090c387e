//! Edits of 16-bit words, `new = (old & keep) | key`, and their effect on a ones'-complement sum.

use mmb_packet::Loc;

/// Parts of a packet that differ in the checksums that cover them, in the order of [`crate::EditProgram`]'s
/// words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Part {
    /// IPv4 before the addresses; covered by the IPv4 header checksum.
    Ip4,
    /// IPv4 addresses; covered by the IPv4 header checksum and the pseudo header.
    Ip4Addresses,
    /// IPv6 before the addresses; not covered.
    Ip6,
    /// IPv6 source; covered by the pseudo header.
    Ip6Source,
    /// IPv6 destination; covered by the pseudo header unless a routing header has segments left.
    Ip6Destination,
    /// Transport headers; covered by their own checksum.
    Tcp,
    Udp,
    Icmp,
    Icmp6,
}

type PartOf = fn(u8) -> Part;

impl Part {
    /// Number of parts.
    pub const COUNT: usize = Part::Icmp6 as usize + 1;

    /// The part's bit in a set of parts.
    pub const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Returns the first bit of the field at `loc` in its header, and a function from a byte of that header
    /// to its part. Returns `None` if `loc` is not a header field.
    fn of(loc: Loc) -> Option<(u16, PartOf)> {
        Some(match loc {
            Loc::InPort | Loc::OutPort | Loc::Ethertype => return None,
            // These locations exist only in the window.
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

/// The edit of one aligned 16-bit word of a header.
///
/// `keep` and `key` are in native byte order as read from the packet. Ones'-complement sums do not depend
/// on the byte order (RFC 1071, 2.B), so no packet needs a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Word {
    /// Byte offset in the header.
    pub at: u8,
    /// Mask of the bits of the old word that stay.
    pub keep: u16,
    /// Bits to set; disjoint from `keep`.
    pub key: u16,
}

/// Change of a checksum by a sequence of word edits (RFC 1624, equation 3): the sum of `~old + new` over
/// the words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delta {
    sum: u32,
    changed: u16,
}

impl Delta {
    /// Applies `words` to `header` and adds their change. Words beyond `header` are skipped. A program has
    /// at most 41 words, so the sum cannot overflow.
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

    /// Returns the checksum after the change, in native byte order. `None` if nothing changed, so that
    /// 0x0000 and 0xffff are never exchanged without a cause.
    #[inline]
    pub fn update(self, checksum: u16) -> Option<u16> {
        if self.changed == 0 {
            return None;
        }
        Some(!mmb_packet::checksum::fold(u32::from(!checksum) + self.sum))
    }
}

/// Collects edits by word; a later edit of the same bits replaces the earlier one.
#[derive(Default)]
pub(crate) struct Words(Vec<(Part, Word)>);

impl Words {
    /// Sets the `width` bits at `loc` to the low bits of `value`. Returns false if `loc` is not a header
    /// field.
    pub fn set(&mut self, loc: Loc, width: u16, value: u128) -> bool {
        let Some((first, part_of)) = Part::of(loc) else { return false };
        let end = first + width;
        for start in (first / 16 * 16..end).step_by(16) {
            // The field's bits in this word are `low..high`, counted from the left.
            let (low, high) = (first.max(start), end.min(start + 16));
            let mask = (0xffff >> (16 - (high - low))) << (start + 16 - high);
            let bits = ((value >> (end - high)) as u16) << (start + 16 - high);
            let at = (start / 8) as u8;
            let word = self.word(part_of(at), at);
            // Big endian here; `finish` converts to native order.
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

    /// The set of parts that have words, as [`Part::bit`]s.
    pub fn parts(&self) -> u16 {
        self.0.iter().fold(0, |parts, (part, _)| parts | part.bit())
    }

    /// Returns the words by part and offset, and the end index of each part.
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
