//! Compiled chains.
//!
//! Theory of operation. A program is compiled as a whole from instances and chains. It is immutable and is
//! published together with the rules that name its chains. Instances with the same name, type and arguments
//! as before are kept, with all their state. Bodies ([`ir`]) and the layout of scratchpads ([`layout`]) are
//! made anew. Sessions of an older program are moved when their next packet comes (`Runner::migrate`).

mod arms;
mod builder;
mod class;
mod compile;
mod compiled;
mod diagram;
mod errors;
mod groups;
pub(crate) mod ir;
mod l7;
mod layout;
mod path;
mod spec;
mod views;

pub use compiled::{ChainId, Program};
pub use errors::{ChainError, ProgramError, ProgramItem};
pub use layout::HEADER_BYTES;
pub use spec::ProgramSpec;
pub use views::{PathView, ScratchpadView, StageView};
