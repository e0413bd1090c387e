//! The link layer: Ethernet and VLAN headers on input, and the wire to the peer port on output.

pub(crate) mod input;
pub(crate) mod wire;
