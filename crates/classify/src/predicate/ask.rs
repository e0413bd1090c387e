//! What a predicate asks.

use mmb_packet::{NamedOption, PayloadLayer};

/// A question about bytes that are not in the window; its answer is yes or no.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Some TCP option's kind is one of these.
    OptionKind(Kinds),
    /// The payload has a byte at least.
    Exists(PayloadLayer),
    /// The bytes are there and stand in this relation to one of the literals.
    Bytes {
        /// Which bytes.
        source: Source,
        /// The relation.
        how: How,
        /// At least one, in ascending order, each once, none empty.
        literals: Box<[Box<[u8]>]>,
    },
}

/// Bytes that can be asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A payload.
    Payload(PayloadLayer),
    /// The data of the last option of this kind.
    Option(NamedOption),
}

/// How bytes stand to a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// They start with it.
    Starts,
    /// They are it.
    Equals,
    /// It stands somewhere in them.
    Contains,
}

/// A set of option kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds([u64; 4]);

impl Kinds {
    /// The set of these.
    pub fn new(kinds: impl IntoIterator<Item = u8>) -> Kinds {
        let mut set = Kinds::default();
        kinds.into_iter().for_each(|kind| set.insert(kind));
        set
    }

    /// Adds one.
    pub fn insert(&mut self, kind: u8) {
        self.0[usize::from(kind >> 6)] |= 1 << (kind & 63);
    }

    /// Whether it is in the set.
    pub fn contains(&self, kind: u8) -> bool {
        self.0[usize::from(kind >> 6)] >> (kind & 63) & 1 == 1
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|kind| self.contains(*kind))
    }

    /// The only one, if there is one only.
    pub fn single(&self) -> Option<u8> {
        let mut all = self.iter();
        if let (Some(one), None) = (all.next(), all.next()) { Some(one) } else { None }
    }
}

impl Ask {
    /// That the bytes stand so to one of the literals; None without literals, or with an empty one.
    pub fn bytes(source: Source, how: How, mut literals: Vec<Box<[u8]>>) -> Option<Ask> {
        literals.sort_unstable();
        literals.dedup();
        let sound = literals.first().is_some_and(|first| !first.is_empty());
        sound.then(|| Ask::Bytes { source, how, literals: literals.into() })
    }

    /// How much a positive answer says, for choosing among predicates the one through which rules are found; 0: so
    /// little that it is not worth a structure of its own.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Ask::Exists(_) => 0,
            Ask::OptionKind(_) => 1,
            Ask::Bytes { literals, .. } => {
                1 + literals.iter().map(|literal| literal.len()).min().unwrap_or(0)
            }
        }
    }
}
