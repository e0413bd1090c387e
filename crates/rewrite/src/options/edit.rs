//! Edits of TCP options.

use mmb_packet::checksum::{fold, sum};

/// Maximum bytes of options in a header: 15 words less the 5 of the fixed header (RFC 9293, 3.1).
pub(super) const MAX_BYTES: usize = 40;

/// One edit of a packet's options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OptionEdit {
    /// Every option of the kind gets this data. With `add`, the option is appended if the packet has none.
    Write { kind: u8, data: Data, add: bool },
    /// Removes the options of these kinds.
    Strip(Kinds),
}

/// An option's bytes behind kind and length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Data {
    pub(super) bytes: Box<[u8]>,
    /// Result of [`sum_of`] over the bytes.
    pub(super) sum: u16,
}

impl Data {
    pub(super) fn new(bytes: Box<[u8]>) -> Data {
        Data { sum: sum_of(&bytes), bytes }
    }
}

/// Ones'-complement sum of bytes at an even offset. Swap the result for bytes at an odd offset (RFC 1071,
/// 2.B).
#[inline]
pub(super) fn sum_of(bytes: &[u8]) -> u16 {
    match bytes {
        [byte] => u16::from(*byte) << 8,
        [high, low] => u16::from_be_bytes([*high, *low]),
        _ => fold(sum(bytes, 0)),
    }
}

/// A set of option kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kinds(pub(super) [u64; 4]);

impl Kinds {
    pub(super) const ALL: Kinds = Kinds([u64::MAX; 4]);

    pub(super) fn of(kinds: impl IntoIterator<Item = u8>) -> Kinds {
        let mut set = [0; 4];
        kinds.into_iter().for_each(|kind| set[usize::from(kind / 64)] |= 1 << (kind % 64));
        Kinds(set)
    }

    pub(super) fn others(self) -> Kinds {
        Kinds(self.0.map(|bits| !bits))
    }

    #[inline]
    pub(super) fn has(&self, kind: u8) -> bool {
        self.0[usize::from(kind / 64)] >> (kind % 64) & 1 == 1
    }
}
