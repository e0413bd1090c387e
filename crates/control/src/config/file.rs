//! Configuration files: reading, writing and comparing.
//!
//! Theory of operation. A file describes a state, not steps: the order of its lines matters only for the
//! indexes of rules. A file with `interface add` lines describes the whole configuration. A file without them
//! keeps the interfaces, wires and routed ports of the running configuration, and may wire, route, enable or
//! disable them. Settings, NAT pools, network functions, chains and brokers belong to the rules: a setting
//! that is not in the file gets its default, and pools, functions, chains and brokers that are not in the
//! file are deleted.

use std::collections::HashMap;
use std::sync::Arc;

use mmb_dataplane::AddressChecks;
use mmb_lang::{
    Broker, Command, Diagnostic, ErrorPolicy, FastPathMode, FileItem, PortKind, ProcessMode, Rule,
    SourceSpan, Word,
};
use mmb_nf::ProgramItem;
use mmb_policy::{Policy, RuleTexts, SetTable};

use super::comments::{Comments, FileComments};
use super::{Config, Interface, PacketLog, rule_warnings, sets, settings};
use crate::api::{ApplyReply, CheckReply, DiffReply};
use crate::error::{CommandError, Refusal, RefusalKind};

/// Maximum number of errors reported for a file; more would hide the first.
const ERROR_LIMIT: usize = 20;

/// The configuration of the file `text`, as the successor of `base`. Interfaces that both have keep their
/// ids. Rules that both have keep their slots, and so their counters. Functions that both have keep their
/// state.
///
/// # Errors
/// Lines that are wrong.
pub fn load(text: &[u8], base: &Config) -> Result<Config, Refusal> {
    load_as(text, base, false)
}

/// The configuration of the file `text`, as [`load`] reads it. Interfaces that are not in the file are
/// removed, even if it has none.
///
/// # Errors
/// Lines that are wrong.
pub(crate) fn load_complete(text: &[u8], base: &Config) -> Result<Config, Refusal> {
    load_as(text, base, true)
}

fn load_as(text: &[u8], base: &Config, is_complete: bool) -> Result<Config, Refusal> {
    let commands = mmb_lang::load_file(text).map_err(|errors| refusal(text, errors))?;
    let comments = FileComments::read(text, &commands);
    let mut builder = Builder::new(base);
    let Some(mut config) = builder.build(commands, is_complete) else {
        let mut errors = builder.errors;
        errors.sort_by_key(|d| (d.line, d.span.start));
        errors.truncate(ERROR_LIMIT);
        return Err(refusal(text, errors));
    };
    config.comments = if comments.matter(&config.comments) {
        let snapshot = Snapshot::new(&config);
        comments.of_config(snapshot.lines_without_elements(), &config.comments)
    } else {
        Arc::default()
    };
    Ok(config)
}

/// Checks the file `text` as a complete configuration, with the platform of `base`.
///
/// # Errors
/// Lines that are wrong.
pub fn check(text: &[u8], base: &Config) -> Result<CheckReply, Refusal> {
    let config = load(text, &Config::with_platform(base.platform().clone()).without_processes())?;
    let (rules, interfaces) = (config.policy().len() as u64, config.interfaces().len() as u64);
    Ok(CheckReply { rules, interfaces, warnings: rule_warnings(config.policy()) })
}

/// The refusal for errors, each with the text of its line.
fn refusal(text: &[u8], errors: Vec<Diagnostic>) -> Refusal {
    let wanted: HashMap<u32, String> = {
        let last = errors.iter().map(|d| d.line).max().unwrap_or(0);
        let mut lines = HashMap::new();
        for (number, line) in (1..=last).zip(text.split(|&b| b == b'\n')) {
            if errors.iter().any(|d| d.line == number) {
                lines.insert(number, source_line(line));
            }
        }
        lines
    };
    Refusal::of(
        RefusalKind::Invalid,
        errors.into_iter().map(|d| {
            let source = wanted.get(&d.line).map_or("", String::as_str);
            (d, source)
        }),
    )
}

