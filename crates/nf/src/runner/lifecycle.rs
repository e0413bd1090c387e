//! Sessions that enter, leave and change chains.
//!
//! Theory of operation. A session *enters* a body: each function of the body gets zeros and is called. So
//! does each arm that the session takes. For a dispatch the arm is known at once; for a function with
//! outputs, when the first packet takes it. A session *leaves* a body in the same manner. To *migrate* to
//! another program, all that the session has under the old one is listed. Entering the new body takes the
//! bytes of instances that are on the list. The rest of the list is released at the end.

mod constant;
mod describe;
mod detach;

use mmb_stream::TcpStream;

use super::header::Header;
use super::keyed::NO_ENTRY;
use super::placement::Placement;
use super::prior::{PriorPad, PriorSession};
use super::state::{ActiveProgram, InstanceState, RunnerState};
use crate::context::Holding;
use crate::held::{HeldPlace, OUTER_SPACE};
use crate::instance::RawContext;
use crate::program::ir::{ArmTarget, BodyId, FunctionNode, Node, arm_bits, taken_arms};
use crate::stream::StreamContext;
use crate::vector::scratchpad;
use crate::{Instance, PacketView, SessionInfo};

/// A session that enters or leaves a body.
pub(super) struct SessionCall<'a> {
    /// The space of the session's number ([`HeldPlace::space`]).
    pub space: u32,
    pub pad: &'a mut [u8],
    pub branches: u32,
    pub info: &'a SessionInfo,
    pub packet: Option<&'a PacketView<'a>>,
    /// Position of the packet in its vector.
    pub at: Option<u8>,
}

/// Returns the session as a function sees it.
fn info_at(function: &FunctionNode, info: &SessionInfo) -> SessionInfo {
    SessionInfo { key: if function.after_translation { info.egress_key } else { info.ingress_key }, ..*info }
}

impl RunnerState {
    /// A session begins to pass a body.
    pub fn open(
        &mut self,
        active: &ActiveProgram,
        body: BodyId,
        (space, pad): (u32, &mut [u8]),
        info: &SessionInfo,
        packet: Option<&PacketView<'_>>,
    ) {
        let mut call = SessionCall { space, pad, branches: 0, info, packet, at: None };
        self.enter(active, body, &mut call);
        let header = Header { program: active.number, body, branches: call.branches };
        header.write(pad);
        if let Some(loaded) = self.loaded_mut(active.number) {
            loaded.sessions += 1;
        }
    }

    /// A session ends, or passes no body any more.
    pub fn release(&mut self, (space, pad): (u32, &mut [u8]), info: &SessionInfo) {
        let header = Header::read(pad);
        let Some(active) = self.active(header.program) else { return };
        if let Some(memory) = self.edits.as_deref_mut().filter(|_| space == OUTER_SPACE) {
            memory.end_detached(info.id.0);
        }
        let mut call = SessionCall { space, pad, branches: header.branches, info, packet: None, at: None };
        self.leave(&active, header.body, &mut call);
        if let Some(loaded) = self.loaded_mut(header.program) {
            loaded.sessions = loaded.sessions.saturating_sub(1);
        }
    }

    /// Moves a session to a body of another program, or to another body.
    pub fn migrate(
        &mut self,
        active: &ActiveProgram,
        body: BodyId,
        (space, pad): (u32, &mut [u8]),
        info: &SessionInfo,
        packet: Option<&PacketView<'_>>,
    ) {
        let header = Header::read(pad);
        if (header.program, header.body) == (active.number, body) {
            return;
        }
        if let Some(before) = self.active(header.program) {
            self.prior.bytes.clear();
            self.prior.bytes.extend_from_slice(pad);
            list_body(&mut self.prior, &before, header.body, header.branches);
            if let Some(loaded) = self.loaded_mut(header.program) {
                loaded.sessions = loaded.sessions.saturating_sub(1);
            }
        }
        self.open(active, body, (space, pad), info, packet);
        self.detach((space, pad), info);
        self.release_rest(space, info);
    }

