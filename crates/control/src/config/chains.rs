//! Network functions and service chains, and the program compiled from them.
//!
//! Theory of operation. Both are lists in the order in which they were added. Every change compiles all of
//! them into one immutable [`Program`]. An instance whose name, type and arguments do not change is the same
//! object in the old and the new program, and so keeps its state. An error of the compiler is an error of the
//! line that caused it. The traffic of a chain is part of the matches of its rules: the policy gets it when a
//! rule is added, and again when it changes.

use std::sync::Arc;

use mmb_fabric::Supervisor;
use mmb_lang::{Body, Chain, Command, Domain, Match, NfInstance, Rule, SourceSpan, Word};
use mmb_nf::process::{ProcessHost, ProcessSetup};
use mmb_nf::{FileAccess, Instance, Order, Program, ProgramError, ProgramItem, ProgramSpec, Registry};

use super::interfaces::port_of;
use super::{Config, references};
use crate::error::CommandError;

/// What network functions are created with. It does not change while a daemon runs.
#[derive(Clone)]
pub struct Platform {
    /// The types of functions.
    pub functions: Arc<Registry>,
    /// Number of workers.
    pub workers: u16,
    /// Seed of random numbers.
    pub seed: u64,
    /// Bytes of a session's scratchpad.
    pub scratchpad: usize,
    /// The files that commands may name.
    pub files: Arc<FileAccess>,
    /// Starts functions in processes. None: they run in the workers.
    pub processes: Option<Arc<dyn ProcessHost>>,
    /// Starts brokers in processes. None: there are no such brokers.
    pub supervisor: Option<Arc<Supervisor>>,
}

impl Default for Platform {
    /// The built-in functions, one worker.
    fn default() -> Self {
        Platform {
            functions: Arc::new(mmb_nf_builtin::registry()),
            workers: 1,
            seed: 0,
            scratchpad: mmb_dataplane::DEFAULT_SCRATCHPAD,
            files: Arc::default(),
            processes: None,
            supervisor: None,
        }
    }
}

/// Instances and chains, each in the order in which they were added, and their program.
#[derive(Clone, Default)]
pub struct Chains {
    domains: Vec<Domain>,
    functions: Vec<NfInstance>,
    chains: Vec<Chain>,
    program: Arc<Program>,
}

impl Chains {
    /// The domains of functions in processes.
    pub fn domains(&self) -> &[Domain] {
        &self.domains
    }

    /// The instances.
    pub fn functions(&self) -> &[NfInstance] {
        &self.functions
    }

    /// The chains.
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// The program that the engine runs.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The chains with an instance.
    pub fn chains_of<'a>(&'a self, instance: &'a str) -> impl Iterator<Item = &'a Chain> {
        self.chains
            .iter()
            .filter(move |chain| functions_in(&chain.body).iter().any(|word| *word.text == *instance))
    }

    /// The lines of a file with these instances and chains.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let domains = self.domains.iter().map(|domain| Command::DomainAdd(domain.clone()).to_string());
        let functions = self.functions.iter().map(|nf| Command::NfAdd(nf.clone()).to_string());
        domains
            .chain(functions)
            .chain(self.chains.iter().map(|chain| Command::ChainAdd(chain.clone()).to_string()))
    }

    /// The traffic of a chain; none if there is no such chain.
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

impl Config {
    /// Network functions and chains.
    pub fn chains(&self) -> &Chains {
        &self.chains
    }

    /// What network functions are created with.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Returns the configuration for a comparison: it starts no process.
    pub fn without_processes(&self) -> Config {
        let mut config = self.clone();
        config.platform.processes = None;
        config
    }

    /// The object of an instance.
    ///
    /// # Errors
    /// There is no such instance.
    pub fn instance(&self, name: &Word) -> Result<&Arc<Instance>, CommandError> {
        self.chains.program.instance(name).ok_or_else(|| self.unknown_function(name))
    }

    /// `domain add`.
    pub fn add_domain(&mut self, domain: &Domain) -> Result<(), CommandError> {
        let name = &domain.name;
        if self.chains.domains.iter().any(|known| known.name.text == name.text) {
            let message = format!("there is a domain `{}` already", &**name);
            return Err(
                CommandError::conflict(message, name.span).help(format!("`domain del {}` first", &**name))
            );
        }
        Arc::make_mut(&mut self.chains).domains.push(domain.clone());
        Ok(())
    }

