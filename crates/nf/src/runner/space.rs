//! Whose scratchpads the packets of a chain are at: the flow manager's, or those of a function `flow`.

use mmb_flow::{FlowRef, SessionId};
use mmb_packet::{DropReason, Meta};

use super::second::Second;
use super::{ChainVerdict, SessionAccess};
use crate::set::VECTOR;
use crate::{Packet, SessionInfo, Verdict};

/// The sessions that scratchpads belong to.
pub(super) trait Space {
    /// All scratchpads, and where those of the packets begin.
    fn pads(&mut self) -> (&mut [u8], &[u32; VECTOR]);
    /// Bytes from one to the next.
    fn stride(&mut self) -> usize;
    fn translate(&mut self, found: FlowRef, head: &mut [u8], meta: &Meta) -> Result<(), DropReason>;
    fn info(&self, id: SessionId, now: u32) -> SessionInfo;
    /// What a packet's verdict, other than to pass or to go an output's way, means for it.
    fn fate(&mut self, packet: &Packet<'_>, verdict: Verdict) -> ChainVerdict;
}

/// The flow manager's.
pub(super) struct Outer<'a, G> {
    pub ground: &'a mut G,
    pub bases: &'a [u32; VECTOR],
}

impl<G: SessionAccess> Space for Outer<'_, G> {
    #[inline]
    fn pads(&mut self) -> (&mut [u8], &[u32; VECTOR]) {
        (self.ground.pads().0, self.bases)
    }

    fn stride(&mut self) -> usize {
        self.ground.pads().1
    }

    #[inline]
    fn translate(&mut self, found: FlowRef, head: &mut [u8], meta: &Meta) -> Result<(), DropReason> {
        self.ground.translate(found, head, meta)
    }

    fn info(&self, id: SessionId, _: u32) -> SessionInfo {
        self.ground.info(id)
    }

    fn fate(&mut self, _: &Packet<'_>, verdict: Verdict) -> ChainVerdict {
        match verdict {
            Verdict::Drop(reason) => ChainVerdict::Drop(reason),
            Verdict::Refuse(reason) => ChainVerdict::Refuse(reason),
            Verdict::End(reason) => ChainVerdict::End(reason),
            Verdict::Pass | Verdict::Branch(_) => ChainVerdict::Drop(DropReason::ChainError),
        }
    }
}

impl Space for Second {
    #[inline]
    fn pads(&mut self) -> (&mut [u8], &[u32; VECTOR]) {
        (self.table.scratchpads_mut().0, &self.bases)
    }

    fn stride(&mut self) -> usize {
        self.table.scratchpads_mut().1
    }

    fn translate(&mut self, _: FlowRef, _: &mut [u8], _: &Meta) -> Result<(), DropReason> {
        Ok(())
    }

    fn info(&self, id: SessionId, now: u32) -> SessionInfo {
        Second::info(self, id, now)
    }

    fn fate(&mut self, packet: &Packet<'_>, verdict: Verdict) -> ChainVerdict {
        match verdict {
            Verdict::Drop(reason) => ChainVerdict::Drop(reason),
            Verdict::Refuse(reason) => {
                self.refuse(packet.session, reason);
                ChainVerdict::Drop(reason)
            }
            Verdict::End(reason) => {
                self.ended.push((packet.session, self.table.uid(packet.session)));
                ChainVerdict::Drop(reason)
            }
            Verdict::Pass | Verdict::Branch(_) => ChainVerdict::Drop(DropReason::ChainError),
        }
    }
}
