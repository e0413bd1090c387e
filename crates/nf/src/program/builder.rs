//! From the language to bodies.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use mmb_classify::Classifier;
use mmb_lang as ast;
use mmb_lang::{BranchEnd, Match};

use super::class;
use super::errors::{ChainError, Located, fail};
use super::ir::{
    ArmTarget, BitField, Body, BodyId, DispatchArm, FunctionNode, GroupPlace, Node, SessionSpace, Splicer,
    Stage,
};
use super::path::{PathState, Translated};
use crate::{Instance, SessionKey};

/// Greatest nesting of brackets and functions `flow`.
const MAX_DEPTH: usize = 24;
/// Bits of the word in which a session remembers its branches.
const BRANCH_BITS: u8 = 32;

/// The state of a compilation.
pub(crate) struct Builder<'a> {
    pub instances: &'a [Arc<Instance>],
    pub resolve_port: &'a dyn Fn(&str) -> Option<u16>,
    pub names: HashMap<&'a str, u16>,
    /// Number of the first stream context among the instances.
    pub first_context: u16,
    /// Most stream contexts on a path.
    pub contexts: u16,
    pub bodies: Vec<Body>,
    /// Index of the sessions that each body's functions use.
    pub spaces_of: Vec<usize>,
    pub spaces: Vec<SessionSpace>,
    pub classes: Classifier,
    pub class_slots: HashMap<String, u32>,
    pub stages: Vec<Stage>,
    /// See [`crate::Program::apart`].
    pub apart: Vec<Vec<u16>>,
    /// The chain that is being compiled.
    pub chain: u16,
    /// Number of its dispatches so far.
    pub dispatches: u32,
    pub depth: usize,
}

