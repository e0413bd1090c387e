//! `neighbor-rx`: brings back the packets that have waited for an Ethernet address.

use mmb_dpdk::{Emit, Mbuf};
use mmb_packet::{DropReason, Kind};
use mmb_route::NextHopKind;

use super::hop::hop_of;
use super::slow::neighbor;
use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::route::waiting::Way;

pub(crate) const NEXT: &[&str] = &["ip4-lookup", "ip6-lookup", "ip-slow"];
const IP4: u16 = 0;
const IP6: u16 = 1;
const SLOW: u16 = 2;

pub(crate) fn emit(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    if worker.waiting.is_empty() { 0 } else { bring_back(worker, emit) }
}

#[cold]
fn bring_back(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let Worker { waiting, routes, now, .. } = worker;
    let decided = waiting.decide(*now, |packet, want| {
        let hop = routes.hops.get(hop_of(routes, packet));
        hop.kind == NextHopKind::Resolve && neighbor(hop, packet) == Some(want)
    });
    if !decided {
        return 0;
    }
    let is = |l3| move |packet: &Mbuf| packet.meta().kind.l3() == l3;
    let mut n = 0;
    n += emit
        .emit(IP4, VECTOR, |slots| waiting.release(Way::Again, is(Kind::IP4), |packet| slots.push(packet)));
    n += emit
        .emit(IP6, VECTOR, |slots| waiting.release(Way::Again, is(Kind::IP6), |packet| slots.push(packet)));
    n += emit.emit(SLOW, VECTOR, |slots| {
        waiting.release(
            Way::Lost,
            |_| true,
            |mut packet| {
                packet.meta_mut().drop_reason = DropReason::NeighborFailed as u8;
                slots.push(packet)
            },
        );
    });
    worker.counters().routing.waiting.set(worker.waiting.len() as u64);
    worker.received += n;
    n
}
