//! From the configuration to a program.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use mmb_classify::Classifier;
use mmb_lang::{NfInstance, ProcessMode, ProcessPlace};

use super::builder::Builder;
use super::errors::{ChainError, Located, ProgramError, ProgramItem};
use super::ir::{ArmTarget, Body, BodyId, Chain, FunctionNode, Node, SessionSpace, Stage};
use super::path::PathState;
use super::spec::ProgramSpec;
use super::{Program, class};
use crate::process::{self, FunctionCopies, HostedSpec, ProcessSetup, ProcessSpec, ProcessUse};
use crate::stream::StreamContext;
use crate::{FileAccess, Instance, Setup};

/// Most instances, and most chains.
const MAX_ITEMS: usize = 4096;

impl Program {
    /// Compiles instances and chains.
    ///
    /// # Errors
    /// The first item that is wrong, and why.
    pub fn compile(spec: &ProgramSpec<'_>) -> Result<Program, ProgramError> {
        let mut instances = instances(spec)?;
        let first_context = instances.len() as u16;
        add_contexts(spec, &mut instances);
        let numbers = instances.iter().zip(0..first_context);
        let mut builder = Builder {
            instances: &instances,
            resolve_port: spec.resolve_port,
            names: numbers.map(|(instance, number)| (instance.name(), number)).collect(),
            first_context,
            contexts: 0,
            bodies: spec.chains.iter().map(|_| Body::default()).collect(),
            spaces_of: vec![0; spec.chains.len()],
            spaces: spec.chains.first().map(|_| SessionSpace::default()).into_iter().collect(),
            classes: Classifier::new(),
            class_slots: HashMap::new(),
            stages: Vec::new(),
            apart: Vec::new(),
            chain: 0,
            dispatches: 0,
            depth: 0,
        };
        let mut chains: Vec<Chain> = Vec::new();
        for (number, chain) in spec.chains.iter().enumerate() {
            let at = |(error, word): Located| ProgramError { item: ProgramItem::Chain(number), word, error };
            let name = chain.name.text.to_string();
            if number >= MAX_ITEMS {
                return Err(at((ChainError::TooMany { what: "chains", max: MAX_ITEMS }, Some(name))));
            }
            if chains.iter().any(|other| *other.name == name) {
                return Err(at((ChainError::DuplicateChain(name.clone()), Some(name))));
            }
            chains.push(builder.chain(number, chain).map_err(at)?);
        }
        let Builder { bodies, spaces_of, spaces, classes, stages, apart, contexts, .. } = builder;
        instances.truncate(usize::from(first_context + contexts));
        let scratchpad_limit = spec.scratchpad_limit;
        let may_have_offsets = spec.previous.is_some_and(Program::may_have_offsets)
            || instances.iter().any(|instance| instance.function.edits());
        let mut program = Program {
            chains,
            bodies,
            spaces,
            spaces_of,
            classes,
            stages,
            apart,
            scratchpad_limit,
            instances,
            may_have_offsets,
        };
        program.lay_out(spec)?;
        Ok(program)
    }

    /// Computes the offsets of all scratchpads.
    fn lay_out(&mut self, spec: &ProgramSpec<'_>) -> Result<(), ProgramError> {
        let mut excess = None;
        for sessions in &mut self.spaces {
            let result = sessions.layout.compute(spec.order, spec.scratchpad_limit);
            excess = excess.max(result.err().map(|_| sessions.layout.bytes()));
        }
        let Program { bodies, spaces, spaces_of, .. } = self;
        // Arms have higher numbers than the bodies that lead to them.
        for at in (0..bodies.len()).rev() {
            let layout = &spaces[spaces_of[at]].layout;
            let mut body = std::mem::take(&mut bodies[at]);
            let ends: Vec<_> = bodies.iter().map(|body| body.bytes).collect();
            for node in body.forward.iter_mut().chain(&mut body.reverse) {
                let offset = |instance| layout.place(instance).map_or(0, |(offset, _)| offset);
                body.bytes = body.bytes.max(set_offset(node, &ends, offset));
            }
            bodies[at] = body;
        }
        excess.map_or(Ok(()), |bytes| Err(self.scratchpad_full(bytes, spec.scratchpad_limit)))
    }

    fn scratchpad_full(&self, bytes: usize, limit: usize) -> ProgramError {
        let chains = self.chains.iter().zip(&self.bodies).enumerate();
        let longest = chains.max_by_key(|(_, (_, body))| body.bytes);
        let (number, chain) =
            longest.map_or((0, String::new()), |(number, (chain, _))| (number, chain.name.to_string()));
        let error = ChainError::ScratchpadFull { chain, bytes, limit };
        ProgramError { item: ProgramItem::Chain(number), word: None, error }
    }
}

