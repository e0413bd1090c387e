//! The running configuration: commands against it, one after the other, each wholly or not at all.
//!
//! Theory of operation. One lock orders all changes. A change computes the next [`Config`] from the present one,
//! opens what devices it needs, has the routes of newly routed ports mirrored, publishes to the engine (which returns when
//! no worker uses the old value any more), and only then makes the next configuration the present one and gives back what
//! the old one alone used: devices, routes, and the slots of rules that went, their counters set to zero. Whatever fails
//! before the publication is undone, so nobody sees half a change. Readers copy the present configuration, which is cheap, and wait for nobody: a second lock
//! around it is held for the copy only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use mmb_dataplane::{Engine, PortId};
use mmb_flow::SessionSettings;
use mmb_lang::{Command, ErrorPolicy, NatForward, Rule, ShowSubject, SourceSpan, Word};

use crate::api::*;
use crate::background::Background;
use crate::config::{Config, Interface};
use crate::error::{Fault, Refusal, RefusalKind};
use crate::mirror::Mirror;
use crate::output::Output;
use crate::render::count;
use crate::settings;
use crate::upkeep::Upkeep;
use crate::views;

/// The engine and the configuration it runs.
pub struct Control {
    /// Ends first: what its threads work on may tell of the rest.
    background: Background,
    /// Ends before the engine, which it publishes to.
    mirror: Mirror,
    engine: Arc<Engine>,
    /// Held by the change that is under way.
    changes: Mutex<()>,
    state: Mutex<State>,
    started: Instant,
    upkeep: Upkeep,
}

/// What is configured, and what of it does not work.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub config: Config,
    /// Interfaces whose device could not be opened, and why.
    pub down: BTreeMap<PortId, String>,
}

impl State {
    /// Whether an interface's device is open.
    pub fn is_up(&self, id: PortId) -> bool {
        !self.down.contains_key(&id)
    }
}

/// An interface that stays down, with the reason; see [`Control::start`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownInterface {
    /// Its name.
    pub name: String,
    /// Why its device could not be opened: a sentence.
    pub reason: String,
}

impl Control {
    /// Takes over an engine that runs nothing yet and makes it run `config`. Interfaces that cannot be opened stay
    /// down and are returned; everything else works.
    pub fn start(engine: Engine, config: Config) -> (Control, Vec<DownInterface>) {
        let control = Control {
            background: Background::default(),
            mirror: Mirror::default(),
            engine: Arc::new(engine),
            changes: Mutex::default(),
            state: Mutex::default(),
            started: Instant::now(),
            upkeep: Upkeep::default(),
        };
        let mut state = State { config, down: BTreeMap::new() };
        control.open_what_opens(&mut state);
        control.publish(&state);
        let reason = |i: &Interface| Some((i.name.clone(), state.down.get(&i.id)?.clone()));
        let down = state.config.interfaces().iter().filter_map(reason);
        let report = down.map(|(name, reason)| DownInterface { name, reason }).collect();
        control.commit(state);
        (control, report)
    }

    /// Runs one line of the language.
    pub fn execute(&self, line: &str) -> Result<Output, Refusal> {
        let command =
            mmb_lang::parse_line(line).map_err(|d| Refusal::of(RefusalKind::Invalid, [(d, line)]))?;
        let Some(command) = command else { return Ok(Output::Nothing) };
        self.run(&command).map_err(|fault| fault.in_line(line))
    }

