//! What the daemon shows of network functions and service chains.

use mmb_lang::Match;
use mmb_nf::{HEADER_BYTES, Instance, Program, SessionKey, StageCounters};

use crate::api::*;
use crate::config::{Chains, Config};
use crate::control::Control;

impl Control {
    /// `show chains`.
    pub fn chains(&self) -> ChainList {
        let config = self.present().config;
        let (chains, program) = (config.chains(), config.chains().program());
        let costs = self.costs(program);
        let stands = |cost: &CostEntry| chains.with(&cost.name).next().is_some();
        ChainList {
            chains: chains.chains().iter().map(|chain| chain_entry(&config, chain)).collect(),
            scratchpad: scratchpad(&config),
            functions: costs.into_iter().filter(stands).collect(),
        }
    }

    /// `show functions`.
    pub fn functions(&self) -> FunctionList {
        let config = self.present().config;
        let (chains, program) = (config.chains(), config.chains().program());
        let costs = self.costs(program);
        let functions = program.instances().iter().zip(costs);
        let types = config.platform().functions.types();
        FunctionList {
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

    /// What the instances of a program have done, in their order.
    pub(crate) fn costs(&self, program: &Program) -> Vec<CostEntry> {
        let mut sums = vec![StageCounters::default(); program.instances().len()];
        for (stage, counts) in self.engine().stage_counters().into_iter().enumerate() {
            let sum = program.stage_instance(stage).and_then(|instance| sums.get_mut(instance));
            if let Some(sum) = sum {
                sum.packets += counts.packets;
                sum.drops += counts.drops;
                sum.refused += counts.refused;
                sum.ticks += counts.ticks;
            }
        }
        let entry = |(instance, sum): (&std::sync::Arc<Instance>, StageCounters)| CostEntry {
            name: instance.name().to_owned(),
            packets: sum.packets,
            drops: sum.drops,
            refused: sum.refused,
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
    entry.takes = text(program.class(id));
    entry.translates = program.translates(id);
    let is_flow = |&&instance: &&usize| program.instances().get(instance).is_some_and(|i| i.kind() == "flow");
    let way = |way: mmb_nf::PathView| WayEntry {
        functions: way.instances.iter().map(|&instance| name(instance)).collect(),
        behind: way.instances.iter().skip_while(|instance| !is_flow(instance)).skip(1).count() as u64,
        bytes: way.bytes as u64,
        used: way.used as u64,
        drops: way.drops,
    };
    entry.ways = program.paths(id).into_iter().map(way).collect();
    entry.bytes = entry.ways.iter().map(|way| way.bytes).max().unwrap_or(0);
    entry
}

fn scratchpad(config: &Config) -> ScratchpadEntry {
    let program = config.chains().program();
    let place = |place: mmb_nf::ScratchpadView| PlaceEntry {
        function: program.instances().get(place.instance).map_or("?", |i| i.name()).to_owned(),
        offset: place.offset as u64,
        bytes: place.bytes as u64,
    };
    ScratchpadEntry {
        bytes: program.bytes() as u64,
        limit: config.platform().scratchpad as u64,
        header: HEADER_BYTES as u64,
        places: program.scratchpads().into_iter().map(place).collect(),
    }
}

fn function_entry(chains: &Chains, instance: &Instance, cost: CostEntry) -> FunctionEntry {
    FunctionEntry {
        type_: instance.kind().to_owned(),
        arguments: instance.args().iter().map(|arg| arg.to_string()).collect(),
        chains: chains.with(instance.name()).map(|chain| chain.name.to_string()).collect(),
        takes: text(instance.class()),
        key: match instance.properties().key {
            SessionKey::Session => "session",
            SessionKey::Source => "source",
            SessionKey::Destination => "destination",
            SessionKey::Pair => "pair",
        }
        .to_owned(),
        bytes: instance.bytes() as u64,
        cost,
        report: instance.report().into_iter().collect(),
    }
}

/// Matches as one would write them.
fn text(matches: &[Match]) -> String {
    matches.iter().map(Match::to_string).collect::<Vec<_>>().join(" ")
}
