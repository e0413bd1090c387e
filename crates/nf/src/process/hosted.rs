//! A function inside of its process.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use mmb_flow::HeldLimits;
use mmb_stream::{OnOverflow, View};
use mmb_system::FileAccess;

use super::{EditRights, HostedSpec, ProcessVerdict};
use crate::context::{Emissions, Holding};
use crate::held::HeldPackets;
use crate::instance::{DynFunction, RawContext};
use crate::program::ir::GroupPlace;
use crate::set::{Set, VECTOR};
use crate::stream::EditMemory;
use crate::vector::{NO_BASE, RawVector};
use crate::{Instance, LineSource, Packet, Registry, SessionInfo, Setup, StreamVerdict, Verdict};

/// A function, with the state of each worker.
pub struct HostedFunction {
    instance: Instance,
    locals: Vec<Box<dyn Any + Send>>,
    emissions: Emissions,
    held: HeldPackets,
    bases: Box<[u32; VECTOR]>,
    views: Box<[View; VECTOR]>,
    unsent: u64,
    verdicts: Box<[Verdict; VECTOR]>,
    lines: Option<Arc<dyn LineSource>>,
    /// Of stream functions.
    streams: StreamSessions,
    /// Of functions that edit.
    edits: Option<Box<EditMemory>>,
}

/// What the process of a stream function knows of sessions.
struct StreamSessions {
    verdicts: Box<[StreamVerdict; VECTOR]>,
    /// The open sessions of each worker that have begun in this process, one bit each.
    opened: Vec<Vec<u64>>,
    /// The verdict on further packets of sessions that do not go on, until the worker has learned of it.
    ended: HashMap<(u16, u32), StreamVerdict>,
}

impl StreamSessions {
    fn set_opened(&mut self, worker: u16, session: u32, is_open: bool) {
        self.ended.remove(&(worker, session));
        let Some(words) = self.opened.get_mut(usize::from(worker)) else { return };
        let (at, bit) = (session as usize / 64, 1 << (session % 64));
        if at >= words.len() {
            words.resize(at + 1, 0);
        }
        words[at] = if is_open { words[at] | bit } else { words[at] & !bit };
    }

