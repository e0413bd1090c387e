//! Sessions opened by rules.

use mmb_flow::{
    FlowRef, HostLocation, InsertError, Key, MappingId, NatError, PoolId, SessionFlags, TcpSegment,
    TrackInput, TrackState,
};
use mmb_packet::{DropReason, PacketBuf};

use super::inbound::ask_chain;
use super::insert::{NewSession, RuleSource, check_source};
use super::nat::nat_key;
use super::opener::Opener;
use super::plan::{NewAddress, TranslationPlan, has_free_port, wide};
use super::refusal::Refusal;
use crate::broker::begins_connection;
use crate::rules::opening::OpeningRules;
use crate::slow_path::packet::SlowPacket;
use crate::store::SessionStore;
use crate::{Environment, SessionConfig};

/// The largest window scale (RFC 7323, 2.3).
const MAX_WINDOW_SCALE: u8 = 14;

/// Returns the SYN that preceded a segment, if a function has answered it. Its window scale is not known.
/// `early`: the bytes behind it that the answering side may get before the tracker sees them, as with Fast
/// Open.
fn preceding_syn(input: TrackInput, early: u32) -> TrackInput {
    match input {
        TrackInput::Tcp(segment) if segment.flags & TcpSegment::SYN == 0 => TrackInput::Tcp(TcpSegment {
            seq: segment.seq.wrapping_sub(1),
            flags: TcpSegment::SYN,
            len: early,
            scale: Some(MAX_WINDOW_SCALE),
            ..segment
        }),
        TrackInput::Tcp(segment) => TrackInput::Tcp(TcpSegment { len: segment.len + early, ..segment }),
        other => other,
    }
}

/// Returns the port that leads to the broker of a new session, if the connection begins with this packet: its
/// own port, if a broker has sent it; else `port`, if it comes from a routed port. A broker has no way back
/// to a wire.
pub(super) fn broker_of<E: Environment, P: PacketBuf>(
    pkt: &SlowPacket<'_, E, P>,
    input: &TrackInput,
    port: Option<u16>,
) -> Option<u16> {
    match pkt.env.leads_to_broker(pkt.in_port) {
        _ if !begins_connection(input) => None,
        true => Some(pkt.in_port),
        false => port.filter(|_| pkt.env.routed(pkt.in_port)),
    }
}

/// Returns the worker that opens the sessions of a packet from inside that a pool translates. `None`: it is
/// this one.
#[inline]
fn pool_worker<E: Environment, P: PacketBuf>(
    store: &SessionStore,
    pkt: &SlowPacket<'_, E, P>,
    key: &Key,
    pool: PoolId,
) -> Option<u16> {
    let &SessionConfig { worker, workers, .. } = &store.config;
    if workers <= 1 {
        return None;
    }
    let owner = pkt.env.nat().opening_worker(pool, key, usize::from(workers)) as u16;
    (owner != worker && store.config.can_hand_off(key, pkt.meta.flags)).then_some(owner)
}

/// Hands a packet to the worker that owns the sessions of its host. That worker may have a session for it,
/// although this one would refuse to open one.
fn hand_off<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
    key: &Key,
    worker: u16,
) -> Refusal {
    let input = TrackInput::of(pkt.packet.head(), pkt.meta);
    let opens = check_source(store, pkt, key).is_ok()
        && TrackState::default().init(&input, &mut [0; 2], &store.settings).is_ok();
    if opens { Refusal::HandOff(worker) } else { Refusal::HandOffUnopened(worker) }
}

