//! Whether an interface takes frames that an XDP program redirects to it.
//!
//! The kernel reports this since 6.3 by generic netlink, in the family "netdev" (linux/netdev.h). An
//! interface without this feature loses redirected frames silently, so no reply counts as no.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::netdev;

// linux/genetlink.h
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
// linux/netdev.h
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 1 << 2;

/// Bytes of struct nlmsghdr and struct genlmsghdr.
const HEADERS: usize = 20;

/// Whether the kernel reports that the interface takes redirected frames.
pub(crate) fn can_receive_redirects(if_index: u32) -> bool {
    features(if_index).is_ok_and(|features| features & NETDEV_XDP_ACT_NDO_XMIT != 0)
}

fn features(if_index: u32) -> io::Result<u64> {
    let socket = netdev::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)?;
    let family = query(&socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"netdev\0")?;
    let family = u16::from_ne_bytes(attribute(&family, CTRL_ATTR_FAMILY_ID)?);
    let device = query(&socket, family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &if_index.to_ne_bytes())?;
    attribute(&device, NETDEV_A_DEV_XDP_FEATURES).map(u64::from_ne_bytes)
}

/// Sends a request with one attribute and returns the attributes of the reply.
fn query(socket: &OwnedFd, family: u16, command: u8, attribute: u16, value: &[u8]) -> io::Result<Vec<u8>> {
    let message = request(family, command, attribute, value);
    let mut reply = vec![0u8; 4096];
    // SAFETY: live buffers and their lengths. An unbound netlink socket sends to the kernel.
    let len = unsafe {
        let fd = socket.as_raw_fd();
        if libc::send(fd, message.as_ptr().cast(), message.len(), 0) < 0 {
            return Err(io::Error::last_os_error());
        }
        // The kernel replies before send() returns.
        libc::recv(fd, reply.as_mut_ptr().cast(), reply.len(), libc::MSG_DONTWAIT)
    };
    reply.truncate(usize::try_from(len).map_err(|_| io::Error::last_os_error())?);
    match reply.get(4..6) {
        Some(kind) if kind == family.to_ne_bytes() && reply.len() >= HEADERS => Ok(reply.split_off(HEADERS)),
        // NLMSG_ERROR, or less than a header.
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn request(family: u16, command: u8, attribute: u16, value: &[u8]) -> Vec<u8> {
    let len = HEADERS + 4 + value.len().next_multiple_of(4);
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Sequence number and port id, which are not used.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend((4 + value.len() as u16).to_ne_bytes());
    message.extend(attribute.to_ne_bytes());
    message.extend(value);
    message.resize(len, 0);
    message
}

/// The value of the first attribute of this type.
fn attribute<const N: usize>(mut attributes: &[u8], wanted: u16) -> io::Result<[u8; N]> {
    let missing = || io::ErrorKind::Unsupported.into();
    while let [a, b, c, d, ..] = *attributes {
        let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let value = attributes.get(4..len).ok_or_else(missing)?;
        if kind == wanted {
            return value.try_into().map_err(|_| missing());
        }
        attributes = attributes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Err(missing())
}
