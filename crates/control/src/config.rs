//! The configuration: interfaces, wires, routed ports, NAT pools, network functions, chains, settings and rules, as one
//! value.
//!
//! Theory of operation. A command works on a copy and the copy replaces the original when all of it has worked; a
//! command that fails therefore changes nothing. Copies are cheap: interfaces are behind a shared pointer, rules are a
//! [`Policy`], which shares all pages that a change does not touch. Nothing here opens a device or knows the engine.
//!
//! A port id belongs to an interface's *name* for as long as the name is configured, whether or not its device could
//! be opened. Compiled rules hold ids, so a device may come, go and be exchanged without any rule being compiled anew.

use std::sync::Arc;

use mmb_dataplane::{MAX_PORTS, PortId};
use mmb_flow::SessionSettings;
use mmb_lang::{Action, ErrorPolicy, Match, MatchExpr, PortKind, Rule, SourceSpan, Value, ValueItem, Word};
use mmb_policy::{Policy, RuleView};

use crate::error::{Fault, RefusalKind};
use crate::nat::Nat;

mod chains;
mod routing;

pub use chains::{Chains, Platform};
pub use routing::Routing;
pub(crate) use routing::{Device, DeviceKind, PUNT};

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name in the language.
    pub name: String,
    /// Its id in compiled rules and in the engine.
    pub id: PortId,
    /// What it is made of.
    pub kind: PortKind,
    /// The other end of its wire.
    pub peer: Option<PortId>,
    /// Whether rules apply to what comes in here.
    pub enabled: bool,
    /// How it is routed, if it is.
    pub routed: Option<Routing>,
}

/// Interfaces in the order they were added, wires, NAT pools, settings and rules.
#[derive(Clone, Default)]
pub struct Config {
    interfaces: Arc<Vec<Interface>>,
    nat: Arc<Nat>,
    policy: Policy,
    /// Counts the changes of the policy.
    revision: u64,
    on_error: ErrorPolicy,
    settings: SessionSettings,
    /// Settled flows between af-xdp interfaces stay in the kernel.
    fast_path: bool,
    /// The port of the TAP by which routed AF_XDP ports hand packets to the kernel; there is one if there are such ports.
    punt: Option<PortId>,
    chains: Arc<Chains>,
    platform: Platform,
}

impl Config {
    /// No interfaces, no rules.
    pub fn new() -> Config {
        Config::default()
    }

    /// No interfaces, no rules; network functions will be made with this.
    pub fn on(platform: Platform) -> Config {
        Config { platform, ..Config::default() }
    }

    /// No interfaces, no rules: the beginning of what is to come after `earlier`.
    pub(crate) fn after(earlier: &Config) -> Config {
        Config { revision: earlier.revision + 1, ..Config::on(earlier.platform.clone()) }
    }

