//! Instances of functions, as they are configured.

mod dyn_function;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use dyn_function::{DynFunction, RawContext, TypedFunction};
use mmb_lang::{Domain, Match, NfInstance, ProcessMode, ProcessPlace};

use crate::bytes::raw::BrokerPlace;
use crate::flow_type::Flow;
use crate::l7::DynL7;
use crate::process::{FunctionCopies, FunctionProcess, ProcessStatus};
use crate::stream::{AnswerState, TAIL};
use crate::{ArgError, Background, LineSource, Properties, ServersWatcher, StreamCounter};

/// A configured function: `nf add INSTANCE TYPE ARG…`.
pub struct Instance {
    name: Arc<str>,
    kind: &'static str,
    args: Vec<Box<str>>,
    properties: Properties,
    class: Vec<Match>,
    flow: Option<Option<u32>>,
    /// Distinguishes the instance from all others of the process.
    pub(crate) uid: u64,
    /// Identifies the state of sessions. An instance that differs from an earlier one only in the place where
    /// it runs has its number.
    pub(crate) lineage: u64,
    pub(crate) function: Box<dyn DynFunction>,
    /// The place of `process DOMAIN …`, with its domain.
    domain: Option<(Domain, ProcessPlace)>,
    /// The process in which the function runs; `function` is its shadow then.
    process: Option<Arc<dyn FunctionProcess>>,
    /// The copies of a function of brokers; `function` is their shadow.
    copies: Option<Arc<FunctionCopies>>,
    /// The function has read files, and runs in a process.
    reads_files: bool,
    /// What brokers have of a stream function, and the number of their worker.
    broker_place: BrokerPlace,
    broker_worker: u16,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Most outputs of a function.
const MAX_OUTPUTS: usize = 64;

static NEXT_UID: AtomicU64 = AtomicU64::new(0);

impl Instance {
    pub(crate) fn new(
        name: &str,
        args: &[Box<str>],
        function: Box<dyn DynFunction>,
    ) -> Result<Instance, ArgError> {
        let properties = function.properties();
        let class = if properties.accepts.trim().is_empty() {
            Ok(Vec::new())
        } else {
            mmb_lang::parse_matches(&properties.accepts)
        };
        let class = class.map_err(|error| {
            ArgError::from(format!("invalid traffic class `{}`: {error}", properties.accepts))
        })?;
        check_outputs(&properties.outputs)?;
        let uid = NEXT_UID.fetch_add(1, Ordering::Relaxed);
        Ok(Instance {
            name: name.into(),
            kind: function.kind(),
            args: args.to_vec(),
            properties,
            class,
            flow: function.any().downcast_ref::<TypedFunction<Flow>>().map(|holder| holder.0.sessions),
            uid,
            lineage: uid,
            function,
            domain: None,
            process: None,
            copies: None,
            reads_files: false,
            broker_place: BrokerPlace::default(),
            broker_worker: 0,
        })
    }

    /// Sets domain and place of an instance, and the process in which it runs if there is one.
    pub(crate) fn set_process(
        &mut self,
        (domain, place): (&Domain, &ProcessPlace),
        process: Option<Arc<dyn FunctionProcess>>,
        reads_files: bool,
    ) {
        self.domain = Some((domain.clone(), place.clone()));
        (self.process, self.reads_files) = (process, reads_files);
    }

    /// Sets domain and place of a function that brokers can use, and its copies if there is somebody to make
    /// them.
    pub(crate) fn set_copies(
        &mut self,
        (domain, place): (&Domain, &ProcessPlace),
        copies: Option<Arc<FunctionCopies>>,
    ) {
        if let (Some(copies), Some(servers)) = (&copies, self.l7().and_then(|function| function.servers())) {
            let watcher: Arc<dyn ServersWatcher> = copies.clone();
            servers.watch(Arc::downgrade(&watcher));
        }
        self.domain = Some((domain.clone(), place.clone()));
        self.copies = copies;
    }

    /// Sets the number of workers. Brokers are the worker behind them.
    pub(crate) fn set_workers(&mut self, workers: u16) {
        self.broker_worker = workers;
    }

    /// Returns what brokers have of a stream function, and the number of their worker.
    pub(crate) fn broker_room(&self) -> (&BrokerPlace, u16) {
        (&self.broker_place, self.broker_worker)
    }

    /// Returns the copies of the function in processes of brokers. None: brokers run it in the daemon.
    pub fn copies(&self) -> Option<&Arc<FunctionCopies>> {
        self.copies.as_ref()
    }

    /// Returns what is known of the process of the function, or of those of its copies.
    pub fn process_status(&self) -> Option<ProcessStatus> {
        let of_copies = || self.copies.as_ref().map(|copies| copies.status());
        self.process.as_ref().map(|process| process.status()).or_else(of_copies)
    }

    /// Returns the process to which workers send packets. None: the function runs in the workers.
    pub fn process(&self) -> Option<&Arc<dyn FunctionProcess>> {
        self.process.as_ref()
    }

    /// Returns the domain of `process DOMAIN`.
    pub fn domain(&self) -> Option<&Domain> {
        self.domain.as_ref().map(|(domain, _)| domain)
    }

    /// Returns the mode of `process DOMAIN MODE`.
    pub fn process_mode(&self) -> Option<ProcessMode> {
        self.domain.as_ref().map(|(_, place)| place.mode)
    }

    /// Returns the processor of `process DOMAIN cpu N`.
    pub fn process_cpu(&self) -> Option<u16> {
        self.domain.as_ref().and_then(|(_, place)| place.cpu)
    }

