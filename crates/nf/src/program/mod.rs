//! Chains, compiled.
//!
//! Theory of operation. A program is compiled as a whole from instances and chains, is immutable, and is published together
//! with the rules that name its chains. Instances that stay as they are (same name, type and words) stay the same objects,
//! with all that they know; everything else is made anew: bodies ([`ir`]) and the places of scratchpads ([`layout`]).
//! Sessions that were opened under an older program are moved when a packet of theirs comes (`Runner::migrate`).

mod arms;
mod build;
mod class;
mod compile;
mod errors;
pub(crate) mod ir;
mod layout;
mod picture;
mod view;
mod way;

use std::sync::Arc;

use mmb_classify::Classifier;
use mmb_lang::Match;

pub use errors::{ProgramError, ProgramItem, ProgramSpec};
pub use view::{PathView, ScratchpadView, StageView};

use crate::Instance;
use ir::{Body, BodyNo, Chain, Sessions, Stage};

/// Bytes at the beginning of every scratchpad that are the engine's own: number of the program, of the chain, and which
/// ways the session has taken.
pub const HEADER_BYTES: usize = 8;

/// A chain of a [`Program`]. Means nothing to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainId(pub u16);

/// All instances and chains, and where functions have their scratchpads. Immutable.
#[derive(Debug, Default)]
pub struct Program {
    pub(crate) instances: Vec<Arc<Instance>>,
    pub(crate) chains: Vec<Chain>,
    pub(crate) bodies: Vec<Body>,
    /// Those of the flow manager first, if there is a chain; then those of functions `flow`.
    pub(crate) spaces: Vec<Sessions>,
    /// Which of them each body's functions stand in.
    pub(crate) spaces_of: Vec<usize>,
    /// A rule for each kind of traffic that brackets ask about.
    pub(crate) classes: Classifier,
    pub(crate) stages: Vec<Stage>,
    pub(crate) limit: usize,
}

impl Program {
    /// The chain of that name.
    pub fn chain(&self, name: &str) -> Option<ChainId> {
        let at = self.chains.iter().position(|chain| *chain.name == *name)?;
        u16::try_from(at).ok().map(ChainId)
    }

    /// All chains, in the order of [`ProgramSpec::chains`].
    pub fn chains(&self) -> impl Iterator<Item = ChainId> {
        (0..self.chains.len()).filter_map(|at| u16::try_from(at).ok().map(ChainId))
    }

    fn get(&self, chain: ChainId) -> Option<&Chain> {
        self.chains.get(usize::from(chain.0))
    }

    /// A chain's name.
    pub fn name(&self, chain: ChainId) -> Option<&Arc<str>> {
        self.get(chain).map(|chain| &chain.name)
    }

    /// A chain's body, in the language.
    pub fn text(&self, chain: ChainId) -> &str {
        self.get(chain).map_or("", |chain| &chain.text)
    }

    /// The traffic that a chain takes: what all of its ways have in common. To be asked with the matches of each rule that
    /// names it. Empty: all.
    pub fn class(&self, chain: ChainId) -> &[Match] {
        self.get(chain).map_or(&[], |chain| &chain.class)
    }

    /// The same in the language.
    pub fn class_text(&self, chain: ChainId) -> String {
        class::text(self.class(chain))
    }

    /// Whether sessions of the chain may be translated in it.
    pub fn translates(&self, chain: ChainId) -> bool {
        self.get(chain).is_some_and(|chain| chain.translates)
    }

    /// For how long sessions of the chain have to be kept without packets, in milliseconds, at least.
    pub fn timeout(&self, chain: ChainId) -> Option<u32> {
        self.body(chain.0).and_then(|body| body.timeout)
    }

    /// All instances, in the order of [`ProgramSpec::functions`].
    pub fn instances(&self) -> &[Arc<Instance>] {
        &self.instances
    }

    /// An instance.
    pub fn instance(&self, name: &str) -> Option<&Arc<Instance>> {
        self.instances.iter().find(|instance| instance.name() == name)
    }

    /// Bytes of the flow manager's scratchpads, the header among them. 0: there is no chain.
    pub fn bytes(&self) -> usize {
        self.spaces.first().map_or(0, |sessions| sessions.space.bytes())
    }

    pub(crate) fn body(&self, number: BodyNo) -> Option<&Body> {
        self.bodies.get(usize::from(number))
    }
}
