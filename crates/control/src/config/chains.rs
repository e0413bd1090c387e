//! Network functions and service chains as configured, and the program that is compiled of them.
//!
//! Theory of operation. Both are lists in the order of the lines that made them. Every change compiles all of them into one
//! immutable [`Program`], with the one before at hand: an instance whose name, type and arguments stay is the same object in
//! both, and so keeps what it knows. A program that cannot be is an error of the line that made it so. What a chain takes is
//! part of what the rules that name it match: the policy asks for it when rules come, and is told when it changes.

use std::sync::Arc;

use mmb_lang::{Action, Body, Chain, Command, Match, NfAdd, Rule, SourceSpan, Word};
use mmb_nf::{Instance, Order, Program, ProgramError, ProgramItem, ProgramSpec, Registry};

use super::{Config, port_of};
use crate::error::{Fault, RefusalKind};

/// What functions are made with, the same for as long as a daemon lives.
#[derive(Clone)]
pub struct Platform {
    /// The types there are.
    pub functions: Arc<Registry>,
    /// Workers that packets are shared among.
    pub workers: u16,
    /// For what is to look random.
    pub seed: u64,
    /// Bytes for functions in a session's scratchpad.
    pub scratchpad: usize,
}

impl Default for Platform {
    /// The built-in functions, one worker.
    fn default() -> Self {
        Platform {
            functions: Arc::new(mmb_nf_builtin::registry()),
            workers: 1,
            seed: 0,
            scratchpad: mmb_dataplane::DEFAULT_SCRATCHPAD,
        }
    }
}

/// Instances and chains, each in the order they were added, and their program.
#[derive(Clone, Default)]
pub struct Chains {
    functions: Vec<NfAdd>,
    chains: Vec<Chain>,
    program: Arc<Program>,
}

impl Chains {
    /// The instances.
    pub fn functions(&self) -> &[NfAdd] {
        &self.functions
    }

    /// The chains.
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// What the engine makes of them.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The chains that an instance stands in.
    pub fn with<'a>(&'a self, instance: &'a str) -> impl Iterator<Item = &'a Chain> {
        self.chains.iter().filter(move |chain| words(&chain.body).iter().any(|word| *word.text == *instance))
    }

    /// The lines of a file that give these instances and chains.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let functions = self.functions.iter().map(|nf| Command::NfAdd(nf.clone()).to_string());
        functions.chain(self.chains.iter().map(|chain| Command::ChainAdd(chain.clone()).to_string()))
    }

    /// The traffic that a chain takes; none: there is no such chain.
    pub fn class(&self, chain: &str) -> Option<Vec<Match>> {
        self.program.chain(chain).map(|id| self.program.class(id).to_vec())
    }

    fn function(&self, name: &str) -> Option<usize> {
        self.functions.iter().position(|nf| *nf.name == *name)
    }

    fn chain(&self, name: &str) -> Option<usize> {
        self.chains.iter().position(|chain| *chain.name == *name)
    }
}

/// A step of a change that may fail.
pub(crate) type Step = Result<(), Fault>;

impl Config {
    /// Network functions and chains.
    pub fn chains(&self) -> &Chains {
        &self.chains
    }

    /// What functions are made with.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// The running object of an instance.
    pub fn instance(&self, name: &Word) -> Result<&Arc<Instance>, Fault> {
        self.chains.program.instance(name).ok_or_else(|| self.unknown_function(name))
    }

    /// `nf add`.
    pub fn add_function(&mut self, nf: &NfAdd) -> Step {
        self.edit(|config| config.put_function(nf).map(Some))
    }

    /// `nf del`.
    pub fn delete_function(&mut self, name: &Word) -> Step {
        self.edit(|config| config.take_function(name).map(|()| None))
    }

    /// `chain add`.
    pub fn add_chain(&mut self, chain: &Chain) -> Step {
        self.edit(|config| config.put_chain(chain).map(Some))
    }

    /// `chain set`.
    pub fn set_chain(&mut self, chain: &Chain) -> Step {
        self.edit(|config| config.replace_chain(chain).map(Some))
    }

    /// `chain del`.
    pub fn delete_chain(&mut self, name: &Word) -> Step {
        self.edit(|config| config.take_chain(name).map(|()| None))
    }

    /// Changes instances or chains, and compiles them. `step` says what it changed: errors about that stand at its words.
    /// From now on rules match what their chains take.
    fn edit(&mut self, step: impl FnOnce(&mut Self) -> Result<Option<ProgramItem>, Fault>) -> Step {
        let before = self.chains.clone();
        let own = step(self)?;
        self.compile(&before).map_err(|(about, mut fault)| {
            if own != Some(about) {
                fault.diagnostic.span = Default::default();
            }
            fault
        })?;
        let mut named: Vec<String> = self.policy.chains().map(|(_, name)| name.to_owned()).collect();
        named.sort_unstable();
        named.dedup();
        named.retain(|name| before.class(name) != self.chains.class(name));
        named.iter().try_for_each(|name| self.reclass(name))
    }

