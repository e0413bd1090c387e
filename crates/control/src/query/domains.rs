//! `show domains`.

use mmb_nf::Instance;
use mmb_nf::process::ProcessStatus;

use crate::api::{DomainList, DomainStatus, ProcessEntry};
use crate::transaction::Control;

impl Control {
    /// `show domains`.
    pub fn domains(&self) -> DomainList {
        let config = self.state().config;
        let (chains, program) = (config.chains(), config.chains().program());
        let entry = |domain: &mmb_lang::Domain| {
            let is_in = |instance: &Instance| {
                instance.domain().is_some_and(|known| known.name.text == domain.name.text)
            };
            let instances = program.instances().iter().filter(|instance| is_in(instance));
            let functions: Vec<ProcessEntry> = instances.map(|instance| process_entry(instance)).collect();
            DomainStatus {
                name: domain.name.to_string(),
                kind: domain.kind.word().to_owned(),
                buffers: domain.buffers.into(),
                used: functions.iter().map(|function| function.buffers).sum(),
                on_failure: domain.on_failure.word().to_owned(),
                functions,
            }
        };
        DomainList { domains: chains.domains().iter().map(entry).collect() }
    }
}

fn process_entry(instance: &Instance) -> ProcessEntry {
    // Without a process there is nothing to count.
    let status = instance.process_status().unwrap_or_default();
    let ProcessStatus { process, restarts, last_failure, cpu, ring_levels, .. } = status;
    ProcessEntry {
        function: instance.name().to_owned(),
        mode: instance.process_mode().unwrap_or_default().word().to_owned(),
        processor: instance.process_cpu(),
        process,
        restarts: restarts.into(),
        cpu_seconds: cpu.as_secs_f64(),
        descriptors: status.descriptors,
        in_place: status.in_place,
        wakeups: status.wakeups,
        waiting: ring_levels.0,
        returned: ring_levels.1,
        slots: status.slots,
        credits: status.credits,
        buffers: status.buffers,
        full: status.full,
        lost: status.lost,
        refused: status.refused,
        last_failure,
    }
}
