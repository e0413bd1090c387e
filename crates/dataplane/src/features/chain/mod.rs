//! Service chains: the nodes that run network functions, and their counters.

pub(crate) mod node;
pub(crate) mod stages;
