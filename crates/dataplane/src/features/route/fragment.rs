//! Cuts IPv4 packets that are too long for their way out.

use mmb_dpdk::{Mbuf, Packet, Vector};
use mmb_packet::DropReason;
use mmb_route::{FragmentError, Routes, fragment_ip4};

use super::hop::L3;
use super::slow::REWRITE;
use crate::engine::worker::Worker;

/// Brings the fragments of a packet into the graph; counts it as dropped if one cannot be made.
pub(crate) fn cut(worker: &mut Worker, routes: &Routes, packet: &Packet, vector: &mut Vector<'_>) {
    let mut whole = std::mem::take(&mut worker.scratch);
    whole.clear();
    packet.segments().for_each(|segment| whole.extend_from_slice(segment));
    let mtu = routes.hops.get(packet.meta().stage.next_hop()).mtu;
    let cut = pieces(worker, packet, &whole, mtu.into(), vector);
    worker.scratch = whole;
    match cut {
        Ok(n) => {
            worker.counters().routing.fragmented.add(1);
            worker.counters().routing.fragments.add(n);
        }
        Err(reason) => worker.counters().drops.add(packet.port(), reason as u8, 1),
    }
}

/// `whole`: all bytes of the packet. How many fragments there were.
fn pieces(
    worker: &mut Worker,
    packet: &Packet,
    whole: &[u8],
    mtu: usize,
    vector: &mut Vector<'_>,
) -> Result<u64, DropReason> {
    let (link, ip) = whole.split_at_checked(L3).ok_or(DropReason::Ip4Malformed)?;
    let fragments = fragment_ip4(ip, mtu).map_err(|e| match e {
        FragmentError::Malformed => DropReason::Ip4Malformed,
        FragmentError::DontFragment | FragmentError::SmallMtu => DropReason::FragNeeded,
    })?;
    let mut n = 0;
    for fragment in fragments {
        let data = ip.get(fragment.data.clone()).ok_or(DropReason::Ip4Malformed)?;
        let piece = &mut worker.piece;
        piece.clear();
        [link, fragment.header(), data].iter().for_each(|part| piece.extend_from_slice(part));
        let made = worker.pool.as_ref().and_then(|pool| pool.alloc_from(piece));
        let mut piece = made.ok_or(DropReason::NoBuffer)?;
        describe(&mut piece, packet);
        vector.inject(REWRITE, piece).map_err(|_| DropReason::NoBuffer)?;
        n += 1;
    }
    Ok(n)
}

/// Gives a fragment the metadata of its packet.
fn describe(piece: &mut Mbuf, packet: &Packet) {
    let length = piece.pkt_len();
    piece.set_port(packet.port());
    let meta = piece.meta_mut();
    *meta = *packet.meta();
    meta.end = u16::try_from(length).unwrap_or(u16::MAX);
    if let Some(number) = packet.timestamp() {
        piece.set_timestamp(number);
    }
}
