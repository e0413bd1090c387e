//! `show chains` and `show functions`.

use std::sync::Arc;

use mmb_lang::Match;
use mmb_nf::{CounterKind, HEADER_BYTES, Instance, Program, SessionKey, StageCounters};

use crate::api::*;
use crate::config::{Chains, Config};
use crate::transaction::Control;

impl Control {
    /// `show chains`.
    pub fn chains(&self) -> ChainList {
        let config = self.state().config;
        let (chains, program) = (config.chains(), config.chains().program());
        let costs = self.costs(program);
        let is_used = |cost: &CostEntry| chains.chains_of(&cost.name).next().is_some();
        ChainList {
            chains: chains.chains().iter().map(|chain| chain_entry(&config, chain)).collect(),
            scratchpad: scratchpad(&config),
            functions: costs.into_iter().filter(is_used).collect(),
        }
    }

    /// `show functions`.
    pub fn functions(&self) -> FunctionList {
        let config = self.state().config;
        let (chains, program) = (config.chains(), config.chains().program());
        let costs = self.costs(program);
        let functions = program.instances().iter().zip(costs);
        let types = config.platform().functions.types();
        FunctionList {
            domains: chains.domains().iter().map(|domain| domain_entry(chains, domain)).collect(),
            functions: functions.map(|(instance, cost)| function_entry(chains, instance, cost)).collect(),
            types: types
                .into_iter()
                .map(|kind| TypeEntry {
                    name: kind.name.to_owned(),
                    usage: kind.usage.to_owned(),
                    help: kind.help.to_owned(),
                    bytes: kind.bytes as u64,
                })
                .collect(),
        }
    }

    /// Counters of the instances of a program, in their order.
    fn costs(&self, program: &Program) -> Vec<CostEntry> {
        let mut sums = vec![StageCounters::default(); program.instances().len()];
        for (stage, counts) in self.engine().stage_counters().into_iter().enumerate() {
            let sum = program.stage_instance(stage).and_then(|instance| sums.get_mut(instance));
            if let Some(sum) = sum {
                sum.packets += counts.packets;
                sum.drops += counts.drops;
                sum.refused += counts.refused;
                sum.consumed += counts.consumed;
                sum.held += counts.held;
                sum.released += counts.released;
                sum.ticks += counts.ticks;
            }
        }
        let entry = |(instance, sum): (&Arc<Instance>, StageCounters)| CostEntry {
            name: instance.name().to_owned(),
            packets: sum.packets,
            drops: sum.drops,
            refused: sum.refused,
            consumed: sum.consumed,
            held: sum.held,
            released: sum.released,
            ticks: sum.ticks,
            ticks_per_packet: if sum.packets == 0 { 0.0 } else { sum.ticks as f64 / sum.packets as f64 },
        };
        program.instances().iter().zip(sums).map(entry).collect()
    }
}

fn chain_entry(config: &Config, chain: &mmb_lang::Chain) -> ChainEntry {
    let program = config.chains().program();
    let name = |instance: usize| program.instances().get(instance).map_or("?", |i| i.name()).to_owned();
    let rules = config.policy().chains().filter(|(_, name)| **name == *chain.name.text);
    let mut entry = ChainEntry {
        name: chain.name.to_string(),
        body: chain.body.to_string(),
        rules: rules.map(|(index, _)| index).collect(),
        ..ChainEntry::default()
    };
    let Some(id) = program.chain(&chain.name) else { return entry };
    entry.traffic = text(program.class(id));
    entry.translates = program.translates(id);
    let is_flow = |&&instance: &&usize| program.instances().get(instance).is_some_and(|i| i.kind() == "flow");
    let path = |path: mmb_nf::PathView| PathEntry {
        functions: path.instances.iter().map(|&instance| name(instance)).collect(),
        after_flow: path.instances.iter().skip_while(|instance| !is_flow(instance)).skip(1).count() as u64,
        bytes: path.bytes as u64,
        used: path.used as u64,
        drops: path.drops,
    };
    entry.paths = program.paths(id).into_iter().map(path).collect();
    entry.bytes = entry.paths.iter().map(|path| path.bytes).max().unwrap_or(0);
    entry
}

fn scratchpad(config: &Config) -> ScratchpadEntry {
    let program = config.chains().program();
    let region = |region: mmb_nf::ScratchpadView| RegionEntry {
        function: program.instances().get(region.instance).map_or("?", |i| i.name()).to_owned(),
        offset: region.offset as u64,
        bytes: region.bytes as u64,
    };
    ScratchpadEntry {
        bytes: program.bytes() as u64,
        limit: config.platform().scratchpad as u64,
        header: HEADER_BYTES as u64,
        regions: program.scratchpads().into_iter().map(region).collect(),
    }
}

fn function_entry(chains: &Chains, instance: &Instance, cost: CostEntry) -> FunctionEntry {
    FunctionEntry {
        type_: instance.kind().to_owned(),
        arguments: instance.args().iter().map(|arg| arg.to_string()).collect(),
        chains: chains.chains_of(instance.name()).map(|chain| chain.name.to_string()).collect(),
        traffic: text(instance.class()),
        key: match instance.properties().key {
            SessionKey::Session => "session",
            SessionKey::Source => "source",
            SessionKey::Destination => "destination",
            SessionKey::Pair => "pair",
        }
        .to_owned(),
        bytes: instance.bytes() as u64,
        cost,
        domain: instance.domain().map(|domain| domain.name.to_string()).unwrap_or_default(),
        mode: instance.process_mode().map(|mode| mode.word().to_owned()).unwrap_or_default(),
        processor: instance.process_cpu(),
        report: instance.report().into_iter().collect(),
        stream: stream_counts(instance),
    }
}

/// Returns the counters of a stream context.
fn stream_counts(instance: &Instance) -> Option<StreamCounts> {
    let counters = instance.stream_counters();
    let of = |kind: CounterKind| {
        let counters = counters.iter().filter(|(counter, _)| counter.kind == kind);
        counters.map(|(counter, count)| (counter.name.to_owned(), *count)).collect()
    };
    (!counters.is_empty()).then(|| StreamCounts {
        bytes: of(CounterKind::Bytes),
        events: of(CounterKind::Event),
        refused: of(CounterKind::Refusal),
    })
}

fn domain_entry(chains: &Chains, domain: &mmb_lang::Domain) -> DomainEntry {
    let is_in = |nf: &&mmb_lang::NfInstance| {
        nf.process.as_ref().is_some_and(|place| place.domain.text == domain.name.text)
    };
    DomainEntry {
        name: domain.name.to_string(),
        kind: domain.kind.word().to_owned(),
        buffers: domain.buffers.into(),
        on_failure: domain.on_failure.word().to_owned(),
        functions: chains.functions().iter().filter(is_in).map(|nf| nf.name.to_string()).collect(),
    }
}

/// Matches as text of the language.
fn text(matches: &[Match]) -> String {
    matches.iter().map(Match::to_string).collect::<Vec<_>>().join(" ")
}
