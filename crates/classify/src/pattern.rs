//! What a rule's matches ask of a packet, in the form that the classifier looks for.
//!
//! A [`Pattern`] is a list of [`Entry`]s, no two of which hold for one packet; the rule matches where one holds. An entry
//! is a mask and a key that every matching packet has ([`Entry::cover`]) and, where those do not say all, [`Test`]s.

use mmb_packet::Window;
use mmb_packet::window::{CHUNK, CHUNKS};

use crate::masked::Masked;
use crate::predicate::Ask;
use crate::ranges::{Ranges, largest};

/// Where a field's value stands in the window, and what tells whether the packet has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    /// The value is bits `shift..shift + width` of this chunk, read as a big-endian number. Width 0: there is no value
    /// (it reads 0), only present and absent.
    pub chunk: u8,
    /// See [`Field::chunk`].
    pub shift: u8,
    /// See [`Field::chunk`].
    pub width: u8,
    /// The packet has the field if `window[byte] & mask == value`.
    pub present: Presence,
}

/// A question about one byte of the window: `window[byte] & mask == value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Presence {
    /// Offset in the window.
    pub byte: u8,
    /// The bits that count; with none it always holds.
    pub mask: u8,
    /// What they are.
    pub value: u8,
}

impl Presence {
    /// Whether it holds.
    #[inline]
    pub fn holds(&self, window: &Window) -> bool {
        window.bytes().get(usize::from(self.byte)).is_some_and(|byte| byte & self.mask == self.value)
    }

    /// The same as a mask and a key.
    pub fn masked(&self) -> Masked {
        Masked::byte(self.byte.into(), self.mask, self.value).unwrap_or(Masked::ANY)
    }
}

impl Field {
    /// The field's value, if the packet has the field.
    #[inline]
    pub fn read(&self, window: &Window) -> Option<u128> {
        self.present.holds(window).then(|| self.value(window))
    }

    /// The field's bits whether the packet has the field or not.
    #[inline]
    pub fn value(&self, window: &Window) -> u128 {
        self.bits_of(&window.chunk)
    }

    /// The bits of the field's value that `cover` fixes, as mask and key over the value.
    pub(crate) fn fixed(&self, cover: &Masked) -> (u128, u128) {
        (self.bits_of(cover.mask()), self.bits_of(cover.key()))
    }

    /// The field's bits out of a window's chunks.
    #[inline(always)]
    pub(crate) fn bits_of(&self, chunks: &[u128; CHUNKS]) -> u128 {
        let chunk = chunks.get(usize::from(self.chunk)).copied().unwrap_or(0);
        chunk.to_be().checked_shr(self.shift.into()).unwrap_or(0) & largest(self.width)
    }

    /// The chunks of the window that reading it takes, as bits.
    pub fn chunks(&self) -> u8 {
        let value = if self.width == 0 { 0 } else { 1 << self.chunk };
        let present = if self.present.mask == 0 { 0 } else { 1 << (usize::from(self.present.byte) / CHUNK) };
        value | present
    }
}

/// What must hold beside an entry's cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The field's value is in `ranges`; for packets without the field, `absent` is the answer.
    Within {
        /// The field.
        field: Field,
        /// The values that do.
        ranges: Ranges,
        /// What holds for packets that do not have the field.
        absent: bool,
    },
    /// Predicate `yes` is true, or predicate `no` is false. One of the two is there.
    Clause {
        /// The predicate that may be true …
        yes: Option<u32>,
        /// … and the one that may be false.
        no: Option<u32>,
    },
}

impl Test {
    /// Whether it holds for a packet.
    #[inline]
    pub fn holds(&self, window: &Window, facts: Facts<'_>) -> bool {
        match self {
            Test::Within { field, ranges, absent } => match field.read(window) {
                Some(value) => ranges.contains(value),
                None => *absent,
            },
            Test::Clause { yes, no } => {
                yes.is_some_and(|yes| facts.contains(yes)) || no.is_some_and(|no| !facts.contains(no))
            }
        }
    }

