//! Constant differences between the numbers of the ends of a TCP connection.

use bytemuck::{Pod, Zeroable};

use crate::Direction;

/// What edits of a TCP connection leave when all edited bytes are acknowledged: for each direction, the
/// number that is added to its sequence numbers. It is subtracted from the acknowledgment numbers and SACK
/// edges of the other direction. Wraps.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct EditOffsets(pub [u32; 2]);

impl EditOffsets {
    /// Whether both ends count alike.
    pub fn is_zero(self) -> bool {
        self.0 == [0, 0]
    }

    /// Returns the sequence number with which a segment of a direction goes on.
    pub fn sequence(self, direction: Direction, sequence: u32) -> u32 {
        sequence.wrapping_add(self.0[direction as usize])
    }

    /// Returns the sequence number that its sender has given a segment which has gone on.
    pub fn original(self, direction: Direction, sequence: u32) -> u32 {
        sequence.wrapping_sub(self.0[direction as usize])
    }

    /// Returns the acknowledgment number, or SACK edge, with which a segment of a direction goes on.
    pub fn acknowledgment(self, direction: Direction, number: u32) -> u32 {
        number.wrapping_sub(self.0[direction.opposite() as usize])
    }

    /// Returns the offsets of edits that follow each other.
    pub fn and(self, other: EditOffsets) -> EditOffsets {
        let [forward, reverse] = other.0;
        EditOffsets([self.0[0].wrapping_add(forward), self.0[1].wrapping_add(reverse)])
    }
}
