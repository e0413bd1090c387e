//! Packets through chains.
//!
//! Theory of operation. The vector's scratchpads are asked for in one pass, before anything reads them; a second one reads
//! which chain each packet's session goes through, and in which direction the packet goes. Most vectors have one of each.
//! Otherwise packets are taken together that have the same. They then go through the nodes of the chain's body one by one,
//! all packets of a node before the next node: a function's code and the instance stay near while the scratchpads come.
//!
//! Which packets are meant is a set of positions. Where ways part, one set after the other goes its way, and they are put
//! together again behind the bracket. What a packet's fate is has been written when it leaves its set.

use std::sync::Arc;

use mmb_flow::{Direction, FlowRef};
use mmb_packet::{DropReason, Meta};

use super::core::{Call, Core, On, State, arm_bits, taken_arms};
use super::header::{Header, at, at_mut};
use super::passes::{find_chains, find_entries, find_pads};
use super::second::Way;
use super::space::{Outer, Space};
use super::{ChainVerdict, SessionAccess};
use crate::program::ir::{Bits, BodyNo, ClassArm, End, Node, Place};
use crate::set::{Set, VECTOR};
use crate::vector::{NO_BASE, RawVector};
use crate::{Packet, PacketView, Verdict};

/// What packets on their way need room for.
pub(super) struct Work {
    /// Where each packet's scratchpad begins, in units of 8 bytes.
    bases: [u32; VECTOR],
    /// The same of functions with another key.
    keyed: [u32; VECTOR],
    /// All passing, but while they are looked at.
    verdicts: [Verdict; VECTOR],
    /// Which program and body each packet's session goes through.
    who: [(u16, BodyNo); VECTOR],
    /// By the lowest bits of sessions' numbers: in which stretch of a vector and in which direction one was last met.
    met: [(u32, bool); MET],
    stretch: u32,
}

/// More than packets in a vector, so that different sessions seldom meet.
const MET: usize = 1024;

impl Default for Work {
    fn default() -> Self {
        Work {
            bases: [NO_BASE; VECTOR],
            keyed: [NO_BASE; VECTOR],
            verdicts: [Verdict::Pass; VECTOR],
            who: [(0, 0); VECTOR],
            met: [(0, false); MET],
            stretch: 0,
        }
    }
}

/// Packets of one chain and direction on their way.
struct Run<'r, 'p> {
    core: &'r mut Core,
    on: &'r On,
    packets: &'r mut [Packet<'p>],
    fates: &'r mut [ChainVerdict; VECTOR],
    keyed: &'r mut [u32; VECTOR],
    verdicts: &'r mut [Verdict; VECTOR],
    /// The packets are the other sides'.
    back: bool,
    now: u32,
    clock: fn() -> u64,
    /// What the clock said last.
    last: u64,
    /// Sessions are translated in the chain.
    translates: bool,
}

/// Takes packets through the chains of their sessions.
pub(super) fn run(
    core: &mut Core,
    work: &mut Work,
    clock: fn() -> u64,
    now: u32,
    packets: &mut [Packet<'_>],
    ground: &mut impl SessionAccess,
    fates: &mut [ChainVerdict; VECTOR],
) {
    let n = packets.len().min(VECTOR);
    let Some(packets) = packets.get_mut(..n).filter(|packets| !packets.is_empty()) else { return };
    fates[..n].fill(ChainVerdict::Pass);
    let last = clock();
    let bytes = core.loaded(core.current).map_or(0, |loaded| loaded.program.bytes());
    find_pads(packets, ground, &mut work.bases, bytes);
    let (same, backs) = find_chains(packets, ground, &work.bases, &mut work.who);
    let emitted = core.emissions.len();
    let mut run = Round { core, work, packets, ground, fates, clock, now, last };
    let all = Set::first(n);
    if backs.is_empty() || backs == all {
        run.chains(all, backs, same);
    } else {
        let mut from = 0;
        while from < n {
            let to = run.stretch(from, n);
            run.chains(Set::between(from, to), backs, same);
            from = to;
        }
    }
    if core.emissions.len() > emitted {
        finish_emissions(core, packets, ground);
    }
}

/// A vector on its way.
struct Round<'r, 'p, G> {
    core: &'r mut Core,
    work: &'r mut Work,
    packets: &'r mut [Packet<'p>],
    ground: &'r mut G,
    fates: &'r mut [ChainVerdict; VECTOR],
    clock: fn() -> u64,
    now: u32,
    last: u64,
}

