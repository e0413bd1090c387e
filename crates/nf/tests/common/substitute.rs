//! Stream functions: one that edits, and one that reads.

#![allow(dead_code, reason = "each test uses some of it")]

use mmb_nf::{ArgError, Context, DropReason, Setup, StreamData, StreamEdit, StreamFunction, StreamVerdict};

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