/// A line as text. Bytes that are not UTF-8 become replacement characters. They come after the place of the
/// error, so its offsets stay valid.
fn source_line(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

/// Builds a configuration. It goes on after an error, to report more than one.
struct Builder<'a> {
    base: &'a Config,
    config: Config,
    errors: Vec<Diagnostic>,
    /// Line numbers of instances.
    functions: Vec<u32>,
    /// Line numbers of chains.
    chains: Vec<u32>,
}

impl<'a> Builder<'a> {
    fn new(base: &'a Config) -> Self {
        let config = Config::successor(base);
        Builder { base, config, errors: Vec::new(), functions: Vec::new(), chains: Vec::new() }
    }

    /// `is_complete`: the commands describe the whole configuration, also without interfaces.
    fn build(&mut self, commands: Vec<FileItem<Command>>, is_complete: bool) -> Option<Config> {
        let has_interfaces = commands.iter().any(|c| matches!(c.item, Command::InterfaceAdd { .. }));
        if !is_complete && !has_interfaces {
            self.config = self.base.clone();
            self.config.reset_settings();
        }
        self.named_items(&commands);
        self.pools(&commands);
        self.sets(&commands);
        let (mut lines, mut rules, mut brokers) = (Vec::new(), Vec::new(), Vec::new());
        for c in commands {
            match c.item {
                Command::InterfaceAdd { .. }
                | Command::NatPoolAdd(_)
                | Command::DomainAdd(_)
                | Command::SetAdd(_)
                | Command::ElementAdd(_)
                | Command::NfAdd(_) => {}
                Command::BrokerAdd(broker) => brokers.push((c.line, broker)),
                Command::ChainAdd(chain) => self.note(c.line, |b| {
                    b.config.insert_chain(&chain)?;
                    b.chains.push(c.line);
                    Ok(())
                }),
                Command::NatForwardAdd(forward) => {
                    self.note(c.line, |b| b.config.nat_mut().add_forward(&forward));
                }
                Command::Wire { a, b } => self.note(c.line, |this| this.config.wire(&a, &b)),
                Command::Route(names) => self.note(c.line, |b| b.config.route(&names, Some(b.base))),
                Command::Enable(names) => self.note(c.line, |b| b.config.set_enabled(&names, true)),
                Command::Disable(names) => self.note(c.line, |b| b.config.set_enabled(&names, false)),
                Command::SetOnError(on_error) => self.config.set_on_error(on_error),
                Command::SetTimeout { timeout, seconds } => {
                    settings::set_timeout(self.config.settings_mut(), timeout, seconds);
                }
                Command::SetPuntLimit { class, rate } => self.config.punt_limits_mut().set(class, rate),
                Command::SetSessionLimit(limit) => {
                    self.config.settings_mut().source_limit = settings::source_limit(limit);
                }
                Command::SetHeldPackets { scope, packets } => {
                    *super::settings::held_limit_mut(&mut self.config.settings_mut().held, scope) = packets;
                }
                Command::SetTcpPickup(on) => self.config.settings_mut().tcp_pickup = on,
                Command::SetTcpWindowCheck(on) => self.config.settings_mut().tcp_window_check = on,
                Command::SetStreamPickup(pickup) => self.config.settings_mut().streams.pickup = pickup,
                Command::SetStreamOverflow(how) => self.config.settings_mut().streams.overflow = how,
                Command::SetStreamMptcp(how) => self.config.settings_mut().streams.mptcp = how,
                Command::SetStreamHoldTime(time) => self.config.settings_mut().streams.hold_time = time,
                Command::SetMartianCheck(on) => self.config.address_checks_mut().martians = on,
                Command::SetRpf(mode) => self.config.address_checks_mut().reverse_path = mode,
                Command::SetInterfaceRpf { mode, names } => {
                    self.note(c.line, |b| b.config.set_reverse_path(&names, mode));
                }
                Command::SetFastPath(mode) => self.config.set_fast_path(mode),
                Command::SetLogFormat(format) => self.config.packet_log_mut().format = format,
                Command::SetLogTo(sink) => self.config.packet_log_mut().sink = sink,
                Command::SetWorkerMode(mode) => self.config.set_worker_mode(mode),
                Command::SetGro(on) => self.config.set_gro(on),
                Command::Add(rule) => {
                    lines.push(c.line);
                    rules.push(rule);
                }
                other => self.note(c.line, |_| Err(not_allowed(&other))),
            }
        }
        let has_chains = self.compile();
        self.brokers(&brokers, has_chains);
        self.rules(&lines, &rules, has_chains);
        self.errors.is_empty().then(|| self.config.clone())
    }

