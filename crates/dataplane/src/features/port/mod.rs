//! Ports: devices, the node that receives from them, and the node that transmits.

pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod offloads;
pub(crate) mod open;
pub(crate) mod rx;
pub(crate) mod stalls;
pub(crate) mod state;
pub(crate) mod tx;