    /// `domain del`.
    pub fn delete_domain(&mut self, name: &Word) -> Result<(), CommandError> {
        let domains = &self.chains.domains;
        let Some(at) = domains.iter().position(|domain| domain.name.text == name.text) else {
            let known: Vec<&str> = domains.iter().map(|domain| &*domain.name.text).collect();
            return Err(unknown("domain", name, &known, || format!("`domain add {} private`", &**name)));
        };
        let is_user =
            |nf: &&NfInstance| nf.process.as_ref().is_some_and(|used| used.domain.text == name.text);
        if let Some(user) = self.chains.functions.iter().find(is_user) {
            let message = format!("domain `{}` is used by function `{}`", &**name, &*user.name);
            return Err(
                CommandError::conflict(message, name.span).help(format!("`nf del {}` first", &*user.name))
            );
        }
        Arc::make_mut(&mut self.chains).domains.remove(at);
        Ok(())
    }

    /// `nf add`.
    pub fn add_function(&mut self, nf: &NfInstance) -> Result<(), CommandError> {
        self.edit(|config| config.insert_function(nf).map(Some))
    }

    /// `nf del`.
    pub fn delete_function(&mut self, name: &Word) -> Result<(), CommandError> {
        self.edit(|config| config.remove_function(name).map(|()| None))
    }

    /// `chain add`.
    pub fn add_chain(&mut self, chain: &Chain) -> Result<(), CommandError> {
        self.edit(|config| config.insert_chain(chain).map(Some))
    }

    /// `chain set`.
    pub fn set_chain(&mut self, chain: &Chain) -> Result<(), CommandError> {
        self.edit(|config| config.replace_chain(chain).map(Some))
    }

    /// `chain del`.
    pub fn delete_chain(&mut self, name: &Word) -> Result<(), CommandError> {
        self.edit(|config| config.remove_chain(name).map(|()| None))
    }

    /// Changes instances or chains, compiles them, and updates the rules of chains whose traffic has changed.
    /// `change` returns what it added or replaced; an error about this keeps its place in the line.
    fn edit(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<Option<ProgramItem>, CommandError>,
    ) -> Result<(), CommandError> {
        let before = self.chains.clone();
        let changed = change(self)?;
        self.compile(&before).map_err(|(about, mut error)| {
            if changed != Some(about) {
                error.diagnostic.span = Default::default();
            }
            error
        })?;
        let mut used: Vec<String> = self.policy.chains().map(|(_, name)| name.to_owned()).collect();
        used.sort_unstable();
        used.dedup();
        used.iter().try_for_each(|name| self.check_packet_chain(name))?;
        self.check_broker_chains()?;
        used.retain(|name| before.class(name) != self.chains.class(name));
        used.iter().try_for_each(|name| self.update_class(name))
    }

    /// Inserts an instance. Call [`Config::compile`] after all changes.
    pub(super) fn insert_function(&mut self, nf: &NfInstance) -> Result<ProgramItem, CommandError> {
        let (name, types) = (&nf.name, self.platform.functions.types());
        if self.chains.function(name).is_some() {
            let message = format!("there is a function `{}` already", &**name);
            return Err(
                CommandError::conflict(message, name.span).help(format!("`nf del {}` first", &**name))
            );
        }
        if types.iter().all(|kind| *kind.name != *nf.kind.text) {
            let names: Vec<&str> = types.iter().map(|kind| kind.name).collect();
            let message = format!("there is no function type `{}`", &*nf.kind);
            return Err(CommandError::not_found(message, nf.kind.span).help(suggestion(&nf.kind, &names)));
        }
        let functions = &mut Arc::make_mut(&mut self.chains).functions;
        functions.push(nf.clone());
        Ok(ProgramItem::Function(functions.len() - 1))
    }

    /// Removes an instance that is in no chain.
    fn remove_function(&mut self, name: &Word) -> Result<(), CommandError> {
        let at = self.chains.function(name).ok_or_else(|| self.unknown_function(name))?;
        if let Some(chain) = self.chains.chains_of(name).next() {
            let message = format!("function `{}` is used by chain `{}`", &**name, &*chain.name);
            let help = format!("`chain set {0} …` without it first, or `chain del {0}`", &*chain.name);
            return Err(CommandError::conflict(message, name.span).help(help));
        }
        Arc::make_mut(&mut self.chains).functions.remove(at);
        Ok(())
    }