/// Sets the offset of a node's scratchpad. Returns the end of its bytes and of those of its arms.
fn set_offset(node: &mut Node, ends: &[usize], offset: impl Fn(u16) -> usize) -> usize {
    let of_arm = |target: &ArmTarget| match target {
        ArmTarget::Body(body) => ends[usize::from(*body)],
        ArmTarget::Drop => 0,
    };
    match node {
        Node::Function(function) | Node::Outputs { function, .. } | Node::Choice { function, .. } => {
            function.offset = offset(function.instance) as u32;
            function.group.offset = offset(function.group.context) as u32;
            set_splicer(function, &offset);
            let end = (function.offset + function.bytes) as usize;
            match node {
                Node::Outputs { arms, .. } | Node::Choice { arms, .. } => {
                    arms.iter().map(of_arm).fold(end, usize::max)
                }
                _ => end,
            }
        }
        Node::Dispatch { arms, .. } => arms.iter().map(|arm| of_arm(&arm.target)).max().unwrap_or(0),
        Node::StreamExit(function) => {
            function.offset = offset(function.instance) as u32;
            set_splicer(function, &offset);
            (function.offset + function.bytes) as usize
        }
        Node::Translate | Node::Flow { .. } => 0,
    }
}

fn set_splicer(function: &mut FunctionNode, offset: impl Fn(u16) -> usize) {
    if let Some(splicer) = &mut function.splicer {
        splicer.offset = offset(splicer.instance) as u32;
    }
}

impl Builder<'_> {
    fn chain(&mut self, number: usize, chain: &mmb_lang::Chain) -> Result<Chain, Located> {
        (self.chain, self.dispatches, self.depth) = (number as u16, 0, 0);
        let l7 = self.l7_functions(&chain.body)?;
        if !l7.is_empty() {
            let (name, text) = (chain.name.text.as_ref().into(), chain.body.to_string());
            return Ok(Chain { name, text, class: Vec::new(), translates: false, is_spliced: false, l7 });
        }
        let class = self.class_of(&chain.body, 0)?;
        let mut path = PathState { implied: class.clone(), ..PathState::default() };
        let (first, first_stage) = (self.bodies.len(), self.stages.len());
        self.body(number as BodyId, &chain.body, &mut path)?;
        if let Some(why) = class::contradiction(&class, &[]) {
            return Err(ChainError::EmptyClass { class: class::text(&class), why }.into());
        }
        let is_own = |at: usize| at == number || at >= first;
        let own = self.bodies.iter().enumerate().filter(|(at, _)| is_own(*at));
        let translates = own.flat_map(|(_, body)| &body.forward).any(|node| matches!(node, Node::Translate));
        if !translates {
            // Translations by rules come before the chain.
            for (_, body) in self.bodies.iter_mut().enumerate().filter(|(at, _)| is_own(*at)) {
                body.forward.iter_mut().chain(&mut body.reverse).for_each(set_after_translation);
            }
        }
        let is_splicer = |stage: &Stage| {
            let instance = self.instances.get(usize::from(stage.instance));
            instance.is_some_and(|instance| instance.properties().translates.sequence_numbers)
        };
        let is_spliced = self.stages.get(first_stage..).unwrap_or(&[]).iter().any(is_splicer);
        Ok(Chain {
            name: chain.name.text.as_ref().into(),
            text: chain.body.to_string(),
            class,
            translates,
            is_spliced,
            l7,
        })
    }
}

fn set_after_translation(node: &mut Node) {
    if let Node::Function(function) | Node::Outputs { function, .. } | Node::StreamExit(function) = node {
        function.after_translation = true;
    }
}

/// Makes the instances, or takes them from the previous program.
fn instances(spec: &ProgramSpec<'_>) -> Result<Vec<Arc<Instance>>, ProgramError> {
    let mut instances: Vec<Arc<Instance>> = Vec::new();
    for (number, add) in spec.functions.iter().enumerate() {
        let item = ProgramItem::Function(number);
        let at = |word: &str, error| ProgramError { item, word: Some(word.to_owned()), error };
        if number >= MAX_ITEMS {
            return Err(at(&add.name, ChainError::TooMany { what: "functions", max: MAX_ITEMS }));
        }
        if instances.iter().any(|other| *other.name() == *add.name.text) {
            return Err(at(&add.name, ChainError::DuplicateFunction(add.name.text.to_string())));
        }
        let previous = spec.previous.and_then(|previous| previous.instance(&add.name));
        instances.push(match previous.filter(|previous| previous.is_made_by(add, spec.processes.domains)) {
            Some(previous) => previous.clone(),
            None => {
                let mut made = make(spec, add).map_err(|(word, error)| at(&word, error))?;
                if let Some(previous) = previous {
                    made.succeed(previous);
                }
                Arc::new(made)
            }
        });
    }
    Ok(instances)
}

