//! The arguments `forward` and `reverse` of functions.

use mmb_nf::Direction;

/// The direction of the packets that a function processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DirectionFilter {
    #[default]
    Both,
    Only(Direction),
}

impl DirectionFilter {
    /// Parses `forward` (packets of the initiator) or `reverse` (packets of the responder).
    pub fn of(word: &str) -> Option<DirectionFilter> {
        match word {
            "forward" => Some(DirectionFilter::Only(Direction::Forward)),
            "reverse" => Some(DirectionFilter::Only(Direction::Reverse)),
            _ => None,
        }
    }

    /// Whether packets of a direction are processed.
    #[inline(always)]
    pub fn is(self, direction: Direction) -> bool {
        match self {
            DirectionFilter::Both => true,
            DirectionFilter::Only(only) => only == direction,
        }
    }
}
