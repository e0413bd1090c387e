//! Packets without session.

use std::net::IpAddr;

use mmb_flow::{FlowRef, Key, NatConfig, RedirectState, TrackInput};
use mmb_packet::{DropReason, PacketBuf, PacketFlags};
use mmb_policy::StatefulRule;

use super::SlowPath;
use super::packet::SlowPacket;
use super::process::{drops_stateless, process_stateless};
use crate::broker::begins_connection;
use crate::open::refusal::Refusal;
use crate::rules::opening::OpeningRules;
use crate::store::SessionStore;
use crate::{Environment, Next};

impl SlowPath {
    /// Processes a packet without session.
    pub(crate) fn process_unknown<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
    ) -> Next {
        let mut opening = self.opener.last_opening.take(&store.chains, pkt);
        let next = self.open_or_pass(store, pkt, key, &mut opening);
        self.opener.last_opening.keep(opening);
        if next == Next::Drop && pkt.is_looped() {
            undo_hairpin(store, pkt, key);
        }
        next
    }

    /// Opens a session if NAT or a rule demands it. Otherwise the packet passes by stateless rules.
    fn open_or_pass<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        opening: &mut OpeningRules,
    ) -> Next {
        let is_for_nat = match virtual_destination(store, pkt, key) {
            VirtualDestination::Named => false,
            VirtualDestination::Unnamed => return pkt.drop(DropReason::NatUnmapped),
            VirtualDestination::None => pkt.env.nat().is_nat_destination(key),
        };
        if pkt.is_looped() && !is_for_nat {
            return pkt.drop(DropReason::NatUnmapped);
        }
        if is_for_nat && !opening.binds {
            return self.process_inbound(store, pkt, key);
        }
        if is_for_nat && !pkt.is_looped() && !pkt.was_returned() {
            // It may be a reply between two hosts inside, whose session belongs to the owner of the port.
            let owner = store.nat_owner(key);
            if owner != store.config.worker && store.config.can_hand_off(key, pkt.meta.flags) {
                return self.finish_opening(store, pkt, key, Err(Refusal::HandOff(owner)));
            }
        }
        if is_for_nat && !pkt.is_looped() && pkt.env.routed(pkt.in_port) && is_unmapped(store, key) {
            // A routed address may also be local to the machine: the packet must stay as its sender made it.
            return self.process_inbound(store, pkt, key);
        }
        if let Some(worker) = forward_worker(store, pkt, key) {
            return self.finish_opening(store, pkt, key, Err(Refusal::HandOff(worker)));
        }
        // A broker connects to a server: the answers come in by another port.
        let is_of_broker = pkt.env.leads_to_broker(pkt.in_port)
            && begins_connection(&TrackInput::of(pkt.packet.head(), pkt.meta));
        if !opening.opens && !is_of_broker {
            return process_stateless(store, pkt);
        }
        if opening.only_counts {
            let bytes = u64::from(pkt.bytes());
            pkt.hits.iter().for_each(|hit| pkt.env.count(hit.slot, 1, bytes));
        } else if drops_stateless(store, pkt) {
            return pkt.drop(DropReason::Rule);
        }
        let opened = self.opener.open(store, pkt, key, opening, is_for_nat);
        self.finish_opening(store, pkt, key, opened)
    }

    /// Processes a packet without session to an address of NAT.
    fn process_inbound<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
    ) -> Next {
        let owner = store.nat_owner(key);
        if owner != store.config.worker && store.config.can_hand_off(key, pkt.meta.flags) {
            return self.finish_opening(store, pkt, key, Err(Refusal::HandOff(owner)));
        }
        if !pkt.is_looped() && drops_stateless(store, pkt) {
            return pkt.drop(DropReason::Rule);
        }
        let opened = self.opener.open_inbound(store, pkt, key);
        self.finish_opening(store, pkt, key, opened)
    }

    /// Sends on a packet that has opened a session, or finishes it as the refusal demands.
    fn finish_opening<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        opened: Result<FlowRef, Refusal>,
    ) -> Next {
        match opened {
            Ok(flow) => {
                pkt.meta.session = flow.0;
                self.translate_and_send(store, pkt, flow)
            }
            Err(refusal @ (Refusal::HandOff(worker) | Refusal::HandOffUnopened(worker))) => {
                pkt.edits.truncate(pkt.first_edit);
                if pkt.is_handed() && !store.config.is_home(key) {
                    pkt.meta.flags |= PacketFlags::ASTRAY;
                    return store.hand_off(pkt.meta, store.config.home_worker(key));
                }
                // Only the home worker stores redirects, so that two redirects cannot name each other. A
                // packet that opens no session must not take their room.
                if store.config.is_home(key) && refusal == Refusal::HandOff(worker) {
                    let is_claimed = pkt.env.nat().is_nat_destination(key) && store.nat_owner(key) == worker;
                    let state = match is_claimed {
                        true => RedirectState::Claimed,
                        false => RedirectState::of_first(key),
                    };
                    store.insert_redirect(key, (worker, state), pkt.now);
                }
                store.hand_off(pkt.meta, worker)
            }
            Err(Refusal::Return(worker)) => {
                pkt.edits.truncate(pkt.first_edit);
                pkt.meta.flags |= PacketFlags::REFUSED;
                store.hand_off(pkt.meta, worker)
            }
            Err(Refusal::Drop(reason)) => {
                count_refusal(store, reason);
                pkt.drop(reason)
            }
            Err(Refusal::Reject(reason, source)) => {
                count_refusal(store, reason);
                self.reject(store, pkt, reason, source)
            }
            Err(Refusal::Answered) => {
                pkt.drop(DropReason::SynCookie);
                pkt.meta.out_port = pkt.in_port;
                Next::Reply
            }
        }
    }
}

