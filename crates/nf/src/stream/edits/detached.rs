//! Connections that have left the functions that edited them.
//!
//! Theory of operation. Rules, chains and functions change while connections last. The ends of an edited
//! connection count differently from then on, whether its functions stay or not. When a session leaves a
//! group that has edited it, the worker keeps the connection's numbers ([`Splices`]) in a list by session.
//! Bytes that the functions held back go on. The packets of such a session are translated next to the chain
//! that it passes now: in front of it in forward direction, behind it in reverse direction. So a chain sees
//! what the responder sends and gets, but for the numbers that rules translate. If a function of the chain
//! opens connections itself (`synproxy`), edits were made behind it, and the packets are translated on the
//! other side of the chain.
//!
//! When nothing edited is under way any more, constants are left ([`super::settled`]).

use mmb_flow::{Direction, EditOffsets, TcpSegment};
use mmb_packet::{DropReason, Kind};
use mmb_stream::{Leaving, Segment, SpliceReport, Splices, TcpStream, View};

use super::frames::{Cause, ExpectedNumbers, LEAST4, LEAST6};
use super::settled::shift_numbers;
use super::{DetachedEdits, EditMemory, NOT_EDITED};
use crate::context::Emissions;
use crate::stream::reset_both;
use crate::tcp_segment::{ACKNOWLEDGMENT, PSH, segment};
use crate::{Packet, Verdict};

/// Bytes that the windows of edited connections are taken to be greater: those of a vector of full frames.
const WINDOW_ROOM: u32 = 1 << 19;

/// Returns the stream of a session if functions edit its connection now.
fn edited_stream(stream: Option<&TcpStream>) -> Option<&TcpStream> {
    stream.filter(|stream| stream.is_edited() && stream.kept() != NOT_EDITED)
}

/// Returns the number of a stream's connection. 0: functions do not edit it.
pub(super) fn number_of(stream: &TcpStream) -> u32 {
    edited_stream(Some(stream)).map_or(0, TcpStream::kept)
}

/// Returns the numbers of a session at the group that it passes now, if functions edit its connection.
pub(super) fn current_edits(stream: Option<&TcpStream>) -> Option<DetachedEdits> {
    edited_stream(stream).map(|stream| DetachedEdits::Open {
        number: stream.kept(),
        shifts: [0, 1].map(|direction| stream.window_shift(direction)),
        is_refused: false,
    })
}

/// Returns the connection's number if the ends of a stream count differently, or if edited bytes are under
/// way.
fn edited_number(stream: &TcpStream, splices: &Splices) -> Option<u32> {
    let number = edited_stream(Some(stream))?.kept();
    let is_edited = |direction: usize| {
        splices.has_offset(number, direction)
            || splices.has_begun(number, direction) && !splices.is_acknowledged(number, direction)
    };
    [0, 1].into_iter().any(is_edited).then_some(number)
}

fn direction_of(direction: usize) -> Direction {
    if direction == 0 { Direction::Forward } else { Direction::Reverse }
}

/// Returns the description of a direction. `held`: bytes that functions hold back.
fn side(report: SpliceReport, held: u32) -> String {
    let SpliceReport { offset, edits, unacknowledged, unsent, .. } = report;
    let mut text = format!("offset {offset:+}");
    let parts = [
        (edits, "edits in flight"),
        (unacknowledged, "bytes not acknowledged"),
        (unsent, "bytes wait for the receiver's window"),
        (held, "bytes held back by functions"),
    ];
    for (count, what) in parts.into_iter().filter(|(count, _)| *count != 0) {
        text += &format!(", {count} {what}");
    }
    text
}

impl EditMemory {
    /// Whether packets of a stream have to be translated behind its functions.
    pub fn needs_offsets(&self, stream: &TcpStream) -> bool {
        edited_number(stream, &self.splices).is_some()
    }

    /// Whether a session has left a group that has edited it.
    pub fn is_detached(&self, session: u32) -> bool {
        self.detached.contains_key(&session)
    }

    /// Whether bytes of a direction wait for a function, in its tail with this number.
    pub fn has_tail(&self, tail: u32, direction: usize) -> bool {
        self.tails.len(tail, direction) != 0
    }

    /// Bytes in the tail of a function go on unchanged. To be called for the last function first.
    pub fn flush_tail(&mut self, number: u32, direction: usize, tail: u32) {
        if tail == 0 || !self.load_tail(tail, direction) {
            return;
        }
        self.tails.clear(tail, direction);
        let EditMemory { splices, work, .. } = self;
        if work.tail.from == splices.ends(number, direction).0 {
            // Without room the sender repeats what follows, and it passes unedited.
            splices.append_rope(number, direction, &work.tail, std::iter::empty());
        }
    }

