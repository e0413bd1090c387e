//! What the kernel's messages say.

use std::net::IpAddr;

use smallvec::SmallVec;

/// A message of the kernel: the state of something, or that it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Link(Link),
    LinkGone(u32),
    Address(Address),
    AddressGone(Address),
    Route(Route, How),
    RouteGone(Route),
    Object(u32, Object),
    ObjectGone(u32),
    Neighbor(Neighbor),
    NeighborGone(Neighbor),
    /// Whether routes out of an interface without carrier count as dead, for a family.
    IgnoresDown {
        interface: u32,
        v6: bool,
        ignores: bool,
    },
}

/// How a new route stands to those with the same prefix and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Before them.
    Add,
    /// Behind them.
    Append,
    /// In place of the first one.
    Replace,
    /// It is one line of a dump, in order.
    Dump,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub index: u32,
    pub name: String,
    pub mac: Option<[u8; 6]>,
    pub mtu: u32,
    /// Whether it is switched on.
    pub up: bool,
    pub carrier: bool,
    pub loopback: bool,
    /// The interface that it is part of, 0 if none.
    pub master: u32,
    /// The table of a VRF, if it is one.
    pub vrf: Option<u32>,
}

/// An address of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub interface: u32,
    pub address: IpAddr,
    pub length: u8,
    /// One that the machine itself would choose as a source: not secondary, tentative, deprecated.
    pub primary: bool,
    /// `RT_SCOPE_UNIVERSE` is the widest.
    pub scope: u8,
}

/// One next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leg {
    pub interface: u32,
    pub gateway: Option<IpAddr>,
    pub weight: u16,
    /// Only the kernel can send there: packets get labels or a tunnel's header.
    pub kernel: bool,
}

pub(crate) type Legs = SmallVec<[Leg; 1]>;

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
    /// Type of service that it is for; 0 for all.
    pub tos: u8,
    /// Bits of the source address that it is for; 0 for all.
    pub source_length: u8,
    /// Largest packet, 0 if the link's.
    pub mtu: u16,
    /// Number of the nexthop object that says where it goes; 0: `legs` do.
    pub object: u32,
    pub legs: Legs,
}

/// A nexthop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Leg(Leg),
    Blackhole,
    /// Others, with their weights.
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