    /// The interfaces, in the order they were added.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The interface called `name`.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|i| i.name == name)
    }

    /// The interface with this id.
    pub fn interface_by_id(&self, id: PortId) -> Option<&Interface> {
        self.interfaces.iter().find(|i| i.id == id)
    }

    /// The rules.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The rules, to change them.
    pub fn policy_mut(&mut self) -> &mut Policy {
        self.revision += 1;
        &mut self.policy
    }

    /// Whether the policy is `earlier`'s, of which this configuration came by changes.
    pub(crate) fn has_rules_of(&self, earlier: &Config) -> bool {
        self.revision == earlier.revision
    }

    /// Exchanges the policy for one with the same rules and another classifier.
    pub(crate) fn set_rebuilt(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// What becomes of packets whose edits cannot be made.
    pub fn on_error(&self) -> ErrorPolicy {
        self.on_error
    }

    /// Says what becomes of them.
    pub fn set_on_error(&mut self, on_error: ErrorPolicy) {
        self.on_error = on_error;
    }

    /// Whether settled flows between af-xdp interfaces stay in the kernel.
    pub fn fast_path(&self) -> bool {
        self.fast_path
    }

    /// Says whether they do.
    pub fn set_fast_path(&mut self, on: bool) {
        self.fast_path = on;
    }

    /// NAT pools and forwards.
    pub fn nat(&self) -> &Nat {
        &self.nat
    }

    /// The same, to change them.
    pub fn nat_mut(&mut self) -> &mut Nat {
        Arc::make_mut(&mut self.nat)
    }

    /// Removes a NAT pool that no rule and no function names.
    pub fn delete_pool(&mut self, name: &Word) -> Result<(), Fault> {
        let named = |view: &RuleView<'_>| {
            view.text.contains(&**name) && view.rule().is_ok_and(|rule| pools(&rule).any(|p| **p == **name))
        };
        if let Some(view) = self.policy.rules().find(named) {
            let message = format!("NAT pool `{}` is named by rule {} (`{}`)", &**name, view.index, view.text);
            return Err(Fault::conflict(message, name.span).help(format!("`del {}` first", view.index)));
        }
        self.check_no_function_of(name)?;
        self.nat_mut().delete_pool(name)
    }

    /// What is set about sessions.
    pub fn settings(&self) -> &SessionSettings {
        &self.settings
    }

    /// The same, to change it.
    pub fn settings_mut(&mut self) -> &mut SessionSettings {
        &mut self.settings
    }

    /// Takes back all that is set and all that is said about NAT, functions and chains.
    pub(crate) fn unset(&mut self) {
        self.chains = Arc::default();
        self.on_error = ErrorPolicy::default();
        self.settings = SessionSettings::default();
        self.fast_path = false;
        self.nat = Arc::default();
    }

    /// The id that `name` stands for in `in` and `out`.
    pub fn resolve(&self, name: &str) -> Option<u16> {
        port_of(&self.interfaces, name)
    }

    /// The same interfaces, wires, NAT pools and settings, with other rules.
    pub fn with_policy(&self, policy: Policy) -> Config {
        Config { policy, revision: self.revision + 1, ..self.clone() }
    }

    /// Whether every interface, every NAT pool and every chain that the rule names is there.
    pub fn check_names(&self, rule: &Rule) -> Result<(), Fault> {
        if let Some(name) = names(rule).find(|name| self.interface(name).is_none()) {
            return Err(self.unknown(name, name.span));
        }
        match pools(rule).find(|name| self.nat.pool(name).is_none()) {
            Some(name) => Err(self.nat.unknown_pool(name)),
            None => self.check_chains(rule),
        }
    }

    /// Whether every interface that the matches name is there.
    pub fn check_matches(&self, matches: &[Match]) -> Result<(), Fault> {
        match matched_names(matches).find(|name| self.interface(name).is_none()) {
            Some(name) => Err(self.unknown(name, name.span)),
            None => Ok(()),
        }
    }

    /// Adds a rule; its index.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<u32, Fault> {
        self.check_names(rule)?;
        let (interfaces, chains) = (self.interfaces.clone(), self.chains.clone());
        let resolve = |name: &str| port_of(&interfaces, name);
        Ok(self.policy_mut().add_with(rule, &resolve, &|chain| chains.class(chain))?)
    }

    /// Adds an interface. Its id is the one that its name has in `earlier`, else the lowest that is free both here and
    /// there.
    pub fn add_interface(
        &mut self,
        name: &Word,
        kind: &PortKind,
        earlier: Option<&Config>,
    ) -> Result<PortId, Fault> {
        if self.interface(name).is_some() {
            return Err(Fault::conflict(format!("there is an interface `{}` already", &**name), name.span));
        }
        self.check_device(name, kind)?;
        let keep = earlier.and_then(|earlier| earlier.interface(name)).map(|i| i.id);
        let id = keep
            .filter(|&id| !self.has_port(id))
            .or_else(|| self.free_ports(earlier).next())
            .ok_or_else(|| no_room(name.span))?;
        let kind = kind.clone();
        let interface =
            Interface { name: name.to_string(), id, kind, peer: None, enabled: true, routed: None };
        Arc::make_mut(&mut self.interfaces).push(interface);
        Ok(id)
    }

    /// Gives an interface another device.
    pub fn set_kind(&mut self, name: &Word, kind: &PortKind) -> Result<(), Fault> {
        let at = self.position(name)?;
        self.check_device(name, kind)?;
        Arc::make_mut(&mut self.interfaces)[at].kind = kind.clone();
        if self.interfaces[at].routed.is_some() { self.settle(at, name, None) } else { Ok(()) }
    }

    /// Whether what `name` shall be made of is free.
    fn check_device(&self, name: &Word, kind: &PortKind) -> Result<(), Fault> {
        let others = || self.interfaces.iter().filter(|i| i.name != **name);
        if let Some(other) = others().find(|i| same_device(&i.kind, kind)) {
            let message = format!("{} is in use already, by interface `{}`", device_text(kind), other.name);
            return Err(Fault::conflict(message, name.span));
        }
        match kernel_interface(kind).and_then(|ifname| self.ours_in_kernel(ifname)) {
            Some(whose) => {
                Err(Fault::conflict(format!("{} is in use already: {whose}", device_text(kind)), name.span))
            }
            None => Ok(()),
        }
    }

    /// Removes an interface that no wire, no rule and no function names.
    pub fn delete_interface(&mut self, name: &Word) -> Result<PortId, Fault> {
        let at = self.position(name)?;
        let interface = &self.interfaces[at];
        if let Some(peer) = interface.peer.and_then(|id| self.interface_by_id(id)) {
            let message = format!("interface `{}` is wired to `{}`", interface.name, peer.name);
            return Err(
                Fault::conflict(message, name.span).help(format!("`wire del {}` first", interface.name))
            );
        }
        if interface.routed.is_some() {
            let fault = Fault::conflict(format!("interface `{}` is routed", interface.name), name.span);
            return Err(fault.help(format!("`route del {}` first", interface.name)));
        }
        if let Some(view) = self.policy.rules().find(|view| rule_names(view, &interface.name)) {
            let message =
                format!("interface `{}` is named by rule {} (`{}`)", interface.name, view.index, view.text);
            return Err(Fault::conflict(message, name.span).help(format!("`del {}` first", view.index)));
        }
        self.check_no_function_on(name)?;
        let id = self.interfaces[at].id;
        Arc::make_mut(&mut self.interfaces).remove(at);
        Ok(id)
    }

    /// Connects two interfaces. Connecting what is connected already is no error.
    pub fn wire(&mut self, a: &Word, b: &Word) -> Result<(), Fault> {
        let (i, j) = (self.position(a)?, self.position(b)?);
        if i == j {
            return Err(Fault::invalid(format!("interface `{}` cannot be wired to itself", &**a), b.span));
        }
        let (first, second) = (self.interfaces[i].id, self.interfaces[j].id);
        for (word, at, other) in [(a, i, second), (b, j, first)] {
            let Some(peer) = self.interfaces[at].peer.filter(|&p| p != other) else { continue };
            let peer = self.interface_by_id(peer).map_or("?", |p| &p.name);
            let message = format!("interface `{}` is wired to `{peer}` already", &**word);
            return Err(Fault::conflict(message, word.span).help(format!("`wire del {}` first", &**word)));
        }
        for (word, at) in [(a, i), (b, j)] {
            if self.interfaces[at].routed.is_some() {
                let message = format!("interface `{}` is routed, and so has no wire", &**word);
                return Err(
                    Fault::conflict(message, word.span).help(format!("`route del {}` first", &**word))
                );
            }
        }
        let interfaces = Arc::make_mut(&mut self.interfaces);
        interfaces[i].peer = Some(second);
        interfaces[j].peer = Some(first);
        Ok(())
    }

    /// Undoes the wire that `a` is an end of; the name of the other end.
    pub fn unwire(&mut self, a: &Word) -> Result<String, Fault> {
        let i = self.position(a)?;
        let Some(peer) = self.interfaces[i].peer else {
            return Err(Fault::conflict(format!("interface `{}` is not wired", &**a), a.span));
        };
        let interfaces = Arc::make_mut(&mut self.interfaces);
        interfaces[i].peer = None;
        let mut name = String::new();
        for other in interfaces.iter_mut().filter(|o| o.id == peer) {
            other.peer = None;
            name.clone_from(&other.name);
        }
        Ok(name)
    }

    /// Says whether rules apply to what comes in at these interfaces.
    pub fn set_enabled(&mut self, names: &[Word], enabled: bool) -> Result<(), Fault> {
        let positions = names.iter().map(|n| self.position(n)).collect::<Result<Vec<_>, _>>()?;
        let interfaces = Arc::make_mut(&mut self.interfaces);
        for at in positions {
            interfaces[at].enabled = enabled;
        }
        Ok(())
    }

    fn position(&self, name: &Word) -> Result<usize, Fault> {
        self.interfaces.iter().position(|i| i.name == **name).ok_or_else(|| self.unknown(name, name.span))
    }

    /// The error for a name that no interface has.
    fn unknown(&self, name: &str, at: SourceSpan) -> Fault {
        let fault = Fault::new(RefusalKind::NotFound, format!("there is no interface `{name}`"), at);
        let known: Vec<_> = self.interfaces.iter().map(|i| i.name.as_str()).collect();
        match known.as_slice() {
            [] => fault.help("add it first: `interface add NAME KIND …`".to_owned()),
            known => fault.help(format!("there are: {}", known.join(", "))),
        }
    }
}

