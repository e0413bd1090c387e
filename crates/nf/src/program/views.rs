//! Programs as they are shown to users.

use super::ir::{ArmTarget, Body, FunctionNode, Node};
use super::{ChainId, HEADER_BYTES, Program};

/// Most paths of a chain that are shown.
const MAX_PATHS: usize = 64;

/// The bytes of an instance in scratchpads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScratchpadView {
    /// Index in [`Program::instances`].
    pub instance: usize,
    /// Offset from the start of the scratchpad, in bytes.
    pub offset: usize,
    /// Size in bytes. Functions with another key than the session have 4 bytes: the number of an entry.
    pub bytes: usize,
}

/// A path through a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathView {
    /// Functions on the path in forward direction, with functions `flow`: indices in [`Program::instances`].
    pub instances: Vec<usize>,
    /// Bytes of the flow manager's scratchpads up to the end of the last function, header included.
    pub bytes: usize,
    /// Bytes of header and functions. The rest of `bytes` is holes.
    pub used: usize,
    /// The path ends in `drop`.
    pub drops: bool,
}

/// What an entry of [`crate::Runner::counters`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageView {
    /// The chain.
    pub chain: ChainId,
    /// Index in [`Program::instances`].
    pub instance: usize,
}

impl Program {
    /// Returns the bytes of functions in the flow manager's scratchpads, ordered by offset. Functions without
    /// bytes are left out. Functions that no session passes together may share bytes.
    pub fn scratchpads(&self) -> Vec<ScratchpadView> {
        self.scratchpads_of(0)
    }

    /// Returns the bytes of functions in the scratchpads of an instance of type `flow`.
    pub fn scratchpads_behind(&self, flow: usize) -> Vec<ScratchpadView> {
        let space = self.spaces.iter().position(|sessions| sessions.flow.map(usize::from) == Some(flow));
        space.map_or_else(Vec::new, |space| self.scratchpads_of(space))
    }

    fn scratchpads_of(&self, space: usize) -> Vec<ScratchpadView> {
        let places = self.spaces.get(space).map(|sessions| sessions.layout.places()).unwrap_or_default();
        places
            .into_iter()
            .map(|(instance, offset, bytes)| ScratchpadView { instance: instance.into(), offset, bytes })
            .collect()
    }

    /// Returns the first 64 paths through a chain.
    pub fn paths(&self, chain: ChainId) -> Vec<PathView> {
        let start = PathView { bytes: HEADER_BYTES, used: HEADER_BYTES, ..PathView::default() };
        let Some(body) = self.body(chain.0) else { return Vec::new() };
        self.extend(body, vec![start], true)
    }

    /// Extends paths by a body. `is_outer`: its scratchpads are the flow manager's.
    fn extend(&self, body: &Body, mut paths: Vec<PathView>, is_outer: bool) -> Vec<PathView> {
        for node in &body.forward {
            let (mut done, mut open): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.drops);
            let open = match node {
                Node::Function(function) => append(open, function, is_outer),
                Node::Outputs { function, arms, .. } => {
                    self.extend_arms(arms.iter(), &append(open, function, is_outer), is_outer)
                }
                Node::Choice { arms, .. } => self.extend_arms(arms.iter(), &open, is_outer),
                Node::Dispatch { arms, .. } => {
                    self.extend_arms(arms.iter().map(|arm| &arm.target), &open, is_outer)
                }
                Node::Translate | Node::StreamExit(_) => open,
                Node::Flow { instance, body, .. } => {
                    open.iter_mut().for_each(|path| path.instances.push(usize::from(*instance)));
                    self.body(*body).map_or_else(Vec::new, |body| self.extend(body, open, false))
                }
            };
            done.extend(open);
            done.truncate(MAX_PATHS);
            paths = done;
        }
        paths
    }

    fn extend_arms<'a>(
        &self,
        arms: impl Iterator<Item = &'a ArmTarget>,
        paths: &[PathView],
        is_outer: bool,
    ) -> Vec<PathView> {
        let mut all = Vec::new();
        for arm in arms {
            let mut through = paths.to_vec();
            match arm {
                ArmTarget::Drop => through.iter_mut().for_each(|path| path.drops = true),
                ArmTarget::Body(body) => {
                    let body = self.body(*body);
                    through = body.map_or_else(Vec::new, |body| self.extend(body, through, is_outer));
                }
            }
            all.extend(through);
            all.truncate(MAX_PATHS);
        }
        all
    }

    /// Iterates over what the entries of [`crate::Runner::counters`] count.
    pub fn stages(&self) -> impl Iterator<Item = StageView> {
        self.stages
            .iter()
            .map(|stage| StageView { chain: ChainId(stage.chain), instance: stage.instance.into() })
    }

    /// Returns the index in [`Program::instances`] that an entry of [`crate::Runner::counters`] counts for.
    pub fn stage_instance(&self, stage: usize) -> Option<usize> {
        self.stages.get(stage).map(|stage| usize::from(stage.instance))
    }
}

fn append(mut paths: Vec<PathView>, function: &FunctionNode, is_outer: bool) -> Vec<PathView> {
    for path in &mut paths {
        path.instances.push(function.instance.into());
        if is_outer {
            path.bytes = path.bytes.max((function.offset + function.bytes) as usize);
            path.used += function.bytes as usize;
        }
    }
    paths
}
