//! Headers: what they tell about a body, and lines that are added.

use std::ops::Range;

use super::config::{Config, Value};
use crate::shared::content_coding::Coding;
use mmb_flow::Key;

/// Most lines that are removed for a body.
const MOST_REMOVED: usize = 8;
/// Headers that describe the bytes of a body (RFC 9110, 8.6 and 14.3; RFC 9530; RFC 1864).
const DESCRIPTIONS: [&[u8]; 5] =
    [b"content-md5", b"digest", b"content-digest", b"repr-digest", b"accept-ranges"];

/// How a body is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Encoding {
    #[default]
    None,
    /// With one coding that is decoded.
    One(Coding),
    /// With another one, or with several.
    Other,
}

/// What a head tells about its body.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The bodies of its type are edited. None: it has no type.
    pub has_type: Option<bool>,
    pub encoding: Encoding,
    /// The body is a part of another one (RFC 9110, 14.4 and 14.5).
    pub is_partial: bool,
    /// The body must not be transformed (RFC 9111, 5.2.1.6 and 5.2.2.6).
    pub is_fixed: bool,
    pub closes: bool,
    pub keeps_open: bool,
    pub expects: bool,
    /// The line with Content-Length, and the value.
    pub length: Option<(Range<usize>, Range<usize>)>,
    /// The line with Content-Encoding, if it is not removed in any case.
    pub encoding_line: Option<Range<usize>>,
    /// The value of ETag.
    pub etag: Option<Range<usize>>,
    /// Lines that do not hold any more if the body changes.
    removed: [Range<usize>; MOST_REMOVED],
    count: usize,
    /// There are more such lines.
    pub has_too_many: bool,
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
        } else {
            self.has_too_many = true;
        }
    }

    /// Notes the content codings of a header.
    fn note_encoding(&mut self, value: &[u8]) {
        let names = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        for name in names.filter(|name| !name.is_empty()) {
            self.encoding = match (self.encoding, Coding::of(name)) {
                (Encoding::None, Some(coding)) if self.encoding_line.is_none() => Encoding::One(coding),
                (known, _) if name.eq_ignore_ascii_case(b"identity") => known,
                _ => Encoding::Other,
            };
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
            self.note_encoding(value);
            self.encoding_line = (!is_removed).then_some(line);
        } else if is(b"content-range") {
            self.is_partial = true;
        } else if is(b"cache-control") {
            self.is_fixed |= is_fixed(value);
        } else if is(b"connection") {
            self.closes |= has(b"close");
            self.keeps_open |= has(b"keep-alive");
        } else if is(b"expect") {
            self.expects = true;
        } else if is(b"content-length") {
            self.length = Some((line, place));
        } else if is(b"etag") && !is_removed {
            self.etag = Some(place);
        } else if describes_body(name) && !is_removed {
            self.remove(line);
        }
    }
}

/// Whether a header or trailer describes the bytes of a body, and does not hold any more if they change.
pub(super) fn describes_body(name: &[u8]) -> bool {
    DESCRIPTIONS.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// Whether the directives of a Cache-Control header forbid a transformation. Quoted texts are none.
fn is_fixed(value: &[u8]) -> bool {
    let mut is_quoted = false;
    let mut is_end = |&byte: &u8| {
        is_quoted ^= byte == b'"';
        byte == b',' && !is_quoted
    };
    value.split(|byte| is_end(byte)).any(|one| one.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
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
