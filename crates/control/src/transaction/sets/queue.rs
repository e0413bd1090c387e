//! Changes of elements of sets that wait for the change in progress.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use mmb_lang::Command;

use crate::error::CommandError;

/// The number of elements that a change has added or removed.
pub(in crate::transaction) type Changed = Result<usize, CommandError>;

/// Changes that wait for their turn.
#[derive(Default)]
pub(in crate::transaction) struct ElementQueue(Mutex<Vec<WaitingChange>>);

/// A change, and where its result goes.
pub(in crate::transaction) struct WaitingChange {
    pub command: Command,
    pub done: SyncSender<Changed>,
}

impl ElementQueue {
    /// Appends a change. Its result comes by the receiver.
    pub fn push(&self, command: Command) -> Receiver<Changed> {
        let (done, result) = sync_channel(1);
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push(WaitingChange { command, done });
        result
    }

    /// Removes and returns all changes, in their order.
    pub fn take(&self) -> Vec<WaitingChange> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
