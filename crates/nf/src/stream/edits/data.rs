//! The bytes that a function which edits gets, and what it does to them.

use std::ops::Range;

use mmb_flow::Direction;
use mmb_packet::Kind;
use mmb_stream::{Change, Rope, Segment, View};

use super::counters::{EDITS, EditTally, INSERTED, NO_ROOM_TO_HOLD, REMOVED};
use super::error::EditError;
use super::results::{EditRecorder, change_len, take_number};
use super::{EditMemory, MOST_CHANGES, MOST_HELD, MOST_NEW_BYTES, Work};
use crate::Packet;
use crate::stream::StreamData;
use crate::tcp_segment::segment;

/// Most bytes that a function in a process holds back of a direction. Before, the worker asks it to let them
/// go on.
const MOST_HELD_APART: usize = 4 * MOST_HELD as usize;

/// What the edits of a packet change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// Nothing: they are refused.
    None(EditError),
    /// A connection of TCP.
    Stream {
        /// Its length may change.
        resizes: bool,
    },
    /// A datagram.
    Datagram {
        /// Bytes in front of it that have left.
        gone: usize,
        /// Its length with the edits so far, and the most that its output takes.
        len: usize,
        most: usize,
        /// Its length may change.
        is_whole: bool,
    },
}

/// Bytes of a stream that a function may change.
///
/// The bytes are those that the function held back before ([`StreamEdit::held`]), and then new ones.
/// Positions count from the first of these bytes, also behind an edit. Edits are made in order.
///
/// A datagram of UDP cannot be held back. A function may have its end kept ([`StreamEdit::keep_from`]): it
/// gets these bytes again in front of the next datagram, to read ([`StreamEdit::gone`]).
#[derive(Debug)]
pub struct StreamEdit<'a, 'p> {
    data: StreamData<'a, 'p>,
    /// Bytes at the beginning that were held back, or have left.
    before: usize,
    target: Target,
    changes: &'a mut Vec<Change>,
    new_bytes: &'a mut Vec<u8>,
    tally: &'a mut EditTally,
    hold: Option<usize>,
    kept: Option<usize>,
    can_hold: bool,
    /// Bytes that the result of a function in a process has room for.
    room: usize,
}

impl<'a, 'p> StreamEdit<'a, 'p> {
    /// Makes the value for a packet whose bytes cannot be held back.
    pub(super) fn new(
        data: StreamData<'a, 'p>,
        before: usize,
        target: Target,
        (changes, new_bytes): (&'a mut Vec<Change>, &'a mut Vec<u8>),
        tally: &'a mut EditTally,
    ) -> Self {
        let (hold, kept, can_hold, room) = (None, None, false, usize::MAX);
        StreamEdit { data, before, target, changes, new_bytes, tally, hold, kept, can_hold, room }
    }

    /// The requests of the function are written down, and have to fit there.
    pub(super) fn set_recorded(&mut self) {
        self.room = EditRecorder::ROOM;
    }

    /// Returns the position from which on bytes are to be kept.
    pub(super) fn kept(&self) -> Option<usize> {
        self.kept
    }

    /// Bytes can be held back.
    pub(super) fn set_can_hold(&mut self, can_hold: bool) {
        self.can_hold = can_hold;
    }

