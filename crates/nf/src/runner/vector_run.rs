//! A vector of packets with different chains and directions.
//!
//! Theory of operation. One pass prefetches the scratchpads before anything reads them. A second one reads
//! the chain of each packet's session, and the packet's direction. Most vectors have one chain and one
//! direction. Otherwise packets with the same chain and direction are processed together. A packet must not
//! overtake one of the other direction of its session, so a vector with both directions is cut into stretches
//! in which each session has one direction.

use mmb_flow::{Direction, FlowRef};
use mmb_packet::{DropReason, Meta};

use super::chain_run::ChainRun;
use super::prepare::{prefetch_pads, read_chains};
use super::scratchpads::SessionPads;
use super::state::RunnerState;
use super::types::{ChainVerdict, SessionAccess};
use crate::program::ir::BodyId;
use crate::set::{Set, VECTOR};
use crate::vector::NO_BASE;
use crate::{Packet, Verdict};

/// Buffers for a vector.
pub(super) struct Buffers {
    /// Start of each packet's scratchpad, in units of 8 bytes.
    bases: [u32; VECTOR],
    /// The same for functions with another key.
    keyed: [u32; VECTOR],
    /// All passing between two calls of functions.
    verdicts: [Verdict; VECTOR],
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
            chains: [(0, 0); VECTOR],
            seen: [(0, false); SEEN],
            stretch: 0,
        }
    }
}

/// Takes packets through the chains of their sessions.
pub(super) fn run(
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
    verdicts[..n].fill(ChainVerdict::Pass);
    let ticks = clock();
    let bytes = state.loaded(state.current).map_or(0, |loaded| loaded.program.bytes());
    prefetch_pads(packets, sessions, &mut buffers.bases, bytes);
    let (is_one_chain, reverse) = read_chains(packets, sessions, &buffers.bases, &mut buffers.chains);
    let emitted = state.emissions.len();
    let mut run = VectorRun { state, buffers, packets, sessions, verdicts, clock, now, ticks };
    let all = Set::first(n);
    if reverse.is_empty() || reverse == all {
        run.chains(all, reverse, is_one_chain);
    } else {
        let mut from = 0;
        while from < n {
            let to = run.stretch(from, n);
            run.chains(Set::between(from, to), reverse, is_one_chain);
            from = to;
        }
    }
    if state.emissions.len() > emitted {
        finish_emissions(state, packets, sessions);
    }
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
}

impl<A: SessionAccess> VectorRun<'_, '_, A> {
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

    /// Takes packets through their chains. Packets with the same chain and direction go together.
    fn chains(&mut self, set: Set, reverse: Set, is_one_chain: bool) {
        let VectorRun { state, buffers, packets, sessions, verdicts, clock, now, ticks } = self;
        let Buffers { bases, keyed, verdicts: function_verdicts, chains, .. } = &mut **buffers;
        let mut rest = set;
        while let Some(first) = rest.lowest() {
            let (number, body) = chains[first];
            let same = if is_one_chain { rest } else { rest.filter(|i| chains[i] == (number, body)) };
            rest = rest.without(same);
            let active = state.active(number);
            let Some(active) = active.filter(|active| usize::from(body) < active.program.chains.len()) else {
                // The session was not opened by this runner.
                same.for_each(|i| verdicts[i] = ChainVerdict::Drop(DropReason::ChainError));
                continue;
            };
            let chain = active.program.chains.get(usize::from(body));
            let translates = chain.is_some_and(|chain| chain.translates);
            for (set, is_reverse) in [(same.without(reverse), false), (same.and(reverse), true)] {
                if set.is_empty() {
                    continue;
                }
                let mut pads = SessionPads { sessions: &mut **sessions, bases };
                let mut run = ChainRun {
                    state,
                    active: &active,
                    packets,
                    verdicts,
                    keyed,
                    function_verdicts,
                    is_reverse,
                    now: *now,
                    clock: *clock,
                    ticks: *ticks,
                    translates,
                };
                run.body(body, set, &mut pads);
                *ticks = run.ticks;
            }
        }
    }
}

/// Sets the ports of emitted frames, and translates those that pass the translation of their session's
/// packets.
#[cold]
fn finish_emissions(state: &mut RunnerState, packets: &[Packet<'_>], sessions: &mut impl SessionAccess) {
    state
        .emissions
        .resolve(|i| packets.get(usize::from(i)).map(|packet| (packet.in_port, packet.meta.out_port)));
    state.emissions.translate(|i, is_egress, after_translation, frame| {
        let Some(packet) = packets.get(usize::from(i)) else { return true };
        let direction = if is_egress { packet.direction } else { packet.direction.opposite() };
        if after_translation != (direction == Direction::Reverse) {
            return true;
        }
        let mut meta = Meta::default();
        let is_parsed = mmb_packet::parse(frame, frame.len(), &mut meta).is_ok();
        is_parsed && sessions.translate(FlowRef::new(packet.session, direction), frame, &meta).is_ok()
    });
}