    /// The chunks of the window that it reads, as bits.
    pub fn chunks(&self) -> u8 {
        match self {
            Test::Within { field, .. } => field.chunks(),
            Test::Clause { .. } => 0,
        }
    }
}

/// The predicates that are true of one packet, in ascending order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a>(&'a [u32]);

impl<'a> Facts<'a> {
    /// No predicate is true.
    pub const NONE: Facts<'static> = Facts(&[]);

    /// Those of `ids`, which are in ascending order.
    pub fn new(ids: &'a [u32]) -> Facts<'a> {
        debug_assert!(ids.is_sorted());
        Facts(ids)
    }

    /// Whether the predicate is true.
    #[inline]
    pub fn contains(&self, id: u32) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    /// The true ones, ascending.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = u32> + 'a {
        self.0.iter().copied()
    }
}

/// One way for a packet to match a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Every packet that matches satisfies it; it asks for IP at least, and not for what [follows from the
    /// rest](Masked::without_implied) if there are no tests.
    pub cover: Masked,
    /// What must hold, too.
    pub tests: Box<[Test]>,
    /// A predicate that must be true, through which the entry is found: for packets of which it is false the entry
    /// costs nothing.
    pub pivot: Option<u32>,
}

impl Entry {
    /// The packets that satisfy `cover` and all `tests`; None: `cover` is about packets that are not IP.
    pub fn new(cover: &Masked, tests: impl IntoIterator<Item = Test>) -> Option<Entry> {
        let cover = cover.and(&Masked::IP)?;
        let tests: Box<[Test]> = tests.into_iter().collect();
        let cover = if tests.is_empty() { cover.without_implied() } else { cover };
        Some(Entry { cover, tests, pivot: None })
    }

    /// Whether the cover says all there is to say (once the pivot is true).
    pub fn is_exact(&self) -> bool {
        self.tests.is_empty()
    }

    /// Whether a packet matches.
    pub fn holds(&self, window: &Window, facts: Facts<'_>) -> bool {
        self.pivot.is_none_or(|pivot| facts.contains(pivot))
            && self.cover.holds(window)
            && self.passes(window, facts)
    }

    /// Whether all tests hold; nothing is said about cover and pivot.
    #[inline]
    pub fn passes(&self, window: &Window, facts: Facts<'_>) -> bool {
        self.tests.iter().all(|test| test.holds(window, facts))
    }

    /// The chunks of the window that it reads, as bits.
    pub fn chunks(&self) -> u8 {
        self.tests.iter().fold(self.cover.chunks(), |chunks, test| chunks | test.chunks())
    }

    /// The predicates that it asks for, pivot included; one may come several times.
    pub fn predicates(&self) -> impl Iterator<Item = u32> + '_ {
        let clauses = self.tests.iter().flat_map(|test| match *test {
            Test::Clause { yes, no } => [yes, no],
            Test::Within { .. } => [None, None],
        });
        clauses.chain([self.pivot]).flatten()
    }

    /// The same with each predicate replaced.
    pub(crate) fn renumbered(mut self, mut number: impl FnMut(u32) -> u32) -> Entry {
        for test in &mut self.tests {
            if let Test::Clause { yes, no } = test {
                *yes = yes.map(&mut number);
                *no = no.map(&mut number);
            }
        }
        self.pivot = self.pivot.map(number);
        self
    }
}

/// A compiled match. Its predicates' numbers are indexes in [`Pattern::asks`] until a classifier gives them its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    entries: Vec<Entry>,
    asks: Vec<Ask>,
}

impl Pattern {
    /// A rule that matches where one of `entries` holds: at least one, no two for one packet, with predicates below
    /// `asks.len()`. None where that is not so (as far as it shows).
    pub fn new(entries: Vec<Entry>, asks: Vec<Ask>) -> Option<Pattern> {
        let known = |entry: &Entry| entry.predicates().all(|id| (id as usize) < asks.len());
        (!entries.is_empty() && entries.iter().all(known)).then_some(Pattern { entries, asks })
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What the predicates ask, by number.
    pub fn asks(&self) -> &[Ask] {
        &self.asks
    }
}
