//! The control side as a whole: a real engine with ports on no devices, behind the real socket. Needs no
//! privileges, but for routed ports.

// A helper that cannot go on fails its test.
#![allow(clippy::unwrap_used)]

mod api;
mod chains;
mod functions;
mod harness;
mod refusals;
mod routing;
mod rules;
mod sessions;
mod transactions;
