//! Words of messages.

/// A number with its noun: `1 rule`, `2 rules`.
pub fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
