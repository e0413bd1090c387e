//! From what is configured to a program.

use std::collections::HashMap;
use std::sync::Arc;

use mmb_classify::Classifier;
use mmb_lang::NfAdd;

use super::build::{Builder, Wrong};
use super::ir::{Body, BodyNo, Chain, End, Node, Sessions};
use super::way::Way;
use super::{Program, ProgramError, ProgramItem, ProgramSpec, class};
use crate::{Instance, Setup};

/// Most instances, and most chains.
const MOST: usize = 4096;

impl Program {
    /// Compiles chains.
    ///
    /// # Errors
    /// What cannot be, see [`ProgramError`].
    pub fn compile(what: &ProgramSpec<'_>) -> Result<Program, ProgramError> {
        let instances = instances(what)?;
        let numbers = instances.iter().zip(0u16..);
        let mut builder = Builder {
            instances: &instances,
            port: what.resolve_port,
            names: numbers.map(|(instance, number)| (instance.name(), number)).collect(),
            bodies: what.chains.iter().map(|_| Body::default()).collect(),
            spaces_of: vec![0; what.chains.len()],
            spaces: what.chains.first().map(|_| Sessions::default()).into_iter().collect(),
            classes: Classifier::new(),
            class_slots: HashMap::new(),
            stages: Vec::new(),
            chain: 0,
            dispatches: 0,
            depth: 0,
        };
        let mut chains: Vec<Chain> = Vec::new();
        for (number, chain) in what.chains.iter().enumerate() {
            let error =
                |(message, word): Wrong| ProgramError { item: ProgramItem::Chain(number), word, message };
            if number >= MOST || chains.iter().any(|other| *other.name == *chain.name.text) {
                let message = format!("there is a chain `{}` already, or {MOST} chains", chain.name.text);
                return Err(error((message, Some(chain.name.text.to_string()))));
            }
            chains.push(builder.chain(number, chain).map_err(error)?);
        }
        let Builder { bodies, spaces_of, spaces, classes, stages, .. } = builder;
        let mut program = Program {
            chains,
            bodies,
            spaces,
            spaces_of,
            classes,
            stages,
            limit: what.scratchpad_limit,
            instances,
        };
        program.lay_out(what)?;
        Ok(program)
    }

    /// Finds the places of all scratchpads.
    fn lay_out(&mut self, what: &ProgramSpec<'_>) -> Result<(), ProgramError> {
        let mut large = None;
        for sessions in &mut self.spaces {
            let laid = sessions.space.lay_out(what.order, what.scratchpad_limit);
            large = large.max(laid.err().map(|_| sessions.space.bytes()));
        }
        let Program { bodies, spaces, spaces_of, .. } = self;
        // Those that others lead to have higher numbers.
        for at in (0..bodies.len()).rev() {
            let space = &spaces[spaces_of[at]].space;
            let mut body = std::mem::take(&mut bodies[at]);
            let ends: Vec<_> = bodies.iter().map(|body| body.bytes).collect();
            for node in body.there.iter_mut().chain(&mut body.back) {
                let end =
                    settle(node, &ends, |instance| space.place(instance).map_or(0, |(offset, _)| offset));
                body.bytes = body.bytes.max(end);
            }
            bodies[at] = body;
        }
        large.map_or(Ok(()), |bytes| Err(self.too_large(bytes, what)))
    }

    fn too_large(&self, bytes: usize, what: &ProgramSpec<'_>) -> ProgramError {
        let chains = self.chains.iter().zip(&self.bodies).enumerate();
        let longest =
            chains.max_by_key(|(_, (_, body))| body.bytes).map(|(number, (chain, _))| (number, &*chain.name));
        let (number, name) = longest.unwrap_or((0, ""));
        let limit = what.scratchpad_limit;
        let message = format!(
            "chain `{name}` needs {bytes} bytes of scratchpad for each session, and there are {limit}: start mmb with \
             `--scratchpad {bytes}`, or have fewer functions on a way"
        );
        ProgramError { item: ProgramItem::Chain(number), word: None, message }
    }
}

