//! Handing everything over to another process, and going on if that fails.
//!
//! Theory of operation. A [`Suspension`] holds the lock on changes. First its ports forward nothing, so that
//! the other process can restore the sessions. Then its ports are closed, brokers do not listen, and the
//! kernel's settings are those from before the ports were opened, so that the other process can open them.
//! Rules, sessions and the whole configuration stay in memory. When the suspension is dropped, all that was
//! open is opened again, and sessions go on where they were. When it is completed, everything stays closed
//! until the process ends.

use std::sync::MutexGuard;

use mmb_dataplane::{SessionCopies, SessionFile, WorkerFailure};
use mmb_system::log;

use crate::config::{Interface, file};
use crate::transaction::brokers::Listeners;
use crate::transaction::mirror::Plan;
use crate::transaction::{Control, State};

/// Why a daemon does not hand its ports over.
#[derive(Debug, thiserror::Error)]
pub enum SuspendError {
    /// A change waits for its confirmation.
    #[error("a change waits for its confirmation; run `mmb confirm` or `mmb rollback` first")]
    Unconfirmed,
    /// The engine works no longer.
    #[error(transparent)]
    Worker(#[from] WorkerFailure),
}

/// Sessions as they are at the end, for a process that has copies of them.
pub struct ChangedSessions {
    /// Positions of copies that are of no use: their sessions have ended, or are in the file.
    pub gone: Vec<u32>,
    /// The sessions of which there is no copy, or whose copy is of no use.
    pub file: SessionFile,
}

/// A control whose ports forward nothing. Changes wait.
pub struct Suspension<'a> {
    control: &'a Control,
    /// Whether the ports are closed, too.
    is_closed: bool,
    /// The state to go back to; none when the suspension is completed.
    state: Option<State>,
    _turn: MutexGuard<'a, ()>,
}

impl Control {
    /// The running configuration as a text that makes another process run it, elements of sets with a time
    /// included.
    ///
    /// # Errors
    /// A change waits for its confirmation.
    pub fn transferable_text(&self) -> Result<String, SuspendError> {
        if self.history().confirmation().is_some() {
            return Err(SuspendError::Unconfirmed);
        }
        Ok(file::transferable_text(&self.state().config))
    }

    /// Copies the sessions as [`Control::save_sessions`] does, while packets go on. Also returns what tells
    /// later which of them have changed. None: the engine works no longer.
    pub fn copy_sessions(&self, owner: &str) -> Option<(SessionFile, SessionCopies)> {
        let (_turn, state) = self.begin();
        let (saved, copies) = self.engine().copy_sessions()?;
        Some((Control::named(&state, owner, saved), copies))
    }

    /// Stops all ports, and returns the sessions that are not among `copies` as they are now.
    ///
    /// # Errors
    /// A change waits for its confirmation, or the engine works no longer. Nothing is stopped then.
    pub fn suspend(
        &self,
        owner: &str,
        copies: Option<SessionCopies>,
    ) -> Result<(ChangedSessions, Suspension<'_>), SuspendError> {
        let (turn, state) = self.begin();
        if self.history().confirmation().is_some() {
            return Err(SuspendError::Unconfirmed);
        }
        // Ports that are stopped now start again when this is dropped.
        let suspension =
            Suspension { control: self, is_closed: false, state: Some(state.clone()), _turn: turn };
        let Some(copies) = copies else {
            let file = self.save(&state, owner)?;
            return Ok((ChangedSessions { gone: Vec::new(), file }, suspension));
        };
        let are_current = self.engine().are_current(&copies);
        self.engine().publish(state.config.forwarding(|_| false))?;
        let (saved, gone) = self.engine().save_changed_sessions(copies, are_current).unwrap_or_default();
        Ok((ChangedSessions { gone, file: Control::named(&state, owner, saved) }, suspension))
    }
}

impl Suspension<'_> {
    /// Closes all ports, so that another process can open them.
    pub fn close(&mut self) {
        if let Some(state) = &self.state
            && !std::mem::replace(&mut self.is_closed, true)
        {
            self.control.close_all(state);
        }
    }

    /// Leaves everything as it is. The process should end.
    pub fn complete(mut self) {
        self.state = None;
    }
}

impl Drop for Suspension<'_> {
    fn drop(&mut self) {
        self.close();
        let Some(state) = self.state.take() else { return };
        let names = |state: &State| -> Vec<String> {
            let down = state.config.interfaces().iter().filter(|i| !state.is_up(i.id));
            down.map(|i| i.name.clone()).collect()
        };
        let before = names(&state);
        for lost in self.control.reopen_all(state).into_iter().filter(|(name, _)| !before.contains(name)) {
            log::error(format!("error: interface `{}` is down: {}\n", lost.0, lost.1));
        }
    }
}

impl Control {
    /// Closes what an empty configuration does not have.
    fn close_all(&self, state: &State) {
        self.mirror().set_or_log(self.engine(), Plan::default());
        self.close_unused(&State::default(), &state.config.devices(|id| state.is_up(id)));
        self.running_brokers().switch(&State::default(), Listeners::default());
    }

    /// Opens what a state has open. Returns the interfaces that are down, with the reasons.
    fn reopen_all(&self, mut state: State) -> Vec<(String, String)> {
        self.open_available(&mut state);
        // If it fails, the hook of `Control::on_failure` tells why.
        let _ = self.publish(&state);
        self.running_brokers().start(&state);
        let reason = |i: &Interface| Some((i.name.clone(), state.down.get(&i.id)?.clone()));
        let down = state.config.interfaces().iter().filter_map(reason).collect();
        self.commit(state);
        down
    }
}
