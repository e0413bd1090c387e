//! The configuration as one value: interfaces, wires, routed ports, NAT, network functions, chains, settings,
//! rules.
//!
//! Theory of operation. A command works on a copy, and the copy replaces the original when the whole command
//! has succeeded. So a command that fails changes nothing. Copies are cheap: lists are behind shared
//! pointers, and a [`Policy`] shares all pages that a change does not touch. The other lists are short, so
//! that no persistent collection is needed: there are at most [`MAX_PORTS`](mmb_dataplane::MAX_PORTS)
//! interfaces, and chains are made by hand. Nothing here opens a device or uses the engine.
//!
//! A port id belongs to the *name* of an interface while the name is configured, whether or not its device is
//! open. Compiled rules hold ids. So a device can be opened, closed and replaced without compiling a rule
//! again.

pub(crate) mod brokers;
mod chains;
mod comments;
mod devices;
pub mod file;
mod interfaces;
mod nat;
mod references;
mod routing;
pub(crate) mod sets;
pub(crate) mod settings;
mod warnings;

use std::sync::Arc;

use mmb_dataplane::{AddressChecks, PortId, PuntLimits};
use mmb_flow::SessionSettings;
use mmb_lang::{
    ErrorPolicy, FastPathMode, LogFormat, LogSink, Match, NamedSet, NatPool, ProcessMode, Rule, RuleRef,
    SourceSpan, Word,
};
use mmb_policy::{Policy, RuleView};

pub use brokers::Brokers;
pub use chains::{Chains, Platform};
pub use devices::same_device;
pub(crate) use devices::{Device, DeviceKind, PUNT, broker_tap};
pub use interfaces::{Interface, Routing};
pub use nat::Nat;
pub(crate) use warnings::{rule_warnings, rule_warnings_about};

use crate::error::CommandError;

/// How and where packets that rules log become lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketLog {
    /// How the lines are written.
    pub format: LogFormat,
    /// Where they go.
    pub sink: LogSink,
}

/// A configuration.
#[derive(Clone, Default)]
pub struct Config {
    /// In the order in which they were added.
    interfaces: Arc<Vec<Interface>>,
    nat: Arc<Nat>,
    policy: Policy,
    /// Definitions of named sets, in the order in which they were added.
    sets: Arc<Vec<NamedSet>>,
    /// Number of changes of the policy.
    revision: u64,
    on_error: ErrorPolicy,
    address_checks: AddressChecks,
    settings: SessionSettings,
    punt_limits: PuntLimits,
    /// Which interfaces' flows may be offloaded.
    fast_path: FastPathMode,
    packet_log: PacketLog,
    /// What workers do while there are no packets.
    worker_mode: ProcessMode,
    /// Whether TCP segments leave as they are by ports that take large frames, too.
    keeps_segments: bool,
    /// The port of the TAP by which routed AF_XDP ports pass packets to the kernel; none without such ports.
    punt: Option<PortId>,
    /// Of the file that was read last.
    comments: Arc<comments::Comments>,
    chains: Arc<Chains>,
    brokers: Arc<Brokers>,
    platform: Platform,
}

impl Config {
    /// An empty configuration.
    pub fn new() -> Config {
        Config::default()
    }

    /// An empty configuration whose network functions are created with `platform`.
    pub fn with_platform(platform: Platform) -> Config {
        Config { platform, ..Config::default() }
    }

    /// An empty configuration that can replace `earlier`.
    pub(crate) fn successor(earlier: &Config) -> Config {
        let nat = Arc::new(earlier.nat.cleared());
        Config { revision: earlier.revision + 1, nat, ..Config::with_platform(earlier.platform.clone()) }
    }

