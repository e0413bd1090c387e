//! Packets of one chain and direction pass its functions.
//!
//! Theory of operation. Packets pass the nodes of a body one by one, all packets a node before the next node.
//! The code of a function and the instance stay in the cache while the scratchpads arrive. The packets are a
//! set of positions. Where paths branch, one set after the other passes its arm; behind the brackets they are
//! joined again. The verdict of a packet is written when it leaves its set.

mod choice;
mod resume;
mod splice;
mod visits;

use super::header::{Header, pads_from};
use super::lifecycle::SessionCall;
use super::nested::{EntryContext, NestedSessions};
use super::placement::{Place, Placement};
use super::prepare::prefetch_entries;
use super::scratchpads::ScratchpadSpace;
use super::state::{ActiveProgram, InstanceState, RunnerState};
use super::types::ChainVerdict;
use crate::context::Holding;
use crate::held::{HeldPackets, HeldPlace, ProcessRoom};
use crate::program::ir::{
    ArmTarget, BitField, BodyId, DispatchArm, FunctionNode, Node, arm_bits, taken_arms,
};
use crate::set::{Set, VECTOR};
use crate::stream::EditMemory;
use crate::vector::RawVector;
use crate::{ChainId, Packet, PacketView, Verdict};
use mmb_packet::DropReason;
use mmb_stream::View;

pub(super) use resume::Target;

pub(super) struct ChainRun<'r, 'p> {
    pub state: &'r mut RunnerState,
    pub active: &'r ActiveProgram,
    pub packets: &'r mut [Packet<'p>],
    pub verdicts: &'r mut [ChainVerdict; VECTOR],
    /// Start of the scratchpads of functions with another key.
    pub keyed: &'r mut [u32; VECTOR],
    /// Verdicts of a function. All passing between two calls.
    pub function_verdicts: &'r mut [Verdict; VECTOR],
    /// What stream functions get of each packet.
    pub views: &'r mut [View; VECTOR],
    pub is_reverse: bool,
    pub now: u32,
    pub clock: fn() -> u64,
    /// The last value of the clock.
    pub ticks: u64,
    /// The chain translates its sessions.
    pub translates: bool,
    /// It translates sequence numbers in front of its stream functions.
    pub is_spliced: bool,
    /// Tickets that were given out before the vector.
    pub issued: u64,
}

/// Returns the room in the processes of instances behind a stream context. `number`: of their list in the
/// program.
fn process_room(
    states: &mut [Option<InstanceState>],
    held: &HeldPackets,
    active: &ActiveProgram,
    number: u16,
) -> Option<ProcessRoom> {
    let instances = active.program.apart.get(usize::from(number))?;
    let rooms = instances.iter().filter_map(|&instance| {
        let &at = active.states.get(usize::from(instance))?;
        Some((at as u32, states.get_mut(at)?.as_mut()?.placement.remote()?.room()))
    });
    Some(ProcessRoom::new(rooms, held)).filter(|room| !room.states.is_empty())
}

impl ChainRun<'_, '_> {
    /// Whether connections that have left the functions that edited them are translated behind the chain, and
    /// not in front of it: see `stream::edits::detached`.
    #[inline(always)]
    pub fn meets_detached_last(&self) -> bool {
        self.is_reverse != self.is_spliced
    }

    /// Takes packets through a chain. Returns those that pass.
    #[inline(always)]
    pub fn chain<S: ScratchpadSpace>(&mut self, body: BodyId, set: Set, space: &mut S) -> Set {
        let passed = if self.meets_detached_last() {
            let set = self.body(body, set, space);
            self.translate_detached(set)
        } else {
            let set = self.translate_detached(set);
            self.body(body, set, space)
        };
        if body == ChainId::NONE.0 {
            self.note_settled(set);
        }
        passed
    }

