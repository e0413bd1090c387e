//! Fragments IPv4 packets that exceed the MTU of their next hop.

use mmb_dpdk::{Mbuf, Packet, segment};
use mmb_packet::DropReason;
use mmb_route::{FragmentError, Routes, fragment_ip4};

use crate::engine::node::vector::ROUTED_L3 as L3;
use crate::engine::worker::Worker;

/// Fragments a packet, or each segment of a large frame, and passes each fragment to `send`. Counts the
/// packet as dropped if a fragment cannot be made.
pub(super) fn fragment(
    worker: &mut Worker,
    routes: &Routes,
    packet: &Packet,
    mut send: impl FnMut(Mbuf) -> Result<(), Mbuf>,
) {
    if !packet.is_large() {
        return fragment_ordinary(worker, routes, packet, send);
    }
    if !segment(packet, |segment| fragment_ordinary(worker, routes, &segment, &mut send)) {
        worker.counters().drops.add(packet.port(), DropReason::NoBuffer as u8, 1);
    }
}

fn fragment_ordinary(
    worker: &mut Worker,
    routes: &Routes,
    packet: &Packet,
    send: impl FnMut(Mbuf) -> Result<(), Mbuf>,
) {
    let mut whole = std::mem::take(&mut worker.rules.frame);
    whole.clear();
    packet.segments().for_each(|segment| whole.extend_from_slice(segment));
    let mtu = routes.hops.get(packet.meta().stage.next_hop()).mtu;
    let made = send_fragments(worker, packet, &whole, mtu.into(), send);
    worker.rules.frame = whole;
    match made {
        Ok(n) => {
            worker.counters().routing.fragmented.add(1);
            worker.counters().routing.fragments.add(n);
        }
        Err(reason) => worker.counters().drops.add(packet.port(), reason as u8, 1),
    }
}

/// Returns the number of fragments. `whole`: all bytes of the packet.
fn send_fragments(
    worker: &mut Worker,
    packet: &Packet,
    whole: &[u8],
    mtu: usize,
    mut send: impl FnMut(Mbuf) -> Result<(), Mbuf>,
) -> Result<u64, DropReason> {
    let (link, ip) = whole.split_at_checked(L3).ok_or(DropReason::Ip4Malformed)?;
    let fragments = fragment_ip4(ip, mtu).map_err(|e| match e {
        FragmentError::Malformed => DropReason::Ip4Malformed,
        FragmentError::DontFragment | FragmentError::SmallMtu => DropReason::FragNeeded,
    })?;
    let mut n = 0;
    for fragment in fragments {
        let data = ip.get(fragment.data.clone()).ok_or(DropReason::Ip4Malformed)?;
        let frame = &mut worker.slow_path.fragment;
        frame.clear();
        [link, fragment.header(), data].iter().for_each(|part| frame.extend_from_slice(part));
        let made = worker.ports.pool.as_ref().and_then(|pool| pool.alloc_from(frame));
        let mut made = made.ok_or(DropReason::NoBuffer)?;
        copy_metadata(&mut made, packet);
        send(made).map_err(|_| DropReason::NoBuffer)?;
        n += 1;
    }
    Ok(n)
}

/// Copies the metadata of a packet to its fragment.
fn copy_metadata(fragment: &mut Mbuf, packet: &Packet) {
    let length = fragment.pkt_len();
    fragment.set_port(packet.port());
    let meta = fragment.meta_mut();
    *meta = *packet.meta();
    meta.end = u16::try_from(length).unwrap_or(u16::MAX);
    if let Some(number) = packet.timestamp() {
        fragment.set_timestamp(number);
    }
}
