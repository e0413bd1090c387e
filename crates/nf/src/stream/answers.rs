//! Answers of functions in processes to clients.
//!
//! Theory of operation. A function in a process that does not let a request reach its server names the answer
//! by a number. The worker has an instance with the same arguments, which has the bytes ([`answer`]). So the
//! process can send nothing of its own. The worker answers, with the numbers of the connection when the
//! packet is back ([`TakenOver`]), and takes all further packets of the session itself.
//!
//! Such a function looks at packets, too. Those without anything new go to the process only while it says
//! that it has to see them ([`watches`]).
//!
//! [`answer`]: crate::StreamFunction::answer
//! [`watches`]: crate::StreamFunction::watches

use bytemuck::{Pod, Zeroable};
use mmb_packet::DropReason;

use super::takeover::TakenOver;
use crate::instance::DynFunction;
use crate::{Context, Packet, Verdict};

/// What a function that sees packets tells behind the result of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionNote {
    /// The number of the answer to the client. None: there is none.
    pub answer: Option<u32>,
    /// Packets without anything new have to be seen, too.
    pub watches: bool,
    /// The output that the function has chosen for the session.
    pub output: Option<u8>,
}

impl SessionNote {
    /// Bytes behind a result.
    pub const BYTES: usize = 6;

    /// Appends the note to a result.
    pub fn write(self, out: &mut Vec<u8>) {
        out.push(u8::from(self.watches) | u8::from(self.answer.is_some()) << 1);
        out.extend_from_slice(&self.answer.unwrap_or(0).to_le_bytes());
        out.push(self.output.map_or(NO_OUTPUT, |output| output.saturating_add(1)));
    }

    /// Takes the note from the end of a result. None: there is none.
    pub fn take(result: &mut &[u8]) -> Option<SessionNote> {
        let (rest, &[flags, a, b, c, d, output]) = result.split_last_chunk::<{ SessionNote::BYTES }>()?;
        *result = rest;
        let answer = (flags & 2 != 0).then_some(u32::from_le_bytes([a, b, c, d]));
        Some(SessionNote { answer, watches: flags & 1 != 0, output: output.checked_sub(1) })
    }
}

/// The byte of a session without an output. Others are one more than the output.
const NO_OUTPUT: u8 = 0;

/// The function has told nothing yet.
const NEW: u8 = 0;
const WATCHED: u8 = 1;
const NOT_WATCHED: u8 = 2;
const ANSWERED: u8 = 3;

/// What the worker knows of a session. Plain data, zeros at first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct AnswerState {
    taken: TakenOver,
    /// The number of the answer.
    number: u32,
    phase: u8,
    /// Why packets are dropped ([`DropReason`] as a number).
    reason: u8,
    output: u8,
    unused: u8,
}

impl AnswerState {
    /// Whether packets without anything new go to the process. `is_new_watched`: those of a new session do.
    pub fn is_watched(&self, is_new_watched: bool) -> bool {
        self.phase == WATCHED || self.phase == NEW && is_new_watched
    }

    /// Notes what the function has told behind a packet.
    pub(super) fn note(&mut self, note: SessionNote) {
        if self.phase != ANSWERED {
            self.phase = if note.watches { WATCHED } else { NOT_WATCHED };
            self.output = note.output.map_or(NO_OUTPUT, |output| output.saturating_add(1));
        }
    }

    /// Returns the output that the function has chosen for the session.
    pub fn output(&self) -> Option<u8> {
        self.output.checked_sub(1)
    }

    /// Answers the client of a packet. Returns false if that cannot be now.
    pub(super) fn begin(
        &mut self,
        packet: &Packet<'_>,
        (number, answer): (u32, &[u8]),
        reason: DropReason,
        cx: &mut Context<'_, ()>,
    ) -> bool {
        let Some(taken) = TakenOver::begin(packet, (number, answer), cx) else { return false };
        *self = AnswerState {
            taken,
            number,
            phase: ANSWERED,
            reason: reason as u8,
            output: NO_OUTPUT,
            unused: 0,
        };
        true
    }

    /// Takes a packet of a session whose client is answered. Returns its verdict. None: it is not answered.
    pub fn packet(
        &mut self,
        packet: &Packet<'_>,
        function: &dyn DynFunction,
        cx: &mut Context<'_, ()>,
    ) -> Option<Verdict> {
        if self.phase != ANSWERED {
            return None;
        }
        let reason = DropReason::from_number(self.reason).unwrap_or(DropReason::ProcessInvalid);
        match self.taken.packet(packet, function.answer(self.number), cx) {
            true => Some(Verdict::End(reason)),
            false => Some(Verdict::Drop(reason)),
        }
    }
}
