//! Source and sink of a bench: packets made in memory, and their end.

use mmb_dpdk::{Emit, Graph, Mempool, NodeDef, NodeKind, Slots, Vector};

use super::traffic::NEAR;
use super::{BenchError, Generated, Generator, MAX_FRAME, Ports, Traffic, open_null_ports};
use crate::engine::config::{Forwarding, PortId};
use crate::engine::error::EngineError;
use crate::engine::pools::{ORDINARY, Pools};
use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::graph::Ends;
use crate::replay::capture::{End, Reader};

const SOURCE: &str = "bench-rx";
const SINK: &str = "bench-tx";
const L2_INPUT: u16 = 0;

/// Whether a node is the source or the sink.
pub(super) fn is_end(name: &str) -> bool {
    name == SOURCE || name == SINK
}

/// The source and sink nodes.
pub(super) fn nodes() -> Ends {
    Ends {
        source: NodeDef { name: SOURCE, kind: NodeKind::Source(emit), next: &["l2-input"] },
        sink: NodeDef { name: SINK, kind: NodeKind::Inner(free), next: &[] },
    }
}

/// What the workers' sources are made from.
pub(super) enum Plan {
    Generated(Generated),
    Frames(Vec<Vec<u8>>),
    NullPorts(usize),
}

impl Plan {
    /// The plan for this traffic; `routed`: frames that are not made here get the Ethernet address of the port they come to.
    pub fn new(traffic: &Traffic, routed: bool) -> Result<Plan, String> {
        if routed && matches!(traffic, Traffic::NullPorts(_)) {
            return Err("frames of zeros cannot be routed; null ports go with wires".into());
        }
        let mut plan = Plan::of(traffic)?;
        if let Plan::Frames(frames) = &mut plan
            && routed
        {
            let to = frames.iter_mut().filter_map(|frame| frame.get_mut(..NEAR.len()));
            to.for_each(|to| to.copy_from_slice(&NEAR));
        }
        Ok(plan)
    }

    fn of(traffic: &Traffic) -> Result<Plan, String> {
        match traffic {
            Traffic::Generated(g) if g.flows == 0 => Err("0 flows do not go; ask for 1 or more".into()),
            Traffic::Generated(g) if g.size > MAX_FRAME => {
                Err(format!("frames of {} bytes do not go; the largest is {MAX_FRAME}", g.size))
            }
            Traffic::Generated(g) => Ok(Plan::Generated(g.clone())),
            Traffic::NullPorts(size) => Ok(Plan::NullPorts(*size)),
            Traffic::Frames(frames) if frames.is_empty() => Err("there is no frame to send".into()),
            Traffic::Frames(frames) => match frames.iter().find(|frame| frame.len() > MAX_FRAME) {
                Some(frame) => {
                    Err(format!("frames of {} bytes do not go; the largest is {MAX_FRAME}", frame.len()))
                }
                None => Ok(Plan::Frames(frames.clone())),
            },
            Traffic::Pcap(path) => {
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
                    End::Damaged(why) if frames.is_empty() => Err(why),
                    _ if frames.is_empty() => {
                        Err(format!("{} holds no Ethernet frame of up to {MAX_FRAME} bytes", path.display()))
                    }
                    _ => Ok(Plan::Frames(frames)),
                }
            }
        }
    }

    /// The ports that the traffic needs.
    pub fn open_ports(
        &self,
        pools: &Pools,
        forwarding: &Forwarding,
        workers: usize,
    ) -> Result<Ports, EngineError> {
        match self {
            Plan::NullPorts(size) => open_null_ports(pools, forwarding, *size, workers),
            _ => Ok(Vec::new()),
        }
    }

    /// The source of worker `stream`, or `None` where ports are polled; packets come in by the first port and leave by the other.
    pub fn source(
        &self,
        stream: u64,
        pools: &Pools,
        [in_port, out_port]: [PortId; 2],
    ) -> Result<Option<Source>, BenchError> {
        let (maker, largest) = match self {
            Plan::NullPorts(_) => return Ok(None),
            Plan::Generated(config) => {
                let generator = Generator::new(config, stream);
                let len = generator.frame_len();
                (Maker::Generator(Box::new(generator)), len)
            }
            Plan::Frames(frames) => {
                let largest = frames.iter().map(Vec::len).max().unwrap_or(0);
                (Maker::Frames { frames: frames.clone(), next: 0 }, largest)
            }
        };
        let pool = if largest <= ORDINARY { pools.ordinary() } else { pools.jumbo()? };
        Ok(Some(Source { maker, pool, largest, in_port: in_port.0, out_port: out_port.0, script: None }))
    }
}

