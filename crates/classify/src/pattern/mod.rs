//! Compiled matches, in the form that the classifier looks up.
//!
//! A [`Pattern`] is a list of [`Entry`]s. At most one of them holds for a packet; the rule matches if one
//! holds. An entry is a mask and a key that every matching packet satisfies ([`Entry::cover`]), and [`Test`]s
//! for the other conditions.

mod entry;
mod field;
mod masked_key;
mod predicate;
mod ranges;
mod rule;

pub(crate) use entry::RuleEntry;
pub use entry::{Entry, Test, TruePredicates};
pub use field::{Field, Presence};
pub(crate) use field::{WordReader, common_bits};
pub(crate) use masked_key::CompactKey;
pub use masked_key::MaskedKey;
pub use predicate::{ByteSource, MemberKey, OptionKinds, Predicate, Relation};
pub use ranges::Ranges;
pub(crate) use ranges::largest;
pub use rule::Pattern;