    /// Releases what is left on the list, and clears the list.
    fn release_rest(&mut self, space: u32, info: &SessionInfo) {
        let mut prior = std::mem::take(&mut self.prior);
        for PriorPad { function, state, .. } in prior.pads.drain(..).filter(|pad| !pad.is_taken) {
            let pad = &mut prior.bytes;
            let mut call = SessionCall { space, pad, branches: 0, info, packet: None, at: None };
            self.leave_function(state, &function, &mut call);
        }
        prior.clear();
        self.prior = prior;
    }

    /// Enters a body, and the arms that are known to be taken.
    pub fn enter(&mut self, active: &ActiveProgram, body: BodyId, call: &mut SessionCall<'_>) {
        let Some(body) = active.program.body(body) else { return };
        for node in &body.forward {
            match node {
                Node::Function(function) => self.enter_function(active, function, call),
                Node::Outputs { function, branch, diverges, outputs, arms } => {
                    self.enter_function(active, function, call);
                    let taken = self.enter_prior_arms(active, function, (outputs, arms), *diverges, call);
                    branch.set(&mut call.branches, taken);
                }
                Node::Choice { function, branch, outputs, arms } => {
                    let taken = self.enter_prior_arms(active, function, (outputs, arms), false, call);
                    branch.set(&mut call.branches, taken);
                }
                Node::Dispatch { branch, arms, signature } => {
                    let mut prior = self.prior.dispatches.iter();
                    let prior = prior.find(|(known, _)| known == signature).map(|(_, taken)| *taken as usize);
                    let arm = match (prior, call.packet) {
                        (Some(taken), _) if taken <= arms.len() => taken.checked_sub(1),
                        (_, Some(packet)) => self.class_matcher.arm(&active.program, arms, call.info, packet),
                        _ => None,
                    };
                    branch.set(&mut call.branches, arm.map_or(0, |arm| arm as u32 + 1));
                    let target = arm.and_then(|arm| arms.get(arm)).map(|arm| arm.target);
                    if let Some(ArmTarget::Body(body)) = target {
                        self.enter(active, body, call);
                    }
                }
                Node::Translate | Node::StreamExit(_) | Node::Flow { .. } => {}
            }
        }
    }

    /// Enters the arms behind a function's outputs that the session had taken before. Returns their bits.
    fn enter_prior_arms(
        &mut self,
        active: &ActiveProgram,
        function: &FunctionNode,
        (outputs, arms): (&[u8], &[ArmTarget]),
        diverges: bool,
        call: &mut SessionCall<'_>,
    ) -> u32 {
        let instance = active.program.instances.get(usize::from(function.instance));
        let lineage = instance.map(|instance| instance.lineage);
        let mut taken = 0;
        for n in 0..self.prior.outputs.len() {
            let (prior, output) = self.prior.outputs[n];
            let arm = outputs.get(usize::from(output)).filter(|_| Some(prior) == lineage).copied();
            let arm = arm.map(usize::from).and_then(|arm| Some((arm, *arms.get(arm)?)));
            let Some((arm, ArmTarget::Body(body))) = arm else { continue };
            let bits = arm_bits(arm, diverges);
            // Two arms of before may be one now.
            if taken & bits != bits {
                taken |= bits;
                self.enter(active, body, call);
            }
        }
        taken
    }

