//! Sessions whose packets a function changes by constants only.

use mmb_flow::Direction;

/// What a function does to the packets of a session, besides the translations that the engine makes for it:
/// the same to each of them, and to nothing but numbers of TCP segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConstantRewrite {
    /// By direction: added to the timestamps of its segments (TSval, RFC 7323), and subtracted from those
    /// that segments of the other direction echo. Wraps.
    pub timestamps: [u32; 2],
    /// By direction: left shift of the windows of its segments in bits, from -14 to 14. A window that becomes
    /// too large is the largest one.
    pub window_shifts: [i8; 2],
}

impl ConstantRewrite {
    /// Returns what is added to the timestamps of a direction.
    pub fn timestamp(self, direction: Direction) -> u32 {
        self.timestamps[direction as usize]
    }

    /// Returns what is added to the timestamps that a direction echoes.
    pub fn echo(self, direction: Direction) -> u32 {
        self.timestamps[direction.opposite() as usize].wrapping_neg()
    }

    /// Returns the left shift of the windows of a direction.
    pub fn window_shift(self, direction: Direction) -> i8 {
        self.window_shifts[direction as usize]
    }

    /// Returns what two functions do one after the other. `None`: both shift windows, which is no single
    /// shift.
    pub fn and(self, other: ConstantRewrite) -> Option<ConstantRewrite> {
        let shifts = [self.window_shifts, other.window_shifts];
        if !shifts.contains(&[0, 0]) {
            return None;
        }
        Some(ConstantRewrite {
            timestamps: [0, 1].map(|at| self.timestamps[at].wrapping_add(other.timestamps[at])),
            window_shifts: [0, 1].map(|at| shifts[0][at] + shifts[1][at]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_return_to_their_sender_as_they_were() {
        let rewrite = ConstantRewrite { timestamps: [5, u32::MAX], window_shifts: [0, 3] };
        let (there, back) = (Direction::Forward, Direction::Reverse);
        assert_eq!((rewrite.timestamp(there), rewrite.echo(there)), (5, 1));
        assert_eq!((rewrite.timestamp(back), rewrite.echo(back)), (u32::MAX, 5_u32.wrapping_neg()));
        assert_eq!((rewrite.window_shift(there), rewrite.window_shift(back)), (0, 3));
    }

    #[test]
    fn windows_are_shifted_once() {
        let one = ConstantRewrite { timestamps: [5, u32::MAX], window_shifts: [0, 3] };
        let other = ConstantRewrite { timestamps: [1, 1], ..ConstantRewrite::default() };
        let both = ConstantRewrite { timestamps: [6, 0], window_shifts: [0, 3] };
        assert_eq!((one.and(other), other.and(one)), (Some(both), Some(both)));
        assert_eq!(one.and(one), None);
    }
}
