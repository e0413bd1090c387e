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

mod preack;
mod settled;

use super::log::{Edit, EditLog, EditPool};
use crate::{KeptBytes, Segment, View, is_after, is_before};
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

/// Bytes of a TCP header without options.
const TCP_HEADER: u32 = 20;
/// Most edits of a worker that are not acknowledged.
const MOST_EDITS: usize = 1 << 20;

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
struct Flow {
    log: EditLog,
    /// The sender's number behind the last byte of the output.
    end: u32,
    /// The receiver's number behind the last byte that was sent.
    sent: u32,
    /// The greatest acknowledgement number of the receiver.
    acked: u32,
    /// The sender's number in front of which it was told that all bytes are acknowledged.
    preacked: u32,
    /// When the first of the bytes that functions hold back came, or the last byte in front of it went on.
    held_since: u32,
    /// The right edge of the receiver's window.
    edge: u32,
    /// The right edge of the window that the sender was told, in its numbers.
    told: u32,
    /// The last acknowledgement number and window that segments of this direction carried.
    carried: (u32, u16),
    /// The last timestamp of the sender.
    stamp: Option<u32>,
    /// The greatest segment that the receiver accepts, without options. 0: not known.
    mss: u16,
    /// The payload of the sender's greatest segments.
    largest: u16,
    bits: u16,
}

const EMPTY: Flow = Flow {
    log: EditLog::EMPTY,
    end: 0,
    sent: 0,
    acked: 0,
    preacked: 0,
    held_since: 0,
    edge: 0,
    told: 0,
    carried: (0, 0),
    stamp: None,
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

/// Bytes of the output, by the receiver's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputRange {
    /// Number of the first byte.
    pub from: u32,
    /// Number behind the last byte.
    pub to: u32,
    /// The FIN follows.
    pub has_fin: bool,
}

impl OutputRange {
    /// Whether there is nothing to send.
    pub fn is_empty(self) -> bool {
        self.from == self.to && !self.has_fin
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

/// A segment that goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Sequence number.
    pub seq: u32,
    /// Bytes of payload.
    pub len: u32,
    /// The lower eight flags.
    pub flags: u8,
    /// Which of the payload is new.
    pub view: View,
    /// The output has grown by the new payload, and by nothing else.
    pub is_unchanged: bool,
    /// The receiver's number behind the output before this segment.
    pub before: u32,
    /// Bytes of the sender have become output, or were removed.
    pub has_moved: bool,
    /// The sender's number behind all that was seen of it, also of what waits.
    pub next: u32,
    /// Acknowledgement number and window, as the receiver is told.
    pub carries: (u32, u16),
}

/// How a segment goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// As it is, with this sequence number.
    InPlace(u32),
    /// As segments that are built from the output.
    Built(BuiltSegments),
}

/// The segments that are sent in place of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuiltSegments {
    /// Bytes that were sent before, and then bytes that follow.
    pub ranges: [OutputRange; 2],
    /// The receiver gets an acknowledgement without bytes, with this sequence number.
    pub acknowledgement: Option<u32>,
    /// The sender gets an acknowledgement: its bytes were removed, and nothing else is outstanding.
    pub answers_sender: bool,
}

impl BuiltSegments {
    /// A segment whose `len` bytes, up to a receiver's number, were acknowledged. Functions do not see its
    /// bytes, which may be others than those that they have let out, so it goes on without them. The receiver
    /// answers it as any segment with old numbers (RFC 9293, 3.10.7.4): the sender learns what it has.
    fn without_bytes(end: u32, len: u32, has_fin: bool) -> BuiltSegments {
        let fin = OutputRange { from: end, to: end, has_fin };
        let acknowledgement = (!has_fin).then(|| end.wrapping_sub(len));
        BuiltSegments { ranges: [OutputRange::default(), fin], acknowledgement, answers_sender: false }
    }
}

