//! The classifier: which rules match a packet, for a vector of packets at a time.
//!
//! Theory of operation. A rule's equality and prefix constraints are a mask and a key over the canonical window
//! ([`mmb_packet::window`]); what it excludes (`!=`, `!`) is a list of residual constraints. All rules with the same
//! mask share one hash table from keys to rules ("tuple space search", Srinivasan et al., 1999), so a packet costs one
//! lookup per distinct mask, whatever the number of rules; residual constraints are looked at only for packets that
//! have the rule's key. Every mask asks for IP, so that no rule speaks of other packets.
//!
//! A [`Classifier`] is a value. Clones share everything, an insertion or removal copies one page of one table, and a
//! clone that readers use never changes. Tables are probed one after the other for the whole vector: what a table's
//! code and top levels need stays in the nearest caches, and the packets' memory accesses overlap.

#![forbid(unsafe_code)]

mod batch;
mod classifier;
mod compile;
mod group;
mod hash;
mod masked;
mod page;
pub mod paged;
mod pattern;
mod rules;
mod store;
mod table;

pub use batch::{Batch, Hit, VECTOR};
pub use classifier::{Classifier, Place, TableInfo};
pub use masked::Masked;
pub use pattern::{Exclusion, Pattern};
pub use store::Occupancy;
