//! A configuration from a file, as one value, and what sets two configurations apart.
//!
//! A file says what there is, not what to do: the order of its lines matters for the rules' indexes only. A file with
//! `interface add` lines describes the whole configuration. A file without is about rules: it keeps the interfaces,
//! wires and routed ports there are, and may wire, route, enable or disable them. Settings, NAT pools, network functions
//! and chains are part of the rules: what a file does not set is as it is without one, and pools, functions and chains that
//! it does not have go.

use std::collections::HashMap;

use mmb_lang::{Command, Diagnostic, ErrorPolicy, FileItem, PortKind, Rule, SourceSpan, Word};
use mmb_nf::ProgramItem;

use crate::api::{CheckReply, DiffReply};
use crate::config::{Config, Interface};
use crate::error::{Fault, Refusal, RefusalKind};
use crate::settings;

/// Most errors reported for one file; more would hide the first.
const ERROR_LIMIT: usize = 20;

/// The configuration that `text` describes when `base` runs. Interfaces that both have keep their ids, rules that both
/// have keep their slots, and so their counters, functions that both have stay the objects they are.
pub fn load(text: &[u8], base: &Config) -> Result<Config, Refusal> {
    let commands = mmb_lang::load_file(text).map_err(|errors| refusal(text, errors))?;
    let mut builder = Builder::new(base);
    let config = builder.build(commands);
    config.ok_or_else(|| {
        let mut errors = builder.errors;
        errors.sort_by_key(|d| (d.line, d.span.start));
        errors.truncate(ERROR_LIMIT);
        refusal(text, errors)
    })
}

/// Whether `text` is right as a configuration of its own, with functions made as `base` says.
pub fn check(text: &[u8], base: &Config) -> Result<CheckReply, Refusal> {
    let config = load(text, &Config::on(base.platform().clone()))?;
    Ok(CheckReply { rules: config.policy().len() as u64, interfaces: config.interfaces().len() as u64 })
}

/// Attaches to each error the line it is in.
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

/// A line as it can be shown. Bytes that are no UTF-8 become replacement characters; they stand behind the error, so
/// that its offsets still hold.
fn source_line(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

/// Puts a configuration together, going on after an error to report more than one.
struct Builder<'a> {
    base: &'a Config,
    config: Config,
    errors: Vec<Diagnostic>,
    /// The lines of instances and of chains, in their order.
    functions: Vec<u32>,
    chains: Vec<u32>,
}

impl<'a> Builder<'a> {
    fn new(base: &'a Config) -> Self {
        let config = Config::after(base);
        Builder { base, config, errors: Vec::new(), functions: Vec::new(), chains: Vec::new() }
    }

