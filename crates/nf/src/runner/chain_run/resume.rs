//! Released packets go on behind the function that held them.
//!
//! Theory of operation. An instance is on the path of a session once, so its node is found by following the
//! arms that the session has taken. The nodes in front of it are left out. Where a function `flow` is in
//! front of it, packets return to the sessions that they had there.

use mmb_packet::DropReason;
use mmb_stream::View;

use super::ChainRun;
use crate::held::{HeldLevel, NO_BUFFER, Resumed};
use crate::program::ir::{ArmTarget, BitField, BodyId, FunctionNode, Node, taken_arms};
use crate::runner::header::{Header, pads_from};
use crate::runner::placement::Placement;
use crate::runner::scratchpads::ScratchpadSpace;
use crate::runner::state::RunnerState;
use crate::set::{Set, VECTOR};
use crate::stream::{Returned, raise_stamp};
use crate::{OnFailure, Program, Verdict};

/// Packets that one function has released.
pub(in crate::runner) struct Target<'a> {
    /// Position of the first packet.
    pub first: usize,
    /// The facts about the packets, in the order of their positions.
    pub packets: &'a [Resumed],
}

/// The next function of a packet, if it runs in a process of the same domain.
#[derive(Clone, Copy)]
struct NextInDomain {
    /// Index of its state.
    state: usize,
    /// The bytes are copied back all the same.
    copies: bool,
}

impl Target<'_> {
    fn get(&self, i: usize) -> Option<&Resumed> {
        self.packets.get(i.checked_sub(self.first)?)
    }

    fn verdict(&self, i: usize) -> Option<Verdict> {
        self.get(i)?.verdict
    }

    /// Returns the session of a packet in the function `flow` with so many functions `flow` in front of it.
    fn level(&self, i: usize, depth: usize) -> Option<HeldLevel> {
        let levels = &self.get(i)?.levels;
        levels.get(levels.len().checked_sub(depth + 1)?).copied()
    }
}

/// The instance that has released packets, the packets, and the number of functions `flow` in front of a
/// body.
type Path<'a> = (u16, &'a Target<'a>, usize);

/// Whether a body, or an arm of it, has an instance.
fn has_instance(program: &Program, body: BodyId, instance: u16) -> bool {
    let Some(body) = program.body(body) else { return false };
    body.forward.iter().any(|node| leads_to(program, node, instance))
}

/// Whether a node, or an arm of it, has an instance.
fn leads_to(program: &Program, node: &Node, instance: u16) -> bool {
    let in_arm = |target| match target {
        ArmTarget::Body(body) => has_instance(program, body, instance),
        ArmTarget::Drop => false,
    };
    match node {
        Node::Flow { body, .. } => has_instance(program, *body, instance),
        _ => node.function().is_some_and(|function| function.instance == instance) || node.arms().any(in_arm),
    }
}

impl ChainRun<'_, '_> {
    /// Takes released packets through what follows in a body. Returns those that reach its end.
    pub(in crate::runner) fn resume<S: ScratchpadSpace>(
        &mut self,
        body: BodyId,
        (instance, target, depth): Path<'_>,
        set: Set,
        space: &mut S,
    ) -> Set {
        let active = self.active;
        let nodes: &[Node] = match active.program.body(body) {
            Some(body) if self.is_reverse => &body.reverse,
            Some(body) => &body.forward,
            None => &[],
        };
        let Some(at) = nodes.iter().position(|node| leads_to(&active.program, node, instance)) else {
            // The function has left the chain.
            self.drop(set, DropReason::HeldEnded);
            return Set::EMPTY;
        };
        let set = match &nodes[at] {
            Node::Function(function) => {
                let next = self.next_in_domain(function, nodes.get(at + 1));
                let events = self.resume_at((function, next), target, set, space);
                if events.is_empty() { set } else { set.without(self.stop(events, space)) }
            }
            Node::Outputs { function, branch, diverges, outputs, arms } => {
                if function.instance == instance {
                    let events = self.resume_at((function, None), target, set, space);
                    self.branch((*branch, *diverges), (outputs, arms), (set, events), space)
                } else {
                    let arms = arms.iter().copied();
                    self.resume_arms((*branch, *diverges), arms, (instance, target, depth), set, space)
                }
            }
            Node::Choice { branch, arms, .. } => {
                let arms = arms.iter().copied();
                self.resume_arms((*branch, false), arms, (instance, target, depth), set, space)
            }
            Node::Dispatch { branch, arms, .. } => {
                let arms = arms.iter().map(|arm| arm.target);
                self.resume_arms((*branch, false), arms, (instance, target, depth), set, space)
            }
            Node::Flow { instance: flow, body, .. } => {
                self.resume_flow(*flow, *body, (instance, target, depth), set)
            }
            Node::Translate | Node::StreamExit(_) => set,
        };
        self.nodes(&nodes[at + 1..], set, space)
    }

