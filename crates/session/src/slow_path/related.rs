//! ICMP errors: packets that belong to a session by the packet that they quote.

use std::net::IpAddr;

use mmb_flow::{
    Direction, FlowFlags, FlowRef, Key, NatConfig, QuotedPacket, parse_quote, translate_icmp_error,
};
use mmb_packet::{DropReason, Kind, PacketBuf, PacketFlags};

use super::SlowPath;
use super::packet::SlowPacket;
use super::process::process_stateless;
use crate::open::plan::is_pool;
use crate::store::SessionStore;
use crate::{Environment, Next};

/// ICMP type of a redirect (RFC 792).
const REDIRECT: u8 = 5;
/// IP protocol number of UDP.
const UDP: u8 = 17;

impl SlowPath {
    /// Processes an ICMP error. It belongs to the session of the quoted packet and travels in the opposite
    /// direction.
    pub(super) fn process_icmp_error<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
    ) -> Next {
        let Some(quote) = parse_quote(pkt.packet.head(), pkt.meta) else {
            return process_unrelated_error(store, pkt);
        };
        let key = quote.key.reversed();
        let flow = store.table.find(&key);
        if !flow.is_some() {
            return match error_worker(store, pkt, &key) {
                Some(worker) => store.hand_off(pkt.meta, worker),
                None => process_unrelated_error(store, pkt),
            };
        }
        if let Some(worker) = store.table.redirect_worker(flow) {
            return store.hand_off(pkt.meta, worker);
        }
        store.collect(pkt.now, flow.session(), pkt.env);
        restore_sequence(store, pkt, flow, &quote);
        if let Some(reason) = quote_fault(store, pkt, flow, &quote) {
            return pkt.drop(reason);
        }
        if let Err(next) = admit_related(store, pkt, flow) {
            return next;
        }
        store.counters.icmp_errors += 1;
        if let Some(room) = quote.link_room(pkt.packet.head(), pkt.meta) {
            let path = (room, pkt.meta.kind.l3() == Kind::IP4);
            store.chains.note_path(&store.table, flow.opposite(), path);
        }
        note_datagram_path(store, pkt, flow, &quote);
        if store.table.flow(flow).flags.intersects(FlowFlags::XLAT4 | FlowFlags::XLAT_SLOW) {
            let to = store.table.key(flow.opposite()).reversed();
            let mangle = store.chains.records.mangle(&store.table, flow.session());
            let (head, direction) = (pkt.packet.head_mut(), flow.direction());
            let translated =
                translate_icmp_error(head, pkt.meta, &quote, &key, &to, mangle.as_ref(), direction);
            if let Err(reason) = translated {
                return pkt.drop(reason);
            }
        }
        self.send(store, pkt, flow)
    }
}

/// Notes the MTU of a path that a datagram of a chain did not fit. `flow`: that of the error.
fn note_datagram_path<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    flow: FlowRef,
    quote: &QuotedPacket,
) {
    let is_datagram = quote.key.proto == UDP && store.table.flow(flow).flags.contains(FlowFlags::CHAINED);
    if let Some(mtu) = quote.link_mtu(pkt.packet.head(), pkt.meta).filter(|_| is_datagram) {
        let to = store.table.key(flow).source;
        store.chains.paths.note(pkt.now, to, quote.key.is_ip4(), mtu);
    }
}

/// Gives a quoted segment of an edited connection the sequence number that its sender knows. Senders ignore
/// errors about others (RFC 5927, 4.1).
fn restore_sequence<E: Environment, P: PacketBuf>(
    store: &SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
    flow: FlowRef,
    quote: &QuotedPacket,
) {
    let Some(quoted) = quote.sequence(pkt.packet.head()) else { return };
    let mangled = mangled_sequence(store, flow.opposite());
    let original =
        store.chains.original_sequence(&store.table, flow.opposite(), quoted.wrapping_sub(mangled));
    let sequence = original.wrapping_add(mangled);
    if sequence != quoted {
        quote.set_sequence(pkt.packet.head_mut(), pkt.meta, sequence);
    }
}

/// Returns what rules, and functions that have left, have added to the sequence numbers of a flow.
fn mangled_sequence(store: &SessionStore, flow: FlowRef) -> u32 {
    let (records, id) = (&store.chains.records, flow.session());
    match flow.direction() {
        Direction::Forward => records.mangle(&store.table, id).map_or(0, |mangle| mangle.sequence),
        Direction::Reverse => records.edits(&store.table, id).sequence(Direction::Reverse, 0),
    }
}

