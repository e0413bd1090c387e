//! What programs are compiled from, and what may be wrong with it.

use mmb_flow::layout::Order;
use mmb_lang::{Chain, NfAdd};

use crate::{Program, Registry};

/// What a [`Program`] is compiled from.
#[derive(Clone, Copy)]
pub struct ProgramSpec<'a> {
    /// The instances, in the order in which they are shown.
    pub functions: &'a [NfAdd],
    /// The chains.
    pub chains: &'a [Chain],
    /// The functions that there are.
    pub registry: &'a Registry,
    /// The number of a port, by its name.
    pub resolve_port: &'a dyn Fn(&str) -> Option<u16>,
    /// Whether there is a NAT pool of that name.
    pub has_pool: &'a dyn Fn(&str) -> bool,
    /// How many workers there are.
    pub workers: u16,
    /// A secret from senders.
    pub seed: u64,
    /// What was there before: instances whose name, type and words are the same stay.
    pub previous: Option<&'a Program>,
    /// Most bytes that a session's scratchpad may take.
    pub scratchpad_limit: usize,
    /// How scratchpads are laid out.
    pub order: Order,
}

/// What a [`ProgramError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramItem {
    /// An instance, by its number in [`ProgramSpec::functions`].
    Function(usize),
    /// A chain, by its number in [`ProgramSpec::chains`].
    Chain(usize),
}

/// Why there is no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProgramError {
    /// What is wrong.
    pub item: ProgramItem,
    /// The word of its line that is wrong, if it is one.
    pub word: Option<String>,
    /// How, in a sentence without a full stop.
    pub message: String,
}
