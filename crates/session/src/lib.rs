//! Sessions and rules: what becomes of a packet that belongs to a session, or opens one.
//!
//! Theory of operation. Each worker has its own [`Sessions`]. A vector of packets enters by
//! [`Sessions::lookup`], which finishes the packets of settled sessions at once. Packets for which rules
//! depend on each packet continue with [`Sessions::process_per_packet`]. All others take the slow path, one
//! by one, after all rules have been matched ([`Sessions::process_slow_path`]). The outcome of a packet is a
//! [`Next`]; details are in its metadata.
//!
//! A session has two flows, one for each direction. The key of its packets as they come in finds a flow.
//! Packets are translated from the key of their flow to the reverse of the opposite flow's key. A session has
//! a list of stateful rules, to which every rule is added that matches one of its packets. Each flow has a
//! cached decision: what these rules, and the stateless rules that match all packets of the flow, decide
//! together. A decision is valid for one generation of rules. It is computed anew when a packet arrives under
//! another generation, so that a change of rules does not visit all sessions.
//!
//! A stateful rule can give its sessions a service chain ([`mmb_nf`]). A packet of such a session has been
//! found, judged and counted when its outcome is [`Next::Chain`]. [`Sessions::process_chain`] takes it
//! through the functions of the chain, each of which has its bytes in the session's scratchpad.
//!
//! [`Sessions`] has three parts, which can be tested alone. [`mod@store`] owns the sessions of a worker and
//! all that they hold, and ends them. [`mod@lookup`] finds the flows of a vector. [`mod@slow_path`] processes
//! packets one by one, and owns the part that opens sessions ([`mod@open`]). A part that needs sessions takes
//! the store as an argument. The store in turn is composed of parts: the table, decisions
//! ([`mod@established`]), rules ([`mod@rules`]), chains ([`mod@chains`]), flows in the XDP fast path
//! ([`mod@offload`]), NAT pools, and what limits new sessions ([`mod@shared`]). The calls of the packet path
//! are in [`mod@packet_path`], all others in [`mod@control`]. Sessions outlive the process by [`mod@saved`].
//!
//! This crate knows no buffer, clock or thread. Packets are bytes and metadata, time is an argument, rules
//! come from an [`Environment`], and work for another worker is an outcome.

#![forbid(unsafe_code)]

mod broker;
mod chains;
mod control;
mod environment;
mod established;
mod hash;
mod lifetime;
mod listing;
mod lookup;
mod next;
mod offload;
mod open;
mod packet_path;
mod placement;
mod rules;
mod saved;
mod sessions;
mod shared;
mod slow_path;
mod store;
#[cfg(test)]
mod testing;
mod timers;
mod tracking;
mod translation;
mod view;

pub use chains::{ChainBatch, chain_packet};
pub use environment::{Environment, LogVerdict, LoggedHeaders, LoggedPacket, Packets, SessionConfig};
pub use lookup::PrefetchToken;
pub use mmb_nf::{FunctionVisit, HeldEvent};
pub use next::{Next, NextSet, ReleasedFragment};
pub use offload::{
    AddedNumbers, OffloadCandidate, OffloadCounters, OffloadDriver, OffloadSource, OffloadState,
};
pub use saved::file::{SessionFile, SessionFileError};
pub use saved::{
    CopyMarks, KeptRules, NO_POOL, NO_PORT, NotRestored, Placement, SavedRule, SavedSession, SavedSessions,
    SessionSet,
};
pub use sessions::Sessions;
pub use shared::{LimitedSource, SharedSessions};
pub use view::{DumpCursor, SessionCounters, SessionView};
