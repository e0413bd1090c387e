//! Fragments: the first one of a datagram has a key, the later ones follow it.

use mmb_flow::{FlowFlags, FlowRef, Fragment, FragmentAction, Key, Table, translate_error_fragment};
use mmb_packet::{DropReason, PacketBuf, StageWord};

use super::SlowPath;
use super::packet::{FragmentTarget, SlowPacket};
use super::process::process_stateless;
use super::related::admit_related;
use crate::store::SessionStore;
use crate::{Environment, Next};

impl SlowPath {
    /// Processes the first fragment of a datagram.
    pub(super) fn process_first_fragment<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
    ) -> Next {
        let fragment = match self.admit_first_fragment(store, pkt) {
            Ok(fragment) => fragment,
            Err(next) => return next,
        };
        let home = store.config.home_worker(key);
        let belongs_elsewhere = store.config.workers > 1
            && home != store.config.worker
            && !pkt.is_handed()
            && !store.table.find(key).is_some();
        let next = if belongs_elsewhere {
            store.hand_off(pkt.meta, home)
        } else {
            self.process_keyed(store, pkt, key)
        };
        let flow = store.table.find(key);
        let target = match next {
            Next::HandOff if !flow.is_some() => FragmentTarget::Worker(pkt.meta.stage.worker()),
            _ if flow.is_some() => match store.table.redirect_worker(flow) {
                Some(worker) => FragmentTarget::Worker(worker),
                None => FragmentTarget::Session(flow, store.table.uid(flow.session())),
            },
            Next::Drop | Next::Reply => dropped(store, pkt),
            _ => FragmentTarget::Stateless,
        };
        self.fragments.record_first(&fragment, target, pkt.now);
        next
    }

    /// Processes the first fragment of an ICMP error.
    pub(super) fn process_error_fragment<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Next {
        let fragment = match self.admit_first_fragment(store, pkt) {
            Ok(fragment) => fragment,
            Err(next) => return next,
        };
        pkt.meta.session = FlowRef::NONE.0;
        let next = self.process_icmp_error(store, pkt);
        let flow = FlowRef(pkt.meta.session);
        let target = match next {
            Next::HandOff => FragmentTarget::Worker(pkt.meta.stage.worker()),
            Next::Drop | Next::Reply => dropped(store, pkt),
            _ if flow.is_some() => FragmentTarget::Error(flow, store.table.uid(flow.session())),
            _ => FragmentTarget::Stateless,
        };
        self.fragments.record_first(&fragment, target, pkt.now);
        next
    }

    /// Checks a first fragment. The error is its outcome if it is dropped.
    fn admit_first_fragment<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Result<Fragment, Next> {
        let timeout = store.settings.timeouts.fragment;
        let fragment = Fragment::of(pkt.packet.head(), pkt.meta);
        let is_admitted =
            |fragment: &Fragment| is_checked(pkt) || self.fragments.admits_first(fragment, pkt.now, timeout);
        fragment.filter(is_admitted).ok_or_else(|| pkt.drop(DropReason::FragmentOverlap))
    }

    /// Processes a later fragment. It is held if the first fragment has not arrived.
    pub(super) fn process_later_fragment<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Next {
        let Some(fragment) = Fragment::of(pkt.packet.head(), pkt.meta) else {
            return process_stateless(store, pkt);
        };
        let timeout = store.settings.timeouts.fragment;
        match self.fragments.resolve_later(&fragment, is_checked(pkt), pkt.now, timeout) {
            FragmentAction::Follow(target) => self.follow(store, pkt, target),
            FragmentAction::Wait(ticket) => {
                store.counters.held += 1;
                pkt.meta.stage = StageWord::from_ticket(ticket.0);
                Next::Hold
            }
            FragmentAction::Refused => pkt.drop(DropReason::FragmentLost),
            FragmentAction::Overlap => pkt.drop(DropReason::FragmentOverlap),
        }
    }

    /// Sends a later fragment to where the first one went.
    fn follow<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        target: FragmentTarget,
    ) -> Next {
        match target {
            FragmentTarget::Session(flow, uid) | FragmentTarget::Error(flow, uid)
                if !is_same_session(&store.table, flow, uid) =>
            {
                pkt.drop(DropReason::FragmentLost)
            }
            FragmentTarget::Session(flow, _) => self.follow_session(store, pkt, flow),
            FragmentTarget::Error(flow, _) => self.follow_error(store, pkt, flow),
            FragmentTarget::Worker(worker) => store.hand_off(pkt.meta, worker),
            FragmentTarget::Stateless => process_stateless(store, pkt),
            FragmentTarget::Dropped(reason, rule) => {
                if let Some(rule) = rule.filter(|rule| rule.is_alive(pkt.env.policy())) {
                    pkt.env.count_decided(rule.slot, 1);
                }
                pkt.drop(reason)
            }
        }
    }

    /// Processes a later fragment as a packet of a session.
    fn follow_session<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        flow_ref: FlowRef,
    ) -> Next {
        if let Err(next) = admit_related(store, pkt, flow_ref) {
            return next;
        }
        store.cache.settle(&mut store.table, flow_ref, pkt.env);
        let flow = store.table.flow_mut(flow_ref);
        flow.count(1, pkt.bytes());
        flow.last_seen = pkt.now;
        self.translate_and_send(store, pkt, flow_ref)
    }

    /// Processes a later fragment of an ICMP error about a packet of a session.
    fn follow_error<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        flow: FlowRef,
    ) -> Next {
        if let Err(next) = admit_related(store, pkt, flow) {
            return next;
        }
        if store.table.flow(flow).flags.intersects(FlowFlags::XLAT4 | FlowFlags::XLAT_SLOW) {
            let (from, to) = (store.table.key(flow), store.table.key(flow.opposite()).reversed());
            translate_error_fragment(pkt.packet.head_mut(), pkt.meta, &from, &to);
        }
        self.send(store, pkt, flow)
    }
}

/// Whether a fragment has been checked against the others of its datagram. All of them come first to one
/// worker, unlooped.
fn is_checked<E: Environment, P: PacketBuf>(pkt: &SlowPacket<'_, E, P>) -> bool {
    pkt.is_handed() || pkt.is_looped()
}

/// The target of the fragments that follow a dropped one.
fn dropped<E, P>(store: &SessionStore, pkt: &SlowPacket<'_, E, P>) -> FragmentTarget {
    let reason = DropReason::from_number(pkt.meta.drop_reason).unwrap_or(DropReason::Rule);
    FragmentTarget::Dropped(reason, store.rules.last_decider.filter(|_| reason == DropReason::Rule))
}

/// Whether the session with this uid still exists.
pub(crate) fn is_same_session(table: &Table, flow: FlowRef, uid: u32) -> bool {
    table.is_live(flow.session()) && table.uid(flow.session()) == uid
}
