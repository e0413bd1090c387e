//! The classifier: finds the rules that match each packet of a vector.
//!
//! Theory of operation. A rule is compiled into one or more [`Entry`]s. An entry is a mask and a key over the
//! canonical window ([`mmb_packet::window`]), and tests for conditions that a mask cannot express. Entries
//! form a tree:
//!
//! * A node has hash tables, each for one mask within one chunk of the window. This is tuple space search
//!   (Srinivasan et al., 1999) with merged masks. An entry is in the first table whose mask is a subset of
//!   its own mask.
//! * A key of a table leads to a rule, to a leaf of entries that are compared four or sixteen at a time, or
//!   to a node.
//! * A cost model chooses the masks of a node, so that thousands of masks need only a few tables.
//! * Entries that no mask distinguishes are in bit vectors.
//! * Entries that depend on bytes outside the window are found through predicates.
//!
//! No entry is replicated: a packet meets every entry that it matches exactly once.
//!
//! A [`Classifier`] is a value. Clones share memory. An insertion or a removal copies one page of each table
//! on its path and never changes what readers of a clone find. (Filters in front of tables are shared; an
//! update only adds keys.) A vector goes through the tables of the root in passes, so that the memory
//! accesses of its packets overlap. Of consecutive packets with equal windows only the first is looked up.
//!
//! | folder | content | may use |
//! |---|---|---|
//! | `paged` | persistent vectors and sorted sets | |
//! | `pattern` | masks, fields, tests, entries: the compiled form of a match | |
//! | `vector` | hits, packets, and what the packets of a vector have in common | `pattern` |
//! | `compile` | from the matches of a rule to a pattern | `pattern` |
//! | `predicate` | predicates about bytes, and the search for the true ones | `paged`, `pattern`, `vector` |
//! | `leaf` | entries that are compared with SIMD instructions | `pattern`, `vector` |
//! | `bitvec` | bit vectors | `pattern`, `vector` |
//! | `table` | the tree: nodes, hash tables, pages, the choice of masks | `leaf`, `bitvec` and all above |
//! | `lookup` | the passes over a vector, and adaptive caches | `table` and all above |
//! | `classifier` | all rules together: updates and lookups | `lookup` and all above |

// Not `forbid`: `lookup` calls AVX-512 kernels after it has checked that the processor supports them.
#![deny(unsafe_code)]

mod bitvec;
mod classifier;
mod compile;
mod leaf;
mod lookup;
pub mod paged;
mod pattern;
mod predicate;
mod table;
mod vector;

pub use classifier::{Batch, Bounds, Classifier, Structure, TableInfo};
pub use pattern::{
    ByteSource, Entry, Field, MaskedKey, MemberKey, OptionKinds, Pattern, Predicate, Presence, Ranges,
    Relation,
};
pub use pattern::{Test, TruePredicates};
pub use predicate::{PredicateResults, PredicateSet};
pub use table::Occupancy;
pub use vector::{Hit, VECTOR};
