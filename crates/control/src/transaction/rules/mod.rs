//! Commands on rules, whole configuration files, and the way back to an earlier one.

mod history;

use std::time::Duration;

use mmb_dataplane::WorkerFailure;
use mmb_lang::{Command, Rule, RuleRef, SourceSpan};
use mmb_policy::Policy;

use super::control::Control;
use super::memory::check_memory;
use super::state::State;
use crate::api::{ApplyReply, CheckReply, DiffReply, Done};
use crate::config::file::{self, Snapshot};
use crate::config::{Config, rule_warnings, rule_warnings_about};
use crate::error::{CommandError, Refusal, RefusalKind};
use crate::text::count;

impl Control {
    /// Adds a rule; the reply has its index.
    ///
    /// # Errors
    /// The rule names an interface, a pool or a chain that does not exist, or can never match.
    pub fn add_rule(&self, rule: &Rule) -> Result<Done, CommandError> {
        let index = self.add(|config| config.add_rule(rule))?;
        let warnings = rule_warnings_about(self.state().config.policy(), index);
        Ok(Done { done: format!("rule {index} added"), index: Some(index), warnings })
    }

    /// Adds the rule of a line `add …`.
    ///
    /// # Errors
    /// Those of [`Control::add_rule`], and a line that is not a rule.
    pub fn add_rule_line(&self, line: &str) -> Result<Done, Refusal> {
        match mmb_lang::parse_line(line).map_err(|d| Refusal::of(RefusalKind::Invalid, [(d, line)]))? {
            Some(Command::Add(rule)) => self.add_rule(&rule).map_err(|error| error.in_line(line)),
            _ => Err(Refusal::invalid("not a rule; a rule begins with `add`".to_owned())),
        }
    }

    /// Deletes the rule with this index or name.
    ///
    /// # Errors
    /// Neither an index nor a name, or no rule has it.
    pub fn delete_rule(&self, rule: &str) -> Result<Done, Refusal> {
        let line = format!("del {rule}");
        match mmb_lang::parse_line(&line) {
            Ok(Some(Command::Del { rule })) => self.delete(&rule).map_err(|error| error.in_line(&line)),
            _ => Err(Refusal::invalid(format!("`{rule}` is not the index or the name of a rule"))),
        }
    }

    /// Deletes a rule; the error has no place in a line.
    pub(crate) fn delete(&self, rule: &RuleRef) -> Result<Done, CommandError> {
        let (_turn, mut state) = self.begin();
        let index = state.config.rule_index(rule)?;
        let slot = state.config.policy_mut().del(index);
        self.publish(&state).map_err(engine_failed)?;
        self.release(&mut state.config, slot);
        self.commit(state);
        Ok(Done { index: Some(index), ..Done::new(format!("rule {index} deleted")) })
    }

    /// Deletes every rule. Indexes start at 1 again.
    ///
    /// # Errors
    /// The engine works no longer.
    pub fn flush(&self) -> Result<Done, CommandError> {
        let (_turn, mut state) = self.begin();
        let slots = state.config.policy_mut().flush();
        self.publish(&state).map_err(engine_failed)?;
        let message = format!("{} deleted", count(slots.len() as u64, "rule"));
        self.release(&mut state.config, slots);
        self.commit(state);
        Ok(Done::new(message))
    }

    /// Makes `text` the configuration, all of it or nothing.
    ///
    /// # Errors
    /// A text without commands that would remove something, lines that are wrong, and devices or routes that
    /// the new configuration needs and cannot get.
    pub fn apply(&self, text: &[u8]) -> Result<ApplyReply, Refusal> {
        self.apply_with(text, false, None)
    }

    /// Makes `text` the configuration, as [`Control::apply`] does. With `allow_empty`, a text without
    /// commands removes everything but interfaces. With `confirm_within`, the configuration before the
    /// change comes back after this time, unless `confirm` is run.
    ///
    /// # Errors
    /// Those of [`Control::apply`].
    pub fn apply_with(
        &self,
        text: &[u8],
        allow_empty: bool,
        confirm_within: Option<Duration>,
    ) -> Result<ApplyReply, Refusal> {
        if !allow_empty && file::is_empty(text) {
            self.check_nothing_removed(text)?;
        }
        self.replace(text, file::load, confirm_within)
    }

