//! Reasons of session ends, and the time of a worker's sessions.

use mmb_flow::{Direction, SessionId};

/// Sessions in a batch.
const BATCH: usize = 32;

/// Both directions, in the order of their numbers.
pub(crate) const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Reverse];

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    Expired,
    /// The table was nearly full, and the session idle.
    Aged,
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
    /// [`crate::Sessions::clear_batch`] has ended the sessions below this number.
    pub clear_position: u32,
    /// Calls of [`crate::Sessions::tick`].
    pub ticks: u32,
    /// How long sessions live without packets.
    pub ageing: Ageing,
    /// Sessions below this number have been examined since the table became nearly full.
    pub sweep_position: u32,
    /// Sessions below this number have been examined since chains have changed. `u32::MAX`: all.
    pub chain_position: u32,
}

/// How long sessions live without packets: shorter when the table is nearly full.
///
/// Theory of operation. Below one eighth of free room, timeouts shrink with the room that is left, down to
/// one eighth, as pf's adaptive timeouts do. So idle sessions make room before new ones are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ageing {
    /// The factor of timeouts, in [`Ageing::WHOLE`]ths.
    factor: u32,
}

impl Default for Ageing {
    fn default() -> Self {
        Ageing { factor: Ageing::WHOLE }
    }
}

impl Ageing {
    const WHOLE: u32 = 256;
    /// The smallest factor.
    const LEAST: u32 = Ageing::WHOLE / 8;
    /// The part of the room that is free when ageing begins.
    const BEGIN: u32 = 8;
    /// Tables with less room do not age.
    const ROOM_MIN: u32 = 1024;

    /// The ageing with `free` of `total` entries free.
    pub fn new(free: u32, total: u32) -> Ageing {
        let begin = total / Ageing::BEGIN;
        if free >= begin || total < Ageing::ROOM_MIN {
            return Ageing::default();
        }
        let factor = u64::from(free) * u64::from(Ageing::WHOLE) / u64::from(begin);
        Ageing { factor: (factor as u32).max(Ageing::LEAST) }
    }

    /// Whether timeouts are shorter than they are set.
    #[inline]
    pub fn is_active(self) -> bool {
        self.factor < Ageing::WHOLE
    }

    /// A timeout as it is now.
    #[inline]
    pub fn apply(self, timeout: u32) -> u32 {
        if !self.is_active() {
            return timeout;
        }
        ((u64::from(timeout) * u64::from(self.factor)) >> 8) as u32
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_shrink_with_the_room_that_is_left() {
        let timeout = |free| Ageing::new(free, 8_000).apply(300_000);
        assert_eq!([8_000, 1_000].map(timeout), [300_000; 2]);
        assert_eq!([500, 250, 125, 100, 0].map(timeout), [150_000, 75_000, 37_500, 37_500, 37_500]);
        assert_eq!(Ageing::new(0, 8).apply(300_000), 300_000, "a small table");
        assert_eq!(Ageing::new(0, u32::MAX).apply(u32::MAX), u32::MAX / 8);
    }
}
