//! Adaptive state: which shortcuts have paid off for recent vectors.

/// Decides when to try a shortcut. After each failure the pause before the next attempt doubles.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProbeBackoff {
    /// Number of vectors until the next attempt.
    wait: u8,
    /// Pause after the last failure, in vectors.
    interval: u8,
}

impl ProbeBackoff {
    /// Maximum pause, in vectors.
    const MAX_INTERVAL: u8 = 64;

    /// Whether to try the shortcut for this vector.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        let due = self.wait == 0;
        self.wait -= u8::from(!due);
        due
    }

    /// Records the result of an attempt.
    #[inline]
    pub fn record(&mut self, was_wasted: bool) {
        self.interval = if was_wasted { (self.interval * 2).clamp(1, Self::MAX_INTERVAL) } else { 0 };
        self.wait = self.interval;
    }
}

/// Adaptive state of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AdaptiveState {
    /// For [`find_possible_matches`](super::find_possible_matches), which pays if few packets match.
    pub early_scan: ProbeBackoff,
    /// For querying the filters before the tables.
    pub filters: ProbeBackoff,
    /// Whether many packets find keys in the tables. Then a lookup costs more than the match cache.
    pub is_lookup_costly: bool,
}

impl AdaptiveState {
    /// Smaller vectors are not evaluated.
    const MIN_PACKETS: usize = 32;

    /// Records the number of keys that the packets found.
    #[inline]
    pub fn record_cost(&mut self, found: usize, packets: usize) {
        if packets >= Self::MIN_PACKETS {
            self.is_lookup_costly = found * 3 > packets;
        }
    }
}