    fn run(&self, command: &Command) -> Result<Output, Fault> {
        match command {
            Command::Add(rule) => self.add_rule(rule).map(Output::Done),
            Command::Del { index } => self.delete(*index).map(Output::Done),
            Command::Flush => Ok(Output::Done(self.flush())),
            Command::List => Ok(Output::Rules(self.rules())),
            Command::Show { what, verbose } => Ok(self.show(*what, *verbose)),
            Command::InterfaceAdd { name, kind } => self.add_interface(name, kind).map(Output::Done),
            Command::InterfaceDel { name } => self.delete_interface(name).map(Output::Done),
            Command::Enable(names) => self.set_enabled(names, true).map(Output::Done),
            Command::Disable(names) => self.set_enabled(names, false).map(Output::Done),
            Command::Wire { a, b } => {
                self.change(|config| config.wire(a, b))?;
                Ok(Output::Done(done(format!("{} and {} are wired", &**a, &**b))))
            }
            Command::Unwire { a } => {
                let peer = self.change(|config| config.unwire(a))?;
                Ok(Output::Done(done(format!("{} and {peer} are no longer wired", &**a))))
            }
            Command::Route(names) => self.route(names).map(Output::Done),
            Command::Unroute { name } => {
                self.change(|config| config.unroute(name))?;
                Ok(Output::Done(done(format!("{} is no longer routed", &**name))))
            }
            Command::ShowFib { within } => Ok(Output::Fib(self.fib_listing(*within))),
            Command::ShowNeighbors { within } => Ok(Output::Neighbors(self.neighbors(*within))),
            Command::SetOnError(on_error) => self.set_on_error(*on_error).map(Output::Done),
            Command::ShowConnections { verbose, matches } => {
                self.listing(matches, *verbose).map(|l| Output::Connections(Box::new(l)))
            }
            Command::ClearConnections { matches } => self.clear_connections(matches).map(Output::Cleared),
            Command::NatPoolAdd(pool) => {
                self.change(|config| config.nat_mut().add_pool(pool))?;
                Ok(Output::Done(done(format!("NAT pool {} added", &*pool.name))))
            }
            Command::NatPoolDel { name } => {
                self.change(|config| config.delete_pool(name))?;
                Ok(Output::Done(done(format!("NAT pool {} deleted", &**name))))
            }
            Command::NatForwardAdd(forward) => {
                self.change(|config| config.nat_mut().add_forward(forward))?;
                let NatForward { proto, outside, inside } = forward;
                Ok(Output::Done(done(format!("{proto} {outside} is forwarded to {inside}"))))
            }
            Command::NatForwardDel { proto, outside } => {
                self.change(|config| config.nat_mut().delete_forward(*proto, *outside))?;
                Ok(Output::Done(done(format!("{proto} {outside} is no longer forwarded"))))
            }
            Command::NfAdd(nf) => {
                self.change(|config| config.add_function(nf))?;
                Ok(Output::Done(done(format!("function {} added: {}", &*nf.name, &*nf.kind))))
            }
            Command::NfDel { name } => {
                self.change(|config| config.delete_function(name))?;
                Ok(Output::Done(done(format!("function {} deleted", &**name))))
            }
            Command::NfSet { name, words } => self.tell(name, words).map(Output::Done),
            Command::ChainAdd(chain) => {
                self.change(|config| config.add_chain(chain))?;
                Ok(Output::Done(done(format!("chain {} added", &*chain.name))))
            }
            Command::ChainSet(chain) => {
                self.change(|config| config.set_chain(chain))?;
                Ok(Output::Done(done(format!("chain {} is another now", &*chain.name))))
            }
            Command::ChainDel { name } => {
                self.change(|config| config.delete_chain(name))?;
                Ok(Output::Done(done(format!("chain {} deleted", &**name))))
            }
            Command::SetTimeout { timeout, seconds } => {
                self.change_settings(|settings| settings::set_timeout(settings, *timeout, *seconds))?;
                Ok(Output::Done(done(format!(
                    "{} is {}",
                    timeout.word(),
                    count(u64::from(*seconds), "second")
                ))))
            }
            Command::SetTcpPickup(on) => {
                self.change_settings(|settings| settings.tcp_pickup = *on)?;
                let what = if *on { "may" } else { "may not" };
                Ok(Output::Done(done(format!("TCP segments other than SYNs {what} open sessions"))))
            }
            Command::SetTcpWindowCheck(on) => {
                self.change_settings(|settings| settings.tcp_window_check = *on)?;
                let what = if *on { "are dropped" } else { "pass" };
                Ok(Output::Done(done(format!("TCP segments outside of their connection's window {what}"))))
            }
            Command::SetXdpFastPath(on) => self.set_fast_path(*on).map(Output::Done),
        }
    }

    fn show(&self, what: ShowSubject, verbose: bool) -> Output {
        match what {
            ShowSubject::Tables => Output::Tables(self.tables(), verbose),
            ShowSubject::Interfaces if verbose => Output::Interfaces(self.interfaces_in_detail(), true),
            ShowSubject::Interfaces => Output::Interfaces(self.interfaces(), false),
            ShowSubject::Runtime => Output::Runtime(Box::new(self.runtime()), verbose),
            ShowSubject::Drops => Output::Drops(self.drops(), verbose),
            ShowSubject::Fields => Output::Fields(views::fields()),
            ShowSubject::Version => Output::Version(self.version()),
            ShowSubject::Config => Output::Config(self.config()),
            ShowSubject::Nat => Output::Nat(self.nat()),
            ShowSubject::Chains => Output::Chains(Box::new(self.chains()), verbose),
            ShowSubject::FastPath => Output::FastPath(Box::new(self.fast_path()), verbose),
            ShowSubject::Functions => Output::Functions(Box::new(self.functions()), verbose),
        }
    }

    /// `nf set`.
    fn tell(&self, name: &Word, words: &[Box<str>]) -> Result<Done, Fault> {
        // In its turn: not to an instance that is about to go.
        let (_turn, state) = self.begin();
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        let told = state.config.instance(name)?.set(&words);
        told.map_err(|sentence| Fault::invalid(sentence, SourceSpan::default()))?;
        Ok(done(format!("function {}: {}", &**name, words.join(" "))))
    }

    fn set_enabled(&self, names: &[Word], enabled: bool) -> Result<Done, Fault> {
        self.change(|config| config.set_enabled(names, enabled))?;
        let list: Vec<&str> = names.iter().map(|n| &**n).collect();
        let what = if enabled { "apply" } else { "do not apply" };
        Ok(done(format!("rules {what} to what comes in at {}", list.join(", "))))
    }

    fn route(&self, names: &[Word]) -> Result<Done, Fault> {
        self.change(|config| config.route(names, None))?;
        let list: Vec<&str> = names.iter().map(|n| &**n).collect();
        Ok(done(format!("what comes in at {} is routed", list.join(", "))))
    }

