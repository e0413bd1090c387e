//! Source and sink of a bench.

use std::path::Path;

use mmb_dataplane::detached::{DetachedWorker, PacketIo, PacketMemory};
use mmb_dataplane::{EngineError, PortId};
use mmb_dpdk::{Mempool, Packet, Slots};

use super::answers::Answers;
use super::config::{BenchError, Traffic};
use super::traffic::{Generated, Generator, MAX_FRAME, NEAR};
use crate::capture::{End, Reader};

/// Checked traffic, from which each worker's source is made.
pub(super) enum TrafficPlan {
    Generated(Generated),
    Frames(Vec<Vec<u8>>),
    NullPorts(usize),
}

impl TrafficPlan {
    /// Checks the traffic. In routed mode, given frames get the Ethernet address of the port where they
    /// arrive. For functions that read streams, generated TCP segments are answered.
    pub fn new(traffic: &Traffic, is_routed: bool, has_streams: bool) -> Result<TrafficPlan, BenchError> {
        if is_routed && matches!(traffic, Traffic::NullPorts(_)) {
            return Err(BenchError::RoutedNullPorts);
        }
        let mut plan = match traffic {
            Traffic::Generated(config) if config.flows == 0 => return Err(BenchError::NoFlows),
            Traffic::Generated(config) if config.size > MAX_FRAME => {
                return Err(BenchError::FrameTooLong(config.size));
            }
            Traffic::Generated(config) => TrafficPlan::Generated(Generated {
                answered: config.answered || has_streams,
                ..config.clone()
            }),
            Traffic::NullPorts(size) => TrafficPlan::NullPorts(*size),
            Traffic::Frames(frames) if frames.is_empty() => return Err(BenchError::NoFrames),
            Traffic::Frames(frames) => match frames.iter().find(|frame| frame.len() > MAX_FRAME) {
                Some(frame) => return Err(BenchError::FrameTooLong(frame.len())),
                None => TrafficPlan::Frames(frames.clone()),
            },
            Traffic::Pcap(path) => TrafficPlan::Frames(read_capture(path)?),
        };
        if let TrafficPlan::Frames(frames) = &mut plan
            && is_routed
        {
            let destinations = frames.iter_mut().filter_map(|frame| frame.get_mut(..NEAR.len()));
            destinations.for_each(|destination| destination.copy_from_slice(&NEAR));
        }
        Ok(plan)
    }

    /// The frame length of null ports; `None` for a source in memory.
    pub fn null_port_frame(&self) -> Option<usize> {
        match self {
            TrafficPlan::NullPorts(size) => Some(*size),
            _ => None,
        }
    }

    /// The source of worker `stream`; `None` with null ports. Packets arrive at the first port and leave by
    /// the other.
    pub fn source(
        &self,
        stream: u64,
        memory: &PacketMemory,
        [in_port, out_port]: [PortId; 2],
    ) -> Result<Option<TrafficIo>, EngineError> {
        let mut answers = None;
        let (frames, max_len) = match self {
            TrafficPlan::NullPorts(_) => return Ok(None),
            TrafficPlan::Generated(config) => {
                let delay = u64::from(config.in_flight) * u64::from(config.flows);
                answers = config.answered.then(|| Answers::new(delay));
                let generator = Generator::new(config, stream);
                let len = generator.frame_len();
                (FrameSource::Generator(Box::new(generator)), len)
            }
            TrafficPlan::Frames(frames) => {
                let max_len = frames.iter().map(Vec::len).max().unwrap_or(0);
                (FrameSource::List { frames: frames.clone(), next: 0 }, max_len)
            }
        };
        let pool = memory.pool(max_len)?;
        let (in_port, out_port) = (in_port.0, out_port.0);
        Ok(Some(TrafficIo { frames, pool, max_len, in_port, out_port, answers, script: None }))
    }
}

/// Reads the Ethernet frames of a capture; skips those that are too long.
fn read_capture(path: &Path) -> Result<Vec<Vec<u8>>, BenchError> {
    let mut reader = Reader::open(path)?;
    let mut frames = Vec::new();
    let end = loop {
        match reader.next_frame() {
            Ok(frame) if frame.data.len() <= MAX_FRAME => frames.push(frame.data),
            Ok(_) => {}
            Err(end) => break end,
        }
    };
    match end {
        End::Damaged(cause) if frames.is_empty() => Err(BenchError::DamagedCapture(cause)),
        _ if frames.is_empty() => Err(BenchError::EmptyCapture { path: path.to_owned() }),
        _ => Ok(frames),
    }
}

