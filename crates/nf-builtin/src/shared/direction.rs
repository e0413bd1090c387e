//! `forward` and `reverse` as words of functions.

use mmb_nf::Direction;

/// The packets that a function is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DirectionFilter {
    #[default]
    Both,
    Only(Direction),
}

impl DirectionFilter {
    /// What `forward` (the opener's packets) or `reverse` (the other side's) says.
    pub fn of(word: &str) -> Option<DirectionFilter> {
        match word {
            "forward" => Some(DirectionFilter::Only(Direction::Forward)),
            "reverse" => Some(DirectionFilter::Only(Direction::Reverse)),
            _ => None,
        }
    }

    /// Whether packets of this direction are meant.
    #[inline(always)]
    pub fn is(self, direction: Direction) -> bool {
        match self {
            DirectionFilter::Both => true,
            DirectionFilter::Only(only) => only == direction,
        }
    }
}
