//! Stream functions: one that edits, one that reads, and one that answers.

#![allow(dead_code, reason = "each test uses some of it")]

use bytemuck::{Pod, Zeroable};
use mmb_nf::{
    ArgError, Context, Direction, DropReason, Packet, Setup, StreamData, StreamEdit, StreamFunction,
    StreamVerdict, TakenOver,
};

/// Replaces a word by another one. Bytes that may begin the word are held back.
pub struct Substitute {
    word: Vec<u8>,
    new: Vec<u8>,
}

impl StreamFunction for Substitute {
    const TYPE: &'static str = "substitute";
    const USAGE: &'static str = "WORD [NEW]";
    const HELP: &'static str = "replaces a word";
    const EDITS: bool = true;
    type State = u32;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        let [word, new] =
            [0, 1].map(|at| setup.args.get(at).map_or(Vec::new(), |word| word.as_bytes().to_vec()));
        Ok(Substitute { word, new })
    }

    fn edit(&self, data: &mut StreamEdit<'_, '_>, count: &mut u32, _: &mut Context<'_, ()>) -> StreamVerdict {
        let bytes: Vec<u8> = data.bytes().collect();
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at..].starts_with(&self.word)
                && data.replace(at..at + self.word.len(), &self.new).is_ok()
            {
                *count += 1;
                at += self.word.len();
            } else if self.word.starts_with(&bytes[at..]) && data.hold_from(at) {
                break;
            } else {
                at += 1;
            }
        }
        StreamVerdict::Pass
    }

    fn describe(&self, count: &u32) -> Option<String> {
        Some(count.to_string())
    }
}

/// Resets connections with a byte.
pub struct Forbid(u8);

impl StreamFunction for Forbid {
    const TYPE: &'static str = "forbid";
    const USAGE: &'static str = "BYTE";
    const HELP: &'static str = "resets connections with a byte";
    type State = [u8; 0];
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Forbid(setup.args.first().and_then(|word| word.bytes().next()).unwrap_or(0)))
    }

    fn data(&self, data: &StreamData<'_, '_>, _: &mut [u8; 0], _: &mut Context<'_, ()>) -> StreamVerdict {
        match data.bytes().any(|byte| byte == self.0) {
            true => StreamVerdict::Reset(DropReason::StreamReset),
            false => StreamVerdict::Pass,
        }
    }
}

/// Answers requests that begin with `no`. A request ends with a line feed, and waits until it is complete.
pub struct Gate;

const DENIED: &[u8] = b"denied";

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub struct GateState {
    taken: TakenOver,
    is_answered: u32,
}

impl StreamFunction for Gate {
    const TYPE: &'static str = "gate";
    const USAGE: &'static str = "";
    const HELP: &'static str = "answers requests that begin with `no`";
    const EDITS: bool = true;
    const HOLDS_UNTIL_DECIDED: bool = true;
    const SEES_PACKETS: bool = true;
    type State = GateState;
    type Local = ();

    fn new(_: &Setup<'_>) -> Result<Self, ArgError> {
        Ok(Gate)
    }

    fn packet(&self, packet: &Packet<'_>, state: &mut GateState, cx: &mut Context<'_, ()>) -> StreamVerdict {
        match state.is_answered != 0 {
            true if state.taken.packet(packet, DENIED, cx) => StreamVerdict::End(DropReason::StreamEnd),
            true => StreamVerdict::Drop(DropReason::StreamEnd),
            false => StreamVerdict::Pass,
        }
    }

    fn edit(
        &self,
        data: &mut StreamEdit<'_, '_>,
        state: &mut GateState,
        cx: &mut Context<'_, ()>,
    ) -> StreamVerdict {
        let bytes: Vec<u8> = data.bytes().collect();
        if data.direction() == Direction::Reverse {
            return StreamVerdict::Pass;
        }
        if !bytes.ends_with(b"\n") && data.hold_from(0) {
            return StreamVerdict::Pass;
        }
        if !bytes.starts_with(b"no") {
            return StreamVerdict::Pass;
        }
        match TakenOver::begin(data.packet(), (0, DENIED), cx) {
            Some(taken) => {
                *state = GateState { taken, is_answered: 1 };
                StreamVerdict::Drop(DropReason::StreamEnd)
            }
            None => StreamVerdict::Reset(DropReason::StreamReset),
        }
    }

    fn watches(&self, _: &GateState) -> bool {
        false
    }

    fn answer(&self, number: u32) -> &[u8] {
        if number == 0 { DENIED } else { &[] }
    }
}
