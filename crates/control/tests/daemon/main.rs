//! The control side as a whole: a real engine without devices, behind the real socket. Only the tests of
//! routed ports need privileges.

// A helper that fails panics, and so fails its test.
#![allow(clippy::unwrap_used)]

mod api;
mod chains;
mod corpus;
mod functions;
mod harness;
mod history;
mod limits;
mod refusals;
mod routing;
mod rules;
mod sessions;
mod transactions;
