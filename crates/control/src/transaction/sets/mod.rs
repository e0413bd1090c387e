//! Commands on named sets, and the end of elements whose time is over.
//!
//! Theory of operation. A change of elements waits for the change in progress in a queue. The first one that
//! gets its turn makes all that wait, and publishes them at once.

pub(super) mod queue;

use std::time::Duration;

use mmb_lang::{Command, NamedSet, SetElement, SetElements, SourceSpan, Word};
use mmb_system::log;

use self::queue::{Changed, WaitingChange};
use super::control::Control;
use super::state::State;
use crate::api::Done;
use crate::config::sets::now;
use crate::error::CommandError;
use crate::text::count;

/// Shortest time between two removals of elements, so that many are removed by one publication.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);

impl Control {
    /// Runs a command that changes a named set.
    pub(crate) fn change_set(&self, command: &Command) -> Result<Done, CommandError> {
        match command {
            Command::SetAdd(set) => self.add_set(set),
            Command::SetDel { name } => self.delete_set(name),
            Command::ElementAdd(added) => self.add_elements(added),
            Command::ElementDel { name, elements } => self.delete_elements(name, elements),
            other => Err(CommandError::invalid(format!("`{other}` changes no set"), SourceSpan::default())),
        }
    }

    /// `set add`.
    fn add_set(&self, set: &NamedSet) -> Result<Done, CommandError> {
        let name = &*set.name.text;
        let len = self.add(|config| {
            config.add_set(set)?;
            Ok(config.policy().sets().get(name).map_or(0, mmb_policy::PolicySet::len))
        })?;
        let elements = if set.file.is_some() {
            format!(" with {}", count(len as u64, "element"))
        } else {
            String::new()
        };
        Ok(Done::new(format!("set {name} added{elements}")))
    }

    /// `set del`.
    fn delete_set(&self, name: &Word) -> Result<Done, CommandError> {
        self.change(|config| config.delete_set(name))?;
        Ok(Done::new(format!("set {} deleted", &**name)))
    }

    /// `set NAME add`.
    pub(crate) fn add_elements(&self, added: &SetElements) -> Result<Done, CommandError> {
        let new = self.change_elements(Command::ElementAdd(added.clone()))?;
        let known = added.elements.len() - new;
        let known = if known > 0 { format!(", {known} known before") } else { String::new() };
        self.maintenance().request_expiry();
        Ok(Done::new(format!("{} added to {}{known}", count(new as u64, "element"), &*added.name)))
    }

    /// `set NAME del`.
    pub(crate) fn delete_elements(&self, name: &Word, elements: &[SetElement]) -> Result<Done, CommandError> {
        let gone =
            self.change_elements(Command::ElementDel { name: name.clone(), elements: elements.to_vec() })?;
        Ok(Done::new(format!("{} removed from {}", count(gone as u64, "element"), &**name)))
    }

    /// `set NAME flush`.
    pub(crate) fn flush_set(&self, name: &Word) -> Result<Done, CommandError> {
        let gone = self.change_elements(Command::ElementFlush { name: name.clone() })?;
        Ok(Done::new(format!("{} removed from {}", count(gone as u64, "element"), &**name)))
    }

    /// Changes the elements of a set, with all other changes of elements that wait.
    fn change_elements(&self, command: Command) -> Changed {
        let result = self.waiting_elements().push(command);
        let (_turn, state) = self.begin();
        self.change_waiting(state);
        result.recv().unwrap_or_else(|_| Err(failed("the change was not made".to_owned())))
    }

    /// Makes the changes that wait. No device, route or function depends on elements, so the policy is
    /// published at once, unless no rule refers to the sets.
    fn change_waiting(&self, mut state: State) {
        let waiting = self.waiting_elements().take();
        let mut is_used = false;
        let change = |WaitingChange { command, .. }: &WaitingChange| {
            let changed = state.config.change_elements(command)?;
            let name = set_of(command).filter(|_| changed > 0);
            is_used |= name.is_some_and(|name| state.config.policy().rules_with_set(name).next().is_some());
            Ok(changed)
        };
        let results: Vec<Changed> = waiting.iter().map(change).collect();
        let published = if is_used { self.publish_elements(&mut state) } else { Ok(()) };
        if published.is_ok() && results.iter().any(Result::is_ok) {
            self.commit_elements(state);
        }
        for (WaitingChange { done, .. }, result) in waiting.into_iter().zip(results) {
            let failure = published.as_ref().err().map(|error| failed(error.diagnostic.message.clone()));
            // The client may have given up.
            let _ = done.send(failure.map_or(result, Err));
        }
    }

    /// Publishes a state that differs from the published one by elements.
    fn publish_elements(&self, state: &mut State) -> Result<(), CommandError> {
        let change = state.config.policy_mut().take_element_change();
        let forwarding = state.config.forwarding(|id| state.is_up(id));
        let published = match change {
            Some(change) => self.engine().publish_elements(forwarding, change),
            None => self.engine().publish(forwarding),
        };
        published.map_err(|failure| failed(failure.to_string()))
    }

    /// Removes the elements whose time is over. Returns the time to the next check.
    pub(super) fn expire_elements(&self) -> Option<Duration> {
        let next = || self.state().config.policy().next_deadline();
        if next()? <= now() {
            let (_turn, mut state) = self.begin();
            if state.config.expire_elements() > 0 {
                match self.publish_elements(&mut state) {
                    Ok(()) => self.commit_elements(state),
                    Err(error) => {
                        log::error(format!("error: elements of sets stay: {}\n", error.diagnostic.message))
                    }
                }
            }
        }
        Some(EXPIRY_INTERVAL.max(Duration::from_millis(next()?.saturating_sub(now()))))
    }
}

/// Returns the set whose elements a command changes.
fn set_of(command: &Command) -> Option<&Word> {
    match command {
        Command::ElementAdd(added) => Some(&added.name),
        Command::ElementDel { name, .. } | Command::ElementFlush { name } => Some(name),
        _ => None,
    }
}

fn failed(message: String) -> CommandError {
    CommandError::failed(message, SourceSpan::default())
}
