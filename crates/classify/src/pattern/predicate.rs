//! Predicates about bytes of a packet, and about membership in named sets.

use mmb_packet::{NamedOption, PayloadLayer, Window};

use super::field::Field;

/// A condition on bytes that are not in the window, or on elements of sets. It is true or false for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Predicate {
    /// The packet has a TCP option of one of these kinds.
    OptionKind(OptionKinds),
    /// The payload has at least one byte.
    Exists(PayloadLayer),
    /// The bytes exist and have this relation to at least one of the literals.
    Bytes {
        /// Which bytes.
        source: ByteSource,
        /// The relation.
        relation: Relation,
        /// At least one literal; in ascending order, without duplicates, none empty.
        literals: Box<[Box<[u8]>]>,
    },
    /// The value of a field, or the pair of an address and a port, is in a named set.
    Member {
        /// Name of the set.
        set: Box<str>,
        /// The fields.
        key: MemberKey,
    },
    /// The packet has the fields that are compared with a set.
    Present(MemberKey),
}

/// The fields that are compared with the elements of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberKey {
    /// The field, or the address of a pair.
    pub field: Field,
    /// The port of a pair.
    pub port: Option<Field>,
}

impl MemberKey {
    /// Whether a packet has all of the fields.
    #[inline]
    pub fn is_present(&self, window: &Window) -> bool {
        self.field.present.holds(window) && self.port.is_none_or(|port| port.present.holds(window))
    }

    /// The chunks of the window that are needed to read the fields, as a bit set.
    pub fn chunks(&self) -> u8 {
        self.field.chunks() | self.port.map_or(0, |port| port.chunks())
    }
}

/// Bytes that a predicate can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteSource {
    /// A payload.
    Payload(PayloadLayer),
    /// The data of the last option of this kind.
    Option(NamedOption),
}

/// The relation of bytes to a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The bytes start with the literal.
    Starts,
    /// The bytes equal the literal.
    Equals,
    /// The literal occurs somewhere in the bytes.
    Contains,
}

/// A set of TCP option kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OptionKinds([u64; 4]);

impl OptionKinds {
    /// The set of these kinds.
    pub fn new(kinds: impl IntoIterator<Item = u8>) -> OptionKinds {
        let mut set = OptionKinds::default();
        kinds.into_iter().for_each(|kind| set.insert(kind));
        set
    }

    /// Adds a kind.
    pub fn insert(&mut self, kind: u8) {
        self.0[usize::from(kind >> 6)] |= 1 << (kind & 63);
    }

    /// Whether a kind is in the set.
    pub fn contains(&self, kind: u8) -> bool {
        self.0[usize::from(kind >> 6)] >> (kind & 63) & 1 == 1
    }

    /// All kinds in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|kind| self.contains(*kind))
    }

    /// The only kind, if there is exactly one.
    pub fn single(&self) -> Option<u8> {
        let mut all = self.iter();
        if let (Some(one), None) = (all.next(), all.next()) { Some(one) } else { None }
    }
}

impl Predicate {
    /// The predicate that the bytes have this relation to one of the literals. None without literals, or with
    /// an empty one.
    pub fn bytes(source: ByteSource, relation: Relation, mut literals: Vec<Box<[u8]>>) -> Option<Predicate> {
        literals.sort_unstable();
        literals.dedup();
        let sound = literals.first().is_some_and(|first| !first.is_empty());
        sound.then(|| Predicate::Bytes { source, relation, literals: literals.into() })
    }

    /// Weight of the predicate in the choice of a rule's pivot: higher is more selective. 0 means that it is
    /// not selective enough to be a pivot.
    pub(crate) fn selectivity(&self) -> usize {
        match self {
            Predicate::Exists(_) | Predicate::Present(_) => 0,
            Predicate::OptionKind(_) | Predicate::Member { .. } => 1,
            Predicate::Bytes { literals, .. } => {
                1 + literals.iter().map(|literal| literal.len()).min().unwrap_or(0)
            }
        }
    }
}