    /// Notes sessions without a chain that have no edits under way any more.
    #[cold]
    fn note_settled(&mut self, set: Set) {
        let RunnerState { edits: Some(memory), unread, .. } = &mut *self.state else { return };
        for packet in set.iter().filter_map(|i| self.packets.get(i)) {
            let is_new = unread.len() < unread.capacity() && unread.last() != Some(&packet.session);
            if is_new && memory.is_settled(packet.session.0, None) {
                unread.push(packet.session);
            }
        }
    }

    /// Translates the packets of sessions that have left the functions that edited them. Returns the packets
    /// that go on.
    #[inline(always)]
    pub fn translate_detached(&mut self, set: Set) -> Set {
        let has_any = |memory: &&mut EditMemory| !memory.detached.is_empty();
        match self.state.edits.as_deref_mut().filter(has_any) {
            Some(_) => self.translate_all_detached(set),
            None => set,
        }
    }

    #[cold]
    fn translate_all_detached(&mut self, mut set: Set) -> Set {
        let RunnerState { edits, emissions, .. } = &mut *self.state;
        let Some(memory) = edits else { return set };
        let emitted = emissions.len();
        for i in set.iter() {
            let Some(packet) = self.packets.get_mut(i) else { break };
            self.verdicts[i] = match memory.pass_detached(packet, i, emissions) {
                Verdict::Consume => ChainVerdict::Consume,
                Verdict::Refuse(reason) => ChainVerdict::Refuse(reason),
                _ => continue,
            };
            set.remove(i);
        }
        emissions.set_place(emitted, self.translates, self.is_spliced);
        set
    }

    /// Takes packets through a body. Returns those that reach its end.
    pub fn body<S: ScratchpadSpace>(&mut self, number: BodyId, set: Set, space: &mut S) -> Set {
        let active = self.active;
        let Some(body) = active.program.body(number) else { return set };
        self.nodes(if self.is_reverse { &body.reverse } else { &body.forward }, set, space)
    }

    /// Takes packets through some nodes. Returns those that reach the end.
    pub fn nodes<S: ScratchpadSpace>(&mut self, nodes: &[Node], mut set: Set, space: &mut S) -> Set {
        for node in nodes {
            if set.is_empty() {
                break;
            }
            set = match node {
                Node::Function(function) => {
                    let events = self.process(function, set, space);
                    if events.is_empty() { set } else { set.without(self.stop(events, space)) }
                }
                Node::Outputs { function, branch, diverges, outputs, arms } => {
                    let events = self.process(function, set, space);
                    self.branch((*branch, *diverges), (outputs, arms), (set, events), space)
                }
                Node::Choice { function, branch, outputs, arms } => {
                    let events = self.chosen(function, set, space);
                    match events.is_empty() {
                        true => set,
                        false => self.branch((*branch, false), (outputs, arms), (set, events), space),
                    }
                }
                Node::Dispatch { branch, arms, .. } => self.dispatch(*branch, arms, set, space),
                Node::StreamExit(context) => {
                    let events = self.call(context, set, space, |placement, vector| placement.exit(vector));
                    self.count_events(context.stage, events);
                    if events.is_empty() { set } else { set.without(self.stop(events, space)) }
                }
                Node::Translate => self.translate(set, space),
                Node::Flow { instance, stage, body } => self.flow(*instance, *stage, *body, set),
            };
        }
        set
    }

    /// Calls a function. Returns the packets that do not pass.
    #[inline(always)]
    fn process<S: ScratchpadSpace>(&mut self, function: &FunctionNode, set: Set, space: &mut S) -> Set {
        let events = self.call(function, set, space, |placement, vector| placement.process(vector));
        if function.edits
            && let Some(memory) = self.state.edits.as_deref_mut()
        {
            memory.datagrams.set_limits(|i| self.packets.get(i).map_or(0, |packet| space.mtu(packet)));
        }
        self.count(function.stage, set, events);
        if function.group.is_member && !events.is_empty() {
            self.drop_waiting(function.group.context, events, space.space());
        }
        events
    }

