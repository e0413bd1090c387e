//! Lines of a log on their way out of a process.

/// The lines that a function logs, for a function that runs in another process than the one with its log.
///
/// There, somebody takes the lines of the copy ([`LineSource::take`]). In the daemon, they are appended to
/// the log of the instance that the copy was made of ([`LineSource::append`]).
pub trait LineSource: Send + Sync {
    /// Whether something waits.
    fn is_waiting(&self) -> bool;
    /// Takes all that waits, as whole lines. Who is asked for that reports no log of its own any more.
    fn take(&self, text: &mut String);
    /// Counts lines that were taken and cannot be passed on, or that came and are not accepted.
    fn count_lost(&self, lines: u64);
    /// Returns how many lines a copy may log in a second.
    fn limit(&self) -> u32;
    /// Appends whole lines to the log.
    fn append(&self, lines: usize, text: &str);
    /// Returns names and values for `show functions`.
    fn report(&self) -> Vec<(String, String)>;
}