    /// A session leaves a group. Its connection keeps its numbers if they are needed, or if it has to be
    /// reset. Returns whether it does.
    pub fn detach(&mut self, session: u32, stream: &TcpStream, is_refused: bool) -> bool {
        let number = match is_refused {
            true => edited_stream(Some(stream)).map(TcpStream::kept),
            false => edited_number(stream, &self.splices),
        };
        let Some(number) = number else { return false };
        self.splices.stop(number);
        let shifts = [0, 1].map(|direction| stream.window_shift(direction));
        self.detached.entry(session).or_default().push(DetachedEdits::Open { number, shifts, is_refused });
        true
    }

    /// Changes acknowledgement and window of a segment to those that their receiver is told. `stream`: the
    /// connection at the group that the session passes now. Changes nothing in the memory.
    ///
    /// The window is greater, since bytes that are removed later in the same vector widen it.
    pub fn untranslate(
        &self,
        session: u32,
        stream: Option<&TcpStream>,
        direction: usize,
        segment: &mut TcpSegment,
    ) {
        let groups = self.groups(session, stream);
        let is_syn = segment.flags & Segment::SYN != 0;
        let mut shift = None;
        let mut tell = |group: DetachedEdits| match group {
            DetachedEdits::Open { number, shifts, .. } => {
                shift = shifts[direction & 1];
                let window = (segment.window, if is_syn { Some(0) } else { shift });
                (segment.ack, segment.window) = self.splices.told(number, 1 - direction, segment.ack, window);
            }
            DetachedEdits::Settled(offsets) => {
                segment.ack = offsets.acknowledgment(direction_of(direction), segment.ack);
            }
        };
        if direction == 0 {
            groups.clone().for_each(&mut tell);
        } else {
            groups.clone().rev().for_each(&mut tell);
        }
        if !is_syn && groups.count() != 0 {
            let room = WINDOW_ROOM >> shift.unwrap_or(0).min(14);
            segment.window = segment.window.saturating_add(u16::try_from(room).unwrap_or(u16::MAX));
        }
    }

    /// Returns the sequence number that its sender has given a segment which has gone on in a direction.
    /// `stream`: the connection at the group that the session passes now.
    pub fn original_sequence(
        &self,
        session: u32,
        stream: Option<&TcpStream>,
        direction: usize,
        sequence: u32,
    ) -> u32 {
        let groups = self.groups(session, stream);
        let undo = |sequence, group| match group {
            DetachedEdits::Open { number, .. } => self.splices.to_sender(number, direction, sequence),
            DetachedEdits::Settled(offsets) => offsets.original(direction_of(direction), sequence),
        };
        // A packet meets the groups in the order of its direction.
        match direction {
            0 => groups.rev().fold(sequence, undo),
            _ => groups.fold(sequence, undo),
        }
    }

    /// Returns what a session has left behind, and then its numbers at the group that it passes now.
    pub(super) fn groups(
        &self,
        session: u32,
        stream: Option<&TcpStream>,
    ) -> impl DoubleEndedIterator<Item = DetachedEdits> + Clone {
        let detached = self.detached.get(&session).map_or(&[][..], Vec::as_slice);
        detached.iter().copied().chain(current_edits(stream))
    }

    /// A link on the path of a direction carries so many bytes behind the IP header.
    pub fn note_path(
        &mut self,
        session: u32,
        stream: Option<&TcpStream>,
        direction: usize,
        (room, is_ip4): (u32, bool),
    ) {
        let EditMemory { detached, splices, .. } = self;
        let detached = detached.get(&session).map_or(&[][..], Vec::as_slice);
        for &group in detached.iter().chain(&current_edits(stream)) {
            if let DetachedEdits::Open { number, .. } = group {
                splices.note_path(number, direction, room, if is_ip4 { LEAST4 } else { LEAST6 });
            }
        }
    }

