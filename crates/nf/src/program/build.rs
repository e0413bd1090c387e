//! From the language to bodies.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use mmb_classify::Classifier;
use mmb_lang as ast;
use mmb_lang::{BranchEnd, Match};

use super::class;
use super::ir::{Bits, Body, BodyNo, ClassArm, End, Node, Place, Sessions, Stage};
use super::way::{Translated, Way};
use crate::{Instance, SessionKey};

/// Most brackets and functions `flow` within each other.
const DEPTH: usize = 24;
/// Most bits that say which ways a session has taken.
const WAYS: u8 = 32;

/// What is wrong with a chain, and the word of it.
pub(crate) type Wrong = (String, Option<String>);

pub(crate) fn wrong<T>(word: &str, message: String) -> Result<T, Wrong> {
    Err((message, Some(word.to_owned())))
}

/// What is being compiled.
pub(crate) struct Builder<'a> {
    pub instances: &'a [Arc<Instance>],
    pub port: &'a dyn Fn(&str) -> Option<u16>,
    pub names: HashMap<&'a str, u16>,
    pub bodies: Vec<Body>,
    /// Which sessions each body's functions have their scratchpads in.
    pub spaces_of: Vec<usize>,
    pub spaces: Vec<Sessions>,
    pub classes: Classifier,
    pub class_slots: HashMap<String, u32>,
    pub stages: Vec<Stage>,
    /// The chain at hand.
    pub chain: u16,
    /// Dispatches of it so far.
    pub dispatches: u32,
    pub depth: usize,
}