enum Maker {
    Generator(Box<Generator>),
    Frames { frames: Vec<Vec<u8>>, next: usize },
}

/// One worker's source of packets.
pub(super) struct Source {
    maker: Maker,
    pool: Mempool,
    largest: usize,
    in_port: u16,
    out_port: u16,
    /// What is sent in the place of the source's own frames while there is one.
    script: Option<Script>,
}

/// Frames to send, each by its port, and those that came out.
#[derive(Default)]
pub(super) struct Script {
    pub frames: Vec<(u16, Vec<u8>)>,
    pub sent: Vec<Vec<u8>>,
}

impl Maker {
    /// Writes the next frame to the start of `out` and returns its length.
    fn write(&mut self, out: &mut [u8]) -> usize {
        match self {
            Maker::Generator(generator) => generator.write_next(out),
            Maker::Frames { frames, next } => {
                let frame = &frames[*next];
                *next = if *next + 1 == frames.len() { 0 } else { *next + 1 };
                out[..frame.len()].copy_from_slice(frame);
                frame.len()
            }
        }
    }
}

impl Source {
    /// The generator, if the traffic comes from one.
    pub fn generator(&self) -> Option<&Generator> {
        match &self.maker {
            Maker::Generator(generator) => Some(generator),
            Maker::Frames { .. } => None,
        }
    }

    /// The port by which packets come in.
    pub fn in_port(&self) -> u16 {
        self.in_port
    }

    /// The port by which they leave, and their answers come in.
    pub fn out_port(&self) -> u16 {
        self.out_port
    }

    fn has_more(&self) -> bool {
        self.script.as_ref().is_some_and(|script| !script.frames.is_empty())
    }
}

/// A worker's source.
pub(super) fn source(worker: &mut Worker) -> Option<&mut Source> {
    worker.ends.as_mut()?.downcast_mut()
}

/// Walks until all frames of a script have been sent, and answers those that came out.
pub(super) fn perform(graph: &mut Graph<Worker>, frames: Vec<(u16, Vec<u8>)>) -> Vec<Vec<u8>> {
    if let Some(source) = source(graph.state_mut()) {
        source.script = Some(Script { frames, sent: Vec::new() });
    }
    while source(graph.state_mut()).is_some_and(|source| source.has_more()) {
        graph.state_mut().begin();
        graph.walk();
    }
    let script = source(graph.state_mut()).and_then(|source| source.script.take());
    script.map_or_else(Vec::new, |script| script.sent)
}

fn play(script: &mut Script, pool: &Mempool, slots: &mut Slots<'_>) {
    let n = script.frames.len().min(slots.room());
    for (port, frame) in script.frames.drain(..n) {
        // Without a buffer the frame is missing among those that come out, which is noticed.
        if let Some(mut packet) = pool.alloc_from(&frame) {
            packet.set_port(port);
            let _ = slots.push(packet);
        }
    }
}

fn emit(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let Some(source) = source(worker) else { return 0 };
    emit.emit(L2_INPUT, VECTOR, |slots| {
        if let Some(script) = &mut source.script {
            return play(script, &source.pool, slots);
        }
        source.pool.alloc_bulk(VECTOR, slots);
        for at in 0..slots.len() {
            let Some(packet) = slots.get_mut(at) else { continue };
            packet.set_port(source.in_port);
            let len = packet.append(source.largest).map_or(0, |out| source.maker.write(out));
            packet.trim(source.largest - len);
        }
    })
}

fn free(worker: &mut Worker, mut vector: Vector<'_>) {
    if let Some(script) = source(worker).and_then(|source| source.script.as_mut()) {
        script.sent.extend(vector.packets().iter().map(|packet| packet.to_vec()));
    }
    vector.free();
}
