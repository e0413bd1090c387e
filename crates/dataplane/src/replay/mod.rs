//! `mmb replay`: a capture through the very same graph, with no device, no privilege and no huge page.
//!
//! Theory of operation. The graph runs between a source that reads the capture and a sink that collects what would be
//! sent. Within one walk packets may reach the sink by different ways and so out of order; the source numbers
//! them, and after each walk the sink's collection is put back in order and written with the time stamps of
//! the capture. Frames longer than a buffer are chained from several, as drivers do it.

pub mod capture;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mmb_dpdk::{
    Eal, EalConfig, Emit, Graph, HugePages, Mempool, NodeDef, NodeKind, Slots, Vector, register_thread,
};
use mmb_packet::DropReason;
use serde::Serialize;

use crate::config::{Forwarding, PortId};
use crate::counters::{RuleCounters, RuleTable};
use crate::engine::{drops, unedited};
use crate::nodes::{self, Ends};
use crate::pools::Pools;
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::worker::Worker;
use capture::{End, Frame, Reader, Writer};

/// Packets in one walk.
const VECTOR: usize = nodes::VECTOR;
const MEMORY_MB: u32 = 64;
/// Longest frame that is replayed; longer ones are an oddity of captures with offloads.
const MAX_FRAME: usize = 262_144;

/// What to replay through.
pub struct ReplayConfig {
    /// Policy and wires; no device is opened, port ids are just numbers.
    pub forwarding: Forwarding,
    /// The port by which the capture's packets come in.
    pub in_port: PortId,
}

/// What became of the packets.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// Packets read.
    pub packets: u64,
    /// Packets that left.
    pub forwarded: u64,
    /// Packets that did not.
    pub dropped: u64,
    /// Dropped packets by reason; reasons that did not occur are left out.
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets that went on as they came because their edits failed, by reason; reasons that did not occur are left out.
    pub unedited: BTreeMap<&'static str, u64>,
    /// Packets passed over: their link is not Ethernet, or they are empty or longer than 256 KiB.
    pub foreign: u64,
    /// Why the capture could not be read to its end; what was readable was processed.
    pub damage: Option<String>,
    /// What the rule in each slot matched.
    #[serde(skip)]
    pub rules: Vec<(u32, RuleCounters)>,
}

/// Why a replay did not run; displays as one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReplayError(String);

/// Runs a replay; starts DPDK if it does not run yet.
///
/// # Errors
/// One sentence: a file that cannot be read or written, or is no capture.
pub fn run(config: &ReplayConfig, input: &Path, output: Option<&Path>) -> Result<ReplayReport, ReplayError> {
    let failed = |e: &dyn std::fmt::Display| ReplayError(e.to_string());
    let reader = Reader::open(input).map_err(|e| failed(&e))?;
    let mut writer = match output {
        Some(path) => Some(
            Writer::create(path).map_err(|e| ReplayError(format!("cannot write {}: {e}", path.display())))?,
        ),
        None => None,
    };
    environment().map_err(|e| failed(&e))?;
    let pools = Pools::create(MEMORY_MB).map_err(|e| failed(&e))?;
    let slots = config.forwarding.policy.slots();
    let mut table = RuleTable::default();
    table.grow(slots);
    let snapshot = Snapshot::new(1, config.forwarding.clone(), |_| None, vec![table.clone()]);
    let shared = Arc::new(Shared::detached(snapshot, 1).map_err(|e| failed(&e))?);
    let _registration = register_thread().map_err(|e| failed(&e))?;
    let mut worker = Box::new(Worker::new(0, shared.clone(), 1));
    worker.ends = Some(Box::new(Tape::new(reader, &pools, config.in_port)));
    let mut graph = Graph::build("replay", &nodes::between(ends()), worker).map_err(|e| failed(&e))?;
    let (packets, forwarded, tape) = walk_all(&mut graph, &mut writer)?;
    if let Some(writer) = writer {
        writer.finish().map_err(|e| failed(&e))?;
    }
    Ok(ReplayReport {
        packets,
        forwarded,
        dropped: packets - forwarded,
        drops: occurred(drops(&shared)),
        unedited: occurred(unedited(&shared)),
        foreign: tape.0,
        damage: tape.1,
        rules: (0..slots as u32).map(|slot| (slot, table.get(slot))).filter(|(_, c)| c.packets > 0).collect(),
    })
}

