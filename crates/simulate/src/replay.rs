//! `mmb replay`: a capture through the daemon's graph, without devices, privileges or huge pages.
//!
//! Theory of operation. The graph runs between a source that reads the capture and a sink that collects the
//! packets that leave. Within one walk packets reach the sink by different paths and thus out of order. The
//! source therefore numbers them. After each walk the collected packets are sorted and written with the time
//! stamps of the capture. Frames longer than a buffer are chained from several, as drivers do.
//!
//! With rules that need sessions, the capture's time is the worker's clock: a walk ends before a packet of
//! another millisecond. It also ends behind a fragment. Fragments that waited for it then have lower numbers
//! than the packets of the walk: they leave behind the packet that they waited for, with its time.
//!
//! Packets that a function of a chain has released leave in a walk of their own, in which no packet of the
//! capture arrives. They are written in the order in which they leave, with the time of the packet that was
//! read last.
//!
//! A frame that a function of a chain makes has the number of its packet and leaves before it. A frame made
//! between packets leaves behind those of the walk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mmb_dataplane::detached::{DetachedConfig, DetachedEngine, DetachedWorker, PacketIo, PacketMemory};
use mmb_dataplane::{EngineError, Forwarding, PortId, RuleCounters};
use mmb_dpdk::{HugePages, Mempool, Packet, Slots};
use mmb_packet::{DropReason, Meta, PacketFlags, parse};
use serde::Serialize;

use crate::capture::{CaptureError, End, Frame, Reader, Writer};
use crate::harness::{Harness, HarnessError};

const MEMORY_MB: u32 = 64;
/// Maximum frame length in bytes; longer frames only occur in captures with offloads.
const MAX_FRAME: usize = 262_144;
/// Maximum number of timeouts to wait for held packets after the end of a capture.
const MAX_TIMEOUTS: usize = 8;
/// Number of frames that belong to no packet.
const NO_PACKET: u64 = u64::MAX;

/// What to replay through.
pub struct ReplayConfig {
    /// Policy and wires. Port ids are plain numbers; no device is opened.
    pub forwarding: Forwarding,
    /// Port where the capture's packets arrive.
    pub in_port: PortId,
    /// Ports by the names that interfaces have in a pcapng capture, as `mmb capture` writes it. Packets that
    /// came in by such an interface arrive there, and those that left by it are skipped. Empty: all packets
    /// arrive at `in_port`.
    pub interfaces: Vec<(String, PortId)>,
    /// Maximum number of sessions.
    pub sessions: usize,
    /// Bytes of each session for functions of chains.
    pub scratchpad: usize,
}

/// Result of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// Packets read.
    pub packets: u64,
    /// Packets that left.
    pub forwarded: u64,
    /// Other frames that left: ICMP errors, SYN cookies, and what functions of chains made.
    pub emitted: u64,
    /// Packets whose bytes functions of chains have sent in other frames. These count as emitted.
    pub consumed: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Dropped packets by reason; reasons that did not occur are left out.
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets that left unchanged because their edits failed, by reason; reasons that did not occur are left
    /// out.
    pub unedited: BTreeMap<&'static str, u64>,
    /// Packets skipped: their link is not Ethernet, or they are empty or longer than 256 KiB.
    pub foreign: u64,
    /// Packets skipped as they had left by an interface ([`ReplayConfig::interfaces`]).
    pub outbound: u64,
    /// Why the capture could not be read to its end; the readable part was processed.
    pub damage: Option<String>,
    /// Matches of the rule in each slot.
    #[serde(skip)]
    pub rules: Vec<(u32, RuleCounters)>,
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The output cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The output file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The simulation cannot start.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// A worker has no source.
    #[error("the replay's worker has no source")]
    NoSource,
}

impl From<EngineError> for ReplayError {
    fn from(error: EngineError) -> Self {
        ReplayError::Harness(error.into())
    }
}

/// The output file of a replay.
struct Output {
    path: PathBuf,
    writer: Writer,
}

