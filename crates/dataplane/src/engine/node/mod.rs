//! What nodes are built of: vectors of packets, and edges by name.

pub(crate) mod edges;
pub(crate) mod vector;
