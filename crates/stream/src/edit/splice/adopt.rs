//! Connections that functions have read, and are edited from now on.

use super::{ACKED, EDGE, FIN, FIN_SENT, Splices, TOLD};
use crate::{KeptBytes, TcpStream};

impl Splices {
    /// Adds a connection that was read from its beginning, and of which no byte was changed. Bytes that are
    /// kept for it become its output. Returns its number. None: there is no room, or the window of an end is
    /// not known.
    pub fn adopt(&mut self, stream: &TcpStream, kept: &KeptBytes) -> Option<u32> {
        let windows = [stream.window(0)?, stream.window(1)?];
        let number = self.insert()?;
        let is_adopted = [0, 1].into_iter().all(|direction| {
            let carried = (stream.acknowledged(1 - direction), windows[1 - direction]);
            self.adopt_flow((number, direction), (stream, kept), carried).is_some()
        });
        if !is_adopted {
            self.remove(number);
        }
        is_adopted.then_some(number)
    }

    /// `carried`: the acknowledgement number and window that segments of the direction carried last.
    fn adopt_flow(
        &mut self,
        (number, direction): (u32, usize),
        (stream, kept): (&TcpStream, &KeptBytes),
        (ack, window): (Option<u32>, u16),
    ) -> Option<()> {
        let (next, acked, edge) =
            (stream.next(direction)?, stream.acknowledged(direction)?, stream.edge(direction)?);
        let range = kept.range(stream.kept(), direction).filter(|&(_, to)| to == next);
        let (first, to) = range.unwrap_or((next, next));
        let len = to.wrapping_sub(first) as usize;
        if !self.output.has_room(number, direction, len) {
            return None;
        }
        self.begin(number, direction, first, crate::is_before(acked, first));
        kept.pieces(stream.kept(), direction, first, len, |_, bytes| {
            self.append(number, direction, bytes);
        });
        let (flow, _) = self.parts(number, direction)?;
        flow.bits |= ACKED | EDGE | TOLD | if stream.is_ended(direction) { FIN | FIN_SENT } else { 0 };
        (flow.sent, flow.acked, flow.edge, flow.told) = (flow.end, acked, edge, edge);
        flow.carried = (ack?, window);
        Some(())
    }
}