    /// The interfaces, in the order in which they were added.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The interface with this name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|i| i.name == name)
    }

    /// The interface with this port id.
    pub fn interface_by_id(&self, id: PortId) -> Option<&Interface> {
        self.interfaces.iter().find(|i| i.id == id)
    }

    /// The port id of the interface with this name, or of a broker ([`mmb_policy::broker_port_name`]).
    pub fn port_of(&self, name: &str) -> Option<u16> {
        self.brokers.port_of(&self.interfaces, name)
    }

    /// The rules.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The index of a rule.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn rule_index(&self, rule: &RuleRef) -> Result<u32, CommandError> {
        let (view, span) = match rule {
            RuleRef::Index(index) => (self.policy.rule(*index), SourceSpan::default()),
            RuleRef::Name(name) => (self.policy.named(name), name.span),
        };
        view.map(|view| view.index).ok_or_else(|| {
            let error = CommandError::not_found(format!("there is no rule {rule}"), span);
            error.help("`list` shows the rules, their indexes and names".to_owned())
        })
    }

    /// The rules, to be changed.
    pub fn policy_mut(&mut self) -> &mut Policy {
        self.revision += 1;
        &mut self.policy
    }

    /// Whether the rules have not changed since `earlier`, from which this configuration was made by changes.
    pub(crate) fn has_same_rules(&self, earlier: &Config) -> bool {
        self.revision == earlier.revision
    }

    /// Replaces the policy by one with the same rules and a new classifier.
    pub(crate) fn set_rebuilt(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// A copy with other rules.
    pub fn with_policy(&self, policy: Policy) -> Config {
        Config { policy, revision: self.revision + 1, ..self.clone() }
    }

    /// The action on packets that cannot be edited.
    pub fn on_error(&self) -> ErrorPolicy {
        self.on_error
    }

    /// Sets the action on packets that cannot be edited.
    pub fn set_on_error(&mut self, on_error: ErrorPolicy) {
        self.on_error = on_error;
    }

    /// Checks of the addresses of packets.
    pub fn address_checks(&self) -> AddressChecks {
        self.address_checks
    }

    /// Checks of the addresses of packets, to be changed.
    pub fn address_checks_mut(&mut self) -> &mut AddressChecks {
        &mut self.address_checks
    }

    /// Which interfaces' flows may be offloaded.
    pub fn fast_path(&self) -> FastPathMode {
        self.fast_path
    }

    /// Sets which interfaces' flows may be offloaded.
    pub fn set_fast_path(&mut self, mode: FastPathMode) {
        self.fast_path = mode;
    }

    /// How and where packets that rules log become lines.
    pub fn packet_log(&self) -> PacketLog {
        self.packet_log
    }

    /// How and where packets that rules log become lines, to be changed.
    pub fn packet_log_mut(&mut self) -> &mut PacketLog {
        &mut self.packet_log
    }

    /// What workers do while there are no packets.
    pub fn worker_mode(&self) -> ProcessMode {
        self.worker_mode
    }

    /// Sets what workers do while there are no packets.
    pub fn set_worker_mode(&mut self, mode: ProcessMode) {
        self.worker_mode = mode;
    }

    /// Whether TCP segments leave as large frames by interfaces that take them.
    pub fn has_gro(&self) -> bool {
        !self.keeps_segments
    }

    /// Sets whether TCP segments leave as large frames by interfaces that take them.
    pub fn set_gro(&mut self, on: bool) {
        self.keeps_segments = !on;
    }

    /// NAT pools and forwards.
    pub fn nat(&self) -> &Nat {
        &self.nat
    }

    /// NAT pools and forwards, to be changed.
    pub fn nat_mut(&mut self) -> &mut Nat {
        Arc::make_mut(&mut self.nat)
    }

    /// Adds a NAT pool.
    ///
    /// # Errors
    /// The interface that it follows does not exist, the name is in use, or addresses belong to another pool.
    pub fn add_pool(&mut self, pool: &NatPool) -> Result<(), CommandError> {
        if let Some(name) = pool.addresses.interface().filter(|name| self.interface(name).is_none()) {
            return Err(self.unknown_interface(name));
        }
        self.nat_mut().add_pool(pool)
    }

    /// Deletes a NAT pool.
    ///
    /// # Errors
    /// There is no such pool, or a rule or a function uses it.
    pub fn delete_pool(&mut self, name: &Word) -> Result<(), CommandError> {
        let uses_pool = |view: &RuleView<'_>| {
            view.text.contains(&**name)
                && view.rule().is_ok_and(|rule| references::pools(&rule).any(|p| **p == **name))
        };
        if let Some(view) = self.policy.rules().find(uses_pool) {
            let message = format!("NAT pool `{}` is used by rule {} (`{}`)", &**name, view.index, view.text);
            let error = CommandError::conflict(message, name.span);
            return Err(error.help(format!("`del {}` first", view.index)));
        }
        self.check_pool_unused(name)?;
        self.nat_mut().delete_pool(name)
    }

    /// SessionSettings of sessions.
    pub fn settings(&self) -> &SessionSettings {
        &self.settings
    }

    /// SessionSettings of sessions, to be changed.
    pub fn settings_mut(&mut self) -> &mut SessionSettings {
        &mut self.settings
    }

    /// Packets per second that the kernel gets.
    pub fn punt_limits(&self) -> &PuntLimits {
        &self.punt_limits
    }

    /// Packets per second that the kernel gets, to be changed.
    pub fn punt_limits_mut(&mut self) -> &mut PuntLimits {
        &mut self.punt_limits
    }

    /// Sets all settings to their defaults, and deletes NAT pools, forwards, functions, chains and brokers.
    pub(crate) fn reset_settings(&mut self) {
        self.chains = Arc::default();
        self.brokers = Arc::default();
        self.on_error = ErrorPolicy::default();
        self.address_checks = AddressChecks::default();
        Arc::make_mut(&mut self.interfaces).iter_mut().for_each(|i| i.reverse_path = None);
        self.settings = SessionSettings::default();
        self.punt_limits = PuntLimits::default();
        self.fast_path = FastPathMode::Off;
        self.packet_log = PacketLog::default();
        self.worker_mode = ProcessMode::default();
        self.keeps_segments = false;
        self.nat = Arc::new(self.nat.cleared());
        self.reset_sets();
    }

    /// Checks that all interfaces, NAT pools and chains of a rule exist.
    ///
    /// # Errors
    /// The first one that does not exist.
    pub fn check_references(&self, rule: &Rule) -> Result<(), CommandError> {
        if let Some(name) = references::interfaces(rule).find(|name| self.interface(name).is_none()) {
            return Err(self.unknown_interface(name));
        }
        match references::pools(rule).find(|name| self.nat.pool(name).is_none()) {
            Some(name) => Err(self.nat.unknown_pool(name)),
            None => self.check_chains(rule).and_then(|()| self.check_brokers(rule)),
        }
    }

    /// Checks that all interfaces and sets of matches exist.
    ///
    /// # Errors
    /// The first one that does not exist.
    pub fn check_matches(&self, matches: &[Match]) -> Result<(), CommandError> {
        self.policy.check_set_matches(matches)?;
        match references::matched_interfaces(matches).find(|name| self.interface(name).is_none()) {
            Some(name) => Err(self.unknown_interface(name)),
            None => Ok(()),
        }
    }

    /// Adds a rule and returns its index.
    ///
    /// # Errors
    /// A name that does not exist, or a rule that can never match.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<u32, CommandError> {
        self.check_references(rule)?;
        let (interfaces, chains, brokers) =
            (self.interfaces.clone(), self.chains.clone(), self.brokers.clone());
        let resolve = |name: &str| brokers.port_of(&interfaces, name);
        Ok(self.policy_mut().add_with(rule, &resolve, &|chain| chains.class(chain))?)
    }
}