    /// Asks a function about packets that it held. Packets that it has passed before keep their verdicts.
    /// Packets that came back from a process are copied, or the next function gets their buffers. Returns the
    /// packets that do not pass.
    fn resume_at<S: ScratchpadSpace>(
        &mut self,
        (function, next): (&FunctionNode, Option<NextInDomain>),
        target: &Target<'_>,
        set: Set,
        space: &mut S,
    ) -> Set {
        let held = set.filter(|i| target.verdict(i).is_none());
        set.for_each(|i| {
            let one = target.get(i);
            self.views[i & (VECTOR - 1)] = one.map_or(View::NONE, |one| one.view);
            if let Some(stamp) = one.and_then(|one| one.stamp)
                && let Some(packet) = self.packets.get_mut(i)
            {
                raise_stamp(packet, stamp);
            }
        });
        let state = self.state.state(self.active, function.instance);
        if let Some(remote) = state.and_then(|state| state.placement.remote()) {
            held.iter().filter_map(|i| Some((i, target.get(i)?))).for_each(|(i, one)| {
                let Resumed { returned: verdict, buffer, rights, rope, .. } = *one;
                remote.set_returned(i, Returned { verdict, buffer, rights, rope });
            });
        }
        let mut events = self.call(function, held, space, |placement, vector| placement.resume(vector));
        let released = held.filter(|i| target.get(i).is_some_and(|one| !one.is_follower));
        self.count_released(function.stage, released, events);
        for i in set.without(held).iter() {
            let mut verdict = target.verdict(i).unwrap_or_default();
            if let Some(buffer) = target.get(i).map(|one| one.buffer).filter(|&buffer| buffer != NO_BUFFER) {
                verdict = match (next, verdict) {
                    (Some(next), Verdict::Pass) => self.pass_buffer(function, next, i, buffer),
                    _ => self.copy_back(function, i, buffer, verdict),
                };
            }
            self.function_verdicts[i] = verdict;
            events.insert_if(i, verdict != Verdict::Pass);
        }
        events
    }

    /// Returns the next function if its process uses the same buffers as that of `function`.
    fn next_in_domain(&mut self, function: &FunctionNode, next: Option<&Node>) -> Option<NextInDomain> {
        let (Node::Function(next) | Node::Outputs { function: next, .. }) = next? else { return None };
        let RunnerState { states, watch, .. } = &mut *self.state;
        let of = |function: &FunctionNode| self.active.states.get(usize::from(function.instance)).copied();
        let (from, to) = (of(function)?, of(next)?);
        let mut pool_of = |at: usize| states.get_mut(at)?.as_mut()?.placement.remote()?.pool_id();
        let is_shared = pool_of(from)? == pool_of(to)?;
        let domain = states.get(to)?.as_ref()?.instance.domain()?;
        // A packet that passes a process that has ended must have the changes of those before. What is
        // watched is looked at between the functions.
        let copies = domain.on_failure == OnFailure::Pass || watch.is_some();
        is_shared.then_some(NextInDomain { state: to, copies })
    }

