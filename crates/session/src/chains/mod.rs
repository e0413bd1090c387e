//! Service chains of sessions: which chain, from when on, until when.
//!
//! Theory of operation. Stateful rules name chains. The last of a session's rules that names one determines
//! the session's chain. When a session gets a chain, its scratchpad is opened, and both flows have
//! [`FlowFlags::CHAINED`]. The cached decision of a flow does not contain the chain. Under new rules or
//! chains, the first packet of each flow takes the slow path, where the scratchpad is migrated to the chain
//! that the session is to have now ([`ChainState::update`]). Both flows have the same rules, so that this
//! holds for both.
//!
//! If no function of its chain reads a session any more, its packets do not pass the chain
//! ([`SessionFlags::BYPASSES`]): they take the short way, and the XDP fast path may forward them. The session
//! stays in the chain. A SYN, which may begin another connection, and a change of chains bring it back.
//! Functions that have edited the connection, or have left it, leave constants behind: they are added to the
//! numbers that the session translates ([`ChainState::leave_unread`]), and go back into the chain with it.
//!
//! Functions can demand that a session is translated. This is decided when the session is opened
//! ([`ChainState::admit`]), as for rules, and the translation is made inside the chain
//! ([`FlowFlags::CHAIN_TRANSLATES`]). A chain that translates therefore must be the session's chain from the
//! first packet on. Such a session keeps the rule that names the chain. It ends with the rule, or with the
//! functions that translate it. Sessions that NAT lets in from outside are translated by NAT; chains that
//! translate are ignored for them.

mod batch;
pub(crate) mod path_mtu;
pub(crate) mod process;

use std::io;
use std::sync::Arc;

use mmb_flow::{
    Direction, EditOffsets, FlowFlags, FlowRef, Key, SessionFlags, SessionId, SessionSettings, Table,
    TcpSegment,
};
use mmb_nf::{
    Admission, ChainId, ChainVerdict, ConstantRewrite, OpeningPacket, PacketView, Program, Runner,
    SessionInfo, TranslationRequest,
};
use mmb_packet::{OUT_ROUTED, PacketBuf, PacketFlags};
use mmb_policy::{Policy, VECTOR};

use crate::lifetime::DIRECTIONS;
use crate::rules::attached::SessionRule;
use crate::slow_path::packet::SlowPacket;
use crate::translation::record::SessionRecords;
use crate::{Environment, SessionConfig, tracking};
pub use batch::{ChainBatch, chain_packet};
use path_mtu::PathMtus;

/// [`mmb_packet::Meta::out_port`] of a packet that is hairpinned after its chain.
pub(crate) const OUT_HAIRPIN: u16 = OUT_ROUTED - 1;

/// Flags of the metadata that a parse does not determine.
const PATH_FLAGS: PacketFlags = PacketFlags::HANDED
    .union(PacketFlags::LOOPED)
    .union(PacketFlags::REFUSED)
    .union(PacketFlags::ASTRAY)
    .union(PacketFlags::OURS);

/// A chain, and the slot of the rule that names it.
pub(crate) type NamedChain = (u32, ChainId);

/// The chains in force, and the runner of their functions.
#[derive(Debug)]
pub(crate) struct ChainState {
    program: Arc<Program>,
    /// There is at least one chain.
    has_chains: bool,
    /// Bytes of a scratchpad of the program.
    pub scratchpad_bytes: usize,
    pub runner: Runner,
    /// Outcomes of the last vector.
    verdicts: Box<[ChainVerdict; VECTOR]>,
    /// Most bytes of a scratchpad.
    scratchpad_limit: usize,
    /// Records of sessions with translated numbers or refusals.
    pub records: SessionRecords,
    /// MTUs of the paths of datagrams.
    pub paths: PathMtus,
    /// Sessions that functions have ended, with their uid. They end when no released packet is under way.
    ending: Vec<(SessionId, u32)>,
}