impl Opener {
    /// Opens a session by rules. If the packet is for an address of NAT and no rule translates its source,
    /// NAT decides.
    pub fn open<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        opening: &mut OpeningRules,
        is_for_nat: bool,
    ) -> Result<FlowRef, Refusal> {
        let pool = opening.pool.filter(|_| key.is_ip4());
        if let Some(worker) = pool.and_then(|pool| pool_worker(store, pkt, key, pool)) {
            return Err(hand_off(store, pkt, key, worker));
        }
        check_source(store, pkt, key)?;
        let (env, policy) = (pkt.env, pkt.env.policy());
        let mut plan = TranslationPlan::default();
        match opening.pool {
            Some(_) => plan.source = pool.map_or(NewAddress::Same, NewAddress::Pool),
            None if opening.is_plain => {}
            None => {
                opening.translating.iter().for_each(|&slot| plan.apply_rule(policy, slot, key, env.nat()));
                if let Some((slot, chain)) = opening.chain {
                    let request = ask_chain(store, pkt, key, chain)?;
                    plan.apply_request(&request, slot, key, env.nat());
                }
            }
        }
        if is_for_nat && matches!(plan.source, NewAddress::Same) {
            self.open_inbound(store, pkt, key)
        } else {
            self.open_planned(store, pkt, key, &plan, opening, is_for_nat)
        }
    }

    /// Opens a session with this translation.
    fn open_planned<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        plan: &TranslationPlan<'_>,
        opening: &mut OpeningRules,
        is_for_nat: bool,
    ) -> Result<FlowRef, Refusal> {
        let chain = opening.chain.map(|(_, chain)| chain);
        let mut session = NewSession { chain, ..NewSession::default() };
        session.chain_translates = chain.is_some_and(|chain| store.chains.translates(chain));
        let mut input = TrackInput::of(pkt.packet.head(), pkt.meta);
        if plan.proxied_isn.is_some() {
            input = preceding_syn(input, plan.early_bytes);
        }
        session.outcome = session.track.init(&input, &mut session.acks, &store.settings)?;
        if plan.proxied_isn.is_some() {
            session.track.set_proxied();
        }
        session.broker = broker_of(pkt, &input, opening.broker).filter(|_| chain.is_none());
        match plan.source {
            NewAddress::Pool(pool) => {
                if opening.pool.is_none()
                    && let Some(worker) = pool_worker(store, pkt, key, pool)
                {
                    return Err(Refusal::HandOff(worker));
                }
                let (reverse, mapping) = self.map_by_pool(store, pkt, key, plan, pool, opening)?;
                (session.translated, session.mapping) = (Some(reverse), Some(mapping));
            }
            NewAddress::NoPool => return Err(DropReason::NatExhausted.into()),
            _ if plan.changes_endpoints() => {
                session.translated = Some(self.choose_reverse(store, pkt, key, plan)?)
            }
            // After a change of rules the packet may be at a worker to which replies do not come.
            _ if store.config.can_hand_off(key, pkt.meta.flags) && !store.config.is_home(key) => {
                return Err(Refusal::HandOff(store.config.home_worker(key)));
            }
            _ => {}
        }
        if plan.replaces_numbers() {
            let header = pkt.packet.head().get(usize::from(pkt.meta.l3_off)..).unwrap_or(&[]);
            session.numbers = self.values.choose_numbers(header, key, plan, &input, pkt.now);
        }
        // After translation, a packet to an address of NAT returns from there.
        let is_moved = |reverse: &&Key| {
            plan.chooses_target()
                && (reverse.source, reverse.source_port) != (key.destination, key.destination_port)
        };
        let is_hairpinned = match session.translated.as_ref().filter(is_moved) {
            Some(reverse) => pkt.env.nat().is_nat_destination(&reverse.reversed()),
            None => is_for_nat,
        };
        session.flags = if is_hairpinned { SessionFlags::LOOP_FORWARD } else { SessionFlags::empty() };
        match session.insert(store, pkt, key, RuleSource::Opening(opening)) {
            // The replies belong to another session: this one gets another source port.
            Err(InsertError::Taken(_)) if session.mapping.is_none() => {
                session.translated = Some(self.choose_reverse(store, pkt, key, plan)?);
                Ok(session.insert(store, pkt, key, RuleSource::Opening(opening))?)
            }
            // Without ports, another host has the address of the pool towards this server (RFC 5508, REQ-8).
            Err(InsertError::Taken(_)) => {
                let from = session.translated.as_ref().map_or(key.destination, |reverse| reverse.destination);
                Err(Refusal::Reject(DropReason::NatExhausted, from))
            }
            inserted => Ok(inserted?),
        }
    }

    /// Maps the source to an address and port of a pool. Returns the reverse key and the mapping.
    fn map_by_pool<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        plan: &TranslationPlan<'_>,
        pool: PoolId,
        opening: &OpeningRules,
    ) -> Result<(Key, MappingId), Refusal> {
        self.last_pool = Some(pool);
        let config = pkt.env.nat();
        let inside = HostLocation::of_frame(pkt.packet.head(), pkt.in_port);
        let mut to = *key;
        let mapped = if plan.chooses_target() {
            to = plan.target(key, store.config.seed, 0);
            store.pools.map(&nat_key(key, &to), pool, inside, pkt.now)
        } else {
            let forecast = pkt.forecast.and_then(|forecast| forecast.mapping.as_ref());
            store.pools.map_foreseen(key, pool, (inside, pkt.now), forecast)
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
        self.mapping_rules.set(mapped.id, rule, &mut store.rules.lists);
        let port = if has_free_port(key) { mapped.port } else { key.source_port };
        Ok((to.reversed().with_destination4(mapped.address, port), mapped.id))
    }
}
