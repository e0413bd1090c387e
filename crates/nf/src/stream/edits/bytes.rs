//! Edits of bytes that no packet has brought: those of a connection that a broker ends.

use mmb_stream::Change;

use super::counters::EditTally;
use super::data::{StreamEdit, Target};
use crate::stream::StreamData;

/// What a function has asked for.
#[derive(Debug, Default)]
pub(in crate::stream) struct ByteEdits {
    changes: Vec<Change>,
    new_bytes: Vec<u8>,
    tally: EditTally,
    hold: Option<usize>,
}

impl ByteEdits {
    /// Calls a closure with bytes. `held`: how many of them were held back before.
    pub fn edit<R>(
        &mut self,
        data: StreamData<'_, '_>,
        (held, can_hold): (usize, bool),
        f: impl FnOnce(&mut StreamEdit<'_, '_>) -> R,
    ) -> R {
        let ByteEdits { changes, new_bytes, tally, .. } = self;
        let mut edit =
            StreamEdit::new(data, held, Target::Stream { resizes: true }, (changes, new_bytes), tally);
        edit.set_can_hold(can_hold);
        let result = f(&mut edit);
        self.hold = edit.held_from();
        result
    }

    /// Writes what becomes of the bytes: those that go on, and those that wait.
    pub fn write(&self, bytes: &[u8], out: &mut Vec<u8>, rest: &mut Vec<u8>) {
        let mut done = 0;
        for Change { start, end, new } in self.changes.iter().copied() {
            out.extend_from_slice(bytes.get(done..start).unwrap_or(&[]));
            out.extend_from_slice(self.new_bytes.get(new.0..new.1).unwrap_or(&[]));
            done = end;
        }
        let hold = self.hold.unwrap_or(bytes.len());
        out.extend_from_slice(bytes.get(done..hold).unwrap_or(&[]));
        rest.extend_from_slice(bytes.get(hold..).unwrap_or(&[]));
    }
}
