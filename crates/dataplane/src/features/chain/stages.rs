//! Counters of service chains.

use std::sync::Arc;

use mmb_nf::StageCounters;
use mmb_session::Environment;

use crate::engine::control::Engine;
use crate::engine::thread::mailbox::run_on_worker;

impl Engine {
    /// Counters of the stages of the published chains, by stage number. Ticks are TSC ticks
    /// ([`Engine::tsc_hz`]).
    pub fn stage_counters(&self) -> Vec<StageCounters> {
        let program = self.shared().current().chains.clone();
        let mut sums = Vec::new();
        for worker in &self.shared().workers {
            let result = run_on_worker(worker, |sessions, host, _| {
                (host.chains().clone(), sessions.chain_counters().to_vec())
            });
            // A worker that has taken over another program counts other stages.
            if let Some((of, counts)) = result
                && Arc::ptr_eq(&of, &program)
            {
                sums.resize(sums.len().max(counts.len()), StageCounters::default());
                sums.iter_mut().zip(&counts).for_each(|(sum, count)| add(sum, count));
            }
        }
        sums
    }

    /// Frames of functions of chains that were sent.
    pub fn emitted(&self) -> u64 {
        self.shared().workers.iter().map(|worker| worker.counters.emitted.get()).sum()
    }

    /// TSC ticks per second.
    pub fn tsc_hz(&self) -> u64 {
        self.eal().tsc_hz()
    }
}

fn add(sum: &mut StageCounters, one: &StageCounters) {
    sum.packets += one.packets;
    sum.drops += one.drops;
    sum.refused += one.refused;
    sum.held += one.held;
    sum.released += one.released;
    sum.ticks += one.ticks;
    sum.vectors += one.vectors;
}