/// The id of the interface called `name`.
fn port_of(interfaces: &[Interface], name: &str) -> Option<u16> {
    interfaces.iter().find(|i| i.name == name).map(|i| i.id.0)
}

/// The error where no port id is free.
fn no_room(at: SourceSpan) -> Fault {
    let message =
        format!("there are {MAX_PORTS} ports already, the most there can be; twins of routed ones count too");
    Fault::conflict(message, at)
}

/// Whether a rule names the interface. Most rules are told apart by their text, without parsing it.
fn rule_names(view: &RuleView<'_>, interface: &str) -> bool {
    view.text.contains(interface) && view.rule().is_ok_and(|rule| names(&rule).any(|n| **n == *interface))
}

/// The interfaces that a rule names.
fn names(rule: &Rule) -> impl Iterator<Item = &Word> {
    let written = rule.targets.iter().filter_map(|t| match &t.action {
        Action::Mod { value, .. } => Some(value),
        _ => None,
    });
    matched_names(&rule.matches).chain(interfaces_of(written))
}

/// The interfaces that matches name.
fn matched_names(matches: &[Match]) -> impl Iterator<Item = &Word> {
    let items = matches.iter().filter_map(|m| match &m.what {
        MatchExpr::Field { arg: Some(arg), .. } => Some(arg.values.iter()),
        _ => None,
    });
    interfaces_of(items.flatten().flat_map(|item| match item {
        ValueItem::Single(value) => std::slice::from_ref(value),
        ValueItem::Range(ends) => ends.as_slice(),
    }))
}