    /// Makes `text` the configuration, as `load` reads it.
    ///
    /// # Errors
    /// Those of [`Control::apply`], but for a text without commands.
    pub(super) fn replace(
        &self,
        text: &[u8],
        load: fn(&[u8], &Config) -> Result<Config, Refusal>,
        confirm_within: Option<Duration>,
    ) -> Result<ApplyReply, Refusal> {
        check_memory(text.len()).map_err(|error| Refusal::failed(error.to_string()))?;
        let (_turn, old) = self.begin();
        let config = load(text, &old.config)?;
        let mut removed_lines = file::removed_settings(&old.config, &config);
        let mut new = State { config, ..State::default() };
        let before = old.config.policy().clone();
        self.transition(old, &new).map_err(|error| Refusal::failed(error.to_string()))?;
        let freed = freed_slots(&before, new.config.policy());
        let removed = freed.len() as u64;
        removed_lines.extend(texts(&before, &freed, ApplyReply::NAMED_RULES));
        self.release(&mut new.config, freed);
        let kept = before.len() as u64 - removed;
        let rules = new.config.policy().len() as u64;
        let interfaces = new.config.interfaces().len() as u64;
        let warnings = rule_warnings(new.config.policy());
        self.history().expect_confirmation(confirm_within);
        self.commit(new);
        let added = rules - kept;
        let (r, i) = (count(rules, "rule"), count(interfaces, "interface"));
        let done = format!("{r} ({added} added, {removed} removed, {kept} kept), {i}");
        Ok(ApplyReply { done, rules, added, removed, removed_lines, kept, interfaces, warnings })
    }

    /// Checks that a text without commands removes nothing.
    fn check_nothing_removed(&self, text: &[u8]) -> Result<(), Refusal> {
        let current = self.state().config;
        let lines = file::removed_settings(&current, &file::load(text, &current.without_processes())?).len();
        let rules = current.policy().len();
        if rules == 0 && lines == 0 {
            return Ok(());
        }
        let (rules, lines) = (count(rules as u64, "rule"), count(lines as u64, "other line"));
        Err(Refusal::invalid(format!(
            "the file has no commands and would remove {rules} and {lines}: `mmb apply --allow-empty FILE` does so"
        )))
    }

    /// Checks `text` as a complete configuration of its own, without opening devices.
    ///
    /// # Errors
    /// Lines that are wrong.
    pub fn check(&self, text: &[u8]) -> Result<CheckReply, Refusal> {
        file::check(text, &self.state().config)
    }

    /// The changes that [`Control::apply`] would make.
    ///
    /// # Errors
    /// Lines that are wrong.
    pub fn diff(&self, text: &[u8]) -> Result<DiffReply, Refusal> {
        let current = self.state().config;
        let next = file::load(text, &current.without_processes())?;
        Ok(file::diff(&Snapshot::new(&current), &Snapshot::new(&next)))
    }
}

fn engine_failed(failure: WorkerFailure) -> CommandError {
    CommandError::failed(failure.to_string(), SourceSpan::default())
}

/// Texts of the first rules with these slots.
fn texts(policy: &Policy, slots: &[u32], limit: usize) -> Vec<String> {
    let first = &slots[..slots.len().min(limit)];
    let is_named = |slot: u32| first.contains(&slot);
    policy.rules().filter(|view| is_named(view.slot)).take(limit).map(|view| view.text.to_owned()).collect()
}

/// Slots of the rules that are in `old` and not in `new`.
fn freed_slots(old: &Policy, new: &Policy) -> Vec<u32> {
    let mut used = vec![false; old.slots().max(new.slots())];
    for view in new.rules() {
        used[view.slot as usize] = true;
    }
    old.rules().map(|view| view.slot).filter(|&slot| !used[slot as usize]).collect()
}