    /// Drops the segments that wait in a stream context, or go on from there, for sessions that a function
    /// behind it has ended: it would get them after its verdict.
    #[cold]
    fn drop_waiting(&mut self, context: u16, events: Set, space: u32) {
        let Some(&state) = self.active.states.get(usize::from(context)) else { return };
        for i in events.iter() {
            let ends = matches!(self.function_verdicts[i], Verdict::Refuse(_) | Verdict::End(_));
            if let Some(packet) = self.packets.get(i).filter(|_| ends) {
                let place = HeldPlace { space, session: packet.session.0, state: state as u32 };
                self.state.held.leave(place);
            }
        }
    }

    /// Calls a function by one of its methods. Returns the packets that do not pass.
    #[inline(always)]
    pub fn call<S: ScratchpadSpace>(
        &mut self,
        function: &FunctionNode,
        set: Set,
        space: &mut S,
        method: impl FnOnce(&mut Place, RawVector<'_, '_>) -> Set,
    ) -> Set {
        let ChainRun { state, active, packets, keyed, function_verdicts, views, now, .. } = self;
        let RunnerState { states, emissions, held, worker, edits, settings, unread, .. } = &mut **state;
        let on_overflow = settings.streams.overflow;
        let (now, worker, emitted) = (*now, *worker, emissions.len());
        let Some(&at) = active.states.get(usize::from(function.instance)) else { return Set::EMPTY };
        let room = function.apart.and_then(|number| process_room(states, held, active, number));
        let Some(&mut InstanceState { ref mut placement, keyed: ref mut entries, holds, .. }) =
            states.get_mut(at).and_then(Option::as_mut)
        else {
            return Set::EMPTY;
        };
        if holds {
            held.set_time(now);
        }
        let number = space.space();
        let holding = Holding { space: number, state: at as u32, ..Holding::new(held) };
        let (pads, bases) = space.pads();
        let (pads, bases, offset) = match entries {
            Some(entries) if function.is_keyed => {
                let (entries, starts) = entries.pads();
                prefetch_entries(set, (pads, bases, function.offset), (entries, starts), keyed);
                (entries, &**keyed, 0)
            }
            _ if function.is_keyed => return Set::EMPTY,
            _ => (pads, bases, function.offset as usize),
        };
        let vector = RawVector {
            packets,
            at: set,
            bases,
            pads,
            offset,
            verdicts: function_verdicts,
            views,
            keeps_bytes: function.keeps_bytes,
            group: function.group,
            edits: if function.edits { edits.as_deref_mut() } else { None },
            on_overflow,
            now,
            worker,
            emissions,
            holding,
            unread,
            room,
            stream_verdicts: None,
            events: Set::EMPTY,
        };
        let events = method(placement, vector);
        if emissions.len() > emitted {
            emissions.set_place(emitted, self.translates, function.after_translation);
            if let Some(splicer) = function.splicer {
                self.translate_sent(splicer, emitted, space);
            }
        }
        if self.state.watch.is_some() {
            self.note_visits(function, set, events);
        }
        events
    }

    /// Updates the counters of a stage.
    #[inline(always)]
    fn count(&mut self, stage: u16, set: Set, events: Set) {
        let now = (self.clock)();
        let ticks = now.wrapping_sub(self.ticks);
        self.ticks = now;
        let held = if events.is_empty() { 0 } else { self.state.held.take_newly_held() };
        let loaded = self.state.loaded_mut(self.active.number);
        let Some(counters) = loaded.and_then(|loaded| loaded.counters.get_mut(usize::from(stage))) else {
            return;
        };
        counters.packets += set.len() as u64;
        counters.vectors += 1;
        counters.ticks += ticks;
        if !events.is_empty() {
            counters.held += held;
            self.count_events(stage, events);
        }
    }

