//! Edits of streams.
//!
//! Theory of operation. In a group of stream functions of which one edits, the context translates the
//! acknowledgements that arrive ([`arrive`]). A function that changes bytes leaves a [`Rope`] for the next
//! one: the new bytes, and which bytes of the packet stay. Bytes that it holds back are its *tail*, which it
//! gets again with the next bytes. Without room for a tail, `stream-overflow` decides what becomes of the
//! connection. Behind the last function of the group, in both directions, is the *exit*
//! ([`leave`]): it appends what is left to the output of the connection ([`Splices`]), the first copy of the
//! packet's bytes, and sends the segment on, or others in its place.
//!
//! Datagrams of UDP are edited one by one ([`datagram`]).
//!
//! The memory is the worker's. It is reserved when a program with functions that edit is loaded.

mod arrive;
mod bytes;
pub(in crate::stream) mod counters;
mod data;
mod datagram;
mod detached;
mod early;
mod ends;
mod error;
mod frames;
mod hold;
mod leave;
mod options;
mod results;
mod settled;

use std::collections::HashMap;

use mmb_flow::EditOffsets;
use mmb_stream::{Change, KeptBytes, Rope, Splices};

use super::AnswerNumbers;
use crate::Packet;
use crate::set::{Set, VECTOR};
use crate::tcp_segment::SegmentTo;
pub(super) use bytes::ByteEdits;
pub(super) use counters::{DUPLICATE_ACKS, EditTally, RESETS};
pub(super) use data::EditInput;
pub use data::StreamEdit;
use ends::Datagrams;
pub use error::EditError;
pub(super) use frames::ExpectedNumbers;
pub(crate) use results::EditRecorder;
pub use settled::SettledEdits;

/// Bytes in front of the state of a function that edits: the number of its tail.
pub(crate) const TAIL: usize = 8;

/// Bytes of a worker's output that is not acknowledged, and of the tails of its functions.
const OUTPUT_BYTES: usize = 64 << 20;
const TAIL_BYTES: usize = 32 << 20;
/// Bytes of packets of a worker that functions have changed, and that wait for a process.
const PARKED_BYTES: usize = 64 << 20;
const CONNECTIONS: usize = 65_536;

/// Most changes of a function at a time, and most bytes of them.
const MOST_CHANGES: usize = 1 << 16;
const MOST_NEW_BYTES: usize = (1 << 20) + (256 << 10);
/// Most bytes of a direction that wait for functions. Then they are let out.
const MOST_HELD: u32 = 1 << 20;

/// Bytes that are kept of a direction whose acknowledgements are not seen. Usual hosts have fewer under way.
const MOST_UNKNOWN: u32 = 4 << 20;

/// The number of a connection that cannot be edited.
pub(crate) const NOT_EDITED: u32 = u32::MAX;

/// What a worker keeps of edited connections.
#[derive(Debug)]
pub(crate) struct EditMemory {
    pub splices: Splices,
    pub tails: KeptBytes,
    /// The last call of a function has held back bytes for which there is no room.
    pub has_unheld: bool,
    /// The number of each packet's connection in `splices`. 0: the packet is not edited.
    pub numbers: [u32; VECTOR],
    /// Packets of connections of whose other direction no segment was seen.
    pub one_way: Set,
    /// Packets whose new bytes are in `ropes`.
    pub changed: Set,
    /// Packets that have come back from a process.
    pub returned: Set,
    pub ropes: Vec<Rope>,
    /// Packets that have brought bytes of their connection, which may not have gone on yet.
    pub fresh: Set,
    /// Packets in whose place functions reset their connection, and the frames for their receivers.
    pub resets: Vec<(usize, usize)>,
    /// Packets whose last bytes wait for more of their connection.
    pub deferred: Set,
    pub work: Work,
    /// Bytes that functions have changed of packets that wait for a process.
    pub parked: KeptBytes,
    /// Connections that have left the functions that edited them.
    pub detached: DetachedConnections,
    pub datagrams: Datagrams,
    /// Edits since the counters were updated.
    pub tally: EditTally,
    /// In a process: what the function has asked for.
    pub recorder: Option<Box<EditRecorder>>,
}

/// The numbers of a connection that a group of functions has left behind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DetachedEdits {
    /// Edited bytes may be under way.
    Open {
        /// The number of the connection in [`Splices`].
        number: u32,
        /// Shifts of the windows that the directions' senders announce.
        shifts: [Option<u8>; 2],
        /// Bytes waited that must not go on. The connection is reset.
        is_refused: bool,
    },
    /// The numbers differ by constants.
    Settled(EditOffsets),
}

/// The detached connections of a worker, by session. The group that was left first comes first.
pub(crate) type DetachedConnections = HashMap<u32, Vec<DetachedEdits>>;

/// Buffers that are used again.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// What a function has held back before.
    pub tail: Rope,
    /// What becomes of it and of a packet's bytes: what goes on, and what is held back.
    pub output: Rope,
    pub rest: Rope,
    /// The bytes of a datagram, behind the end of the one before.
    pub datagram: Vec<u8>,
    pub changes: Vec<Change>,
    pub bytes: Vec<u8>,
    pub saved: Vec<u8>,
    pub frame: Vec<u8>,
    /// The result of a function in a process.
    pub result: Vec<u8>,
}