impl Output {
    fn create(path: &Path) -> Result<Output, ReplayError> {
        let failed = |error| ReplayError::Write { path: path.to_owned(), error };
        Ok(Output { path: path.to_owned(), writer: Writer::create(path).map_err(failed)? })
    }
}

/// An engine with one worker that reads a capture.
pub(crate) fn start(
    config: &ReplayConfig,
    reader: Reader,
) -> Result<(DetachedEngine, Harness<CaptureIo>), ReplayError> {
    let memory = PacketMemory::create(MEMORY_MB, HugePages::Never)?;
    let engine_config = DetachedConfig {
        nodes: ["replay-rx", "replay-tx"],
        workers: 1,
        is_connected: false,
        sessions: config.sessions,
        scratchpad: config.scratchpad,
        share_scratchpads: false,
        null_port_frame: None,
    };
    let engine = DetachedEngine::new(&memory, engine_config, config.forwarding.clone(), None)?;
    let mut source = Some(CaptureIo::new(reader, memory.pool(0)?, config));
    let workers = Harness::new(&engine, 0..1, |_| Ok(source.take()))?;
    Ok((engine, workers))
}

/// Runs a replay; starts DPDK if it does not run yet.
///
/// # Errors
/// A file cannot be read or written, or is not a capture; or memory is not available.
pub fn run(config: &ReplayConfig, input: &Path, output: Option<&Path>) -> Result<ReplayReport, ReplayError> {
    let (engine, mut workers) = start(config, Reader::open(input)?)?;
    let mut output = output.map(Output::create).transpose()?;
    let worker = workers.first_mut().ok_or(ReplayError::NoSource)?;
    let Walked { packets, left, foreign, outbound, damage } = walk_all(worker, &mut output)?;
    if let Some(Output { path, writer }) = output {
        writer.finish().map_err(|error| ReplayError::Write { path, error })?;
    }
    let drops = by_name(engine.drops());
    let (_, unsent) = engine.emissions();
    // An unsent frame is a drop, but no packet of the capture.
    let dropped = drops.values().sum::<u64>() - unsent;
    let rules = (0..).zip(worker.reading().rules).filter(|(_, counters)| counters.packets > 0).collect();
    let consumed = engine.consumed();
    let forwarded = packets - dropped - consumed;
    Ok(ReplayReport {
        packets,
        forwarded,
        emitted: left.saturating_sub(forwarded),
        consumed,
        dropped,
        drops,
        unedited: by_name(engine.edit_failures()),
        foreign,
        outbound,
        damage,
        rules,
    })
}

fn by_name(counts: Vec<(DropReason, u64)>) -> BTreeMap<&'static str, u64> {
    counts.into_iter().map(|(reason, n)| (reason.name(), n)).collect()
}

/// The counters of all walks.
struct Walked {
    /// Packets read.
    packets: u64,
    /// Frames that left.
    left: u64,
    /// Packets skipped.
    foreign: u64,
    /// Packets skipped as they left.
    outbound: u64,
    /// Why the capture ended early.
    damage: Option<String>,
}

/// Walks once. Returns how many packets were read.
pub(crate) fn walk(worker: &mut DetachedWorker<CaptureIo>) -> Result<u64, ReplayError> {
    let waiting = Waiting { is_held: worker.has_held_packets(), is_released: worker.has_released() };
    let needs_sessions = worker.needs_sessions();
    let now = worker.io().ok_or(ReplayError::NoSource)?.start_walk(needs_sessions, waiting);
    worker.set_time(now);
    worker.maintain();
    worker.walk();
    let io = worker.io().ok_or(ReplayError::NoSource)?;
    Ok((io.times.len() - io.first) as u64)
}

/// Walks until the capture ends and writes the output after each walk.
fn walk_all(
    worker: &mut DetachedWorker<CaptureIo>,
    output: &mut Option<Output>,
) -> Result<Walked, ReplayError> {
    let (mut packets, mut left) = (0, 0);
    loop {
        packets += walk(worker)?;
        // Frames that functions made at the start of sessions leave in the next walk.
        let has_more = worker.has_emissions() || worker.has_released();
        let io = worker.io().ok_or(ReplayError::NoSource)?;
        left += io.sent.len() as u64;
        io.write(output)?;
        if let Some(end) = io.end.as_ref().filter(|_| !has_more) {
            let damage = match end {
                End::Clean => None,
                End::Damaged(cause) => Some(cause.clone()),
            };
            let (foreign, outbound) = (io.reader.foreign, io.outbound);
            finish(worker);
            return Ok(Walked { packets, left, foreign, outbound, damage });
        }
    }
}

