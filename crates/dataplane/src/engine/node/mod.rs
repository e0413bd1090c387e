//! What nodes are built of: vectors of packets, edges by name, and ends of a graph without ports.

pub(crate) mod edges;
pub(crate) mod packet_io;
pub(crate) mod vector;
