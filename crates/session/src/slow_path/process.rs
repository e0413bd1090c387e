//! The entrance of the slow path.

use mmb_flow::{FlowRef, Key, KeyError, TrackInput, parse_key};
use mmb_packet::{DropReason, PacketBuf, PacketFlags};

use super::SlowPath;
use super::existing::{ExistingOutcome, admit_existing};
use super::packet::SlowPacket;
use crate::lifetime::EndReason;
use crate::store::SessionStore;
use crate::{Environment, Next};

impl SlowPath {
    /// Processes a packet, answers it if a rule rejects it, and logs it if a rule logs.
    pub(crate) fn process<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Next {
        if pkt.env.policy().has_log() {
            return self.process_logged(store, pkt);
        }
        self.process_and_answer(store, pkt)
    }

    /// Processes a packet, and answers it if a rule rejects it.
    #[inline]
    pub(super) fn process_and_answer<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Next {
        let next = self.process_by_key(store, pkt);
        let is_by_rule = next == Next::Drop && pkt.meta.drop_reason == DropReason::Rule as u8;
        if is_by_rule && pkt.env.policy().has_reject() { self.answer_rejected(store, pkt) } else { next }
    }

    /// Processes a packet by the kind of its key.
    fn process_by_key<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Next {
        match parse_key(pkt.packet.head(), pkt.meta) {
            Ok(key) => self.process_keyed(store, pkt, &key),
            Err(KeyError::FirstFragment(key)) => self.process_first_fragment(store, pkt, &key),
            Err(KeyError::LaterFragment) => self.process_later_fragment(store, pkt),
            Err(KeyError::IcmpError) if pkt.meta.flags.contains(PacketFlags::FRAGMENT) => {
                self.process_error_fragment(store, pkt)
            }
            Err(KeyError::IcmpError) => self.process_icmp_error(store, pkt),
            Err(KeyError::NotIp) => process_stateless(store, pkt),
        }
    }

    /// Processes a packet with a key.
    pub(crate) fn process_keyed<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
    ) -> Next {
        let forecast = pkt.forecast.take();
        let (flow, hashed_key, is_foreseen) =
            store.table.find_foreseen(key, forecast.map(|forecast| &forecast.flow));
        pkt.hashed_key = hashed_key;
        if is_foreseen {
            (pkt.forecast, pkt.was_foreseen) = (forecast, true);
        }
        pkt.meta.session = flow.0;
        if flow.is_some() {
            let id = flow.session();
            store.collect(pkt.now, id, pkt.env);
            if let Some(worker) = store.table.redirect_worker(flow) {
                if !pkt.was_returned() {
                    let flags = match TrackInput::of(pkt.packet.head(), pkt.meta) {
                        TrackInput::Tcp(segment) => segment.flags,
                        _ => 0,
                    };
                    store.refresh_redirect(flow, flags, pkt.now);
                    return store.hand_off(pkt.meta, worker);
                }
                store.end(id, EndReason::Replaced, pkt.env);
            } else if store.deadline(id, pkt.now).is_none() {
                store.end(id, EndReason::Expired, pkt.env);
            } else {
                match admit_existing(store, pkt, flow) {
                    ExistingOutcome::Passes => return self.translate_and_send(store, pkt, flow),
                    ExistingOutcome::Finished(next) => return next,
                    ExistingOutcome::Ended => {}
                }
            }
            pkt.meta.session = FlowRef::NONE.0;
        }
        self.process_unknown(store, pkt, key)
    }
}

/// Processes a packet that belongs to no session and opens none.
pub(crate) fn process_stateless<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
) -> Next {
    if drops_stateless(store, pkt) {
        return pkt.drop(DropReason::Rule);
    }
    pkt.pass()
}

/// Applies the matching rules to a packet without session. Returns `true` if it is dropped.
pub(crate) fn drops_stateless<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
) -> bool {
    let bytes = pkt.bytes();
    store.rules.drops_packet(&store.cache.decisions, 0, pkt.hits, (pkt.env, bytes), pkt.edits)
}