    fn set_on_error(&self, on_error: ErrorPolicy) -> Result<Done, Fault> {
        self.change(|config| {
            config.set_on_error(on_error);
            Ok(())
        })?;
        let what = match on_error {
            ErrorPolicy::Forward => "go on as they came",
            ErrorPolicy::Drop => "are dropped",
        };
        Ok(done(format!("packets whose edits cannot be made {what}")))
    }

    fn set_fast_path(&self, on: bool) -> Result<Done, Fault> {
        self.change(|config| {
            config.set_fast_path(on);
            Ok(())
        })?;
        let what = if on { "may stay in the kernel" } else { "all go through mmb" };
        Ok(done(format!("settled flows between af-xdp interfaces {what}")))
    }

    fn change_settings(&self, set: impl FnOnce(&mut SessionSettings)) -> Result<(), Fault> {
        self.change(|config| {
            set(config.settings_mut());
            Ok(())
        })
    }

    /// Adds a rule; the reply has its index.
    pub fn add_rule(&self, rule: &Rule) -> Result<Done, Fault> {
        let index = self.change(|config| config.add_rule(rule))?;
        Ok(Done { done: format!("rule {index} added"), index: Some(index) })
    }

    /// Adds the rule that a line `add …` says.
    pub fn add_rule_line(&self, line: &str) -> Result<Done, Refusal> {
        match mmb_lang::parse_line(line).map_err(|d| Refusal::of(RefusalKind::Invalid, [(d, line)]))? {
            Some(Command::Add(rule)) => self.add_rule(&rule).map_err(|fault| fault.in_line(line)),
            _ => Err(Refusal::invalid("that is no rule; a rule begins with `add`".to_owned())),
        }
    }

    /// Deletes the rule with this index.
    pub fn delete_rule(&self, index: u32) -> Result<Done, Refusal> {
        self.delete(index).map_err(|fault| fault.in_line(&format!("del {index}")))
    }

    fn delete(&self, index: u32) -> Result<Done, Fault> {
        let (_turn, mut state) = self.begin();
        let Some(slot) = state.config.policy_mut().del(index) else {
            let fault =
                Fault::new(RefusalKind::NotFound, format!("there is no rule {index}"), Default::default());
            return Err(fault.help("`list` shows the rules and their indexes".to_owned()));
        };
        self.publish(&state);
        self.release(&mut state.config, [slot]);
        self.commit(state);
        Ok(Done { done: format!("rule {index} deleted"), index: Some(index) })
    }

    /// Deletes every rule. Indexes start at 1 again.
    pub fn flush(&self) -> Done {
        let (_turn, mut state) = self.begin();
        let slots = state.config.policy_mut().flush();
        self.publish(&state);
        let words = format!("{} deleted", count(slots.len() as u64, "rule"));
        self.release(&mut state.config, slots);
        self.commit(state);
        done(words)
    }

    /// Changes the configuration where no rule goes.
    fn change<T>(&self, edit: impl FnOnce(&mut Config) -> Result<T, Fault>) -> Result<T, Fault> {
        let (_turn, state) = self.begin();
        let mut next = state.clone();
        let value = edit(&mut next.config)?;
        self.go(state, &next)
            .map_err(|failed| Fault::new(RefusalKind::Failed, failed.reason, SourceSpan::default()))?;
        self.commit(next);
        Ok(value)
    }

    /// Begins a change: waits for its turn, and copies the state to work on.
    pub(crate) fn begin(&self) -> (MutexGuard<'_, ()>, State) {
        let turn = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        (turn, self.present())
    }

    /// Whether a change is under way.
    pub(crate) fn is_changing(&self) -> bool {
        matches!(self.changes.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Ends a change: what was worked on is the state.
    pub(crate) fn commit(&self, state: State) {
        let stale = state.config.policy().is_stale();
        let pools = !state.config.nat().pools().is_empty();
        self.background.follow(state.config.chains().program());
        let old = std::mem::replace(&mut *self.lock(), state);
        // Freeing many rules takes a while, which readers need not wait for.
        drop(old);
        if stale {
            self.upkeep.ask();
        }
        if pools {
            self.upkeep.look();
        }
    }

    /// Makes the engine run this.
    pub(crate) fn publish(&self, state: &State) {
        self.engine.publish(state.config.forwarding(|id| state.is_up(id)));
    }

    /// Makes slots free for new rules once no worker counts in them any more: after the publication without them.
    pub(crate) fn release(&self, config: &mut Config, slots: impl IntoIterator<Item = u32>) {
        for slot in slots {
            self.engine.zero_rule_counters(slot);
            config.policy_mut().release(slot);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is replaced as a whole at the end of a change: a panic before left the old one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present state.
    pub(crate) fn present(&self) -> State {
        self.lock().clone()
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The mirror of the kernel's routes.
    pub(crate) fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// What is to be done when there is time.
    pub(crate) fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }

    /// Time since the start.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

pub(crate) fn done(words: String) -> Done {
    Done { done: words, index: None }
}
