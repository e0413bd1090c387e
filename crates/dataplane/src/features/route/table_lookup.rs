//! Route lookup of many packets, by the table of each packet's input port.

use std::ops::Range;

use mmb_dpdk::Packet;
use mmb_route::{NextHopId, RouteTable, Routes};

use super::next_hop::table_of;

/// Looks up packets in the tables of their input ports; all together if there is one table.
///
/// `batch` looks up the packets of a range in one table.
#[inline(always)]
pub(super) fn look_up(
    routes: &Routes,
    packets: &[&mut Packet],
    hops: &mut [NextHopId],
    batch: impl Fn(&RouteTable, Range<usize>, &mut [NextHopId]),
) {
    if let Some(table) = routes.single_table() {
        return batch(table, 0..packets.len(), hops);
    }
    let mut first = 0;
    for run in packets.chunk_by(|a, b| a.port() == b.port()) {
        let range = first..first + run.len();
        first = range.end;
        if let Some(table) = run.first().and_then(|packet| table_of(routes, packet.port())) {
            batch(table, range.clone(), &mut hops[range]);
        }
    }
}