    fn build(&mut self, commands: Vec<FileItem<Command>>) -> Option<Config> {
        let whole = commands.iter().any(|c| matches!(c.item, Command::InterfaceAdd { .. }));
        if !whole {
            self.config = self.base.clone();
            self.config.unset();
        }
        // Lines that bring what others name.
        for c in &commands {
            match &c.item {
                Command::InterfaceAdd { name, kind } => self.note(c.line, |b| b.interface(name, kind)),
                Command::NatPoolAdd(pool) => self.note(c.line, |b| b.config.nat_mut().add_pool(pool)),
                Command::NfAdd(nf) => self.note(c.line, |b| {
                    b.config.put_function(nf)?;
                    b.functions.push(c.line);
                    Ok(())
                }),
                _ => {}
            }
        }
        let mut lines = Vec::new();
        let mut rules = Vec::new();
        for c in commands {
            match c.item {
                Command::InterfaceAdd { .. } | Command::NatPoolAdd(_) | Command::NfAdd(_) => {}
                Command::ChainAdd(chain) => self.note(c.line, |b| {
                    b.config.put_chain(&chain)?;
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
                Command::SetTcpPickup(on) => self.config.settings_mut().tcp_pickup = on,
                Command::SetTcpWindowCheck(on) => self.config.settings_mut().tcp_window_check = on,
                Command::SetXdpFastPath(on) => self.config.set_fast_path(on),
                Command::Add(rule) => {
                    lines.push(c.line);
                    rules.push(rule);
                }
                other => self.note(c.line, |_| Err(out_of_place(&other))),
            }
        }
        let compiled = self.compile();
        self.rules(&lines, &rules, compiled);
        self.errors.is_empty().then(|| self.config.clone())
    }

    fn note(&mut self, line: u32, step: impl FnOnce(&mut Self) -> Result<(), Fault>) {
        if let Err(fault) = step(self) {
            self.errors.push(fault.diagnostic.at_line(line));
        }
    }

    fn interface(&mut self, name: &Word, kind: &PortKind) -> Result<(), Fault> {
        self.config.add_interface(name, kind, Some(self.base)).map(drop)
    }

    /// Compiles functions and chains, if all lines were right so far. False: rules cannot be told what their chains take.
    fn compile(&mut self) -> bool {
        if !self.errors.is_empty() {
            return self.chains.is_empty();
        }
        if let Err((about, fault)) = self.config.compile(self.base.chains()) {
            let line = match about {
                ProgramItem::Function(n) => self.functions.get(n),
                ProgramItem::Chain(n) => self.chains.get(n),
            };
            self.errors.push(fault.diagnostic.at_line(line.copied().unwrap_or_default()));
            return false;
        }
        true
    }

    fn rules(&mut self, lines: &[u32], rules: &[Rule], compiled: bool) {
        let known = self.errors.len();
        for (rule, &line) in rules.iter().zip(lines) {
            self.note(line, |this| this.config.check_names(rule));
            if self.errors.len() >= ERROR_LIMIT {
                return;
            }
        }
        if self.errors.len() > known || !compiled {
            return;
        }
        let (ports, classes) =
            (|name: &str| self.config.resolve(name), |chain: &str| self.config.chains().class(chain));
        match self.base.policy().replace_with(rules, &ports, &classes) {
            Ok(policy) => self.config = self.config.with_policy(policy),
            Err((first, diagnostic)) => self.errors.push(diagnostic.at_line(lines[first])),
        }
    }
}

/// The error for a command that a file cannot hold.
fn out_of_place(command: &Command) -> Fault {
    let text = command.to_string();
    let word = text.split(' ').next().unwrap_or_default();
    Fault::invalid(
        format!("`{word}` is a command and has no place in a configuration file"),
        SourceSpan::default(),
    )
    .help(
        "a file says what there is and replaces what was; to run commands line by line: `mmb < FILE`"
            .to_owned(),
    )
}

/// The lines of a file that gives this configuration.
pub fn text(config: &Config) -> String {
    let mut text = String::new();
    for line in setting_lines(config) {
        text.push_str(&line);
        text.push('\n');
    }
    for view in config.policy().rules() {
        text.push_str(view.text);
        text.push('\n');
    }
    text
}

/// The lines about interfaces, wires, routed ports, settings, NAT, functions and chains.
fn setting_lines(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let word = |i: &Interface| Word::from(i.name.as_str());
    for i in config.interfaces() {
        lines.push(Command::InterfaceAdd { name: word(i), kind: i.kind.clone() }.to_string());
    }
    for i in config.interfaces() {
        // Each wire once, from the end that was added first.
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
    if config.fast_path() {
        lines.push(Command::SetXdpFastPath(true).to_string());
    }
    lines.extend(config.nat().lines());
    lines.extend(config.chains().lines());
    lines
}

/// What turns `old` into `new`.
pub fn diff(old: &Config, new: &Config) -> DiffReply {
    let (before, after) = (setting_lines(old), setting_lines(new));
    let mut reply = DiffReply {
        removed: before.iter().filter(|l| !after.contains(l)).cloned().collect(),
        added: after.iter().filter(|l| !before.contains(l)).cloned().collect(),
        reordered: false,
    };
    // Rules are compared as a bag: of equal ones (equal rules have equal text) as many stay as both have.
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for view in old.policy().rules() {
        *counts.entry(view.text).or_default() += 1;
    }
    let mut stay: HashMap<&str, usize> = HashMap::new();
    let mut kept_new = Vec::new();
    for view in new.policy().rules() {
        if take(&mut counts, view.text) {
            *stay.entry(view.text).or_default() += 1;
            kept_new.push(view.text);
        } else {
            reply.added.push(view.text.to_owned());
        }
    }
    let mut kept_old = Vec::new();
    for view in old.policy().rules() {
        if take(&mut stay, view.text) {
            kept_old.push(view.text);
        } else {
            reply.removed.push(view.text.to_owned());
        }
    }
    reply.reordered = kept_old != kept_new;
    reply
}

/// Takes one out of a bag, if it is in there.
fn take<'a>(bag: &mut HashMap<&'a str, usize>, text: &'a str) -> bool {
    match bag.get_mut(text) {
        Some(n) if *n > 0 => {
            *n -= 1;
            true
        }
        _ => false,
    }
}