    /// Returns the position from which on bytes are held back.
    pub(super) fn held_from(&self) -> Option<usize> {
        self.hold
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Returns the number of bytes at the beginning that the function has held back before.
    pub fn held(&self) -> usize {
        if self.is_datagram() { 0 } else { self.before }
    }

    /// Returns the number of bytes at the beginning that have left in earlier datagrams. They cannot be
    /// edited.
    pub fn gone(&self) -> usize {
        if self.is_datagram() { self.before } else { 0 }
    }

    /// Whether the bytes are those of a packet of UDP, behind those that have left.
    pub fn is_datagram(&self) -> bool {
        self.data.packet().meta.kind.l4() != Kind::TCP
    }

    /// Returns the direction. Each direction of a session is a stream of its own.
    pub fn direction(&self) -> Direction {
        self.data.direction()
    }

    /// Whether the stream ends behind these bytes. [`crate::StreamFunction::end`] follows.
    pub fn is_end(&self) -> bool {
        self.data.is_end()
    }

    /// Whether the bytes can be edited.
    ///
    /// False for IP fragments, for connections whose beginning was not seen, and for those with signatures
    /// of their segments (RFC 2385, RFC 5925).
    pub fn can_edit(&self) -> bool {
        !matches!(self.target, Target::None(_))
    }

    /// Whether edits may change the number of bytes.
    ///
    /// False if [`StreamEdit::can_edit`] is, and for a connection of which no segment of the other direction
    /// was seen: the acknowledgements that it has could not be corrected. Such bytes can be overwritten.
    pub fn can_resize(&self) -> bool {
        self.can_edit() && !matches!(self.target, Target::Stream { resizes: false })
    }

    /// Whether bytes can be held back. If not, the function decides with what it has: the stream ends, or
    /// the sender has nothing more to send before it gets an answer, or the bytes are those of a datagram.
    pub fn can_hold(&self) -> bool {
        self.can_hold && self.can_edit()
    }

    /// Returns the packet that has brought the last bytes.
    pub fn packet(&self) -> &'a Packet<'p> {
        self.data.packet()
    }

    /// Returns all bytes as one slice. They are copied to a buffer if they are not together.
    #[inline]
    pub fn joined<'b>(&self, buffer: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        self.data.joined(buffer)
    }

    /// Iterates over the bytes in order, as slices, without a copy. Slices are not empty.
    pub fn chunks(&self) -> impl Iterator<Item = &'a [u8]> + use<'a, 'p> {
        self.data.chunks()
    }

    /// Iterates over the bytes in order.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<'a, 'p> {
        self.data.bytes()
    }

    /// Removes bytes.
    ///
    /// # Errors
    /// See [`EditError`]. Nothing is changed.
    pub fn remove(&mut self, range: Range<usize>) -> Result<(), EditError> {
        self.replace(range, &[])
    }

    /// Inserts bytes in front of the one at a position, or behind the last one.
    ///
    /// # Errors
    /// See [`EditError`]. Nothing is changed.
    pub fn insert(&mut self, at: usize, bytes: &[u8]) -> Result<(), EditError> {
        self.replace(at..at, bytes)
    }

    /// Replaces bytes by any number of others.
    ///
    /// # Errors
    /// See [`EditError`]. Nothing is changed.
    pub fn replace(&mut self, range: Range<usize>, bytes: &[u8]) -> Result<(), EditError> {
        let checked = self.check(&range, bytes.len());
        let (target, room) = checked.inspect_err(|&error| self.tally.refuse(error))?;
        if range.is_empty() && bytes.is_empty() {
            return Ok(());
        }
        (self.target, self.room) = (target, room);
        let from = self.new_bytes.len();
        self.new_bytes.extend_from_slice(bytes);
        self.changes.push(Change { start: range.start, end: range.end, new: (from, self.new_bytes.len()) });
        Ok(())
    }

    /// Returns what is edited behind the replacement of a range by so many bytes, and the room that is left.
    fn check(&self, range: &Range<usize>, new: usize) -> Result<(Target, usize), EditError> {
        let (start, end) = (range.start, range.end);
        let first = self.changes.last().map_or(0, |last| last.end);
        let is_behind_hold = self.hold.is_some_and(|hold| end > hold);
        let target = match self.target {
            Target::None(error) => return Err(error),
            _ if start < first || end < start || end > self.len() || is_behind_hold => {
                return Err(EditError::OutOfOrder);
            }
            Target::Stream { resizes: false } if new != end - start => return Err(EditError::OneWay),
            Target::Stream { .. } => self.target,
            Target::Datagram { gone, .. } if start < gone => return Err(EditError::Gone),
            Target::Datagram { gone, len: before, most, is_whole } => {
                let (old, len) = (end - start, before + new - (end - start));
                if new != old && !is_whole {
                    return Err(EditError::UdpLength);
                }
                if new > old && len > most {
                    return Err(EditError::Mtu);
                }
                Target::Datagram { gone, len, most, is_whole }
            }
        };
        let is_full = self.changes.len() >= MOST_CHANGES || self.new_bytes.len() + new > MOST_NEW_BYTES;
        let room = self.room.checked_sub(change_len(start - first, end - start, new));
        room.filter(|_| !is_full).map(|room| (target, room)).ok_or(EditError::TooMany)
    }

    /// Holds back the bytes from a position on: nothing of them goes on before the function has seen more.
    /// It gets them again, in front of the next ones. No edit may follow. Returns false, and does nothing, if
    /// the bytes cannot be held ([`StreamEdit::can_hold`]).
    pub fn hold_from(&mut self, at: usize) -> bool {
        let first = self.changes.last().map_or(0, |last| last.end);
        if !self.can_hold() || at < first {
            return false;
        }
        self.hold = Some(at).filter(|&at| at < self.len());
        true
    }

    /// Keeps the bytes of a datagram from a position on, at most 2048. They go on, and the function gets them
    /// again in front of the next datagram of the direction. What has been edited must not be kept. Does
    /// nothing if the bytes are those of TCP.
    pub fn keep_from(&mut self, at: usize) {
        let first = self.changes.last().map_or(0, |last| last.end);
        if self.is_datagram() && at >= first {
            self.kept = Some(at).filter(|&at| at < self.len());
        }
    }
}

