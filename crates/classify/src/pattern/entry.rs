//! Entries: one alternative of a rule, as a mask with a key and tests.

use std::sync::Arc;

use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

use super::field::Field;
use super::masked_key::{CompactKey, MaskedKey};
use super::ranges::Ranges;

/// A rule's slot and one of its entries.
pub(crate) type RuleEntry = (u32, Arc<Entry>);

/// A condition in addition to an entry's cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The value of a field is in `ranges`. For packets without the field the result is `absent`.
    InRanges {
        /// The field.
        field: Field,
        /// The accepted values.
        ranges: Ranges,
        /// The result for packets that do not have the field.
        absent: bool,
    },
    /// Predicate `positive` is true, or predicate `negative` is false. At least one of the two is present.
    Clause {
        /// The predicate that has to be true.
        positive: Option<u32>,
        /// The predicate that has to be false.
        negative: Option<u32>,
    },
}

impl Test {
    /// Whether the test holds for a packet.
    #[inline]
    pub fn holds(&self, window: &Window, facts: TruePredicates<'_>) -> bool {
        match self {
            Test::InRanges { field, ranges, absent } => match field.read(window) {
                Some(value) => ranges.contains(value),
                None => *absent,
            },
            Test::Clause { positive, negative } => {
                positive.is_some_and(|positive| facts.contains(positive))
                    || negative.is_some_and(|negative| !facts.contains(negative))
            }
        }
    }

    /// The chunks of the window that the test reads, as a bit set.
    pub fn chunks(&self) -> u8 {
        match self {
            Test::InRanges { field, .. } => field.chunks(),
            Test::Clause { .. } => 0,
        }
    }
}

/// The predicates that are true for one packet, in ascending order.
#[derive(Clone, Copy, Debug, Default)]
pub struct TruePredicates<'a>(&'a [u32]);

impl<'a> TruePredicates<'a> {
    /// No predicate is true.
    pub const NONE: TruePredicates<'static> = TruePredicates(&[]);

    /// Wraps `ids`, which must be in ascending order.
    pub fn new(ids: &'a [u32]) -> TruePredicates<'a> {
        debug_assert!(ids.is_sorted());
        TruePredicates(ids)
    }

    /// Whether the predicate is true.
    #[inline]
    pub fn contains(&self, id: u32) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// The true predicates in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = u32> + 'a {
        self.0.iter().copied()
    }
}

/// One alternative of a rule: a packet matches if cover, tests and pivot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    cover: CompactKey,
    /// Conditions in addition to the cover.
    pub tests: Box<[Test]>,
    /// A predicate that must be true. The entry is found through it, so it costs nothing for packets for
    /// which it is false.
    pub pivot: Option<u32>,
}

impl Entry {
    /// The entry for packets that satisfy `cover` and all `tests`. None if `cover` excludes IP packets.
    pub fn new(cover: &MaskedKey, tests: impl IntoIterator<Item = Test>) -> Option<Entry> {
        let cover = cover.and(&MaskedKey::IP)?;
        let tests: Box<[Test]> = tests.into_iter().collect();
        let cover = if tests.is_empty() { cover.without_implied() } else { cover };
        Some(Entry { cover: CompactKey::new(&cover), tests, pivot: None })
    }

    /// This entry, found through a predicate.
    pub fn with_pivot(self, pivot: Option<u32>) -> Entry {
        Entry { pivot, ..self }
    }

    /// The entry for packets that satisfy exactly `cover`, and for which `pivot` is true.
    pub(crate) fn exact(cover: &MaskedKey, pivot: Option<u32>) -> Entry {
        Entry { cover: CompactKey::new(cover), tests: Box::default(), pivot }
    }

    /// A mask and a key that every matching packet satisfies. It includes at least the bit for IP. Without
    /// tests it leaves out [what the rest implies](MaskedKey::without_implied).
    pub fn cover(&self) -> MaskedKey {
        self.cover.expand()
    }

    /// The cover's mask of a chunk.
    pub(crate) fn mask(&self, chunk: usize) -> u128 {
        self.cover.chunk(chunk).0
    }

    /// The cover's key of a chunk.
    pub(crate) fn key(&self, chunk: usize) -> u128 {
        self.cover.chunk(chunk).1
    }

    /// Mask and key over a field's value: the bits that the cover fixes.
    pub(crate) fn fixed(&self, field: &Field) -> (u128, u128) {
        let (mask, key) = self.cover.chunk(field.chunk.into());
        (field.bits_of_chunk(mask), field.bits_of_chunk(key))
    }

    /// The values of a field that tests accept.
    pub(crate) fn ranges_of(&self, field: &Field) -> impl Iterator<Item = &Ranges> {
        self.tests.iter().filter_map(move |test| match test {
            Test::InRanges { field: tested, ranges, .. } if tested == field => Some(ranges),
            _ => None,
        })
    }

    /// Whether a window satisfies the cover.
    pub(crate) fn covers(&self, window: &Window) -> bool {
        self.cover.holds(window)
    }

    /// Whether the cover has no bits beyond those of `known`.
    pub(crate) fn is_implied_by(&self, known: &MaskedKey) -> bool {
        (0..CHUNKS).all(|chunk| self.mask(chunk) & !known.mask()[chunk] == 0)
    }

    /// Bytes of memory behind the cover.
    pub(crate) fn cover_bytes(&self) -> usize {
        self.cover.bytes()
    }

    /// Whether the cover alone decides (once the pivot is true).
    pub fn is_exact(&self) -> bool {
        self.tests.is_empty()
    }

    /// Whether a packet matches.
    pub fn holds(&self, window: &Window, facts: TruePredicates<'_>) -> bool {
        self.pivot.is_none_or(|pivot| facts.contains(pivot))
            && self.covers(window)
            && self.passes(window, facts)
    }

    /// Whether all tests hold. Cover and pivot are not checked.
    #[inline]
    pub fn passes(&self, window: &Window, facts: TruePredicates<'_>) -> bool {
        self.tests.iter().all(|test| test.holds(window, facts))
    }

    /// The chunks of the window that the entry reads, as a bit set.
    pub fn chunks(&self) -> u8 {
        self.tests.iter().fold(self.cover().chunks(), |chunks, test| chunks | test.chunks())
    }

    /// The predicates that the entry uses, including the pivot. A predicate may occur several times.
    pub fn predicates(&self) -> impl Iterator<Item = u32> + '_ {
        let clauses = self.tests.iter().flat_map(|test| match *test {
            Test::Clause { positive, negative } => [positive, negative],
            Test::InRanges { .. } => [None, None],
        });
        clauses.chain([self.pivot]).flatten()
    }

    /// This entry with each predicate number replaced by `number` of it.
    pub(crate) fn renumbered(mut self, mut number: impl FnMut(u32) -> u32) -> Entry {
        for test in &mut self.tests {
            if let Test::Clause { positive, negative } = test {
                *positive = positive.map(&mut number);
                *negative = negative.map(&mut number);
            }
        }
        self.pivot = self.pivot.map(number);
        self
    }
}