    /// Returns what `show connections verbose` prints of the edits of a session. `stream`: the connection at
    /// the group that the session passes now.
    pub fn describe(&self, session: u32, stream: Option<&TcpStream>) -> Vec<String> {
        let current = edited_stream(stream).map(|stream| {
            let sides = [0, 1].map(|direction| {
                let report = self.splices.report(stream.kept(), direction);
                let next =
                    stream.next(direction).filter(|_| self.splices.has_begun(stream.kept(), direction));
                let held = next.map_or(0, |next| next.wrapping_sub(report.end));
                side(report, if stream.is_ended(direction) { 0 } else { held })
            });
            sides.join(" / ")
        });
        let detached = self.detached.get(&session).map_or(&[][..], Vec::as_slice);
        let detached = detached.iter().map(|group| {
            let report = |direction: usize| match *group {
                DetachedEdits::Open { number, .. } => self.splices.report(number, direction),
                DetachedEdits::Settled(EditOffsets(offsets)) => {
                    SpliceReport { offset: offsets[direction & 1].cast_signed(), ..SpliceReport::default() }
                }
            };
            let sides = [0, 1].map(|direction| side(report(direction), 0));
            format!("{}; the functions have left", sides.join(" / "))
        });
        detached.chain(current).collect()
    }

    /// A session has ended.
    pub fn end_detached(&mut self, session: u32) {
        if self.detached.is_empty() {
            return;
        }
        for edits in self.detached.remove(&session).unwrap_or_default() {
            if let DetachedEdits::Open { number, .. } = edits {
                self.splices.remove(number);
            }
        }
    }

    /// Translates a packet if its session has left a group that has edited it.
    pub fn pass_detached(
        &mut self,
        packet: &mut Packet<'_>,
        at: usize,
        emissions: &mut Emissions,
    ) -> Verdict {
        let groups = self.detached.get(&packet.session.0).map_or(0, Vec::len);
        for n in 0..groups {
            let n = if packet.direction as usize == 0 { n } else { groups - 1 - n };
            let group = self.detached.get(&packet.session.0).and_then(|groups| groups.get(n));
            let Some(&group) = group.filter(|_| packet.meta.kind.l4() == Kind::TCP) else { break };
            let (number, shifts) = match group {
                DetachedEdits::Settled(offsets) => {
                    shift_numbers(packet, offsets);
                    continue;
                }
                DetachedEdits::Open { number, is_refused: true, .. } => {
                    return self.refuse_detached(packet, at, number, emissions);
                }
                DetachedEdits::Open { number, shifts, .. } => (number, shifts),
            };
            if !self.translate_detached(packet, at, (number, shifts), emissions) {
                return Verdict::Consume;
            }
        }
        Verdict::Pass
    }

    /// Resets a connection of which bytes waited that must not go on.
    #[cold]
    fn refuse_detached(
        &mut self,
        packet: &mut Packet<'_>,
        at: usize,
        number: u32,
        emissions: &mut Emissions,
    ) -> Verdict {
        let direction = packet.direction as usize;
        if let Some(segment) = segment(packet).filter(|segment| segment.flags & Segment::ACK != 0) {
            let window = (segment.window, None);
            let (ack, _) = self.splices.acknowledge(number, 1 - direction, segment.ack, window);
            packet.write_l4(ACKNOWLEDGMENT, &ack.to_be_bytes());
        }
        let numbers = ExpectedNumbers::of(&self.splices, number, direction);
        reset_both(emissions, (packet, at), numbers);
        Verdict::Refuse(DropReason::StreamReset)
    }

    fn translate_detached(
        &mut self,
        packet: &mut Packet<'_>,
        at: usize,
        (number, shifts): (u32, [Option<u8>; 2]),
        emissions: &mut Emissions,
    ) -> bool {
        let Some(mut segment) = segment(packet) else { return true };
        let direction = packet.direction as usize;
        self.begin(at, number);
        let is_syn = segment.flags & Segment::SYN != 0;
        if segment.flags & Segment::ACK != 0 {
            let shift = if is_syn { Some(0) } else { shifts[direction & 1] };
            self.translate(packet, &mut segment, (number, at), shift, emissions);
        }
        let pending = self.splices.take_pending(number, direction);
        if !pending.is_empty() {
            let cause = Cause { packet, at, number };
            self.send_on(&cause, [pending, Default::default()], cause.packet.tcp_flags() & PSH, emissions);
        }
        let shift = if is_syn { shifts[direction & 1].unwrap_or(0) } else { 0 };
        let leaving = Leaving {
            seq: segment.seq,
            len: segment.len.into(),
            flags: segment.flags,
            view: View::NONE,
            carries: (segment.ack, segment.window >> shift),
            ..Leaving::default()
        };
        self.depart(packet, (number, at), (&leaving, false), emissions)
    }
}