/// Returns a session as functions see it.
fn session_info(table: &Table, id: SessionId, now: u32) -> SessionInfo {
    let [forward, reverse] = DIRECTIONS.map(|direction| table.flow(FlowRef::new(id, direction)));
    let session = table.session(id);
    let (original, counts) = (forward.key(), [forward.counts(), reverse.counts()]);
    SessionInfo {
        id,
        key: original,
        ingress_key: original,
        egress_key: reverse.key().reversed(),
        created: session.created,
        now,
        in_port: session.in_ports()[0],
        uid: table.uid(id),
        packets: counts.map(|(packets, _)| packets),
        bytes: counts.map(|(_, bytes)| bytes),
    }
}

/// Returns a packet as functions see it when their session begins.
fn packet_view<'a, E, P: PacketBuf>(pkt: &'a SlowPacket<'_, E, P>, flow: FlowRef) -> PacketView<'a> {
    PacketView { head: pkt.packet.head(), meta: pkt.meta, direction: flow.direction() }
}

impl ChainState {
    /// Creates the state, without chains. `capacity`: of the table.
    ///
    /// # Errors
    /// The error of the system if there is not enough address space.
    pub fn new(config: &SessionConfig, capacity: u32) -> io::Result<ChainState> {
        Ok(ChainState {
            program: Arc::default(),
            has_chains: false,
            scratchpad_bytes: 0,
            runner: Runner::new(config.worker, config.seed, config.sessions),
            verdicts: Box::new([ChainVerdict::Pass; VECTOR]),
            scratchpad_limit: config.scratchpad,
            records: SessionRecords::new(capacity)?,
            paths: PathMtus::default(),
            ending: Vec::with_capacity(VECTOR),
        })
    }

    /// Adopts new chains. Chains that need larger scratchpads are ignored.
    pub fn adopt(&mut self, table: &mut Table, program: &Arc<Program>, settings: &SessionSettings) {
        let fits = program.bytes() <= self.scratchpad_limit;
        self.program = if fits { program.clone() } else { Arc::default() };
        self.scratchpad_bytes = self.program.bytes();
        self.has_chains = self.scratchpad_bytes > 0;
        table.touch_scratchpads(self.scratchpad_bytes);
        self.runner.set_program(&self.program, settings);
    }

    /// Returns the chain that the rule in a slot names.
    fn chain_of_rule(&self, policy: &Policy, slot: u32) -> Option<ChainId> {
        if !self.has_chains || !policy.rule_info(slot).chains {
            return None;
        }
        self.program.chain(policy.chain_name(slot)?)
    }

    /// Whether the rule in a slot names a chain that translates sessions.
    pub fn is_translated_by(&self, policy: &Policy, slot: u32) -> bool {
        self.chain_of_rule(policy, slot).is_some_and(|chain| self.translates(chain))
    }

    /// Whether the chain translates sessions.
    pub fn translates(&self, chain: ChainId) -> bool {
        self.program.translates(chain)
    }

    /// Returns the chain of the last rule whose chain is accepted by `accept`.
    fn last_chain(
        &self,
        policy: &Policy,
        rules: &[SessionRule],
        accept: impl Fn(&SessionRule, ChainId) -> bool,
    ) -> Option<NamedChain> {
        if !self.has_chains {
            return None;
        }
        let named = rules.iter().filter_map(|rule| {
            let chain = self.chain_of_rule(policy, rule.slot).filter(|&chain| accept(rule, chain))?;
            Some((policy.index(rule.slot), (rule.slot, chain)))
        });
        named.max_by_key(|(index, _)| *index).map(|(_, named)| named)
    }

    /// Returns the chain of a session that these rules open.
    pub fn opening_chain(&self, policy: &Policy, rules: &[SessionRule]) -> Option<NamedChain> {
        self.last_chain(policy, rules, |_, _| true)
    }

    /// Returns the chain of a session whose translation is already decided.
    pub fn plain_chain(&self, policy: &Policy, rules: &[SessionRule]) -> Option<NamedChain> {
        self.last_chain(policy, rules, |_, chain| !self.translates(chain))
    }

