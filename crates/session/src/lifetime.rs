//! Session flags, reasons of session ends, and the time of a worker's sessions.

use mmb_flow::{Direction, SessionId};

/// Sessions in a batch.
const BATCH: usize = 32;

/// Bits of [`mmb_flow::SessionState::flags`].
pub(crate) mod session_flags {
    /// Numbers other than addresses and ports are replaced: the scratchpad has a record.
    pub const MANGLE: u8 = 1 << 0;
    /// Forward packets, once translated, are for an address of NAT and return from there (hairpinning).
    pub const LOOP_FORWARD: u8 = 1 << 1;
    /// Reverse packets are.
    pub const LOOP_REVERSE: u8 = 1 << 2;
    /// The loop flags by direction.
    pub const LOOPS: [u8; 2] = [LOOP_FORWARD, LOOP_REVERSE];
    /// The session was opened from outside, by a NAT mapping.
    pub const INBOUND: u8 = 1 << 3;
    /// The session was opened by a forward and needs no rule.
    pub const RULELESS: u8 = 1 << 4;
    /// A function of the chain has refused the session, under some generation of rules.
    pub const REFUSED: u8 = 1 << 5;
}

/// Both directions, in the order of their numbers.
pub(crate) const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Reverse];

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    Expired,
    Replaced,
    Evicted,
    RuleRemoved,
    Cleared,
    /// A function of the chain has ended the session.
    Function,
}

/// Time, and what follows from it.
#[derive(Debug, Default)]
pub(crate) struct Lifetime {
    /// The time of the last call, in milliseconds.
    pub now: u32,
    /// Sessions that have ended. While the number stays the same, flow references stay valid.
    pub removals: u32,
    /// The number of removals when no packet was under way.
    pub removals_at_tick: u32,
    /// [`Sessions::clear_batch`] has ended the sessions below this number.
    pub clear_position: u32,
    /// Calls of [`Sessions::tick`].
    pub ticks: u32,
}

/// Sessions that are processed together.
pub(crate) struct SessionBatch {
    ids: [SessionId; BATCH],
    n: usize,
}

impl SessionBatch {
    /// Collects the next sessions of a source.
    pub fn collect(mut next: impl FnMut() -> Option<SessionId>) -> SessionBatch {
        let mut batch = SessionBatch { ids: [SessionId(0); BATCH], n: 0 };
        for slot in &mut batch.ids {
            let Some(id) = next() else { break };
            *slot = id;
            batch.n += 1;
        }
        batch
    }

    pub fn ids(&self) -> &[SessionId] {
        &self.ids[..self.n]
    }
}
