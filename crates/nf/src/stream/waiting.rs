//! Segments that waited for bytes in front of them go on.
//!
//! Theory of operation. What waits goes on behind the segment that brings the missing bytes. That one was
//! mostly sent later, so its timestamp is a later one. Receivers drop segments whose timestamps go back (RFC
//! 7323, 5.3), and acknowledge with the timestamp of what came last in order, from which the sender takes the
//! round-trip time (4.3). A receiver that puts segments in order by itself has looked at their timestamps
//! before. So all that goes on together carries the latest timestamp of it.

use mmb_flow::Direction;
use mmb_packet::DropReason;
use mmb_stream::{NextHeld, TcpStream, View, is_after};

use super::step::Step;
use crate::context::keep;
use crate::tcp_segment::{timestamp, timestamp_value};
use crate::{Packet, Verdict};

/// Place of the value in the timestamp option.
const VALUE: usize = 2;

impl Step<'_> {
    /// A packet goes on. It may have to follow others that have not gone on.
    pub fn follow(&mut self, packet: &mut Packet<'_>, view: View) -> Verdict {
        let (place, held) = (self.place(packet), &mut *self.holding.held);
        match held.follow(place, packet.direction, None) {
            Some(ticket) => {
                if let Ok(ticket) = ticket {
                    held.set_view(ticket, view);
                }
                keep(packet, ticket)
            }
            None => Verdict::Pass,
        }
    }

    /// A packet goes on in front of those of its direction that wait, if there are any.
    pub fn note_stamp(&mut self, packet: &mut Packet<'_>, stream: &TcpStream) {
        let (place, held) = (self.place(packet), &mut *self.holding.held);
        if held.held_of(place, packet.direction) != 0
            && let Some(value) = timestamp_value(packet.head, packet.meta)
        {
            // Acknowledgements do not wait, and may have had a later one.
            let last = stream.stamp(packet.direction as usize).filter(|&last| is_after(last, value));
            let Some(latest) = held.note_stamp(place, packet.direction, last.unwrap_or(value)) else {
                return;
            };
            raise_stamp(packet, latest);
        }
    }

    /// Releases the segments behind the bytes that have gone on.
    pub fn release(&mut self, packet: &Packet<'_>, stream: &mut TcpStream, mut gone: impl FnMut(View)) {
        let (place, direction) = (self.place(packet), packet.direction);
        let held = &mut *self.holding.held;
        while let Some(range) = held.first_range(place, direction) {
            match stream.next_held(direction as usize, range) {
                NextHeld::Wait => return,
                NextHeld::Pass(view) => {
                    gone(view);
                    if let Some(stamp) = held.release_segment(place, direction, view) {
                        stream.note_stamp(direction as usize, stamp);
                    }
                }
                NextHeld::Drop => held.drop_segment(place, direction, DropReason::StreamEnd),
            }
        }
        stream.clear_held(direction as usize);
    }

    /// The connection is not read any more. What waits goes on.
    pub fn stop(&mut self, packet: &Packet<'_>) {
        let place = self.place(packet);
        for direction in [Direction::Forward, Direction::Reverse] {
            while self.holding.held.first_range(place, direction).is_some() {
                self.holding.held.release_segment(place, direction, View::NONE);
            }
        }
    }
}

/// Writes the timestamp of a packet, if its own is an earlier one.
pub(crate) fn raise_stamp(packet: &mut Packet<'_>, latest: u32) {
    if let Some((at, value, _)) = timestamp(packet.head, packet.meta)
        && is_after(latest, value)
    {
        packet.write_l4(at + VALUE, &latest.to_be_bytes());
    }
}
