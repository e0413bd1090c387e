//! The line about a stream.

use std::fmt::Write;
use std::time::SystemTime;

use mmb_nf::Direction;

use super::Finished;
use crate::shared::endpoints::Endpoints;

/// Appends a line about a stream. Writing to a string does not fail.
pub(super) fn line(text: &mut String, at: SystemTime, one: &Finished) {
    let day = humantime::format_rfc3339_millis(at);
    let ends = Endpoints::of(&one.key);
    let direction = if one.direction == Direction::Forward { "forward" } else { "reverse" };
    let _ = write!(text, "{day} digest: {} ", one.algorithm.name());
    for byte in one.digest.iter().take(one.algorithm.len()) {
        let _ = write!(text, "{byte:02x}");
    }
    let _ = write!(text, " {} {ends} {direction} {} bytes", ends.protocol(), one.bytes);
    if one.is_known == Some(true) {
        text.push_str(" known");
    }
    if !one.is_whole {
        text.push_str(" without end");
    }
    text.push('\n');
}