    /// Inserts a chain. Call [`Config::compile`] after all changes.
    pub(super) fn insert_chain(&mut self, chain: &Chain) -> Result<ProgramItem, CommandError> {
        let name = &chain.name;
        if self.chains.chain(name).is_some() {
            let message = format!("there is a chain `{}` already", &**name);
            return Err(CommandError::conflict(message, name.span)
                .help(format!("`chain set {} …` replaces it", &**name)));
        }
        self.check_body(chain)?;
        let chains = &mut Arc::make_mut(&mut self.chains).chains;
        chains.push(chain.clone());
        Ok(ProgramItem::Chain(chains.len() - 1))
    }

    /// Replaces the chain of the same name.
    fn replace_chain(&mut self, chain: &Chain) -> Result<ProgramItem, CommandError> {
        let at = self.chains.chain(&chain.name).ok_or_else(|| self.unknown_chain(&chain.name))?;
        self.check_body(chain)?;
        Arc::make_mut(&mut self.chains).chains[at] = chain.clone();
        Ok(ProgramItem::Chain(at))
    }

    /// Removes a chain that no rule uses.
    fn remove_chain(&mut self, name: &Word) -> Result<(), CommandError> {
        let at = self.chains.chain(name).ok_or_else(|| self.unknown_chain(name))?;
        if let Some((index, _)) = self.policy.chains().find(|(_, used)| **used == **name) {
            let text = self.policy.rule(index).map_or("", |view| view.text);
            let message = format!("chain `{}` is used by rule {index} (`{text}`)", &**name);
            return Err(CommandError::conflict(message, name.span).help(format!("`del {index}` first")));
        }
        self.check_chain_without_broker(name)?;
        Arc::make_mut(&mut self.chains).chains.remove(at);
        Ok(())
    }

    /// Checks that all functions of a chain exist.
    fn check_body(&self, chain: &Chain) -> Result<(), CommandError> {
        let is_unknown = |word: &&Word| self.chains.function(word).is_none();
        functions_in(&chain.body)
            .into_iter()
            .find(is_unknown)
            .map_or(Ok(()), |word| Err(self.unknown_function(word)))
    }

    /// Compiles the program. Instances of `before` that have not changed are reused.
    ///
    /// # Errors
    /// The function or chain that the error is about, and the error.
    pub(super) fn compile(&mut self, before: &Chains) -> Result<(), (ProgramItem, CommandError)> {
        let items =
            |chains: &'_ Chains| (chains.domains.clone(), chains.functions.clone(), chains.chains.clone());
        let same = items(before) == items(&self.chains);
        let program = if same {
            // The same program again: sessions need not be checked against a new one.
            before.program.clone()
        } else {
            let compile = |order| {
                Program::compile(&ProgramSpec {
                    functions: &self.chains.functions,
                    chains: &self.chains.chains,
                    registry: &self.platform.functions,
                    resolve_port: &|name| self.port_of(name),
                    has_pool: &|name| self.nat.pool(name).is_some(),
                    workers: self.platform.workers,
                    seed: self.platform.seed,
                    files: &self.platform.files,
                    processes: ProcessSetup {
                        domains: &self.chains.domains,
                        host: self.platform.processes.as_deref(),
                    },
                    previous: Some(&before.program),
                    scratchpad_limit: self.platform.scratchpad,
                    order,
                })
            };
            // In the order of use, bytes that are used together are adjacent. If that needs too many bytes, a
            // compact order may fit.
            let program = compile(Order::Maximal).or_else(|error| compile(Order::Compact).map_err(|_| error));
            Arc::new(program.map_err(|error| (error.item, self.program_error(error)))?)
        };
        self.check_uses(&program)?;
        Arc::make_mut(&mut self.chains).program = program;
        Ok(())
    }

    /// Checks that the interfaces and NAT pools of all instances exist. The compiler checks new instances
    /// only.
    fn check_uses(&self, program: &Program) -> Result<(), (ProgramItem, CommandError)> {
        for (n, instance) in program.instances().iter().enumerate() {
            let traits = instance.properties();
            let interface = traits.interfaces.iter().find(|name| self.interface(name).is_none());
            let pool = traits.pools.iter().find(|name| self.nat.pool(name).is_none());
            let missing = interface.map(|name| ("interface", name)).or(pool.map(|name| ("NAT pool", name)));
            if let Some((what, name)) = missing {
                let message =
                    format!("function `{}` uses {what} `{name}`, which does not exist", instance.name());
                let at = self.chains.functions.get(n).map(|nf| nf.kind.span).unwrap_or_default();
                return Err((ProgramItem::Function(n), CommandError::not_found(message, at)));
            }
        }
        Ok(())
    }