/// Where frames come from.
enum FrameSource {
    Generator(Box<Generator>),
    List { frames: Vec<Vec<u8>>, next: usize },
}

impl FrameSource {
    /// Writes the next frame to the start of `out` and returns its length.
    fn write_next(&mut self, out: &mut [u8]) -> usize {
        match self {
            FrameSource::Generator(generator) => generator.write_next(out),
            FrameSource::List { frames, next } => {
                let frame = &frames[*next];
                *next = if *next + 1 == frames.len() { 0 } else { *next + 1 };
                out[..frame.len()].copy_from_slice(frame);
                frame.len()
            }
        }
    }
}

/// Source and sink of one worker.
pub(super) struct TrafficIo {
    frames: FrameSource,
    pool: Mempool,
    max_len: usize,
    in_port: u16,
    out_port: u16,
    /// The other end of the flows, if it answers.
    answers: Option<Answers>,
    /// Replaces the source's own frames while present.
    script: Option<Script>,
}

/// Frames to send, with their ports, and frames that left.
#[derive(Default)]
struct Script {
    frames: Vec<(u16, Vec<u8>)>,
    sent: Vec<Vec<u8>>,
}

impl TrafficIo {
    /// The generator, if the traffic comes from one.
    pub fn generator(&self) -> Option<&Generator> {
        match &self.frames {
            FrameSource::Generator(generator) => Some(generator),
            FrameSource::List { .. } => None,
        }
    }

    /// The port where packets arrive.
    pub fn in_port(&self) -> u16 {
        self.in_port
    }

    /// The port where packets leave and their answers arrive.
    pub fn out_port(&self) -> u16 {
        self.out_port
    }

    fn has_more(&self) -> bool {
        self.script.as_ref().is_some_and(|script| !script.frames.is_empty())
    }
}

impl PacketIo for TrafficIo {
    fn receive(&mut self, slots: &mut Slots<'_>) {
        if let Some(script) = &mut self.script {
            return script.send(&self.pool, slots);
        }
        self.pool.alloc_bulk(slots.room(), slots);
        for at in 0..slots.len() {
            let Some(packet) = slots.get_mut(at) else { continue };
            let Some(out) = packet.append(self.max_len) else { continue };
            let answered = self.answers.as_mut().map_or(0, |answers| answers.write_next(out));
            let len = if answered > 0 { answered } else { self.frames.write_next(out) };
            packet.set_port(if answered > 0 { self.out_port } else { self.in_port });
            packet.trim(self.max_len - len);
        }
    }

    fn transmit(&mut self, packets: &[&mut Packet]) {
        if let Some(script) = &mut self.script {
            script.sent.extend(packets.iter().map(|packet| packet.to_vec()));
        } else if let Some(answers) = &mut self.answers {
            packets.iter().for_each(|packet| answers.add(packet.data()));
        }
    }
}

impl Script {
    fn send(&mut self, pool: &Mempool, slots: &mut Slots<'_>) {
        let n = self.frames.len().min(slots.room());
        for (port, frame) in self.frames.drain(..n) {
            // Without a buffer the frame is lost, and its flow counts as not opened.
            if let Some(mut packet) = pool.alloc_from(&frame) {
                packet.set_port(port);
                let _ = slots.push(packet);
            }
        }
    }
}

/// Walks until all `frames` have been sent, each by its port, and returns the frames that left.
pub(super) fn send_all(worker: &mut DetachedWorker<TrafficIo>, frames: Vec<(u16, Vec<u8>)>) -> Vec<Vec<u8>> {
    if let Some(source) = worker.io() {
        source.script = Some(Script { frames, sent: Vec::new() });
    }
    while worker.io().is_some_and(|source| source.has_more()) {
        worker.maintain();
        worker.walk();
    }
    let script = worker.io().and_then(|source| source.script.take());
    script.map_or_else(Vec::new, |script| script.sent)
}
