//! Edges of nodes by name.
//!
//! Theory of operation. A node declares its edges as an enum: each variant names the next node. DPDK's graph
//! wants numbers: a variant's number is its position, which is also the position of the next node's name in
//! [`Edges::NAMES`]. So the enum is the one place that says which edge leads where. The graph puts the name
//! of its sink in the place of [`SINK`], since a graph with ports ends in another node than one of a replay.
//! In the same way, [`OWN_LOOKUP`] and [`OWN_REWRITE`] stand for the nodes of the same IP version.

use bytemuck::NoUninit;
use mmb_dpdk::{Emit, Mbuf, Packet, Slots, Vector};
use mmb_packet::Kind;

use crate::engine::node::vector::VECTOR;

/// Stands for the name of the graph's sink.
pub(crate) const SINK: &str = "sink";

/// Stands for the lookup of the node's IP version: `ip4-lookup` or `ip6-lookup`.
pub(crate) const OWN_LOOKUP: &str = "lookup";

/// Stands for `ip4-rewrite` or `ip6-rewrite`.
pub(crate) const OWN_REWRITE: &str = "rewrite of its version";

/// The edges of one node.
pub(crate) trait Edges: NoUninit {
    /// The next node of each edge, by the edge's number.
    const NAMES: &'static [&'static str];

    /// The edge's number in the graph.
    fn number(self) -> u16;
}

/// Edges of a node that sends packets to be routed.
pub(crate) trait RoutedEdges: Edges {
    /// To `ip4-lookup`.
    const IP4: Self;
    /// To `ip6-lookup`.
    const IP6: Self;
    /// To `punt`, for what is neither IPv4 nor IPv6.
    const PUNT: Self;

    /// The edge for an IP version, as [`Kind::l3`] returns it.
    #[inline]
    fn for_version(version: u8) -> Self {
        match version {
            Kind::IP4 => Self::IP4,
            Kind::IP6 => Self::IP6,
            _ => Self::PUNT,
        }
    }

    /// The edge for a packet that is to be routed.
    #[inline]
    fn for_routed(packet: &Packet) -> Self {
        Self::for_version(packet.meta().kind.l3())
    }
}

/// Declares the edges of a node: `enum Edge { Variant => "next node", … }`.
macro_rules! edges {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$note:meta])* $edge:ident => $node:expr),+ $(,)? }) => {
        $(#[$doc])*
        #[repr(u16)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::NoUninit)]
        $vis enum $name { $($(#[$note])* $edge),+ }

        impl $crate::engine::node::edges::Edges for $name {
            const NAMES: &'static [&'static str] = &[$($node),+];

            #[inline(always)]
            fn number(self) -> u16 {
                self as u16
            }
        }
    };
}

/// Declares that an enum of edges has `Ip4Lookup`, `Ip6Lookup` and `Punt`.
macro_rules! routed_edges {
    ($name:ident) => {
        impl $crate::engine::node::edges::RoutedEdges for $name {
            const IP4: Self = $name::Ip4Lookup;
            const IP6: Self = $name::Ip6Lookup;
            const PUNT: Self = $name::Punt;
        }
    };
}

pub(crate) use {edges, routed_edges};

/// Sends each packet of a vector along its edge.
#[inline(always)]
pub(crate) fn send<E: Edges>(vector: Vector<'_>, edges: &[E; VECTOR]) {
    let n = vector.len();
    vector.send(bytemuck::cast_slice(&edges[..n]));
}

/// Sends all packets of a vector along one edge.
#[inline(always)]
pub(crate) fn send_all<E: Edges>(vector: Vector<'_>, edge: E) {
    vector.send_all(edge.number());
}

/// Adds a packet to the walk, behind an edge of the node that has the vector.
///
/// # Errors
/// Returns the packet when the walk is full.
pub(crate) fn inject<E: Edges>(vector: &mut Vector<'_>, edge: E, packet: Mbuf) -> Result<(), Mbuf> {
    vector.inject(edge.number(), packet)
}

/// Lets a source push up to `max` packets along an edge; returns how many it pushed.
#[inline]
pub(crate) fn emit<E: Edges>(
    emit: &mut Emit<'_>,
    edge: E,
    max: usize,
    push: impl FnOnce(&mut Slots<'_>),
) -> usize {
    emit.emit(edge.number(), max, push)
}
