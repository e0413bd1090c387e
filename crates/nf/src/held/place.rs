//! Where packets are held: a function, and a session there.

use std::hash::{Hash, Hasher};

/// The space of the flow manager's sessions. That of a function `flow` is the index of its state.
pub(crate) const OUTER_SPACE: u32 = u32::MAX;

/// The place of a function for the packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldPlace {
    /// The sessions that `session` counts in.
    pub space: u32,
    /// Number of the session.
    pub session: u32,
    /// Index of the instance's state. A path has an instance once.
    pub state: u32,
}

impl Hash for HeldPlace {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let place = u64::from(self.space) << 40 ^ u64::from(self.state) << 32 ^ u64::from(self.session);
        hasher.write_u64(place);
    }
}

/// Hashes numbers that senders do not choose.
#[derive(Default)]
pub(super) struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
