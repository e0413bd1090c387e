//! Sessions that rules give to service chains: the node `chain` in the real graph, with functions made for
//! these tests.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "other files of tests use the rest")]
#[path = "../common/mod.rs"]
mod common;
mod functions;
mod order;
mod replays;
mod sent;
mod translated;
mod world;
