//! The payload of a session as one sequence of bytes in order.
//!
//! Theory of operation. A stream function reads the bytes of a connection in the order in which the sender
//! has numbered them, each byte once. [`TcpStream`] is what is kept of a connection for this: the next number
//! of each direction and little more, as plain data without pointers. It looks at each segment
//! ([`TcpStream::segment`]) and answers with an [`Outcome`]: the segment goes on, and a [`View`] tells which
//! of its bytes are new; or it waits for the bytes in front of it; or it is dropped.
//!
//! This crate keeps no segments. The caller holds those that wait, ordered by number. When the gap in front
//! of them is closed, the caller takes them in order ([`TcpStream::next_held`]).
//!
//! The first copy of a byte that goes on is the one that functions see. A segment that repeats it, wholly or
//! in part, goes on as well, since the first copy may be lost behind the middlebox; its view has only what is
//! new.

#![forbid(unsafe_code)]

mod edit;
mod kept;
mod number;
mod tcp;
mod view;

pub use edit::{
    BuiltSegments, Change, Departure, Edit, Leaving, OutputRange, Rope, RopeReader, SettledNumbers,
    SpliceReport, Splices, Translated,
};
pub use kept::KeptBytes;
pub use number::{is_after, is_before};
pub use tcp::{
    Cause, HeldRange, NextHeld, OnMptcp, OnOverflow, OnPickup, Outcome, Policy, Segment, Status, TcpStream,
};
pub use view::View;