impl<G: SessionAccess> Round<'_, '_, G> {
    /// Where the stretch ends that begins at `from`: before the first packet whose session has one of the other direction in
    /// it, which must not be overtaken.
    fn stretch(&mut self, from: usize, n: usize) -> usize {
        self.work.stretch = self.work.stretch.wrapping_add(1);
        let stretch = self.work.stretch;
        for (i, packet) in self.packets.iter().enumerate().take(n).skip(from) {
            let back = packet.direction == Direction::Reverse;
            let met = &mut self.work.met[packet.session.0 as usize % MET];
            if *met == (stretch, !back) {
                return i;
            }
            *met = (stretch, back);
        }
        n
    }

    /// Takes packets through their chains, those of one chain and direction together.
    fn chains(&mut self, set: Set, backs: Set, same: bool) {
        let Round { core, work, packets, ground, fates, clock, now, last } = self;
        let Work { bases, keyed, verdicts, who, .. } = &mut **work;
        let mut rest = set;
        while let Some(first) = rest.lowest() {
            let (number, body) = who[first];
            let mine = if same { rest } else { rest.of(|i| who[i] == (number, body)) };
            rest = rest.without(mine);
            let Some(on) = core.on(number).filter(|on| usize::from(body) < on.program.chains.len()) else {
                // Not a session that was opened here.
                mine.for_each(|i| fates[i] = ChainVerdict::Drop(DropReason::ChainError));
                continue;
            };
            let translates = on.program.chains.get(usize::from(body)).is_some_and(|chain| chain.translates);
            for (set, back) in [(mine.without(backs), false), (mine.and(backs), true)] {
                if set.is_empty() {
                    continue;
                }
                let mut space = Outer { ground: &mut **ground, bases };
                let (now, clock, last_tick) = (*now, *clock, *last);
                let mut run = Run {
                    core,
                    on: &on,
                    packets,
                    fates,
                    keyed,
                    verdicts,
                    back,
                    now,
                    clock,
                    last: last_tick,
                    translates,
                };
                run.body(body, set, &mut space);
                *last = run.last;
            }
        }
    }
}