    /// Gives a function its bytes: those that it had before, or new ones.
    fn enter_function(
        &mut self,
        active: &ActiveProgram,
        function: &FunctionNode,
        call: &mut SessionCall<'_>,
    ) {
        let number = usize::from(function.instance);
        let instance = active.program.instances.get(number);
        let (Some(instance), Some(&state)) = (instance, active.states.get(number)) else { return };
        let Some(bytes) = bytes_of(call.pad, function) else { return };
        let PriorSession { pads, bytes: prior, .. } = &mut self.prior;
        let is_context = instance.kind() == StreamContext::KIND;
        let is_same = |pad: &&mut PriorPad| {
            // Numbers of edited connections mean nothing to a group that does not edit.
            let has_numbers = is_context && pad.function.edits && !function.edits;
            pad.uid == instance.uid && pad.function.bytes == function.bytes && !pad.is_taken && !has_numbers
        };
        if let Some(pad) = pads.iter_mut().find(is_same)
            && let Some(before) = bytes_of(prior, &pad.function)
        {
            bytes.copy_from_slice(before);
            pad.is_taken = true;
            let group = pad.function.group;
            let is_detached = detached_in(prior, group.offset) & group.bit != 0;
            self.join_group(function, is_detached, is_context, call);
            return;
        }
        bytes.fill(0);
        let is_moved = !instance.function.has_local_state() && self.find_moved(instance, call.info);
        self.join_group(function, false, is_context, call);
        let Some(bytes) = bytes_of(call.pad, function) else { return };
        let info = info_at(function, call.info);
        let RunnerState { states, emissions, held, worker, bypassed, edits, prior, .. } = self;
        let Some(InstanceState { instance, placement, keyed, .. }) =
            states.get_mut(state).and_then(Option::as_mut)
        else {
            return;
        };
        let (now, worker, at, ingress) = (info.now, *worker, call.at, info.in_port);
        let holding = Holding::new(held);
        let edits = edits.as_deref_mut();
        let cx = RawContext { now, worker, emissions, at, ingress, holding, edits };
        if !function.is_keyed {
            match is_moved {
                true => placement.open_moved(bytes, &info, &prior.moved, cx),
                false => placement.open(bytes, &info, cx),
            }
            return;
        }
        let joined = keyed.as_mut().and_then(|keyed| keyed.join(&info.key, info.now));
        bytes.copy_from_slice(&joined.map_or(NO_ENTRY, |(number, _)| number).to_ne_bytes());
        match (joined, keyed) {
            (Some((number, true)), Some(keyed)) => {
                if let Some(pad) = keyed.pad(number).and_then(|pad| pad.get_mut(..instance.bytes())) {
                    placement.open(pad, &info, cx);
                }
            }
            (None, _) => *bypassed += 1,
            _ => {}
        }
    }

    /// Reads the scratchpad that a session has had where an instance ran before. Returns false if there is
    /// none.
    fn find_moved(&mut self, instance: &Instance, info: &SessionInfo) -> bool {
        let RunnerState { states, prior: PriorSession { pads, bytes, moved, .. }, .. } = self;
        let is_it =
            |pad: &&PriorPad| !pad.is_taken && pad.uid != instance.uid && pad.lineage == instance.lineage;
        let Some(pad) = pads.iter().find(is_it) else { return false };
        moved.clear();
        moved.resize(instance.bytes(), 0);
        match bytes_of(bytes, &pad.function) {
            Some(before) if before.len() == moved.len() && !before.is_empty() => {
                moved.copy_from_slice(before);
                true
            }
            _ => states
                .get(pad.state)
                .and_then(Option::as_ref)
                .is_some_and(|state| state.placement.read_scratchpad(info.id, moved)),
        }
    }

    /// A stream function joins its group. `is_detached`: it did not read the session before.
    fn join_group(
        &mut self,
        FunctionNode { group, offset, .. }: &FunctionNode,
        is_detached: bool,
        is_context: bool,
        call: &mut SessionCall<'_>,
    ) {
        if is_context {
            if let Some(stream) = scratchpad::<TcpStream>(call.pad, 0, *offset as usize) {
                stream.forget_detached();
            }
        } else if group.is_member {
            let Some(stream) = scratchpad::<TcpStream>(call.pad, 0, group.offset as usize) else { return };
            match self.edits.as_deref_mut() {
                _ if is_detached => stream.detach(group.bit, group.all),
                Some(memory) if call.space == OUTER_SPACE => memory.attach(call.info.id.0, stream),
                _ => stream.attach(),
            }
        }
    }

    /// Leaves a body, and all arms that were taken.
    pub fn leave(&mut self, active: &ActiveProgram, body: BodyId, call: &mut SessionCall<'_>) {
        let Some(body) = active.program.body(body) else { return };
        for node in &body.forward {
            if let Some(function) = node.function() {
                self.leave_node(active, function, call);
            }
            for arm in node.taken_arms(call.branches) {
                if let ArmTarget::Body(body) = arm {
                    self.leave(active, body, call);
                }
            }
        }
    }

    fn leave_node(&mut self, active: &ActiveProgram, function: &FunctionNode, call: &mut SessionCall<'_>) {
        if let Some(&state) = active.states.get(usize::from(function.instance)) {
            self.leave_function(state, function, call);
        }
    }

