//! Routed ports: frames through the real graph, with routes made by hand.

#![allow(clippy::unwrap_used)]

mod errors;
mod forward;
mod neighbors;
mod rules;
mod sessions;
mod world;