    /// Tells what the function gets of packets. Those that it does not get for a reason of their session have
    /// their verdicts afterwards; all others have [`StreamVerdict::Pass`].
    fn give(
        &mut self,
        worker: u16,
        packets: &[Packet<'_>],
        given: &[(View, EditRights)],
        function: &dyn DynFunction,
        views: &mut [View; VECTOR],
        out: &mut [ProcessVerdict; VECTOR],
    ) {
        self.verdicts.fill(StreamVerdict::Pass);
        let places = views.iter_mut().zip(out.iter_mut());
        for ((packet, &(view, rights)), (place, out)) in packets.iter().zip(given).zip(places) {
            let session = packet.session.0;
            // All payload is what functions in front have left of the new bytes.
            let is_replaced = !function.edits() && rights.changed.is_some();
            let len = packet.l4_payload_len() as u16;
            let view = if is_replaced { View { skip: 0, len, ..view } } else { view };
            (*place, *out) = (view, ProcessVerdict::Stream(StreamVerdict::Pass));
            // An earlier process has begun to read it, and its state is gone.
            let is_seen = !view.is_none() || function.sees_packets();
            if view.is_restart {
                self.ended.remove(&(worker, session));
            }
            if function.has_local_state() && is_seen && !self.is_opened(worker, session) {
                (*place, *out) = (View::NONE, ProcessVerdict::Lost);
            } else if let Some(&verdict) = self.ended.get(&(worker, session)) {
                (*place, *out) = (View::NONE, ProcessVerdict::Stream(verdict));
            }
        }
    }

    /// Completes the verdicts on packets that the function has got.
    /// `answered`: those whose clients get an answer, from the worker.
    fn settle(
        &mut self,
        worker: u16,
        packets: &[Packet<'_>],
        answered: Set,
        out: &mut [ProcessVerdict; VECTOR],
    ) {
        let packets = packets.iter().zip(self.verdicts.iter()).enumerate();
        for ((at, (packet, &verdict)), out) in packets.zip(out) {
            if *out != ProcessVerdict::Stream(StreamVerdict::Pass) {
                continue;
            }
            let session = (worker, packet.session.0);
            let ended = self.ended.get(&session).copied();
            *out = ProcessVerdict::Stream(ended.unwrap_or(verdict));
            if ended.is_none() && (verdict.ends_stream() || answered.contains(at)) {
                self.ended.insert(session, verdict.on_following());
            }
        }
    }

    fn is_opened(&self, worker: u16, session: u32) -> bool {
        let word = self.opened.get(usize::from(worker)).and_then(|words| words.get(session as usize / 64));
        word.is_some_and(|word| word >> (session % 64) & 1 != 0)
    }
}

/// Makes an instance in a process.
fn make_instance(
    registry: &Registry,
    spec: &HostedSpec,
    files: &Arc<FileAccess>,
) -> Result<Instance, String> {
    let args: Vec<&str> = spec.args.iter().map(String::as_str).collect();
    let port = |name: &str| spec.ports.iter().find(|(known, _)| known == name).map(|(_, port)| *port);
    let setup = Setup {
        args: &args,
        resolve_port: &port,
        has_pool: &|_| false,
        workers: spec.workers,
        seed: spec.seed,
        files,
    };
    let made = registry.make(&spec.kind, &setup);
    let function = made.ok_or_else(|| format!("there is no type of function `{}`", spec.kind))?;
    let words: Vec<Box<str>> = args.iter().map(|&arg| arg.into()).collect();
    let instance = function.and_then(|function| Instance::new(&spec.name, &words, function));
    instance.map_err(|error| error.to_string())
}

/// Makes a copy of a function, for a broker. `files`: those that the function may read.
///
/// # Errors
/// The error of the function, or there is no such type.
pub fn make_copy(
    registry: &Registry,
    spec: &HostedSpec,
    files: &Arc<FileAccess>,
) -> Result<Arc<Instance>, String> {
    let mut instance = make_instance(registry, spec, files)?;
    instance.set_workers(spec.workers);
    Ok(Arc::new(instance))
}

impl HostedFunction {
    /// Most packets of a vector.
    pub const VECTOR: usize = VECTOR;

    /// Makes a function of a type of the registry. `files`: those that it may read.
    ///
    /// # Errors
    /// The error of the function, or there is no such type.
    pub fn new(
        registry: &Registry,
        spec: &HostedSpec,
        files: &Arc<FileAccess>,
    ) -> Result<HostedFunction, String> {
        let instance = make_instance(registry, spec, files)?;
        let lines = instance.function.lines();
        if let Some(lines) = &lines {
            // Now it knows that somebody else writes what it logs.
            lines.take(&mut String::new());
        }
        Ok(HostedFunction {
            locals: (0..spec.workers).map(|_| instance.function.local()).collect(),
            emissions: Emissions::default(),
            held: HeldPackets::with_limits(HeldLimits { session: 0, worker: 0 }),
            bases: Box::new([NO_BASE; VECTOR]),
            views: Box::new([View::NONE; VECTOR]),
            unsent: 0,
            verdicts: Box::new([Verdict::Pass; VECTOR]),
            lines,
            streams: StreamSessions {
                verdicts: Box::new([StreamVerdict::Pass; VECTOR]),
                opened: vec![Vec::new(); spec.workers.into()],
                ended: HashMap::new(),
            },
            edits: instance.function.edits().then(|| Box::new(EditMemory::of_process(spec.workers))),
            instance,
        })
    }

    /// Returns the bytes of a scratchpad.
    pub fn bytes(&self) -> usize {
        self.instance.bytes()
    }

    /// Processes at most 256 packets of a worker. `given`: what a stream function gets of them, and may do.
    /// `pads`: the scratchpads of the worker's sessions, aligned to 8 bytes, `stride` bytes from one to the
    /// next; that of the function begins at byte `offset` of them.
    pub fn process(
        &mut self,
        (worker, now): (u16, u32),
        packets: &mut [Packet<'_>],
        given: &[(View, EditRights)],
        (pads, stride, offset): (&mut [u8], usize, usize),
        out: &mut [ProcessVerdict; VECTOR],
    ) {
        let HostedFunction {
            instance, locals, emissions, held, bases, views, verdicts, streams, edits, ..
        } = self;
        let Some(local) = locals.get_mut(usize::from(worker)) else { return out.fill(ProcessVerdict::Lost) };
        for (packet, base) in packets.iter().zip(bases.iter_mut()) {
            let start = (packet.session.0 as usize).checked_mul(stride / 8);
            *base = start.and_then(|start| u32::try_from(start).ok()).unwrap_or(NO_BASE);
        }
        let function = &instance.function;
        let is_stream = function.is_stream();
        if is_stream {
            streams.give(worker, packets, given, &**function, views, out);
        }
        if let Some(memory) = edits {
            memory.begin_hosted();
            let packets = packets.iter().zip(given).enumerate();
            packets.for_each(|(i, (packet, &(_, rights)))| memory.give(i, packet, rights));
        }
        verdicts.fill(Verdict::Pass);
        let is_given = |i: usize| !is_stream || out[i] == ProcessVerdict::Stream(StreamVerdict::Pass);
        let at = Set::first(packets.len().min(VECTOR)).filter(is_given);
        let raw = RawVector {
            packets: &mut *packets,
            at,
            bases,
            pads,
            offset,
            verdicts,
            views,
            keeps_bytes: false,
            group: GroupPlace::default(),
            edits: edits.as_deref_mut(),
            on_overflow: OnOverflow::default(),
            now,
            worker,
            emissions,
            holding: Holding::new(held),
            unread: &mut Vec::new(),
            room: None,
            stream_verdicts: is_stream.then_some(&mut streams.verdicts),
            events: Set::EMPTY,
        };
        function.vector(raw, &mut **local);
        if is_stream {
            let answered = edits.as_ref().and_then(|memory| Some(memory.recorder.as_ref()?.answered));
            streams.settle(worker, packets, answered.unwrap_or(Set::EMPTY), out);
        } else {
            out.iter_mut()
                .zip(verdicts.iter())
                .for_each(|(out, &verdict)| *out = ProcessVerdict::Packet(verdict));
        }
        self.drop_emissions();
    }

    /// Returns what a function that edits has asked for in the packet at a position of the last vector, for
    /// the worker. None: the function does not edit.
    pub fn result(&self, at: usize) -> Option<&[u8]> {
        Some(self.edits.as_ref()?.recorder.as_ref()?.result(at))
    }

    /// A session begins: its scratchpad is filled with zeros first.
    pub fn open(&mut self, worker: u16, pad: &mut [u8], session: &SessionInfo) {
        pad.fill(0);
        if self.instance.function.is_stream() {
            self.streams.set_opened(worker, session.id.0, true);
        }
        self.call(worker, session, |instance, local, cx| instance.function.open(pad, session, cx, local));
    }

    /// A session ends.
    pub fn release(&mut self, worker: u16, pad: &mut [u8], session: &SessionInfo) {
        let (function, id) = (&self.instance.function, session.id.0);
        if function.has_local_state() && !self.streams.is_opened(worker, id) {
            // The scratchpad is about the state of an earlier process.
            return;
        }
        if function.is_stream() {
            self.streams.set_opened(worker, id, false);
        }
        self.call(worker, session, |instance, local, cx| instance.function.release(pad, session, cx, local));
    }

    fn call(
        &mut self,
        worker: u16,
        session: &SessionInfo,
        method: impl FnOnce(&Instance, &mut dyn Any, RawContext<'_>),
    ) {
        let HostedFunction { instance, locals, emissions, held, edits, .. } = self;
        let Some(local) = locals.get_mut(usize::from(worker)) else { return };
        let (now, ingress, holding) = (session.now, session.in_port, Holding::new(held));
        let cx =
            RawContext { now, worker, emissions, at: None, ingress, holding, edits: edits.as_deref_mut() };
        method(instance, &mut **local, cx);
        self.drop_emissions();
    }

    /// A process has no port: frames that the function sends are counted.
    fn drop_emissions(&mut self) {
        if !self.emissions.is_empty() {
            self.unsent += self.emissions.len() as u64;
            self.emissions.clear();
        }
    }

    /// Changes a run-time setting of the function.
    ///
    /// # Errors
    /// The error of the function.
    pub fn set(&self, args: &[&str]) -> Result<(), String> {
        self.instance.set(args).map_err(|error| error.to_string())
    }

    /// Whether the function has lines for its log.
    pub fn has_lines(&self) -> bool {
        self.lines.as_ref().is_some_and(|lines| lines.is_waiting())
    }

    /// Takes the lines for the log of the function.
    pub fn take_lines(&self, text: &mut String) {
        if let Some(lines) = &self.lines {
            lines.take(text);
        }
    }

    /// Returns what the function reports of itself.
    pub fn report(&self) -> Vec<(String, String)> {
        let mut report = self.instance.report();
        if self.unsent > 0 {
            report.push(("frames not sent".into(), self.unsent.to_string()));
        }
        report
    }
}
