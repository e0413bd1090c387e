//! Sessions opened from outside, by a NAT mapping or a forward.

use mmb_flow::{FlowRef, InboundError, InboundMapping, Key, SessionFlags, TrackInput};
use mmb_nf::{Admission, ChainId, TranslationRequest};
use mmb_packet::{DropReason, PacketBuf};

use super::insert::{NewSession, RuleSource, check_source};
use super::opener::Opener;
use super::outbound::broker_of;
use super::refusal::Refusal;
use crate::Environment;
use crate::rules::attached::{self, SessionRule};
use crate::rules::opening::{self, collect_stateful};
use crate::slow_path::packet::SlowPacket;
use crate::store::SessionStore;

impl Opener {
    /// Opens a session from outside, if a mapping or forward exists for the destination.
    pub fn open_inbound<E: Environment, P: PacketBuf>(
        &mut self,
        store: &mut SessionStore,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
    ) -> Result<FlowRef, Refusal> {
        check_source(store, pkt, key)?;
        let mapping = store.pools.map_inbound(key).map_err(|error| match error {
            InboundError::Unmapped => DropReason::NatUnmapped,
            InboundError::Filtered => DropReason::NatFiltered,
        })?;
        // A forward needs no rule, even if a rule has mapped its host's own packets to it.
        let rule = self.mapping_rules.get(mapping.id, &store.rules.lists);
        let rule = rule.filter(|_| !store.pools.is_forward(mapping.id));
        let mut list = std::mem::take(&mut store.rules.buffer);
        collect_stateful(pkt, &mut list);
        if let Some(rule) = rule {
            list.retain(|other| other.slot != rule.slot);
            attached::insert(&mut list, rule);
        }
        let inserted = match inbound_session(store, pkt, key, &mapping, rule, &list) {
            Ok(session) => session.insert(store, pkt, key, RuleSource::List(&list)).map_err(Refusal::from),
            Err(refusal) => {
                store.pools.release(mapping.id, key, pkt.now);
                Err(refusal)
            }
        };
        store.rules.buffer = list;
        inserted
    }
}

/// Returns the session that NAT lets in. `rule`: the rule that caused the mapping.
fn inbound_session<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
    key: &Key,
    mapping: &InboundMapping,
    rule: Option<SessionRule>,
    list: &[SessionRule],
) -> Result<NewSession, Refusal> {
    // The mapping of a removed rule lives until the last of its sessions has seen a packet.
    if rule.is_some_and(|rule| !rule.is_alive(pkt.env.policy())) {
        return Err(DropReason::NatUnmapped.into());
    }
    let input = TrackInput::of(pkt.packet.head(), pkt.meta);
    let mut session = NewSession::default();
    session.outcome = session.track.init(&input, &mut session.acks, &store.settings)?;
    session.chain = store.chains.plain_chain(pkt.env.policy(), list).map(|(_, chain)| chain);
    let broker = opening::broker(pkt.env.policy(), list);
    session.broker = broker_of(pkt, &input, broker).filter(|_| session.chain.is_none());
    if let Some(chain) = session.chain {
        ask_chain(store, pkt, key, chain)?;
    }
    let mut to = *key;
    to.destination[..4].copy_from_slice(&mapping.address);
    to.destination_port = mapping.port;
    session.flags = SessionFlags::INBOUND;
    session.flags.set(SessionFlags::RULELESS, rule.is_none());
    (session.translated, session.mapping) = (Some(to.reversed()), Some(mapping.id));
    Ok(session)
}

/// Asks the functions of a chain whether the packet may open a session, and which translation they
/// request.
pub(super) fn ask_chain<E: Environment, P: PacketBuf>(
    store: &mut SessionStore,
    pkt: &mut SlowPacket<'_, E, P>,
    key: &Key,
    chain: ChainId,
) -> Result<TranslationRequest, Refusal> {
    match store.chains.admit(pkt, key, chain) {
        (Admission::Open, request) => Ok(request),
        (Admission::Drop(reason), _) => Err(Refusal::Drop(reason)),
        (Admission::Answer, _) => Err(Refusal::Answered),
    }
}
