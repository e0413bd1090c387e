//! What the engine keeps at the beginning of a scratchpad.

use bytemuck::{Pod, Zeroable};

use crate::program::ir::BodyNo;

/// The first eight bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Header {
    /// Number of the program under which the session was opened or last moved, as the runner numbers them.
    pub program: u16,
    /// The body that the session goes through: of the flow manager's sessions, the chain.
    pub body: BodyNo,
    /// Which ways it has taken: see [`crate::program::ir::Bits`].
    pub ways: u32,
}

const _: () = assert!(size_of::<Header>() == crate::HEADER_BYTES);

impl Header {
    /// Of a scratchpad; zeros if it has none.
    #[inline(always)]
    pub fn of(pad: &[u8]) -> Header {
        pad.first_chunk()
            .map_or(Header::default(), |bytes: &[u8; size_of::<Header>()]| bytemuck::cast(*bytes))
    }

    pub fn put(&self, pad: &mut [u8]) {
        if let Some(bytes) = pad.first_chunk_mut::<{ size_of::<Header>() }>() {
            *bytes = bytemuck::cast(*self);
        }
    }
}

/// The scratchpads from `base` on, in units of 8 bytes.
#[inline(always)]
pub(super) fn at(pads: &[u8], base: u32) -> &[u8] {
    pads.get(base as usize * 8..).unwrap_or(&[])
}

/// The same to be written, no more than `bytes`.
pub(super) fn at_mut(pads: &mut [u8], base: u32, bytes: usize) -> &mut [u8] {
    let pad = pads.get_mut(base as usize * 8..).unwrap_or(&mut []);
    let len = pad.len().min(bytes);
    &mut pad[..len]
}