/// The reasons that occurred, by name.
fn occurred(counts: Vec<(DropReason, u64)>) -> BTreeMap<&'static str, u64> {
    counts.into_iter().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.name(), n)).collect()
}

fn environment() -> Result<Eal, mmb_dpdk::Error> {
    let config =
        EalConfig { memory_mb: MEMORY_MB, huge: HugePages::Never, privileged: false, ..EalConfig::default() };
    Eal::get().map_or_else(|| Eal::init(&config), Ok)
}

type Rest = (u64, Option<String>);

/// Walks until the capture ends, writing out after each walk.
fn walk_all(graph: &mut Graph<Worker>, writer: &mut Option<Writer>) -> Result<(u64, u64, Rest), ReplayError> {
    let (mut packets, mut forwarded) = (0, 0);
    loop {
        graph.state_mut().adopt();
        graph.walk();
        let Some(tape) = tape(graph.state_mut()) else {
            return Err(ReplayError("the replay lost its capture".into()));
        };
        packets += tape.times.len() as u64;
        tape.sent.sort_by_key(|(number, _)| *number);
        for (number, data) in tape.sent.drain(..) {
            forwarded += 1;
            let Some(&(time_ns, missing)) = tape.times.get(number as usize) else { continue };
            if let Some(writer) = writer {
                let frame = Frame { time_ns, data, missing };
                writer.write(&frame).map_err(|e| ReplayError(format!("cannot write the capture: {e}")))?;
            }
        }
        tape.times.clear();
        if let Some(end) = &tape.end {
            let damage = match end {
                End::Clean => None,
                End::Damaged(why) => Some(why.clone()),
            };
            return Ok((packets, forwarded, (tape.reader.foreign, damage)));
        }
    }
}

/// The capture on its way through the graph.
struct Tape {
    reader: Reader,
    pool: Mempool,
    in_port: u16,
    /// Time stamp and missing bytes of this walk's packets, by number.
    times: Vec<(u64, u32)>,
    /// What reached the sink in this walk.
    sent: Vec<(u64, Vec<u8>)>,
    end: Option<End>,
}

impl Tape {
    fn new(reader: Reader, pools: &Pools, in_port: PortId) -> Tape {
        Tape {
            reader,
            pool: pools.ordinary(),
            in_port: in_port.0,
            times: Vec::with_capacity(VECTOR),
            sent: Vec::with_capacity(VECTOR),
            end: None,
        }
    }

    fn push(&mut self, frame: &Frame, slots: &mut Slots<'_>) {
        let Some(mut packet) = self.pool.packet(&frame.data) else {
            self.end = Some(End::Damaged("the replay ran out of packet buffers".into()));
            return;
        };
        packet.set_port(self.in_port);
        packet.set_timestamp(self.times.len() as u64);
        self.times.push((frame.time_ns, frame.missing));
        // The caller made sure that there is room.
        let _ = slots.push(packet);
    }
}

fn tape(worker: &mut Worker) -> Option<&mut Tape> {
    worker.ends.as_mut().and_then(|e| e.downcast_mut::<Tape>())
}

fn ends() -> Ends {
    Ends {
        source: NodeDef { name: "replay-rx", kind: NodeKind::Source(emit), next: &["l2-input"] },
        sink: NodeDef { name: "replay-tx", kind: NodeKind::Inner(collect), next: &[] },
    }
}

fn emit(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let Some(tape) = tape(worker) else { return 0 };
    emit.emit(0, VECTOR, |slots| {
        while slots.room() > 0 && tape.end.is_none() {
            match tape.reader.next_frame() {
                Ok(frame) if frame.data.is_empty() || frame.data.len() > MAX_FRAME => {
                    tape.reader.foreign += 1
                }
                Ok(frame) => tape.push(&frame, slots),
                Err(end) => tape.end = Some(end),
            }
        }
    })
}

fn collect(worker: &mut Worker, mut vector: Vector<'_>) {
    if let Some(tape) = tape(worker) {
        tape.sent
            .extend(vector.packets().iter().map(|packet| (packet.timestamp().unwrap_or(0), packet.to_vec())));
    }
    vector.free();
}
