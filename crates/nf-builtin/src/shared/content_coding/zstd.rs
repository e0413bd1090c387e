//! Bodies with the coding zstd (RFC 8878 and 9659).

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::{DecodeError, PIECE, Tally};

/// Logarithm of the largest window: 8 MiB. Servers must not use a larger one (RFC 9659, 3).
const MOST_WINDOW_LOG: u32 = 23;
/// The library's number of the error that data does not begin as a frame does.
const PREFIX_UNKNOWN: usize = 10;

/// Bodies are decoded one after the other.
pub(super) struct Zstd {
    context: DCtx<'static>,
    /// A frame is complete, and no byte of another one has come.
    is_complete: bool,
    has_frame: bool,
    has_garbage: bool,
    tally: Tally,
}

impl Zstd {
    /// None: there is no memory.
    pub fn new() -> Option<Zstd> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(MOST_WINDOW_LOG)).ok()?;
        let (is_complete, has_frame, has_garbage) = (false, false, false);
        Some(Zstd { context, is_complete, has_frame, has_garbage, tally: Tally::default() })
    }

    /// Another body begins.
    pub fn begin(&mut self) {
        // The reset of a session cannot fail.
        let _ = self.context.reset(ResetDirective::SessionOnly);
        (self.is_complete, self.has_frame, self.has_garbage) = (false, false, false);
        self.tally = Tally::default();
    }

    /// Returns the bytes that are allocated.
    pub fn memory(&self) -> usize {
        self.context.sizeof()
    }

    /// See [`super::Decoder::decode`].
    pub fn decode(&mut self, bytes: &[u8], out: &mut Vec<u8>, most: usize) -> Result<(), DecodeError> {
        let mut used = 0;
        while !self.has_garbage {
            let from = out.len();
            out.reserve(PIECE);
            let mut input = InBuffer::around(bytes.get(used..).unwrap_or(&[]));
            let mut output = OutBuffer::around_pos(out, from);
            let result = self.context.decompress_stream(&mut output, &mut input);
            let taken = input.pos();
            used += taken;
            let made = out.len().saturating_sub(from);
            self.tally.add(taken as u64, made, out, most)?;
            match result {
                Ok(0) => (self.is_complete, self.has_frame) = (true, true),
                Ok(_) => self.is_complete = self.is_complete && taken == 0,
                // What stands behind a frame and is no other one is ignored.
                Err(code) if self.has_frame && code.wrapping_neg() == PREFIX_UNKNOWN => {
                    self.has_garbage = true;
                }
                Err(_) => return Err(DecodeError::Corrupt),
            }
            let has_room = out.len() < out.capacity();
            if used == bytes.len() && (has_room || self.is_complete) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// See [`super::Decoder::end`].
    pub fn end(&self) -> Result<(), DecodeError> {
        match self.is_complete || self.has_garbage || self.tally.read == 0 {
            true => Ok(()),
            false => Err(DecodeError::Truncated),
        }
    }

    pub fn has_garbage(&self) -> bool {
        self.has_garbage
    }
}
