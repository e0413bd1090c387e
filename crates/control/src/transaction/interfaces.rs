//! Commands on interfaces: `interface`, `wire`, `route`, `enable`, `disable`.

use mmb_lang::{PortKind, Word};

use super::control::Control;
use super::memory::check_memory;
use crate::api::Done;
use crate::error::CommandError;

/// The names in a message.
pub(super) fn list(names: &[Word]) -> String {
    names.iter().map(|name| &**name).collect::<Vec<_>>().join(", ")
}

impl Control {
    /// `interface add`. An interface of this name that is down is tried again, with the new kind.
    pub(crate) fn add_interface(&self, name: &Word, kind: &PortKind) -> Result<Done, CommandError> {
        check_memory(0).map_err(|error| CommandError::failed(error.to_string(), name.span))?;
        let (_turn, state) = self.begin();
        let mut next = state.clone();
        let retry = state.config.interface(name).map(|i| i.id).filter(|&id| !state.is_up(id));
        let id = match retry {
            Some(id) => next.config.set_kind(name, kind).map(|()| id),
            None => next.config.add_interface(name, kind, None),
        }?;
        next.down.remove(&id);
        if let Err(error) = self.transition(state, &next) {
            if retry.is_some() {
                let mut state = self.state();
                state.down.insert(id, error.reason());
                self.commit(state);
            }
            return Err(CommandError::failed(error.reason(), name.span));
        }
        self.commit(next);
        Ok(Done::new(format!("interface {} added: {kind}", &**name)))
    }

    /// `interface del`.
    pub(crate) fn delete_interface(&self, name: &Word) -> Result<Done, CommandError> {
        let (_turn, state) = self.begin();
        let mut next = state.clone();
        let id = next.config.delete_interface(name)?;
        next.down.remove(&id);
        self.transition(state, &next).map_err(|error| CommandError::failed(error.reason(), name.span))?;
        self.commit(next);
        Ok(Done::new(format!("interface {} deleted", &**name)))
    }

    /// `enable` and `disable`.
    pub(crate) fn set_enabled(&self, names: &[Word], enabled: bool) -> Result<Done, CommandError> {
        self.change(|config| config.set_enabled(names, enabled))?;
        let what = if enabled { "enabled" } else { "disabled" };
        Ok(Done::new(format!("rules {what} for packets received on {}", list(names))))
    }

    /// `wire A B`.
    pub(crate) fn wire(&self, a: &Word, b: &Word) -> Result<Done, CommandError> {
        self.change(|config| config.wire(a, b))?;
        Ok(Done::new(format!("{} and {} are wired", &**a, &**b)))
    }

    /// `wire del`.
    pub(crate) fn unwire(&self, a: &Word) -> Result<Done, CommandError> {
        let peer = self.change(|config| config.unwire(a))?;
        Ok(Done::new(format!("{} and {peer} are no longer wired", &**a)))
    }

    /// `route`.
    pub(crate) fn route(&self, names: &[Word]) -> Result<Done, CommandError> {
        self.change(|config| config.route(names, None))?;
        Ok(Done::new(format!("packets received on {} are routed", list(names))))
    }

    /// `route del`.
    pub(crate) fn unroute(&self, name: &Word) -> Result<Done, CommandError> {
        self.change(|config| config.unroute(name))?;
        Ok(Done::new(format!("{} is no longer routed", &**name)))
    }
}
