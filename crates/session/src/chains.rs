//! Sessions that go through service chains: which chain, from when on, until when.
//!
//! Theory of operation. Stateful rules name chains, and of a session's rules the last one that does is heard. When a session
//! gets a chain, its scratchpad is opened, and both its halves say so ([`flow_flags::CHAINED`]); the decision that is kept
//! for a direction says nothing of chains. Both are made anew together: under other rules or chains, the first packet of a
//! direction takes the long way, where the session's scratchpad is moved to the chain that it is to have now
//! ([`Sessions::keep_chain`]). What is decided here holds for both directions, since they have the same rules.
//!
//! Functions can have a session translated. That is decided when it is opened ([`Sessions::ask_chain`]), by the engine,
//! as for rules, and done in the chain ([`flow_flags::CHAIN_TRANSLATES`]). So a chain that translates can be had from the first
//! packet on only; and a session that has one keeps to the rule that names it, and ends with the rule, or with
//! the functions that translate it. Sessions that NAT lets in from outside are translated by NAT, and other chains are
//! looked for among their rules.

use std::sync::Arc;

use mmb_flow::{Direction, FlowRef, Key, SessionId, Table, flow_flags};
use mmb_nf::{Admission, ChainId, OpeningPacket, PacketView, Program, SessionInfo, TranslationRequest};
use mmb_packet::{OUT_ROUTED, PacketBuf, flags};
use mmb_policy::Policy;

use crate::Environment;
use crate::attached::Attached;
use crate::engine::Sessions;
use crate::open::Refusal;
use crate::slow::Call;

/// [`mmb_packet::Meta::out_port`] of a packet that is turned back to the inside once it has been through its chain.
pub(crate) const OUT_AGAIN: u16 = OUT_ROUTED - 1;

/// What no parse says of a packet.
const BEEN: u8 = flags::HANDED | flags::LOOPED | flags::REFUSED | flags::ASTRAY | flags::OURS;

/// A chain, and the slot of the rule that names it.
pub(crate) type Named = (u32, ChainId);

/// A session as functions are told of it.
pub(crate) fn info(table: &Table, id: SessionId, now: u32) -> SessionInfo {
    let [there, back] = [Direction::Forward, Direction::Reverse].map(|way| table.flow(FlowRef::new(id, way)));
    let common = table.session(id);
    let (original, counts) = (there.key(), [there.counts(), back.counts()]);
    SessionInfo {
        id,
        key: original,
        ingress_key: original,
        egress_key: back.key().reversed(),
        created: common.created,
        now,
        in_port: common.in_port[0],
        uid: table.uid(id),
        packets: counts.map(|(packets, _)| packets),
        bytes: counts.map(|(_, bytes)| bytes),
    }
}

fn opener<'a, H, P: PacketBuf>(call: &'a Call<'_, H, P>, found: FlowRef) -> PacketView<'a> {
    PacketView { head: call.packet.head(), meta: call.meta, direction: found.direction() }
}

impl Sessions {
    /// Takes over other chains. Those that scratchpads have no room for are not heard of.
    pub(crate) fn adopt_chains(&mut self, chains: &Arc<Program>) {
        let fits = chains.bytes() <= self.scratch.functions;
        self.chains = if fits { chains.clone() } else { Arc::default() };
        self.has_chains = self.chains.bytes() > 0;
        self.runner.adopt(&self.chains, &self.settings);
    }

    /// The chain that the rule in a slot names.
    fn chain_by(&self, policy: &Policy, slot: u32) -> Option<ChainId> {
        if !self.has_chains || !policy.rule_info(slot).chains {
            return None;
        }
        self.chains.chain(policy.chain_name(slot)?)
    }

    /// Whether the chain that the rule in a slot names has sessions translated.
    pub(crate) fn is_translated_by(&self, policy: &Policy, slot: u32) -> bool {
        self.chain_by(policy, slot).is_some_and(|chain| self.chains.translates(chain))
    }

    /// Of the rules that name a chain which `suits`, the last one.
    fn last_chain(
        &self,
        policy: &Policy,
        list: &[Attached],
        suits: impl Fn(&Attached, ChainId) -> bool,
    ) -> Option<Named> {
        if !self.has_chains {
            return None;
        }
        let named = list.iter().filter_map(|rule| {
            let chain = self.chain_by(policy, rule.slot).filter(|&chain| suits(rule, chain))?;
            Some((policy.index(rule.slot), (rule.slot, chain)))
        });
        named.max_by_key(|(index, _)| *index).map(|(_, named)| named)
    }

    /// The chain of a session that these rules open.
    pub(crate) fn first_chain(&self, policy: &Policy, list: &[Attached]) -> Option<Named> {
        self.last_chain(policy, list, |_, _| true)
    }

    /// The chain of a session that is translated already, or not at all.
    pub(crate) fn later_chain(&self, policy: &Policy, list: &[Attached]) -> Option<Named> {
        self.last_chain(policy, list, |_, chain| !self.chains.translates(chain))
    }

