//! Events: the contents of the kernel's messages.

use std::net::IpAddr;

use smallvec::SmallVec;

/// The new state of something, or its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Link(Link),
    LinkGone(u32),
    Address(Address),
    AddressGone(Address),
    Route(Route, InsertMode),
    RouteGone(Route),
    Object(u32, NexthopObject),
    ObjectGone(u32),
    Neighbor(Neighbor),
    NeighborGone(Neighbor),
    /// Whether routes of a family through an interface without carrier are dead.
    IgnoresDown {
        interface: u32,
        v6: bool,
        ignores: bool,
    },
}

/// Position of a new route among those with the same prefix and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InsertMode {
    /// At the front.
    Prepend,
    /// At the back.
    Append,
    /// In place of the first one.
    Replace,
    /// At the back, as part of a dump.
    Dump,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub index: u32,
    pub name: String,
    pub mac: Option<[u8; 6]>,
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    pub carrier: bool,
    pub loopback: bool,
    /// Index of the interface that it is a member of; 0 if none.
    pub master: u32,
    /// Table of a VRF, if it is one.
    pub vrf: Option<u32>,
}

/// An address of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub interface: u32,
    pub address: IpAddr,
    pub length: u8,
    /// Whether the machine would choose it as a source: not secondary, tentative or deprecated.
    pub primary: bool,
    /// `RT_SCOPE_…`; `RT_SCOPE_UNIVERSE` is the widest.
    pub scope: u8,
}

/// One next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NextHopSpec {
    pub interface: u32,
    pub gateway: Option<IpAddr>,
    pub weight: u16,
    /// Whether only the kernel can send there, because packets get labels or a tunnel header.
    pub kernel_only: bool,
}

pub(crate) type NextHopSpecs = SmallVec<[NextHopSpec; 1]>;

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub table: u32,
    pub prefix: IpAddr,
    pub length: u8,
    pub metric: u32,
    /// `RTN_…`.
    pub kind: u8,
    /// `RTPROT_…`.
    pub protocol: u8,
    /// Type of service of the packets it is for; 0 for all.
    pub tos: u8,
    /// Prefix length of the source addresses it is for; 0 for all.
    pub source_length: u8,
    /// MTU; 0 for the link's.
    pub mtu: u16,
    /// The nexthop object that defines the next hops. 0: `next_hops` do.
    pub object: u32,
    pub next_hops: NextHopSpecs,
}

/// A nexthop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NexthopObject {
    Single(NextHopSpec),
    Blackhole,
    /// Members with their weights.
    Group(Vec<(u32, u16)>),
}

/// A neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbor {
    pub interface: u32,
    pub address: IpAddr,
    pub mac: Option<[u8; 6]>,
    /// `NUD_…`.
    pub state: u16,
}