/// The bytes in front of a function that edits.
pub(in crate::stream) struct EditInput<'a> {
    /// Position of the packet in its vector.
    pub at: usize,
    pub view: View,
    /// The number of the function's tail. 0: there is none.
    pub tail: &'a mut u32,
}

impl EditMemory {
    /// Calls a closure with the bytes in front of a function, and does what it has asked for. Returns what
    /// the closure returns. The closure is not called if there are no bytes.
    pub(in crate::stream) fn edit<R>(
        &mut self,
        packet: &Packet<'_>,
        input: EditInput<'_>,
        f: impl FnOnce(&mut StreamEdit<'_, '_>) -> R,
    ) -> Option<R> {
        if packet.meta.kind.l4() != Kind::TCP {
            return self.edit_datagram(packet, input, f);
        }
        let EditInput { at, view, tail } = input;
        let direction = packet.direction as usize;
        let can_edit = self.number(at) != 0;
        let resizes = !self.one_way.contains(at);
        let target = if can_edit { Target::Stream { resizes } } else { Target::None(EditError::NotEditable) };
        let has_tail = can_edit && self.load_tail(*tail, direction);
        let EditMemory {
            work: Work { tail: held, changes, bytes, .. }, ropes, changed, tally, recorder, ..
        } = self;
        let rope = ropes.get(at).filter(|_| changed.contains(at));
        // If bytes in between were not seen, what was held is forgotten.
        if !has_tail || !is_followed(held, (packet, view), rope) {
            held.clear(0);
        }
        changes.clear();
        bytes.clear();
        let held = held.bytes();
        let data = StreamData::new(packet, view).with_edits(held, rope);
        if data.is_empty() {
            return None;
        }
        let held_len = held.len();
        let can_hold = !view.is_end && !view.is_release;
        let edit = StreamEdit::new(data, held_len, target, (changes, bytes), tally);
        let mut edit = StreamEdit { can_hold, ..edit };
        if recorder.is_some() {
            edit.set_recorded();
        }
        let (result, len) = (f(&mut edit), edit.len());
        let mut hold = edit.hold;
        if has_tail || !self.work.changes.is_empty() || hold.is_some() {
            hold = self.finish(packet, (at, view), tail, hold);
        }
        self.record(at, (len, held_len, hold));
        count_changes(&self.work.changes, &mut self.tally);
        Some(result)
    }

