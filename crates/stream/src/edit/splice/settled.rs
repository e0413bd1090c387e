//! Connections whose numbers differ by constants.
//!
//! Theory of operation. When all edits are acknowledged, and no function reads the connection any more, the
//! numbers of each direction differ by one constant from then on. Bytes in front of an edit may still be
//! repeated. With the distance behind all edits, they are in front of what their receiver has acknowledged,
//! which ignores them.

use super::{ACKED, BEGUN, FIN, FIN_SENT, Flow, PREACKED, Splices, TOLD};
use crate::{is_after, is_before};

/// A direction whose numbers differ by a constant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettledNumbers {
    /// The distance of the receiver's numbers from the sender's.
    pub offset: u32,
    /// The greatest acknowledgement number of the receiver, as the sender counts.
    pub acknowledged: u32,
}

impl Splices {
    /// Returns the numbers of both directions if they differ by constants: all output was sent and
    /// acknowledged, and the senders were told no window that the receivers have not announced.
    pub fn settled(&self, number: u32) -> Option<[SettledNumbers; 2]> {
        let [forward, reverse] = [0, 1].map(|direction| self.flow(number, direction).and_then(Flow::settled));
        Some([forward?, reverse?])
    }
}

impl Flow {
    fn settled(&self) -> Option<SettledNumbers> {
        let has_all = self.has(BEGUN)
            && self.has(ACKED)
            && self.log.len == 0
            && !self.has(PREACKED)
            && !is_before(self.sent, self.output_end())
            && !is_before(self.acked, self.output_end())
            && self.has(FIN) == self.has(FIN_SENT);
        let offset = self.log.offset;
        let has_edge = !self.has(TOLD) || !is_after(self.told, self.edge.wrapping_sub(offset));
        let acknowledged = self.acked.wrapping_sub(offset);
        (has_all && has_edge).then_some(SettledNumbers { offset, acknowledged })
    }
}
