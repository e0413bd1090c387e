//! How fast processes that end again and again are replaced.

use std::time::Duration;

/// So many processes with a short life are replaced at once, one after the other.
const AT_ONCE: u32 = 8;
/// Later ones are replaced after a pause, of at most the second time.
const SHORT_LIFE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The lives of the last processes.
#[derive(Debug, Default)]
pub struct RestartPace {
    short_lives: u32,
}

impl RestartPace {
    /// A process has ended after a time.
    pub fn note_life(&mut self, life: Duration) {
        self.short_lives = if life < SHORT_LIFE { self.short_lives.saturating_add(1) } else { 0 };
    }

    /// A process has not started.
    pub fn note_failure(&mut self) {
        self.short_lives = self.short_lives.saturating_add(1).max(AT_ONCE);
    }

    /// Returns how long the next start waits.
    pub fn pause(&self) -> Duration {
        self.short_lives
            .checked_sub(AT_ONCE)
            .map_or(Duration::ZERO, |more| LONGEST_PAUSE.min(Duration::from_millis(20) * (1 << more.min(10))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_after_short_lives() {
        let mut pace = RestartPace::default();
        (1..AT_ONCE).for_each(|_| pace.note_life(Duration::from_millis(1)));
        assert_eq!(pace.pause(), Duration::ZERO);
        let pauses = [0; 9].map(|_| {
            pace.note_life(Duration::from_millis(1));
            pace.pause().as_millis()
        });
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1280, 2000, 2000]);
        pace.note_life(SHORT_LIFE);
        assert_eq!(pace.pause(), Duration::ZERO);
        pace.note_failure();
        assert_eq!(pace.pause().as_millis(), 20);
    }
}
