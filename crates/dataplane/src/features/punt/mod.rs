//! Punt: packets that the kernel receives.

pub(crate) mod node;