/// The edited connections of a worker.
#[derive(Debug)]
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

    /// The first byte of a direction has this number. Has an effect once.
    pub fn begin(&mut self, number: u32, direction: usize, seq: u32) {
        if let Some((flow, _)) = self.parts(number, direction)
            && !flow.has(BEGUN)
        {
            (flow.end, flow.sent, flow.bits) = (seq, seq, BEGUN);
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

    /// Notes timestamp and payload of a segment of a direction. Of a large frame, that of its greatest
    /// segment counts.
    ///
    /// A sender that repeats its first byte that is not acknowledged may have learned of a smaller path MTU.
    pub fn note_segment(
        &mut self,
        number: u32,
        direction: usize,
        (seq, len): (u32, u32),
        stamp: Option<u32>,
    ) {
        let Some((flow, _)) = self.parts(number, direction) else { return };
        if let Some(stamp) = stamp {
            let is_later = flow.stamp.is_none_or(|last| !is_before(stamp, last));
            flow.stamp = if is_later { Some(stamp) } else { flow.stamp };
        }
        let is_first = flow.has(ACKED) && seq.wrapping_add(flow.log.offset) == flow.acked;
        let is_repeated = is_first && flow.acked != flow.sent;
        if len != 0 && (is_repeated || len > flow.largest.into()) {
            flow.largest = u16::try_from(len).unwrap_or(u16::MAX);
        }
    }

    /// Returns the last timestamp of a direction's sender.
    pub fn stamp(&self, number: u32, direction: usize) -> Option<u32> {
        self.flow(number, direction)?.stamp
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
            flow.end = seq;
            flow.sent = flow.output_end();
            flow.bits &= !(FIN | FIN_SENT | PROBED | PREACKED);
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
        SpliceReport {
            offset: flow.log.offset as i32,
            edits: flow.log.len,
            unacknowledged: if flow.has(ACKED) { flow.sent.wrapping_sub(flow.acked) } else { 0 },
            unsent: flow.output_end().wrapping_sub(flow.sent),
            end: flow.end,
        }
    }

    /// Whether the numbers of a direction's sender and receiver differ somewhere.
    pub fn has_offset(&self, number: u32, direction: usize) -> bool {
        self.flow(number, direction).is_some_and(|flow| flow.log.len != 0 || flow.log.offset != 0)
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

    /// Appends bytes in place of the next `removed` bytes of the sender, at least one. Returns false if there
    /// is no room.
    pub fn append_edit(&mut self, number: u32, direction: usize, removed: u32, bytes: &[u8]) -> bool {
        let (from, to) = self.ends(number, direction);
        let inserted = bytes.len() as u32;
        let is_kept = self.output.append(number, direction, to, bytes);
        let Some((flow, edits)) = self.parts(number, direction) else { return false };
        let is_noted = flow.log.push(edits, Edit { from, removed, to, inserted });
        flow.end = flow.end.wrapping_add(removed);
        is_kept && is_noted
    }

    /// The receiver of a direction has acknowledged bytes. `window`: the field of the header, and its shift
    /// if it is known.
    ///
    /// Returns what the sender is told: acknowledgement number and field.
    pub fn acknowledge(
        &mut self,
        number: u32,
        direction: usize,
        ack: u32,
        (window, shift): (u16, Option<u8>),
    ) -> (u32, u16) {
        let Some((flow, edits)) = self.parts(number, direction).filter(|(flow, _)| flow.has(BEGUN)) else {
            return (ack, window);
        };
        let last = flow.next().wrapping_add(u32::from(flow.has(PROBED)));
        if is_after(ack, last) {
            return (ack.wrapping_sub(flow.log.offset), window);
        }
        if !flow.has(ACKED) || is_after(ack, flow.acked) {
            (flow.acked, flow.bits) = (ack, flow.bits | ACKED);
            if flow.has(PROBED) && is_after(ack, flow.sent) {
                (flow.sent, flow.bits) = (ack, flow.bits & !PROBED);
            }
            flow.log.fold(edits, ack);
        }
        let acked = flow.log.sender_numbers(edits, ack).0;
        if flow.has(PREACKED) && !is_before(acked, flow.preacked) {
            flow.bits &= !PREACKED;
        }
        let acked = flow.told_ack(acked);
        let window = shift.map_or(window, |shift| flow.tell(acked, ack, window, shift));
        self.output.acknowledge(number, direction, ack);
        (acked, window)
    }

    /// Returns what [`Splices::acknowledge`] would, and changes nothing.
    pub fn told(
        &self,
        number: u32,
        direction: usize,
        ack: u32,
        (window, shift): (u16, Option<u8>),
    ) -> (u32, u16) {
        let flow = self.flow(number, direction).copied().filter(|flow| flow.has(BEGUN));
        let Some(mut flow) = flow else { return (ack, window) };
        if is_after(ack, flow.next().wrapping_add(u32::from(flow.has(PROBED)))) {
            return (ack.wrapping_sub(flow.log.offset), window);
        }
        let acked = flow.told_ack(flow.log.sender_numbers(&self.edits, ack).0);
        (acked, shift.map_or(window, |shift| flow.tell(acked, ack, window, shift)))
    }

    /// Returns the greatest acknowledgement number of the receiver, as the sender is told. None: there was
    /// none.
    pub fn told_acknowledged(&self, number: u32, direction: usize) -> Option<u32> {
        let flow = self.flow(number, direction).filter(|flow| flow.has(BEGUN) && flow.has(ACKED))?;
        Some(flow.told_ack(flow.log.sender_numbers(&self.edits, flow.acked).0))
    }

    /// Returns the sender's numbers of a block of a selective acknowledgement. None: nothing is left.
    pub fn selected(&self, number: u32, direction: usize, block: (u32, u32)) -> Option<(u32, u32)> {
        let flow = self.flow(number, direction).filter(|flow| flow.has(BEGUN))?;
        let mut from = flow.log.sender_numbers(&self.edits, block.0).1;
        let to = flow.log.sender_numbers(&self.edits, block.1).0;
        if is_after(block.1, flow.acked) {
            // In front of the acknowledgement number, a block would tell of a duplicate (RFC 2883).
            from = flow.told_ack(from);
        }
        is_before(from, to).then_some((from, to))
    }

    /// Returns the sender's number of a receiver's number.
    pub fn to_sender(&self, number: u32, direction: usize, seq: u32) -> u32 {
        let flow = self.flow(number, direction).filter(|flow| flow.has(BEGUN));
        flow.map_or(seq, |flow| flow.log.sender_numbers(&self.edits, seq).0)
    }

    /// Returns the receiver's number of a sender's number.
    pub fn to_receiver(&self, number: u32, direction: usize, seq: u32) -> u32 {
        self.flow(number, direction).map_or(seq, |flow| flow.log.receiver_numbers(&self.edits, seq).0)
    }

    /// Returns output that was not sent and fits into the receiver's window, and notes it as sent.
    pub fn take_pending(&mut self, number: u32, direction: usize) -> OutputRange {
        let Some((flow, _)) = self.parts(number, direction) else { return OutputRange::default() };
        let (from, limit) = (flow.sent, flow.limit());
        if is_after(limit, flow.sent) {
            (flow.sent, flow.bits) = (limit, flow.bits & !PROBED);
        }
        let has_fin = flow.has(FIN) && !flow.has(FIN_SENT) && flow.sent == flow.output_end();
        flow.bits |= if has_fin { FIN_SENT } else { 0 };
        OutputRange { from, to: flow.sent, has_fin }
    }

    /// Takes back bytes at the end of what was sent: they leave later.
    pub fn defer(&mut self, number: u32, direction: usize, bytes: u32) {
        if let Some((flow, _)) = self.parts(number, direction) {
            flow.sent = flow.sent.wrapping_sub(bytes);
        }
    }

    /// Returns deferred bytes in front of a receiver's number, and notes them as sent.
    pub fn take_deferred(&mut self, number: u32, direction: usize, end: u32) -> OutputRange {
        let Some((flow, _)) = self.parts(number, direction) else { return OutputRange::default() };
        let (from, limit) = (flow.sent, flow.limit());
        let to = if is_after(end, limit) { limit } else { end };
        if !is_after(to, from) {
            return OutputRange::default();
        }
        flow.sent = to;
        OutputRange { from, to, has_fin: false }
    }

    /// Decides how a segment goes on, and notes what is sent.
    pub fn depart(&mut self, number: u32, direction: usize, leaving: &Leaving) -> Departure {
        let Some((flow, edits)) = self.parts(number, direction).filter(|(flow, _)| flow.has(BEGUN)) else {
            return Departure::InPlace(leaving.seq);
        };
        let carries_news = std::mem::replace(&mut flow.carried, leaving.carries) != leaving.carries;
        let is_syn = leaving.flags & Segment::SYN != 0;
        let has_fin = leaving.flags & Segment::FIN != 0;
        let start = leaving.seq.wrapping_add(u32::from(is_syn));
        if leaving.view.is_end {
            flow.bits |= FIN;
        }
        let is_empty = leaving.len == 0 && !has_fin;
        if is_empty && is_syn {
            // The first of its connection, or of the next one.
            return Departure::InPlace(leaving.seq);
        }
        if is_empty || leaving.flags & Segment::RST != 0 {
            return Departure::InPlace(flow.number_of(edits, start, leaving.next));
        }
        if flow.has(PASSES) && !is_before(start, flow.end) && !flow.lacks_preacked(start) {
            let seq = start.wrapping_add(flow.log.offset);
            let end = seq.wrapping_add(leaving.len);
            if is_after(end, flow.sent) {
                flow.sent = end;
            }
            return Departure::InPlace(seq.wrapping_sub(u32::from(is_syn)));
        }
        let is_new = leaving.view.skip == 0 && u32::from(leaving.view.len) == leaving.len;
        let fits = flow.limit() == flow.output_end() || leaving.len == 1 && flow.is_idle();
        let is_complete = !has_fin || leaving.view.is_end;
        if is_new && leaving.is_unchanged && flow.sent == leaving.before && fits && is_complete {
            flow.sent = flow.output_end();
            flow.bits |= if has_fin { FIN_SENT } else { 0 };
            return Departure::InPlace(leaving.before.wrapping_sub(u32::from(is_syn)));
        }
        let end = start.wrapping_add(leaving.len);
        let has_old = !leaving.view.is_end && leaving.view.len == 0;
        if let Some(number) = flow.old_number(edits, end, has_fin).filter(|_| has_old) {
            return Departure::Built(BuiltSegments::without_bytes(number, leaving.len, has_fin));
        }
        self.build(number, direction, leaving, (start, carries_news))
    }

    /// Decides which segments are sent in place of one.
    fn build(
        &mut self,
        number: u32,
        direction: usize,
        leaving: &Leaving,
        (start, carries_news): (u32, bool),
    ) -> Departure {
        let Some((flow, edits)) = self.parts(number, direction) else {
            return Departure::InPlace(leaving.seq);
        };
        let is_repeated = leaving.view.len == 0 && !leaving.view.is_end;
        let old = if is_repeated { leaving.len } else { leaving.view.skip.into() };
        let mut repeated = OutputRange { from: flow.sent, to: flow.sent, has_fin: false };
        let lacks_preacked = flow.lacks_preacked(start) && (is_repeated || old != 0);
        if old != 0 && !is_after(start, flow.end) || lacks_preacked {
            let from = flow.log.receiver_numbers(edits, start).0;
            let to = flow.log.receiver_numbers(edits, start.wrapping_add(old)).1;
            let is_older = flow.has(ACKED) && is_before(from, flow.acked);
            repeated.from = if is_older || lacks_preacked { flow.acked } else { from };
            let last = if is_after(flow.sent, flow.output_end()) { flow.output_end() } else { flow.sent };
            repeated.to = if is_after(to, last) { last } else { to };
            if !is_before(repeated.from, repeated.to) {
                repeated.from = repeated.to;
            }
        }
        let was_sent = flow.has(FIN_SENT);
        let is_idle = flow.is_idle();
        let mut fresh = self.take_pending(number, direction);
        let Some((flow, _)) = self.parts(number, direction) else { return Departure::InPlace(leaving.seq) };
        // A FIN that is repeated.
        let reaches = start.wrapping_add(leaving.len) == flow.end;
        if leaving.flags & Segment::FIN != 0 && was_sent && reaches {
            fresh.has_fin = true;
        }
        // The receiver has no room: a byte behind its window asks for the window.
        if fresh.is_empty() && is_idle && flow.sent != flow.output_end() {
            fresh = OutputRange { to: flow.sent.wrapping_add(1), ..fresh };
            flow.bits |= PROBED;
        }
        let is_silent = repeated.is_empty() && fresh.is_empty();
        let is_done = flow.has(ACKED) && !is_before(flow.acked, flow.output_end());
        let next = flow.next();
        Departure::Built(BuiltSegments {
            ranges: [repeated, fresh],
            acknowledgement: (is_silent && carries_news).then_some(next),
            answers_sender: is_silent && is_done && leaving.has_moved,
        })
    }

    /// Appends bytes of the output to a buffer. Returns whether all of them are kept.
    pub fn read(&self, number: u32, direction: usize, (from, to): (u32, u32), out: &mut Vec<u8>) -> bool {
        self.output.read(number, direction, from, to.wrapping_sub(from) as usize, out)
    }
}

impl Flow {
    /// Whether all that was sent is acknowledged.
    fn is_idle(&self) -> bool {
        self.has(ACKED) && self.acked == self.next()
    }

    /// Returns the number of a segment without payload, or of a reset.
    fn number_of(&self, edits: &EditPool, start: u32, next: u32) -> u32 {
        // The sender is ahead of what has gone on if bytes of it wait.
        let next = next.wrapping_add(u32::from(self.has(FIN)));
        if start == next && !self.has(PASSES) {
            return self.next();
        }
        self.log.receiver_numbers(edits, start).0
    }

    /// Returns the receiver's number behind the bytes of a segment that the receiver has all acknowledged: a
    /// keepalive, or a retransmission. `end`: the sender's.
    fn old_number(&self, edits: &EditPool, end: u32, has_fin: bool) -> Option<u32> {
        let is_complete = self.sent == self.output_end() || self.has(PASSES);
        let is_whole = !is_after(end, self.end) && is_complete && self.has(ACKED);
        let to = self.log.receiver_numbers(edits, end).1;
        let last = to.wrapping_add(u32::from(has_fin));
        let is_old = is_whole && !is_after(last, self.acked) && (!has_fin || self.has(FIN_SENT));
        is_old.then_some(to)
    }

    /// Returns the field of the window that the sender is told. The right edge never moves back.
    fn tell(&mut self, acked: u32, ack: u32, window: u16, shift: u8) -> u16 {
        let shift = shift.min(14);
        let edge = ack.wrapping_add(u32::from(window) << shift);
        if !self.has(EDGE) || is_after(edge, self.edge) {
            (self.edge, self.bits) = (edge, self.bits | EDGE);
        }
        let own = edge.wrapping_sub(self.log.offset);
        if !self.has(TOLD) || is_after(own, self.told) {
            (self.told, self.bits) = (own, self.bits | TOLD);
        }
        let is_plain = self.log.len == 0 && self.log.offset == 0 && acked == ack;
        if is_plain || self.told.wrapping_sub(acked) == u32::from(window) << shift {
            return window;
        }
        self.field(acked, shift)
    }

    /// Returns the field of the window that the sender is told with an acknowledgement number of its own. The
    /// right edge stays.
    fn field(&mut self, acked: u32, shift: u8) -> u16 {
        let room = self.told.wrapping_sub(acked);
        if room as i32 <= 0 {
            return 0;
        }
        let field = room.div_ceil(1 << shift).min(u16::MAX.into());
        let told = acked.wrapping_add(field << shift);
        if is_after(told, self.told) {
            self.told = told;
        }
        field as u16
    }
}
