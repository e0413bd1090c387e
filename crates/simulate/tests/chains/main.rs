//! Sessions with service chains: the node `chain` in the daemon's graph, with functions for these tests.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "other files of tests use the rest")]
#[path = "../common/mod.rs"]
mod common;
mod edited_datagrams;
mod edits;
mod functions;
mod held;
#[path = "../../../nf/tests/common/holder.rs"]
mod holder;
mod order;
mod replays;
mod sent;
mod shared;
mod translated;
mod world;
