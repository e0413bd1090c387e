//! The cost of service chains: TSC ticks of each function, and memory.

use mmb_flow::Table;
use mmb_nf::{Program, StageCounters};
use serde::Serialize;

use super::measured::Measured;
use super::report::BenchReport;

/// The cost of one function at one position of one chain.
#[derive(Clone, Debug, Serialize)]
pub struct StageCost {
    /// The instance's name.
    pub function: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Packets that it processed.
    pub packets: u64,
    /// Packets that it dropped, with their sessions or without.
    pub drops: u64,
    /// TSC ticks per packet.
    pub ticks_per_packet: f64,
}

/// The cost of all chains.
#[derive(Clone, Debug, Serialize)]
pub struct ChainCost {
    /// TSC ticks per packet to find the session and to go through its chain.
    pub ticks_per_packet: f64,
    /// The cost of each function.
    pub functions: Vec<StageCost>,
    /// Bytes of a session's scratchpad that chains use, its header included.
    pub scratchpad_bytes: usize,
    /// Bytes of a session: keys, counters, state, timer and scratchpad, without the index.
    pub session_bytes: usize,
}

/// Subtracts an earlier reading.
pub(super) fn subtract(now: &mut [StageCounters], before: &[StageCounters]) {
    for (now, then) in now.iter_mut().zip(before) {
        now.packets -= then.packets;
        now.drops -= then.drops;
        now.refused -= then.refused;
        now.consumed -= then.consumed;
        now.held -= then.held;
        now.released -= then.released;
        now.ticks -= then.ticks;
        now.vectors -= then.vectors;
    }
}

/// The cost of a program's chains, from all workers' readings; `None` without chains.
pub(super) fn cost(program: &Program, measured: &[Measured], report: &BenchReport) -> Option<ChainCost> {
    program.chains().next()?;
    let functions = program.stages().enumerate().filter_map(|(at, stage)| {
        let instance = program.instances().get(stage.instance)?;
        let counts = measured.iter().filter_map(|measured| measured.reading.stages.get(at));
        let sum = |f: fn(&StageCounters) -> u64| counts.clone().map(f).sum::<u64>();
        let packets = sum(|counts| counts.packets);
        Some(StageCost {
            function: instance.name().to_string(),
            kind: instance.kind().to_string(),
            packets,
            drops: sum(|counts| counts.drops + counts.refused),
            ticks_per_packet: sum(|counts| counts.ticks) as f64 / packets.max(1) as f64,
        })
    });
    let bytes = program.bytes();
    Some(ChainCost {
        ticks_per_packet: report.ticks(|name| name == "chain" || name.starts_with("flow-")),
        functions: functions.collect(),
        scratchpad_bytes: bytes,
        session_bytes: Table::SESSION_BYTES + bytes,
    })
}
