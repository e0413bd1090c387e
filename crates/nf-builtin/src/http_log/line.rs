//! The line about a request.
//!
//! The common and the combined log format are those of Apache and nginx, with the bytes of the response's
//! body. Bytes other than visible characters are written as `\xHH`, as are `"` and `\`. A line of JSON has
//! more; control characters in it are replaced.

use std::fmt::Write;
use std::time::SystemTime;

use serde_json::json;

use super::record::{HOST, REFERER, Record, USER_AGENT};
use crate::shared::endpoints::Endpoints;

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Common,
    Combined,
    Json,
}

impl Format {
    pub fn of(word: &str) -> Option<Format> {
        match word {
            "common" => Some(Format::Common),
            "combined" => Some(Format::Combined),
            "json" => Some(Format::Json),
            _ => None,
        }
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Appends a line about a request that began at `at`. Writing to a string does not fail.
pub(super) fn line(text: &mut String, format: Format, at: SystemTime, record: &Record) {
    if format == Format::Json {
        let _ = writeln!(text, "{}", json(at, record));
        return;
    }
    let day = humantime::format_rfc3339_seconds(at).to_string();
    // 2026-11-23T13:00:00Z
    let part = |range| day.get(range).unwrap_or_default();
    let month = part(5..7).parse::<usize>().ok().and_then(|month| MONTHS.get(month.checked_sub(1)?));
    let _ = write!(
        text,
        "{} - - [{}/{}/{}:{} +0000] \"",
        Endpoints::of(&record.key).source,
        part(8..10),
        month.unwrap_or(&"-"),
        part(0..4),
        part(11..19),
    );
    escape(text, record.head.method());
    text.push(' ');
    escape(text, record.head.target());
    let _ = write!(text, " HTTP/1.{}\" ", record.minor);
    let _ = match record.status {
        0 => write!(text, "- "),
        status => write!(text, "{status} "),
    };
    let _ = match record.response_bytes {
        0 => write!(text, "-"),
        bytes => write!(text, "{bytes}"),
    };
    if format == Format::Combined {
        for field in [REFERER, USER_AGENT] {
            text.push_str(" \"");
            match record.head.values(field).next() {
                Some(value) => escape(text, value),
                None => text.push('-'),
            }
            text.push('"');
        }
    }
    text.push('\n');
}

fn json(at: SystemTime, record: &Record) -> serde_json::Value {
    let ends = Endpoints::of(&record.key);
    let (client_port, server_port) = ends.ports.unwrap_or_default();
    let value = |field| record.head.values(field).next().map(printable);
    json!({
        "time": humantime::format_rfc3339_millis(at).to_string(),
        "client": ends.source.to_string(),
        "client_port": client_port,
        "server": ends.destination.to_string(),
        "server_port": server_port,
        "method": printable(record.head.method()),
        "target": printable(record.head.target()),
        "version": format!("1.{}", record.minor),
        "host": value(HOST),
        "referer": value(REFERER),
        "user_agent": value(USER_AGENT),
        "status": (record.status != 0).then_some(record.status),
        "request_bytes": record.request_bytes,
        "response_bytes": record.response_bytes,
        "milliseconds": record.end.wrapping_sub(record.begin),
        "complete": record.is_complete,
        "truncated": record.head.is_truncated(),
    })
}

/// Appends bytes as text that ends neither the line nor a quoted string.
fn escape(text: &mut String, bytes: &[u8]) {
    for &byte in bytes {
        if matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\' {
            text.push(byte.into());
        } else {
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
}

/// Returns bytes as text without control characters.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|one| if one.is_control() { char::REPLACEMENT_CHARACTER } else { one }).collect()
}