    /// Makes the rules of a chain match the traffic of the chain.
    fn update_class(&mut self, chain: &str) -> Result<(), CommandError> {
        let class = self.chains.class(chain).unwrap_or_default();
        let interfaces = self.interfaces.clone();
        let result = self.policy_mut().set_chain_class(chain, &class, &|name| port_of(&interfaces, name));
        let Err((index, error)) = result else { return Ok(()) };
        let text = self.policy.rule(index).map_or("", |view| view.text);
        let message = format!("rule {index} (`{text}`) would never match: {}", error.message);
        Err(CommandError::conflict(message, SourceSpan::default()).help(format!("`del {index}` first")))
    }

    /// The error of the compiler, placed at its word if the line has it.
    fn program_error(&self, error: ProgramError) -> CommandError {
        let at = match error.item {
            ProgramItem::Function(n) => self.chains.functions.get(n).map(|nf| nf.kind.span),
            ProgramItem::Chain(n) => self.chains.chains.get(n).map(|chain| {
                let mut names = Vec::new();
                collect_names(&chain.body, true, &mut names);
                let is_word = |word: &&&Word| error.word.as_deref() == Some(&***word);
                names.iter().rfind(is_word).map_or(chain.name.span, |word| word.span)
            }),
        };
        CommandError::conflict(error.to_string(), at.unwrap_or_default())
    }

    /// Checks that no function uses an interface.
    pub(super) fn check_interface_unused(&self, interface: &Word) -> Result<(), CommandError> {
        self.check_unused("interface", interface, |i| &i.properties().interfaces)
    }

    /// Checks that no function uses a NAT pool.
    pub(super) fn check_pool_unused(&self, pool: &Word) -> Result<(), CommandError> {
        self.check_unused("NAT pool", pool, |i| &i.properties().pools)
    }

    fn check_unused(
        &self,
        what: &str,
        name: &Word,
        uses: fn(&Instance) -> &[String],
    ) -> Result<(), CommandError> {
        let users = |i: &&Arc<Instance>| uses(i).iter().any(|used| **used == **name);
        let Some(user) = self.chains.program.instances().iter().find(users) else { return Ok(()) };
        let message = format!("{what} `{}` is used by function `{}`", &**name, user.name());
        Err(CommandError::conflict(message, name.span).help(format!("`nf del {}` first", user.name())))
    }

    /// Checks that all chains of a rule exist.
    pub(super) fn check_chains(&self, rule: &Rule) -> Result<(), CommandError> {
        let is_unknown = |name: &&Word| self.chains.chain(name).is_none();
        references::chains(rule).find(is_unknown).map_or(Ok(()), |name| Err(self.unknown_chain(name)))?;
        references::chains(rule).try_for_each(|name| {
            self.check_packet_chain(name).map_err(|mut error| {
                error.diagnostic.span = name.span.span();
                error
            })
        })
    }

    fn unknown_function(&self, name: &Word) -> CommandError {
        let known: Vec<&str> = self.chains.functions.iter().map(|nf| &*nf.name.text).collect();
        unknown("function", name, &known, || format!("`nf add {} TYPE …`", &**name))
    }

    pub(super) fn unknown_chain(&self, name: &Word) -> CommandError {
        let known: Vec<&str> = self.chains.chains.iter().map(|chain| &*chain.name.text).collect();
        unknown("chain", name, &known, || format!("`chain add {} FUNCTION …`", &**name))
    }
}

/// The error for a function or chain that does not exist.
pub(super) fn unknown(what: &str, name: &Word, known: &[&str], add: impl FnOnce() -> String) -> CommandError {
    let error = CommandError::not_found(format!("there is no {what} `{}`", &**name), name.span);
    match known {
        [] => error.help(format!("add it first: {}", add())),
        known => error.help(suggestion(name, known)),
    }
}

/// A known name that is similar, or all known names.
fn suggestion(name: &str, known: &[&str]) -> String {
    mmb_lang::suggest(name, known.iter().copied(), &format!("there are: {}", known.join(", ")))
}

/// The instances of a chain, in their order.
fn functions_in(body: &Body) -> Vec<&Word> {
    let mut all = Vec::new();
    collect_names(body, false, &mut all);
    all
}

/// Appends the names of a body: instances, and with `labels` the labels of their outputs.
fn collect_names<'a>(body: &'a Body, labels: bool, all: &mut Vec<&'a Word>) {
    for step in &body.0 {
        all.extend(&step.function);
        for arm in &step.arms {
            all.extend(arm.label.iter().filter(|_| labels));
            // The language limits how deep brackets are nested.
            collect_names(&arm.body, labels, all);
        }
    }
}
