//! A vector of packets with different chains and directions.
//!
//! Theory of operation. One pass reads the chain of each packet's session, which the caller has prefetched,
//! and the packet's direction. Most vectors have one chain and one direction. Otherwise packets with the same
//! chain and direction are processed together. A packet must not overtake one of the other direction of its
//! session, so a vector with both directions is cut into stretches in which each session has one direction.

use arrayvec::ArrayVec;
use mmb_flow::{Direction, FlowRef};
use mmb_packet::DropReason;
use mmb_stream::View;

use super::chain_run::{ChainRun, Target};
use super::prepare::read_chains;
use super::scratchpads::SessionPads;
use super::state::{ActiveProgram, RunnerState};
use super::types::{ChainVerdict, SessionAccess};
use crate::held::Resumed;
use crate::program::ir::BodyId;
use crate::set::{Set, VECTOR};
use crate::vector::NO_BASE;
use crate::{Packet, Verdict};

/// Buffers for a vector.
pub(super) struct Buffers {
    /// Start of each packet's scratchpad, in units of 8 bytes.
    bases: [u32; VECTOR],
    /// Start of the scratchpad of functions with another key.
    keyed: [u32; VECTOR],
    /// Verdicts of the function that runs; all pass between two calls.
    verdicts: [Verdict; VECTOR],
    /// What stream functions get of each packet.
    views: [View; VECTOR],
    /// Program and body of each packet's session.
    chains: [(u16, BodyId); VECTOR],
    /// Indexed by the lowest bits of session numbers: the stretch in which a session was seen last, and
    /// whether in reverse direction.
    seen: [(u32, bool); SEEN],
    stretch: u32,
}

/// Entries of [`Buffers::seen`]. More than packets in a vector, so that sessions seldom share an entry.
const SEEN: usize = 1024;

impl Default for Buffers {
    fn default() -> Self {
        Buffers {
            bases: [NO_BASE; VECTOR],
            keyed: [NO_BASE; VECTOR],
            verdicts: [Verdict::Pass; VECTOR],
            views: [View::NONE; VECTOR],
            chains: [(0, 0); VECTOR],
            seen: [(0, false); SEEN],
            stretch: 0,
        }
    }
}

