//! The thread of a worker: its clock, its tasks, the poll loop, and sleep while nothing comes.

pub(crate) mod clock;
pub(crate) mod failure;
pub(crate) mod mailbox;
pub(crate) mod poll;
mod processors;
pub(crate) mod sleep;
pub(crate) mod waker;