    /// Asks the functions of a chain about a packet that is to open a session. Returns their answer, and the
    /// translation that they request.
    pub fn admit<E: Environment, P: PacketBuf>(
        &mut self,
        pkt: &mut SlowPacket<'_, E, P>,
        key: &Key,
        chain: ChainId,
    ) -> (Admission, TranslationRequest) {
        // A function that changes the packet parses it again, which clears these flags.
        let path_flags = pkt.meta.flags & PATH_FLAGS;
        let mut opening = OpeningPacket {
            packet: &mut *pkt.packet,
            meta: &mut *pkt.meta,
            key,
            in_port: pkt.in_port,
            now: pkt.now,
            translation: TranslationRequest::default(),
        };
        let admission = self.runner.admit(chain, &mut opening);
        let translation = opening.translation;
        pkt.meta.flags |= path_flags;
        (admission, translation)
    }

    /// Gives a session a chain, from this packet on.
    pub fn join<E: Environment, P: PacketBuf>(
        &mut self,
        table: &mut Table,
        pkt: &SlowPacket<'_, E, P>,
        flow: FlowRef,
        chain: ChainId,
    ) {
        let info = session_info(table, flow.session(), pkt.now);
        self.resume_edits(table, flow.session());
        if let Some(pad) = self.reserve_pad(table, flow.session()) {
            self.runner.open(chain, pad, &info, &packet_view(pkt, flow));
        }
        for flow in [flow, flow.opposite()] {
            table.flow_mut(flow).flags |= FlowFlags::CHAINED;
        }
    }

