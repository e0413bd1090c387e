//! `mmb replay`: a capture through the very same graph, with no device, no privilege and no huge page.
//!
//! Theory of operation. The graph runs between a source that reads the capture and a sink that collects what would be
//! sent. Within one walk packets may reach the sink by different ways and so out of order; the source numbers
//! them, and after each walk the sink's collection is put back in order and written with the time stamps of
//! the capture. Frames longer than a buffer are chained from several, as drivers do it.
//!
//! Where rules need sessions, the capture's time is the clock of the worker: a walk ends before a packet of another
//! millisecond. It ends behind a fragment, too, so that those that waited for it are known by their numbers, which are
//! lower than those of the walk: they go out behind the packet that they waited for, and with its time.
//!
//! A frame that a function of a chain makes has the number of its packet, and goes out in front of it. One that is made while no
//! packet is under way goes out behind those of the walk.

pub mod capture;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mmb_dpdk::{
    Eal, EalConfig, Emit, Graph, HugePages, Mempool, NodeDef, NodeKind, Slots, Vector, register_thread,
};
use mmb_packet::{DropReason, Meta, flags, parse};
use serde::Serialize;

use crate::engine::config::{Forwarding, PortId};
use crate::engine::control::{Room, drops, sessions, unedited};
use crate::engine::counters::{RuleCounters, RuleTable};
use crate::engine::pools::Pools;
use crate::engine::shared::Shared;
use crate::engine::snapshot::Snapshot;
use crate::engine::worker::{Clock, Worker};
use crate::graph::{self, Ends};
use capture::{End, Frame, Reader, Writer};

/// Packets in one walk.
const VECTOR: usize = crate::engine::vector::VECTOR;
const MEMORY_MB: u32 = 64;
/// Longest frame that is replayed; longer ones are an oddity of captures with offloads.
const MAX_FRAME: usize = 262_144;

/// Most steps in which time goes by behind the end of a capture.
const PATIENCE: usize = 8;
/// Of everything random: a replay does the same each time.
const SEED: u64 = 1;

/// In the place of its packet's number: a frame that was made for no packet.
const NOBODYS: u64 = u64::MAX;

/// What to replay through.
pub struct ReplayConfig {
    /// Policy and wires; no device is opened, port ids are just numbers.
    pub forwarding: Forwarding,
    /// The port by which the capture's packets come in.
    pub in_port: PortId,
    /// Sessions that there is room for.
    pub sessions: usize,
    /// Bytes of each session for functions of chains.
    pub scratchpad: usize,
}

