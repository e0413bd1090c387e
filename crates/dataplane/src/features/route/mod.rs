//! Routing: next-hop lookup, forwarding, fragmentation, ICMP errors and neighbour resolution.

pub(crate) mod control;
pub(crate) mod fragment;
pub(crate) mod hop;
pub(crate) mod lookup;
pub(crate) mod neighbor;
pub(crate) mod out;
pub(crate) mod requests;
pub(crate) mod rewrite;
pub(crate) mod slow;
pub(crate) mod waiting;
