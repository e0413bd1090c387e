//! Frames that stream functions send to clients, behind a function that translates sequence numbers.

use mmb_flow::Direction;
use mmb_packet::{Meta, parse};

use super::ChainRun;
use crate::program::ir::Splicer;
use crate::runner::header::pads_from;
use crate::runner::scratchpads::ScratchpadSpace;
use crate::runner::state::InstanceState;

impl ChainRun<'_, '_> {
    /// Lets a function translate the frames to clients that were sent since there were `first` of them.
    #[cold]
    pub(super) fn translate_sent<S: ScratchpadSpace>(
        &mut self,
        splicer: Splicer,
        first: usize,
        space: &mut S,
    ) {
        let ChainRun { state, active, packets, .. } = self;
        let Some(&at) = active.states.get(usize::from(splicer.instance)) else { return };
        let Some(InstanceState { placement, .. }) = state.states.get(at).and_then(Option::as_ref) else {
            return;
        };
        let Some(instance) = placement.local_instance() else { return };
        let (pads, bases) = space.pads();
        state.emissions.change(first, |i, is_egress, frame| {
            let Some(packet) = packets.get(usize::from(i)) else { return };
            if is_egress != (packet.direction == Direction::Reverse) {
                return;
            }
            let mut meta = Meta::default();
            let start = splicer.offset as usize;
            let pad = pads_from(pads, bases[usize::from(i)]).get(start..start + instance.pad().0);
            if let Some(pad) = pad.filter(|_| parse(frame, frame.len(), &mut meta).is_ok()) {
                instance.function.translate_sent(frame, &meta, pad);
            }
        });
    }
}
