//! The end of the slow path: a packet of a session is translated and sent on.

use mmb_flow::{FlowFlags, FlowRef, translate_ip4};
use mmb_packet::{DropReason, OUT_ROUTED, PacketBuf, PacketFlags};
use mmb_policy::EditLimits;

use super::SlowPath;
use super::packet::SlowPacket;
use crate::chains::OUT_HAIRPIN;
use crate::established::set_edits;
use crate::store::SessionStore;
use crate::translation::routed::is_hairpinned;
use crate::{Environment, Next, broker};

impl SlowPath {
    /// Translates a packet of a session and sends it on, through the session's chain if it has one.
    pub(crate) fn translate_and_send<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        flow_ref: FlowRef,
    ) -> Next {
        let flow = store.table.flow(flow_ref);
        let flags = flow.flags;
        if flags & (FlowFlags::XLAT4 | FlowFlags::CHAIN_TRANSLATES) == FlowFlags::XLAT4 {
            translate_ip4(&flow.xlat4(), pkt.packet.head_mut(), pkt.meta);
        } else if flags.contains(FlowFlags::XLAT_SLOW) {
            let (records, head) = (&store.chains.records, pkt.packet.head_mut());
            if let Err(reason) = records.translate(&store.table, flow_ref, head, pkt.meta) {
                return pkt.drop(reason);
            }
        }
        match flags.contains(FlowFlags::CHAINED) {
            false => self.send(store, pkt, flow_ref),
            true => send_through_chain(store, pkt, flow_ref),
        }
    }

    /// Sends a translated packet on: along the wire or its route, to a host inside, or back by hairpinning.
    pub(super) fn send<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        flow: FlowRef,
    ) -> Next {
        if is_hairpinned(&store.table, flow) {
            return self.hairpin(store, pkt, flow);
        }
        if broker::divert(&store.table, pkt.env, flow, pkt.in_port, (pkt.packet.head_mut(), pkt.meta)) {
            return send_on(pkt);
        }
        if pkt.is_looped() {
            return send_inside(store, pkt, flow);
        }
        pkt.pass()
    }

    /// Processes a packet from inside to an external address of another host inside as if it came from
    /// outside.
    fn hairpin<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        flow: FlowRef,
    ) -> Next {
        if pkt.is_looped() {
            return pkt.drop(DropReason::NatFailed);
        }
        let key = store.table.key(flow.opposite()).reversed();
        let owner = store.first_worker(pkt.env.nat(), &key);
        pkt.meta.flags |= PacketFlags::LOOPED;
        pkt.hits = &[];
        if owner == store.config.worker {
            return self.process(store, pkt);
        }
        // Edits are not handed to the other worker: they are made here.
        let slots = pkt.edits.get(pkt.first_edit..).unwrap_or(&[]);
        let limits = EditLimits { frame_max: |_| usize::MAX };
        let edited = pkt.env.policy().edit(slots, pkt.packet, pkt.meta, limits);
        pkt.edits.truncate(pkt.first_edit);
        match edited {
            Ok(()) => store.hand_off(pkt.meta, owner),
            Err(reason) => pkt.drop(reason),
        }
    }
}

/// Sends a packet through its session's chain, and determines where it goes after the chain.
fn send_through_chain<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
    flow: FlowRef,
) -> Next {
    if is_hairpinned(&store.table, flow) {
        if pkt.is_looped() {
            return pkt.drop(DropReason::NatFailed);
        }
        pkt.meta.out_port = OUT_HAIRPIN;
        set_edits(pkt.first_edit, pkt.meta, pkt.edits);
    } else if pkt.is_looped() {
        send_inside(store, pkt, flow);
    } else {
        pkt.pass();
    }
    Next::Chain
}

/// Sends a packet to a host inside: by its route, or with the host's Ethernet address as destination and
/// the packet's former destination as source.
fn send_inside<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
    flow: FlowRef,
) -> Next {
    let mapping = store.table.mapping(flow.session());
    let Some(inside) = mapping.and_then(|mapping| store.pools.host_location(mapping)) else {
        return pkt.pass();
    };
    pkt.meta.out_port = if pkt.env.routed(inside.in_port) {
        OUT_ROUTED
    } else {
        if let Some(addresses) = pkt.packet.head_mut().first_chunk_mut::<12>() {
            addresses.copy_within(..6, 6);
            addresses[..6].copy_from_slice(&inside.mac);
        }
        inside.in_port
    };
    send_on(pkt)
}

/// Sends a packet out by the port in its metadata, with its edits.
fn send_on<E: Environment, P: PacketBuf>(pkt: &mut SlowPacket<'_, E, P>) -> Next {
    match set_edits(pkt.first_edit, pkt.meta, pkt.edits) {
        Next::Pass => Next::Send,
        next => next,
    }
}
