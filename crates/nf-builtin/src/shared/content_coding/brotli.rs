//! Bodies with the coding br (RFC 7932).

use brotli_decompressor::{
    Allocator, BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper, SliceWrapperMut,
};

use super::{DecodeError, PIECE, Tally};

/// Allocates the memory of a body, and counts its bytes.
#[derive(Default)]
struct Counted {
    bytes: usize,
}

/// Memory of a body.
#[derive(Default)]
struct Cells<T>(Vec<T>);

impl<T> SliceWrapper<T> for Cells<T> {
    fn slice(&self) -> &[T] {
        &self.0
    }
}

impl<T> SliceWrapperMut<T> for Cells<T> {
    fn slice_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Clone + Default> Allocator<T> for Counted {
    type AllocatedMemory = Cells<T>;

    fn alloc_cell(&mut self, len: usize) -> Cells<T> {
        self.bytes += len * size_of::<T>();
        Cells(vec![T::default(); len])
    }

    fn free_cell(&mut self, data: Cells<T>) {
        self.bytes -= data.0.len() * size_of::<T>();
    }
}

/// A body that is being decoded. Windows have up to 16 MiB: those of "large window brotli" are not accepted.
pub(super) struct Brotli {
    state: Box<BrotliState<Counted, Counted, Counted>>,
    has_ended: bool,
    has_garbage: bool,
    tally: Tally,
}

impl Brotli {
    pub fn new() -> Brotli {
        let state = BrotliState::new_strict(Counted::default(), Counted::default(), Counted::default());
        Brotli { state: Box::new(state), has_ended: false, has_garbage: false, tally: Tally::default() }
    }

    /// Returns the bytes that are allocated.
    pub fn memory(&self) -> usize {
        let counted = [&self.state.alloc_u8, &self.state.alloc_u32, &self.state.alloc_hc];
        size_of_val(&*self.state) + counted.iter().map(|one| one.bytes).sum::<usize>()
    }

    /// See [`super::Decoder::decode`].
    pub fn decode(&mut self, bytes: &[u8], out: &mut Vec<u8>, most: usize) -> Result<(), DecodeError> {
        let (mut used, mut total) = (0, 0);
        while !self.has_ended {
            let from = out.len();
            out.resize(from + PIECE, 0);
            let (before, mut rest) = (used, bytes.len() - used);
            let (mut room, mut at) = (PIECE, from);
            let result = BrotliDecompressStream(
                &mut rest,
                &mut used,
                bytes,
                &mut room,
                &mut at,
                out,
                &mut total,
                &mut self.state,
            );
            out.truncate(at);
            self.tally.add((used - before) as u64, at - from, out, most)?;
            match result {
                BrotliResult::ResultSuccess => self.has_ended = true,
                BrotliResult::NeedsMoreInput => return Ok(()),
                BrotliResult::NeedsMoreOutput => {}
                BrotliResult::ResultFailure => return Err(DecodeError::Corrupt),
            }
        }
        // What stands behind the data is ignored, as browsers do.
        self.has_garbage |= used < bytes.len();
        Ok(())
    }

    /// See [`super::Decoder::end`].
    pub fn end(&self) -> Result<(), DecodeError> {
        match self.has_ended || self.tally.read == 0 {
            true => Ok(()),
            false => Err(DecodeError::Truncated),
        }
    }

    pub fn has_garbage(&self) -> bool {
        self.has_garbage
    }
}
