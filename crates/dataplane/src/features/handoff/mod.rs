//! Handoff: packets that move to the worker that owns their flow.

pub(crate) mod node;
pub(crate) mod send;