impl EditMemory {
    pub fn new() -> EditMemory {
        EditMemory::with(Splices::new(OUTPUT_BYTES, CONNECTIONS), 1, None)
    }

    /// Makes the memory of a function in a process. It has the tails of all workers, and no output.
    pub fn of_process(workers: u16) -> EditMemory {
        let recorder = Some(Box::new(EditRecorder::new()));
        EditMemory::with(Splices::new(0, 0), workers.max(1).into(), recorder)
    }

    fn with(splices: Splices, workers: usize, recorder: Option<Box<EditRecorder>>) -> EditMemory {
        EditMemory {
            splices,
            tails: KeptBytes::new(workers * TAIL_BYTES, workers * 2 * CONNECTIONS),
            has_unheld: false,
            numbers: [0; VECTOR],
            one_way: Set::EMPTY,
            changed: Set::EMPTY,
            returned: Set::EMPTY,
            ropes: vec![Rope::default(); VECTOR],
            fresh: Set::EMPTY,
            resets: Vec::with_capacity(VECTOR),
            deferred: Set::EMPTY,
            work: Work::default(),
            parked: KeptBytes::new(if recorder.is_some() { 0 } else { PARKED_BYTES }, CONNECTIONS),
            detached: DetachedConnections::new(),
            datagrams: Datagrams::new(workers),
            tally: EditTally::default(),
            recorder,
        }
    }

    /// Returns the number of a packet's connection. 0: the packet is not edited.
    pub fn number(&self, i: usize) -> u32 {
        self.numbers[i & (VECTOR - 1)]
    }

    /// Returns the rope of a packet that functions have changed.
    pub fn rope(&self, i: usize) -> Option<&Rope> {
        if self.changed.contains(i) { self.ropes.get(i) } else { None }
    }

    /// Packets at these positions are in front of the functions. Their connections are not known yet.
    pub fn enter(&mut self, at: Set) {
        self.resets.clear();
        self.fresh = Set::EMPTY;
        self.clear_marks(at);
    }

    /// A packet is in front of the functions. `number`: that of its connection. 0: it is not edited.
    pub fn begin(&mut self, i: usize, number: u32) {
        self.numbers[i & (VECTOR - 1)] = number;
        self.clear_marks(Set::one(i));
    }

    fn clear_marks(&mut self, at: Set) {
        for marks in [&mut self.one_way, &mut self.changed, &mut self.returned] {
            *marks = marks.without(at);
        }
        self.datagrams.remove_all(at);
    }

    /// Returns the numbers with which a function may answer the client of a packet's connection.
    pub fn answer_numbers(&self, i: usize) -> Option<AnswerNumbers> {
        if let Some(recorder) = &self.recorder {
            return recorder.answerable.contains(i).then_some(AnswerNumbers::APART);
        }
        let (number, splices) = (self.number(i), &self.splices);
        if number == 0 || !splices.has_begun(number, 0) || !splices.has_begun(number, 1) {
            return None;
        }
        let to_client = splices.next(number, 1);
        let is_settled = splices.is_acknowledged(number, 1) && to_client == splices.ends(number, 1).1;
        let (client, _) = splices.carried(number, 1);
        let to_server = splices.next(number, 0);
        Some(AnswerNumbers { client, to_client, to_server, is_settled, is_apart: false })
    }

    /// Returns the numbers that the ends of a packet's connection expect. None: it is not edited.
    pub(super) fn expected_numbers(&self, i: usize, packet: &Packet<'_>) -> Option<ExpectedNumbers> {
        ExpectedNumbers::of(&self.splices, self.number(i), packet.direction as usize)
    }

    /// Removes what waits for a function, or was kept for it, under a number.
    pub fn remove_tail(&mut self, tail: u32) {
        self.tails.remove(tail);
        self.datagrams.remove_end(tail);
    }

    /// A function has sent frames in the place of a packet: a reset for the sender, and one for the receiver.
    pub fn note_reset(&mut self, i: usize, frames: std::ops::Range<usize>) {
        if frames.len() == SegmentTo::BOTH.len() {
            self.resets.push((i, frames.end - 1));
        }
    }

    /// Replaces the tail of a function by `work.rest`. Returns false if there is no room.
    fn save_tail(&mut self, number: u32, direction: usize) -> bool {
        let EditMemory { tails, work, .. } = self;
        tails.clear(number, direction);
        if work.rest.is_empty() {
            return true;
        }
        work.saved.clear();
        work.rest.write(std::iter::empty(), &mut work.saved);
        tails.has_room(number, direction, work.saved.len()) && tails.append(number, direction, 0, &work.saved)
    }

    /// Reads the tail of a function into `work.tail`. Returns whether there is one.
    fn load_tail(&mut self, number: u32, direction: usize) -> bool {
        let EditMemory { tails, work, .. } = self;
        let len = tails.len(number, direction);
        if len == 0 {
            return false;
        }
        work.saved.clear();
        tails.read(number, direction, 0, len, &mut work.saved);
        work.tail.read(&work.saved);
        true
    }
}