/// Says where a node's scratchpad is; where its bytes end, and those of its arms.
fn settle(node: &mut Node, ends: &[usize], offset: impl Fn(u16) -> usize) -> usize {
    let of_arm = |end: &End| match end {
        End::Body(body) => ends[usize::from(*body)],
        End::Drop => 0,
    };
    match node {
        Node::Function(place) | Node::Outputs { place, .. } => {
            place.offset = offset(place.instance) as u32;
            let mine = (place.offset + place.bytes) as usize;
            match node {
                Node::Outputs { arms, .. } => arms.iter().map(of_arm).fold(mine, usize::max),
                _ => mine,
            }
        }
        Node::Class { arms, .. } => arms.iter().map(|arm| of_arm(&arm.end)).max().unwrap_or(0),
        Node::Translate | Node::Flow { .. } => 0,
    }
}

impl Builder<'_> {
    fn chain(&mut self, number: usize, chain: &mmb_lang::Chain) -> Result<Chain, Wrong> {
        (self.chain, self.dispatches, self.depth) = (number as u16, 0, 0);
        let class = self.class_of(&chain.body, 0)?;
        let mut way = Way { implied: class.clone(), ..Way::default() };
        let first = self.bodies.len();
        self.body(number as BodyNo, &chain.body, &mut way)?;
        if let Some(why) = class::contradiction(&class, &[]) {
            return Err((
                format!("no session can go through the chain, which takes `{}`: {why}", class::text(&class)),
                None,
            ));
        }
        let own = |at: usize| at == number || at >= first;
        let bodies = self.bodies.iter().enumerate().filter(|(at, _)| own(*at));
        let translates = bodies.flat_map(|(_, body)| &body.there).any(|node| matches!(node, Node::Translate));
        if !translates {
            // What rules translate is translated before the chain.
            let bodies = self.bodies.iter_mut().enumerate().filter(|(at, _)| own(*at));
            bodies.for_each(|(_, body)| body.there.iter_mut().chain(&mut body.back).for_each(stand_behind));
        }
        Ok(Chain { name: chain.name.text.as_ref().into(), text: chain.body.to_string(), class, translates })
    }
}

fn stand_behind(node: &mut Node) {
    if let Node::Function(place) | Node::Outputs { place, .. } = node {
        place.behind = true;
    }
}

/// The instances, those that stay from before.
fn instances(what: &ProgramSpec<'_>) -> Result<Vec<Arc<Instance>>, ProgramError> {
    let mut instances: Vec<Arc<Instance>> = Vec::new();
    for (number, add) in what.functions.iter().enumerate() {
        let error = |word: &str, message| ProgramError {
            item: ProgramItem::Function(number),
            word: Some(word.to_owned()),
            message,
        };
        if number >= MOST || instances.iter().any(|other| *other.name() == *add.name.text) {
            return Err(error(
                &add.name,
                format!("there is a function `{}` already, or {MOST} functions", add.name.text),
            ));
        }
        let old = what.previous.and_then(|before| before.instance(&add.name)).filter(|old| old.is(add));
        instances.push(match old {
            Some(old) => old.clone(),
            None => Arc::new(make(what, add).map_err(|(word, message)| error(&word, message))?),
        });
    }
    Ok(instances)
}

fn make(what: &ProgramSpec<'_>, add: &NfAdd) -> Result<Instance, (String, String)> {
    let words: Vec<&str> = add.args.iter().map(|word| &**word).collect();
    let setup = Setup {
        args: &words,
        resolve_port: what.resolve_port,
        has_pool: what.has_pool,
        workers: what.workers,
        seed: what.seed,
    };
    let kind = add.kind.text.to_string();
    let Some(made) = what.registry.make(&kind, &setup) else {
        let types = what.registry.types();
        let help =
            mmb_lang::suggest(&kind, types.iter().map(|info| info.name), "`show functions` lists the types");
        return Err((kind.clone(), format!("there is no type of function `{kind}`; {help}")));
    };
    // Whose fault it is may be any word: the type stands for all of them.
    let made = made.and_then(|function| Instance::new(&add.name, &add.args, function));
    made.map_err(|message| (words.first().map_or(kind, |word| (*word).to_owned()), message))
}