/// What became of the packets.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// Packets read.
    pub packets: u64,
    /// Packets that left.
    pub forwarded: u64,
    /// Frames that functions of chains made, and that left besides.
    pub emitted: u64,
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
    let room = Room { sessions: config.sessions, scratchpad: config.scratchpad };
    let sessions = sessions(0, 1, room, SEED).map_err(|e| failed(&e))?;
    let mut worker = Box::new(Worker::new(0, shared.clone(), SEED, sessions));
    worker.pool = Some(pools.ordinary());
    worker.ends = Some(Box::new(Tape::new(reader, &pools, config.in_port)));
    let mut graph = Graph::build("replay", &graph::between(ends(), false), worker).map_err(|e| failed(&e))?;
    let (packets, rest) = walk_all(&mut graph, &mut writer)?;
    if let Some(writer) = writer {
        writer.finish().map_err(|e| failed(&e))?;
    }
    let counters = &shared.workers[0].counters;
    let drops = occurred(drops(&shared));
    // A packet that is answered is dropped, though something is sent.
    let dropped = drops.values().sum::<u64>() - counters.unsent.get();
    Ok(ReplayReport {
        packets,
        forwarded: packets - dropped,
        emitted: counters.emitted.get(),
        dropped,
        drops,
        unedited: occurred(unedited(&shared)),
        foreign: rest.0,
        damage: rest.1,
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
fn walk_all(graph: &mut Graph<Worker>, writer: &mut Option<Writer>) -> Result<(u64, Rest), ReplayError> {
    let mut packets = 0;
    let lost = || ReplayError("the replay lost its capture".into());
    loop {
        let (flows, holds) = (graph.state().snapshot.flows, graph.state().holds());
        let now = tape(graph.state_mut()).ok_or_else(lost)?.start_walk(flows, holds);
        graph.state_mut().clock = Clock::Stands(now);
        graph.state_mut().begin();
        graph.walk();
        // What sessions have made functions say as they began goes out in the next walk.
        let owes = !graph.state_mut().sessions.emissions().is_empty();
        let tape = tape(graph.state_mut()).ok_or_else(lost)?;
        packets += (tape.times.len() - tape.first) as u64;
        tape.write(writer).map_err(|e| ReplayError(format!("cannot write the capture: {e}")))?;
        if let Some(end) = tape.end.as_ref().filter(|_| !owes) {
            let damage = match end {
                End::Clean => None,
                End::Damaged(why) => Some(why.clone()),
            };
            let rest = (tape.reader.foreign, damage);
            end_of_time(graph.state_mut());
            return Ok((packets, rest));
        }
    }
}

/// Lets the time go by in which something may come that fragments wait for, and gives the rules their last counts.
fn end_of_time(worker: &mut Worker) {
    for _ in 0..PATIENCE {
        if !worker.holds() {
            break;
        }
        worker.clock = Clock::Stands(worker.now.wrapping_add(worker.snapshot.settings.timeouts.fragment));
        worker.begin();
    }
    worker.sessions.flush(&worker.snapshot.of(worker.id));
}

/// The capture on its way through the graph.
struct Tape {
    reader: Reader,
    pool: Mempool,
    in_port: u16,
    /// The frame that comes next.
    next: Option<Frame>,
    /// Whether time matters, and with it which packets share a walk.
    flows: bool,
    /// When the capture begins, in nanoseconds.
    origin: Option<u64>,
    /// The time of this walk, in milliseconds since then.
    now: u32,
    /// Time stamp and missing bytes of packets, by number: of this walk's, and before them of those in earlier ones as
    /// long as some of them are on their way.
    times: Vec<(u64, u32)>,
    /// The time stamp of the last packet that came in.
    latest: u64,
    /// Number of this walk's first packet.
    first: usize,
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
            next: None,
            flows: false,
            origin: None,
            now: 0,
            times: Vec::with_capacity(VECTOR),
            latest: 0,
            first: 0,
            sent: Vec::with_capacity(VECTOR),
            end: None,
        }
    }

    /// Gets ready for another walk and answers its time. `holds`: packets of earlier walks are on their way.
    fn start_walk(&mut self, flows: bool, holds: bool) -> u32 {
        self.flows = flows;
        if !holds {
            self.times.clear();
        }
        self.first = self.times.len();
        self.read_ahead();
        if let Some(frame) = &self.next {
            let origin = *self.origin.get_or_insert(frame.time_ns);
            // Captures of several queues step back a little here and there; time does not.
            let time = (frame.time_ns.saturating_sub(origin) / 1_000_000) as u32;
            if (time.wrapping_sub(self.now) as i32) > 0 {
                self.now = time;
            }
        }
        self.now
    }

    /// Sees to it that `next` holds a frame, unless there is none left.
    fn read_ahead(&mut self) {
        while self.next.is_none() && self.end.is_none() {
            match self.reader.next_frame() {
                Ok(frame) if frame.data.is_empty() || frame.data.len() > MAX_FRAME => {
                    self.reader.foreign += 1
                }
                Ok(frame) => self.next = Some(frame),
                Err(end) => self.end = Some(end),
            }
        }
    }

    /// Whether a frame belongs to this walk, as far as time goes.
    fn is_now(&self, frame: &Frame) -> bool {
        let origin = self.origin.unwrap_or(frame.time_ns);
        let time = (frame.time_ns.saturating_sub(origin) / 1_000_000) as u32;
        !self.flows || (time.wrapping_sub(self.now) as i32) <= 0
    }

    /// Brings in the next frame; false if the walk ends before or behind it.
    fn play(&mut self, slots: &mut Slots<'_>) -> bool {
        self.read_ahead();
        let Some(frame) = self.next.take() else { return false };
        if !self.is_now(&frame) {
            self.next = Some(frame);
            return false;
        }
        self.push(&frame, slots) && !(self.flows && is_fragment(&frame.data))
    }

    fn push(&mut self, frame: &Frame, slots: &mut Slots<'_>) -> bool {
        let Some(mut packet) = self.pool.alloc_from(&frame.data) else {
            self.end = Some(End::Damaged("the replay ran out of packet buffers".into()));
            return false;
        };
        packet.set_port(self.in_port);
        packet.set_timestamp(self.times.len() as u64);
        self.times.push((frame.time_ns, frame.missing));
        self.latest = frame.time_ns;
        // The caller made sure that there is room.
        slots.push(packet).is_ok()
    }

    /// Writes what was sent, in order: those that waited behind the others.
    fn write(&mut self, writer: &mut Option<Writer>) -> std::io::Result<()> {
        let first = self.first as u64;
        self.sent.sort_by_key(|(number, _)| (*number < first, *number));
        for (number, data) in self.sent.drain(..) {
            let known = self.times.get(number as usize).filter(|_| number >= first);
            let missing = self.times.get(number as usize).map_or(0, |(_, missing)| *missing);
            let time_ns = known.map_or(self.latest, |(time_ns, _)| *time_ns);
            if let Some(writer) = writer {
                writer.write(&Frame { time_ns, data, missing })?;
            }
        }
        Ok(())
    }
}

fn is_fragment(frame: &[u8]) -> bool {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).is_ok() && meta.flags & flags::FRAGMENT != 0
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
    emit.emit(0, VECTOR, |slots| while slots.room() > 0 && tape.play(slots) {})
}

fn collect(worker: &mut Worker, mut vector: Vector<'_>) {
    if let Some(tape) = tape(worker) {
        tape.sent.extend(
            vector.packets().iter().map(|packet| (packet.timestamp().unwrap_or(NOBODYS), packet.to_vec())),
        );
    }
    vector.free();
}