/// Takes packets through the chains of their sessions. Returns whether all have passed.
pub(super) fn run(
    state: &mut RunnerState,
    buffers: &mut Buffers,
    clock: fn() -> u64,
    now: u32,
    packets: &mut [Packet<'_>],
    sessions: &mut impl SessionAccess,
    verdicts: &mut [ChainVerdict; VECTOR],
) -> bool {
    let n = packets.len().min(VECTOR);
    let Some(packets) = packets.get_mut(..n).filter(|packets| !packets.is_empty()) else { return true };
    let (mut run, is_one_chain, reverse) =
        VectorRun::begin(state, buffers, (clock, now), packets, sessions, verdicts);
    let (all, mut passed) = (Set::first(n), Set::EMPTY);
    if reverse.is_empty() || reverse == all {
        passed = run.chains(all, reverse, is_one_chain);
    } else {
        let mut from = 0;
        while from < n {
            let to = run.stretch(from, n);
            passed = passed.union(run.chains(Set::between(from, to), reverse, is_one_chain));
            from = to;
        }
    }
    run.end();
    passed == all
}

/// Takes released packets on, from behind the functions that held them.
pub(super) fn resume(
    state: &mut RunnerState,
    buffers: &mut Buffers,
    clock: fn() -> u64,
    now: u32,
    packets: &mut [Packet<'_>],
    sessions: &mut impl SessionAccess,
    verdicts: &mut [ChainVerdict; VECTOR],
) {
    let n = packets.len().min(VECTOR);
    let Some(packets) = packets.get_mut(..n).filter(|packets| !packets.is_empty()) else { return };
    let (mut run, _, _) = VectorRun::begin(state, buffers, (clock, now), packets, sessions, verdicts);
    let mut from = 0;
    while from < n {
        from = run.resume(from, n);
    }
    run.end();
}

struct VectorRun<'r, 'p, A> {
    state: &'r mut RunnerState,
    buffers: &'r mut Buffers,
    packets: &'r mut [Packet<'p>],
    sessions: &'r mut A,
    verdicts: &'r mut [ChainVerdict; VECTOR],
    clock: fn() -> u64,
    now: u32,
    /// The last value of the clock.
    ticks: u64,
    /// Emissions, and tickets of held packets, before the vector.
    emitted: usize,
    issued: u64,
}

impl<'r, 'p, A: SessionAccess> VectorRun<'r, 'p, A> {
    /// Prepares a vector. Returns also whether all packets pass one chain, and the packets in reverse
    /// direction.
    #[inline(always)]
    fn begin(
        state: &'r mut RunnerState,
        buffers: &'r mut Buffers,
        (clock, now): (fn() -> u64, u32),
        packets: &'r mut [Packet<'p>],
        sessions: &'r mut A,
        verdicts: &'r mut [ChainVerdict; VECTOR],
    ) -> (Self, bool, Set) {
        verdicts[..packets.len()].fill(ChainVerdict::Pass);
        let ticks = clock();
        let Buffers { bases, chains, .. } = &mut *buffers;
        let (is_one_chain, reverse) = read_chains(packets, sessions, bases, chains);
        let (emitted, issued) = (state.emissions.len(), state.held.issued());
        let run =
            VectorRun { state, buffers, packets, sessions, verdicts, clock, now, ticks, emitted, issued };
        (run, is_one_chain, reverse)
    }

    /// Completes emitted frames and held packets.
    #[inline(always)]
    fn end(self) {
        if self.state.emissions.len() > self.emitted {
            finish_emissions(self.state, self.packets, self.sessions);
        }
        if self.state.held.issued() != self.issued {
            finish_held(self.state, self.packets, self.sessions, self.verdicts);
        }
    }

    /// Returns the end of the stretch that begins at `from`: the first packet whose session has a packet of
    /// the other direction in it.
    fn stretch(&mut self, from: usize, n: usize) -> usize {
        self.buffers.stretch = self.buffers.stretch.wrapping_add(1);
        let stretch = self.buffers.stretch;
        for (i, packet) in self.packets.iter().enumerate().take(n).skip(from) {
            let is_reverse = packet.direction == Direction::Reverse;
            let seen = &mut self.buffers.seen[packet.session.0 as usize % SEEN];
            if *seen == (stretch, !is_reverse) {
                return i;
            }
            *seen = (stretch, is_reverse);
        }
        n
    }

    /// Takes packets through their chains. Packets with the same chain and direction go together. Returns
    /// those that pass.
    fn chains(&mut self, set: Set, reverse: Set, is_one_chain: bool) -> Set {
        let (mut rest, mut passed) = (set, Set::EMPTY);
        while let Some(first) = rest.lowest() {
            let chains = &self.buffers.chains;
            let chain = chains[first];
            let same = if is_one_chain { rest } else { rest.filter(|i| chains[i] == chain) };
            rest = rest.without(same);
            let Some(active) = self.active(chain) else {
                // The session was not opened by this runner.
                same.for_each(|i| self.verdicts[i] = ChainVerdict::Drop(DropReason::ChainError));
                continue;
            };
            for (set, is_reverse) in [(same.without(reverse), false), (same.and(reverse), true)] {
                if !set.is_empty() {
                    let set = self
                        .with_chain(&active, chain.1, is_reverse, |run, pads| run.chain(chain.1, set, pads));
                    passed = passed.union(set);
                }
            }
        }
        passed
    }

    /// Returns the program with a number, if it has the chain.
    #[inline(always)]
    fn active(&self, (number, body): (u16, BodyId)) -> Option<ActiveProgram> {
        self.state.active(number).filter(|active| {
            usize::from(body) < active.program.chains.len() || body == crate::ChainId::NONE.0
        })
    }

    /// Calls a closure that takes packets through a chain. Returns the packets that the closure returns.
    #[inline(always)]
    fn with_chain(
        &mut self,
        active: &ActiveProgram,
        body: BodyId,
        is_reverse: bool,
        f: impl FnOnce(&mut ChainRun<'_, 'p>, &mut SessionPads<'_, A>) -> Set,
    ) -> Set {
        let VectorRun { state, buffers, packets, sessions, verdicts, clock, now, ticks, issued, .. } = self;
        let Buffers { bases, keyed, verdicts: function_verdicts, views, .. } = &mut **buffers;
        let chain = active.program.chains.get(usize::from(body));
        let mut pads = SessionPads { sessions: &mut **sessions, bases };
        let mut run = ChainRun {
            state,
            active,
            packets,
            verdicts,
            keyed,
            function_verdicts,
            views,
            is_reverse,
            now: *now,
            clock: *clock,
            ticks: *ticks,
            translates: chain.is_some_and(|chain| chain.translates),
            is_spliced: chain.is_some_and(|chain| chain.is_spliced),
            issued: *issued,
        };
        let set = f(&mut run, &mut pads);
        *ticks = run.ticks;
        set
    }

    /// Takes released packets on, from position `from`: as many as one function has released in one chain and
    /// direction. Returns the position of the next packet.
    fn resume(&mut self, from: usize, n: usize) -> usize {
        let mut resumed: ArrayVec<Resumed, VECTOR> = ArrayVec::new();
        let place = |run: &Self, at: usize| (run.buffers.chains[at], run.packets[at].direction);
        let ((chain, direction), mut to) = (place(self, from), from);
        while to < n {
            let (ticket, session) = (self.packets[to].meta.stage.ticket(), self.packets[to].session);
            let taken = self.state.held.taken(ticket).and_then(|one| match self.sessions.uid(session) {
                Some(uid) if uid == one.uid => Ok(one),
                _ => Err(DropReason::HeldEnded),
            });
            let is_same = |one: &Resumed| match resumed.first() {
                Some(first) => first.has_place_of(one) && place(self, to) == (chain, direction),
                None => true,
            };
            match taken {
                Ok(one) if is_same(&one) => resumed.push(one),
                Ok(_) => break,
                Err(_) if to > from => break,
                Err(reason) => {
                    self.state.held.finish(ticket);
                    self.verdicts[to] = ChainVerdict::Drop(reason);
                    return to + 1;
                }
            }
            to += 1;
        }
        (from..to).for_each(|i| self.state.held.finish(self.packets[i].meta.stage.ticket()));
        let (set, state) = (Set::between(from, to), resumed.first().map(|one| one.state as usize));
        let active = self.active(chain).and_then(|active| {
            let instance = active.states.iter().position(|&known| Some(known) == state)?;
            Some((active, instance as u16))
        });
        let Some((active, instance)) = active else {
            set.for_each(|i| self.verdicts[i] = ChainVerdict::Drop(DropReason::HeldEnded));
            return to;
        };
        let target = &Target { first: from, packets: &resumed };
        self.with_chain(&active, chain.1, direction == Direction::Reverse, |run, pads| {
            let set = run.resume(chain.1, (instance, target, 0), set, pads);
            if run.meets_detached_last() { run.translate_detached(set) } else { set }
        });
        to
    }
}

/// Sets the ports of emitted frames, and translates what is left to translate for those that receive
/// them.
#[cold]
fn finish_emissions(state: &mut RunnerState, packets: &[Packet<'_>], sessions: &mut impl SessionAccess) {
    let first = state
        .emissions
        .resolve(|i| packets.get(usize::from(i)).map(|packet| (packet.in_port, packet.meta.out_port)));
    state.emissions.finish(first, |i, is_egress, after_translation, frame| {
        let Some(packet) = packets.get(usize::from(i)) else { return true };
        let direction = if is_egress { packet.direction } else { packet.direction.opposite() };
        let has_addresses = match after_translation {
            Some(is_after) => is_after != (direction == Direction::Reverse),
            // The packet came translated. Its frame has the addresses that the receiver of the packet knows.
            None => is_egress,
        };
        sessions.finish_emission(FlowRef::new(packet.session, direction), has_addresses, frame)
    });
}

/// Notes the sessions of packets that functions have begun to hold.
#[cold]
fn finish_held(
    state: &mut RunnerState,
    packets: &[Packet<'_>],
    sessions: &impl SessionAccess,
    verdicts: &[ChainVerdict; VECTOR],
) {
    for (packet, _) in packets.iter().zip(verdicts).filter(|(_, verdict)| **verdict == ChainVerdict::Hold) {
        if let Some(uid) = sessions.uid(packet.session) {
            state.held.set_uid(packet.meta.stage.ticket(), uid);
        }
    }
}
