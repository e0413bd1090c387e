//! Netlink sockets and requests.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd};

use libc::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_core::NetlinkBuffer;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::sys::socket::{setsockopt, sockopt};

use super::class::StateClass;
use super::decode::{RTM_GETNETCONF, RTM_GETNEXTHOP, decode};
use super::event::{Event, Neighbor};
use crate::plane::PortState;

/// Multicast groups: links, neighbours, addresses and routes of both families, their settings, nexthop
/// objects. `enum rtnetlink_groups` of linux/rtnetlink.h.
const GROUPS: [u32; 9] = [1, 3, 5, 7, 9, 11, 24, 25, 32];
/// Receive buffer in bytes. The messages of 100,000 route changes fit.
pub(crate) const RECEIVE_BUFFER: usize = 128 << 20;
/// Size of a read. The kernel sends datagrams as large as the largest read so far, up to 32 KiB.
const MAX_READ: usize = 64 << 10;
/// Flag: changes have disturbed the dump (linux/netlink.h).
const DUMP_INTERRUPTED: u16 = 0x10;
/// Request without statistics (`RTEXT_FILTER_SKIP_STATS`).
const SKIP_STATS: u32 = 1 << 3;

// linux/fib_rules.h
const FR_ACT_TO_TBL: u8 = 1;
const FIB_RULE_INVERT: u32 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadResult {
    /// A datagram was read.
    Some,
    /// There is nothing to read.
    Empty,
    /// Messages were lost.
    Overrun,
}

/// A message of the kernel.
pub(crate) struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub body: &'a [u8],
}

impl Message<'_> {
    /// The result code if the message ends a dump or answers a request: an error number of errno(3), or 0.
    pub fn end(&self) -> Option<i32> {
        let code = || self.body.first_chunk().map_or(0, |b| -i32::from_ne_bytes(*b));
        match i32::from(self.kind) {
            libc::NLMSG_DONE | libc::NLMSG_ERROR => Some(code()),
            _ => None,
        }
    }

    /// Whether the kernel reports that changes have disturbed the dump.
    pub fn is_interrupted(&self) -> bool {
        self.flags & DUMP_INTERRUPTED != 0
    }
}

