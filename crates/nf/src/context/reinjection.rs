//! Frames of functions that pass the chains of their sessions.

use mmb_flow::{Direction, FlowRef};
use mmb_packet::{DropReason, Meta, PacketFlags, parse};

use super::Emissions;
use crate::Packet;
use crate::tcp_segment::SegmentTo;

/// A frame that is to pass the chain of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reinjection<'a> {
    /// Session and direction.
    pub flow: FlowRef,
    /// The port at which packets of the flow come in, or [`mmb_packet::OUT_ROUTED`] if it is not known.
    pub in_port: u16,
    /// The port by which they leave.
    pub out_port: u16,
    /// The frame.
    pub frame: &'a [u8],
}

impl Reinjection<'_> {
    /// Returns the metadata of the frame.
    ///
    /// # Errors
    /// The frame cannot be parsed.
    pub fn meta(&self) -> Result<Meta, DropReason> {
        let mut meta = Meta::default();
        parse(self.frame, self.frame.len(), &mut meta)?;
        (meta.session, meta.out_port) = (self.flow.0, self.out_port);
        meta.flags |= PacketFlags::OURS;
        Ok(meta)
    }
}

#[derive(Clone, Copy, Debug)]
struct Record {
    flow: FlowRef,
    in_port: u16,
    out_port: u16,
    start: usize,
    len: usize,
}

/// All such frames, in order. The buffers are reused.
#[derive(Debug, Default)]
pub(super) struct Reinjections {
    records: Vec<Record>,
    /// Records that were taken out.
    taken: usize,
    bytes: Vec<u8>,
}

impl Reinjections {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Adds a frame for an end of a packet's connection. Returns false if there is no room.
    pub fn push(&mut self, packet: &Packet<'_>, to: SegmentTo, segments: &[&[u8]]) -> bool {
        let (start, len) = (self.bytes.len(), segments.iter().map(|segment| segment.len()).sum::<usize>());
        if self.records.len() >= Emissions::MAX_FRAMES || start + len > Emissions::MAX_BYTES {
            return false;
        }
        let (in_port, out_port) = (packet.in_port, packet.meta.out_port);
        let (direction, in_port, out_port): (Direction, _, _) = match to {
            SegmentTo::Receiver => (packet.direction, in_port, out_port),
            SegmentTo::Sender => (packet.direction.opposite(), out_port, in_port),
        };
        segments.iter().for_each(|segment| self.bytes.extend_from_slice(segment));
        let flow = FlowRef::new(packet.session, direction);
        self.records.push(Record { flow, in_port, out_port, start, len });
        true
    }

    pub fn pop<R>(&mut self, f: impl FnOnce(Reinjection<'_>) -> R) -> Option<R> {
        let Record { flow, in_port, out_port, start, len } = *self.records.get(self.taken)?;
        self.taken += 1;
        let frame = self.bytes.get(start..start + len).unwrap_or(&[]);
        let result = f(Reinjection { flow, in_port, out_port, frame });
        if self.taken == self.records.len() {
            self.records.clear();
            self.bytes.clear();
            self.taken = 0;
        }
        Some(result)
    }
}