/// Says where emitted frames go, and translates those that pass the place where their sessions' packets are.
#[cold]
fn finish_emissions(core: &mut Core, packets: &[Packet<'_>], ground: &mut impl SessionAccess) {
    core.emissions
        .resolve(|i| packets.get(usize::from(i)).map(|packet| (packet.in_port, packet.meta.out_port)));
    core.emissions.translate(|i, onward, behind, frame| {
        let Some(packet) = packets.get(usize::from(i)) else { return true };
        let travels = if onward { packet.direction } else { packet.direction.opposite() };
        if behind != (travels == Direction::Reverse) {
            return true;
        }
        let mut meta = Meta::default();
        let parsed = mmb_packet::parse(frame, frame.len(), &mut meta).is_ok();
        parsed && ground.translate(FlowRef::new(packet.session, travels), frame, &meta).is_ok()
    });
}

impl Run<'_, '_> {
    /// Takes packets through a body: those that come out at its end.
    fn body<S: Space>(&mut self, number: BodyNo, mut set: Set, space: &mut S) -> Set {
        let program: &Arc<crate::Program> = &self.on.program;
        let Some(body) = program.body(number) else { return set };
        let nodes = if self.back { &body.back } else { &body.there };
        for node in nodes {
            if set.is_empty() {
                break;
            }
            set = match node {
                Node::Function(place) => {
                    let events = self.stage(place, set, space);
                    if events.is_empty() { set } else { set.without(self.judge(place, events, space)) }
                }
                Node::Outputs { place, ways, diverges, outputs, arms } => {
                    self.outputs(place, (*ways, *diverges), (outputs, arms), set, space)
                }
                Node::Class { ways, arms, .. } => self.dispatch(*ways, arms, set, space),
                Node::Translate => self.translate(set, space),
                Node::Flow { instance, stage, body } => self.flow(*instance, *stage, *body, set),
            };
        }
        set
    }

    /// Asks a function about packets: those that do not pass.
    #[inline(always)]
    fn stage<S: Space>(&mut self, place: &Place, set: Set, space: &mut S) -> Set {
        let Run { core, on, packets, keyed, verdicts, now, .. } = self;
        let Core { states, emissions, worker, .. } = &mut **core;
        let (now, worker, emitted) = (*now, *worker, emissions.len());
        let Some(&at) = on.states.get(usize::from(place.instance)) else { return Set::EMPTY };
        let Some(State { instance, local, keyed: entries, .. }) = states.get_mut(at).and_then(Option::as_mut)
        else {
            return Set::EMPTY;
        };
        let (pads, bases) = space.pads();
        let (pads, bases, offset) = match entries {
            Some(entries) if place.keyed => {
                let (entries, stride) = entries.pads();
                find_entries(set, (pads, bases, place.offset), (entries, stride), keyed);
                (entries, &**keyed, 0)
            }
            _ if place.keyed => return Set::EMPTY,
            _ => (pads, bases, place.offset as usize),
        };
        let raw = RawVector {
            packets,
            at: set,
            bases,
            pads,
            offset,
            verdicts,
            now,
            worker,
            emissions,
            events: Set::EMPTY,
        };
        let events = instance.function.vector(raw, &mut **local);
        if emissions.len() > emitted {
            emissions.mark(emitted, self.translates, place.behind);
        }
        self.count(place.stage, set, events);
        events
    }

    /// Counts what a stage has done.
    #[inline(always)]
    fn count(&mut self, stage: u16, set: Set, events: Set) {
        let now = (self.clock)();
        let ticks = now.wrapping_sub(self.last);
        self.last = now;
        let number = self.on.number;
        if let Some(counts) =
            self.core.loaded_mut(number).and_then(|loaded| loaded.counts.get_mut(usize::from(stage)))
        {
            counts.packets += set.len() as u64;
            counts.vectors += 1;
            counts.ticks += ticks;
            if !events.is_empty() {
                for i in events.iter() {
                    match self.verdicts[i] {
                        Verdict::Pass | Verdict::Branch(_) => {}
                        Verdict::Drop(_) => counts.drops += 1,
                        Verdict::Refuse(_) | Verdict::End(_) => {
                            (counts.drops, counts.refused) = (counts.drops + 1, counts.refused + 1)
                        }
                    }
                }
            }
        }
    }

    /// Writes the fates of packets that are not to pass, all of which go no further.
    #[inline(never)]
    fn judge<S: Space>(&mut self, _: &Place, events: Set, space: &mut S) -> Set {
        for i in events.iter() {
            let verdict = std::mem::take(&mut self.verdicts[i]);
            if let Some(packet) = self.packets.get(i) {
                self.fates[i] = space.fate(packet, verdict);
            }
        }
        events
    }

    /// A function with outputs, and what is behind them.
    fn outputs<S: Space>(
        &mut self,
        place: &Place,
        ways: (Bits, bool),
        (outputs, arms): (&[u8], &[End]),
        set: Set,
        space: &mut S,
    ) -> Set {
        let events = self.stage(place, set, space);
        let arm_of = |verdict: Verdict| match verdict {
            Verdict::Branch(output) => outputs.get(usize::from(output)).map(|&arm| usize::from(arm)),
            _ => None,
        };
        let branching = events.of(|i| arm_of(self.verdicts[i]).is_some());
        self.judge(place, events.without(branching), space);
        let (mut rest, mut out) = (branching, set.without(events));
        while let Some(first) = rest.lowest() {
            let arm = arm_of(self.verdicts[first]);
            let mine = rest.of(|i| arm_of(self.verdicts[i]) == arm);
            rest = rest.without(mine);
            mine.for_each(|i| self.verdicts[i] = Verdict::Pass);
            match arm.and_then(|arm| Some((arm, *arms.get(arm)?))) {
                Some((arm, End::Body(body))) => {
                    self.go_into(arm, ways, arms, mine, space);
                    out = out.union(self.body(body, mine, space));
                }
                _ => self.drop(mine, DropReason::ChainClass),
            }
        }
        out
    }

    fn drop(&mut self, set: Set, reason: DropReason) {
        set.for_each(|i| self.fates[i] = ChainVerdict::Drop(reason));
    }

    /// Sees to it that the sessions of packets have entered an arm.
    fn go_into<S: Space>(
        &mut self,
        arm: usize,
        (ways, diverges): (Bits, bool),
        arms: &[End],
        set: Set,
        space: &mut S,
    ) {
        let bits = arm_bits(arm, diverges);
        let is_in = |header: Header| {
            if diverges { ways.get(header.ways) & bits != 0 } else { ways.get(header.ways) == bits }
        };
        let (pads, bases) = space.pads();
        let fresh = set.of(|i| !is_in(Header::of(at(pads, bases[i]))));
        for i in fresh.iter() {
            let Some(packet) = self.packets.get(i) else { break };
            let info = space.info(packet.session, self.now);
            let stride = space.stride();
            let (pads, bases) = space.pads();
            let pad = at_mut(pads, bases[i], stride);
            let mut header = Header::of(pad);
            if is_in(header) {
                // By a packet of the same session before this one.
                continue;
            }
            let opener = PacketView { head: packet.head, meta: packet.meta, direction: packet.direction };
            let mut call = Call { pad, ways: header.ways, info: &info, opener: Some(&opener), at: None };
            let mut taken = bits | if diverges { ways.get(header.ways) } else { 0 };
            if !diverges {
                for before in taken_arms(ways.get(header.ways), false, arms.len()) {
                    if let End::Body(body) = arms[before] {
                        self.core.leave(self.on, body, &mut call);
                    }
                }
            }
            match arms.get(arm) {
                Some(&End::Body(body)) => self.core.enter(self.on, body, &mut call),
                _ => taken = 0,
            }
            ways.set(&mut call.ways, taken);
            header.ways = call.ways;
            header.put(pad);
        }
    }

    /// The ways that sessions have taken by the traffic that they are.
    fn dispatch<S: Space>(&mut self, ways: Bits, arms: &[ClassArm], set: Set, space: &mut S) -> Set {
        let (mut rest, mut out) = (set, Set::EMPTY);
        while let Some(first) = rest.lowest() {
            let (pads, bases) = space.pads();
            let taken = |i: usize| ways.get(Header::of(at(pads, bases[i])).ways);
            let arm = taken(first);
            let mine = rest.of(|i| taken(i) == arm);
            rest = rest.without(mine);
            match arms.get((arm as usize).wrapping_sub(1)).map(|arm| arm.end) {
                Some(End::Body(body)) => out = out.union(self.body(body, mine, space)),
                Some(End::Drop) | None => self.drop(mine, DropReason::ChainClass),
            }
        }
        out
    }

    fn translate<S: Space>(&mut self, set: Set, space: &mut S) -> Set {
        let mut dropped = Set::EMPTY;
        for i in set.iter() {
            let Some(packet) = self.packets.get_mut(i) else { break };
            if let Err(reason) = space.translate(packet.found(), packet.head, packet.meta) {
                self.fates[i] = ChainVerdict::Drop(reason);
                dropped.insert(i);
            }
        }
        set.without(dropped)
    }

    /// Other sessions, and what is behind.
    fn flow(&mut self, instance: u16, stage: u16, body: BodyNo, set: Set) -> Set {
        let Some(&number) = self.on.states.get(usize::from(instance)) else { return set };
        let taken =
            self.core.states.get_mut(number).and_then(Option::as_mut).and_then(|state| state.second.take());
        let Some(mut second) = taken else { return set };
        let mut way = Way { core: self.core, on: self.on, body, back: self.back, now: self.now };
        let (inside, refused) = second.go_in(&mut way, self.packets, set);
        for i in refused.iter() {
            self.fates[i] = ChainVerdict::Drop(second.refusal(i));
        }
        self.count(stage, set, Set::EMPTY);
        let out = self.body(body, inside, &mut *second);
        second.go_out(self.packets, inside);
        second.end_some(self.core, self.now);
        if let Some(state) = self.core.states.get_mut(number).and_then(Option::as_mut) {
            state.second = Some(second);
        }
        set.without(inside).without(refused).union(out)
    }
}
