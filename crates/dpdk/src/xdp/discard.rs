//! The tc program of routed AF_PACKET ports (bpf/discard.c). It drops what the port's socket has received
//! before the kernel's stack looks for a route.

use std::os::fd::OwnedFd;

use mmb_dpdk_sys as sys;

use super::error::XdpError;
use super::object::{Hook, Object, link};

const ATTACH: &str = "attach its tc program (Linux 6.6 or later is needed)";

/// The attached program. The link keeps it when the object is closed.
#[derive(Debug)]
pub(super) struct DiscardProgram(#[expect(dead_code, reason = "attached while it is open")] OwnedFd);

impl DiscardProgram {
    /// Attaches the program to the interface with that index.
    pub(super) fn attach(if_index: u32) -> Result<DiscardProgram, XdpError> {
        let object = Object::load(c"mmb_discard", sys::DISCARD, None)?;
        let link = link(object.program(c"discard")?, if_index, Hook::Ingress);
        link.map(DiscardProgram).map_err(XdpError::at(ATTACH))
    }
}