fn interfaces_of<'a>(values: impl Iterator<Item = &'a Value>) -> impl Iterator<Item = &'a Word> {
    values.filter_map(|value| match value {
        Value::Iface(word) => Some(word),
        _ => None,
    })
}

/// The NAT pools that a rule names.
fn pools(rule: &Rule) -> impl Iterator<Item = &Word> {
    rule.targets.iter().filter_map(|t| match &t.action {
        Action::Nat { pool } => Some(pool),
        _ => None,
    })
}

/// Whether two kinds stand for the same device, which can be open once only.
pub fn same_device(a: &PortKind, b: &PortKind) -> bool {
    matches!((device(a), device(b)), (Some(a), Some(b)) if a == b)
}

/// What kernel interfaces are called among devices.
const INTERFACE: &str = "interface";

fn device(kind: &PortKind) -> Option<(&'static str, &str)> {
    match kind {
        PortKind::AfXdp { ifname } | PortKind::AfPacket { ifname } => Some((INTERFACE, ifname)),
        PortKind::Tap { ifname } => ifname.as_deref().map(|name| (INTERFACE, name)),
        PortKind::Pci { address } => Some(("card", address)),
        PortKind::Memif { socket } => Some(("memif socket", socket)),
        PortKind::Pcap { tx, .. } => Some(("capture file", tx)),
        PortKind::Null => None,
    }
}

/// The kernel interface that a port is on.
fn kernel_interface(kind: &PortKind) -> Option<&str> {
    device(kind).filter(|(what, _)| *what == INTERFACE).map(|(_, name)| name)
}

fn device_text(kind: &PortKind) -> String {
    device(kind).map_or_else(|| kind.to_string(), |(what, name)| format!("{what} {name}"))
}
