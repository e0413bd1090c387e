//! Rules and flows together: what becomes of a packet that belongs to a session, or opens one.
//!
//! Theory of operation. Each worker has its own [`Sessions`]. A vector of packets goes through [`Sessions::lookup`], which
//! finishes those of settled sessions at once; rules that look at each packet are asked about the others of them
//! ([`Sessions::process_per_packet`]); everything else takes the long way, a packet at a time, when all rules have been asked
//! ([`Sessions::process_slow_path`]). What is to be done with a packet is said by [`Next`] and in its metadata.
//!
//! A session has two directions, each found by the key of its packets as they come in, and is translated from one key
//! to the reverse of the other. It has a list of stateful rules, which grows with every one that matches one of its packets,
//! and for each direction a decision: what these rules and the stateless ones that match all packets of the direction
//! say together. Decisions are made under a generation of the rules, and anew when a packet comes under another one:
//! nothing walks over all sessions when rules change.
//!
//! A stateful rule can give its sessions to a service chain ([`mmb_nf`]). A packet of such a session has been found, judged
//! and counted when it comes out as [`Next::Chain`]; [`Sessions::process_chain`] takes it through the chain's functions, each of which
//! has its bytes in the session's scratchpad.
//!
//! Nothing here knows a buffer, a clock or another thread: packets are given as bytes and metadata, time as an argument,
//! rules by a [`Environment`], and what another worker has to do is said, not done. [`Driver`] does it all for one packet.

#![forbid(unsafe_code)]

mod api;
mod attached;
mod chains;
mod decisions;
mod driver;
mod dump;
mod engine;
mod enter;
mod exhausted;

mod fragment;
mod gist;
mod hops;
mod hot;
mod lines;
mod lists;
mod matched;
mod numbers;
mod offload;
mod open;
mod owed;
mod per_packet;
mod plan;
mod ports;
mod random;
mod related;
mod routed;
mod slow;
mod through;
mod verdicts;

pub use api::{
    DumpCursor, Environment, Next, NextSet, Packets, ReleasedFragment, SessionConfig, SessionCounters,
    SessionView,
};
pub use driver::{Driver, Outcome, Rules, Sent};
pub use engine::Sessions;
pub use lines::{forward_config, pool_config};
pub use offload::{OffloadCandidate, OffloadCounters, OffloadDriver, OffloadSource, OffloadState};
pub use through::chain_packet;
