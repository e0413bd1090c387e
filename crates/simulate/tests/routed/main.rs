//! Routed ports: frames through the daemon's graph with hand-made routes.

#![allow(clippy::unwrap_used)]

mod errors;
mod forward;
mod neighbors;
mod rules;
mod sessions;
mod sources;
mod world;
