//! Sessions opened by rules.

use mmb_flow::{
    FlowRef, HostLocation, InsertError, Key, MappingId, NatError, PoolId, TcpSegment, TrackInput,
};
use mmb_packet::{DropReason, PacketBuf};
use mmb_policy::Choice;
use rand::Rng;

use super::insert::{NewSession, RuleSource};
use super::nat::nat_key;
use super::plan::{NewAddress, TranslationPlan, has_free_port, wide};
use super::refusal::Refusal;
use crate::Environment;
use crate::hash::{Purpose, hash_key, scale, sequence_number};
use crate::lifetime::session_flags;
use crate::rules::opening::OpeningRules;
use crate::sessions::Sessions;
use crate::slow_path::packet::SlowPacket;
use crate::translation::record::NumberTranslation;

/// The largest window scale (RFC 7323, 2.3).
const MAX_WINDOW_SCALE: u8 = 14;

/// Returns the SYN that preceded a segment, if a function has answered it. Its window scale is not known.
fn preceding_syn(input: TrackInput) -> TrackInput {
    match input {
        TrackInput::Tcp(segment) if segment.flags & TcpSegment::SYN == 0 => TrackInput::Tcp(TcpSegment {
            seq: segment.seq.wrapping_sub(1),
            flags: TcpSegment::SYN,
            len: 0,
            scale: Some(MAX_WINDOW_SCALE),
            ..segment
        }),
        other => other,
    }
}

