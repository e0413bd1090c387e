//! Punt: packets that the kernel receives.

mod class;
pub(crate) mod limit;
pub(crate) mod node;
pub(crate) mod queue;
pub(crate) mod writer;