    /// Adds an instance; to be followed by [`Config::compile`], as what stands below.
    pub(crate) fn put_function(&mut self, nf: &NfAdd) -> Result<ProgramItem, Fault> {
        let (name, types) = (&nf.name, self.platform.functions.types());
        if self.chains.function(name).is_some() {
            let fault = Fault::conflict(format!("there is a function `{}` already", &**name), name.span);
            return Err(fault.help(format!("`nf del {}` first", &**name)));
        }
        if types.iter().all(|kind| *kind.name != *nf.kind.text) {
            let names: Vec<&str> = types.iter().map(|kind| kind.name).collect();
            let message = format!("there is no type of function `{}`", &*nf.kind);
            let fault = Fault::new(RefusalKind::NotFound, message, nf.kind.span);
            return Err(fault.help(like(&nf.kind, &names)));
        }
        let functions = &mut Arc::make_mut(&mut self.chains).functions;
        functions.push(nf.clone());
        Ok(ProgramItem::Function(functions.len() - 1))
    }

    /// Removes an instance that stands in no chain.
    fn take_function(&mut self, name: &Word) -> Step {
        let at = self.chains.function(name).ok_or_else(|| self.unknown_function(name))?;
        if let Some(chain) = self.chains.with(name).next() {
            let message = format!("function `{}` stands in chain `{}`", &**name, &*chain.name);
            let out = format!("`chain set {0} …` without it first, or `chain del {0}`", &*chain.name);
            return Err(Fault::conflict(message, name.span).help(out));
        }
        Arc::make_mut(&mut self.chains).functions.remove(at);
        Ok(())
    }

    /// Adds a chain.
    pub(crate) fn put_chain(&mut self, chain: &Chain) -> Result<ProgramItem, Fault> {
        let name = &chain.name;
        if self.chains.chain(name).is_some() {
            let fault = Fault::conflict(format!("there is a chain `{}` already", &**name), name.span);
            return Err(fault.help(format!("`chain set {} …` replaces it", &**name)));
        }
        self.check_body(chain)?;
        let chains = &mut Arc::make_mut(&mut self.chains).chains;
        chains.push(chain.clone());
        Ok(ProgramItem::Chain(chains.len() - 1))
    }

    /// Puts a chain in the place of one that has its name.
    fn replace_chain(&mut self, chain: &Chain) -> Result<ProgramItem, Fault> {
        let at = self.chains.chain(&chain.name).ok_or_else(|| self.unknown_chain(&chain.name))?;
        self.check_body(chain)?;
        Arc::make_mut(&mut self.chains).chains[at] = chain.clone();
        Ok(ProgramItem::Chain(at))
    }

    /// Removes a chain that no rule names.
    fn take_chain(&mut self, name: &Word) -> Step {
        let at = self.chains.chain(name).ok_or_else(|| self.unknown_chain(name))?;
        if let Some((index, _)) = self.policy.chains().find(|(_, named)| **named == **name) {
            let text = self.policy.rule(index).map_or("", |view| view.text);
            let message = format!("chain `{}` is named by rule {index} (`{text}`)", &**name);
            return Err(Fault::conflict(message, name.span).help(format!("`del {index}` first")));
        }
        Arc::make_mut(&mut self.chains).chains.remove(at);
        Ok(())
    }

    /// Whether every function of a chain is there.
    fn check_body(&self, chain: &Chain) -> Step {
        let unknown = |word: &&Word| self.chains.function(word).is_none();
        words(&chain.body).into_iter().find(unknown).map_or(Ok(()), |word| Err(self.unknown_function(word)))
    }

    /// Compiles the program, in which instances of `before` that stay are the same ones. The error says which line it is
    /// about.
    pub(crate) fn compile(&mut self, before: &Chains) -> Result<(), (ProgramItem, Fault)> {
        let same = (&before.functions, &before.chains) == (&self.chains.functions, &self.chains.chains);
        let program = if same {
            // Sessions that have nothing to move to need not look.
            before.program.clone()
        } else {
            let compile = |order| {
                Program::compile(&ProgramSpec {
                    functions: &self.chains.functions,
                    chains: &self.chains.chains,
                    registry: &self.platform.functions,
                    resolve_port: &|name| self.resolve(name),
                    has_pool: &|name| self.nat.pool(name).is_some(),
                    workers: self.platform.workers,
                    seed: self.platform.seed,
                    previous: Some(&before.program),
                    scratchpad_limit: self.platform.scratchpad,
                    order,
                })
            };
            // What stands together in the order of use is read together; what is too much in that order may fit in another.
            let program = compile(Order::Maximal).or_else(|error| compile(Order::Compact).map_err(|_| error));
            Arc::new(program.map_err(|error| (error.item, self.fault_of(error)))?)
        };
        // Instances that stay were not asked again whether all that they name is there.
        for (n, instance) in program.instances().iter().enumerate() {
            let traits = instance.properties();
            let interface = traits.interfaces.iter().find(|name| self.interface(name).is_none());
            let pool = traits.pools.iter().find(|name| self.nat.pool(name).is_none());
            let gone = interface.map(|name| ("interface", name)).or(pool.map(|name| ("NAT pool", name)));
            if let Some((what, name)) = gone {
                let message =
                    format!("function `{}` uses {what} `{name}`, which is not there", instance.name());
                let at = self.chains.functions.get(n).map(|nf| nf.kind.span).unwrap_or_default();
                return Err((ProgramItem::Function(n), Fault::new(RefusalKind::NotFound, message, at)));
            }
        }
        Arc::make_mut(&mut self.chains).program = program;
        Ok(())
    }

