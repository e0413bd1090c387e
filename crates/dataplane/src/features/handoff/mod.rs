//! Handoff: packets that move to the worker that owns their flow.

mod admission;
pub(crate) mod node;
pub(crate) mod send;
