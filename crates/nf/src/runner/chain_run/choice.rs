//! The outputs that stream functions have chosen for sessions.

use super::ChainRun;
use crate::Verdict;
use crate::program::ir::FunctionNode;
use crate::runner::header::pads_from;
use crate::runner::placement::Placement;
use crate::runner::scratchpads::ScratchpadSpace;
use crate::set::Set;

impl ChainRun<'_, '_> {
    /// Writes the outputs of packets whose sessions have one to their verdicts. Returns these packets.
    pub(super) fn chosen<S: ScratchpadSpace>(
        &mut self,
        function: &FunctionNode,
        set: Set,
        space: &mut S,
    ) -> Set {
        let mut chosen = Set::EMPTY;
        let ChainRun { state, active, function_verdicts, .. } = self;
        let Some(instance) = state.state(active, function.instance) else { return chosen };
        let (start, end) = (function.offset as usize, (function.offset + function.bytes) as usize);
        let (pads, bases) = space.pads();
        for i in set.iter() {
            let pad = pads_from(pads, bases[i]).get(start..end);
            if let Some(output) = pad.and_then(|pad| instance.placement.output(pad)) {
                function_verdicts[i] = Verdict::Branch(output);
                chosen.insert(i);
            }
        }
        if self.state.watch.is_some() {
            self.note_visits(function, chosen, chosen);
        }
        chosen
    }
}
