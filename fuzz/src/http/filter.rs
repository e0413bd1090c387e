//! Properties of the function `http-filter` for any bytes. The fuzz target `http` runs them on the fuzzer's
//! bytes. A test of the crate runs them on the corpus and on random bytes.
//!
//! An oracle reads the requests of an input at once: heads with httparse, bodies by their lengths. It decides
//! about each request by its fields. The function gets the same bytes in segments.
//!
//! * The server gets a prefix of what the client has sent, and no byte of the first request that is refused,
//!   nor of anything behind it.
//! * A request that the function refuses by a rule is one that the oracle refuses, and the server gets all in
//!   front of it.
//! * What the server gets is the same wherever the bytes are cut, up to an error in a body.

use std::cell::RefCell;

use mmb_http::{Target, normalize_path};
use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// A byte that stands for the end of a piece for the other direction.
const TURN: u8 = 0xff;
/// Most bytes of an input, and of a segment.
const MOST: usize = 4096;
const SEGMENT: usize = 1400;
/// Sessions after which a harness is made anew.
const SESSIONS: u32 = 2000;
/// Most headers that httparse is given room for.
const FIELDS: usize = 200;
/// Offset of the TCP header in a frame.
const TCP: usize = 34;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

const RULES: &str = "nf add f http-filter allow host ok block path /b block method PUT block header x bad* \
                     redirect http://b/ host b\nchain add c f";

thread_local! {
    static HARNESS: RefCell<Option<Harness>> = const { RefCell::new(None) };
}

/// What the oracle says about the requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// The request that begins there is refused by a rule.
    Refused(usize),
    /// What begins there is not the head of a request.
    Malformed(usize),
    /// A head begins there, and has no end.
    Open(usize),
    /// All bytes belong to requests that are allowed.
    Allowed,
    /// What follows the request that ends there may be of another protocol, or has a body of unclear length.
    Unclear,
}

/// What a run of the function has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Run {
    /// What the server has got.
    passed: Vec<u8>,
    /// Requests that were blocked or redirected.
    refused: u64,
    /// Errors in HTTP.
    rejected: u64,
    /// The connection was given up, since it is not HTTP/1.x.
    is_unread: bool,
}

/// Runs the input `bytes`. Panics if a property does not hold.
pub fn check(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first().filter(|(_, bytes)| bytes.len() <= MOST) else { return };
    let sent: Vec<u8> = bytes.split(|&byte| byte == TURN).step_by(2).collect::<Vec<_>>().concat();
    let reading = read(&sent);
    HARNESS.with_borrow_mut(|place| {
        if place.as_ref().is_some_and(|harness| harness.sessions() > SESSIONS) {
            *place = None;
        }
        let make = || Harness::new(mmb_nf_builtin::registry(), RULES).expect("accepted lines");
        let harness = place.get_or_insert_with(make);
        let [whole, others @ ..] = [SEGMENT, 1, usize::from(cut) + 2].map(|size| talk(harness, bytes, size));
        judge(&whole, reading, &sent);
        for other in others {
            judge(&other, reading, &sent);
            assert_eq!((other.refused, other.is_unread), (whole.refused, whole.is_unread));
            let has_error = |run: &Run| run.rejected != 0;
            assert_eq!(has_error(&other), has_error(&whole), "an error depends on the borders of segments");
            // Less of a segment with an error has gone on.
            assert!(whole.rejected != 0 || other.passed == whole.passed);
        }
    });
}

/// Compares a run with what the oracle says.
fn judge(run: &Run, reading: Reading, sent: &[u8]) {
    let text = || format!("{reading:?} {run:?}\n{}", sent.escape_ascii());
    assert!(sent.starts_with(&run.passed), "{}", text());
    if run.is_unread {
        return;
    }
    let (end, is_rule) = match reading {
        Reading::Refused(at) => (at, true),
        Reading::Malformed(at) | Reading::Open(at) => (at, false),
        Reading::Allowed => (sent.len(), false),
        Reading::Unclear => return,
    };
    // An error in a body in front of it may have ended the connection.
    assert!(run.passed.len() <= end, "{}", text());
    assert!(run.refused == 0 || is_rule && run.passed.len() == end, "{}", text());
    assert!(run.rejected + run.refused != 0 || !is_rule && run.passed.len() == end, "{}", text());
}