    /// Writes down what a function in a process has asked for.
    pub(super) fn record(&mut self, at: usize, numbers: (usize, usize, Option<usize>)) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(at, numbers, (&self.work.changes, &self.work.bytes));
        }
    }

    /// Applies what a function has asked for: its tail is kept, and what goes on becomes the packet's rope.
    /// Returns the position from which on bytes are held back.
    fn finish(
        &mut self,
        packet: &Packet<'_>,
        (at, view): (usize, View),
        tail: &mut u32,
        hold: Option<usize>,
    ) -> Option<usize> {
        let EditMemory { work, ropes, changed, .. } = self;
        let Work { tail: held, output, rest, changes, bytes, .. } = work;
        let rope = ropes.get_mut(at)?;
        if !changed.contains(at) {
            rope.set_body(first_number(packet, view), view.len.into());
        }
        let body = || StreamData::new(packet, view).chunks();
        output.apply((held, rope), body(), changes, bytes);
        rest.clear(0);
        if let Some(hold) = hold {
            if *tail == 0 {
                *tail = self.tails.insert().unwrap_or(0);
            }
            let new = changes.iter().map(|change| change.new.1 - change.new.0).sum::<usize>();
            let old = changes.iter().map(|change| change.end - change.start).sum::<usize>();
            output.split_off(held.done() + hold + new - old, body(), rest);
        }
        std::mem::swap(rope, output);
        changed.insert(at);
        if self.save_tail(*tail, packet.direction as usize) {
            return hold;
        }
        self.let_go(at);
        None
    }

    /// Bytes that a function holds back have no room: they go on, if their packet does.
    #[cold]
    fn let_go(&mut self, at: usize) {
        if let Some(rope) = self.ropes.get_mut(at) {
            rope.append(&self.work.rest);
        }
        self.has_unheld = true;
        self.tally.add(NO_ROOM_TO_HOLD, 1);
    }
}

/// Whether the bytes of a packet, or what functions have made of them, follow those that were held back. True
/// if there are none.
fn is_followed(held: &Rope, (packet, view): (&Packet<'_>, View), rope: Option<&Rope>) -> bool {
    match rope.filter(|rope| !rope.is_empty()) {
        Some(rope) => held.end() == rope.from,
        None => view.len == 0 || held.end() == first_number(packet, view),
    }
}

/// Returns the sender's number of the first byte of a view.
fn first_number(packet: &Packet<'_>, view: View) -> u32 {
    segment(packet).map_or(0, |segment| {
        segment.seq.wrapping_add(u32::from(segment.flags & Segment::SYN != 0) + u32::from(view.skip))
    })
}

/// Counts the edits of a function.
pub(super) fn count_changes(changes: &[Change], tally: &mut EditTally) {
    if !changes.is_empty() {
        tally.add(EDITS, changes.len());
        tally.add(REMOVED, changes.iter().map(|change| change.end - change.start).sum());
        tally.add(INSERTED, changes.iter().map(|change| change.new.1 - change.new.0).sum());
    }
}

/// Does what a result has asked for. None: it is not one of these bytes.
fn apply(mut result: &[u8], edit: &mut StreamEdit<'_, '_>) -> Option<()> {
    let result = &mut result;
    let (len, before, open) = (take_number(result)?, take_number(result)?, take_number(result)?);
    let had = edit.held() + edit.gone();
    // The end of an earlier datagram may be missing at one side. It is not edited.
    let has_same_bytes = before == had || edit.is_datagram();
    if !has_same_bytes || len.checked_sub(before) != Some(edit.len() - had) {
        return None;
    }
    let place = |position: usize| (position + had).checked_sub(before);
    let mut done = 0_usize;
    while !result.is_empty() {
        let start = done + take_number(result)?;
        let end = start + take_number(result)?;
        let inserted = take_number(result)?;
        let new = result.split_off(..inserted)?;
        edit.replace(place(start)?..place(end)?, new).ok()?;
        done = end;
    }
    let Some(open) = open.checked_sub(1) else { return Some(()) };
    let is_in_order = (done..len).contains(&open);
    if edit.is_datagram() {
        edit.keep_from(place(open).unwrap_or(0));
        return is_in_order.then_some(());
    }
    (is_in_order && len - open <= MOST_HELD_APART && edit.hold_from(open)).then_some(())
}

impl EditMemory {
    /// Does what a function in a process has asked for. Returns false if the result is not one of these
    /// bytes: the packet must not go on.
    pub(in crate::stream) fn replay(
        &mut self,
        packet: &Packet<'_>,
        input: EditInput<'_>,
        result: &[u8],
    ) -> bool {
        match self.edit(packet, input, |edit| apply(result, edit)) {
            Some(applied) => applied.is_some(),
            None => result.is_empty(),
        }
    }

    /// A function in a process reads no more of a direction: what it holds back goes on, in front of the
    /// bytes of a packet.
    pub(in crate::stream) fn let_out(&mut self, packet: &Packet<'_>, input: EditInput<'_>) {
        if *input.tail != 0 && packet.meta.kind.l4() == Kind::TCP {
            self.edit(packet, input, |_| ());
        }
    }
}