    /// Runs a step, and notes its error with the line.
    fn note(&mut self, line: u32, step: impl FnOnce(&mut Self) -> Result<(), CommandError>) {
        if let Err(error) = step(self) {
            self.errors.push(error.diagnostic.at_line(line));
        }
    }

    fn interface(&mut self, name: &Word, kind: &PortKind) -> Result<(), CommandError> {
        self.config.add_interface(name, kind, Some(self.base)).map(drop)
    }

    /// Adds what other lines refer to.
    fn named_items(&mut self, commands: &[FileItem<Command>]) {
        for c in commands {
            match &c.item {
                Command::InterfaceAdd { name, kind } => self.note(c.line, |b| b.interface(name, kind)),
                Command::DomainAdd(domain) => self.note(c.line, |b| b.config.add_domain(domain)),
                Command::NfAdd(nf) => self.note(c.line, |b| {
                    b.config.insert_function(nf)?;
                    b.functions.push(c.line);
                    Ok(())
                }),
                _ => {}
            }
        }
    }

    /// Adds the pools, which may follow interfaces.
    fn pools(&mut self, commands: &[FileItem<Command>]) {
        for c in commands {
            if let Command::NatPoolAdd(pool) = &c.item {
                self.note(c.line, |b| b.config.add_pool(pool));
            }
        }
    }

    /// Adds the named sets and their elements.
    fn sets(&mut self, commands: &[FileItem<Command>]) {
        // Without rules, elements are added without being indexed.
        self.config = self.config.with_policy(Policy::new());
        for c in commands {
            if let Command::SetAdd(set) = &c.item {
                self.note(c.line, |b| b.config.add_set(set));
            }
        }
        for c in commands {
            if let Command::ElementAdd(added) = &c.item {
                self.note(c.line, |b| b.config.add_elements(added).map(drop));
            }
        }
        self.config.keep_temporary_elements(self.base.policy());
    }

    /// Compiles functions and chains, if there are no errors so far. False: the traffic of chains is not
    /// known.
    fn compile(&mut self) -> bool {
        if !self.errors.is_empty() {
            return self.chains.is_empty();
        }
        if let Err((about, error)) = self.config.compile(self.base.chains()) {
            let line = match about {
                ProgramItem::Function(n) => self.functions.get(n),
                ProgramItem::Chain(n) => self.chains.get(n),
            };
            self.errors.push(error.diagnostic.at_line(line.copied().unwrap_or_default()));
            return false;
        }
        true
    }

    fn brokers(&mut self, brokers: &[(u32, Broker)], has_chains: bool) {
        for (line, broker) in brokers.iter().filter(|_| has_chains) {
            self.note(*line, |b| b.config.insert_broker(broker, Some(b.base)));
        }
    }

    fn rules(&mut self, lines: &[u32], rules: &[Rule], has_chains: bool) {
        let known = self.errors.len();
        for (rule, &line) in rules.iter().zip(lines) {
            self.note(line, |this| this.config.check_references(rule));
            if self.errors.len() >= ERROR_LIMIT {
                return;
            }
        }
        if self.errors.len() > known || !has_chains {
            return;
        }
        let (ports, classes) =
            (|name: &str| self.config.port_of(name), |chain: &str| self.config.chains().class(chain));
        let base = self.base.policy();
        match base.replace_all(rules, self.config.policy().sets(), &ports, &classes) {
            Ok(policy) => self.config = self.config.with_policy(policy),
            Err((first, diagnostic)) => self.errors.push(diagnostic.at_line(lines[first])),
        }
    }
}

