//! Packets whose length may change.

/// A packet whose headers are contiguous in memory, with head room and tail room.
///
/// The dataplane implements it for mbufs, [`VecPacket`] for a vector. All lengths are in bytes.
pub trait PacketBuf {
    /// The contiguous beginning of the frame: at least [`crate::HEAD_BYTES`] bytes, or the whole frame.
    fn head(&self) -> &[u8];

    /// The contiguous beginning of the frame, mutable.
    fn head_mut(&mut self) -> &mut [u8];

    /// Length of the whole frame.
    fn len(&self) -> usize;

    /// Length of the longest frame as which the packet leaves: of one segment, if the frame is a large one
    /// ([`crate::LargeFrame`]).
    fn longest_frame(&self) -> usize {
        self.len()
    }

    /// Whether the frame has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Maximum number of bytes that [`PacketBuf::grow_front`] can add.
    fn head_room(&self) -> usize;

    /// Maximum number of bytes that [`PacketBuf::grow_back`] can add.
    fn tail_room(&self) -> usize;

    /// Adds `n` bytes of unspecified content before the frame. Returns `false`, without a change, if the
    /// room is too small.
    #[must_use]
    fn grow_front(&mut self, n: usize) -> bool;

    /// Removes the first `n` bytes. Returns `false`, without a change, if [`PacketBuf::head`] is shorter.
    #[must_use]
    fn shrink_front(&mut self, n: usize) -> bool;

    /// Adds `n` bytes of unspecified content behind the frame. Returns `false`, without a change, if the
    /// room is too small.
    #[must_use]
    fn grow_back(&mut self, n: usize) -> bool;

    /// Removes the last `n` bytes. Returns `false`, without a change, if the frame is shorter.
    #[must_use]
    fn shrink_back(&mut self, n: usize) -> bool;
}

/// The segments of a frame behind its contiguous head, in order.
pub trait TailSegments: std::fmt::Debug {
    /// Returns the segment with a number; 0 is the first one behind the head.
    fn segment(&self, number: usize) -> Option<&[u8]>;
}

impl TailSegments for Vec<Vec<u8>> {
    fn segment(&self, number: usize) -> Option<&[u8]> {
        self.get(number).map(Vec::as_slice)
    }
}

/// A packet in a vector: for tests, the oracle and offline tools. All of it is contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VecPacket {
    /// Head room, frame, tail room.
    room: Vec<u8>,
    start: usize,
    end: usize,
}

impl VecPacket {
    /// Head room and tail room of a new packet in bytes; DPDK's default head room.
    pub const ROOM: usize = 128;

    /// Copies `frame` with [`VecPacket::ROOM`] bytes of room on both sides.
    pub fn new(frame: &[u8]) -> Self {
        Self::with_room(frame, Self::ROOM)
    }

    /// Copies `frame` with `room` bytes of room on both sides.
    pub fn with_room(frame: &[u8], room: usize) -> Self {
        let (start, end) = (room, room + frame.len());
        let mut room = vec![0; end + room];
        room[start..end].copy_from_slice(frame);
        VecPacket { room, start, end }
    }
}

impl PacketBuf for VecPacket {
    fn head(&self) -> &[u8] {
        &self.room[self.start..self.end]
    }

    fn head_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.end]
    }

    fn len(&self) -> usize {
        self.end - self.start
    }

    fn head_room(&self) -> usize {
        self.start
    }

    fn tail_room(&self) -> usize {
        self.room.len() - self.end
    }

    fn grow_front(&mut self, n: usize) -> bool {
        let fits = n <= self.head_room();
        if fits {
            self.start -= n;
        }
        fits
    }

    fn shrink_front(&mut self, n: usize) -> bool {
        let fits = n <= self.len();
        if fits {
            self.start += n;
        }
        fits
    }

    fn grow_back(&mut self, n: usize) -> bool {
        let fits = n <= self.tail_room();
        if fits {
            self.end += n;
        }
        fits
    }

    fn shrink_back(&mut self, n: usize) -> bool {
        let fits = n <= self.len();
        if fits {
            self.end -= n;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks_at_both_ends() {
        let mut p = VecPacket::new(b"abcdef");
        assert!(p.grow_front(2) && p.grow_back(1));
        assert_eq!((p.len(), p.head_room(), p.tail_room()), (9, VecPacket::ROOM - 2, VecPacket::ROOM - 1));
        assert_eq!(&p.head()[2..8], b"abcdef");
        p.head_mut()[..2].copy_from_slice(b"yz");
        assert!(p.shrink_back(2) && p.shrink_front(1));
        assert_eq!(p.head(), b"zabcde");
    }

    #[test]
    fn refuses_sizes_beyond_the_room() {
        let mut p = VecPacket::new(b"abc");
        let before = p.clone();
        assert!(!p.grow_front(VecPacket::ROOM + 1) && !p.grow_back(VecPacket::ROOM + 1));
        assert!(!p.shrink_front(4) && !p.shrink_back(4));
        assert_eq!(p, before);
        assert!(p.shrink_front(3) && p.is_empty());
        let mut tight = VecPacket::with_room(b"abc", 1);
        assert_eq!((tight.head(), tight.head_room(), tight.tail_room()), (&b"abc"[..], 1, 1));
        assert!(!tight.grow_front(2) && tight.grow_front(1));
    }
}