    /// Returns the name that chains use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name that chains use, to keep.
    pub(crate) fn name_arc(&self) -> Arc<str> {
        self.name.clone()
    }

    /// Returns the function's [`crate::Function::TYPE`].
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the arguments behind the type.
    pub fn args(&self) -> &[Box<str>] {
        &self.args
    }

    /// Returns the properties of the function.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the traffic that the function accepts: packets that match all of these.
    pub fn class(&self) -> &[Match] {
        &self.class
    }

    /// Whether the function reads payload as streams.
    pub fn reads_streams(&self) -> bool {
        self.function.is_stream()
    }

    /// Whether only brokers can use the function.
    pub fn is_l7_only(&self) -> bool {
        self.function.is_l7_only()
    }

    /// Whether brokers can pass the bytes of connections through the function.
    pub fn reads_bytes(&self) -> bool {
        self.function.reads_bytes() && (self.process.is_none() || self.copies.is_some())
    }

    /// Returns the names of the headers that the function adds to the requests of a broker.
    pub fn request_headers(&self) -> Vec<Box<[u8]>> {
        self.function.request_headers()
    }

    /// Returns the function as brokers use it. None: they cannot.
    pub fn l7(&self) -> Option<&dyn DynL7> {
        self.function.l7()
    }

    /// Takes over the scratchpads of an instance with the same line, which runs somewhere else.
    pub(crate) fn succeed(&mut self, previous: &Instance) {
        let is_moved = self.domain.is_some() || previous.domain.is_some();
        if is_moved && (self.kind, &self.args) == (previous.kind, &previous.args) {
            self.lineage = previous.lineage;
        }
    }

    /// Whether a configuration line describes this instance.
    pub(crate) fn is_made_by(&self, add: &NfInstance, domains: &[Domain]) -> bool {
        let is_known = |place: &ProcessPlace, domain: &&Domain| domain.name.text == place.domain.text;
        let place = add.process.as_ref();
        let domain = place.and_then(|place| domains.iter().find(|domain| is_known(place, domain)));
        let settings =
            |domain: &Domain| (domain.name.text.clone(), domain.kind, domain.buffers, domain.on_failure);
        let is_there = match (&self.domain, place) {
            (Some((own, known)), Some(place)) => {
                domain.map(settings) == Some(settings(own))
                    && (known.mode, known.cpu) == (place.mode, place.cpu)
            }
            (own, place) => own.is_none() && place.is_none(),
        };
        *self.name == *add.name.text && *self.kind == *add.kind.text && self.args == add.args && is_there
    }

    /// Returns size and alignment of the scratchpad in those of a session. In a process, it is elsewhere.
    pub(crate) fn pad(&self) -> (usize, usize) {
        match &self.process {
            // What the function holds back is in the worker, and what it answers.
            Some(_) if self.function.edits() && self.function.sees_packets() => {
                (TAIL + size_of::<AnswerState>(), align_of::<AnswerState>())
            }
            Some(_) if self.function.edits() => (TAIL, align_of::<u32>()),
            Some(_) => (0, 1),
            None => self.function.pad(),
        }
    }

    /// Some if the type is `flow`: its capacity in sessions, if one is configured.
    pub(crate) fn flow(&self) -> Option<Option<u32>> {
        self.flow
    }

    /// Returns the size of the scratchpad in bytes.
    pub fn bytes(&self) -> usize {
        self.function.pad().0
    }

    /// See [`Function::set`].
    ///
    /// # Errors
    /// The error of the function.
    pub fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        if self.process.is_none() || self.reads_files {
            // The process gets the files that are read here.
            self.function.set(args)?;
        }
        if let Some(process) = &self.process {
            process.set(args).map_err(ArgError::from)?;
        }
        self.copies.as_ref().map_or(Ok(()), |copies| copies.set(args).map_err(ArgError::from))
    }

    /// See [`Function::report`].
    pub fn report(&self) -> Vec<(String, String)> {
        match (&self.process, &self.copies) {
            (Some(process), Some(copies)) => {
                if copies.is_used() {
                    copies.report(|| self.function.report(), self.lines().as_deref())
                } else {
                    process.report()
                }
            }
            (Some(process), None) => process.report(),
            (None, Some(copies)) => copies.report(|| self.function.report(), self.lines().as_deref()),
            (None, None) => self.function.report(),
        }
    }

    /// Returns the counters of a stream context, which stands in front of stream functions. Empty for other
    /// instances.
    pub fn stream_counters(&self) -> Vec<(StreamCounter, u64)> {
        self.function.stream_counters()
    }

    /// See [`crate::StreamFunction::lines`].
    pub fn lines(&self) -> Option<Arc<dyn LineSource>> {
        self.function.lines()
    }

    /// See [`Function::background`]. To be called once.
    pub fn background(&self) -> Option<Background> {
        if self.process.is_some() { None } else { self.function.background() }
    }
}

/// Checks the names of outputs.
fn check_outputs(outputs: &[String]) -> Result<(), ArgError> {
    if outputs.len() > MAX_OUTPUTS {
        return Err(format!("a function has at most {MAX_OUTPUTS} outputs").into());
    }
    for (n, output) in outputs.iter().enumerate() {
        if output == "else" {
            return Err(
                "invalid output name `else`: in brackets it stands for all outputs that are not named".into(),
            );
        }
        if outputs[..n].contains(output) {
            return Err(format!("two outputs have the name `{output}`").into());
        }
    }
    Ok(())
}
