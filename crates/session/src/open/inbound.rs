//! Sessions opened from outside, by a NAT mapping or a forward.

use mmb_flow::{FlowRef, InboundError, InboundMapping, Key, TrackInput};
use mmb_nf::{Admission, ChainId, TranslationRequest};
use mmb_packet::{DropReason, PacketBuf};

use super::insert::{NewSession, RuleSource};
use super::refusal::Refusal;
use crate::lifetime::session_flags;
use crate::rules::attached::{self, SessionRule};
use crate::rules::opening::collect_stateful;
use crate::sessions::Sessions;
use crate::slow_path::packet::SlowPacket;
use crate::{Environment, Next};

impl Sessions {
    /// Processes a packet without session to an address of NAT.
    pub(super) fn process_inbound<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
    ) -> Next {
        let owner = self.nat_owner(key);
        if owner != self.config.worker && self.config.can_hand_off(key, pkt.meta.flags) {
            return self.finish_opening(pkt, key, Err(Refusal::HandOff(owner)));
        }
        if !pkt.is_looped() && self.drops_stateless(pkt) {
            return pkt.drop(DropReason::Rule);
        }
        let opened = self.open_inbound(pkt, key);
        self.finish_opening(pkt, key, opened)
    }

    /// Opens a session from outside, if a mapping or forward exists for the destination.
    pub(super) fn open_inbound<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
    ) -> Result<FlowRef, Refusal> {
        self.check_source(pkt, key)?;
        let mapping = self.nat.pools.map_inbound(key).map_err(|error| match error {
            InboundError::Unmapped => DropReason::NatUnmapped,
            InboundError::Filtered => DropReason::NatFiltered,
        })?;
        // A forward needs no rule, even if a rule has mapped its host's own packets to it.
        let rule = self.nat.mapping_rule(mapping.id).filter(|_| !self.nat.pools.is_forward(mapping.id));
        let mut list = std::mem::take(&mut self.rules.buffer);
        collect_stateful(pkt, &mut list);
        if let Some(rule) = rule {
            list.retain(|other| other.slot != rule.slot);
            attached::insert(&mut list, rule);
        }
        let inserted = match self.inbound_session(pkt, key, &mapping, rule, &list) {
            Ok(session) => {
                self.insert_session(pkt, key, &session, RuleSource::List(&list)).map_err(Refusal::from)
            }
            Err(refusal) => {
                self.nat.pools.release(mapping.id, key, pkt.now);
                Err(refusal)
            }
        };
        self.rules.buffer = list;
        inserted
    }

    /// Returns the session that NAT lets in. `rule`: the rule that caused the mapping.
    fn inbound_session<E: Environment, P: PacketBuf>(
        &mut self,
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
        session.outcome = session.track.init(&input, &mut session.acks, &self.settings)?;
        session.chain = self.chains.plain_chain(pkt.env.policy(), list).map(|(_, chain)| chain);
        if let Some(chain) = session.chain {
            self.ask_chain(pkt, key, chain)?;
        }
        let mut to = *key;
        to.destination[..4].copy_from_slice(&mapping.address);
        to.destination_port = mapping.port;
        session.flags = session_flags::INBOUND | if rule.is_none() { session_flags::RULELESS } else { 0 };
        (session.translated, session.mapping) = (Some(to.reversed()), Some(mapping.id));
        Ok(session)
    }

    /// Asks the functions of a chain whether the packet may open a session, and which translation they
    /// request.
    pub(super) fn ask_chain<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        chain: ChainId,
    ) -> Result<TranslationRequest, Refusal> {
        match self.chains.admit(pkt, key, chain) {
            (Admission::Open, request) => Ok(request),
            (Admission::Drop(reason), _) => Err(Refusal::Drop(reason)),
            (Admission::Answer, _) => Err(Refusal::Answered),
        }
    }
}
