//! Packets that belong to a session without having its key: ICMP errors, later fragments; and what all packets of
//! sessions have in common at the end of their way.

use mmb_flow::{
    FlowRef, Key, MappingId, NatConfig, flow_flags, parse_quote, translate_icmp_error, translate_ip4,
};
use mmb_packet::{DropReason, Kind, OUT_ROUTED, PacketBuf, flags};
use mmb_policy::{Binding, EditLimits};

use crate::chains::OUT_AGAIN;
use crate::engine::{Sessions, session_flags};
use crate::hot::edit_from;
use crate::slow::Call;
use crate::{Environment, Next};

impl Sessions {
    /// An ICMP error. It belongs to the session of the packet that it quotes, and travels in the direction opposite to
    /// that packet's.
    pub(crate) fn icmp_error<H: Environment, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>) -> Next {
        let Some(quote) = parse_quote(call.packet.head(), call.meta) else {
            return self.error_of_nobody(call);
        };
        let key = quote.key.reversed();
        let found = self.table.find(&key);
        if !found.is_some() {
            return match self.error_elsewhere(call, &key) {
                Some(worker) => self.hand_off(call.meta, worker),
                None => self.error_of_nobody(call),
            };
        }
        if let Some(worker) = self.table.redirect_worker(found) {
            return self.hand_off(call.meta, worker);
        }
        call.meta.session = found.0;
        if !call.is_looped() && self.judge_related(call, found) {
            return call.drop(DropReason::Rule);
        }
        if let Some(reason) = self.refused(found.session()) {
            return call.drop(reason);
        }
        self.counters.icmp_errors += 1;
        if self.table.flow(found).flags & (flow_flags::XLAT4 | flow_flags::XLAT_SLOW) != 0 {
            let to = self.table.key(found.opposite()).reversed();
            let mangle = self.mangle(found.session());
            let (head, way) = (call.packet.head_mut(), found.direction());
            if let Err(reason) =
                translate_icmp_error(head, call.meta, &quote, &key, &to, mangle.as_ref(), way)
            {
                return call.drop(reason);
            }
        }
        self.onward(call, found)
    }

    /// The worker that may have the session with this key of an error: the one that packets with the key come to, and
    /// after that the one that has the sessions which NAT has let in to where they come from, from outside or from inside.
    fn error_elsewhere<H: Environment, P: PacketBuf>(
        &self,
        call: &mut Call<'_, H, P>,
        key: &Key,
    ) -> Option<u16> {
        let (nat, workers) = (call.host.nat(), usize::from(self.config.workers));
        let first = self.first_worker(nat, key);
        if first != self.config.worker && !call.is_handed() {
            return Some(first);
        }
        if workers == 1 || nat.is_empty() || !key.is_ip4() || call.came_back() {
            return None;
        }
        let [a, b, c, d, ..] = key.source;
        call.meta.flags |= flags::ASTRAY;
        Some(NatConfig::host_worker([a, b, c, d], workers) as u16)
            .filter(|&second| second != self.config.worker)
    }

    /// The worker that packets with this key are to come to.
    pub(crate) fn first_worker(&self, nat: &NatConfig, key: &Key) -> u16 {
        if nat.is_nat_destination(key) {
            return nat.owner_worker(key, usize::from(self.config.workers)) as u16;
        }
        self.home(key)
    }

    /// An error about a packet of no session: a packet like others, but not for NAT, where it is nobody's (RFC 5508 REQ-4,
    /// REQ-5: neither is one let in, nor out with an address that is not to be seen).
    fn error_of_nobody<H: Environment, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>) -> Next {
        if call.meta.kind.l3() == Kind::IP4 && !call.host.nat().is_empty() {
            let mut key = Key { kind: call.meta.kind.0, proto: call.meta.proto, ..Key::default() };
            let at = usize::from(call.meta.l3_off) + 16;
            if let Some(to) = call.packet.head().get(at..at + 4) {
                key.destination[..4].copy_from_slice(to);
            }
            if call.is_looped() || call.host.nat().is_nat_destination(&key) || self.is_to_be_mapped(call) {
                return call.drop(DropReason::IcmpQuote);
            }
        }
        self.stateless(call)
    }

    /// Whether a rule wants what comes from there to be translated out of a pool.
    fn is_to_be_mapped<H: Environment, P: PacketBuf>(&self, call: &Call<'_, H, P>) -> bool {
        let policy = call.host.policy();
        let maps = |slot| policy.stateful(slot).is_some_and(|rule| rule.bindings.iter().any(is_pool));
        call.stateful().any(|slot| maps(slot) || self.is_translated_by(policy, slot))
    }

    /// Whether a packet is dropped that belongs to a session but has not its key: the session's rules count, and those
    /// that match the packet itself.
    pub(crate) fn judge_related<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        found: FlowRef,
    ) -> bool {
        let policy = call.host.policy();
        let rules = self.table.session(found.session()).rule_list;
        self.slots.clear();
        self.slots.extend(self.rules.get(rules).filter(|rule| rule.is_alive(policy)).map(|rule| rule.slot));
        self.slots.extend(call.hits.iter().map(|hit| hit.slot));
        self.slots.sort_unstable();
        self.slots.dedup();
        let bytes = u64::from(call.bytes());
        let Sessions { random, nothing, slots, .. } = self;
        let count = &mut |slot| call.host.count(slot, 1, bytes);
        policy.decide_combined(nothing, slots.iter().copied(), call.edits, &mut || random.next(), count)
    }

    /// Translates a packet of a session and sends it on, through the session's chain if it has one.
    pub(crate) fn translated<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        found: FlowRef,
    ) -> Next {
        let half = self.table.flow(found);
        let flags = half.flags;
        if flags & (flow_flags::XLAT4 | flow_flags::CHAIN_TRANSLATES) == flow_flags::XLAT4 {
            translate_ip4(&half.xlat4(), call.packet.head_mut(), call.meta);
        } else if flags & flow_flags::XLAT_SLOW != 0
            && flags & flow_flags::CHAIN_TRANSLATES == 0
            && let Err(reason) = self.translate(found, call.packet.head_mut(), call.meta)
        {
            return call.drop(reason);
        }
        match flags & flow_flags::CHAINED {
            0 => self.onward(call, found),
            _ => self.through_chain(call, found),
        }
    }

    /// Sends a packet through its session's chain; where it goes from there is known, unless it is turned back.
    fn through_chain<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        found: FlowRef,
    ) -> Next {
        let loops = session_flags::LOOPS[found.direction() as usize];
        if self.table.session(found.session()).flags & loops != 0 {
            if call.is_looped() {
                return call.drop(DropReason::NatFailed);
            }
            call.meta.out_port = OUT_AGAIN;
            edit_from(call.first_edit, call.meta, call.edits);
        } else if call.is_looped() {
            self.send_inside(call, found);
        } else {
            call.pass();
        }
        Next::Chain
    }

    /// Sends a translated packet on: along the wire or its route, to the inside if it was turned back there, or to be turned back.
    fn onward<H: Environment, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>, found: FlowRef) -> Next {
        let loops = session_flags::LOOPS[found.direction() as usize];
        if self.table.session(found.session()).flags & loops != 0 {
            return self.turn_back(call, found);
        }
        if call.is_looped() {
            return self.send_inside(call, found);
        }
        call.pass()
    }

    /// A packet from the inside to an address that stands for another host inside: as if it came from outside now.
    fn turn_back<H: Environment, P: PacketBuf>(&mut self, call: &mut Call<'_, H, P>, found: FlowRef) -> Next {
        if call.is_looped() {
            return call.drop(DropReason::NatFailed);
        }
        let key = self.table.key(found.opposite()).reversed();
        let owner = self.first_worker(call.host.nat(), &key);
        call.meta.flags |= flags::LOOPED;
        call.hits = &[];
        if owner == self.config.worker {
            return self.dispatch(call);
        }
        // The other worker knows nothing of the edits.
        let slots = call.edits.get(call.first_edit..).unwrap_or(&[]);
        let edited =
            call.host.policy().edit(slots, call.packet, call.meta, EditLimits { frame_max: |_| usize::MAX });
        call.edits.truncate(call.first_edit);
        match edited {
            Ok(()) => self.hand_off(call.meta, owner),
            Err(reason) => call.drop(reason),
        }
    }

    /// Sends a packet out where the inside host is: to its Ethernet address and from the one that the packet was for, or by
    /// its route if its packets are routed.
    fn send_inside<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        found: FlowRef,
    ) -> Next {
        let mapping = self.table.session(found.session()).mapping;
        let Some(inside) =
            (mapping != u32::MAX).then(|| self.nat.host_location(MappingId(mapping))).flatten()
        else {
            return call.pass();
        };
        call.meta.out_port = if call.host.routed(inside.in_port) {
            OUT_ROUTED
        } else {
            if let Some(addresses) = call.packet.head_mut().first_chunk_mut::<12>() {
                addresses.copy_within(..6, 6);
                addresses[..6].copy_from_slice(&inside.mac);
            }
            inside.in_port
        };
        match edit_from(call.first_edit, call.meta, call.edits) {
            Next::Pass => Next::Send,
            next => next,
        }
    }
}

pub(crate) fn is_pool(binding: &Binding) -> bool {
    matches!(binding, Binding::Nat { .. })
}
