//! Heads that are written anew for the other side.
//!
//! Headers of one connection are left out (RFC 9110, 7.6.1), and those that frame the body are written by the
//! broker.

use std::io::Write;
use std::net::SocketAddr;

use mmb_http::{Body, Head, MessageHead};
use mmb_nf::Peer;

use super::body::Framing;

/// Headers of one connection, whether or not Connection names them, and those that the broker writes.
const HOP_BY_HOP: [&[u8]; 8] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"transfer-encoding",
    b"upgrade",
    b"content-length",
    b"http2-settings",
];

/// Whether a header is left out for the other side. `added`: names of headers that functions of the operator
/// have added, which the sender has no say in.
fn is_hop_by_hop(message: &MessageHead, name: &[u8], has_connection: bool, added: &[Box<[u8]>]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    // A request says by Host for whom it is.
    let is_end_to_end = || is(b"host") || added.iter().any(|other| is(other));
    HOP_BY_HOP.iter().any(|other| is(other))
        || has_connection && message.lists(b"connection", name) && !is_end_to_end()
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Returns the protocols of Upgrade that go through the broker. HTTP/2 does not: its requests would pass no
/// function.
pub(super) fn upgrade(message: &MessageHead) -> Option<&[u8]> {
    if !message.lists(b"connection", b"upgrade") {
        return None;
    }
    let mut values = message.values(b"upgrade");
    let value = values.next().filter(|value| !value.is_empty())?;
    let lower = value.to_ascii_lowercase();
    let is_http = |part: &[u8]| lower.windows(part.len()).any(|window| window == part);
    (values.next().is_none() && !is_http(b"h2c") && !is_http(b"http")).then_some(value)
}

/// Writes a request for a server. `added`: names of the headers that functions have added.
pub(super) fn write_request(
    message: &MessageHead,
    (head, added): (&Head, &[Box<[u8]>]),
    peer: &Peer,
    server: SocketAddr,
    out: &mut Vec<u8>,
) {
    let has_connection = message.values(b"connection").next().is_some();
    out.extend_from_slice(message.method());
    out.push(b' ');
    out.extend_from_slice(message.target());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let (mut has_host, mut has_forwarded) = (false, false);
    for (name, value) in message.fields() {
        if is_hop_by_hop(message, name, has_connection, added) {
            continue;
        }
        has_host |= name.eq_ignore_ascii_case(b"host");
        if name.eq_ignore_ascii_case(b"x-forwarded-for") {
            has_forwarded = true;
            continue;
        }
        // HTTP/1.0 knows no interim response (RFC 9110, 10.1.1).
        let is_unknown = head.minor == 0 && name.eq_ignore_ascii_case(b"expect");
        if !is_unknown && !name.eq_ignore_ascii_case(b"x-forwarded-proto") {
            line(out, name, value);
        }
    }
    // Writing to memory does not fail.
    if !has_host {
        let _ = write!(out, "Host: {server}\r\n");
    }
    out.extend_from_slice(b"X-Forwarded-For: ");
    if has_forwarded {
        for value in message.values(b"x-forwarded-for") {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
    let _ = write!(out, "{}\r\nX-Forwarded-Proto: http\r\nVia: 1.{} mmb\r\n", peer.client.ip(), head.minor);
    match head.body {
        Body::Length(len) => drop(write!(out, "Content-Length: {len}\r\n")),
        Body::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Body::None | Body::UntilClose | Body::Switched => {}
    }
    if let Some(protocol) = upgrade(message) {
        out.extend_from_slice(b"Connection: upgrade\r\n");
        line(out, b"Upgrade", protocol);
    }
    out.extend_from_slice(b"\r\n");
}

/// What the client is told besides the headers of a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub framing: Framing,
    /// The connection stays open.
    pub keeps_open: bool,
    /// The minor version of the request.
    pub minor: u8,
}

/// Writes a response, also an interim one, for a client.
pub(super) fn write_response(message: &MessageHead, head: &Head, delivery: Delivery, out: &mut Vec<u8>) {
    let has_connection = message.values(b"connection").next().is_some();
    let _ = write!(out, "HTTP/1.1 {:03} ", head.status);
    out.extend_from_slice(message.reason());
    out.extend_from_slice(b"\r\n");
    // The length of a body that is not sent: of HEAD and of status 304.
    let is_kept = |name: &[u8]| {
        head.body == Body::None
            && head.status >= 200
            && head.status != 204
            && name.eq_ignore_ascii_case(b"content-length")
    };
    for (name, value) in message.fields() {
        if !is_hop_by_hop(message, name, has_connection, &[]) || is_kept(name) {
            line(out, name, value);
        }
    }
    match (delivery.framing, head.body) {
        (Framing::Length, Body::Length(len)) => drop(write!(out, "Content-Length: {len}\r\n")),
        (Framing::Chunked, _) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        _ => {}
    }
    if head.body == Body::Switched {
        out.extend_from_slice(b"Connection: upgrade\r\n");
        message.values(b"upgrade").for_each(|value| line(out, b"Upgrade", value));
    } else if head.status >= 200 {
        out.extend_from_slice(connection(delivery.keeps_open, delivery.minor));
    }
    out.extend_from_slice(b"\r\n");
}

/// Returns the line that tells what becomes of the connection; none if it is what the version says.
pub(super) fn connection(keeps_open: bool, minor: u8) -> &'static [u8] {
    match (keeps_open, minor) {
        (true, 0) => b"Connection: keep-alive\r\n",
        (true, _) => b"",
        (false, _) => b"Connection: close\r\n",
    }
}

/// Whether the sender of a message keeps its connection open.
pub(super) fn keeps_open(message: &MessageHead, minor: u8) -> bool {
    !message.lists(b"connection", b"close") && (minor >= 1 || message.lists(b"connection", b"keep-alive"))
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
