//! The sessions of a harness, as its chains access them.

use mmb_flow::{FlowRef, Key, ScratchpadStarts, SessionId, Table, parse_key};
use mmb_packet::{DropReason, Meta, parse};

use super::NEAR;
use crate::{Packet, SessionAccess, SessionInfo};

/// The sessions of a harness.
pub(super) struct Sessions {
    pub table: Table,
    /// Milliseconds.
    pub now: u32,
    pub mtu: usize,
}

impl Sessions {
    /// Returns the session of a frame ([`FlowRef::NONE`]: there is none), its key and its metadata. None:
    /// the frame has no key.
    pub fn look_up(&self, frame: &[u8]) -> Option<(FlowRef, Key, Meta)> {
        let mut meta = Meta::default();
        parse(frame, frame.len(), &mut meta).ok()?;
        let key = parse_key(frame, &meta).ok()?;
        Some((self.table.find(&key), key, meta))
    }
}

impl SessionAccess for Sessions {
    fn pads(&mut self) -> (&mut [u8], ScratchpadStarts<'_>) {
        self.table.scratchpads_mut()
    }

    fn pad(&mut self, id: SessionId) -> &mut [u8] {
        self.table.scratch_mut(id)
    }

    fn translator(&mut self) -> impl FnMut(FlowRef, &mut [u8], &Meta) -> Result<(), DropReason> {
        |_, _, _| Ok(())
    }

    fn finish_emission(&mut self, _: FlowRef, _: bool, _: &mut [u8]) -> bool {
        true
    }

    fn info(&self, id: SessionId) -> SessionInfo {
        SessionInfo { in_port: NEAR, ..SessionInfo::untranslated(&self.table, id, self.now) }
    }

    fn uid(&self, id: SessionId) -> Option<u32> {
        self.table.is_live(id).then(|| self.table.uid(id))
    }

    fn mtu(&self, _: &Packet<'_>) -> usize {
        self.mtu
    }
}
