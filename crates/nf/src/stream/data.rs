//! The bytes that a stream function gets.

use mmb_flow::Direction;
use mmb_stream::View;

use crate::Packet;

/// New bytes of a stream, in the memory of a packet.
#[derive(Debug)]
pub struct StreamData<'a, 'p> {
    packet: &'a Packet<'p>,
    view: View,
    /// The bytes, if they are not those of the packet.
    bytes: Option<&'a [u8]>,
}

impl<'a, 'p> StreamData<'a, 'p> {
    pub(super) fn new(packet: &'a Packet<'p>, view: View) -> Self {
        StreamData { packet, view, bytes: None }
    }

    /// Puts other bytes in the place of the packet's.
    pub(super) fn with_bytes(self, bytes: Option<&'a [u8]>) -> Self {
        StreamData { bytes, ..self }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.map_or(self.view.len.into(), <[u8]>::len)
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the direction. Each direction of a session is a stream of its own.
    pub fn direction(&self) -> Direction {
        self.packet.direction
    }

    /// Whether the stream ends behind these bytes. [`crate::StreamFunction::end`] follows.
    pub fn is_end(&self) -> bool {
        self.view.is_end
    }

    /// Returns the packet that has brought the bytes. The packet may also have bytes that are not new, and
    /// functions in front may have changed the bytes.
    pub fn packet(&self) -> &'a Packet<'p> {
        self.packet
    }

    /// Iterates over the bytes in order, as slices of the packet's segments, without a copy. Slices are not
    /// empty.
    pub fn chunks(&self) -> impl Iterator<Item = &'a [u8]> + use<'a, 'p> {
        let (mut skip, mut left) = (usize::from(self.view.skip), usize::from(self.view.len));
        let other = self.bytes.unwrap_or(&[]);
        if self.bytes.is_some() {
            left = 0;
        }
        let slices = self.packet.payload().map(move |slice| {
            let from = skip.min(slice.len());
            let to = (from + left).min(slice.len());
            (skip, left) = (skip - from, left - (to - from));
            &slice[from..to]
        });
        std::iter::once(other).chain(slices).filter(|slice| !slice.is_empty())
    }

    /// Iterates over the bytes in order.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<'a, 'p> {
        self.chunks().flatten().copied()
    }
}
