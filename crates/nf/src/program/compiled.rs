//! The compiled program.

use std::sync::Arc;

use mmb_classify::Classifier;
use mmb_lang::Match;

use super::class;
use super::ir::{Body, BodyId, Chain, SessionSpace, Stage};
use crate::Instance;

/// A chain of a [`Program`]. It has no meaning for another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainId(pub u16);

impl ChainId {
    /// No chain: of sessions that pass the runner because functions have edited their connections.
    pub(crate) const NONE: ChainId = ChainId(u16::MAX);
}

/// All instances and chains, and the layout of their scratchpads. Immutable.
#[derive(Debug, Default)]
pub struct Program {
    pub(crate) instances: Vec<Arc<Instance>>,
    /// See [`Program::may_have_offsets`].
    pub(crate) may_have_offsets: bool,
    pub(crate) chains: Vec<Chain>,
    pub(crate) bodies: Vec<Body>,
    /// The flow manager's sessions, if there is a chain; then those of each function `flow`.
    pub(crate) spaces: Vec<SessionSpace>,
    /// Index of the sessions that each body's functions use.
    pub(crate) spaces_of: Vec<usize>,
    /// A rule for each traffic class that brackets test.
    pub(crate) classes: Classifier,
    pub(crate) stages: Vec<Stage>,
    /// The instances in processes of each stream context that has some.
    pub(crate) apart: Vec<Vec<u16>>,
    pub(crate) scratchpad_limit: usize,
}

impl Program {
    /// Returns the chain with a name.
    pub fn chain(&self, name: &str) -> Option<ChainId> {
        let at = self.chains.iter().position(|chain| *chain.name == *name)?;
        u16::try_from(at).ok().map(ChainId)
    }

    /// Iterates over all chains, in the order of [`super::ProgramSpec::chains`].
    pub fn chains(&self) -> impl Iterator<Item = ChainId> {
        (0..self.chains.len()).filter_map(|at| u16::try_from(at).ok().map(ChainId))
    }

    fn get(&self, chain: ChainId) -> Option<&Chain> {
        self.chains.get(usize::from(chain.0))
    }

    /// Returns the name of a chain.
    pub fn name(&self, chain: ChainId) -> Option<&Arc<str>> {
        self.get(chain).map(|chain| &chain.name)
    }

    /// Returns the body of a chain as text of the language.
    pub fn text(&self, chain: ChainId) -> &str {
        self.get(chain).map_or("", |chain| &chain.text)
    }

    /// Returns the traffic that a chain accepts: what all of its paths have in common. Rules that name the
    /// chain match only this traffic. Empty: all.
    pub fn class(&self, chain: ChainId) -> &[Match] {
        self.get(chain).map_or(&[], |chain| &chain.class)
    }

    /// Returns [`Program::class`] as text of the language.
    pub fn class_text(&self, chain: ChainId) -> String {
        class::text(self.class(chain))
    }

    /// Whether the chain may translate sessions.
    pub fn translates(&self, chain: ChainId) -> bool {
        self.get(chain).is_some_and(|chain| chain.translates)
    }

    /// Returns the least time for which sessions of the chain are kept without packets, in milliseconds.
    pub fn timeout(&self, chain: ChainId) -> Option<u32> {
        self.body(chain.0).and_then(|body| body.timeout)
    }

    /// Returns all instances, in the order of [`super::ProgramSpec::functions`].
    pub fn instances(&self) -> &[Arc<Instance>] {
        &self.instances
    }

    /// Returns the instance with a name.
    pub fn instance(&self, name: &str) -> Option<&Arc<Instance>> {
        self.instances.iter().find(|instance| instance.name() == name)
    }

    /// Returns the bytes of a scratchpad of the flow manager, with its header. 0: there is no chain.
    pub fn bytes(&self) -> usize {
        self.spaces.first().map_or(0, |sessions| sessions.layout.bytes())
    }

    /// Returns the bytes of a scratchpad of the sessions that pass a body, with its header.
    pub(crate) fn bytes_behind(&self, body: BodyId) -> usize {
        let space = self.spaces_of.get(usize::from(body)).and_then(|&space| self.spaces.get(space));
        space.map_or(0, |sessions| sessions.layout.bytes())
    }

    /// Whether there may be sessions whose connections functions have edited, so that their packets need
    /// sessions without any rule: a function of this program edits, or one of a program before did.
    pub fn may_have_offsets(&self) -> bool {
        self.may_have_offsets
    }

    /// Whether all functions of all chains take large frames of TCP
    /// ([`crate::Properties::takes_large_frames`]). Where functions edit streams, none does with a process
    /// among them: what is made of a large frame may be longer than a buffer.
    pub fn takes_large_frames(&self) -> bool {
        let instances =
            || self.stages.iter().filter_map(|stage| self.instances.get(usize::from(stage.instance)));
        instances().all(|one| one.properties().takes_large_frames)
            && !(instances().any(|one| one.process().is_some())
                && instances().any(|one| one.function.edits()))
    }

    pub(crate) fn body(&self, number: BodyId) -> Option<&Body> {
        self.bodies.get(usize::from(number))
    }
}
