//! The fast path in the engine: its configuration, what it asks of the snapshot, and the hooks of the nodes.
//!
//! The fast path itself is the crate `mmb-fastpath`.

pub(crate) mod config;
pub(crate) mod host;
pub(crate) mod learn;
#[cfg(test)]
mod tests;
