//! The thread of a worker: its clock, the poll loop, and sleep while nothing comes.

pub(crate) mod clock;
pub(crate) mod poll;
pub(crate) mod sleep;
pub(crate) mod waker;
