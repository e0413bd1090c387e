//! The output of edited connections.
//!
//! Theory of operation. The bytes that leave in a direction, the *output*, are kept until the receiver has
//! acknowledged them. They are numbered as the receiver counts. A segment that is new, was not changed and
//! has nothing to wait for leaves as it is, with another number. All other segments are built from the
//! output: bytes of an edit, bytes that the receiver's window had no room for, and bytes that the sender
//! repeats. So bytes that are sent again are those that were sent before, whatever the sender's borders are.
//!
//! The sender's own timer brings lost output out again: each byte of the output stands for a byte of the
//! sender that is not acknowledged before it is.

mod acknowledge;
mod adopt;
mod depart;
mod preack;
mod settled;

use super::log::{Edit, EditLog, EditPool};
use super::rope::Rope;
use crate::{KeptBytes, is_after, is_before};
pub use acknowledge::Translated;
pub use depart::{BuiltSegments, Departure, Leaving, OutputRange};
pub use settled::SettledNumbers;

/// The sender's number of the first byte is known.
const BEGUN: u16 = 1 << 0;
/// `acked` is valid.
const ACKED: u16 = 1 << 1;
/// `edge` is valid.
const EDGE: u16 = 1 << 2;
/// `told` is valid.
const TOLD: u16 = 1 << 3;
/// The sender's stream has ended: its FIN follows the output.
const FIN: u16 = 1 << 4;
/// The FIN has gone on.
const FIN_SENT: u16 = 1 << 5;
/// A byte behind `sent` was sent as a window probe.
const PROBED: u16 = 1 << 6;
/// Further bytes are not kept. They pass with another number.
const PASSES: u16 = 1 << 7;
/// `preacked` is valid: the receiver has not acknowledged all bytes in front of it.
const PREACKED: u16 = 1 << 8;
/// The receiver has not acknowledged all bytes in front of `first`.
const BEHIND: u16 = 1 << 9;
/// `stamp` is valid.
const STAMPED: u16 = 1 << 10;
/// Bytes of a pushed segment (PSH) leave later.
const PUSHED: u16 = 1 << 11;

/// Bytes of a TCP header without options.
const TCP_HEADER: u32 = 20;
/// Most edits of a worker that are not acknowledged.
const MOST_EDITS: usize = 1 << 20;

/// One direction of a connection. What each segment needs is in the first cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Flow {
    log: EditLog,
    /// The sender's number behind the last byte of the output.
    end: u32,
    /// The receiver's number behind the last byte that was sent.
    sent: u32,
    /// The greatest acknowledgement number of the receiver.
    acked: u32,
    /// When the first of the bytes that functions hold back came, or the last byte in front of it went on.
    held_since: u32,
    /// The right edge of the receiver's window.
    edge: u32,
    /// The right edge of the window that the sender was told, in its numbers.
    told: u32,
    /// The last timestamp of the sender.
    stamp: u32,
    /// The last acknowledgement number and window that segments of this direction carried.
    carried: (u32, u16),
    /// The greatest segment that the receiver accepts, without options. 0: not known.
    mss: u16,
    /// The payload of the sender's greatest segments.
    largest: u16,
    bits: u16,
    /// The sender's number of the first byte of the output. Valid with [`BEHIND`]. Those in front of it were
    /// not kept, and pass as they come.
    first: u32,
    /// The sender's number in front of which it was told that all bytes are acknowledged.
    preacked: u32,
}

const _: () = assert!(std::mem::offset_of!(Flow, first) <= 64, "a segment needs one cache line");

const EMPTY: Flow = Flow {
    log: EditLog::EMPTY,
    first: 0,
    end: 0,
    sent: 0,
    acked: 0,
    preacked: 0,
    held_since: 0,
    edge: 0,
    told: 0,
    carried: (0, 0),
    stamp: 0,
    mss: 0,
    largest: 0,
    bits: 0,
};

impl Flow {
    fn has(&self, bit: u16) -> bool {
        self.bits & bit != 0
    }

    /// The receiver's number behind the output.
    fn output_end(&self) -> u32 {
        self.end.wrapping_add(self.log.offset)
    }

    /// Whether the numbers of sender and receiver differ nowhere.
    fn has_same_numbers(&self) -> bool {
        self.log.len == 0 && self.log.offset == 0
    }

