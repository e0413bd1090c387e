//! Waiting for a change of what [`crate::Port::can_receive_redirects`] tells.
//!
//! # Theory of operation
//! The kernel reports changed XDP features of interfaces to a multicast group of the family "netdev", and
//! interfaces that go up, down or away by rtnetlink(7). What a message says does not matter: the caller asks
//! about its ports again, also after lost messages. A kernel that reports no features has none that change.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::{
    CTRL_ATTR_FAMILY_NAME, CTRL_CMD_GETFAMILY, GENERIC_HEADERS, GENL_ID_CTRL, attribute, attributes, find,
    message, number, query,
};
use crate::port::netdev::{self, set_option};

// linux/genetlink.h
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;
// linux/netdev.h
const NETDEV_MCGRP_MGMT: &[u8] = b"mgmt\0";

/// Tells when a port may have begun or ceased to take redirected frames. It belongs to one thread.
#[derive(Debug)]
pub struct RedirectWatch {
    sockets: Vec<OwnedFd>,
    waker: RedirectWaker,
}

/// Ends a wait of a [`RedirectWatch`].
#[derive(Clone, Debug)]
pub struct RedirectWaker(Arc<File>);

impl RedirectWaker {
    fn new() -> io::Result<RedirectWaker> {
        // SAFETY: a plain system call; the descriptor, if any, is new and owned.
        let file = unsafe {
            match libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) {
                -1 => return Err(io::Error::last_os_error()),
                fd => File::from_raw_fd(fd),
            }
        };
        Ok(RedirectWaker(Arc::new(file)))
    }

    /// Ends the current or the next wait.
    pub fn wake(&self) {
        // It fails only if the counter is full, and then the wait ends anyway.
        let _ = (&*self.0).write(&1u64.to_ne_bytes());
    }

    fn clear(&self) {
        // It fails only if nobody has called `wake`.
        let _ = (&*self.0).read(&mut [0; 8]);
    }
}

impl RedirectWatch {
    /// Begins to listen, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new() -> io::Result<RedirectWatch> {
        let sockets = [Some(listen_to_links()?), listen_to_features().ok()];
        Ok(RedirectWatch { sockets: sockets.into_iter().flatten().collect(), waker: RedirectWaker::new()? })
    }

    /// What ends a wait of this watch.
    pub fn waker(&self) -> RedirectWaker {
        self.waker.clone()
    }

    /// Waits until the kernel has reported a change since the last call, or for the waker, but not longer
    /// than `longest`.
    pub fn wait(&self, longest: Duration) {
        let sockets = self.sockets.iter().map(AsRawFd::as_raw_fd);
        poll(sockets.chain([self.waker.0.as_raw_fd()]), i32::try_from(longest.as_millis()).unwrap_or(-1));
        self.waker.clear();
        self.sockets.iter().for_each(discard_messages);
    }

    /// Waits for the waker alone.
    pub fn sleep(&self) {
        poll([self.waker.0.as_raw_fd()].into_iter(), -1);
        self.waker.clear();
    }
}

/// A socket to which the kernel reports interfaces that come, go and change.
fn listen_to_links() -> io::Result<OwnedFd> {
    let socket = netdev::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    (address.nl_family, address.nl_groups) = (libc::AF_NETLINK as u16, libc::RTMGRP_LINK as u32);
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: a live address and its size.
    let status = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    if status == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// A socket to which the kernel reports changed features of interfaces.
fn listen_to_features() -> io::Result<OwnedFd> {
    let socket = netdev::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)?;
    let name = attribute(CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let request = message(GENL_ID_CTRL, &[&[CTRL_CMD_GETFAMILY, 1, 0, 0], &name[..]].concat());
    let family = query(&socket, &request, GENL_ID_CTRL, GENERIC_HEADERS)?;
    let groups = find(&family, CTRL_ATTR_MCAST_GROUPS).unwrap_or_default();
    let is_wanted = |group: &&[u8]| find(group, CTRL_ATTR_MCAST_GRP_NAME) == Some(NETDEV_MCGRP_MGMT);
    let group = attributes(groups).map(|(_, group)| group).find(is_wanted).unwrap_or_default();
    let id = u32::from_ne_bytes(number(group, CTRL_ATTR_MCAST_GRP_ID)?);
    set_option(socket.as_raw_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, &id)?;
    Ok(socket)
}

/// Waits until one of the descriptors is readable. An interrupted wait is only shorter.
fn poll(descriptors: impl Iterator<Item = RawFd>, timeout: i32) {
    let mut waited: Vec<_> =
        descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: a live array and its length.
    unsafe { libc::poll(waited.as_mut_ptr(), waited.len() as libc::nfds_t, timeout) };
}

fn discard_messages(socket: &OwnedFd) {
    let mut message = [0u8; 64];
    loop {
        // SAFETY: a live buffer and its length. What a message has beyond it is discarded.
        let read = unsafe {
            libc::recv(socket.as_raw_fd(), message.as_mut_ptr().cast(), message.len(), libc::MSG_DONTWAIT)
        };
        // ENOBUFS tells once that messages were lost.
        if read < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOBUFS) {
            return;
        }
    }
}