impl Builder<'_> {
    /// Returns the traffic that all paths of a body accept, up to a function `flow`, whose sessions are
    /// others.
    pub fn class_of(&self, body: &ast::Body, depth: usize) -> Result<Vec<Match>, Located> {
        if depth > MAX_DEPTH {
            return Err(ChainError::TooDeep.into());
        }
        let mut all = Vec::new();
        for step in &body.0 {
            if let Some(word) = &step.function {
                let instance = &self.instances[usize::from(self.find(word)?)];
                if instance.flow().is_some() {
                    break;
                }
                class::extend(&mut all, instance.class());
            }
            let mut common: Option<Vec<Match>> = None;
            for arm in &step.arms {
                let of_arm = self.class_of(&arm.body, depth + 1)?;
                common = Some(match common {
                    None => of_arm,
                    Some(common) => common.into_iter().filter(|one| of_arm.contains(one)).collect(),
                });
            }
            class::extend(&mut all, &common.unwrap_or_default());
        }
        Ok(all)
    }

    pub fn find(&self, word: &str) -> Result<u16, Located> {
        match self.names.get(word) {
            Some(&at) => Ok(at),
            None => {
                let help = ast::suggest(word, self.names.keys().copied(), "`nf add` makes one");
                fail(word, ChainError::UnknownFunction { name: word.into(), help })
            }
        }
    }

    /// Compiles a body into the place that [`Builder::new_body`] has reserved.
    pub fn body(&mut self, at: BodyId, body: &ast::Body, path: &mut PathState) -> Result<(), Located> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ChainError::TooDeep.into());
        }
        self.spaces_of[usize::from(at)] = path.space;
        let mut forward = Vec::new();
        let steps = self.in_order(body);
        for (n, step) in steps.iter().enumerate() {
            if path.is_closed {
                let word = step.function.as_deref().unwrap_or("[");
                return fail(word, ChainError::Unreachable(word.into()));
            }
            let Some(word) = &step.function else {
                forward.push(self.dispatch(step, path)?);
                continue;
            };
            let number = self.find(word)?;
            if self.instances[usize::from(number)].flow().is_some() {
                if !step.arms.is_empty() {
                    return fail(word, ChainError::FlowHasNoOutputs(word.to_string()));
                }
                let rest = ast::Body(steps[n + 1..].to_vec());
                forward.push(self.flow(number, &rest, path)?);
                break;
            }
            let is_edited = self.is_edited(&steps, n, path);
            self.function((number, is_edited), step, path, &mut forward)?;
        }
        self.depth -= 1;
        self.number_groups(&mut forward, self.depth == 0);
        let reverse = self.with_exits(self.mirrored(&forward));
        let forward = self.with_exits(forward);
        let timeout = self.timeout(&forward);
        self.bodies[usize::from(at)] =
            Body { forward: forward.into(), reverse: reverse.into(), bytes: 0, timeout };
        Ok(())
    }

    /// Returns the steps of a body in the order in which packets meet them. A function that translates
    /// sequence numbers comes in front of others that translate: what it sends passes them. Stream functions
    /// in front of it come behind it: all of them read and edit the connection to the server, whose handshake
    /// they see.
    fn in_order(&self, body: &ast::Body) -> Vec<ast::Step> {
        let instance = |step: &ast::Step| {
            let number = step.function.as_ref().and_then(|word| self.names.get(&**word));
            number
                .and_then(|&number| self.instances.get(usize::from(number)))
                .filter(|_| step.arms.is_empty())
        };
        let translates = |step: &ast::Step| {
            instance(step).map(|one| one.properties().translates).filter(|translates| translates.any())
        };
        let is_stream = |step: &ast::Step| instance(step).is_some_and(|one| one.function.is_stream());
        let splices =
            |step: &ast::Step| translates(step).is_some_and(|translates| translates.sequence_numbers);
        let mut steps = body.0.clone();
        let translator = steps.iter().position(|step| translates(step).is_some());
        let (Some(first), Some(splicer)) = (translator, steps.iter().position(splices)) else { return steps };
        steps[first..=splicer].rotate_right(1);
        let behind = steps.split_off(first + 1);
        let splicer = steps.pop();
        let (streams, front): (Vec<_>, Vec<_>) = steps.into_iter().partition(is_stream);
        front.into_iter().chain(splicer).chain(streams).chain(behind).collect()
    }

    /// Reserves a body.
    pub fn new_body(&mut self) -> Result<BodyId, Located> {
        let number = BodyId::try_from(self.bodies.len());
        self.bodies.push(Body::default());
        self.spaces_of.push(0);
        number.map_err(|_| ChainError::TooMany { what: "bodies of chains", max: BodyId::MAX.into() }.into())
    }

    /// Returns the longest timeout of the functions. Those behind a `flow` are about other sessions.
    fn timeout(&self, nodes: &[Node]) -> Option<u32> {
        let of_arm = |target| match target {
            ArmTarget::Body(body) => self.bodies[usize::from(body)].timeout,
            ArmTarget::Drop => None,
        };
        let of_function =
            |node: &FunctionNode| self.instances[usize::from(node.instance)].properties().timeout;
        let of_node =
            |node: &Node| node.arms().filter_map(of_arm).chain(node.function().and_then(of_function)).max();
        nodes.iter().filter_map(of_node).max()
    }

    fn stage(&mut self, instance: u16) -> Result<u16, Located> {
        let what = "functions in chains";
        let number = u16::try_from(self.stages.len());
        let number = number.map_err(|_| ChainError::TooMany { what, max: u16::MAX.into() })?;
        self.stages.push(Stage { chain: self.chain, instance });
        Ok(number)
    }

    /// Appends an instance to a path.
    fn append(&mut self, number: u16, path: &mut PathState) -> Result<FunctionNode, Located> {
        let instance = &self.instances[usize::from(number)];
        path.check(number, instance, self.instances)?;
        let is_keyed = instance.properties().key != SessionKey::Session;
        let (bytes, align) = if is_keyed { (size_of::<u32>(), align_of::<u32>()) } else { instance.pad() };
        let layout = &mut self.spaces[path.space].layout;
        layout.add(number, bytes, align);
        path.last.iter().for_each(|&last| layout.edge(last, number));
        path.here.iter().for_each(|&before| layout.meet(before, number));
        let after_translation = path.translated != Translated::No;
        let is_stream = number >= self.first_context || instance.function.is_stream();
        let [.., splicer] = path.translators;
        let splicer = splicer.filter(|_| is_stream).map(|instance| Splicer { instance, offset: 0 });
        path.append(number, instance);
        let stage = self.stage(number)?;
        Ok(FunctionNode {
            instance: number,
            stage,
            offset: 0,
            bytes: bytes as u32,
            is_keyed,
            after_translation,
            keeps_bytes: false,
            edits: false,
            group: GroupPlace::default(),
            apart: None,
            splicer,
        })
    }

    /// Compiles a function, with its outputs if it has any. `is_edited`: it belongs to a group of stream
    /// functions of which one edits.
    fn function(
        &mut self,
        (number, is_edited): (u16, bool),
        step: &ast::Step,
        path: &mut PathState,
        nodes: &mut Vec<Node>,
    ) -> Result<(), Located> {
        let instance = self.instances[usize::from(number)].clone();
        let is_apart = instance.domain().is_some();
        if !class::is_implied(&path.implied, instance.class()) {
            return self.conditional(number, step, path, nodes);
        }
        // A function in a process has a context of its own: it may read bytes later than its neighbours.
        // Where one edits, all belong to a group, since each of them reads what those in front have left.
        let is_split = !is_edited && (is_apart || self.is_in_process(nodes.last()));
        if instance.function.is_stream() && (!self.is_in_stream(nodes.last()) || is_split) {
            let context = self.append(self.first_context + path.contexts, path)?;
            nodes.push(Node::Function(context));
            path.contexts += 1;
            if path.edits {
                return fail(instance.name(), ChainError::SplitEdits(instance.name().into()));
            }
            self.contexts = self.contexts.max(path.contexts);
        }
        if instance.function.edits() {
            if path.contexts > 1 {
                return fail(instance.name(), ChainError::SplitEdits(instance.name().into()));
            }
            path.edits = true;
        }
        if instance.function.is_stream() && is_apart {
            self.keep_room(nodes, number)?;
        }
        let node = self.append(number, path)?;
        let properties = instance.properties();
        let is_stream = instance.function.is_stream();
        if is_stream || properties.outputs.is_empty() {
            nodes.push(Node::Function(node));
        }
        if instance.function.reads_content() {
            self.keep_bytes(nodes);
        }
        if properties.outputs.is_empty() {
            if let Some(arm) = step.arms.first() {
                let label = arm.label.as_deref().unwrap_or("[");
                return fail(label, ChainError::NoOutputs(instance.name().into()));
            }
            if properties.translates.any() && path.translated == Translated::No {
                nodes.push(Node::Translate);
                path.translated = Translated::Yes;
            }
            return Ok(());
        }
        if properties.translates.any() {
            return fail(instance.name(), ChainError::TranslatesWithOutputs(instance.name().into()));
        }
        let node = self.outputs(node, &instance, step, path)?;
        nodes.push(node);
        Ok(())
    }

    /// Compiles the arms behind a function's outputs.
    fn outputs(
        &mut self,
        function: FunctionNode,
        instance: &Instance,
        step: &ast::Step,
        path: &mut PathState,
    ) -> Result<Node, Located> {
        let (arms, outputs) = super::arms::by_output(instance, step)?;
        let diverges = instance.properties().diverges;
        let width = if diverges { arms.len() } else { bits_for(arms.len()) };
        let branch = reserve_bits(path, width)?;
        let routes = instance.properties().routes;
        // Packets that the function passes go on behind the brackets, too.
        let mut ends = if routes { Vec::new() } else { vec![path.clone()] };
        let (mut targets, mut is_open, mut bits) = (Vec::new(), false, path.bits);
        let (mut seen, mut translated): (Vec<Vec<u16>>, Vec<_>) = Default::default();
        for arm in arms {
            let mut inside = path.clone();
            inside.bits = if diverges { bits } else { path.bits };
            // Behind a translation, the session will have other addresses than the function is asked about.
            let routes_here = routes && !function.after_translation;
            inside.unrouted = inside.unrouted.or((!routes_here).then_some(function.instance));
            let target = self.arm(arm, &mut inside)?;
            if target == ArmTarget::Drop && instance.function.is_stream() {
                return fail(instance.name(), ChainError::DropsChosen(instance.name().into()));
            }
            translated.push((target, inside.translated));
            bits = bits.max(inside.bits);
            let mine: Vec<u16> = inside.here.iter().copied().filter(|one| !path.here.contains(one)).collect();
            if diverges {
                self.separate(instance, &mine, &seen, inside.space)?;
            }
            seen.push(mine);
            targets.push(target);
            if target != ArmTarget::Drop && !inside.is_closed {
                is_open = true;
                ends.push(inside);
            }
        }
        self.balance_translation(&translated);
        path.join(ends);
        (path.is_closed, path.bits) = (!is_open, bits);
        let (outputs, arms) = (outputs.into(), targets.into());
        Ok(match instance.function.is_stream() {
            true => Node::Choice { function, branch, outputs, arms },
            false => Node::Outputs { function, branch, diverges, outputs, arms },
        })
    }

    /// Notes that packets of one session may be in all of these arms, so that no two functions share bytes.
    fn separate(
        &mut self,
        router: &Instance,
        mine: &[u16],
        others: &[Vec<u16>],
        space: usize,
    ) -> Result<(), Located> {
        for &other in others.iter().flatten() {
            if mine.contains(&other) {
                let (name, router) = (self.instances[usize::from(other)].name(), router.name().to_owned());
                return fail(name, ChainError::SharedBehindOutputs { name: name.into(), router });
            }
            mine.iter().for_each(|&one| self.spaces[space].layout.meet(one, other));
        }
        Ok(())
    }

    /// If some arms translate, adds a translation at the end of the others: rules may translate their
    /// sessions.
    fn balance_translation(&mut self, arms: &[(ArmTarget, Translated)]) {
        if arms.iter().all(|(_, translated)| *translated == Translated::No) {
            return;
        }
        for (target, translated) in arms {
            if let (ArmTarget::Body(number), Translated::No) = (target, translated) {
                let body = &mut self.bodies[usize::from(*number)];
                body.forward = body.forward.iter().cloned().chain([Node::Translate]).collect();
                body.reverse = [Node::Translate].into_iter().chain(body.reverse.iter().cloned()).collect();
            }
        }
    }

    fn arm(&mut self, arm: &ast::Branch, path: &mut PathState) -> Result<ArmTarget, Located> {
        if arm.end == BranchEnd::Drop {
            return Ok(ArmTarget::Drop);
        }
        let number = self.new_body()?;
        self.body(number, &arm.body, path)?;
        Ok(ArmTarget::Body(number))
    }

    /// Compiles brackets without a function: a dispatch by traffic class.
    fn dispatch(&mut self, step: &ast::Step, path: &mut PathState) -> Result<Node, Located> {
        let branch = reserve_bits(path, bits_for(step.arms.len()))?;
        let (mut arms, mut ends, mut translated, mut bits) = (Vec::new(), Vec::new(), Vec::new(), path.bits);
        let mut signature = self.signature();
        for (n, arm) in step.arms.iter().enumerate() {
            if let Some(label) = arm.label.as_deref().filter(|&label| label != "else") {
                return fail(label, ChainError::LabelWithoutFunction(label.into()));
            }
            let is_else = arm.label.is_some();
            let matches = if is_else { Vec::new() } else { self.class_of(&arm.body, self.depth)? };
            if matches.is_empty() && n + 1 < step.arms.len() {
                let word = arm.body.0.first().and_then(|step| step.function.as_deref()).unwrap_or("else");
                return fail(word, ChainError::ArmTakesAll(word.into()));
            }
            class::text(&matches).hash(&mut signature);
            let mut inside = path.clone();
            class::extend(&mut inside.implied, &matches);
            let target = self.arm(arm, &mut inside)?;
            translated.push((target, inside.translated));
            let class = if matches.is_empty() { None } else { Some(self.class(&matches)?) };
            bits = bits.max(inside.bits);
            arms.push(DispatchArm { class, target });
            if target != ArmTarget::Drop && !inside.is_closed {
                ends.push(inside);
            }
        }
        let implied = std::mem::take(&mut path.implied);
        let is_closed = ends.is_empty();
        self.balance_translation(&translated);
        path.join(ends);
        (path.is_closed, path.bits, path.implied) = (is_closed, bits, implied);
        Ok(Node::Dispatch { branch, arms: arms.into(), signature: signature.finish() })
    }

    /// Compiles a function that accepts only some of the sessions that reach it: the others pass by.
    fn conditional(
        &mut self,
        number: u16,
        step: &ast::Step,
        path: &mut PathState,
        nodes: &mut Vec<Node>,
    ) -> Result<(), Located> {
        let instance = self.instances[usize::from(number)].clone();
        path.check_class(number, &instance, self.instances)?;
        if instance.properties().translates.any() {
            let (name, class) = (instance.name().to_owned(), class::text(instance.class()));
            return fail(instance.name(), ChainError::TranslatesConditionally { name, class });
        }
        let branch = reserve_bits(path, bits_for(2))?;
        let mut signature = self.signature();
        instance.name().hash(&mut signature);
        let class = Some(self.class(instance.class())?);
        let (accepted, passed) = (self.new_body()?, self.new_body()?);
        let mut inside = path.clone();
        class::extend(&mut inside.implied, instance.class());
        self.body(accepted, &ast::Body(vec![step.clone()]), &mut inside)?;
        self.body(passed, &ast::Body::default(), &mut path.clone())?;
        let (accepted, passed) = (ArmTarget::Body(accepted), ArmTarget::Body(passed));
        let translated = [(accepted, inside.translated), (passed, path.translated)];
        let (implied, bits) = (std::mem::take(&mut path.implied), inside.bits);
        let outside = PathState { implied: Vec::new(), ..path.clone() };
        path.join(vec![outside, inside]);
        (path.implied, path.bits) = (implied, bits);
        self.balance_translation(&translated);
        let arms = [DispatchArm { class, target: accepted }, DispatchArm { class: None, target: passed }];
        nodes.push(Node::Dispatch { branch, arms: arms.into(), signature: signature.finish() });
        Ok(())
    }

    /// Compiles a function `flow` and everything behind it.
    fn flow(&mut self, number: u16, rest: &ast::Body, path: &mut PathState) -> Result<Node, Located> {
        let instance = self.instances[usize::from(number)].clone();
        path.check(number, &instance, self.instances)?;
        path.before.push(number);
        let known = self.spaces.iter().position(|sessions| sessions.flow == Some(number));
        let space = known.unwrap_or_else(|| {
            self.spaces.push(SessionSpace { flow: Some(number), ..SessionSpace::default() });
            self.spaces.len() - 1
        });
        let (stage, body) = (self.stage(number)?, self.new_body()?);
        let mut inside = path.behind_flow(number, space);
        self.body(body, rest, &mut inside)?;
        path.translated = inside.translated;
        path.before = inside.before;
        Ok(Node::Flow { instance: number, stage, body })
    }

    /// Begins the signature of the next dispatch.
    fn signature(&mut self) -> DefaultHasher {
        let mut signature = DefaultHasher::new();
        (self.chain, self.dispatches).hash(&mut signature);
        self.dispatches += 1;
        signature
    }

    /// Returns the slot of a traffic class in the classifier.
    fn class(&mut self, matches: &[Match]) -> Result<u32, Located> {
        let text = class::text(matches);
        if let Some(&slot) = self.class_slots.get(&text) {
            return Ok(slot);
        }
        let slot = class::insert(&mut self.classes, matches, self.resolve_port)?;
        self.class_slots.insert(text, slot);
        Ok(slot)
    }
}

/// Returns the bits that distinguish `n` arms and no arm.
fn bits_for(n: usize) -> usize {
    (usize::BITS - n.leading_zeros()) as usize
}

fn reserve_bits(path: &mut PathState, width: usize) -> Result<BitField, Located> {
    let shift = path.bits;
    let end = usize::from(shift) + width;
    if end > usize::from(BRANCH_BITS) {
        return Err(ChainError::TooManyBranches { bits: BRANCH_BITS }.into());
    }
    path.bits = end as u8;
    Ok(BitField { shift, width: width as u8 })
}