/// Removes the session that a packet has just opened, whose translation came back to NAT and was dropped
/// there. Otherwise it would keep a mapping and count against limits.
fn undo_hairpin<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    key: &Key,
) {
    let reply = store.table.find(&key.reversed());
    if !reply.is_some() || store.table.redirect_worker(reply).is_some() {
        return;
    }
    let id = reply.session();
    let (packets, _) = store.table.flow(reply.opposite()).counts();
    if store.table.session(id).created == pkt.now && packets <= 1 && store.table.is_embryonic(id) {
        store.undo_opening(id, pkt.env);
    }
}

/// What rules say about the machine's own address to which a packet goes.
enum VirtualDestination {
    /// A rule names it as a virtual address, and takes the packet.
    Named,
    /// No rule takes the packet: it is left as it came, for the machine to have it.
    Unnamed,
    /// The address is not the machine's, or NAT has it and decides.
    None,
}

fn destination(key: &Key) -> IpAddr {
    let [a, b, c, d, ..] = key.destination;
    if key.is_ip4() { [a, b, c, d].into() } else { key.destination.into() }
}

/// Finds whether a packet is for the machine, although a rule names its address.
fn virtual_destination<E: Environment, P: PacketBuf>(
    store: &SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    key: &Key,
) -> VirtualDestination {
    let policy = pkt.env.policy();
    if pkt.is_looped() || !policy.has_virtual_addresses() || !pkt.env.routed(pkt.in_port) {
        return VirtualDestination::None;
    }
    let address = destination(key);
    if !pkt.env.is_shared(pkt.in_port, address) {
        return VirtualDestination::None;
    }
    let is_named = pkt.stateful_slots().any(|slot| {
        let gives_destination =
            |rule: &StatefulRule| rule.gives_destination() || store.chains.is_translated_by(policy, slot);
        policy.rule_info(slot).opens_sessions()
            && policy
                .stateful(slot)
                .is_some_and(|rule| rule.virtual_addresses.contains(&address) && gives_destination(rule))
    });
    match is_named {
        true => VirtualDestination::Named,
        false if pkt.env.nat().is_nat_destination(key) => VirtualDestination::None,
        false => VirtualDestination::Unnamed,
    }
}

/// Whether a packet to an address of NAT is for no host inside, as far as this worker knows.
fn is_unmapped(store: &SessionStore, key: &Key) -> bool {
    store.nat_owner(key) == store.config.worker && !store.pools.is_mapped(key)
}

/// Returns the worker that owns the sessions of the packet's source because of a forward to it. Replies
/// may come to any worker, and may match no rule.
fn forward_worker<E: Environment, P>(
    store: &SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    key: &Key,
) -> Option<u16> {
    let [a, b, c, d, ..] = key.source;
    if !store.config.can_hand_off(key, pkt.meta.flags) || !pkt.env.nat().is_forwarded(key) {
        return None;
    }
    let worker = NatConfig::host_worker([a, b, c, d], usize::from(store.config.workers)) as u16;
    (worker != store.config.worker).then_some(worker)
}

/// Counts a session that was not opened.
fn count_refusal(store: &mut SessionStore, reason: DropReason) {
    match reason {
        DropReason::SessionFull => store.counters.refused_full += 1,
        DropReason::SessionLimit => store.counters.refused_source += 1,
        DropReason::SessionMiddle => store.counters.refused_middle += 1,
        DropReason::NatExhausted => store.counters.refused_exhausted += 1,
        DropReason::NatLimit => store.counters.refused_limit += 1,
        _ => {}
    }
}
