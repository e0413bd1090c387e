//! One packet of a vector, as the tree sees it.

use mmb_packet::Window;

use crate::pattern::TruePredicates;

/// A packet to be looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupPacket<'a> {
    pub window: &'a Window,
    pub facts: TruePredicates<'a>,
    /// The packet's number among the heads.
    pub head: u16,
}