    /// The receiver's number behind all that was sent.
    fn next(&self) -> u32 {
        self.sent.wrapping_add(u32::from(self.has(FIN_SENT)))
    }

    /// The receiver's number behind the output that its window has room for.
    fn limit(&self) -> u32 {
        let end = self.output_end();
        if self.has(EDGE) && is_before(self.edge, end) { self.edge } else { end }
    }
}

/// A direction of an edited connection, as users see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpliceReport {
    /// The distance of the receiver's numbers from the sender's, behind the last edit.
    pub offset: i32,
    /// Edits that the receiver has not acknowledged.
    pub edits: u32,
    /// Bytes that were sent and are not acknowledged.
    pub unacknowledged: u32,
    /// Bytes that the receiver's window has no room for.
    pub unsent: u32,
    /// The sender's number behind the output.
    pub end: u32,
}

/// The edited connections of a worker.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Splices {
    output: KeptBytes,
    edits: EditPool,
    connections: Vec<[Flow; 2]>,
}

impl Splices {
    /// Reserves memory for the output, and for connections. Memory that is not used stays with the kernel.
    pub fn new(bytes: usize, connections: usize) -> Splices {
        Splices {
            output: KeptBytes::new(bytes, connections),
            edits: EditPool::new(MOST_EDITS),
            connections: Vec::with_capacity(connections),
        }
    }

    /// Adds a connection. Returns its number, which is not 0. None: there is no room.
    pub fn insert(&mut self) -> Option<u32> {
        let number = self.output.insert()?;
        match self.connections.get_mut(number as usize - 1) {
            Some(connection) => *connection = [EMPTY; 2],
            None => self.connections.push([EMPTY; 2]),
        }
        Some(number)
    }

    /// Removes a connection. Its number may be given out again.
    pub fn remove(&mut self, number: u32) {
        self.clear(number);
        self.output.remove(number);
    }

    /// Forgets all of a connection.
    pub fn clear(&mut self, number: u32) {
        for direction in [0, 1] {
            self.output.clear(number, direction);
            if let Some((flow, edits)) = self.parts(number, direction) {
                flow.log.clear(edits);
                // The SYN with the segment size of the next connection may have come.
                *flow = Flow { mss: flow.mss, ..EMPTY };
            }
        }
    }

    fn flow(&self, number: u32, direction: usize) -> Option<&Flow> {
        Some(&self.connections.get((number as usize).checked_sub(1)?)?[direction & 1])
    }

    fn parts(&mut self, number: u32, direction: usize) -> Option<(&mut Flow, &mut EditPool)> {
        let connection = self.connections.get_mut((number as usize).checked_sub(1)?)?;
        Some((&mut connection[direction & 1], &mut self.edits))
    }

    /// Calls a closure with a byte of each cache line that the next segment of a connection needs.
    #[inline(always)]
    pub fn for_each_line(&self, number: u32, mut f: impl FnMut(&u32)) {
        if let Some([one, other]) = (number as usize).checked_sub(1).and_then(|at| self.connections.get(at)) {
            f(&one.end);
            f(&other.end);
            self.output.for_each_line(number, f);
        }
    }

    /// The first byte of a direction has this number. Has an effect once. `is_behind`: it may have had others
    /// in front of it, which the receiver may lack.
    pub fn begin(&mut self, number: u32, direction: usize, seq: u32, is_behind: bool) {
        if let Some((flow, _)) = self.parts(number, direction)
            && !flow.has(BEGUN)
        {
            (flow.first, flow.end, flow.sent) = (seq, seq, seq);
            flow.bits = flow.bits & STAMPED | if is_behind { BEGUN | BEHIND } else { BEGUN };
        }
    }

    /// Notes the greatest segment that the receiver of a direction accepts (RFC 9293, 3.7.1).
    pub fn note_mss(&mut self, number: u32, direction: usize, mss: u16) {
        if let Some((flow, _)) = self.parts(number, direction) {
            flow.mss = mss;
        }
    }

    /// A link on the path of a direction carries TCP headers and payload of at most so many bytes. `least`:
    /// what each path carries, so that a forged error does no more (RFC 5927, 7.1).
    pub fn note_path(&mut self, number: u32, direction: usize, bytes: u32, least: u16) {
        if let Some((flow, _)) = self.parts(number, direction)
            && flow.mss != 0
        {
            let payload = u16::try_from(bytes.saturating_sub(TCP_HEADER)).unwrap_or(u16::MAX);
            flow.mss = flow.mss.min(payload.max(least));
        }
    }

