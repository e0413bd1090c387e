//! How the kernel can pass frames on to an interface.
//!
//! Whether an interface takes frames that an XDP program redirects to it, the kernel reports since 6.3 by
//! generic netlink, in the family "netdev" (linux/netdev.h). An interface without this feature loses
//! redirected frames silently, so no reply counts as no. Of an end of a veth pair, the feature tells whether
//! the other end has GRO or an XDP program.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::netdev;

mod reports;

pub use reports::redirect_reports;

// linux/genetlink.h
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
// linux/netdev.h
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ACT_BASIC: u64 = 1 << 0;
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 1 << 2;
// linux/if_link.h
const IFLA_INFO_KIND: u16 = 1;
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;

/// Bytes of struct nlmsghdr, and with struct genlmsghdr or struct ifinfomsg.
const HEADER: usize = 16;
const GENERIC_HEADERS: usize = HEADER + 4;
const LINK_HEADERS: usize = HEADER + 16;

/// What the kernel reports of an interface.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct XdpFeatures(u64);

impl XdpFeatures {
    /// Asks the kernel about an interface. Without a reply there are none.
    pub(crate) fn of(if_index: u32) -> XdpFeatures {
        query_features(if_index).unwrap_or_default()
    }

    /// Whether the interface takes redirected frames.
    pub(crate) fn takes_redirects(self) -> bool {
        self.0 & NETDEV_XDP_ACT_NDO_XMIT != 0
    }

    /// Whether the interface, which has these features, is an end of a veth pair whose other end is in
    /// another network namespace and has neither GRO nor an XDP program: it makes no difference to that end
    /// whether a frame gets there through the interface.
    pub(crate) fn has_plain_peer(self, if_index: u32) -> bool {
        let is_plain = self.0 & NETDEV_XDP_ACT_BASIC != 0 && !self.takes_redirects();
        is_plain && is_veth_into_namespace(if_index).unwrap_or(false)
    }
}

fn query_features(if_index: u32) -> io::Result<XdpFeatures> {
    let socket = netdev::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)?;
    let generic = |family: u16, command, kind, value: &[u8]| {
        let message = message(family, &[&[command, 1, 0, 0], &attribute(kind, value)[..]].concat());
        query(&socket, &message, family, GENERIC_HEADERS)
    };
    let family = generic(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"netdev\0")?;
    let family = u16::from_ne_bytes(number(&family, CTRL_ATTR_FAMILY_ID)?);
    let device = generic(family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &if_index.to_ne_bytes())?;
    Ok(XdpFeatures(u64::from_ne_bytes(number(&device, NETDEV_A_DEV_XDP_FEATURES)?)))
}

/// Whether the interface is an end of a veth pair whose other end is in another network namespace
/// (rtnetlink(7)).
fn is_veth_into_namespace(if_index: u32) -> io::Result<bool> {
    let socket = netdev::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    // struct ifinfomsg: family and type, index, flags, mask.
    let mut body = [[0; 4], if_index.to_ne_bytes(), [0; 4], [0; 4]].concat();
    body.extend(attribute(libc::IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes()));
    let link = query(&socket, &message(libc::RTM_GETLINK, &body), libc::RTM_NEWLINK, LINK_HEADERS)?;
    let kind = find(&link, libc::IFLA_LINKINFO).and_then(|info| find(info, IFLA_INFO_KIND));
    Ok(kind == Some(b"veth\0") && find(&link, libc::IFLA_LINK_NETNSID).is_some())
}

/// Sends a request and returns the attributes of the reply, which are behind so many bytes of headers.
fn query(socket: &OwnedFd, message: &[u8], reply_kind: u16, headers: usize) -> io::Result<Vec<u8>> {
    let mut reply = vec![0u8; 8192];
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
        Some(kind) if kind == reply_kind.to_ne_bytes() && reply.len() >= headers => {
            Ok(reply.split_off(headers))
        }
        // NLMSG_ERROR, or less than a header.
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// A request of a kind: struct nlmsghdr, with sequence number and port id 0, and what follows it.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let len = ((HEADER + body.len()) as u32).to_ne_bytes();
    let flags = (libc::NLM_F_REQUEST as u16).to_ne_bytes();
    [&len[..], &kind.to_ne_bytes(), &flags, &[0; 8], body].concat()
}

/// An attribute, padded to whole words.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (4 + value.len() as u16).to_ne_bytes();
    let mut bytes = [&len[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The kinds and values of attributes.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [a, b, c, d, ..] = *bytes else { return None };
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]), value))
    })
}

/// The value of the first attribute of this kind.
fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// The bytes of the first attribute of this kind, which is a number.
fn number<const N: usize>(bytes: &[u8], wanted: u16) -> io::Result<[u8; N]> {
    let value = find(bytes, wanted).and_then(|value| value.try_into().ok());
    value.ok_or_else(|| io::ErrorKind::Unsupported.into())
}
