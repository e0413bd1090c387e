//! What functions do to packets that somebody watches.
//!
//! Theory of operation. The owner of the runner names the packets of a vector that are watched, by the
//! addresses of their metadata, which do not change. For each call of a function the runner notes its verdict
//! about these packets, and their bytes behind the function. While nobody watches, a call of a function tests
//! one pointer.

use mmb_packet::Meta;

use super::ChainRun;
use crate::Verdict;
use crate::program::ir::FunctionNode;
use crate::runner::types::FunctionVisit;
use crate::set::Set;

/// The name of a packet for [`Watch::packets`].
fn address(meta: &Meta) -> usize {
    std::ptr::from_ref(meta).addr()
}

impl ChainRun<'_, '_> {
    /// Notes what a function has decided about watched packets. `events`: the packets that do not pass.
    #[cold]
    pub(in crate::runner) fn note_visits(&mut self, function: &FunctionNode, set: Set, events: Set) {
        let number = self.active.states.get(usize::from(function.instance)).copied();
        let state = number.and_then(|number| self.state.states.get(number)?.as_ref());
        let Some(name) = state.map(|state| state.instance.name_arc()) else { return };
        let Some(watch) = self.state.watch.as_deref_mut() else { return };
        for i in set.iter() {
            let Some(packet) = self.packets.get(i) else { break };
            let packet_address = address(packet.meta);
            if !watch.packets.contains(&packet_address) {
                continue;
            }
            let verdict = if events.contains(i) { self.function_verdicts[i] } else { Verdict::Pass };
            let head = packet.head.to_vec();
            watch.visits.push(FunctionVisit {
                packet: packet_address,
                function: name.clone(),
                verdict,
                head,
            });
        }
    }
}
