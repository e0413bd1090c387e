//! What the sender of segments that came too early can be told in the receiver's place.

use super::{ACKED, HELD, SACK, SYNCED, TcpStream};

impl TcpStream {
    /// Whether segments of any direction may wait.
    #[inline(always)]
    pub fn has_held(&self) -> bool {
        (self.flows[0].bits | self.flows[1].bits) & HELD != 0
    }

    /// Whether both SYNs permit selective acknowledgements (RFC 2018).
    pub fn permits_sack(&self) -> bool {
        self.flows[0].bits & self.flows[1].bits & SACK != 0
    }

    /// Whether the receiver of a direction has acknowledged all that has gone on.
    pub fn is_acknowledged(&self, direction: usize) -> bool {
        let flow = &self.flows[direction & 1];
        flow.bits & (SYNCED | ACKED) == SYNCED | ACKED && flow.acked == flow.next
    }

    /// Returns the number behind all that has gone on of a direction, its FIN included.
    pub fn end(&self, direction: usize) -> Option<u32> {
        self.next(direction).map(|next| next.wrapping_add(u32::from(self.is_ended(direction))))
    }

    /// Returns the right edge of the window of a direction's receiver. None: it is not known.
    pub(crate) fn edge(&self, direction: usize) -> Option<u32> {
        self.window(direction)?;
        self.flows.get(direction).map(|flow| flow.edge)
    }

    /// Returns the window of a direction's receiver behind the bytes that it has acknowledged, as the field
    /// of a header. None: it is not known.
    pub fn window(&self, direction: usize) -> Option<u16> {
        let flow = self.flows.get(direction).filter(|flow| flow.bits & ACKED != 0)?;
        let shift = self.window_shift(direction ^ 1)?;
        // Its right edge must not move back.
        let field = flow.edge.wrapping_sub(flow.acked).div_ceil(1 << (shift & 15));
        Some(field.min(u16::MAX.into()) as u16)
    }
}