    /// Counts packets that go no further behind a stage.
    pub fn count_events(&mut self, stage: u16, events: Set) {
        let loaded = self.state.loaded_mut(self.active.number);
        let Some(counters) = loaded.and_then(|loaded| loaded.counters.get_mut(usize::from(stage))) else {
            return;
        };
        for i in events.iter() {
            match self.function_verdicts[i] {
                Verdict::Pass | Verdict::Branch(_) | Verdict::Hold => {}
                Verdict::Drop(_) => counters.drops += 1,
                Verdict::Consume => counters.consumed += 1,
                Verdict::Refuse(_) | Verdict::End(_) => {
                    (counters.drops, counters.refused) = (counters.drops + 1, counters.refused + 1)
                }
            }
        }
    }

    /// Writes the verdicts of packets that go no further. Returns these packets.
    #[inline(never)]
    pub fn stop<S: ScratchpadSpace>(&mut self, events: Set, space: &mut S) -> Set {
        for i in events.iter() {
            let verdict = std::mem::take(&mut self.function_verdicts[i]);
            if let Some(packet) = self.packets.get(i) {
                self.verdicts[i] = space.verdict(packet, verdict);
            }
        }
        events
    }

    /// Takes packets that have passed a function with outputs through its arms. `events` are those that do
    /// not go straight on.
    pub fn branch<S: ScratchpadSpace>(
        &mut self,
        branch: (BitField, bool),
        (outputs, arms): (&[u8], &[ArmTarget]),
        (set, events): (Set, Set),
        space: &mut S,
    ) -> Set {
        let arm_of = |verdict: Verdict| match verdict {
            Verdict::Branch(output) => outputs.get(usize::from(output)).map(|&arm| usize::from(arm)),
            _ => None,
        };
        let branching = events.filter(|i| arm_of(self.function_verdicts[i]).is_some());
        self.stop(events.without(branching), space);
        let (mut rest, mut out) = (branching, set.without(events));
        while let Some(first) = rest.lowest() {
            let arm = arm_of(self.function_verdicts[first]);
            let same = rest.filter(|i| arm_of(self.function_verdicts[i]) == arm);
            rest = rest.without(same);
            same.for_each(|i| self.function_verdicts[i] = Verdict::Pass);
            match arm.and_then(|arm| Some((arm, *arms.get(arm)?))) {
                Some((arm, ArmTarget::Body(body))) => {
                    self.enter_arm(arm, branch, arms, same, space);
                    out = out.union(self.body(body, same, space));
                }
                _ => self.drop(same, DropReason::ChainClass),
            }
        }
        out
    }

    pub fn drop(&mut self, set: Set, reason: DropReason) {
        set.for_each(|i| self.verdicts[i] = ChainVerdict::Drop(reason));
    }

    /// Makes the sessions of packets enter an arm, if they are not in it yet.
    fn enter_arm<S: ScratchpadSpace>(
        &mut self,
        arm: usize,
        (branch, diverges): (BitField, bool),
        arms: &[ArmTarget],
        set: Set,
        space: &mut S,
    ) {
        let bits = arm_bits(arm, diverges);
        let is_in = |header: Header| {
            let taken = branch.get(header.branches);
            if diverges { taken & bits != 0 } else { taken == bits }
        };
        let (pads, bases) = space.pads();
        let new = set.filter(|i| !is_in(Header::read(pads_from(pads, bases[i]))));
        for i in new.iter() {
            let Some(packet) = self.packets.get(i) else { break };
            let info = space.info(packet.session, self.now);
            let (number, pad) = (space.space(), space.pad(packet.session));
            let mut header = Header::read(pad);
            if is_in(header) {
                // An earlier packet of the vector has the same session.
                continue;
            }
            let before = branch.get(header.branches);
            let view = PacketView { head: packet.head, meta: packet.meta, direction: packet.direction };
            let (branches, info, packet) = (header.branches, &info, Some(&view));
            let mut call = SessionCall { space: number, pad, branches, info, packet, at: None };
            if !diverges {
                for left in taken_arms(before, false, arms.len()) {
                    if let ArmTarget::Body(body) = arms[left] {
                        self.state.leave(self.active, body, &mut call);
                    }
                }
            }
            let taken = match arms.get(arm) {
                Some(&ArmTarget::Body(body)) => {
                    self.state.enter(self.active, body, &mut call);
                    bits | if diverges { before } else { 0 }
                }
                _ => 0,
            };
            branch.set(&mut call.branches, taken);
            header.branches = call.branches;
            header.write(pad);
        }
    }

