//! Sessions leave functions that have edited them.

use std::ops::Range;

use mmb_flow::{FlowRef, TcpSegment};
use mmb_stream::{Cause, Status, TcpStream};

use super::{bytes_of, list_body};
use crate::held::{HeldPackets, HeldPlace, OUTER_SPACE};
use crate::program::ir::{ArmTarget, BodyId, FunctionNode, Node};
use crate::runner::header::Header;
use crate::runner::placement::Placement;
use crate::runner::prior::{PriorPad, PriorSession};
use crate::runner::state::{InstanceState, RunnerState};
use crate::stream::{EditMemory, NOT_EDITED, StreamContext};
use crate::{Program, SessionId, SessionInfo, SettledEdits};

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
    /// A session has moved to another place, and what it had before is listed. Bytes that wait for functions
    /// which it has left go on, or the connection is reset. If it has left the whole group, its connection
    /// keeps its numbers.
    pub(super) fn detach(&mut self, (space, pad): (u32, &mut [u8]), info: &SessionInfo) {
        let RunnerState { prior: PriorSession { pads, bytes, .. }, edits, states, held, .. } = self;
        let Some(memory) = edits.as_deref_mut().filter(|_| space == OUTER_SPACE) else { return };
        let Some((context, mut stream)) = context(pads, states, bytes) else { return };
        let session = SessionBytes { session: info.id, states, held };
        let is_refused = !session.flush_tails(memory, (pads, bytes), &stream);
        let is_detached = is_refused || !context.is_taken;
        if !is_detached || !memory.detach(info.id.0, &stream, is_refused) {
            return;
        }
        if !context.is_taken {
            stream.set_edited(NOT_EDITED);
            if let Some(place) = bytes_of(bytes, &context.function) {
                place.copy_from_slice(bytemuck::bytes_of(&stream));
            }
        } else if let Some(bytes) = self.edited_bytes(pad) {
            // The functions that stay do not edit it any more.
            stream.set_edited(NOT_EDITED);
            if let Some(place) = pad.get_mut(bytes) {
                place.copy_from_slice(bytemuck::bytes_of(&stream));
            }
        }
    }

    /// Whether the ends of a session's connection count differently because of edits.
    pub fn has_offsets(&self, pad: &[u8], session: u32) -> bool {
        let Some(memory) = self.edits.as_deref() else { return false };
        let needs_offsets = |stream| memory.needs_offsets(&stream);
        memory.is_detached(session)
            || self.edited_stream(pad).is_some_and(needs_offsets)
            || self.refuses_bytes(pad, session)
    }

    /// See [`crate::Runner::settle`].
    pub fn settle(&mut self, pad: &mut [u8], session: u32) -> Option<SettledEdits> {
        let stream = self.edited_stream(pad);
        let Some(memory) = self.edits.as_deref_mut() else { return Some(SettledEdits::default()) };
        if stream.is_some_and(|stream| stream.status() != Status::Passed(Cause::Detached)) {
            return None;
        }
        let settled = memory.take_settled(session, stream.as_ref())?;
        if let (Some(mut stream), Some(bytes)) = (stream, self.edited_bytes(pad)) {
            stream.clear_edited();
            pad.get_mut(bytes)?.copy_from_slice(bytemuck::bytes_of(&stream));
        }
        Some(settled)
    }

    /// Whether bytes of a session wait that must not go on.
    fn refuses_bytes(&self, pad: &[u8], session: u32) -> bool {
        let header = Header::read(pad);
        let Some(active) = self.active(header.program) else { return false };
        let mut prior = PriorSession { bytes: pad.to_vec(), ..PriorSession::default() };
        list_body(&mut prior, &active, header.body, header.branches);
        let PriorSession { pads, bytes, .. } = &mut prior;
        let session = SessionBytes { session: SessionId(session), states: &self.states, held: &self.held };
        pads.iter().any(|pad| session.refuses(pad, bytes))
    }

    /// Returns what the stream context of a session knows, if functions behind it edit.
    fn edited_stream(&self, pad: &[u8]) -> Option<TcpStream> {
        bytemuck::try_pod_read_unaligned(pad.get(self.edited_bytes(pad)?)?).ok()
    }

    /// Whether a function that edits is on the path of a session.
    pub fn has_editors(&self, pad: &[u8]) -> bool {
        self.edited_bytes(pad).is_some()
    }

    /// Returns the place of [`RunnerState::edited_stream`] in the scratchpad.
    fn edited_bytes(&self, pad: &[u8]) -> Option<Range<usize>> {
        let header = Header::read(pad);
        let context = edited_context(&self.loaded(header.program)?.program, header.body, header.branches)?;
        let start = context.offset as usize;
        Some(start..start + context.bytes as usize)
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

    /// See [`crate::Runner::acknowledged`].
    pub fn acknowledged(&self, pad: &[u8], session: u32) -> [Option<u32>; 2] {
        let memory = self.edits.as_deref();
        memory.map_or([None; 2], |memory| memory.acknowledged(session, self.edited_stream(pad).as_ref()))
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
    let in_arm = |arm| match arm {
        ArmTarget::Body(body) => edited_context(program, body, branches),
        ArmTarget::Drop => None,
    };
    program.body(body)?.forward.iter().find_map(|node| match node {
        Node::StreamExit(context) => Some(*context),
        _ => node.taken_arms(branches).find_map(in_arm),
    })
}

/// The bytes of a session that wait for functions.
struct SessionBytes<'a> {
    session: SessionId,
    states: &'a [Option<InstanceState>],
    held: &'a HeldPackets,
}

