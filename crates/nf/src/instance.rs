//! An instance of a function, without its type.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mmb_lang::{Domain, Match, NfInstance, ProcessMode, ProcessPlace};
use mmb_packet::Meta;

use crate::bytes::raw::{BrokerPlace, PassedBytes, RawBytes, Refusal};
use crate::context::{Emissions, Holding};
use crate::flow_type::Flow;
use crate::l7::DynL7;
use crate::process::{FunctionCopies, FunctionProcess, ProcessStatus};
use crate::set::Set;
use crate::stream::{AnswerState, EditMemory, TAIL};
use crate::vector::RawVector;
use crate::{
    Admission, ArgError, Background, ConstantRewrite, Context, Function, LineSource, OpeningPacket,
    Properties, ServersWatcher, SessionInfo, StreamCounter, Vector,
};

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

    /// Returns the function's [`Function::TYPE`].
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

/// The context of a function without its type.
pub(crate) struct RawContext<'a> {
    pub now: u32,
    pub worker: u16,
    pub emissions: &'a mut Emissions,
    pub at: Option<u8>,
    pub ingress: u16,
    pub holding: Holding<'a>,
    pub edits: Option<&'a mut EditMemory>,
}

/// A function without its type. Scratchpads are bytes, and `local` is a value of [`DynFunction::local`].
pub(crate) trait DynFunction: Send + Sync {
    fn any(&self) -> &dyn Any;
    fn kind(&self) -> &'static str;
    fn properties(&self) -> Properties;
    /// Returns size and alignment of the scratchpad.
    fn pad(&self) -> (usize, usize);
    /// Returns [`Function::HOLDS`].
    fn holds(&self) -> bool {
        false
    }
    /// Whether the function is a [`crate::StreamFunction`].
    fn is_stream(&self) -> bool {
        false
    }
    /// Whether the function is a [`crate::L7Function`].
    fn is_l7_only(&self) -> bool {
        false
    }
    /// Whether [`DynFunction::read_bytes`] can be called.
    fn reads_bytes(&self) -> bool {
        false
    }
    /// Passes bytes that no packet has brought.
    ///
    /// # Errors
    /// The function does not let the connection go on.
    fn read_bytes(
        &self,
        raw: &RawBytes<'_, '_>,
        passed: &mut PassedBytes,
        pad: &mut [u8],
        (cx, local): (RawContext<'_>, &mut dyn Any),
    ) -> Result<(), Refusal> {
        let _ = (pad, cx, local);
        passed.out.extend_from_slice(raw.bytes);
        Ok(())
    }
    /// Returns the function as brokers use it.
    fn l7(&self) -> Option<&dyn DynL7> {
        None
    }
    /// Returns [`crate::StreamFunction::READS_CONTENT`].
    fn reads_content(&self) -> bool {
        false
    }
    /// Returns [`crate::StreamFunction::EDITS`].
    fn edits(&self) -> bool {
        false
    }
    /// See [`crate::StreamFunction::refuses`].
    fn refuses(&self, pad: &[u8]) -> bool {
        let _ = pad;
        false
    }
    /// Returns [`crate::StreamFunction::SEES_PACKETS`].
    fn sees_packets(&self) -> bool {
        false
    }
    /// See [`crate::StreamFunction::watches`].
    fn watches(&self, pad: &[u8]) -> bool {
        let _ = pad;
        true
    }
    /// See [`crate::StreamFunction::output`].
    fn output(&self, pad: &[u8]) -> Option<u8> {
        let _ = pad;
        None
    }
    /// See [`crate::StreamFunction::answer`].
    fn answer(&self, number: u32) -> &[u8] {
        let _ = number;
        &[]
    }
    /// Returns what `show connections verbose` prints of a session, from its scratchpad. `held`: the packets
    /// that the function holds of it, by direction.
    fn describe(&self, pad: &[u8], held: [u32; 2]) -> Option<String> {
        let _ = (pad, held);
        None
    }
    fn local(&self) -> Box<dyn Any + Send>;
    fn admit(&self, packet: &mut OpeningPacket<'_>, local: &mut dyn Any) -> Admission {
        let _ = (packet, local);
        Admission::Open
    }
    fn route(&self, packet: &OpeningPacket<'_>, local: &mut dyn Any) -> Option<u8> {
        let _ = (packet, local);
        None
    }
    fn open(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any);
    fn release(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any);
    /// Processes packets. Returns the positions of those that do not pass.
    fn vector(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set;
    /// Processes packets that the function held. Returns the positions of those that do not pass.
    fn resume(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
        let _ = (raw, local);
        Set::EMPTY
    }
    /// Takes packets out of a group of stream functions. Returns the positions of those that do not pass.
    fn exit(&self, raw: RawVector<'_, '_>) -> Set {
        let _ = raw;
        Set::EMPTY
    }
    /// See [`Function::translate_sent`].
    fn translate_sent(&self, head: &mut [u8], meta: &Meta, pad: &[u8]) {
        let _ = (head, meta, pad);
    }
    /// See [`Function::constant_rewrite`].
    fn constant_rewrite(&self, pad: &[u8]) -> Option<ConstantRewrite> {
        let _ = pad;
        None
    }
    /// See [`Function::revision`].
    fn revision(&self) -> u64 {
        0
    }
    fn set(&self, args: &[&str]) -> Result<(), ArgError>;
    fn report(&self) -> Vec<(String, String)>;
    /// The counters of a stream context.
    fn stream_counters(&self) -> Vec<(StreamCounter, u64)> {
        Vec::new()
    }
    fn background(&self) -> Option<Background> {
        None
    }
    /// See [`crate::StreamFunction::lines`].
    fn lines(&self) -> Option<Arc<dyn LineSource>> {
        None
    }
    /// Whether scratchpads mean nothing without the state of the worker: they do not move, and do not
    /// outlive a process.
    fn has_local_state(&self) -> bool {
        false
    }
    /// Returns [`crate::StreamFunction::HOLDS_UNTIL_DECIDED`].
    fn holds_until_decided(&self) -> bool {
        false
    }
}

pub(crate) struct TypedFunction<F>(pub F);

impl<F: Function> DynFunction for TypedFunction<F> {
    fn any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> &'static str {
        F::TYPE
    }

    fn properties(&self) -> Properties {
        self.0.properties()
    }

    fn pad(&self) -> (usize, usize) {
        (size_of::<F::Pad>(), align_of::<F::Pad>())
    }

    fn holds(&self) -> bool {
        F::HOLDS
    }

    fn local(&self) -> Box<dyn Any + Send> {
        Box::new(F::Local::default())
    }

    fn admit(&self, packet: &mut OpeningPacket<'_>, local: &mut dyn Any) -> Admission {
        local.downcast_mut().map_or(Admission::Open, |local| self.0.admit(packet, local))
    }

    fn route(&self, packet: &OpeningPacket<'_>, local: &mut dyn Any) -> Option<u8> {
        local.downcast_mut().and_then(|local| self.0.route(packet, local))
    }

    fn open(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        if let (Ok(pad), Some(local)) = (bytemuck::try_from_bytes_mut(pad), local.downcast_mut()) {
            self.0.open(pad, session, &mut cx.typed(local));
        }
    }

    fn release(&self, pad: &mut [u8], session: &SessionInfo, cx: RawContext<'_>, local: &mut dyn Any) {
        if let (Ok(pad), Some(local)) = (bytemuck::try_from_bytes_mut(pad), local.downcast_mut()) {
            self.0.release(pad, session, &mut cx.typed(local));
        }
    }

    fn vector(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
        let Some(local) = local.downcast_mut() else { return Set::EMPTY };
        let mut vector = Vector { raw, local };
        self.0.vector(&mut vector);
        vector.raw.events
    }

    fn resume(&self, raw: RawVector<'_, '_>, local: &mut dyn Any) -> Set {
        let Some(local) = local.downcast_mut() else { return Set::EMPTY };
        let mut vector = Vector::<F> { raw, local };
        vector.raw.holding.is_resumed = true;
        vector.for_each(|packet, pad, cx| self.0.resume(packet, pad, cx));
        vector.raw.events
    }

    fn translate_sent(&self, head: &mut [u8], meta: &Meta, pad: &[u8]) {
        if let Ok(pad) = bytemuck::try_from_bytes(pad) {
            self.0.translate_sent(head, meta, pad);
        }
    }

    fn constant_rewrite(&self, pad: &[u8]) -> Option<ConstantRewrite> {
        self.0.constant_rewrite(bytemuck::try_from_bytes(pad).ok()?)
    }

    fn revision(&self) -> u64 {
        self.0.revision()
    }

    fn set(&self, args: &[&str]) -> Result<(), ArgError> {
        self.0.set(args)
    }

    fn report(&self) -> Vec<(String, String)> {
        self.0.report()
    }

    fn background(&self) -> Option<Background> {
        self.0.background()
    }
}

impl<'a> RawContext<'a> {
    pub(crate) fn typed<L>(self, local: &'a mut L) -> Context<'a, L> {
        let RawContext { now, worker, emissions, at, ingress, holding, .. } = self;
        Context { now, worker, local, emissions, at, ingress, holding }
    }
}
