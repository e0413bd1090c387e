//! The worker's part: packets pass chains.

mod chain_run;
mod class_matcher;
mod deleted;
mod header;
mod keyed;
mod lifecycle;
mod nested;
mod placement;
mod prepare;
mod prior;
mod scratchpads;
mod state;
mod translators;
mod types;
mod vector_run;

use std::sync::Arc;

use mmb_flow::{EditOffsets, FlowRef, SessionId, SessionSettings, TcpSegment};
use mmb_packet::DropReason;

use self::header::Header;
use self::nested::NestedSessions;
use self::placement::Placement;
use self::state::{ActiveProgram, LoadedProgram, RunnerState};
use self::translators::translators;
use self::vector_run::Buffers;
use crate::context::Emissions;
use crate::held::{HeldEvent, OUTER_SPACE};
use crate::program::ir::{ArmTarget, BodyId, FunctionNode, Node};
use crate::{
    Admission, ChainId, ConstantRewrite, OpeningPacket, Packet, PacketView, Program, SessionInfo,
    SettledEdits,
};

pub use types::{ChainVerdict, FunctionVisit, SessionAccess, StageCounters};

/// Takes the packets of a worker through the chains of their sessions.
pub struct Runner {
    state: RunnerState,
    buffers: Box<Buffers>,
    clock: fn() -> u64,
    /// The program in force.
    active: Option<ActiveProgram>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("worker", &self.state.worker).finish_non_exhaustive()
    }
}

impl Runner {
    /// Makes a runner for a worker. `capacity` is the most sessions of a table, also of those of functions
    /// `flow`. `seed` is a secret that senders do not know.
    pub fn new(worker: u16, seed: u64, capacity: usize) -> Runner {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX).clamp(1, mmb_flow::MAX_CAPACITY);
        let seed = seed ^ (u64::from(worker) + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let state = RunnerState { worker, seed, capacity, ..RunnerState::default() };
        Runner { state, buffers: Box::default(), clock: || 0, active: None }
    }

