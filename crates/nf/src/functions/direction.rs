//! `forward` and `reverse` as words of functions.

use crate::Direction;

/// The packets that a function is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Which {
    #[default]
    Both,
    Only(Direction),
}

impl Which {
    /// What `forward` (the opener's packets) or `reverse` (the other side's) says.
    pub fn of(word: &str) -> Option<Which> {
        match word {
            "forward" => Some(Which::Only(Direction::Forward)),
            "reverse" => Some(Which::Only(Direction::Reverse)),
            _ => None,
        }
    }

    /// Whether packets of this direction are meant.
    #[inline(always)]
    pub fn is(self, direction: Direction) -> bool {
        match self {
            Which::Both => true,
            Which::Only(only) => only == direction,
        }
    }
}
