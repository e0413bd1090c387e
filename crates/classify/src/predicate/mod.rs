//! Predicates about bytes outside the window: payloads, TCP option data, TCP option kinds.
//!
//! Theory of operation. A [`Predicate`](crate::Predicate) gets a number when the first rule uses it, and
//! loses it with the last. The bytes of a packet are searched once for all predicates. The kind of each
//! option leads to the predicates that name it. A trie finds the literals that the bytes start with or equal.
//! Automata find the literals that occur anywhere (`contains`). So the cost depends on the bytes and on the
//! number of true predicates. The result is the numbers of the true predicates. Entries with a pivot are
//! found through it; other entries test the predicates.
//!
//! A [`PredicateSet`] is a value: clones share memory, and a change copies only the path to what it changes.

mod contains;
mod results;
mod set;
mod source_index;
mod trie;

pub use results::PredicateResults;
pub use set::PredicateSet;
