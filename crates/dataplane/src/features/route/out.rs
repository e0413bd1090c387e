//! Output ports of routed packets, for rules that test them: the route of the translated destination is
//! looked up before the rules.

use std::net::IpAddr;

use mmb_dpdk::Packet;
use mmb_packet::{Kind, OUT_ROUTED};
use mmb_route::{NextHopId, NextHopKind, Routes};

use super::next_hop::{addresses4, addresses6, flow_hash};
use super::table_lookup::look_up;
use crate::engine::config::PortId;
use crate::engine::node::vector::VECTOR;
use crate::engine::snapshot::Snapshot;

/// The output port of each packet; [`PortId::NONE`] if it leaves by none of the engine's ports.
///
/// `destination` returns the translated destination of a packet that has one.
#[cold]
pub(crate) fn output_ports(
    routes: &Routes,
    snapshot: &Snapshot,
    packets: &[&mut Packet],
    destination: impl Fn(&Packet) -> Option<IpAddr>,
) -> [u16; VECTOR] {
    let mut to4 = [0u32; VECTOR];
    let mut to6 = [0u128; VECTOR];
    for ((packet, to4), to6) in packets.iter().zip(&mut to4).zip(&mut to6) {
        match destination(packet) {
            Some(IpAddr::V4(address)) => *to4 = address.into(),
            Some(IpAddr::V6(address)) => *to6 = address.into(),
            None => {
                *to4 = addresses4(packet).map_or(0, |(_, to)| to);
                *to6 = addresses6(packet).map_or(0, |(_, to)| to);
            }
        }
    }
    let (mut hops4, mut hops6) = ([0; VECTOR], [0; VECTOR]);
    let n = packets.len();
    look_up(routes, packets, &mut hops4[..n], |table, range, hops| table.ip4.lookup_batch(&to4[range], hops));
    look_up(routes, packets, &mut hops6[..n], |table, range, hops| table.ip6.lookup_batch(&to6[range], hops));
    let mut outs = [PortId::NONE.0; VECTOR];
    for (at, (out, packet)) in outs.iter_mut().zip(packets).enumerate() {
        let hop = if packet.meta().kind.l3() == Kind::IP6 { hops6[at] } else { hops4[at] };
        *out = output_port(routes, snapshot, packet, hop);
    }
    outs
}

fn output_port(routes: &Routes, snapshot: &Snapshot, packet: &Packet, hop: NextHopId) -> u16 {
    let peer = snapshot.peer(packet.port());
    if peer != OUT_ROUTED {
        return peer;
    }
    let hop = routes.hops.for_flow(hop, flow_hash(packet));
    match hop.kind {
        NextHopKind::Forward | NextHopKind::Resolve | NextHopKind::Failed => hop.port,
        _ => PortId::NONE.0,
    }
}
