//! Commands on named sets, and the end of elements whose time is over.

use std::time::Duration;

use mmb_lang::{Command, NamedSet, SetElement, SetElements, SourceSpan, Word};
use mmb_system::log;

use super::control::Control;
use super::state::State;
use crate::api::Done;
use crate::config::Config;
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
        let new = self.change_elements(&added.name, |config| config.add_elements(added))?;
        let known = added.elements.len() - new;
        let known = if known > 0 { format!(", {known} known before") } else { String::new() };
        self.maintenance().request_expiry();
        Ok(Done::new(format!("{} added to {}{known}", count(new as u64, "element"), &*added.name)))
    }

    /// `set NAME del`.
    pub(crate) fn delete_elements(&self, name: &Word, elements: &[SetElement]) -> Result<Done, CommandError> {
        let gone = self.change_elements(name, |config| config.delete_elements(name, elements))?;
        Ok(Done::new(format!("{} removed from {}", count(gone as u64, "element"), &**name)))
    }

    /// `set NAME flush`.
    pub(crate) fn flush_set(&self, name: &Word) -> Result<Done, CommandError> {
        let gone = self.change_elements(name, |config| config.flush_set(name))?;
        Ok(Done::new(format!("{} removed from {}", count(gone as u64, "element"), &**name)))
    }

    /// Changes the elements of a set. No device, route or function depends on them, so the policy is
    /// published at once, unless no rule refers to the set.
    fn change_elements(
        &self,
        name: &Word,
        edit: impl FnOnce(&mut Config) -> Result<usize, CommandError>,
    ) -> Result<usize, CommandError> {
        let (_turn, mut state) = self.begin();
        let changed = edit(&mut state.config)?;
        if changed > 0 && state.config.policy().rules_with_set(name).next().is_some() {
            self.publish_elements(&state)?;
        }
        self.commit_elements(state);
        Ok(changed)
    }

    fn publish_elements(&self, state: &State) -> Result<(), CommandError> {
        self.publish(state)
            .map_err(|failure| CommandError::failed(failure.to_string(), SourceSpan::default()))
    }

    /// Removes the elements whose time is over. Returns the time to the next check.
    pub(super) fn expire_elements(&self) -> Option<Duration> {
        let next = || self.state().config.policy().next_deadline();
        if next()? <= now() {
            let (_turn, mut state) = self.begin();
            if state.config.expire_elements() > 0 {
                match self.publish_elements(&state) {
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