impl SessionBytes<'_> {
    /// Whether the function of a prior scratchpad has decided that bytes which wait must not go on, or edits
    /// and has packets in its process.
    fn refuses(&self, pad: &PriorPad, bytes: &mut [u8]) -> bool {
        let Some(state) = self.states.get(pad.state).and_then(Option::as_ref) else { return false };
        let function = &state.instance.function;
        if state.instance.process().is_none() || !function.edits() {
            return bytes_of(bytes, &pad.function).is_some_and(|bytes| function.refuses(bytes));
        }
        let mut scratchpad = vec![0; state.instance.bytes()];
        let is_read = state.placement.read_scratchpad(self.session, &mut scratchpad);
        self.has_packets(pad) || is_read && function.refuses(&scratchpad)
    }

    /// Whether packets are in the process of the function of a prior scratchpad.
    fn has_packets(&self, pad: &PriorPad) -> bool {
        let place = HeldPlace { space: OUTER_SPACE, session: self.session.0, state: pad.state as u32 };
        let state = self.states.get(pad.state).and_then(Option::as_ref);
        state.is_some_and(|state| state.instance.process().is_some()) && self.held.len_of(place) != 0
    }

    /// Bytes that wait for functions which the session has left go on. Returns false if they must not: a
    /// function has decided so, they would pass by functions that stay and have not judged them, or they
    /// would overtake packets in processes.
    fn flush_tails(
        &self,
        memory: &mut EditMemory,
        (pads, bytes): (&[PriorPad], &mut [u8]),
        stream: &TcpStream,
    ) -> bool {
        if pads.iter().any(|pad| !pad.is_taken && self.refuses(pad, bytes)) {
            return false;
        }
        let has_packets = pads.iter().any(|pad| self.has_packets(pad));
        let mut flush = |direction: usize, pads: &mut dyn Iterator<Item = &PriorPad>| {
            let mut are_judged = true;
            for pad in pads {
                let Some(state) = self.states.get(pad.state).and_then(Option::as_ref) else { continue };
                let function = &state.instance.function;
                if pad.is_taken {
                    are_judged &= !function.edits() && !function.reads_content();
                    continue;
                }
                let tail = bytes_of(bytes, &pad.function).and_then(|bytes| bytes.first_chunk().copied());
                let tail = tail.filter(|_| function.edits()).map_or(0, u32::from_ne_bytes);
                if memory.has_tail(tail, direction) {
                    if !are_judged || has_packets {
                        return false;
                    }
                    memory.flush_tail(stream.kept(), direction, tail);
                }
            }
            true
        };
        // The function that a packet meets last comes first.
        flush(0, &mut pads.iter().rev()) && flush(1, &mut pads.iter())
    }
}
