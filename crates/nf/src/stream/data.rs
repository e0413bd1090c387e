//! The bytes that a stream function gets.

use mmb_flow::Direction;
use mmb_stream::{Rope, View};

use crate::Packet;

/// New bytes of a stream, in the memory of a packet.
#[derive(Debug)]
pub struct StreamData<'a, 'p> {
    packet: &'a Packet<'p>,
    view: View,
    /// Bytes in front of those of the packet.
    front: &'a [u8],
    /// What functions have made of the packet's bytes. None: they are as they came.
    rope: Option<&'a Rope>,
}

impl<'a, 'p> StreamData<'a, 'p> {
    pub(super) fn new(packet: &'a Packet<'p>, view: View) -> Self {
        StreamData { packet, view, front: &[], rope: None }
    }

    /// Makes the value for bytes that are in the place of the packet's.
    pub(super) fn of_bytes(packet: &'a Packet<'p>, view: View, bytes: &'a [u8]) -> Self {
        StreamData { packet, view: View { len: 0, ..view }, front: bytes, rope: None }
    }

    /// Puts bytes in front of those of the packet, which functions have changed if there is a rope.
    pub(super) fn with_edits(self, front: &'a [u8], rope: Option<&'a Rope>) -> Self {
        StreamData { front, rope, ..self }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.front.len() + self.rope.map_or(self.view.len.into(), Rope::len)
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
        let mut slices = self.packet.payload().map(move |slice| {
            let from = skip.min(slice.len());
            let to = (from + left).min(slice.len());
            (skip, left) = (skip - from, left - (to - from));
            &slice[from..to]
        });
        let mut edited = self.rope.map(Rope::reader);
        let rest = std::iter::from_fn(move || match &mut edited {
            Some(edited) => edited.next_chunk(&mut slices),
            None => slices.next(),
        });
        std::iter::once(self.front).chain(rest).filter(|slice| !slice.is_empty())
    }

    /// Appends the bytes to a buffer.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        self.chunks().for_each(|chunk| out.extend_from_slice(chunk));
    }

    /// Iterates over the bytes in order.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<'a, 'p> {
        self.chunks().flatten().copied()
    }
}
