//! Fragments: the first one of a datagram has a key, the later ones follow it.

use mmb_flow::{DatagramKey, FlowRef, FragmentAction, Key};
use mmb_packet::{DropReason, PacketBuf, StageWord};

use super::packet::{FragmentTarget, SlowPacket};
use crate::sessions::Sessions;
use crate::{Environment, Next};

impl Sessions {
    /// Processes the first fragment of a datagram.
    pub(super) fn process_first_fragment<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
    ) -> Next {
        let Some(datagram) = DatagramKey::of(pkt.packet.head(), pkt.meta) else {
            return self.process_keyed(pkt, key);
        };
        let home = self.config.home_worker(key);
        let belongs_elsewhere = self.config.workers > 1
            && home != self.config.worker
            && !pkt.is_handed()
            && !self.table.find(key).is_some();
        let next =
            if belongs_elsewhere { self.hand_off(pkt.meta, home) } else { self.process_keyed(pkt, key) };
        let flow = self.table.find(key);
        let target = match next {
            Next::HandOff if !flow.is_some() => FragmentTarget::Worker(pkt.meta.stage.worker()),
            _ if flow.is_some() => match self.table.redirect_worker(flow) {
                Some(worker) => FragmentTarget::Worker(worker),
                None => FragmentTarget::Session(flow, self.table.uid(flow.session())),
            },
            Next::Drop | Next::Reply => {
                let reason = DropReason::from_number(pkt.meta.drop_reason);
                FragmentTarget::Dropped(reason.unwrap_or(DropReason::Rule))
            }
            _ => FragmentTarget::Stateless,
        };
        self.fragments.record_first(&datagram, target, pkt.now);
        next
    }

    /// Processes a later fragment. It is held if the first fragment has not arrived.
    pub(super) fn process_later_fragment<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Next {
        let Some(datagram) = DatagramKey::of(pkt.packet.head(), pkt.meta) else {
            return self.process_stateless(pkt);
        };
        match self.fragments.resolve_later(&datagram, pkt.now, self.settings.timeouts.fragment) {
            FragmentAction::Follow(FragmentTarget::Session(flow, uid)) => {
                if !self.is_same_session(flow, uid) {
                    return pkt.drop(DropReason::FragmentLost);
                }
                self.follow_session(pkt, flow)
            }
            FragmentAction::Follow(FragmentTarget::Worker(worker)) => self.hand_off(pkt.meta, worker),
            FragmentAction::Follow(FragmentTarget::Stateless) => self.process_stateless(pkt),
            FragmentAction::Follow(FragmentTarget::Dropped(reason)) => pkt.drop(reason),
            FragmentAction::Wait(ticket) => {
                self.counters.held += 1;
                pkt.meta.stage = StageWord::from_ticket(ticket.0);
                Next::Hold
            }
            FragmentAction::Refused => pkt.drop(DropReason::FragmentLost),
        }
    }

    /// Whether the session with this uid still exists.
    pub(crate) fn is_same_session(&self, flow: FlowRef, uid: u32) -> bool {
        self.table.is_live(flow.session()) && self.table.uid(flow.session()) == uid
    }

    /// Processes a later fragment as a packet of a session.
    fn follow_session<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        flow_ref: FlowRef,
    ) -> Next {
        if let Err(next) = self.admit_related(pkt, flow_ref) {
            return next;
        }
        self.cache.settle(&mut self.table, flow_ref, pkt.env);
        let flow = self.table.flow_mut(flow_ref);
        flow.count(1, pkt.bytes());
        flow.last_seen = pkt.now;
        self.translate_and_send(pkt, flow_ref)
    }
}
