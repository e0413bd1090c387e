//! The bytes that a stream function gets.

use mmb_flow::Direction;
use mmb_stream::View;

use crate::Packet;

/// New bytes of a stream, in the memory of a packet.
#[derive(Debug)]
pub struct StreamData<'a, 'p> {
    packet: &'a Packet<'p>,
    view: View,
}

impl<'a, 'p> StreamData<'a, 'p> {
    pub(super) fn new(packet: &'a Packet<'p>, view: View) -> Self {
        StreamData { packet, view }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.view.len.into()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.view.len == 0
    }

    /// Returns the direction. Each direction of a session is a stream of its own.
    pub fn direction(&self) -> Direction {
        self.packet.direction
    }

    /// Whether the stream ends behind these bytes. [`crate::StreamFunction::end`] follows.
    pub fn is_end(&self) -> bool {
        self.view.is_end
    }

    /// Returns the packet that has the bytes. The packet may also have bytes that are not new.
    pub fn packet(&self) -> &'a Packet<'p> {
        self.packet
    }

    /// Iterates over the bytes in order, as slices of the packet's segments, without a copy. Slices are not
    /// empty.
    pub fn chunks(&self) -> impl Iterator<Item = &'a [u8]> + use<'a, 'p> {
        let (mut skip, mut left) = (usize::from(self.view.skip), usize::from(self.view.len));
        let slices = self.packet.payload().map(move |slice| {
            let from = skip.min(slice.len());
            let to = (from + left).min(slice.len());
            (skip, left) = (skip - from, left - (to - from));
            &slice[from..to]
        });
        slices.filter(|slice| !slice.is_empty())
    }

    /// Iterates over the bytes in order.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<'a, 'p> {
        self.chunks().flatten().copied()
    }
}