    /// Makes the rules that name a chain match what it takes.
    fn reclass(&mut self, chain: &str) -> Step {
        let class = self.chains.class(chain).unwrap_or_default();
        let interfaces = self.interfaces.clone();
        let done = self.policy_mut().set_chain_class(chain, &class, &|name| port_of(&interfaces, name));
        let Err((index, error)) = done else { return Ok(()) };
        let text = self.policy.rule(index).map_or("", |view| view.text);
        let message = format!("rule {index} (`{text}`) could match nothing: {}", error.message);
        Err(Fault::conflict(message, SourceSpan::default()).help(format!("`del {index}` first")))
    }

    /// The error at the word that it is about, if that stands in its line.
    fn fault_of(&self, error: ProgramError) -> Fault {
        let at = match error.item {
            ProgramItem::Function(n) => self.chains.functions.get(n).map(|nf| nf.kind.span),
            ProgramItem::Chain(n) => self.chains.chains.get(n).map(|chain| {
                let mut names = Vec::new();
                gather(&chain.body, true, &mut names);
                let named = |word: &&&Word| error.word.as_deref() == Some(&***word);
                names.iter().rfind(named).map_or(chain.name.span, |word| word.span)
            }),
        };
        Fault::conflict(error.message, at.unwrap_or_default())
    }

    /// Whether no function uses an interface.
    pub(crate) fn check_no_function_on(&self, interface: &Word) -> Step {
        self.check_no_user("interface", interface, |i| &i.properties().interfaces)
    }

    /// Whether no function uses a NAT pool.
    pub(crate) fn check_no_function_of(&self, pool: &Word) -> Step {
        self.check_no_user("NAT pool", pool, |i| &i.properties().pools)
    }

    fn check_no_user(&self, what: &str, name: &Word, uses: fn(&Instance) -> &[String]) -> Step {
        let users = |i: &&Arc<Instance>| uses(i).iter().any(|used| **used == **name);
        let Some(user) = self.chains.program.instances().iter().find(users) else { return Ok(()) };
        let message = format!("{what} `{}` is used by function `{}`", &**name, user.name());
        Err(Fault::conflict(message, name.span).help(format!("`nf del {}` first", user.name())))
    }

    /// Whether every chain that the rule names is there.
    pub(crate) fn check_chains(&self, rule: &Rule) -> Step {
        let unknown = |name: &&Word| self.chains.chain(name).is_none();
        chains(rule).find(unknown).map_or(Ok(()), |name| Err(self.unknown_chain(name)))
    }

    fn unknown_function(&self, name: &Word) -> Fault {
        let known: Vec<&str> = self.chains.functions.iter().map(|nf| &*nf.name.text).collect();
        unknown("function", name, &known, || format!("`nf add {} TYPE …`", &**name))
    }

    fn unknown_chain(&self, name: &Word) -> Fault {
        let known: Vec<&str> = self.chains.chains.iter().map(|chain| &*chain.name.text).collect();
        unknown("chain", name, &known, || format!("`chain add {} FUNCTION …`", &**name))
    }
}

/// The error for a name that nothing of this kind has.
fn unknown(what: &str, name: &Word, known: &[&str], add: impl FnOnce() -> String) -> Fault {
    let fault = Fault::new(RefusalKind::NotFound, format!("there is no {what} `{}`", &**name), name.span);
    match known {
        [] => fault.help(format!("add it first: {}", add())),
        known => fault.help(like(name, known)),
    }
}

/// What may have been meant.
fn like(name: &str, known: &[&str]) -> String {
    mmb_lang::suggest(name, known.iter().copied(), &format!("there are: {}", known.join(", ")))
}

/// The instances that a chain names, in the order in which they stand.
fn words(body: &Body) -> Vec<&Word> {
    let mut all = Vec::new();
    gather(body, false, &mut all);
    all
}

/// Adds the names in a body: instances, and if wanted the labels of their outputs.
fn gather<'a>(body: &'a Body, labels: bool, all: &mut Vec<&'a Word>) {
    for step in &body.0 {
        all.extend(&step.function);
        for arm in &step.arms {
            all.extend(arm.label.iter().filter(|_| labels));
            // Lines have few brackets within brackets: the language sees to that.
            gather(&arm.body, labels, all);
        }
    }
}

/// The chains that a rule names.
fn chains(rule: &Rule) -> impl Iterator<Item = &Word> {
    rule.targets.iter().filter_map(|target| match &target.action {
        Action::Chain { name } => Some(name),
        _ => None,
    })
}
