//! Drop: packets that are counted by reason and freed.

pub(crate) mod node;