/// The error for a command that is not allowed in a file.
fn not_allowed(command: &Command) -> CommandError {
    let text = command.to_string();
    let word = text.split(' ').next().unwrap_or_default();
    let message = format!("`{word}` is a command, which a configuration file cannot contain");
    CommandError::invalid(message, SourceSpan::default())
        .help("a file describes a state; to run commands line by line: `mmb < FILE`".to_owned())
}

/// The text of a file with this configuration.
pub fn text(config: &Config) -> String {
    Snapshot::new(config).text()
}

/// The text of a file with this configuration, and with the elements of sets that have a time.
pub(crate) fn transferable_text(config: &Config) -> String {
    let mut text = text(config);
    for line in sets::temporary_lines(config.policy().sets()) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The configuration of a text that [`transferable_text`] has made, as the successor of `base`.
///
/// # Errors
/// Lines that are wrong.
pub fn load_transferred(text: &[u8], base: &Config) -> Result<Config, Refusal> {
    load_complete(text, base)
}

/// The lines of a configuration, as a file with it has them. Copies share their texts.
#[derive(Clone, Default)]
pub struct Snapshot {
    settings: Arc<[String]>,
    /// The named sets, whose elements without a deadline have lines.
    elements: SetTable,
    rules: RuleTexts,
    comments: Arc<Comments>,
}

impl Snapshot {
    /// The lines of a configuration. Settings that are those of `earlier` are shared with it.
    pub(crate) fn of(config: &Config, earlier: Option<&Snapshot>) -> Snapshot {
        let settings = setting_lines(config);
        let settings = match earlier {
            Some(earlier) if *earlier.settings == *settings => earlier.settings.clone(),
            _ => settings.into(),
        };
        let (rules, elements) = (config.policy().texts(), config.policy().sets().clone());
        Snapshot { settings, elements, rules, comments: config.comments.clone() }
    }

    /// Takes the elements of the sets of a configuration.
    pub(crate) fn set_elements(&mut self, config: &Config) {
        self.elements = config.policy().sets().clone();
    }

    /// The lines of elements that `other` does not have.
    fn elements_missing_in<'a>(&'a self, other: &'a Snapshot) -> impl Iterator<Item = String> + 'a {
        sets::lines_missing_in(&self.elements, &other.elements)
    }

    /// The lines of a configuration.
    pub fn new(config: &Config) -> Snapshot {
        Snapshot::of(config, None)
    }

    /// The lines other than those of elements.
    fn lines_without_elements(&self) -> impl Iterator<Item = &str> {
        self.settings.iter().map(String::as_str).chain(self.rules.iter())
    }

    /// The text of a file, with the comments of the file that was read.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut push = |line: &str| self.comments.push(line, &mut text);
        self.settings.iter().for_each(|line| push(line));
        sets::lines_missing_in(&self.elements, &SetTable::new()).for_each(|line| push(&line));
        self.rules.iter().for_each(push);
        self.comments.push_last(&mut text);
        text
    }
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Snapshot) -> bool {
        let has_same_elements = self.elements_missing_in(other).next().is_none()
            && other.elements_missing_in(self).next().is_none();
        self.settings == other.settings && self.rules == other.rules && has_same_elements
    }
}

