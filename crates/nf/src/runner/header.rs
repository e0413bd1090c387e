//! The engine's bytes at the start of a scratchpad.

use bytemuck::{Pod, Zeroable};

use crate::program::ir::BodyId;

/// The first eight bytes of a scratchpad.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Header {
    /// Number of the session's program, as the runner counts programs.
    pub program: u16,
    /// The body that the session passes. For sessions of the flow manager: the chain.
    pub body: BodyId,
    /// The branches that the session has taken: see [`crate::program::ir::BitField`].
    pub branches: u32,
}

const _: () = assert!(size_of::<Header>() == crate::HEADER_BYTES);

impl Header {
    /// Reads the header of a scratchpad; zeros if it is too short.
    #[inline(always)]
    pub fn read(pad: &[u8]) -> Header {
        pad.first_chunk()
            .map_or(Header::default(), |bytes: &[u8; size_of::<Header>()]| bytemuck::cast(*bytes))
    }

    pub fn write(&self, pad: &mut [u8]) {
        if let Some(bytes) = pad.first_chunk_mut::<{ size_of::<Header>() }>() {
            *bytes = bytemuck::cast(*self);
        }
    }
}

/// Returns the scratchpads from `base` on. `base` is in units of 8 bytes.
#[inline(always)]
pub(super) fn pads_from(pads: &[u8], base: u32) -> &[u8] {
    pads.get(base as usize * 8..).unwrap_or(&[])
}