impl Builder<'_> {
    /// The traffic that all of a body's ways take; behind a function `flow`, sessions are others.
    pub fn class_of(&self, body: &ast::Body, depth: usize) -> Result<Vec<Match>, Wrong> {
        if depth > DEPTH {
            return Err(("the chain's brackets stand too deep in each other".to_owned(), None));
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

    fn find(&self, word: &str) -> Result<u16, Wrong> {
        match self.names.get(word) {
            Some(&at) => Ok(at),
            None => {
                let help = ast::suggest(word, self.names.keys().copied(), "`nf add` makes one");
                wrong(word, format!("there is no function `{word}`; {help}"))
            }
        }
    }

    /// Compiles a body, into the number that is kept for it.
    pub fn body(&mut self, at: BodyNo, body: &ast::Body, way: &mut Way) -> Result<(), Wrong> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(("the chain's brackets stand too deep in each other".to_owned(), None));
        }
        self.spaces_of[usize::from(at)] = way.space;
        let mut there = Vec::new();
        for (n, step) in body.0.iter().enumerate() {
            if way.is_closed {
                let what = step.function.as_deref().unwrap_or("[");
                return wrong(what, format!("nothing gets to `{what}`: all ways before it drop"));
            }
            match &step.function {
                Some(word) => {
                    let number = self.find(word)?;
                    if self.instances[usize::from(number)].flow().is_some() {
                        if !step.arms.is_empty() {
                            return wrong(
                                word,
                                format!("`{word}` is of type flow and has no outputs for brackets"),
                            );
                        }
                        let rest = ast::Body(body.0[n + 1..].to_vec());
                        there.push(self.flow(number, &rest, way)?);
                        break;
                    }
                    self.function(number, step, way, &mut there)?;
                }
                None => there.push(self.dispatch(step, way)?),
            }
        }
        self.depth -= 1;
        let back = there.iter().rev().cloned().collect();
        let timeout = self.timeout(&there);
        self.bodies[usize::from(at)] = Body { there: there.into(), back, bytes: 0, timeout };
        Ok(())
    }

    pub fn new_body(&mut self) -> Result<BodyNo, Wrong> {
        let number = BodyNo::try_from(self.bodies.len());
        self.bodies.push(Body::default());
        self.spaces_of.push(0);
        number.map_err(|_| ("there are too many chains".to_owned(), None))
    }

    /// The longest that some function wants; those behind a `flow` speak of other sessions.
    fn timeout(&self, nodes: &[Node]) -> Option<u32> {
        let of_arm = |end: &End| match end {
            End::Body(body) => self.bodies[usize::from(*body)].timeout,
            End::Drop => None,
        };
        let wants = |place: &Place| self.instances[usize::from(place.instance)].properties().timeout;
        nodes
            .iter()
            .filter_map(|node| match node {
                Node::Function(place) => wants(place),
                Node::Outputs { place, arms, .. } => arms.iter().filter_map(of_arm).chain(wants(place)).max(),
                Node::Class { arms, .. } => arms.iter().filter_map(|arm| of_arm(&arm.end)).max(),
                Node::Translate | Node::Flow { .. } => None,
            })
            .max()
    }

    fn stage(&mut self, instance: u16) -> Result<u16, Wrong> {
        let number = u16::try_from(self.stages.len())
            .map_err(|_| ("there are too many functions in chains".to_owned(), None))?;
        self.stages.push(Stage { chain: self.chain, instance });
        Ok(number)
    }

    /// Enters an instance at the end of a way.
    fn place(&mut self, number: u16, way: &mut Way) -> Result<Place, Wrong> {
        let instance = &self.instances[usize::from(number)];
        way.check(number, instance, self.instances)?;
        let keyed = instance.properties().key != SessionKey::Session;
        let (bytes, align) = if keyed { (size_of::<u32>(), align_of::<u32>()) } else { instance.pad() };
        let space = &mut self.spaces[way.space].space;
        space.add(number, bytes, align);
        way.last.iter().for_each(|&last| space.edge(last, number));
        way.here.iter().for_each(|&before| space.meet(before, number));
        let behind = way.translated != Translated::No;
        way.enter(number, instance);
        let stage = self.stage(number)?;
        Ok(Place { instance: number, stage, offset: 0, bytes: bytes as u32, keyed, behind })
    }

    /// A function, with its outputs if it has any.
    fn function(
        &mut self,
        number: u16,
        step: &ast::Step,
        way: &mut Way,
        nodes: &mut Vec<Node>,
    ) -> Result<(), Wrong> {
        let instance = self.instances[usize::from(number)].clone();
        if !class::implied(&way.implied, instance.class()) {
            return self.gate(number, step, way, nodes);
        }
        let place = self.place(number, way)?;
        let translates = instance.properties().translates;
        if instance.properties().outputs.is_empty() {
            if let Some(arm) = step.arms.first() {
                let label = arm.label.as_deref().unwrap_or("[");
                let message = format!(
                    "`{}` has no outputs, so that nothing can stand in brackets behind it",
                    instance.name()
                );
                return wrong(label, message);
            }
            nodes.push(Node::Function(place));
            if translates.any() && way.translated == Translated::No {
                nodes.push(Node::Translate);
                way.translated = Translated::Yes;
            }
            return Ok(());
        }
        if translates.any() {
            return wrong(
                instance.name(),
                format!("`{}` translates, which a function with outputs cannot", instance.name()),
            );
        }
        let node = self.outputs(place, &instance, step, way)?;
        nodes.push(node);
        Ok(())
    }

    /// The arms behind a function's outputs.
    fn outputs(
        &mut self,
        place: Place,
        instance: &Instance,
        step: &ast::Step,
        way: &mut Way,
    ) -> Result<Node, Wrong> {
        let (arms, outputs) = super::arms::by_output(instance, step)?;
        let diverges = instance.properties().diverges;
        let width = if diverges { arms.len() } else { bits_for(arms.len()) };
        let ways = take_bits(way, width)?;
        let routes = instance.properties().routes;
        // What the function lets pass goes on behind the bracket, too.
        let mut ways_on = if routes { Vec::new() } else { vec![way.clone()] };
        let (mut ends, mut joins, mut bits) = (Vec::new(), false, way.bits);
        let (mut seen, mut inner): (Vec<Vec<u16>>, Vec<_>) = Default::default();
        for arm in arms {
            let mut inside = way.clone();
            inside.bits = if diverges { bits } else { way.bits };
            // Behind a translation it would be asked about other addresses than the session then has.
            let tells = routes && !place.behind;
            inside.unrouted = inside.unrouted.or((!tells).then_some(place.instance));
            let end = self.arm(arm, &mut inside)?;
            inner.push((end, inside.translated));
            bits = bits.max(inside.bits);
            let mine: Vec<u16> = inside.here.iter().copied().filter(|one| !way.here.contains(one)).collect();
            if diverges {
                self.apart(instance, &mine, &seen, inside.space)?;
            }
            seen.push(mine);
            ends.push(end);
            if end != End::Drop && !inside.is_closed {
                joins = true;
                ways_on.push(inside);
            }
        }
        self.even_out(&inner);
        way.join(ways_on);
        (way.is_closed, way.bits) = (!joins, bits);
        Ok(Node::Outputs { place, ways, diverges, outputs: outputs.into(), arms: ends.into() })
    }

    /// Packets of one session may be in all of these arms.
    fn apart(
        &mut self,
        instance: &Instance,
        mine: &[u16],
        others: &[Vec<u16>],
        space: usize,
    ) -> Result<(), Wrong> {
        for &other in others.iter().flatten() {
            if mine.contains(&other) {
                let name = self.instances[usize::from(other)].name();
                let message = format!(
                    "`{name}` stands behind two outputs of `{}`, which one session may leave by both",
                    instance.name()
                );
                return wrong(name, message);
            }
            mine.iter().for_each(|&one| self.spaces[space].space.meet(one, other));
        }
        Ok(())
    }

    /// Where some arms translate, packets in the others are translated at the ends of these: rules may have said so.
    fn even_out(&mut self, arms: &[(End, Translated)]) {
        if arms.iter().all(|(_, translated)| *translated == Translated::No) {
            return;
        }
        for (end, translated) in arms {
            if let (End::Body(number), Translated::No) = (end, translated) {
                let body = &mut self.bodies[usize::from(*number)];
                body.there = body.there.iter().cloned().chain([Node::Translate]).collect();
                body.back = [Node::Translate].into_iter().chain(body.back.iter().cloned()).collect();
            }
        }
    }

    fn arm(&mut self, arm: &ast::Branch, way: &mut Way) -> Result<End, Wrong> {
        if arm.end == BranchEnd::Drop {
            return Ok(End::Drop);
        }
        let number = self.new_body()?;
        self.body(number, &arm.body, way)?;
        Ok(End::Body(number))
    }

    /// A parting of ways by what traffic a session is.
    fn dispatch(&mut self, step: &ast::Step, way: &mut Way) -> Result<Node, Wrong> {
        let ways = take_bits(way, bits_for(step.arms.len()))?;
        let (mut arms, mut ways_on, mut inner, mut bits) = (Vec::new(), Vec::new(), Vec::new(), way.bits);
        let mut sign = self.sign();
        for (n, arm) in step.arms.iter().enumerate() {
            let takes_all = arm.label.is_some();
            if let Some(label) = arm.label.as_deref().filter(|&label| label != "else") {
                return wrong(
                    label,
                    format!(
                        "`{label}:` is the output of no function; without a function, only `else:` is a label"
                    ),
                );
            }
            let matches = if takes_all { Vec::new() } else { self.class_of(&arm.body, self.depth)? };
            if matches.is_empty() && n + 1 < step.arms.len() {
                let what = arm.body.0.first().and_then(|step| step.function.as_deref()).unwrap_or("else");
                return wrong(
                    what,
                    format!(
                        "the way that begins with `{what}` takes all traffic, so that nothing is left for the next one"
                    ),
                );
            }
            class::text(&matches).hash(&mut sign);
            let mut inside = way.clone();
            class::extend(&mut inside.implied, &matches);
            let end = self.arm(arm, &mut inside)?;
            inner.push((end, inside.translated));
            let class = if matches.is_empty() { None } else { Some(self.class(&matches)?) };
            bits = bits.max(inside.bits);
            arms.push(ClassArm { class, end });
            if end != End::Drop && !inside.is_closed {
                ways_on.push(inside);
            }
        }
        let implied = std::mem::take(&mut way.implied);
        let closed = ways_on.is_empty();
        self.even_out(&inner);
        way.join(ways_on);
        (way.is_closed, way.bits, way.implied) = (closed, bits, implied);
        Ok(Node::Class { ways, arms: arms.into(), sign: sign.finish() })
    }

    /// A function that not all sessions which come by are for.
    fn gate(
        &mut self,
        number: u16,
        step: &ast::Step,
        way: &mut Way,
        nodes: &mut Vec<Node>,
    ) -> Result<(), Wrong> {
        let instance = self.instances[usize::from(number)].clone();
        way.check_class(number, &instance, self.instances)?;
        if instance.properties().translates.any() {
            let message = format!(
                "`{}` translates, but it does not take all the traffic that comes to it (only {}): put it into brackets with `else: pass`",
                instance.name(),
                class::text(instance.class())
            );
            return wrong(instance.name(), message);
        }
        let ways = take_bits(way, bits_for(2))?;
        let mut sign = self.sign();
        instance.name().hash(&mut sign);
        let class = Some(self.class(instance.class())?);
        let (gate, pass) = (self.new_body()?, self.new_body()?);
        let mut inside = way.clone();
        class::extend(&mut inside.implied, instance.class());
        self.body(gate, &ast::Body(vec![step.clone()]), &mut inside)?;
        self.body(pass, &ast::Body::default(), &mut way.clone())?;
        let (inside_translated, way_translated) = (inside.translated, way.translated);
        let (implied, bits) = (std::mem::take(&mut way.implied), inside.bits);
        let past = Way { implied: Vec::new(), ..way.clone() };
        way.join(vec![past, inside]);
        (way.implied, way.bits) = (implied, bits);
        self.even_out(&[(End::Body(gate), inside_translated), (End::Body(pass), way_translated)]);
        let arms = [ClassArm { class, end: End::Body(gate) }, ClassArm { class: None, end: End::Body(pass) }];
        nodes.push(Node::Class { ways, arms: arms.into(), sign: sign.finish() });
        Ok(())
    }

    /// A function `flow`, and all that stands behind it.
    fn flow(&mut self, number: u16, rest: &ast::Body, way: &mut Way) -> Result<Node, Wrong> {
        let instance = self.instances[usize::from(number)].clone();
        way.check(number, &instance, self.instances)?;
        way.before.push(number);
        let space =
            self.spaces.iter().position(|sessions| sessions.flow == Some(number)).unwrap_or_else(|| {
                self.spaces.push(Sessions { flow: Some(number), ..Sessions::default() });
                self.spaces.len() - 1
            });
        let (stage, body) = (self.stage(number)?, self.new_body()?);
        let mut inside = way.behind_flow(number, space);
        self.body(body, rest, &mut inside)?;
        way.translated = inside.translated;
        way.before = inside.before;
        Ok(Node::Flow { instance: number, stage, body })
    }

    /// What tells the next dispatch from others.
    fn sign(&mut self) -> DefaultHasher {
        let mut sign = DefaultHasher::new();
        (self.chain, self.dispatches).hash(&mut sign);
        self.dispatches += 1;
        sign
    }

    fn class(&mut self, matches: &[Match]) -> Result<u32, Wrong> {
        let text = class::text(matches);
        if let Some(&slot) = self.class_slots.get(&text) {
            return Ok(slot);
        }
        let slot = class::enter(&mut self.classes, matches, self.port)
            .map_err(|error| (format!("the traffic `{text}` cannot be told from other: {error}"), None))?;
        self.class_slots.insert(text, slot);
        Ok(slot)
    }
}

/// Bits for `n` arms, and for none of them.
fn bits_for(n: usize) -> usize {
    (usize::BITS - n.leading_zeros()) as usize
}

fn take_bits(way: &mut Way, width: usize) -> Result<Bits, Wrong> {
    let shift = way.bits;
    let end = usize::from(shift) + width;
    if end > usize::from(WAYS) {
        return Err((
            format!("there are too many brackets on one way: a session remembers its ways in {WAYS} bits"),
            None,
        ));
    }
    way.bits = end as u8;
    Ok(Bits { shift, width: width as u8 })
}
