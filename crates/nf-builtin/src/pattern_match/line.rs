//! The line about a match.

use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

use mmb_nf::{Direction, Key};

use super::config::Action;
use super::patterns::Compiled;
use crate::shared::endpoints::Endpoints;

/// A pattern that was found.
pub(super) struct Occurrence {
    pub compiled: Arc<Compiled>,
    pub pattern: u32,
    /// Key of forward packets. None: a fragment without ports.
    pub key: Option<Key>,
    pub direction: Direction,
    /// Bytes of the stream, or of the body, up to the end of the pattern.
    pub end: u64,
    pub is_in_body: bool,
    pub at: u32,
}

/// Appends a line about a match. Writing to a string does not fail.
pub(super) fn line(text: &mut String, at: SystemTime, found: &Occurrence, action: Action) {
    let day = humantime::format_rfc3339_millis(at);
    let pattern =
        found.compiled.set.patterns().get(found.pattern as usize).map_or("", |pattern| &pattern.text);
    let direction = if found.direction == Direction::Forward { "forward" } else { "reverse" };
    let body = if found.is_in_body { "a body of " } else { "" };
    let _ = write!(text, "{day} match: {pattern:?} ends at byte {} of {body}", found.end);
    match &found.key {
        Some(key) => {
            let ends = Endpoints::of(key);
            let _ = write!(text, "{} {ends} {direction}", ends.protocol());
        }
        None => {
            let _ = write!(text, "a fragment {direction}");
        }
    }
    text.push_str(action.done());
    text.push('\n');
}
