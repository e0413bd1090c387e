//! Sessions leave functions that have edited them.

use mmb_flow::{FlowRef, TcpSegment};
use mmb_stream::TcpStream;

use super::{bytes_of, taken_arms};
use crate::held::OUTER_SPACE;
use crate::program::ir::{ArmTarget, BodyId, FunctionNode, Node};
use crate::runner::header::Header;
use crate::runner::prior::{PriorPad, PriorSession};
use crate::runner::state::{InstanceState, RunnerState};
use crate::stream::{EditMemory, NOT_EDITED, StreamContext};
use crate::{Program, SessionInfo};

/// Returns a stream context of a group that edits, and what it knows of the session.
fn context<'a>(
    pads: &'a [PriorPad],
    states: &[Option<InstanceState>],
    bytes: &mut [u8],
) -> Option<(&'a PriorPad, TcpStream)> {
    let is_context = |pad: &&PriorPad| {
        let state = states.get(pad.state).and_then(Option::as_ref);
        pad.function.edits && state.is_some_and(|state| state.instance.kind() == StreamContext::KIND)
    };
    let pad = pads.iter().find(is_context)?;
    Some((pad, *bytemuck::try_from_bytes(bytes_of(bytes, &pad.function)?).ok()?))
}

impl RunnerState {
    /// A session has moved, and what it had before is listed. Bytes that wait for functions which it has left
    /// go on. If it has left the whole group, its connection keeps its numbers.
    pub(super) fn detach(&mut self, space: u32, info: &SessionInfo) {
        let RunnerState { prior: PriorSession { pads, bytes, .. }, edits, states, .. } = self;
        let Some(memory) = edits.as_deref_mut().filter(|_| space == OUTER_SPACE) else { return };
        let Some((context, mut stream)) = context(pads, states, bytes) else { return };
        flush_tails(memory, states, (pads, bytes), &stream);
        if !context.is_taken && memory.detach(info.id.0, &stream) {
            stream.set_edited(NOT_EDITED);
            if let Some(place) = bytes_of(bytes, &context.function) {
                place.copy_from_slice(bytemuck::bytes_of(&stream));
            }
        }
    }

    /// Whether the ends of a session's connection count differently because of edits.
    pub fn has_offsets(&self, pad: &[u8], session: u32) -> bool {
        let Some(memory) = self.edits.as_deref() else { return false };
        let needs_offsets = |stream| memory.needs_offsets(&stream);
        memory.is_detached(session) || self.edited_stream(pad).is_some_and(needs_offsets)
    }

    /// Returns what the stream context of a session knows, if functions behind it edit.
    fn edited_stream(&self, pad: &[u8]) -> Option<TcpStream> {
        let header = Header::read(pad);
        let context = edited_context(&self.loaded(header.program)?.program, header.body, header.branches)?;
        let bytes = pad.get(context.offset as usize..)?.get(..context.bytes as usize)?;
        bytemuck::try_pod_read_unaligned(bytes).ok()
    }

    /// Returns what `show connections verbose` prints of the edits of a session.
    pub fn describe_edits(&self, pad: &[u8], session: u32) -> Vec<String> {
        let memory = self.edits.as_deref();
        memory.map_or_else(Vec::new, |memory| memory.describe(session, self.edited_stream(pad).as_ref()))
    }

    /// See [`crate::Runner::original_sequence`].
    pub fn original_sequence(&self, pad: &[u8], flow: FlowRef, sequence: u32) -> u32 {
        let Some(memory) = self.edits.as_deref() else { return sequence };
        let (session, direction) = (flow.session().0, flow.direction() as usize);
        memory.original_sequence(session, self.edited_stream(pad).as_ref(), direction, sequence)
    }

    /// See [`crate::Runner::note_path`].
    pub fn note_path(&mut self, pad: &[u8], flow: FlowRef, path: (u32, bool)) {
        let stream = self.edited_stream(pad);
        if let Some(memory) = self.edits.as_deref_mut() {
            memory.note_path(flow.session().0, stream.as_ref(), flow.direction() as usize, path);
        }
    }

    /// Changes acknowledgement and window of a segment to those that their receiver is told.
    pub fn untranslate(&self, pad: &[u8], flow: FlowRef, segment: &mut TcpSegment) {
        if let Some(memory) = self.edits.as_deref() {
            let (session, direction) = (flow.session().0, flow.direction() as usize);
            memory.untranslate(session, self.edited_stream(pad).as_ref(), direction, segment);
        }
    }
}

/// Returns the stream context of a group that edits, on the path of a session.
fn edited_context(program: &Program, body: BodyId, branches: u32) -> Option<FunctionNode> {
    let in_arm = |arm: &ArmTarget| match arm {
        ArmTarget::Body(body) => edited_context(program, *body, branches),
        ArmTarget::Drop => None,
    };
    program.body(body)?.forward.iter().find_map(|node| match node {
        Node::StreamExit(context) => Some(*context),
        Node::Outputs { branch, diverges, arms, .. } => {
            taken_arms(branch.get(branches), *diverges, arms.len()).find_map(|arm| in_arm(arms.get(arm)?))
        }
        Node::Dispatch { branch, arms, .. } => {
            in_arm(&arms.get((branch.get(branches) as usize).wrapping_sub(1))?.target)
        }
        Node::Function(_) | Node::Translate | Node::Flow { .. } => None,
    })
}

/// If bytes wait for a function that the session has left, all bytes that wait go on.
fn flush_tails(
    memory: &mut EditMemory,
    states: &[Option<InstanceState>],
    (pads, bytes): (&[PriorPad], &mut [u8]),
    stream: &TcpStream,
) {
    let edits = |pad: &&PriorPad| {
        let state = states.get(pad.state).and_then(Option::as_ref);
        state.is_some_and(|state| state.instance.function.edits())
    };
    let mut tail_of = |pad: &PriorPad| {
        let tail = bytes_of(bytes, &pad.function).and_then(|bytes| bytes.first_chunk().copied());
        tail.map_or(0, u32::from_ne_bytes)
    };
    let functions = || pads.iter().filter(edits);
    if !functions().any(|pad| !pad.is_taken && memory.has_tail(tail_of(pad))) {
        return;
    }
    for pad in functions().rev() {
        memory.flush_tail(stream.kept(), 0, tail_of(pad));
    }
    for pad in functions() {
        memory.flush_tail(stream.kept(), 1, tail_of(pad));
    }
}