    /// Returns the scratchpad of a session, with room for the chains in force.
    fn reserve_pad<'t>(&self, table: &'t mut Table, id: SessionId) -> Option<&'t mut [u8]> {
        table.reserve_scratch(id, self.program.bytes()).then(|| table.scratch_mut(id))
    }

    /// Takes a session out of its chain.
    pub fn leave(&mut self, table: &mut Table, now: u32, id: SessionId) {
        let forward = FlowRef::new(id, Direction::Forward);
        if !has_chain(table, id) {
            return;
        }
        set_bypass(table, id, false);
        let info = session_info(table, id, now);
        self.runner.release(table.scratch_mut(id), &info);
        for flow in [forward, forward.opposite()] {
            table.flow_mut(flow).flags &= !(FlowFlags::CHAINED | FlowFlags::CHAIN_TRANSLATES);
        }
    }

    /// Takes a session out of its chain. It still passes the runner if functions have edited its connection.
    fn detach(&mut self, table: &mut Table, now: u32, id: SessionId) {
        let info = session_info(table, id, now);
        let is_kept = self.runner.detach(table.scratch_mut(id), &info);
        set_bypass(table, id, false);
        if !is_kept {
            for direction in DIRECTIONS {
                let flow = table.flow_mut(FlowRef::new(id, direction));
                flow.flags &= !(FlowFlags::CHAINED | FlowFlags::CHAIN_TRANSLATES);
            }
        }
    }

    /// Takes a session out of functions that edit and are removed, without a packet. `rules`: those of the
    /// session. It stays if one of them names a chain: then it moves with its next packet.
    pub fn leave_removed(
        &mut self,
        table: &mut Table,
        (policy, rules): (&Policy, &mut Vec<SessionRule>),
        (now, id): (u32, SessionId),
    ) {
        let pad = chained_pad(table, id);
        let flags = table.flow(FlowRef::new(id, Direction::Forward)).flags;
        if flags.contains(FlowFlags::CHAIN_TRANSLATES)
            || !pad.is_some_and(|pad| self.runner.keeps_earlier_program(pad))
        {
            return;
        }
        rules.retain(|rule| rule.is_alive(policy));
        if self.plain_chain(policy, rules).is_none() {
            self.detach(table, now, id);
            self.leave_unread(table, now, id);
        }
    }

    /// Whether functions have edited the connection of a session, so that its ends count differently. It has
    /// to be kept, whatever becomes of its rules.
    pub fn has_offsets(&self, table: &Table, id: SessionId) -> bool {
        self.is_edited(table, id) || !self.records.edits(table, id).is_zero()
    }

    /// Whether functions of the session's chain have edited its connection, and the edits are not yet
    /// constants that the session translates.
    pub fn is_edited(&self, table: &Table, id: SessionId) -> bool {
        chained_pad(table, id).is_some_and(|pad| self.runner.has_offsets(pad, id))
    }

    /// Lets a session pass without its chain that no function reads any more. What edits have left is added
    /// to the numbers that the session translates. A session without a chain passes no runner any more.
    pub fn leave_unread(&mut self, table: &mut Table, now: u32, id: SessionId) {
        let flags = table.flow(FlowRef::new(id, Direction::Forward)).flags;
        if !flags.contains(FlowFlags::CHAINED) || flags.contains(FlowFlags::CHAIN_TRANSLATES) {
            return;
        }
        let pad = table.scratch_mut(id);
        let has_no_chain = self.runner.has_no_chain(pad);
        let Some(edits) = self.runner.settle(pad, id) else { return };
        self.records.add_edits(table, id, edits);
        match has_no_chain {
            true => self.leave(table, now, id),
            false => set_bypass(table, id, true),
        }
    }

    /// Lets the packets of a session pass its chain again. Offsets that edits have left go with it.
    pub fn end_bypass(&mut self, table: &mut Table, id: SessionId) {
        if table.session(id).flags.contains(SessionFlags::BYPASSES) {
            self.resume_edits(table, id);
            set_bypass(table, id, false);
        }
    }

    /// What edits have left is translated around the chain from now on.
    fn resume_edits(&mut self, table: &mut Table, id: SessionId) {
        if let Some(offsets) = self.records.take_edits(table, id) {
            self.runner.resume_edits(id, offsets);
        }
    }

    /// Changes acknowledgement and window of a segment to those that their receiver is told, if functions
    /// edit the connection.
    pub fn untranslate(&self, table: &Table, flow: FlowRef, segment: &mut TcpSegment) {
        if let Some(pad) = chained_pad(table, flow.session()) {
            self.runner.untranslate(pad, flow, segment);
        }
    }

    /// Returns the highest acknowledgement numbers of both directions, as the tracker counts. Segments of
    /// edited connections that took the established path were noted with the numbers that their senders know.
    pub fn acks(&self, table: &Table, id: SessionId) -> [u32; 2] {
        let mut acks = tracking::acks(table, id);
        if let Some(pad) = chained_pad(table, id) {
            let [forward, reverse] = self.runner.acknowledged(pad, id);
            // The forward flow acknowledges what the reverse flow sends.
            acks = [reverse.unwrap_or(acks[0]), forward.unwrap_or(acks[1])];
        }
        acks
    }

    /// See [`Runner::original_sequence`].
    pub fn original_sequence(&self, table: &Table, flow: FlowRef, sequence: u32) -> u32 {
        let pad = chained_pad(table, flow.session());
        pad.map_or(sequence, |pad| self.runner.original_sequence(pad, flow, sequence))
    }

    /// See [`Runner::note_path`].
    pub fn note_path(&mut self, table: &Table, flow: FlowRef, path: (u32, bool)) {
        if let Some(pad) = chained_pad(table, flow.session()) {
            self.runner.note_path(pad, flow, path);
        }
    }

    /// Gives a session with these rules the chain that it is to have now. Returns `false` if the session was
    /// translated by functions that are removed.
    pub fn update<E: Environment, P: PacketBuf>(
        &mut self,
        table: &mut Table,
        pkt: &SlowPacket<'_, E, P>,
        flow: FlowRef,
        rules: &[SessionRule],
    ) -> bool {
        let flags = table.flow(flow).flags;
        let policy = pkt.env.policy();
        let is_translated = flags.contains(FlowFlags::CHAIN_TRANSLATES);
        let chain = match is_translated {
            true => self.last_chain(policy, rules, |rule, chain| rule.translates && self.translates(chain)),
            false => self.plain_chain(policy, rules),
        };
        match (has_chain(table, flow.session()), chain) {
            (true, Some((_, chain))) => return self.migrate(table, pkt, flow, chain, is_translated),
            (true, None) if is_translated => return false,
            (true, None) => self.detach(table, pkt.now, flow.session()),
            (false, Some((_, chain))) => self.join(table, pkt, flow, chain),
            (false, None) => {}
        }
        true
    }

    /// Migrates a session to another chain, or to a new version of its chain. Returns `false` if that is not
    /// possible.
    fn migrate<E: Environment, P: PacketBuf>(
        &mut self,
        table: &mut Table,
        pkt: &SlowPacket<'_, E, P>,
        flow: FlowRef,
        chain: ChainId,
        is_translated: bool,
    ) -> bool {
        let id = flow.session();
        let pad = table.scratch(id);
        if self.runner.is_current(pad, chain) {
            return true;
        }
        if is_translated && !self.runner.keeps_translation(pad, chain) {
            return false;
        }
        self.end_bypass(table, id);
        let info = session_info(table, id, pkt.now);
        if let Some(pad) = self.reserve_pad(table, id) {
            self.runner.migrate(pad, chain, &info, &packet_view(pkt, flow));
        }
        true
    }

    /// Returns what the chain of a session does to its packets with ACK and without SYN, FIN and RST, besides
    /// translations: nothing, if they pass none. `None`: a function has to see each of them.
    pub fn constant_rewrite(&self, table: &Table, id: SessionId) -> Option<ConstantRewrite> {
        let flow = FlowRef::new(id, Direction::Forward);
        if !table.flow(flow).flags.contains(FlowFlags::CHAINED) {
            return Some(ConstantRewrite::default());
        }
        let pad = table.scratch(id);
        if self.runner.has_offsets(pad, id) { None } else { self.runner.constant_rewrite(pad) }
    }

    /// Returns how long the functions of a session's chain keep the session without packets, in milliseconds.
    pub fn timeout(&self, table: &Table, id: SessionId) -> u32 {
        self.runner.timeout(table.scratch(id)).unwrap_or(0)
    }

    /// Returns the name of a session's chain.
    pub fn name(&self, table: &Table, id: SessionId) -> Option<&Arc<str>> {
        self.runner.chain_name(chained_pad(table, id)?)
    }

    /// Returns what the functions of a session's chain say about it, each with its name.
    pub fn describe(&self, table: &Table, id: SessionId) -> Vec<(String, String)> {
        let pad = chained_pad(table, id);
        let mut all = pad.map_or_else(Vec::new, |pad| self.runner.describe(id, pad));
        let EditOffsets([forward, reverse]) = self.records.edits(table, id);
        if (forward, reverse) != (0, 0) {
            let [forward, reverse] = [forward, reverse].map(u32::cast_signed);
            let text = format!("offset {forward:+} / offset {reverse:+}; the functions have left");
            all.push(("(edits)".to_owned(), text));
        }
        all
    }
}

/// Returns the scratchpad of a session that has a chain.
fn chained_pad(table: &Table, id: SessionId) -> Option<&[u8]> {
    has_chain(table, id).then(|| table.scratch(id))
}

/// Whether a session has a chain, although its packets may not pass it now.
pub(crate) fn has_chain(table: &Table, id: SessionId) -> bool {
    let flow = FlowRef::new(id, Direction::Forward);
    table.flow(flow).flags.contains(FlowFlags::CHAINED)
        || table.session(id).flags.contains(SessionFlags::BYPASSES)
}

/// Lets the packets of a session with a chain pass it, or not. Does nothing if that is so already.
fn set_bypass(table: &mut Table, id: SessionId, bypasses: bool) {
    if table.session(id).flags.contains(SessionFlags::BYPASSES) == bypasses {
        return;
    }
    table.session_mut(id).flags.set(SessionFlags::BYPASSES, bypasses);
    for direction in DIRECTIONS {
        table.flow_mut(FlowRef::new(id, direction)).flags.set(FlowFlags::CHAINED, !bypasses);
    }
}