/// The messages of a datagram, up to the first one that is cut short.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let header = NetlinkBuffer::new_checked(rest).ok()?;
        let length = header.length() as usize;
        let message = Message {
            kind: header.message_type(),
            flags: header.flags(),
            sequence: header.sequence_number(),
            body: rest.get(16..length)?,
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// A netlink socket with its read buffer.
pub(crate) struct NetlinkSocket {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

impl NetlinkSocket {
    /// A socket that receives all changes of mirrored state, with a receive buffer of this many bytes.
    pub fn events(buffer: usize) -> io::Result<NetlinkSocket> {
        let channel = NetlinkSocket::open()?;
        // A buffer beyond the system's limit needs a privilege. Without it the limit applies.
        if setsockopt(&channel.socket.as_fd(), sockopt::RcvBufForce, &buffer).is_err() {
            channel.socket.set_rx_buf_sz(buffer.min(RECEIVE_BUFFER) as libc::c_int)?;
        }
        for group in GROUPS {
            // Older kernels lack the last groups.
            let _ = channel.socket.add_membership(group);
        }
        channel.socket.set_non_blocking(true)?;
        Ok(channel)
    }

    /// A socket that receives changes of interfaces.
    pub fn links() -> io::Result<NetlinkSocket> {
        let channel = NetlinkSocket::open()?;
        channel.socket.add_membership(libc::RTNLGRP_LINK)?;
        channel.socket.set_non_blocking(true)?;
        Ok(channel)
    }

    /// A socket for requests; the kernel checks them strictly.
    pub fn requests() -> io::Result<NetlinkSocket> {
        let channel = NetlinkSocket::open()?;
        let _ = channel.socket.set_netlink_get_strict_chk(true);
        channel.socket.set_non_blocking(true)?;
        Ok(channel)
    }

    fn open() -> io::Result<NetlinkSocket> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        Ok(NetlinkSocket { socket, buffer: Vec::with_capacity(MAX_READ), sequence: 0 })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads at most one datagram.
    ///
    /// # Errors
    /// The socket is unusable.
    pub fn read(&mut self) -> io::Result<ReadResult> {
        self.buffer.clear();
        match self.socket.recv(&mut self.buffer, 0) {
            Ok(_) => Ok(ReadResult::Some),
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => Ok(ReadResult::Overrun),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted => {
                Ok(ReadResult::Empty)
            }
            Err(e) => Err(e),
        }
    }

    /// The messages of the last read.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        messages(&self.buffer)
    }

    /// Requests a dump of a class. Returns the sequence number of the replies.
    pub fn dump(&mut self, class: StateClass) -> io::Result<u32> {
        let (kind, family, head) = match class {
            StateClass::Links => (libc::RTM_GETLINK, libc::AF_UNSPEC, 16),
            StateClass::Addresses => (libc::RTM_GETADDR, libc::AF_UNSPEC, 8),
            StateClass::Settings4 => (RTM_GETNETCONF, libc::AF_INET, 4),
            StateClass::Settings6 => (RTM_GETNETCONF, libc::AF_INET6, 4),
            StateClass::Objects => (RTM_GETNEXTHOP, libc::AF_UNSPEC, 8),
            StateClass::Neighbors4 => (libc::RTM_GETNEIGH, libc::AF_INET, 12),
            StateClass::Neighbors6 => (libc::RTM_GETNEIGH, libc::AF_INET6, 12),
            StateClass::Routes4 => (libc::RTM_GETROUTE, libc::AF_INET, 12),
            StateClass::Routes6 => (libc::RTM_GETROUTE, libc::AF_INET6, 12),
        };
        let mut body = vec![0; head];
        body[0] = family as u8;
        if class == StateClass::Links {
            attribute(&mut body, libc::IFLA_EXT_MASK, &SKIP_STATS.to_ne_bytes());
        }
        self.send(kind, NLM_F_DUMP, &body)
    }

    /// Asks the kernel to resolve or confirm a neighbour. Returns the neighbour's state, as
    /// [`NetlinkSocket::neighbor`] does.
    pub fn probe_neighbor(&mut self, interface: u32, address: IpAddr) -> io::Result<Event> {
        self.send(libc::RTM_NEWNEIGH, NLM_F_CREATE, &neighbor_message(interface, address, libc::NTF_USE))?;
        self.neighbor(interface, address)
    }

    /// The present state of a neighbour. The socket must not be receiving a dump.
    ///
    /// # Errors
    /// The kernel's. That it does not know the neighbour is no error.
    pub fn neighbor(&mut self, interface: u32, address: IpAddr) -> io::Result<Event> {
        let sequence = self.send(libc::RTM_GETNEIGH, 0, &neighbor_message(interface, address, 0))?;
        // The kernel replies before the send returns.
        while self.read()? != ReadResult::Empty {
            let Some(answer) = self.messages().find(|message| message.sequence == sequence) else { continue };
            return match answer.end() {
                Some(libc::ENOENT | libc::ENODEV) => {
                    Ok(Event::NeighborGone(Neighbor { interface, address, mac: None, state: 0 }))
                }
                Some(error) => Err(io::Error::from_raw_os_error(error)),
                None => decode(answer.kind, answer.flags, answer.body, false)
                    .ok()
                    .flatten()
                    .ok_or_else(|| io::ErrorKind::InvalidData.into()),
            };
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Sets a link to the state of a port. With `restart`, the link is down meanwhile, so that the kernel
    /// derives new addresses from the Ethernet address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_link(&mut self, index: u32, state: &PortState, restart: bool) -> io::Result<()> {
        // struct ifinfomsg: family, pad, type (2), index (4), flags (4), change (4).
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body[12..16].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
        let off = body.clone();
        body[8..12].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
        let on = body.clone();
        body[8..16].fill(0);
        attribute(&mut body, libc::IFLA_ADDRESS, &state.mac);
        attribute(&mut body, libc::IFLA_MTU, &u32::from(state.mtu).to_ne_bytes());
        attribute(&mut body, libc::IFLA_CARRIER, &[u8::from(state.up)]);
        if !restart {
            return self.set(libc::RTM_NEWLINK, 0, &body);
        }
        self.set(libc::RTM_NEWLINK, 0, &off)?;
        let done = self.set(libc::RTM_NEWLINK, 0, &body);
        self.set(libc::RTM_NEWLINK, 0, &on)?;
        done
    }

    /// Adds an IPv4 address of host scope to an interface.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_address(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        // struct ifaddrmsg: family, prefix length, flags, scope, index (4).
        let mut body = vec![libc::AF_INET as u8, 32, 0, libc::RT_SCOPE_HOST];
        body.extend(index.to_ne_bytes());
        attribute(&mut body, libc::IFA_LOCAL, &address.octets());
        attribute(&mut body, libc::IFA_ADDRESS, &address.octets());
        self.set(libc::RTM_NEWADDR, NLM_F_CREATE, &body)
    }

    /// Sets the flags of a link ([`libc::IFF_UP`] and others), besides those that it has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_link_flags(&mut self, index: u32, flags: libc::c_int) -> io::Result<()> {
        // struct ifinfomsg, as in `set_link`.
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body[8..12].copy_from_slice(&flags.to_ne_bytes());
        body[12..16].copy_from_slice(&flags.to_ne_bytes());
        self.set(libc::RTM_NEWLINK, 0, &body)
    }

    /// Adds a default route to an interface. `kind`: RTN_UNICAST, or RTN_LOCAL for the machine itself.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_default_route(
        &mut self,
        family: libc::c_int,
        table: u8,
        kind: u8,
        (interface, metric): (u32, u32),
    ) -> io::Result<()> {
        // struct rtmsg: family, destination and source lengths, TOS, table, protocol, scope, type, flags (4).
        let scope = if kind == libc::RTN_LOCAL { libc::RT_SCOPE_HOST } else { libc::RT_SCOPE_LINK };
        let mut body = vec![family as u8, 0, 0, 0, table, libc::RTPROT_STATIC, scope, kind, 0, 0, 0, 0];
        attribute(&mut body, libc::RTA_OIF, &interface.to_ne_bytes());
        attribute(&mut body, libc::RTA_PRIORITY, &metric.to_ne_bytes());
        self.set(libc::RTM_NEWROUTE, NLM_F_CREATE, &body)
    }

    /// Adds a rule: packets that come in by another interface than `interface` are routed by a table.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_rule_except(&mut self, family: libc::c_int, interface: &str, table: u8) -> io::Result<()> {
        // struct fib_rule_hdr: family, destination and source lengths, TOS, table, reserved (2), action,
        // flags (4).
        let mut body = vec![family as u8, 0, 0, 0, table, 0, 0, FR_ACT_TO_TBL];
        body.extend(FIB_RULE_INVERT.to_ne_bytes());
        attribute(&mut body, FRA_PRIORITY, &1u32.to_ne_bytes());
        attribute(&mut body, FRA_IIFNAME, &[interface.as_bytes(), &[0]].concat());
        self.set(libc::RTM_NEWRULE, NLM_F_CREATE, &body)
    }

    /// Sends a request for a change, and reads the kernel's result.
    fn set(&mut self, kind: u16, flags: i32, body: &[u8]) -> io::Result<()> {
        let sequence = self.send(kind, flags | NLM_F_ACK, body)?;
        // The kernel replies before the send returns.
        while self.read()? != ReadResult::Empty {
            let answer = self.messages().find(|message| message.sequence == sequence).and_then(|m| m.end());
            match answer {
                Some(0) => return Ok(()),
                Some(error) => return Err(io::Error::from_raw_os_error(error)),
                None => {}
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn send(&mut self, kind: u16, flags: i32, body: &[u8]) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = Vec::with_capacity(16 + body.len());
        message.extend((16 + body.len() as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(((flags | NLM_F_REQUEST) as u16).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        self.socket.send(&message, 0)?;
        Ok(self.sequence)
    }
}

/// A message that names a neighbour, without the header of netlink.
fn neighbor_message(interface: u32, address: IpAddr, flags: u8) -> Vec<u8> {
    // struct ndmsg: family, pads (3), interface (4), state (2), flags, type.
    let mut body = vec![0; 12];
    body[4..8].copy_from_slice(&interface.to_ne_bytes());
    body[10] = flags;
    match address {
        IpAddr::V4(address) => {
            body[0] = libc::AF_INET as u8;
            attribute(&mut body, libc::NDA_DST, &address.octets());
        }
        IpAddr::V6(address) => {
            body[0] = libc::AF_INET6 as u8;
            attribute(&mut body, libc::NDA_DST, &address.octets());
        }
    }
    body
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
