//! Programs as they are shown.

use super::ir::{Body, End, Node};
use super::{ChainId, HEADER_BYTES, Program};

/// Most ways through a chain that are told apart.
const WAYS: usize = 64;

/// Where an instance's bytes are in scratchpads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScratchpadView {
    /// Position in [`Program::instances`].
    pub instance: usize,
    /// From the beginning of the scratchpad, in bytes.
    pub offset: usize,
    /// How many; of functions with another key than the session, those of the number of its entry.
    pub bytes: usize,
}

/// A way through a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathView {
    /// Functions with scratchpads on it, and functions `flow`, in the opener's direction: positions in
    /// [`Program::instances`].
    pub instances: Vec<usize>,
    /// Bytes of the flow manager's scratchpads up to the end of the last function's, the header included.
    pub bytes: usize,
    /// Those of them that are header or functions': the rest is holes.
    pub used: usize,
    /// It ends in `drop`.
    pub drops: bool,
}

/// What a position of [`crate::Runner::counters`] counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageView {
    /// The chain.
    pub chain: ChainId,
    /// Position in [`Program::instances`].
    pub instance: usize,
}

impl Program {
    /// Where functions have their bytes in the flow manager's scratchpads, by offset. Functions without bytes are left
    /// out; functions that no session sees together may have the same.
    pub fn scratchpads(&self) -> Vec<ScratchpadView> {
        self.places_of(0)
    }

    /// The same in the scratchpads of an instance of type `flow`.
    pub fn scratchpads_behind(&self, flow: usize) -> Vec<ScratchpadView> {
        let space = self.spaces.iter().position(|sessions| sessions.flow.map(usize::from) == Some(flow));
        space.map_or_else(Vec::new, |space| self.places_of(space))
    }

    fn places_of(&self, space: usize) -> Vec<ScratchpadView> {
        let places = self.spaces.get(space).map(|sessions| sessions.space.places()).unwrap_or_default();
        places
            .into_iter()
            .map(|(instance, offset, bytes)| ScratchpadView { instance: instance.into(), offset, bytes })
            .collect()
    }

    /// The ways through a chain, the first 64 of them.
    pub fn paths(&self, chain: ChainId) -> Vec<PathView> {
        let start = PathView { bytes: HEADER_BYTES, used: HEADER_BYTES, ..PathView::default() };
        let Some(body) = self.body(chain.0) else { return Vec::new() };
        self.ways_through(body, vec![start], true)
    }

    /// Ways that are continued through a body. `counts`: it has its bytes in the flow manager's scratchpads.
    fn ways_through(&self, body: &Body, mut ways: Vec<PathView>, counts: bool) -> Vec<PathView> {
        for node in &body.there {
            let (mut done, open): (Vec<_>, Vec<_>) = ways.into_iter().partition(|way| way.drops);
            let open = match node {
                Node::Function(place) => through(open, place, counts),
                Node::Outputs { place, arms, .. } => {
                    self.ways_in(arms.iter(), &through(open, place, counts), counts)
                }
                Node::Class { arms, .. } => self.ways_in(arms.iter().map(|arm| &arm.end), &open, counts),
                Node::Translate => open,
                Node::Flow { instance, body, .. } => {
                    let mut open = open;
                    open.iter_mut().for_each(|way| way.instances.push(usize::from(*instance)));
                    self.body(*body).map_or_else(Vec::new, |body| self.ways_through(body, open, false))
                }
            };
            done.extend(open);
            done.truncate(WAYS);
            ways = done;
        }
        ways
    }

    fn ways_in<'a>(
        &self,
        arms: impl Iterator<Item = &'a End>,
        ways: &[PathView],
        counts: bool,
    ) -> Vec<PathView> {
        let mut all = Vec::new();
        for arm in arms {
            let mut mine = ways.to_vec();
            match arm {
                End::Drop => mine.iter_mut().for_each(|way| way.drops = true),
                End::Body(body) => {
                    mine =
                        self.body(*body).map_or_else(Vec::new, |body| self.ways_through(body, mine, counts));
                }
            }
            all.extend(mine);
            all.truncate(WAYS);
        }
        all
    }

    /// What each position of [`crate::Runner::counters`] counts for.
    pub fn stages(&self) -> impl Iterator<Item = StageView> {
        self.stages
            .iter()
            .map(|stage| StageView { chain: ChainId(stage.chain), instance: stage.instance.into() })
    }

    /// The instance that a position of [`crate::Runner::counters`] counts for, as a position in [`Program::instances`].
    pub fn stage_instance(&self, stage: usize) -> Option<usize> {
        self.stages.get(stage).map(|stage| usize::from(stage.instance))
    }
}

fn through(mut ways: Vec<PathView>, place: &super::ir::Place, counts: bool) -> Vec<PathView> {
    for way in &mut ways {
        way.instances.push(place.instance.into());
        if counts {
            way.bytes = way.bytes.max((place.offset + place.bytes) as usize);
            way.used += place.bytes as usize;
        }
    }
    ways
}