/// The lines other than rules.
fn setting_lines(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let word = |i: &Interface| Word::from(i.name.as_str());
    for i in config.interfaces() {
        lines.push(Command::InterfaceAdd { name: word(i), kind: i.kind.clone() }.to_string());
    }
    for i in config.interfaces() {
        // A wire has one line, from the interface that was added first.
        if let Some(peer) = i.peer.and_then(|id| config.interface_by_id(id))
            && config.interfaces().iter().position(|x| x.id == i.id)
                < config.interfaces().iter().position(|x| x.id == peer.id)
        {
            lines.push(Command::Wire { a: word(i), b: word(peer) }.to_string());
        }
    }
    let routed = config.interfaces().iter().filter(|i| i.routed.is_some());
    lines.extend(routed.map(|i| Command::Route(vec![word(i)]).to_string()));
    let disabled = config.interfaces().iter().filter(|i| !i.enabled);
    lines.extend(disabled.map(|i| Command::Disable(vec![word(i)]).to_string()));
    if config.on_error() != ErrorPolicy::default() {
        lines.push(Command::SetOnError(config.on_error()).to_string());
    }
    lines.extend(settings::lines(config.settings()));
    lines.extend(settings::punt_lines(config.punt_limits()));
    let (checks, default) = (config.address_checks(), AddressChecks::default());
    if checks.martians != default.martians {
        lines.push(Command::SetMartianCheck(checks.martians).to_string());
    }
    if checks.reverse_path != default.reverse_path {
        lines.push(Command::SetRpf(checks.reverse_path).to_string());
    }
    for i in config.interfaces() {
        if i.reverse_path.is_some() {
            let command = Command::SetInterfaceRpf { mode: i.reverse_path, names: vec![word(i)] };
            lines.push(command.to_string());
        }
    }
    if config.fast_path() != FastPathMode::Off {
        lines.push(Command::SetFastPath(config.fast_path()).to_string());
    }
    let (log, default) = (config.packet_log(), PacketLog::default());
    if log.format != default.format {
        lines.push(Command::SetLogFormat(log.format).to_string());
    }
    if log.sink != default.sink {
        lines.push(Command::SetLogTo(log.sink).to_string());
    }
    if config.worker_mode() != ProcessMode::default() {
        lines.push(Command::SetWorkerMode(config.worker_mode()).to_string());
    }
    if !config.has_gro() {
        lines.push(Command::SetGro(false).to_string());
    }
    lines.extend(config.sets().iter().map(|set| Command::SetAdd(set.clone()).to_string()));
    lines.extend(config.nat().lines());
    lines.extend(config.chains().lines());
    lines.extend(config.brokers().lines());
    lines
}

/// Whether the file `text` has no command.
pub fn is_empty(text: &[u8]) -> bool {
    text.split(|&byte| byte == b'\n').all(|line| {
        std::str::from_utf8(line).is_ok_and(|line| matches!(mmb_lang::parse_line(line), Ok(None)))
    })
}

/// The lines of `old` other than rules that `new` does not have.
pub fn removed_settings(old: &Config, new: &Config) -> Vec<String> {
    let kept = setting_lines(new);
    let mut lines: Vec<String> = setting_lines(old).into_iter().filter(|line| !kept.contains(line)).collect();
    let elements = sets::lines_missing_in(old.policy().sets(), new.policy().sets());
    lines.extend(elements.take(ApplyReply::NAMED_RULES));
    lines
}

/// The changes from `old` to `new`.
pub fn diff(old: &Snapshot, new: &Snapshot) -> DiffReply {
    let missing = |from: &Snapshot, in_: &Snapshot| {
        from.settings.iter().filter(|line| !in_.settings.contains(line)).cloned().collect()
    };
    let mut reply = DiffReply { removed: missing(old, new), added: missing(new, old), reordered: false };
    reply.removed.extend(old.elements_missing_in(new));
    reply.added.extend(new.elements_missing_in(old));
    // Rules are compared as multisets of texts: equal rules have equal texts.
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for text in old.rules.iter() {
        *counts.entry(text).or_default() += 1;
    }
    let mut remaining: HashMap<&str, usize> = HashMap::new();
    let mut kept_new = Vec::new();
    for text in new.rules.iter() {
        if take(&mut counts, text) {
            *remaining.entry(text).or_default() += 1;
            kept_new.push(text);
        } else {
            reply.added.push(text.to_owned());
        }
    }
    let mut kept_old = Vec::new();
    for text in old.rules.iter() {
        if take(&mut remaining, text) {
            kept_old.push(text);
        } else {
            reply.removed.push(text.to_owned());
        }
    }
    reply.reordered = kept_old != kept_new;
    reply
}

/// Takes one item out of a multiset. False if it is not there.
fn take<'a>(items: &mut HashMap<&'a str, usize>, text: &'a str) -> bool {
    match items.get_mut(text) {
        Some(n) if *n > 0 => {
            *n -= 1;
            true
        }
        _ => false,
    }
}
