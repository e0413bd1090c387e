//! Ports: devices, the node that receives from them, and the node that sends.

pub(crate) mod device;
pub(crate) mod open;
pub(crate) mod rx;
pub(crate) mod tx;
