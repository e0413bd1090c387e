//! The kernel's reports of changed XDP features.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

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

/// A netlink socket on which the kernel reports changed XDP features of interfaces, in the network namespace
/// of the calling thread: what [`crate::Port::can_receive_redirects`] tells may have changed. ENOBUFS tells
/// that reports were lost.
///
/// # Errors
/// There is no descriptor left, or the kernel reports no features: then it has none that change.
pub fn redirect_reports() -> io::Result<OwnedFd> {
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
