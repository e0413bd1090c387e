//! Sockets with buffers, and deadlines.

mod buffer;
mod channel;
mod filter;
mod timers;

pub(crate) use buffer::{BLOCK, Pool};
pub(crate) use channel::{Channel, Filled};
pub(crate) use filter::{Filter, HOLD};
pub(crate) use timers::{Owner, Timer, Timers};