    fn leave_function(&mut self, state: usize, function: &FunctionNode, call: &mut SessionCall<'_>) {
        let Some(bytes) = bytes_of(call.pad, function) else { return };
        let info = info_at(function, call.info);
        let RunnerState { states, emissions, held, worker, edits, .. } = self;
        let Some(InstanceState { instance, placement, keyed, holds, .. }) =
            states.get_mut(state).and_then(Option::as_mut)
        else {
            return;
        };
        if *holds {
            held.leave(HeldPlace { space: call.space, session: info.id.0, state: state as u32 });
        }
        let (now, worker, at, ingress) = (info.now, *worker, call.at, info.in_port);
        let holding = Holding::new(held);
        let edits = edits.as_deref_mut();
        let cx = RawContext { now, worker, emissions, at, ingress, holding, edits };
        if !function.is_keyed {
            placement.release(bytes, &info, cx);
            return;
        }
        let (Some(keyed), Some(&number)) = (keyed, bytes.first_chunk()) else { return };
        let number = u32::from_ne_bytes(number);
        if keyed.leave(number) {
            if let Some(pad) = keyed.pad(number).and_then(|pad| pad.get_mut(..instance.bytes())) {
                placement.release(pad, &info, cx);
            }
            keyed.remove(number);
        }
    }
}

/// Lists what a session has in a body.
fn list_body(prior: &mut PriorSession, active: &ActiveProgram, body: BodyId, branches: u32) {
    let Some(body) = active.program.body(body) else { return };
    for node in &body.forward {
        match node {
            Node::Function(function) => list_function(prior, active, *function),
            Node::Outputs { function, branch, diverges, outputs, arms } => {
                list_function(prior, active, *function);
                let taken = taken_arms(branch.get(branches), *diverges, arms.len());
                list_arms(prior, active, (function, taken), (outputs, arms), branches);
            }
            Node::Choice { function, branch, outputs, arms } => {
                let taken = taken_arms(branch.get(branches), false, arms.len());
                list_arms(prior, active, (function, taken), (outputs, arms), branches);
            }
            Node::Dispatch { branch, arms, signature } => {
                let taken = branch.get(branches);
                prior.dispatches.push((*signature, taken));
                if let Some(arm) = arms.get((taken as usize).wrapping_sub(1)) {
                    list_arm(prior, active, arm.target, branches);
                }
            }
            Node::Translate | Node::StreamExit(_) | Node::Flow { .. } => {}
        }
    }
}

/// Lists what a session has in the arms behind a function's outputs that it has taken.
fn list_arms(
    prior: &mut PriorSession,
    active: &ActiveProgram,
    (function, taken): (&FunctionNode, impl Iterator<Item = usize>),
    (outputs, arms): (&[u8], &[ArmTarget]),
    branches: u32,
) {
    let instance = active.program.instances.get(usize::from(function.instance));
    for arm in taken {
        let output = outputs.iter().position(|&of| usize::from(of) == arm);
        let output = output.and_then(|output| u8::try_from(output).ok());
        prior.outputs.extend(instance.map(|instance| instance.lineage).zip(output));
        list_arm(prior, active, arms[arm], branches);
    }
}

fn list_arm(prior: &mut PriorSession, active: &ActiveProgram, target: ArmTarget, branches: u32) {
    if let ArmTarget::Body(body) = target {
        list_body(prior, active, body, branches);
    }
}

fn list_function(prior: &mut PriorSession, active: &ActiveProgram, function: FunctionNode) {
    let number = usize::from(function.instance);
    if let (Some(instance), Some(&state)) = (active.program.instances.get(number), active.states.get(number))
    {
        prior.pads.push(PriorPad {
            uid: instance.uid,
            lineage: instance.lineage,
            function,
            state,
            is_taken: false,
        });
    }
}

/// Returns the functions of a group that a session has detached. `offset`: of the stream context's bytes.
fn detached_in(pad: &[u8], offset: u32) -> u8 {
    let stream = pad.get(offset as usize..).and_then(|pad| pad.get(..size_of::<TcpStream>()));
    let stream = stream.and_then(|bytes| bytemuck::try_pod_read_unaligned::<TcpStream>(bytes).ok());
    stream.map_or(0, |stream| stream.detached())
}

fn bytes_of<'a>(pad: &'a mut [u8], function: &FunctionNode) -> Option<&'a mut [u8]> {
    pad.get_mut(function.offset as usize..)?.get_mut(..function.bytes as usize)
}
