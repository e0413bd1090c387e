//! Acknowledgements of segments that came too early.
//!
//! Theory of operation. While bytes are missing, the segments behind them wait. Their receiver does not
//! see them, so it cannot tell their sender that some are lost, and the sender would wait for its
//! retransmission timeout. So the context tells it in the receiver's place, as a receiver would (RFC
//! 5681, 4.2): each such segment is answered by a duplicate of the receiver's last acknowledgement. If
//! both ends permit it, the duplicate has the waiting bytes as a selective acknowledgement (RFC 2018, 4).
//! A copy of a segment that waits is reported in front of them (RFC 2883, 4): its sender has repeated it
//! without need.
//!
//! A sender takes bytes in front of those for lost (RFC 6675, 4). So nothing is sent while bytes that
//! have gone on are under way to the receiver. The acknowledgement with which the receiver has got them
//! all is followed by the duplicates. A receiver that sees nothing more may delay it (RFC 9293, 3.8.6.3).
//! So the first of the segments that wait asks for it: as a keepalive, a segment in front of those that
//! went on is answered at once (RFC 9293, 3.8.4 and 3.10.7.4).
//!
//! No bytes are acknowledged cumulatively. What waits may still be dropped, by a timeout or because its
//! chain has gone, and what goes on later may be lost behind mmb. A receiver may take a selective
//! acknowledgement back, and the sender repeats such bytes after its timeout (RFC 2018, 8). A segment
//! that has no room to wait is not acknowledged.

use arrayvec::ArrayVec;
use mmb_flow::Direction;
use mmb_packet::DropReason;
use mmb_stream::{HeldRange, Segment, TcpStream, is_after};

use super::context::StreamContext;
use super::edits::DUPLICATE_ACKS;
use super::step::Step;
use crate::tcp_segment::{ACK, Options, OutgoingSegment, SegmentTo, timestamp};
use crate::{Packet, Verdict};

/// Duplicate acknowledgements that let a sender repeat bytes (RFC 5681, 3.2).
const DUPLICATES: usize = 3;
/// Most blocks of an acknowledgement, with timestamps and without.
const BLOCKS: [usize; 2] = [3, 4];
/// Most blocks that are told at once. Those with the lowest numbers are left out: they were told first.
const MOST_BLOCKS: usize = DUPLICATES * BLOCKS[1];

/// What the sender of segments that wait has to be told because of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    /// The direction of the segments.
    pub direction: Direction,
    /// Where their sender is, from the packet's view.
    pub to: SegmentTo,
    /// The number of the packet, if it is one of them.
    newest: u32,
    /// The bytes of the packet, if they wait already.
    copy: Option<(u32, u32)>,
}

/// The numbers of the acknowledgements.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyNumbers {
    pub seq: u32,
    pub ack: u32,
    /// The field of the header.
    pub window: u16,
    /// Value and echo of the timestamp.
    pub stamps: Option<(u32, u32)>,
}

impl Early {
    /// Returns what has to be told because of a packet that was processed with this verdict. `awaits`: before
    /// it, the packet's sender had not acknowledged all that has gone on, and segments for it wait.
    #[cold]
    pub fn of(
        packet: &Packet<'_>,
        segment: &Segment,
        (stream, awaits): (&TcpStream, bool),
        verdict: Verdict,
    ) -> Option<Early> {
        const KIND: u8 = Segment::SYN | Segment::FIN | Segment::RST | Segment::ACK;
        let is_ahead =
            || stream.next(packet.direction as usize).is_some_and(|next| is_after(segment.seq, next));
        let is_copy = verdict == Verdict::Drop(DropReason::StreamDuplicate) && segment.len != 0;
        let copy = is_copy.then(|| (segment.seq, segment.seq.wrapping_add(segment.len.into())));
        let early = |direction, to| Some(Early { direction, to, newest: segment.seq, copy });
        match verdict {
            Verdict::Hold | Verdict::Drop(DropReason::StreamDuplicate) if is_ahead() => {
                early(packet.direction, SegmentTo::Sender)
            }
            // Bytes of the packet would have to go in front.
            Verdict::Pass if awaits && segment.len == 0 && segment.flags & KIND == ACK => {
                early(packet.direction.opposite(), SegmentTo::Receiver)
            }
            _ => None,
        }
    }

    /// Returns the timestamps of an acknowledgement. `latest`: the last one of the segments' receiver, which
    /// may have sent it behind what the packet echoes. An earlier one would make the sender ignore the
    /// acknowledgement (RFC 7323, 5.3).
    pub fn stamps(&self, packet: &Packet<'_>, latest: Option<u32>) -> Option<(u32, u32)> {
        let (_, value, echo) = timestamp(packet.head, packet.meta)?;
        Some(if self.to == SegmentTo::Sender { (latest.unwrap_or(echo), value) } else { (value, echo) })
    }
}

