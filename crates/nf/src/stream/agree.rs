//! What goes on agrees with what functions have read.
//!
//! Theory of operation. The first copy of a byte that goes on is the one that functions read. It is kept
//! until the receiver has acknowledged it. A later copy with other bytes is overwritten. So a receiver that
//! has lost the first copy gets what functions have read. If there was no room to keep the first copy, a
//! later one does not go on. Bytes that had gone on before there was a function that reads content may come
//! again.

use mmb_packet::DropReason;
use mmb_stream::{Cause, KeptBytes, Segment, Status, TcpStream, View, is_after};

use super::StreamData;
use super::context::StreamContext;
use super::step::Step;
use crate::{Packet, Verdict};

/// Bytes that are overwritten at a time.
const PIECE: usize = 256;

impl StreamContext {
    /// Makes a packet that goes on agree with the bytes that are kept, and keeps those that are new.
    pub(super) fn agree(
        &self,
        packet: &mut Packet<'_>,
        segment: &Segment,
        stream: &mut TcpStream,
        (view, kept): (&View, &mut KeptBytes),
        step: &mut Step<'_>,
    ) -> Verdict {
        let direction = packet.direction as usize;
        if stream.status() == Status::Passed(Cause::Detached) {
            return self.agree_detached(packet, segment, (stream, kept), step);
        }
        if view.is_restart || !matches!(stream.status(), Status::Read | Status::Leaving) {
            kept.clear(stream.kept(), 0);
            kept.clear(stream.kept(), 1);
        }
        if let Some(acknowledged) = stream.acknowledged(1 - direction) {
            kept.acknowledge(stream.kept(), 1 - direction, acknowledged);
            if stream.has_unkept(1 - direction) {
                note_arrived(stream, kept, 1 - direction, acknowledged);
            }
            if stream.kept() != 0 && kept.is_empty(stream.kept()) {
                kept.remove(stream.kept());
                stream.set_kept(0);
            }
        }
        if view.len == 0 && view.skip == 0 {
            return Verdict::Pass;
        }
        let start = segment.seq.wrapping_add(u32::from(segment.flags & Segment::SYN != 0));
        if view.skip != 0 {
            let is_unkept = !is_kept(stream, kept, direction, (start, view.skip.into()));
            if is_unkept && !stream.has_unkept(direction) {
                self.count(step.worker, Cause::NotKept);
                return step.unkept(packet);
            }
            match overwrite(packet, kept, (stream.kept(), direction), start, view.skip.into()) {
                Ok(false) => {}
                Ok(true) => self.count(step.worker, Cause::Conflict),
                Err(Unreachable) => {
                    self.count(step.worker, Cause::Conflict);
                    let has_new = view.len != 0;
                    return if has_new {
                        step.reset(packet)
                    } else {
                        Verdict::Drop(DropReason::StreamConflict)
                    };
                }
            }
        }
        if view.len != 0 && !self.keep(packet, stream, *view, kept, start) {
            self.count(step.worker, Cause::NotKept);
        }
        Verdict::Pass
    }

    /// Makes a packet of a connection that is not read any more agree with the bytes that functions have
    /// read, until these are acknowledged.
    fn agree_detached(
        &self,
        packet: &mut Packet<'_>,
        segment: &Segment,
        (stream, kept): (&mut TcpStream, &mut KeptBytes),
        step: &mut Step<'_>,
    ) -> Verdict {
        let (number, direction) = (stream.kept(), packet.direction as usize);
        if number == 0 {
            return Verdict::Pass;
        }
        if segment.flags & Segment::ACK != 0 {
            kept.acknowledge(number, 1 - direction, segment.ack);
            if kept.is_empty(number) {
                kept.remove(number);
                stream.set_kept(0);
                return Verdict::Pass;
            }
        }
        let start = segment.seq.wrapping_add(u32::from(segment.flags & Segment::SYN != 0));
        let overwritten = overwrite(packet, kept, (number, direction), start, segment.len.into());
        if !matches!(overwritten, Ok(false)) {
            self.count(step.worker, Cause::Conflict);
        }
        overwritten.map_or(Verdict::Drop(DropReason::StreamConflict), |_| Verdict::Pass)
    }

    /// Keeps the new bytes of a packet. Returns false if there is no room.
    fn keep(
        &self,
        packet: &Packet<'_>,
        stream: &mut TcpStream,
        view: View,
        kept: &mut KeptBytes,
        start: u32,
    ) -> bool {
        if stream.kept() == 0 {
            stream.set_kept(kept.insert().unwrap_or(0));
        }
        let mut seq = start.wrapping_add(view.skip.into());
        StreamData::new(packet, view).chunks().all(|chunk| {
            let is_kept = kept.append(stream.kept(), packet.direction as usize, seq, chunk);
            seq = seq.wrapping_add(chunk.len() as u32);
            is_kept
        })
    }
}

/// Notes whether a receiver has all bytes of which no copy was kept: those in front of the first one that is.
#[cold]
fn note_arrived(stream: &mut TcpStream, kept: &KeptBytes, direction: usize, acknowledged: u32) {
    let first = kept.range(stream.kept(), direction).map(|(first, _)| first).or(stream.next(direction));
    if first.is_some_and(|first| !is_after(first, acknowledged)) {
        stream.clear_unkept(direction);
    }
}

/// Whether all bytes of a range are kept that the receiver may still take.
fn is_kept(stream: &TcpStream, kept: &KeptBytes, direction: usize, (start, len): (u32, usize)) -> bool {
    let acknowledged = stream.acknowledged(direction).filter(|&number| is_after(number, start));
    let done = acknowledged.map_or(0, |number| number.wrapping_sub(start) as usize);
    done >= len || kept.covers(stream.kept(), direction, start.wrapping_add(done as u32), len - done)
}

/// Bytes that differ are not in the contiguous head of the packet.
struct Unreachable;

/// Overwrites the first bytes of a payload by those that are kept. Returns whether any was another one.
fn overwrite(
    packet: &mut Packet<'_>,
    kept: &KeptBytes,
    (number, direction): (u32, usize),
    start: u32,
    len: usize,
) -> Result<bool, Unreachable> {
    let header = packet.l4_header_len();
    let in_head = packet.l4().len().saturating_sub(header).min(len);
    let seq = |at: usize| start.wrapping_add(at as u32);
    let mut at = 0;
    for slice in packet.payload() {
        let slice = &slice[..slice.len().min(len - at)];
        if at >= in_head && kept.differs(number, direction, seq(at), slice) {
            return Err(Unreachable);
        }
        at += slice.len();
    }
    let (mut at, mut is_changed) = (0, false);
    while at < in_head {
        let mut piece = [0; PIECE];
        let piece = &mut piece[..PIECE.min(in_head - at)];
        if let Some(bytes) = packet.l4().get(header + at..header + at + piece.len()) {
            piece.copy_from_slice(bytes);
        }
        if kept.differs(number, direction, seq(at), piece) {
            kept.restore(number, direction, seq(at), piece);
            packet.write_l4(header + at, piece);
            is_changed = true;
        }
        at += piece.len();
    }
    Ok(is_changed)
}
