//! Properties of the readers of captures for any file. The fuzz target `capture` runs them on the fuzzer's
//! bytes, a test of the crate on the corpus and on mutations of it.
//!
//! * Reading ends, and no file panics.
//! * All frames together have no more bytes than the file.
//! * A file that is cut short has the same frames up to the cut.

use std::io::Cursor;

use mmb_simulate::capture::{Frame, Reader};

/// Panics if a property does not hold for the file `bytes`.
pub fn check(bytes: &[u8]) {
    let whole = frames(bytes);
    let length: usize = whole.iter().map(|frame| frame.data.len()).sum();
    assert!(length <= bytes.len(), "{length} bytes of frames");
    let cut = frames(&bytes[..bytes.len() * 2 / 3]);
    assert!(whole.starts_with(&cut), "{} frames, and {} of the first part", whole.len(), cut.len());
}

/// The frames up to the end or the first damage.
fn frames(bytes: &[u8]) -> Vec<Frame> {
    let Some(mut reader) = Reader::new(Cursor::new(bytes.to_vec())) else { return Vec::new() };
    let mut frames = Vec::new();
    while let Ok(frame) = reader.next_frame() {
        frames.push(frame);
    }
    frames
}