    /// Notes the payload of a segment of a direction. Of a large frame, that of its greatest segment counts.
    ///
    /// A sender that repeats its first byte that is not acknowledged may have learned of a smaller path MTU.
    pub fn note_segment(&mut self, number: u32, direction: usize, (seq, len): (u32, u32)) {
        let Some((flow, _)) = self.parts(number, direction) else { return };
        let is_first = flow.has(ACKED) && seq.wrapping_add(flow.log.offset) == flow.acked;
        let is_repeated = is_first && flow.acked != flow.sent;
        if len != 0 && (is_repeated || len > flow.largest.into()) {
            flow.largest = u16::try_from(len).unwrap_or(u16::MAX);
        }
    }

    /// Notes a timestamp of a direction's sender.
    pub fn note_stamp(&mut self, number: u32, direction: usize, stamp: u32) {
        if let Some((flow, _)) = self.parts(number, direction)
            && (!flow.has(STAMPED) || !is_before(stamp, flow.stamp))
        {
            (flow.stamp, flow.bits) = (stamp, flow.bits | STAMPED);
        }
    }

    /// Returns the last timestamp of a direction's sender.
    pub fn stamp(&self, number: u32, direction: usize) -> Option<u32> {
        self.flow(number, direction).filter(|flow| flow.has(STAMPED)).map(|flow| flow.stamp)
    }

    /// Returns the most payload of a segment with so many bytes of options. `least`: what each path carries.
    pub fn most_payload(&self, number: u32, direction: usize, options: usize, least: u16) -> usize {
        let (mss, largest) = self.flow(number, direction).map_or((0, 0), |flow| (flow.mss, flow.largest));
        let mss = usize::from(if mss == 0 { least } else { mss }).saturating_sub(options);
        mss.min(usize::from(largest).max(usize::from(least).saturating_sub(options))).max(1)
    }

    /// Whether an acknowledgement number is one of the bytes that have gone on.
    pub fn expects(&self, number: u32, direction: usize, ack: u32) -> bool {
        self.flow(number, direction).is_some_and(|flow| !is_after(ack, flow.next()))
    }

    /// Whether the first byte of a direction is known.
    pub fn has_begun(&self, number: u32, direction: usize) -> bool {
        self.flow(number, direction).is_some_and(|flow| flow.has(BEGUN))
    }

    /// Further bytes are not kept: they pass with the numbers that the receiver expects.
    pub fn stop(&mut self, number: u32) {
        for direction in [0, 1] {
            if let Some((flow, _)) = self.parts(number, direction)
                && flow.has(BEGUN)
            {
                flow.bits |= PASSES;
            }
        }
    }

    /// The next byte of the output of a direction is another one than expected. What is known of the bytes
    /// in front of it is forgotten.
    pub fn skip_to(&mut self, number: u32, direction: usize, seq: u32) {
        self.output.clear(number, direction);
        if let Some((flow, edits)) = self.parts(number, direction) {
            flow.log.clear(edits);
            (flow.first, flow.end) = (seq, seq);
            flow.sent = flow.output_end();
            flow.bits = flow.bits & !(FIN | FIN_SENT | PROBED | PREACKED) | BEHIND;
        }
    }

    /// Returns the sender's number behind the output, and the receiver's.
    pub fn ends(&self, number: u32, direction: usize) -> (u32, u32) {
        self.flow(number, direction).map_or((0, 0), |flow| (flow.end, flow.output_end()))
    }

    /// Returns the number that the receiver of a direction expects if it has got all that was sent.
    pub fn next(&self, number: u32, direction: usize) -> u32 {
        self.flow(number, direction).map_or(0, Flow::next)
    }

    /// Returns the greatest acknowledgement number of a direction's receiver.
    pub fn acknowledged(&self, number: u32, direction: usize) -> Option<u32> {
        self.flow(number, direction).filter(|flow| flow.has(ACKED)).map(|flow| flow.acked)
    }

    /// Returns the acknowledgement number and window that segments of a direction carried last.
    pub fn carried(&self, number: u32, direction: usize) -> (u32, u16) {
        self.flow(number, direction).map_or((0, 0), |flow| flow.carried)
    }