    /// Gives the buffer of a packet to the next function. Returns the verdict.
    fn pass_buffer(&mut self, function: &FunctionNode, next: NextInDomain, i: usize, buffer: u32) -> Verdict {
        if next.copies {
            let verdict = self.copy_back(function, i, buffer, Verdict::Pass);
            if verdict != Verdict::Pass {
                return verdict;
            }
        }
        let remote = self.state.state(self.active, function.instance);
        let filled = remote.and_then(|state| state.placement.remote()?.detach_buffer(buffer));
        let next_state = self.state.states.get_mut(next.state).and_then(Option::as_mut);
        match (filled, next_state.and_then(|state| state.placement.remote())) {
            (Some(filled), Some(remote)) => {
                remote.set_filled(i, filled);
                Verdict::Pass
            }
            // The buffer is one that an ended process has left.
            _ => self.copy_back(function, i, buffer, Verdict::Pass),
        }
    }

    /// Copies what a function in a process has changed into the packet at a position. Returns the verdict.
    fn copy_back(&mut self, function: &FunctionNode, i: usize, buffer: u32, verdict: Verdict) -> Verdict {
        let ChainRun { state, active, packets, .. } = self;
        let state = state.state(active, function.instance);
        let remote = state.and_then(|state| state.placement.remote());
        match (verdict, remote, packets.get_mut(i)) {
            (Verdict::Pass | Verdict::Branch(_), Some(remote), Some(packet)) => {
                remote.copy_back(buffer, packet).map_or_else(Verdict::Drop, |()| verdict)
            }
            _ => verdict,
        }
    }

    /// Updates the counters of a stage.
    fn count_released(&mut self, stage: u16, set: Set, events: Set) {
        let loaded = self.state.loaded_mut(self.active.number);
        let Some(counters) = loaded.and_then(|loaded| loaded.counters.get_mut(usize::from(stage))) else {
            return;
        };
        counters.released += set.len() as u64;
        self.count_events(stage, events);
    }

    /// Takes released packets on in the arms that their sessions have taken.
    fn resume_arms<S: ScratchpadSpace>(
        &mut self,
        (branch, diverges): (BitField, bool),
        arms: impl ExactSizeIterator<Item = ArmTarget>,
        path: Path<'_>,
        set: Set,
        space: &mut S,
    ) -> Set {
        let (mut rest, mut out, n) = (set, Set::EMPTY, arms.len());
        for (number, arm) in arms.enumerate() {
            let ArmTarget::Body(body) = arm else { continue };
            if !has_instance(&self.active.program, body, path.0) {
                continue;
            }
            let (pads, bases) = space.pads();
            let taken = |i: usize| branch.get(Header::read(pads_from(pads, bases[i])).branches);
            let inside = rest.filter(|i| taken_arms(taken(i), diverges, n).any(|arm| arm == number));
            rest = rest.without(inside);
            if !inside.is_empty() {
                out = out.union(self.resume(body, path, inside, space));
            }
        }
        // Their sessions have left the arm.
        self.drop(rest, DropReason::HeldEnded);
        out
    }

    /// Takes released packets on behind a function `flow`.
    fn resume_flow(&mut self, flow: u16, body: BodyId, (instance, target, depth): Path<'_>, set: Set) -> Set {
        let number = self.active.states.get(usize::from(flow)).copied();
        let state = number.and_then(|number| self.state.states.get_mut(number)?.as_mut());
        let (Some(number), Some(mut nested)) = (number, state.and_then(|state| state.nested.take())) else {
            self.drop(set, DropReason::HeldEnded);
            return Set::EMPTY;
        };
        let inside = nested
            .reenter(self.packets, set, |i| target.level(i, depth).filter(|level| level.state == number));
        self.drop(set.without(inside), DropReason::HeldEnded);
        let out = self.resume(body, (instance, target, depth + 1), inside, &mut *nested);
        self.exit_flow(number, nested, inside);
        out
    }
}
