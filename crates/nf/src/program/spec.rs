//! The input of the compilation.

use std::sync::Arc;

use mmb_flow::layout::Order;
use mmb_lang::{Chain, NfInstance};
use mmb_system::FileAccess;

use super::Program;
use crate::Registry;
use crate::process::ProcessSetup;

/// What a [`Program`] is compiled from.
#[derive(Clone, Copy)]
pub struct ProgramSpec<'a> {
    /// The instances, in the order in which they are shown.
    pub functions: &'a [NfInstance],
    /// The chains.
    pub chains: &'a [Chain],
    /// The known function types.
    pub registry: &'a Registry,
    /// Returns the number of the port with a name.
    pub resolve_port: &'a dyn Fn(&str) -> Option<u16>,
    /// Whether a NAT pool with a name exists.
    pub has_pool: &'a dyn Fn(&str) -> bool,
    /// Number of workers.
    pub workers: u16,
    /// A secret that senders do not know.
    pub seed: u64,
    /// The files that functions may open.
    pub files: &'a Arc<FileAccess>,
    /// The program in force. Instances with the same name, type and arguments are kept.
    pub previous: Option<&'a Program>,
    /// Most bytes of a session's scratchpad.
    pub scratchpad_limit: usize,
    /// Domains of functions in processes, and who starts these.
    pub processes: ProcessSetup<'a>,
    /// How scratchpads are laid out.
    pub order: Order,
}