    /// Takes packets through the arms that their sessions have taken by traffic class.
    fn dispatch<S: ScratchpadSpace>(
        &mut self,
        branch: BitField,
        arms: &[DispatchArm],
        set: Set,
        space: &mut S,
    ) -> Set {
        let (mut rest, mut out) = (set, Set::EMPTY);
        while let Some(first) = rest.lowest() {
            let (pads, bases) = space.pads();
            let taken = |i: usize| branch.get(Header::read(pads_from(pads, bases[i])).branches);
            let arm = taken(first);
            let same = rest.filter(|i| taken(i) == arm);
            rest = rest.without(same);
            match arms.get((arm as usize).wrapping_sub(1)).map(|arm| arm.target) {
                Some(ArmTarget::Body(body)) => out = out.union(self.body(body, same, space)),
                Some(ArmTarget::Drop) | None => self.drop(same, DropReason::ChainClass),
            }
        }
        out
    }

    /// Translates packets. Returns those that go on.
    #[inline(never)]
    fn translate<S: ScratchpadSpace>(&mut self, set: Set, space: &mut S) -> Set {
        let (mut dropped, mut translate) = (Set::EMPTY, space.translator());
        let ChainRun { packets, verdicts, .. } = self;
        let mut one = |i: usize, packet: &mut Packet<'_>| {
            if let Err(reason) = translate(packet.flow_ref(), packet.head, packet.meta) {
                verdicts[i & (VECTOR - 1)] = ChainVerdict::Drop(reason);
                dropped.insert(i);
            }
        };
        if set == Set::first(packets.len()) {
            packets.iter_mut().enumerate().for_each(|(i, packet)| one(i, packet));
        } else {
            set.for_each(|i| packets.get_mut(i).into_iter().for_each(|packet| one(i, packet)));
        }
        set.without(dropped)
    }

    /// Takes packets through a function `flow` and everything behind it, in sessions of its own.
    fn flow(&mut self, instance: u16, stage: u16, body: BodyId, set: Set) -> Set {
        let Some(&number) = self.active.states.get(usize::from(instance)) else { return set };
        let state = self.state.states.get_mut(number).and_then(Option::as_mut);
        let Some(mut nested) = state.and_then(|state| state.nested.take()) else { return set };
        let mut entry = EntryContext {
            state: self.state,
            active: self.active,
            body,
            is_reverse: self.is_reverse,
            now: self.now,
        };
        let (inside, refused) = nested.enter(&mut entry, self.packets, set);
        for i in refused.iter() {
            self.verdicts[i] = ChainVerdict::Drop(nested.refusal(i));
        }
        self.count(stage, set, Set::EMPTY);
        let out = self.body(body, inside, &mut *nested);
        self.exit_flow(number, nested, inside);
        set.without(inside).without(refused).union(out)
    }

    /// Packets leave the sessions of a function `flow`.
    pub fn exit_flow(&mut self, number: usize, mut nested: Box<NestedSessions>, inside: Set) {
        if self.state.held.issued() != self.issued {
            for i in inside.iter().filter(|&i| self.verdicts[i] == ChainVerdict::Hold) {
                if let Some(packet) = self.packets.get(i) {
                    self.state.held.add_level(packet.meta.stage.ticket(), nested.level(packet));
                }
            }
        }
        nested.exit(self.packets, inside);
        nested.end_sessions(self.state, self.now);
        if let Some(state) = self.state.states.get_mut(number).and_then(Option::as_mut) {
            state.nested = Some(nested);
        }
    }
}
