//! The tree of hash tables: nodes, tables, pages of keys, and the choice of masks.

mod branch;
mod choose_mask;
mod extra_bits;
mod filter;
mod guard;
mod hash;
mod hash_table;
mod node;
mod page;
mod path;
mod store;
mod tag_group;

pub(crate) use branch::Branch;
#[cfg(test)]
pub(crate) use choose_mask::MaskChoice;
#[cfg(test)]
pub(crate) use extra_bits::ExtraBits;
pub(crate) use guard::GuardReader;
pub(crate) use hash::{Hash, Seeds};
pub(crate) use hash_table::Table;
pub(crate) use node::Node;
#[cfg(test)]
pub(crate) use page::Hashing;
pub(crate) use page::{Group, Page};
pub(crate) use path::{Path, is_exact};
pub use store::Occupancy;