/// Adds as many stream contexts as a path of a chain may need.
fn add_contexts(spec: &ProgramSpec<'_>, instances: &mut Vec<Arc<Instance>>) {
    let is_stream = |word: &str| {
        instances.iter().any(|instance| instance.name() == word && instance.function.is_stream())
    };
    let needed = spec.chains.iter().map(|chain| words(&chain.body).filter(|word| is_stream(word)).count());
    for number in 1..=needed.max().unwrap_or(0) {
        // No configured function can have such a name.
        let name = if number == 1 { "(stream)".to_owned() } else { format!("(stream {number})") };
        let previous = spec.previous.and_then(|previous| previous.instance(&name)).cloned();
        let new = || Instance::new(&name, &[], Box::new(StreamContext::new(spec.workers))).map(Arc::new);
        instances.extend(previous.map_or_else(new, Ok));
    }
}

/// Iterates over the names of functions in a body.
fn words(body: &mmb_lang::Body) -> Box<dyn Iterator<Item = &str> + '_> {
    Box::new(body.0.iter().flat_map(|step| {
        let arms = step.arms.iter().flat_map(|arm| words(&arm.body));
        step.function.as_deref().into_iter().chain(arms)
    }))
}

/// Makes an instance. An error comes with the word that it is about.
fn make(spec: &ProgramSpec<'_>, add: &NfInstance) -> Result<Instance, (String, ChainError)> {
    let args: Vec<&str> = add.args.iter().map(|word| &**word).collect();
    let ports = RefCell::new(Vec::new());
    let resolve_port = |name: &str| {
        let port = (spec.resolve_port)(name);
        ports.borrow_mut().extend(port.map(|port| (name.to_owned(), port)));
        port
    };
    // Copies in other processes get what the instance has read.
    let kept = add.process.is_some().then(|| Arc::new(spec.files.keeping()));
    let files = kept.as_ref().unwrap_or(spec.files);
    let setup = Setup {
        args: &args,
        resolve_port: &resolve_port,
        has_pool: spec.has_pool,
        workers: spec.workers,
        seed: spec.seed,
        files,
    };
    let name = add.kind.text.to_string();
    let Some(made) = spec.registry.make(&name, &setup) else {
        let types = spec.registry.types();
        let help =
            mmb_lang::suggest(&name, types.iter().map(|info| info.name), "`show functions` lists the types");
        return Err((name.clone(), ChainError::UnknownType { name, help }));
    };
    // The error may be about any argument: the first one stands for all.
    let made = made.and_then(|function| Instance::new(&add.name, &add.args, function));
    let mut instance =
        made.map_err(|error| (args.first().map_or(name, |word| (*word).to_owned()), error.into()))?;
    instance.set_workers(spec.workers);
    if let Some(place) = &add.process {
        start_process(spec, (add, place), &mut instance, (&ports.into_inner(), files))
            .map_err(|error| (place.domain.text.to_string(), error))?;
    }
    Ok(instance)
}

/// Starts the process of an instance with `process DOMAIN`.
fn start_process(
    spec: &ProgramSpec<'_>,
    (add, place): (&NfInstance, &ProcessPlace),
    instance: &mut Instance,
    (ports, files): (&[(String, u16)], &Arc<FileAccess>),
) -> Result<(), ChainError> {
    let ProcessSetup { domains, host } = spec.processes;
    let name = &place.domain;
    let Some(domain) = domains.iter().find(|domain| domain.name.text == name.text) else {
        let names = domains.iter().map(|domain| &*domain.name.text);
        let add = format!("`domain add {name} private` makes one");
        return Err(ChainError::UnknownDomain {
            name: name.to_string(),
            help: mmb_lang::suggest(name, names, &add),
        });
    };
    let name = || instance.name().to_owned();
    let process_use = process::process_use(&*instance.function, instance.properties());
    let ProcessUse { packets, brokers } =
        process_use.map_err(|reason| ChainError::NeedsWorker { name: name(), reason: reason.to_owned() })?;
    if brokers {
        if place.mode == ProcessMode::Poll && !packets {
            return Err(ChainError::L7Polls(name()));
        }
        let hosted = HostedSpec {
            name: name(),
            kind: add.kind.text.to_string(),
            args: add.args.iter().map(|word| word.to_string()).collect(),
            ports: ports.to_vec(),
            workers: 0,
            seed: spec.seed,
        };
        let copies = host.map(|_| Arc::new(FunctionCopies::new(instance.uid, hosted, files.clone())));
        instance.set_copies((domain, place), copies);
    }
    if !packets {
        return Ok(());
    }
    let name = || instance.name().to_owned();
    let process_spec = ProcessSpec {
        function: add,
        domain,
        mode: place.mode,
        cpu: place.cpu,
        ports,
        workers: spec.workers,
        seed: spec.seed,
        bytes: instance.bytes(),
        is_read_only: instance.properties().is_read_only,
        files,
        log: instance.function.lines(),
    };
    let process = host
        .map(|host| host.start(&process_spec))
        .transpose()
        .map_err(|reason| ChainError::NoProcess { name: name(), reason })?;
    instance.set_process((domain, place), process, !files.kept_inputs().is_empty());
    Ok(())
}
