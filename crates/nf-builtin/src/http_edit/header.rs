//! Headers: what they tell about a body, and lines that are added.

use std::ops::Range;

use super::config::{Config, Value};
use mmb_flow::Key;

/// Most lines that are removed for a body.
const MOST_REMOVED: usize = 8;
/// Headers that describe the bytes of a body (RFC 9110, 8.6 and 14.3; RFC 9530; RFC 1864).
const DESCRIPTIONS: [&[u8]; 5] =
    [b"content-md5", b"digest", b"content-digest", b"repr-digest", b"accept-ranges"];

/// What a head tells about its body.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The bodies of its type are edited. None: it has no type.
    pub has_type: Option<bool>,
    pub is_encoded: bool,
    pub closes: bool,
    pub keeps_open: bool,
    pub expects: bool,
    /// The line with Content-Length, and the value.
    pub length: Option<(Range<usize>, Range<usize>)>,
    /// The value of ETag.
    pub etag: Option<Range<usize>>,
    /// Lines that do not hold any more if the body changes.
    removed: [Range<usize>; MOST_REMOVED],
    count: usize,
}

impl Facts {
    /// Iterates over the lines that do not hold any more if the body changes.
    pub fn removed(&self) -> impl Iterator<Item = Range<usize>> {
        self.removed.iter().take(self.count).cloned()
    }

    fn remove(&mut self, line: Range<usize>) {
        if let Some(place) = self.removed.get_mut(self.count) {
            *place = line;
            self.count += 1;
        }
    }

    /// Notes what a header tells about the body. `line` is where it is, `place` where its value is.
    /// `is_removed`: the line is removed in any case.
    pub fn note(
        &mut self,
        (name, value): (&[u8], &[u8]),
        (line, place): (Range<usize>, Range<usize>),
        is_removed: bool,
        config: &Config,
    ) {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        let has = |word: &[u8]| {
            value.split(|&byte| byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(word))
        };
        if is(b"content-type") {
            self.has_type = Some(config.is_edited_type(value));
        } else if is(b"content-encoding") {
            self.is_encoded |= !value.eq_ignore_ascii_case(b"identity");
        } else if is(b"connection") {
            self.closes |= has(b"close");
            self.keeps_open |= has(b"keep-alive");
        } else if is(b"expect") {
            self.expects = true;
        } else if is(b"content-length") {
            self.length = Some((line, place));
        } else if is(b"etag") && !is_removed {
            self.etag = Some(place);
        } else if DESCRIPTIONS.iter().any(|other| is(other)) && !is_removed {
            self.remove(line);
        }
    }
}

/// Writes text.
pub(super) fn write(text: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = std::io::Write::write_fmt(text, arguments);
}

/// Writes the line of a header. `key` is that of requests.
pub(super) fn write_header(name: &[u8], value: &Value, key: Option<&Key>, text: &mut Vec<u8>) {
    text.extend_from_slice(name);
    text.extend_from_slice(b": ");
    match (value, key) {
        (Value::Text(value), _) => text.extend_from_slice(value),
        (Value::ClientAddress, Some(key)) => write_address(key, &key.source, text),
        (Value::ServerAddress, Some(key)) => write_address(key, &key.destination, text),
        (_, None) => {}
    }
    text.extend_from_slice(b"\r\n");
}

fn write_address(key: &Key, address: &[u8; 16], text: &mut Vec<u8>) {
    let [a, b, c, d, ..] = *address;
    match key.is_ip4() {
        true => write(text, format_args!("{}", std::net::Ipv4Addr::new(a, b, c, d))),
        false => write(text, format_args!("{}", std::net::Ipv6Addr::from(*address))),
    }
}
