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

    /// Returns all bytes if they are together.
    #[inline]
    pub(super) fn as_slice(&self) -> Option<&'a [u8]> {
        let (packet, len) = (self.packet, usize::from(self.view.len));
        match self.front {
            _ if self.rope.is_some() => None,
            [] => {
                let header = usize::from(packet.meta.l4_off) + packet.l4_header_len();
                packet.head.get(header + usize::from(self.view.skip)..)?.get(..len)
            }
            front => (len == 0).then_some(front),
        }
    }

    /// Returns all bytes as one slice. They are copied to a buffer if they are not together.
    #[inline]
    pub fn joined<'b>(&self, buffer: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        if let Some(bytes) = self.as_slice() {
            return bytes;
        }
        buffer.clear();
        self.append_to(buffer);
        buffer
    }

    /// Iterates over the bytes in order, as slices of the packet's segments, without a copy. Slices are not
    /// empty.
    pub fn chunks(&self) -> impl Iterator<Item = &'a [u8]> + use<'a, 'p> {
        let together = self.as_slice();
        let mut rest = together.is_none().then(|| self.chunks_behind_front());
        std::iter::once(together.unwrap_or(self.front))
            .chain(std::iter::from_fn(move || rest.as_mut()?.next()))
            .filter(|slice| !slice.is_empty())
    }

    /// Iterates over the bytes behind those in front. Slices may be empty.
    fn chunks_behind_front(&self) -> impl Iterator<Item = &'a [u8]> + use<'a, 'p> {
        let (mut skip, mut left) = (usize::from(self.view.skip), usize::from(self.view.len));
        let mut slices = self.packet.payload().map(move |slice| {
            let from = skip.min(slice.len());
            let to = (from + left).min(slice.len());
            (skip, left) = (skip - from, left - (to - from));
            &slice[from..to]
        });
        let mut edited = self.rope.map(Rope::reader);
        std::iter::from_fn(move || match &mut edited {
            Some(edited) => edited.next_chunk(&mut slices),
            None => slices.next(),
        })
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

#[cfg(test)]
mod tests {
    use mmb_flow::SessionId;
    use mmb_packet::TailSegments;
    use mmb_packet::build::{Frame, Ip4, Tcp};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::parsed;

    proptest! {
        /// Chunks, and the bytes as one slice, are those of the view, whatever buffers the frame is in.
        #[test]
        fn bytes_are_those_of_the_view(
            payload in prop::collection::vec(any::<u8>(), 0..80), cuts in prop::collection::vec(0..90usize, 0..3),
            skip in 0..80usize, len in 0..80usize, front: Vec<u8>, is_edited: bool,
        ) {
            let mut frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(1, 2))
                .payload(payload.clone())
                .build();
            let (mut meta, whole) = (parsed(&frame), frame.len() as u32);
            let headers = frame.len() - payload.len();
            let mut tail: Vec<Vec<u8>> = Vec::new();
            for cut in cuts {
                let at = (headers + cut).min(frame.len());
                tail.insert(0, frame.split_off(at));
            }
            let (skip, len) = (skip.min(payload.len()), len.min(payload.len() - skip.min(payload.len())));
            let packet = Packet {
                head: &mut frame,
                tail: Some(&tail as &dyn TailSegments),
                meta: &mut meta,
                len: whole,
                segment_size: 0,
                in_port: 0,
                direction: Direction::Forward,
                session: SessionId(0),
            };
            let mut rope = Rope::default();
            rope.set_body(7, len as u32);
            let view = View { skip: skip as u16, len: len as u16, ..View::NONE };
            let data = StreamData::new(&packet, view).with_edits(&front, is_edited.then_some(&rope));
            let expected = [&front[..], &payload[skip..skip + len]].concat();
            prop_assert_eq!(data.bytes().collect::<Vec<_>>(), &expected[..]);
            prop_assert!(data.chunks().all(|chunk| !chunk.is_empty()));
            let mut buffer = vec![1, 2, 3];
            prop_assert_eq!(data.joined(&mut buffer), &expected[..]);
        }
    }
}
