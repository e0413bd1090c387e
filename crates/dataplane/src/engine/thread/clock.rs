//! The clock of a worker: milliseconds, read once per walk.

use std::time::Instant;

/// Where the time comes from.
enum TimeSource {
    /// The system's monotonic clock, since this instant.
    Monotonic(Instant),
    /// A value that a replay or a test sets, in milliseconds.
    Fixed(u32),
}

/// A clock that shows one time for a whole walk.
pub(crate) struct Clock {
    source: TimeSource,
    /// The time of this walk, in milliseconds; wraps after 49 days.
    pub now: u32,
}

impl Clock {
    /// A clock that is 0 at `origin`.
    pub fn monotonic(origin: Instant) -> Clock {
        Clock { source: TimeSource::Monotonic(origin), now: 0 }
    }

    /// Makes the clock stand at `milliseconds` from the next [`Clock::update`] on.
    pub fn set_fixed(&mut self, milliseconds: u32) {
        self.source = TimeSource::Fixed(milliseconds);
    }

    /// The time of the source, in milliseconds.
    pub fn read(&self) -> u32 {
        match self.source {
            TimeSource::Monotonic(origin) => origin.elapsed().as_millis() as u32,
            TimeSource::Fixed(now) => now,
        }
    }

    /// The time of the source, in nanoseconds. All workers of an engine have the same time.
    pub fn nanoseconds(&self) -> u64 {
        match self.source {
            TimeSource::Monotonic(origin) => origin.elapsed().as_nanos() as u64,
            TimeSource::Fixed(now) => u64::from(now) * 1_000_000,
        }
    }

    /// Takes the time of the source over as the time of this walk.
    pub fn update(&mut self) {
        self.now = self.read();
    }
}