/// Lets held packets time out and completes the rules' counters.
pub(crate) fn finish(worker: &mut DetachedWorker<CaptureIo>) {
    for _ in 0..MAX_TIMEOUTS {
        if !worker.has_held_packets() {
            break;
        }
        worker.set_time(worker.now().wrapping_add(worker.held_timeout()));
        worker.maintain();
        worker.walk();
    }
    worker.flush_counters();
}

/// Packets of earlier walks that have not left.
struct Waiting {
    /// Some are held.
    is_held: bool,
    /// Some are released, and leave in the next walk.
    is_released: bool,
}

/// Source and sink: the capture, and the packets of a walk that leave.
pub(crate) struct CaptureIo {
    reader: Reader,
    pool: Mempool,
    in_port: u16,
    /// A walk has one packet.
    is_single: bool,
    interfaces: Vec<(String, PortId)>,
    /// The next frame, and the port where it arrives.
    next: Option<(Frame, u16)>,
    /// Number of frames that were read, those that are skipped as they left included.
    number: u64,
    /// Number of frames that were skipped as they left.
    outbound: u64,
    /// Whether rules need sessions, so that packets of one walk share a millisecond.
    needs_sessions: bool,
    /// No packet arrives in this walk: released ones leave.
    is_paused: bool,
    /// Start of the capture in nanoseconds.
    origin: Option<u64>,
    /// Time of this walk in milliseconds from the start.
    now: u32,
    /// Time stamp and missing bytes of packets, by number. Packets of earlier walks come first, as long as
    /// some are held.
    times: Vec<(u64, u32)>,
    /// Time stamp of the last packet read.
    latest: u64,
    /// Number of this walk's first packet.
    first: usize,
    /// Packets that left in this walk, by number.
    sent: Vec<(u64, Vec<u8>)>,
    end: Option<End>,
}

impl CaptureIo {
    fn new(reader: Reader, pool: Mempool, config: &ReplayConfig) -> CaptureIo {
        CaptureIo {
            reader,
            pool,
            in_port: config.in_port.0,
            is_single: false,
            interfaces: config.interfaces.clone(),
            next: None,
            number: 0,
            outbound: 0,
            needs_sessions: false,
            is_paused: false,
            origin: None,
            now: 0,
            times: Vec::new(),
            latest: 0,
            first: 0,
            sent: Vec::new(),
            end: None,
        }
    }

    /// Gives each packet a walk of its own.
    pub fn set_single(&mut self) {
        self.is_single = true;
    }

    /// The position in the capture of the packet that the next walk gets, or of the last one, from 1.
    pub fn next_number(&mut self) -> u64 {
        self.read_ahead();
        self.number
    }

    /// Number of packets that were skipped as they left.
    pub fn outbound(&self) -> u64 {
        self.outbound
    }

    /// Time stamp of the last packet read, in nanoseconds since 1970.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// How the capture ends, if it has ended. Discards the packets that have left.
    pub fn take_end(&mut self) -> Option<&End> {
        self.sent.clear();
        self.end.as_ref()
    }

    /// Prepares a walk and returns its time.
    fn start_walk(&mut self, needs_sessions: bool, waiting: Waiting) -> u32 {
        self.needs_sessions = needs_sessions;
        self.is_paused = waiting.is_released;
        if !waiting.is_held {
            self.times.clear();
        }
        self.first = self.times.len();
        if self.is_paused {
            return self.now;
        }
        self.read_ahead();
        if let Some(time_ns) = self.next.as_ref().map(|(frame, _)| frame.time_ns) {
            self.origin.get_or_insert(time_ns);
            // Captures of several queues step back a little; the clock does not.
            let time = self.milliseconds(time_ns);
            if (time.wrapping_sub(self.now) as i32) > 0 {
                self.now = time;
            }
        }
        self.now
    }