    /// Whether sessions of the chain are translated by it.
    pub(crate) fn defers(&self, chain: ChainId) -> bool {
        self.chains.translates(chain)
    }

    /// Asks a chain about a packet that is to open a session: what its functions want done for that.
    pub(crate) fn ask_chain<H: Environment, P: PacketBuf>(
        &mut self,
        call: &mut Call<'_, H, P>,
        key: &Key,
        chain: ChainId,
    ) -> Result<TranslationRequest, Refusal> {
        // A function that changes the packet parses it anew, which says nothing of where it has been.
        let been = call.meta.flags & BEEN;
        let (packet, meta) = (&mut *call.packet, &mut *call.meta);
        let mut first = OpeningPacket {
            packet,
            meta,
            key,
            in_port: call.in_port,
            now: call.now,
            translation: TranslationRequest::default(),
        };
        let admission = self.runner.admit(chain, &mut first);
        let translation = first.translation;
        call.meta.flags |= been;
        match admission {
            Admission::Open => Ok(translation),
            Admission::Drop(reason) => Err(Refusal::Drop(reason)),
            Admission::Answer => Err(Refusal::Answered),
        }
    }

    /// A session goes through this chain from now on; the packet is of it, and came in as it is.
    pub(crate) fn join_chain<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        found: FlowRef,
        chain: ChainId,
    ) {
        let info = info(&self.table, found.session(), call.now);
        let opener = opener(call, found);
        if let Some(pad) = self.table.scratch_mut(found.session()).get_mut(..self.scratch.functions) {
            self.runner.open(chain, pad, &info, &opener);
        }
        for found in [found, found.opposite()] {
            self.table.flow_mut(found).flags |= flow_flags::CHAINED;
        }
    }

    /// A session goes through no chain any more.
    pub(crate) fn leave_chain(&mut self, id: SessionId) {
        let there = FlowRef::new(id, Direction::Forward);
        if self.table.flow(there).flags & flow_flags::CHAINED == 0 {
            return;
        }
        let info = info(&self.table, id, self.clock);
        if let Some(pad) = self.table.scratch_mut(id).get_mut(..self.scratch.functions) {
            self.runner.release(pad, &info);
        }
        for found in [there, there.opposite()] {
            self.table.flow_mut(found).flags &= !(flow_flags::CHAINED | flow_flags::CHAIN_TRANSLATES);
        }
    }

    /// Sees to it that a session whose rules are these goes through the chain that it is to go through, if any. False: it is
    /// translated by functions that are gone.
    pub(crate) fn keep_chain<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        found: FlowRef,
        list: &[Attached],
    ) -> bool {
        let flags = self.table.flow(found).flags;
        let policy = call.host.policy();
        let deferred = flags & flow_flags::CHAIN_TRANSLATES != 0;
        let chain = match deferred {
            true => self.last_chain(policy, list, |rule, chain| rule.translates && self.defers(chain)),
            false => self.later_chain(policy, list),
        };
        match (flags & flow_flags::CHAINED != 0, chain) {
            (true, Some((_, chain))) => return self.move_chain(call, found, chain, deferred),
            (true, None) if deferred => return false,
            (true, None) => self.leave_chain(found.session()),
            (false, Some((_, chain))) => self.join_chain(call, found, chain),
            (false, None) => {}
        }
        true
    }

    /// Moves a session to a chain from another one, or what that was under other rules. False: it cannot be.
    fn move_chain<H: Environment, P: PacketBuf>(
        &mut self,
        call: &Call<'_, H, P>,
        found: FlowRef,
        chain: ChainId,
        deferred: bool,
    ) -> bool {
        let id = found.session();
        match self.pad(id) {
            Some(pad) if self.runner.is_current(pad, chain) => return true,
            Some(pad) if deferred && !self.runner.keeps_translation(pad, chain) => return false,
            _ => {}
        }
        let info = info(&self.table, id, call.now);
        if let Some(pad) = self.table.scratch_mut(id).get_mut(..self.scratch.functions) {
            self.runner.migrate(pad, chain, &info, &opener(call, found));
        }
        true
    }

    /// For how long the functions of a session's chain want it to be kept without packets.
    pub(crate) fn chain_timeout(&self, id: SessionId) -> u32 {
        self.pad(id).and_then(|pad| self.runner.timeout(pad)).unwrap_or(0)
    }

    /// The name of a session's chain.
    pub(crate) fn chain_name(&self, id: SessionId) -> Option<&Arc<str>> {
        let flags = self.table.flow(FlowRef::new(id, Direction::Forward)).flags;
        let pad = self.pad(id).filter(|_| flags & flow_flags::CHAINED != 0)?;
        self.runner.chain_name(pad)
    }

    /// The functions' part of a session's scratchpad.
    fn pad(&self, id: SessionId) -> Option<&[u8]> {
        self.table.scratch(id).get(..self.scratch.functions)
    }
}