/// Returns why an error does not belong to its session: it is a redirect, which only a router on the link
/// of the host may send (RFC 1122, 3.2.2.2), or it quotes what the session cannot have in flight (RFC
/// 5927).
fn quote_fault<E: Environment, P: PacketBuf>(
    store: &SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    flow: FlowRef,
    quote: &QuotedPacket,
) -> Option<DropReason> {
    let (id, head) = (flow.session(), pkt.packet.head());
    if pkt.meta.kind.l4() == Kind::ICMP && head.get(usize::from(pkt.meta.l4_off)) == Some(&REDIRECT) {
        return Some(DropReason::IcmpRedirect);
    }
    // The error travels in the direction of the flow, the quoted packet in the opposite one.
    let direction = flow.direction().opposite();
    let is_possible = match quote.sequence(head) {
        Some(sequence) => {
            let sequence = sequence.wrapping_sub(mangled_sequence(store, flow.opposite()));
            store.table.track(id).may_be_in_flight(direction, sequence, &store.chains.acks(&store.table, id))
        }
        None => quote.has_matching_length(head),
    };
    (!is_possible).then_some(DropReason::IcmpForged)
}

/// Applies rules to a packet that belongs to a session and has another key: the session's rules and those
/// that match the packet itself. The error is the packet's outcome if it is dropped.
pub(super) fn admit_related<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
    flow: FlowRef,
) -> Result<(), Next> {
    pkt.meta.session = flow.0;
    let (rule_list, bytes) = (store.table.session(flow.session()).rule_list, pkt.bytes());
    if !pkt.is_looped() && store.rules.drops_related(rule_list, pkt.hits, (pkt.env, bytes), pkt.edits) {
        return Err(pkt.drop(DropReason::Rule));
    }
    match store.refusal(flow.session()) {
        Some(reason) => Err(pkt.drop(reason)),
        None => Ok(()),
    }
}

/// Returns the worker that may own the session of an error with this key: first the worker that packets
/// with the key come to, then the worker that owns the sessions which NAT has let in to the error's host.
fn error_worker<E: Environment, P: PacketBuf>(
    store: &SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
    key: &Key,
) -> Option<u16> {
    let (nat, workers) = (pkt.env.nat(), usize::from(store.config.workers));
    let first = store.first_worker(nat, key);
    if first != store.config.worker && !pkt.is_handed() {
        return Some(first);
    }
    if workers == 1 || nat.is_empty() || !key.is_ip4() || pkt.was_returned() {
        return None;
    }
    let [a, b, c, d, ..] = key.source;
    pkt.meta.flags |= PacketFlags::ASTRAY;
    let second = NatConfig::host_worker([a, b, c, d], workers) as u16;
    (second != store.config.worker).then_some(second)
}

/// Whether a matching rule translates the source of its sessions by a pool.
fn has_translating_rule<E: Environment, P: PacketBuf>(
    store: &SessionStore,
    pkt: &SlowPacket<'_, E, P>,
) -> bool {
    let policy = pkt.env.policy();
    let has_pool = |slot| policy.stateful(slot).is_some_and(|rule| rule.bindings.iter().any(is_pool));
    pkt.stateful_slots().any(|slot| has_pool(slot) || store.chains.is_translated_by(policy, slot))
}

/// Processes an error that belongs to no session. NAT drops it, inbound and outbound (RFC 5508, REQ-4,
/// REQ-5); else it is a packet like others.
fn process_unrelated_error<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
) -> Next {
    if pkt.meta.kind.l3() == Kind::IP4 && !pkt.env.nat().is_empty() {
        let mut key = Key { kind: pkt.meta.kind.0, proto: pkt.meta.proto, ..Key::default() };
        let at = usize::from(pkt.meta.l3_off) + 16;
        if let Some(to) = pkt.packet.head().get(at..at + 4) {
            key.destination[..4].copy_from_slice(to);
        }
        if pkt.is_looped() || pkt.env.nat().is_nat_destination(&key) || has_translating_rule(store, pkt) {
            return pkt.drop(DropReason::IcmpQuote);
        }
    }
    if is_for_machine(pkt) {
        return pkt.drop(DropReason::IcmpQuote);
    }
    process_stateless(store, pkt)
}

/// Whether a packet goes to an address of the machine that a rule names.
fn is_for_machine<E: Environment, P: PacketBuf>(pkt: &SlowPacket<'_, E, P>) -> bool {
    let (head, l3) = (pkt.packet.head(), usize::from(pkt.meta.l3_off));
    let address = match pkt.meta.kind.l3() {
        Kind::IP4 => head.get(l3 + 16..).and_then(|to| to.first_chunk::<4>()).map(|to| IpAddr::from(*to)),
        _ => head.get(l3 + 24..).and_then(|to| to.first_chunk::<16>()).map(|to| IpAddr::from(*to)),
    };
    pkt.env.policy().has_virtual_addresses()
        && pkt.env.routed(pkt.in_port)
        && address.is_some_and(|address| pkt.env.is_shared(pkt.in_port, address))
}
