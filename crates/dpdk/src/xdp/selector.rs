//! Which socket accepts a TCP connection, by the interface that it comes in by.
//!
//! The program (bpf/broker.c) is attached to the network namespace of the calling thread by a BPF link, which
//! ends with the value or with the process.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use mmb_dpdk_sys as sys;

use super::error::XdpError;
use super::maps::{call, errno_of, put};
use super::object::Object;

/// Why the kernel cannot select sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel cannot select sockets for it, as Linux does from 5.17 on: {0}")]
pub struct SelectorError(XdpError);

/// The socket lookup of a network namespace.
#[derive(Debug)]
pub struct SocketSelector {
    _link: OwnedFd,
    object: Object,
}

impl SocketSelector {
    /// Selects sockets in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no such lookup, or the process may not change it.
    pub fn attach() -> Result<SocketSelector, SelectorError> {
        const ATTACH: &str = "attach its program";
        let object = Object::load(c"mmb_broker", sys::BROKER, None).map_err(SelectorError)?;
        let namespace = File::open("/proc/thread-self/ns/net")
            .map_err(|error| SelectorError(XdpError { step: ATTACH, errno: errno_of(&error) }))?;
        let program = object.program(c"choose").map_err(SelectorError)?;
        // SAFETY: plain numbers; without options the pointer may be null.
        let link = call(|| unsafe {
            sys::bpf_link_create(program, namespace.as_raw_fd(), sys::BPF_SK_LOOKUP, std::ptr::null())
        });
        let link = link.map_err(|errno| SelectorError(XdpError { step: ATTACH, errno }))?;
        // SAFETY: a new descriptor that nobody else owns.
        Ok(SocketSelector { _link: unsafe { OwnedFd::from_raw_fd(link) }, object })
    }

    /// Makes a listening socket accept the TCP connections, to any address, that come in by an interface.
    /// When the socket is closed, it accepts none any more.
    ///
    /// # Errors
    /// The socket does not listen, or 256 sockets are selected.
    pub fn select(&self, interface: u32, socket: BorrowedFd<'_>) -> Result<(), SelectorError> {
        let map = self.object.map(c"sockets").map_err(SelectorError)?;
        let socket = u64::from(socket.as_raw_fd().unsigned_abs());
        // SAFETY: key and value have the sizes of this map.
        unsafe { put(map, &interface.to_ne_bytes(), &socket.to_ne_bytes()) }
            .map_err(|errno| SelectorError(XdpError { step: "select a socket", errno }))
    }
}