    /// Sets the clock that measures stages.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.clock = clock;
    }

    /// Puts a program and settings of the connection tracker in force. Sessions move to the program one by
    /// one ([`Runner::migrate`]). The same program again changes nothing.
    pub fn set_program(&mut self, program: &Arc<Program>, settings: &SessionSettings) {
        self.state.settings = *settings;
        self.state.set_program(program);
        self.state.has_processes =
            self.state.states.iter().flatten().any(|state| state.instance.process().is_some());
        self.state.reserve_held();
        self.state.reserve_edits();
        self.state
            .states
            .iter_mut()
            .flatten()
            .for_each(|state| state.placement.set_streams(settings.streams));
        self.active = self.state.active(self.state.current);
        for flow in program.instances.iter().filter(|instance| instance.flow().is_some()) {
            let capacity = flow.flow().flatten().unwrap_or(self.state.capacity);
            let seed = self.state.seed ^ flow.uid.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let states = self.state.states.iter_mut().enumerate();
            let mut states = states.filter_map(|(at, state)| Some((at, state.as_mut()?)));
            let state = states.find(|(_, state)| state.instance.uid == flow.uid);
            if let Some((at, state)) = state.filter(|(_, state)| state.nested.is_none()) {
                // Without memory for the table, packets bypass what is behind.
                let nested = NestedSessions::new(at as u32, capacity, program.scratchpad_limit, seed);
                state.nested = nested.ok().map(Box::new);
            }
        }
    }

    /// Asks the functions of a chain whether a packet may open a session, and which translation they request
    /// ([`OpeningPacket::translation`]).
    pub fn admit(&mut self, chain: ChainId, packet: &mut OpeningPacket<'_>) -> Admission {
        match self.active.clone() {
            Some(active) => self.admit_to(&active, chain.0, packet),
            None => Admission::Open,
        }
    }

    fn admit_to(
        &mut self,
        active: &ActiveProgram,
        body: BodyId,
        packet: &mut OpeningPacket<'_>,
    ) -> Admission {
        let Some(body) = active.program.body(body) else { return Admission::Open };
        for node in &body.forward {
            let target = match node {
                Node::Function(function) => match self.admit_at(active, function, packet) {
                    Admission::Open => None,
                    other => return other,
                },
                Node::Outputs { function, arms, .. } => {
                    match self.admit_at(active, function, packet) {
                        Admission::Open => {}
                        other => return other,
                    }
                    let state = self.state.state(active, function.instance);
                    let routed = state.filter(|state| state.instance.properties().routes);
                    let arm = routed.and_then(|state| state.placement.route(packet));
                    arm.and_then(|arm| arms.get(usize::from(arm))).copied()
                }
                Node::Dispatch { arms, .. } => {
                    let (matcher, head) = (&mut self.state.class_matcher, packet.packet.head());
                    match matcher.arm_of(&active.program, arms, packet.in_port, head, packet.meta) {
                        Some(arm) => arms.get(arm).map(|arm| arm.target),
                        None => return Admission::Drop(DropReason::ChainClass),
                    }
                }
                Node::Choice { .. } | Node::Translate | Node::StreamExit(_) | Node::Flow { .. } => None,
            };
            if let Some(ArmTarget::Body(body)) = target {
                match self.admit_to(active, body, packet) {
                    Admission::Open => {}
                    other => return other,
                }
            }
        }
        Admission::Open
    }

    fn admit_at(
        &mut self,
        active: &ActiveProgram,
        function: &FunctionNode,
        packet: &mut OpeningPacket<'_>,
    ) -> Admission {
        let state = self.state.state(active, function.instance);
        state.map_or(Admission::Open, |state| state.placement.admit(packet))
    }

    /// A session has been opened, and passes a chain. Its scratchpad may hold anything.
    pub fn open(&mut self, chain: ChainId, pad: &mut [u8], info: &SessionInfo, packet: &PacketView<'_>) {
        if let Some(active) = &self.active {
            self.state.open(active, chain.0, (OUTER_SPACE, pad), info, Some(packet));
        }
    }

    /// A session with a chain ends, or passes no chain any more.
    pub fn release(&mut self, pad: &mut [u8], info: &SessionInfo) {
        self.state.release((OUTER_SPACE, pad), info);
    }

    /// Moves a session with a chain to a chain of the program in force. Functions that stay keep their bytes,
    /// functions that leave are released, new ones are opened. Does nothing if the session is there already.
    #[inline]
    pub fn migrate(&mut self, pad: &mut [u8], chain: ChainId, info: &SessionInfo, packet: &PacketView<'_>) {
        if let Some(active) = &self.active {
            self.state.migrate(active, chain.0, (OUTER_SPACE, pad), info, Some(packet));
        }
    }

    /// Whether a session passes this chain of the program in force, so that there is nothing to migrate.
    #[inline]
    pub fn is_current(&self, pad: &[u8], chain: ChainId) -> bool {
        let header = Header::read(pad);
        header.program == self.state.current && header.body == chain.0
    }

    /// Takes a session out of its chain. Returns whether it has to pass the runner further: functions have
    /// edited its connection, whose ends count differently from then on.
    pub fn detach(&mut self, pad: &mut [u8], info: &SessionInfo) -> bool {
        let is_kept = self.has_offsets(pad, info.id);
        match &self.active {
            Some(active) if is_kept => {
                self.state.migrate(active, ChainId::NONE.0, (OUTER_SPACE, pad), info, None);
            }
            _ => self.release(pad, info),
        }
        is_kept
    }

    /// Whether there are sessions of earlier programs.
    pub fn has_earlier_programs(&self) -> bool {
        self.state.programs.iter().flatten().nth(1).is_some()
    }

    /// Whether a session keeps an earlier program, and with it the state of all its instances, because of
    /// edits: a function may edit it, or has.
    pub fn keeps_earlier_program(&self, pad: &[u8]) -> bool {
        let is_earlier = Header::read(pad).program != self.state.current;
        is_earlier && (self.has_no_chain(pad) || self.state.has_editors(pad))
    }

    /// Whether the ends of a session's connection count differently, because functions have edited it.
    pub fn has_offsets(&self, pad: &[u8], session: SessionId) -> bool {
        self.state.has_offsets(pad, session.0)
    }

    /// Returns the greatest acknowledgement numbers for the senders of both directions, as they are told by
    /// functions that edit the connection. None: no function does.
    pub fn acknowledged(&self, pad: &[u8], session: SessionId) -> [Option<u32>; 2] {
        self.state.acknowledged(pad, session.0)
    }

    /// Changes acknowledgement and window of a segment, as it comes in, to those that their receiver is told.
    /// So both are about the numbers of the receiver. They differ if functions edit the connection.
    pub fn untranslate(&self, pad: &[u8], flow: FlowRef, segment: &mut TcpSegment) {
        self.state.untranslate(pad, flow, segment);
    }

    /// Returns the sequence number that the sender of a segment has given it. The segment has gone on in a
    /// flow with this number. It is another one if functions edit the connection.
    pub fn original_sequence(&self, pad: &[u8], flow: FlowRef, sequence: u32) -> u32 {
        self.state.original_sequence(pad, flow, sequence)
    }

    /// A link on the path of a flow carries so many bytes behind the IPv4, or IPv6, header. Later segments
    /// that functions which edit make of it fit.
    pub fn note_path(&mut self, pad: &[u8], flow: FlowRef, (room, is_ip4): (u32, bool)) {
        self.state.note_path(pad, flow, (room, is_ip4));
    }

    fn loaded_of(&self, pad: &[u8]) -> Option<(&LoadedProgram, Header)> {
        let header = Header::read(pad);
        Some((self.state.loaded(header.program)?, header))
    }

    /// Returns the least time for which a session is kept without packets, in milliseconds, under its
    /// program.
    pub fn timeout(&self, pad: &[u8]) -> Option<u32> {
        self.state.timeout(pad)
    }

    /// Returns the name of the chain that a session passes, under its program.
    pub fn chain_name(&self, pad: &[u8]) -> Option<&Arc<str>> {
        let (loaded, header) = self.loaded_of(pad)?;
        loaded.program.name(ChainId(header.body))
    }

    /// Returns what the functions of a session say about it, with their names.
    pub fn describe(&self, id: SessionId, pad: &[u8]) -> Vec<(String, String)> {
        let header = Header::read(pad);
        let mut all = Vec::new();
        if let Some(active) = self.state.active(header.program) {
            self.state.describe(&active, header.body, (id, header.branches, pad), &mut all);
        }
        let edits = self.state.describe_edits(pad, id.0);
        all.extend(edits.into_iter().map(|text| ("(edits)".to_owned(), text)));
        all
    }

    /// Whether a session that moves to this chain of the program in force keeps its translation: the chain
    /// has the same translating functions, and no others.
    pub fn keeps_translation(&self, pad: &[u8], chain: ChainId) -> bool {
        let (Some((loaded, header)), Some(active)) = (self.loaded_of(pad), &self.active) else {
            return false;
        };
        let before = translators(&loaded.program, header.body, Some(header.branches));
        let after = translators(&active.program, chain.0, None);
        // Other arms of the old chain may translate as well, for other sessions.
        let everywhere = translators(&loaded.program, header.body, None);
        let contains_all = |all: &[u64], some: &[u64]| some.iter().all(|uid| all.contains(uid));
        contains_all(&after, &before) && contains_all(&everywhere, &after)
    }

    /// Takes at most 256 packets through the chains of their sessions. `verdicts[i]` tells what becomes of
    /// packet `i`. Verdicts behind the last packet are not changed. Returns whether all packets have passed.
    /// The scratchpads should have been prefetched.
    pub fn run(
        &mut self,
        now: u32,
        packets: &mut [Packet<'_>],
        sessions: &mut impl SessionAccess,
        verdicts: &mut [ChainVerdict; crate::set::VECTOR],
    ) -> bool {
        vector_run::run(&mut self.state, &mut self.buffers, self.clock, now, packets, sessions, verdicts)
    }

    /// Watches packets of the next vectors: those whose metadata are at these addresses. None: watches
    /// nothing any more.
    pub fn watch(&mut self, packets: Option<&[usize]>) {
        self.state.watch = packets.map(|packets| {
            let mut watch = self.state.watch.take().unwrap_or_default();
            watch.packets.clear();
            watch.packets.extend_from_slice(packets);
            watch
        });
    }

    /// Takes what functions did to watched packets since the last call.
    pub fn take_visits(&mut self) -> Vec<FunctionVisit> {
        self.state.watch.as_mut().map(|watch| std::mem::take(&mut watch.visits)).unwrap_or_default()
    }

    /// Whether functions of the program in force, or of one that sessions still pass, run in processes.
    #[inline(always)]
    pub fn has_processes(&self) -> bool {
        self.state.has_processes
    }

    /// Whether packets, or events of sessions, are in processes.
    #[cold]
    pub fn has_packets_in_processes(&self) -> bool {
        self.state.has_packets_in_processes()
    }

    /// Takes packets back from the processes of functions: they become events
    /// ([`Runner::next_held_event`]). To be called when no vector is under way.
    pub fn poll_processes(&mut self) {
        self.state.poll_processes();
    }

    /// Returns the next packet that is no longer held. To be called when no vector is under way, until it
    /// returns `None`. Released packets are given to [`Runner::resume`] in the order of their events.
    pub fn next_held_event(&mut self) -> Option<HeldEvent> {
        self.state.held.next_event()
    }

    /// Whether [`Runner::next_held_event`] returns an event.
    #[inline(always)]
    pub fn has_held_events(&self) -> bool {
        self.state.held.has_events()
    }

    /// Returns the number of packets that functions hold. Tickets are below the second number, which grows
    /// only in [`Runner::set_program`].
    pub fn held(&self) -> (usize, usize) {
        (self.state.held.len(), self.state.held.capacity())
    }

    /// Returns a session whose chain no function reads any more, or that has no chain, and which has packets
    /// nowhere. It may pass without its chain until its connection begins anew: see [`Runner::settle`]. To be
    /// called until there is none.
    pub fn next_unread(&mut self) -> Option<SessionId> {
        let RunnerState { unread, held, .. } = &mut self.state;
        while let Some(session) = unread.pop() {
            if !held.is_draining() {
                return Some(session);
            }
        }
        None
    }

    /// Returns what the functions of a session do to its packets with ACK and without SYN, FIN and RST,
    /// besides translations by the engine. `None`: one of them must see every packet. The answer holds while
    /// the session passes the same chain of the same program, until [`Runner::revision`] changes.
    pub fn constant_rewrite(&self, pad: &[u8]) -> Option<ConstantRewrite> {
        self.state.constant_rewrite(pad)
    }

    /// Returns a number that changes with the answers of [`Runner::constant_rewrite`].
    pub fn revision(&self) -> u64 {
        self.state.revision()
    }

    /// A session is to pass without its chain. Forgets the edits of its connection, and returns what they
    /// leave. None: it cannot leave the chain now.
    pub fn settle(&mut self, pad: &mut [u8], id: SessionId) -> Option<SettledEdits> {
        self.state.settle(pad, id.0)
    }

    /// A session with these constants, which [`Runner::settle`] has returned, passes a chain again.
    pub fn resume_edits(&mut self, id: SessionId, offsets: EditOffsets) {
        if let Some(memory) = self.state.edits.as_deref_mut() {
            memory.put_settled(id.0, offsets);
        }
    }

    /// Whether a session passes no chain, and is here because of edits only.
    pub fn has_no_chain(&self, pad: &[u8]) -> bool {
        Header::read(pad).body == ChainId::NONE.0
    }

    /// Whether there are released packets that have not gone on. A session that a function ends
    /// ([`ChainVerdict::End`]) must live until there are none, or its released packets are dropped.
    pub fn is_draining(&self) -> bool {
        self.state.held.is_draining()
    }

    /// Takes at most 256 released packets on, from behind the functions that held them. Their tickets are in
    /// `meta.stage`. Verdicts are those of [`Runner::run`].
    pub fn resume(
        &mut self,
        now: u32,
        packets: &mut [Packet<'_>],
        sessions: &mut impl SessionAccess,
        verdicts: &mut [ChainVerdict; crate::set::VECTOR],
    ) {
        let Runner { state, buffers, clock, .. } = self;
        vector_run::resume(state, buffers, *clock, now, packets, sessions, verdicts);
    }

    /// Returns the frames that functions have sent since the last clear.
    pub fn emissions(&mut self) -> &mut Emissions {
        &mut self.state.emissions
    }

    /// Ends expired sessions of functions `flow`, and what deleted instances still hold, and drops packets
    /// that were held for too long, at most `budget` of each. Returns true if there may be more.
    pub fn tick(&mut self, now: u32, budget: usize) -> bool {
        let has_more = self.state.held.expire(now, self.state.settings.timeouts.held, budget);
        let mut left = u32::try_from(budget).unwrap_or(u32::MAX);
        for at in 0..self.state.states.len() {
            let state = self.state.states.get_mut(at).and_then(Option::as_mut);
            let Some(mut nested) = state.and_then(|state| state.nested.take()) else { continue };
            while nested.expire(&mut self.state, now, &mut left) {}
            nested.end_sessions(&mut self.state, now);
            if let Some(state) = self.state.states.get_mut(at).and_then(Option::as_mut) {
                state.nested = Some(nested);
            }
        }
        if self.state.programs.len() > 1 {
            self.state.end_deleted(now, &mut left);
            self.state.retire();
        }
        left == 0 || has_more
    }

    /// Whether [`Runner::tick`] has nothing to do until packets come.
    pub fn is_idle(&self) -> bool {
        let mut nested = self.state.states.iter().flatten().filter_map(|state| state.nested.as_ref());
        nested.all(|nested| nested.table.is_empty())
    }

    /// Returns the counters of the stages of the program in force, in the order of [`Program::stages`].
    pub fn counters(&self) -> &[StageCounters] {
        self.state.loaded(self.state.current).map_or(&[], |loaded| &loaded.counters)
    }

    /// Returns the number of sessions that were opened without one of their functions, as its table of keys
    /// was full.
    pub fn bypassed(&self) -> u64 {
        self.state.bypassed
    }

    /// Returns the number of programs that sessions still pass, the one in force included.
    pub fn programs(&self) -> usize {
        self.state.programs.iter().flatten().count()
    }
}