/// Returns the numbers for a connection that is not edited. None: its receiver has not acknowledged all that
/// has gone on.
pub(super) fn stream_numbers(packet: &Packet<'_>, stream: &TcpStream, early: &Early) -> Option<EarlyNumbers> {
    let direction = early.direction as usize;
    let ack = stream.acknowledged(direction).filter(|_| stream.is_acknowledged(direction))?;
    let (seq, window) = (stream.end(direction ^ 1)?, stream.window(direction)?);
    let stamps = early.stamps(packet, stream.stamp(direction ^ 1));
    Some(EarlyNumbers { seq, ack, window, stamps })
}

impl StreamContext {
    /// Acknowledges segments that wait, or asks their receiver for what it has.
    #[cold]
    pub(super) fn tell_early(
        &self,
        (packet, segment, stream): (&Packet<'_>, &Segment, &TcpStream),
        early: Early,
        (numbers, end): (Option<EarlyNumbers>, Option<u32>),
        step: &mut Step<'_>,
    ) {
        match (numbers, end) {
            (Some(numbers), _) => self.acknowledge_early((packet, stream), (early, numbers), step),
            (None, Some(end)) if stream.is_two_way() => ask_receiver(packet, segment, (early, end), step),
            _ => {}
        }
    }

    /// Acknowledges segments that wait to their sender.
    fn acknowledge_early(
        &self,
        (packet, stream): (&Packet<'_>, &TcpStream),
        (early, numbers): (Early, EarlyNumbers),
        step: &mut Step<'_>,
    ) {
        let place = step.holding.place(packet);
        let held = &step.holding.held;
        // What was released goes in front.
        if held.has_pending(place, early.direction) {
            return;
        }
        let is_newest = early.to == SegmentTo::Sender;
        let mut blocks = blocks(held.ranges(place, early.direction));
        if is_newest && let Some(at) = blocks.iter().position(|&block| has(block, early.newest)) {
            blocks[..=at].rotate_right(1);
        }
        if let Some(copy) = early.copy {
            blocks.truncate(MOST_BLOCKS - 1);
            blocks.insert(0, copy);
        }
        let most = BLOCKS[usize::from(numbers.stamps.is_none())];
        let count = if is_newest { 1 } else { DUPLICATES.min(held.held_of(place, early.direction) as usize) };
        let mut parts = blocks.chunks(most);
        for _ in 0..count {
            let part = match stream.permits_sack() {
                true => parts.next(),
                false => Some(&[][..]),
            };
            let Some(part) = part else { return };
            if let Some(frame) = numbers.acknowledgement(part).frame(packet.head, packet.meta, early.to) {
                step.emissions.push_in_order(early.to.target(), step.at, &[frame.bytes()]);
                self.count_edit(step.worker, DUPLICATE_ACKS, 1);
            }
        }
    }
}

/// Sends a keepalive to the receiver of the first segment that waits. `end`: the receiver's number behind all
/// that has gone on.
fn ask_receiver(packet: &Packet<'_>, segment: &Segment, (early, end): (Early, u32), step: &mut Step<'_>) {
    let is_first = step.holding.held.held_of(step.holding.place(packet), early.direction) == 1;
    if early.to != SegmentTo::Sender || !is_first {
        return;
    }
    let mut options = Options::default();
    if let Some((_, value, echo)) = timestamp(packet.head, packet.meta) {
        options.push_timestamp(value, echo);
    }
    let Segment { ack, window, .. } = *segment;
    let ask = OutgoingSegment { seq: end.wrapping_sub(1), ack, flags: ACK, window, options };
    if let Some(frame) = ask.frame(packet.head, packet.meta, SegmentTo::Receiver) {
        step.emissions.push_in_order(SegmentTo::Receiver.target(), step.at, &[frame.bytes()]);
    }
}

impl EarlyNumbers {
    fn acknowledgement(&self, blocks: &[(u32, u32)]) -> OutgoingSegment {
        let mut options = Options::default();
        if let Some((value, echo)) = self.stamps {
            options.push_timestamp(value, echo);
        }
        options.push_sack(blocks);
        let EarlyNumbers { seq, ack, window, .. } = *self;
        OutgoingSegment { seq, ack, flags: ACK, window, options }
    }
}

/// Joins ranges of bytes, in the order of their first numbers. Returns the blocks, the last one first.
fn blocks(ranges: impl Iterator<Item = HeldRange>) -> ArrayVec<(u32, u32), MOST_BLOCKS> {
    let mut blocks = ArrayVec::<(u32, u32), MOST_BLOCKS>::new();
    for HeldRange { from, to, .. } in ranges.filter(|range| range.from != range.to) {
        match blocks.last_mut().filter(|last| !is_after(from, last.1)) {
            Some(last) => last.1 = if is_after(to, last.1) { to } else { last.1 },
            None => {
                if blocks.is_full() {
                    blocks.remove(0);
                }
                blocks.push((from, to));
            }
        }
    }
    blocks.reverse();
    blocks
}

fn has((from, to): (u32, u32), number: u32) -> bool {
    !is_after(from, number) && is_after(to, number)
}