impl Sessions {
    /// Opens a session by rules. If the packet is for an address of NAT and no rule translates its source,
    /// NAT decides.
    pub(super) fn open<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        opening: &mut OpeningRules,
        is_for_nat: bool,
    ) -> Result<FlowRef, Refusal> {
        self.check_source(pkt, key)?;
        let (env, policy) = (pkt.env, pkt.env.policy());
        let mut plan = TranslationPlan::default();
        match opening.pool {
            Some(pool) if key.is_ip4() => plan.source = NewAddress::Pool(pool),
            Some(_) => {}
            None if opening.is_plain => {}
            None => {
                opening.translating.iter().for_each(|&slot| plan.apply_rule(policy, slot, key, env.nat()));
                if let Some((slot, chain)) = opening.chain {
                    let request = self.ask_chain(pkt, key, chain)?;
                    plan.apply_request(&request, slot, key, env.nat());
                }
            }
        }
        if is_for_nat && matches!(plan.source, NewAddress::Same) {
            self.open_inbound(pkt, key)
        } else {
            self.open_planned(pkt, key, &plan, opening, is_for_nat)
        }
    }

    /// Opens a session with this translation.
    fn open_planned<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        plan: &TranslationPlan<'_>,
        opening: &mut OpeningRules,
        is_for_nat: bool,
    ) -> Result<FlowRef, Refusal> {
        let chain = opening.chain.map(|(_, chain)| chain);
        let mut session = NewSession { chain, ..NewSession::default() };
        session.chain_translates = chain.is_some_and(|chain| self.chains.translates(chain));
        let mut input = TrackInput::of(pkt.packet.head(), pkt.meta);
        if plan.proxied_isn.is_some() {
            input = preceding_syn(input);
        }
        session.outcome = session.track.init(&input, &mut session.acks, &self.settings)?;
        match plan.source {
            NewAddress::Pool(pool) => {
                let (reverse, mapping) = self.map_by_pool(pkt, key, plan, pool, opening)?;
                (session.translated, session.mapping) = (Some(reverse), Some(mapping));
            }
            NewAddress::NoPool => return Err(DropReason::NatExhausted.into()),
            _ if plan.changes_endpoints() => session.translated = Some(self.choose_reverse(pkt, key, plan)?),
            // After a change of rules the packet may be at a worker to which replies do not come.
            _ if self.config.can_hand_off(key, pkt.meta.flags) && !self.config.is_home(key) => {
                return Err(Refusal::HandOff(self.config.home_worker(key)));
            }
            _ => {}
        }
        if plan.replaces_numbers() {
            session.numbers = self.choose_numbers(pkt, key, plan, &input);
        }
        // After translation, a packet to an address of NAT returns from there.
        let is_moved =
            |reverse: &&Key| (reverse.source, reverse.source_port) != (key.destination, key.destination_port);
        let is_hairpinned = match session.translated.as_ref().filter(is_moved) {
            Some(reverse) => pkt.env.nat().is_nat_destination(&reverse.reversed()),
            None => is_for_nat,
        };
        session.flags = if is_hairpinned { session_flags::LOOP_FORWARD } else { 0 };
        match self.insert_session(pkt, key, &session, RuleSource::Opening(opening)) {
            // The replies belong to another session: this one gets another source port.
            Err(InsertError::Taken(_)) if session.mapping.is_none() => {
                session.translated = Some(self.choose_reverse(pkt, key, plan)?);
                Ok(self.insert_session(pkt, key, &session, RuleSource::Opening(opening))?)
            }
            inserted => Ok(inserted?),
        }
    }

    /// Maps the source to an address and port of a pool. Returns the reverse key and the mapping.
    fn map_by_pool<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        plan: &TranslationPlan<'_>,
        pool: PoolId,
        opening: &OpeningRules,
    ) -> Result<(Key, MappingId), Refusal> {
        self.nat.last_pool = Some(pool);
        let config = pkt.env.nat();
        if self.config.workers > 1 {
            let worker = config.opening_worker(pool, key, usize::from(self.config.workers)) as u16;
            if worker != self.config.worker && self.config.can_hand_off(key, pkt.meta.flags) {
                return Err(Refusal::HandOff(worker));
            }
        }
        let mac = pkt.packet.head().get(6..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        let inside = HostLocation { mac, in_port: pkt.in_port };
        let mut to = *key;
        let mapped = if plan.chooses_target() {
            to = plan.target(key, self.config.seed, 0);
            self.nat.pools.map(&nat_key(key, &to), pool, inside, pkt.now)
        } else {
            self.nat.pools.map(key, pool, inside, pkt.now)
        };
        let mapped = mapped.map_err(|error| {
            let pool = config.pools().get(usize::from(pool.0));
            let first = pool.map_or([0; 16], |pool| wide(pool.addresses().0.to_bits()));
            match error {
                NatError::Exhausted => Refusal::Reject(DropReason::NatExhausted, first),
                NatError::Limit => Refusal::Reject(DropReason::NatLimit, first),
                NatError::Unsupported => Refusal::Drop(DropReason::NatFailed),
            }
        })?;
        let rule = match plan.pool_rule {
            Some(slot) => opening.rules.iter().find(|rule| rule.slot == slot).copied(),
            None => opening.pool_rule,
        };
        self.nat.set_mapping_rule(mapped.id, rule);
        to.source = wide(u32::from_be_bytes(mapped.address));
        if has_free_port(key) {
            to.source_port = mapped.port;
        }
        Ok((to.reversed(), mapped.id))
    }

    /// Chooses the numbers besides addresses and ports that the session replaces.
    fn choose_numbers<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &SlowPacket<'_, E, P>,
        key: &Key,
        plan: &TranslationPlan<'_>,
        input: &TrackInput,
    ) -> Option<NumberTranslation> {
        let syn = match input {
            TrackInput::Tcp(segment)
                if segment.flags & (TcpSegment::SYN | TcpSegment::ACK) == TcpSegment::SYN =>
            {
                Some(segment)
            }
            _ => None,
        };
        let sequence = plan
            .sequence
            .zip(syn)
            .and_then(|(choice, syn)| Some((self.choose_sequence(choice, key, pkt.now)?, syn)));
        let chosen_isn = plan
            .acknowledgment
            .filter(|_| syn.is_some())
            .and_then(|choice| self.choose_sequence(choice, &key.reversed(), pkt.now));
        // A number that the originator already knows overrides the choice.
        let new_isn = plan.proxied_isn.or(chosen_isn.map(|value| value as u32));
        let ip_id =
            plan.ip_id.and_then(|choice| Some((self.choose_value(choice, key)? as u16, choice.random)));
        let label = plan.label.and_then(|choice| self.choose_value(choice, key));
        if sequence.is_none() && new_isn.is_none() && ip_id.is_none() && label.is_none() {
            return None;
        }
        let head = pkt.packet.head().get(usize::from(pkt.meta.l3_off)..).unwrap_or(&[]);
        let mut mangle = mmb_flow::Mangle::default();
        if let Some((value, syn)) = sequence {
            mangle.sequence = (value as u32).wrapping_sub(syn.seq);
        }
        if let (Some((value, random)), Some(&[.., high, low])) = (ip_id, head.first_chunk::<6>()) {
            let old = u16::from_be_bytes([high, low]);
            mangle.ip_id = if random { value.wrapping_sub(old) } else { value };
            mangle.fixed_id = u8::from(!random);
        }
        if let (Some(value), Some(&[_, high, middle, low])) = (label, head.first_chunk::<4>()) {
            mangle.old_label = u32::from_be_bytes([0, high & 0x0f, middle, low]);
            mangle.new_label = value as u32;
        }
        Some((mangle, new_isn))
    }

    /// Chooses one of the values: at random, or by the key.
    fn choose_value(&mut self, choice: &Choice, key: &Key) -> Option<u128> {
        let draw = match choice.random {
            true => self.rules.secret_random.random(),
            false => hash_key(key, self.config.seed, Purpose::Choice),
        };
        choice.values.nth(scale(draw, choice.values.len()))
    }

    /// Chooses one of the values as an initial sequence number: as RFC 6528 describes, or by the key.
    fn choose_sequence(&mut self, choice: &Choice, key: &Key, now: u32) -> Option<u128> {
        if !choice.random {
            return self.choose_value(choice, key);
        }
        let number = sequence_number(key, self.config.seed, now);
        let all = choice.values.len();
        // Of fewer values than there are numbers, the position goes forward with the clock.
        choice.values.nth(if all > u128::from(u32::MAX) {
            number.into()
        } else {
            u128::from(number) % all.max(1)
        })
    }
}
