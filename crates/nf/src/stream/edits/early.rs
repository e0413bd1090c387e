//! Acknowledgements of early segments of edited connections.

use mmb_flow::Direction;
use mmb_stream::Segment;

use super::EditMemory;
use crate::Packet;
use crate::stream::early::{Early, EarlyNumbers};
use crate::tcp_segment::SegmentTo;

impl EditMemory {
    /// Returns the numbers for an edited connection. None: its receiver has not acknowledged all that has
    /// gone on. `segment`: that of the packet, with a translated acknowledgement.
    pub(super) fn early_numbers(
        &self,
        packet: &Packet<'_>,
        segment: &Segment,
        number: u32,
        early: &Early,
    ) -> Option<EarlyNumbers> {
        let (own, other) = (early.direction as usize, early.direction.opposite() as usize);
        let has_fresh = || !self.fresh.filter(|i| self.number(i) == number).is_empty();
        if !self.splices.is_acknowledged(number, own) || !self.splices.has_begun(number, other) || has_fresh()
        {
            return None;
        }
        let seq = self.splices.next(number, other);
        let (ack, window) = match early.to {
            SegmentTo::Receiver => (segment.ack, segment.window),
            SegmentTo::Sender => self.splices.carried(number, other),
        };
        let stamps = early.stamps(packet, self.splices.stamp(number, other));
        Some(EarlyNumbers { seq, ack, window, stamps })
    }

    /// Returns the receiver's number behind all that was sent of a direction.
    pub(super) fn sent_end(&self, number: u32, direction: Direction) -> Option<u32> {
        let direction = direction as usize;
        self.splices.has_begun(number, direction).then(|| self.splices.next(number, direction))
    }
}