    /// Reads the next frame if there is none; skips frames that left, and empty and too long ones.
    fn read_ahead(&mut self) {
        while self.next.is_none() && self.end.is_none() {
            match self.reader.next_frame() {
                Ok(frame) if frame.data.is_empty() || frame.data.len() > MAX_FRAME => {
                    self.reader.foreign += 1;
                }
                Ok(frame) => {
                    self.number += 1;
                    match self.arrival() {
                        Some(port) => self.next = Some((frame, port)),
                        None => self.outbound += 1,
                    }
                }
                Err(end) => self.end = Some(end),
            }
        }
    }

    /// The port where the frame that was read last arrives; `None` if it left by a port.
    fn arrival(&self) -> Option<u16> {
        let Some((name, is_outbound)) = self.reader.interface() else { return Some(self.in_port) };
        match self.interfaces.iter().find(|(known, _)| known == name) {
            Some((_, port)) => (!is_outbound).then_some(port.0),
            None => Some(self.in_port),
        }
    }

    /// A time stamp in milliseconds from the start of the capture.
    fn milliseconds(&self, time_ns: u64) -> u32 {
        let origin = self.origin.unwrap_or(time_ns);
        (time_ns.saturating_sub(origin) / 1_000_000) as u32
    }

    /// Whether a frame belongs to this walk.
    fn is_due(&self, frame: &Frame) -> bool {
        let time = self.milliseconds(frame.time_ns);
        !self.needs_sessions || (time.wrapping_sub(self.now) as i32) <= 0
    }

    /// Brings in the next frame. Returns false if the walk ends before or behind it.
    fn push_next(&mut self, slots: &mut Slots<'_>) -> bool {
        self.read_ahead();
        let Some((frame, port)) = self.next.take() else { return false };
        if !self.is_due(&frame) {
            self.next = Some((frame, port));
            return false;
        }
        let ends = self.is_single || (self.needs_sessions && is_fragment(&frame.data));
        self.push(&frame, port, slots) && !ends
    }

    fn push(&mut self, frame: &Frame, port: u16, slots: &mut Slots<'_>) -> bool {
        let Some(mut packet) = self.pool.alloc_from(&frame.data) else {
            self.end = Some(End::Damaged("the replay ran out of packet buffers".into()));
            return false;
        };
        packet.set_port(port);
        packet.set_timestamp(self.times.len() as u64);
        self.times.push((frame.time_ns, frame.missing));
        self.latest = frame.time_ns;
        // The caller has checked the room.
        slots.push(packet).is_ok()
    }

    /// Writes the packets that left, in order: held fragments behind the others.
    fn write(&mut self, output: &mut Option<Output>) -> Result<(), ReplayError> {
        let first = self.first as u64;
        if !self.is_paused {
            self.sent.sort_by_key(|(number, _)| (*number < first, *number));
        }
        for (number, data) in self.sent.drain(..) {
            let known = self.times.get(number as usize).filter(|_| number >= first);
            let missing = self.times.get(number as usize).map_or(0, |(_, missing)| *missing);
            let time_ns = known.map_or(self.latest, |(time_ns, _)| *time_ns);
            if let Some(Output { path, writer }) = output {
                let result = writer.write(&Frame { time_ns, data, missing });
                result.map_err(|error| ReplayError::Write { path: path.clone(), error })?;
            }
        }
        Ok(())
    }
}

impl PacketIo for CaptureIo {
    fn receive(&mut self, slots: &mut Slots<'_>) {
        while !self.is_paused && slots.room() > 0 && self.push_next(slots) {}
    }

    fn transmit(&mut self, packets: &[&mut Packet]) {
        let sent = packets.iter();
        self.sent.extend(sent.map(|packet| (packet.timestamp().unwrap_or(NO_PACKET), packet.to_vec())));
    }
}

fn is_fragment(frame: &[u8]) -> bool {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).is_ok() && meta.flags.contains(PacketFlags::FRAGMENT)
}
