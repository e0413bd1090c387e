//! What the graph does with packets: one folder per feature, with its nodes, state and counters side by side.

pub(crate) mod chain;
pub(crate) mod classify;
pub(crate) mod drop;
pub(crate) mod fastpath;
pub(crate) mod flow_rules;
pub(crate) mod handoff;
pub(crate) mod ip;
pub(crate) mod l2;
pub(crate) mod port;
pub(crate) mod punt;
pub(crate) mod route;
pub(crate) mod session;
pub(crate) mod trace;
