//! What a session has under an old program, while it is moved to another one.

use crate::program::ir::FunctionNode;

/// The bytes of one function.
pub(super) struct PriorPad {
    pub uid: u64,
    /// See [`crate::Instance`].
    pub lineage: u64,
    pub function: FunctionNode,
    pub state: usize,
    /// The function keeps them.
    pub is_taken: bool,
}

/// The functions and branches of a session under its old program.
#[derive(Default)]
pub(super) struct PriorSession {
    pub pads: Vec<PriorPad>,
    /// Signature of a dispatch, and the arm that was taken.
    pub dispatches: Vec<(u64, u32)>,
    /// Instance of a function with outputs, and one output of each arm that was taken.
    pub outputs: Vec<(u64, u8)>,
    pub bytes: Vec<u8>,
    /// The scratchpad of a function that runs somewhere else now.
    pub moved: Vec<u8>,
}

impl PriorSession {
    pub fn clear(&mut self) {
        self.pads.clear();
        self.dispatches.clear();
        self.outputs.clear();
        self.bytes.clear();
    }
}
