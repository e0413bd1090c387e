//! The sessions whose scratchpads a chain uses: those of the flow manager, or those of a function `flow`.

use mmb_flow::{FlowRef, SessionId};
use mmb_packet::{DropReason, Kind, Meta};

use super::nested::NestedSessions;
use super::types::{ChainVerdict, SessionAccess};
use crate::held::OUTER_SPACE;
use crate::set::VECTOR;
use crate::{Packet, SessionInfo, Verdict};

/// The sessions that scratchpads belong to.
pub(super) trait ScratchpadSpace {
    /// Returns all scratchpads, and the starts of those of the packets.
    fn pads(&mut self) -> (&mut [u8], &[u32; VECTOR]);
    /// Returns the scratchpad of a session.
    fn pad(&mut self, id: SessionId) -> &mut [u8];
    /// See [`SessionAccess::translator`].
    fn translator(&mut self) -> impl FnMut(FlowRef, &mut [u8], &Meta) -> Result<(), DropReason>;
    fn info(&self, id: SessionId, now: u32) -> SessionInfo;
    /// Returns the space of the sessions' numbers ([`crate::held::HeldPlace::space`]).
    fn space(&self) -> u32;
    /// Returns the verdict of a packet that a function does not pass, and applies it to the session.
    fn verdict(&mut self, packet: &Packet<'_>, verdict: Verdict) -> ChainVerdict;
    /// Returns the bytes of the longest IP packet that the output of a packet takes.
    fn mtu(&self, packet: &Packet<'_>) -> usize;
}

/// The MTU that each link has (RFC 1122, 3.3.2; RFC 8200, 5).
const LEAST_MTU4: usize = 576;
const LEAST_MTU6: usize = 1280;

/// The sessions of the flow manager.
pub(super) struct SessionPads<'a, A> {
    pub sessions: &'a mut A,
    pub bases: &'a [u32; VECTOR],
}

impl<A: SessionAccess> ScratchpadSpace for SessionPads<'_, A> {
    #[inline]
    fn pads(&mut self) -> (&mut [u8], &[u32; VECTOR]) {
        (self.sessions.pads().0, self.bases)
    }

    fn pad(&mut self, id: SessionId) -> &mut [u8] {
        self.sessions.pad(id)
    }

    #[inline(always)]
    fn translator(&mut self) -> impl FnMut(FlowRef, &mut [u8], &Meta) -> Result<(), DropReason> {
        self.sessions.translator()
    }

    fn info(&self, id: SessionId, _: u32) -> SessionInfo {
        self.sessions.info(id)
    }

    fn space(&self) -> u32 {
        OUTER_SPACE
    }

    fn verdict(&mut self, _: &Packet<'_>, verdict: Verdict) -> ChainVerdict {
        match verdict {
            Verdict::Drop(reason) => ChainVerdict::Drop(reason),
            Verdict::Refuse(reason) => ChainVerdict::Refuse(reason),
            Verdict::End(reason) => ChainVerdict::End(reason),
            Verdict::Consume => ChainVerdict::Consume,
            Verdict::Hold => ChainVerdict::Hold,
            Verdict::Pass | Verdict::Branch(_) => ChainVerdict::Drop(DropReason::ChainError),
        }
    }

    fn mtu(&self, packet: &Packet<'_>) -> usize {
        self.sessions.mtu(packet)
    }
}

impl ScratchpadSpace for NestedSessions {
    #[inline]
    fn pads(&mut self) -> (&mut [u8], &[u32; VECTOR]) {
        (self.table.scratchpads_mut().0, &self.bases)
    }

    fn pad(&mut self, id: SessionId) -> &mut [u8] {
        self.table.scratch_mut(id)
    }

    fn translator(&mut self) -> impl FnMut(FlowRef, &mut [u8], &Meta) -> Result<(), DropReason> {
        |_, _, _| Ok(())
    }

    fn info(&self, id: SessionId, now: u32) -> SessionInfo {
        NestedSessions::info(self, id, now)
    }

    fn space(&self) -> u32 {
        self.space
    }

    fn verdict(&mut self, packet: &Packet<'_>, verdict: Verdict) -> ChainVerdict {
        match verdict {
            Verdict::Drop(reason) => ChainVerdict::Drop(reason),
            Verdict::Refuse(reason) => {
                self.refuse(packet.session, reason);
                ChainVerdict::Drop(reason)
            }
            Verdict::End(reason) => {
                self.refuse(packet.session, reason);
                self.ended.push((packet.session, self.table.uid(packet.session)));
                ChainVerdict::Drop(reason)
            }
            Verdict::Consume => ChainVerdict::Consume,
            Verdict::Hold => ChainVerdict::Hold,
            Verdict::Pass | Verdict::Branch(_) => ChainVerdict::Drop(DropReason::ChainError),
        }
    }

    /// The output is that of a session outside, which is not known here.
    fn mtu(&self, packet: &Packet<'_>) -> usize {
        if packet.meta.kind.l3() == Kind::IP4 { LEAST_MTU4 } else { LEAST_MTU6 }
    }
}
