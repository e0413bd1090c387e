//! Packets behind the functions: what is left of their bytes goes on.

use mmb_packet::{DropReason, Kind};
use mmb_stream::{BuiltSegments, Departure, Leaving, OutputRange, Segment, TcpStream, View};

use super::EditMemory;
use super::frames::{Cause, ExpectedNumbers};
use crate::context::Emissions;
use crate::set::{Set, VECTOR};
use crate::stream::context::{StreamContext, segment};
use crate::stream::reset_both;
use crate::tcp_segment::{FIN, SEQ};
use crate::vector::{RawVector, scratchpad};
use crate::{Packet, Verdict};

/// Bytes that are overwritten at a time.
const PIECE: usize = 512;

impl StreamContext {
    /// Takes packets out of the group of functions. Returns the positions of those that do not pass.
    pub(in crate::stream) fn leave_all(&self, raw: RawVector<'_, '_>) -> Set {
        let RawVector { packets, at, bases, pads, offset, verdicts, views, now, emissions, edits, .. } = raw;
        let mut events = Set::EMPTY;
        let Some(memory) = edits else { return events };
        at.for_each(|i| {
            let n = i & (VECTOR - 1);
            if memory.number(i) == 0 {
                return;
            }
            let stream = scratchpad::<TcpStream>(pads, bases[n], offset);
            let (Some(packet), Some(stream)) = (packets.get_mut(i), stream) else { return };
            if packet.meta.kind.l4() == Kind::TCP {
                let verdict = leave(packet, stream, (i, views[n], now), memory, emissions);
                if verdict != Verdict::Pass {
                    verdicts[n] = verdict;
                    events.insert(i);
                }
            }
        });
        events
    }
}

/// A packet leaves the group of functions.
fn leave(
    packet: &mut Packet<'_>,
    stream: &TcpStream,
    (at, view, now): (usize, View, u32),
    memory: &mut EditMemory,
    emissions: &mut Emissions,
) -> Verdict {
    let Some(segment) = segment(packet) else { return Verdict::Pass };
    let (number, direction) = (memory.number(at), packet.direction as usize);
    let is_syn = segment.flags & Segment::SYN != 0;
    let start = segment.seq.wrapping_add(is_syn.into()).wrapping_add(view.skip.into());
    let (end, _) = memory.splices.ends(number, direction);
    let Some((before, is_unchanged)) = append(packet, (at, start), view, memory) else {
        reset_both(emissions, (packet, at), ExpectedNumbers::of(&memory.splices, number, direction));
        return Verdict::End(DropReason::StreamReset);
    };
    let has_moved = memory.splices.ends(number, direction).0 != end;
    if has_moved {
        memory.splices.note_hold(number, direction, now);
    }
    // The window of a SYN is not scaled.
    let shift = if is_syn { stream.window_shift(direction).unwrap_or(0) } else { 0 };
    let leaving = Leaving {
        seq: segment.seq,
        len: segment.len.into(),
        flags: segment.flags,
        view,
        is_unchanged,
        before,
        has_moved,
        next: stream.next(direction).unwrap_or(start),
        carries: (segment.ack, segment.window >> shift),
    };
    if memory.depart(packet, (number, at), &leaving, emissions) { Verdict::Pass } else { Verdict::Consume }
}

impl EditMemory {
    /// A segment goes on, or others in its place. Returns whether it goes on.
    pub(super) fn depart(
        &mut self,
        packet: &mut Packet<'_>,
        (number, at): (u32, usize),
        leaving: &Leaving,
        emissions: &mut Emissions,
    ) -> bool {
        let is_syn = leaving.flags & Segment::SYN != 0;
        let built = match self.splices.depart(number, packet.direction as usize, leaving) {
            Departure::InPlace(seq) => {
                if seq != leaving.seq {
                    packet.write_l4(SEQ, &seq.to_be_bytes());
                }
                return true;
            }
            Departure::Built(built) => built,
        };
        if !is_syn && overwrite(packet, leaving, &built, self, at) {
            return true;
        }
        let cause = Cause { packet, at, number };
        let has_frames = built.ranges.iter().any(|range| !range.is_empty());
        if has_frames {
            self.send_on(&cause, built.ranges, emissions);
        } else if is_syn {
            self.send_bare(&cause, leaving.seq, emissions);
        } else if let Some(seq) = built.acknowledgement {
            self.send_bare(&cause, seq, emissions);
        }
        if built.answers_sender {
            self.acknowledge(&cause, emissions);
        }
        false
    }
}

/// Appends what is left of a packet's new bytes to the output. Returns the receiver's number in front of
/// them, and whether they are those of the packet. None: there is no room.
fn append(
    packet: &Packet<'_>,
    (at, start): (usize, u32),
    view: View,
    memory: &mut EditMemory,
) -> Option<(u32, bool)> {
    let (number, direction) = (memory.number(at), packet.direction as usize);
    let rope = if memory.changed.contains(at) { memory.ropes.get_mut(at).map(std::mem::take) } else { None };
    let from = match &rope {
        Some(rope) if !rope.is_empty() => Some(rope.from),
        None if view.len != 0 => Some(start),
        _ => None,
    };
    if let Some(from) = from.filter(|&from| from != memory.splices.ends(number, direction).0) {
        memory.splices.skip_to(number, direction, from);
    }
    let (_, before) = memory.splices.ends(number, direction);
    let Some(rope) = rope else {
        let mut chunks = crate::StreamData::new(packet, view).chunks();
        let is_kept = chunks.all(|chunk| memory.splices.append(number, direction, chunk));
        return is_kept.then_some((before, true));
    };
    let is_kept = rope.pieces().all(|(piece, bytes)| match piece.is_plain {
        true => memory.splices.append(number, direction, bytes),
        false => memory.splices.append_edit(number, direction, piece.input, bytes),
    });
    let is_unchanged = rope.is_plain(start, view.len.into()) || rope.is_empty() && view.len == 0;
    if let Some(place) = memory.ropes.get_mut(at) {
        *place = rope;
    }
    is_kept.then_some((before, is_unchanged))
}

/// Overwrites the payload of a packet if other bytes of the same length leave in its place. Returns false if
/// it cannot be done.
fn overwrite(
    packet: &mut Packet<'_>,
    leaving: &Leaving,
    built: &BuiltSegments,
    memory: &mut EditMemory,
    at: usize,
) -> bool {
    let (number, direction) = (memory.number(at), packet.direction as usize);
    let [repeated, fresh] = built.ranges;
    let range = match (repeated.is_empty(), fresh.is_empty()) {
        (false, true) => repeated,
        (true, false) => fresh,
        (false, false) if repeated.to == fresh.from => OutputRange { from: repeated.from, ..fresh },
        _ => return false,
    };
    let OutputRange { from, to, has_fin } = range;
    let is_same = to.wrapping_sub(from) == leaving.len && has_fin == (leaving.flags & FIN != 0);
    let header = packet.l4_header_len();
    if !is_same || packet.l4().len() < header + leaving.len as usize {
        return false;
    }
    let mut bytes = std::mem::take(&mut memory.work.frame);
    bytes.clear();
    let is_kept = memory.splices.read(number, direction, (from, to), &mut bytes);
    if is_kept {
        let mut place = header;
        for piece in bytes.chunks(PIECE) {
            if packet.l4().get(place..place + piece.len()) != Some(piece) {
                packet.write_l4(place, piece);
            }
            place += piece.len();
        }
        packet.write_l4(SEQ, &from.to_be_bytes());
    }
    memory.work.frame = bytes;
    is_kept
}
