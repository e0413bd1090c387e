//! The classifier: which rules match a packet, for a vector of packets at a time.
//!
//! Theory of operation. A rule is one or more [`Entry`]s: a mask and a key over the canonical window
//! ([`mmb_packet::window`]) that every matching packet satisfies, and tests for what those cannot say. Entries stand in
//! a tree without copies: a node has a few hash tables, each for one mask within one chunk of the window ("tuple space
//! search", Srinivasan et al., 1999, with masks merged), and an entry stands in the first whose mask is within its own.
//! A key leads to a rule, to a short row of entries that are compared four or sixteen at a time, or to a node again. Which masks a
//! node has is chosen by what they cost and save, so that thousands of masks need a handful of tables. What no mask
//! tells apart stands in bit vectors, and what asks about bytes outside the window is found through predicates. A packet
//! meets every entry that it matches, once.
//!
//! A [`Classifier`] is a value. Clones share everything, an insertion or removal copies one page of each table on the
//! path, and what a clone that readers use finds never changes. (Filters in front of tables are shared and only let more in.) A vector of packets goes through the root's tables in passes, so
//! that the packets' memory accesses overlap; of a train of packets that look alike only the first is looked up.

// Not `forbid`: `walk::compare` and `sink` call what is compiled for wider vectors, once the processor is known to have them.
#![deny(unsafe_code)]

mod alike;
mod batch;
mod bitvec;
mod block;
mod choose;
mod classifier;
mod compile;
mod filter;
mod group;
mod hash;
mod info;
mod leaf;
mod masked;
mod node;
mod owner;
mod page;
pub mod paged;
mod pattern;
mod ports;
mod predicate;
mod ranges;
mod recent;
mod sieve;
mod sink;
mod store;
mod summary;
mod table;
mod walk;
mod wide;

pub use batch::{Batch, Hit, VECTOR};
pub use classifier::Classifier;
pub use info::{Structure, TableInfo};
pub use masked::Masked;
pub use pattern::{Entry, Facts, Field, Pattern, Presence, Test};
pub use predicate::{Ask, How, Kinds, Predicates, Source, Truths};
pub use ranges::Ranges;
pub use store::Occupancy;
