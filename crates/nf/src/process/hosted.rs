//! A function inside of its process.

use std::any::Any;
use std::sync::Arc;

use mmb_flow::HeldLimits;
use mmb_stream::{OnOverflow, View};
use mmb_system::FileAccess;

use super::HostedSpec;
use crate::context::{Emissions, Holding};
use crate::held::HeldPackets;
use crate::instance::RawContext;
use crate::program::ir::GroupPlace;
use crate::set::{Set, VECTOR};
use crate::vector::{NO_BASE, RawVector};
use crate::{Instance, Packet, Registry, SessionInfo, Setup, Verdict};

/// A function, with the state of each worker.
pub struct HostedFunction {
    instance: Instance,
    locals: Vec<Box<dyn Any + Send>>,
    emissions: Emissions,
    held: HeldPackets,
    bases: Box<[u32; VECTOR]>,
    views: Box<[View; VECTOR]>,
    unsent: u64,
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

    /// Makes a function of a type of the registry.
    ///
    /// # Errors
    /// The error of the function, or there is no such type.
    pub fn new(registry: &Registry, spec: &HostedSpec) -> Result<HostedFunction, String> {
        // No call opens a file there.
        let instance = make_instance(registry, spec, &Arc::default())?;
        Ok(HostedFunction {
            locals: (0..spec.workers).map(|_| instance.function.local()).collect(),
            instance,
            emissions: Emissions::default(),
            held: HeldPackets::with_limits(HeldLimits { session: 0, worker: 0 }),
            bases: Box::new([NO_BASE; VECTOR]),
            views: Box::new([View::NONE; VECTOR]),
            unsent: 0,
        })
    }

    /// Returns the bytes of a scratchpad.
    pub fn bytes(&self) -> usize {
        self.instance.bytes()
    }

    /// Processes at most 256 packets of a worker. `pads`: the scratchpads of the worker's sessions, aligned
    /// to 8 bytes, `stride` bytes from one to the next; that of the function begins at byte `offset` of
    /// them.
    pub fn process(
        &mut self,
        (worker, now): (u16, u32),
        packets: &mut [Packet<'_>],
        (pads, stride, offset): (&mut [u8], usize, usize),
        verdicts: &mut [Verdict; VECTOR],
    ) {
        verdicts.fill(Verdict::Pass);
        let Some(local) = self.locals.get_mut(usize::from(worker)) else { return };
        for (packet, base) in packets.iter().zip(self.bases.iter_mut()) {
            let start = (packet.session.0 as usize).checked_mul(stride / 8);
            *base = start.and_then(|start| u32::try_from(start).ok()).unwrap_or(NO_BASE);
        }
        let at = Set::first(packets.len().min(VECTOR));
        let raw = RawVector {
            packets,
            at,
            bases: &self.bases,
            pads,
            offset,
            verdicts,
            views: &mut self.views,
            keeps_bytes: false,
            group: GroupPlace::default(),
            edits: None,
            on_overflow: OnOverflow::default(),
            now,
            worker,
            emissions: &mut self.emissions,
            holding: Holding::new(&mut self.held),
            unread: &mut Vec::new(),
            events: Set::EMPTY,
        };
        self.instance.function.vector(raw, &mut **local);
        self.drop_emissions();
    }

    /// A session begins: its scratchpad is filled with zeros first.
    pub fn open(&mut self, worker: u16, pad: &mut [u8], session: &SessionInfo) {
        pad.fill(0);
        self.call(worker, session, |instance, local, cx| instance.function.open(pad, session, cx, local));
    }

    /// A session ends.
    pub fn release(&mut self, worker: u16, pad: &mut [u8], session: &SessionInfo) {
        self.call(worker, session, |instance, local, cx| instance.function.release(pad, session, cx, local));
    }

    fn call(
        &mut self,
        worker: u16,
        session: &SessionInfo,
        method: impl FnOnce(&Instance, &mut dyn Any, RawContext<'_>),
    ) {
        let HostedFunction { instance, locals, emissions, held, .. } = self;
        let Some(local) = locals.get_mut(usize::from(worker)) else { return };
        let (now, ingress, holding) = (session.now, session.in_port, Holding::new(held));
        let cx = RawContext { now, worker, emissions, at: None, ingress, holding, edits: None };
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

    /// Returns what the function reports of itself.
    pub fn report(&self) -> Vec<(String, String)> {
        let mut report = self.instance.report();
        if self.unsent > 0 {
            report.push(("frames not sent".into(), self.unsent.to_string()));
        }
        report
    }
}