    /// Whether all output of a direction was sent and acknowledged.
    pub fn is_acknowledged(&self, number: u32, direction: usize) -> bool {
        self.flow(number, direction)
            .is_some_and(|flow| flow.has(ACKED) && !is_before(flow.acked, flow.output_end()))
    }

    /// Returns what is known of a direction, for users.
    pub fn report(&self, number: u32, direction: usize) -> SpliceReport {
        let Some(flow) = self.flow(number, direction).filter(|flow| flow.has(BEGUN)) else {
            return SpliceReport::default();
        };
        // The number of an acknowledged FIN is behind the bytes.
        let acked = if flow.has(ACKED) && is_before(flow.acked, flow.sent) { flow.acked } else { flow.sent };
        SpliceReport {
            offset: flow.log.offset as i32,
            edits: flow.log.len,
            unacknowledged: flow.sent.wrapping_sub(acked),
            unsent: flow.output_end().wrapping_sub(flow.sent),
            end: flow.end,
        }
    }

    /// Whether the numbers of a direction's sender and receiver differ somewhere.
    pub fn has_offset(&self, number: u32, direction: usize) -> bool {
        self.flow(number, direction).is_some_and(|flow| !flow.has_same_numbers())
    }

    /// Whether there is room for so many bytes and edits more.
    pub fn has_room(&self, number: u32, direction: usize, bytes: usize, edits: usize) -> bool {
        self.edits.has_room(edits) && self.output.has_room(number, direction, bytes)
    }

    /// Forgets the output but its last bytes: they are taken to be acknowledged.
    pub fn forget(&mut self, number: u32, direction: usize, kept: u32) {
        let (_, end) = self.ends(number, direction);
        self.output.acknowledge(number, direction, end.wrapping_sub(kept));
    }

    /// Appends bytes of the sender to the output. Returns false if there is no room.
    pub fn append(&mut self, number: u32, direction: usize, bytes: &[u8]) -> bool {
        let (_, to) = self.ends(number, direction);
        let is_kept = self.output.append(number, direction, to, bytes);
        if let Some((flow, _)) = self.parts(number, direction) {
            flow.end = flow.end.wrapping_add(bytes.len() as u32);
        }
        is_kept
    }

    /// Appends what functions have made of bytes of the sender. `body`: the bytes of the rope's body. Returns
    /// false if there is no room.
    pub fn append_rope<'a>(
        &mut self,
        number: u32,
        direction: usize,
        rope: &'a Rope,
        body: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        rope.iter(body).all(|(part, bytes)| match part.is_plain() {
            true => self.append(number, direction, bytes),
            false => self.append_edit(number, direction, part.input, bytes),
        })
    }

    /// Appends bytes in place of the next `removed` bytes of the sender, at least one. Returns false if there
    /// is no room.
    fn append_edit(&mut self, number: u32, direction: usize, removed: u32, bytes: &[u8]) -> bool {
        let (from, to) = self.ends(number, direction);
        let inserted = bytes.len() as u32;
        let is_kept = self.output.append(number, direction, to, bytes);
        let Some((flow, edits)) = self.parts(number, direction) else { return false };
        let is_noted = flow.log.push(edits, Edit { from, removed, to, inserted });
        flow.end = flow.end.wrapping_add(removed);
        is_kept && is_noted
    }

    /// Calls a closure with the bytes of a range of the output, in order. Returns false, and calls nothing,
    /// if not all of them are kept.
    pub fn for_each_piece(
        &self,
        number: u32,
        direction: usize,
        (from, to): (u32, u32),
        mut f: impl FnMut(&[u8]),
    ) -> bool {
        let len = to.wrapping_sub(from) as usize;
        let is_kept = len == 0 || self.output.covers(number, direction, from, len);
        if is_kept {
            self.output.pieces(number, direction, from, len, |_, bytes| f(bytes));
        }
        is_kept
    }

    /// Appends bytes of the output to a buffer. Returns whether all of them are kept.
    pub fn read(&self, number: u32, direction: usize, (from, to): (u32, u32), out: &mut Vec<u8>) -> bool {
        self.output.read(number, direction, from, to.wrapping_sub(from) as usize, out)
    }
}