/// Reads the requests of a client.
fn read(sent: &[u8]) -> Reading {
    let mut at = 0;
    while at < sent.len() {
        let rest = &sent[at..];
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let head = match request.parse(rest) {
            Ok(httparse::Status::Complete(head)) => head,
            Ok(httparse::Status::Partial) => return Reading::Open(at),
            Err(_) => return Reading::Malformed(at),
        };
        let method = request.method.unwrap_or_default().as_bytes();
        let values = |name: &'static str| {
            let is = move |one: &&httparse::Header<'_>| one.name.eq_ignore_ascii_case(name);
            request.headers.iter().filter(is).map(|one| one.value.trim_ascii())
        };
        let target = request.path.unwrap_or_default().as_bytes();
        match is_refused(method, target, values("host").next(), values("x")) {
            Some(true) => return Reading::Refused(at),
            Some(false) => {}
            None => return Reading::Malformed(at),
        }
        if method == b"CONNECT" || values("upgrade").next().is_some() {
            return Reading::Unclear;
        }
        at += head;
        let body = match (values("transfer-encoding").next(), values("content-length").next()) {
            (None, None) => Some(0),
            (None, Some(length)) => std::str::from_utf8(length).ok().and_then(|text| text.parse().ok()),
            (Some(_), _) => chunked(&sent[at..]),
        };
        match body {
            Some(len) => at = at.saturating_add(len),
            None => return Reading::Unclear,
        }
    }
    Reading::Allowed
}

/// Whether a rule refuses a request. None: its target is malformed.
fn is_refused<'v>(
    method: &[u8],
    target: &[u8],
    host: Option<&[u8]>,
    mut values: impl Iterator<Item = &'v [u8]>,
) -> Option<bool> {
    let target = Target::read(method, target, host).ok()?;
    let mut room = vec![0; target.path.len() + 1];
    let path = normalize_path(target.path, &mut room)?;
    let is_path = path == b"/b" || path.starts_with(b"/b/");
    let is_refused = is_path || method == b"PUT" || values.any(|value| value.starts_with(b"bad"));
    Some(!target.host.eq_ignore_ascii_case(b"ok") && (is_refused || target.host.eq_ignore_ascii_case(b"b")))
}

/// Returns the length of a body in chunks. None: it has no end, or is malformed.
fn chunked(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        let httparse::Status::Complete((line, size)) = httparse::parse_chunk_size(rest).ok()? else {
            return None;
        };
        at = at.checked_add(line)?.checked_add(usize::try_from(size).ok()?)?;
        if size == 0 {
            let mut fields = [httparse::EMPTY_HEADER; FIELDS];
            let trailers = httparse::parse_headers(bytes.get(at..)?, &mut fields).ok()?;
            return if trailers.is_complete() { Some(at + trailers.unwrap().0) } else { None };
        }
        at = at.checked_add(2)?;
    }
}

/// Sends bytes through the function, in segments of a size.
fn talk(harness: &mut Harness, bytes: &[u8], size: usize) -> Run {
    let before = counted(harness);
    let mut passed = Vec::new();
    let port = 4000 + harness.sessions() as u16;
    let (mut next, mut expected) = ([100_u32, 500], [101_u32, 501]);
    // Returns whether the connection was reset.
    let mut send = |direction: usize, flags: u8, payload: &[u8]| {
        let other = 1 - direction;
        let ack = if flags == SYN { 0 } else { expected[other] };
        let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [port, 80]);
        let tcp = Tcp { seq: next[direction], ack, flags, ..Tcp::new(ports[direction], ports[other]) };
        let frame = Frame::new(Ip4::new(ends[direction], ends[other]), tcp).payload(payload).build();
        next[direction] += payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        let mut is_reset = false;
        for sent in harness.send("c", &[frame]) {
            is_reset |= matches!(sent.verdict, ChainVerdict::Refuse(_) | ChainVerdict::End(_));
            let went_on = (sent.verdict == ChainVerdict::Pass).then_some(sent.frame);
            for frame in sent.emitted.into_iter().map(|(_, frame)| frame).chain(went_on) {
                let way = usize::from(frame[TCP..TCP + 2] == 80_u16.to_be_bytes());
                let payload = &frame[TCP + usize::from(frame[TCP + 12] >> 4) * 4..];
                if frame[TCP + 13] & (SYN | RST) == 0 {
                    expected[way] += payload.len() as u32;
                    if way == 0 {
                        passed.extend_from_slice(payload);
                    }
                }
            }
        }
        is_reset
    };
    send(0, SYN, b"");
    send(1, SYN | ACK, b"");
    let mut pieces = bytes.split(|&byte| byte == TURN).enumerate();
    let is_reset = pieces.any(|(turn, part)| part.chunks(size).any(|piece| send(turn & 1, ACK, piece)));
    // A head that waits for its end is judged.
    let _ = is_reset || send(0, ACK | FIN, b"");
    let after = counted(harness);
    let [refused, rejected, unread] = [0, 1, 2].map(|n| after[n] - before[n]);
    Run { passed, refused, rejected, is_unread: unread != 0 }
}

/// Returns how many requests were refused, how many errors there were, and how many connections are not read.
fn counted(harness: &Harness) -> [u64; 3] {
    let report = harness.program().instance("f").map(|instance| instance.report()).unwrap_or_default();
    let mut counted = [0; 3];
    for (name, value) in report {
        let which = match name.as_str() {
            "blocked" | "redirected" => 0,
            name if name.starts_with("rejected: ") => 1,
            name if name.starts_with("not read: ") => 2,
            _ => continue,
        };
        counted[which] += value.parse::<u64>().unwrap_or(0);
    }
    counted
}
