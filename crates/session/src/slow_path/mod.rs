//! The slow path: packets that open sessions, change their state, or belong to none.
//!
//! Theory of operation. A packet on the slow path has been matched against all rules. It is looked up again,
//! because packets before it in the same vector may have opened or ended sessions. Its session is refreshed
//! ([`existing`]): rules that were removed leave the session, and end it if it was translated for one of them
//! or has no rule left and none would open it now ([`opener`]); rules that match now join it; the decision of
//! the flow is computed. Then rules are
//! applied, the tracker is updated, and the packet is translated and sent on ([`forward`]). A packet without
//! session opens one if NAT or a stateful rule demands it ([`crate::open`]), or passes by stateless rules.
//!
//! With several workers, a packet may be handed to the worker that owns its session ([`crate::placement`]).
//! Fragments come first to the home worker of their addresses, which hands them to the home worker of their
//! ports.

mod existing;
mod forward;
pub(crate) mod fragments;
mod log;
pub(crate) mod opener;
pub(crate) mod packet;
mod process;
mod reject;
mod related;
mod unknown;

use std::io;

use mmb_flow::{ErrorBudget, FragmentLimits, FragmentTable};

use crate::SessionConfig;
use crate::open::opener::Opener;
use packet::FragmentTarget;

/// Limits of the fragment table.
pub(crate) const FRAGMENTS: FragmentLimits =
    FragmentLimits { datagrams: 4096, waiting: 512, per_datagram: 64 };

/// Processes packets on the slow path, and keeps what only they need. Sessions are an argument.
#[derive(Debug)]
pub(crate) struct SlowPath {
    pub opener: Opener,
    /// Where the fragments of datagrams go, and the fragments that wait.
    pub fragments: FragmentTable<FragmentTarget>,
    /// Limit of ICMP errors.
    error_budget: ErrorBudget,
}

impl SlowPath {
    /// # Errors
    /// The error of the system if there is not enough address space.
    pub fn new(config: &SessionConfig) -> io::Result<SlowPath> {
        Ok(SlowPath {
            opener: Opener::new(config)?,
            fragments: FragmentTable::new(FRAGMENTS),
            error_budget: ErrorBudget::new(0),
        })
    }
}

#[cfg(test)]
mod tests;
