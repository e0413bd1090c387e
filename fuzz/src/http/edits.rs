//! Properties of the function `http-edit` for any bytes. The fuzz target `http` runs them on the fuzzer's
//! bytes. A test of the crate runs them on the corpus and on random bytes.
//!
//! * What leaves is the same wherever the bytes are cut, but for the borders of chunks. Exempt are servers
//!   that speak while their clients begin HTTP/2: an error in an unfinished line counts if it is read first.
//! * What leaves is accepted by the parser.
//! * Segments have the numbers that the receiver expects.

use std::cell::RefCell;

use mmb_http::{Cause, Connection, Element, Event};
use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// A byte that stands for the end of a piece for the other direction.
const TURN: u8 = 0xff;
/// Most bytes of an input, and of a segment.
const MOST: usize = 4096;
const SEGMENT: usize = 1400;
/// Windows of bytes that an input may become when its bodies are decoded.
const WINDOWS: usize = 40;
/// Sessions after which a harness is made anew.
const SESSIONS: u32 = 2000;
/// Offset of the TCP header in a frame.
const TCP: usize = 34;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

const HEADERS: &str = "nf add f http-edit request header set X client-address request header del Host-X \
                       request path replace ^/(b)? /$1$1 response header set y 1 response header del X \
                       response location replace a $0$0\n\
                       chain add c f";
const BODIES: &str = "nf add f http-edit type * body replace ab abcd body remove a request body replace b cc \
                      response header add Y 2\nchain add c f";

/// What has left: pieces with their directions.
type Left = Vec<(usize, Vec<u8>)>;

thread_local! {
    static HARNESSES: RefCell<[Option<Harness>; 2]> = const { RefCell::new([None, None]) };
}

/// Runs the input `bytes`. Panics if a property does not hold.
pub fn check(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first().filter(|(_, bytes)| bytes.len() <= MOST) else { return };
    if speaks_first(bytes) {
        return;
    }
    HARNESSES.with_borrow_mut(|harnesses| {
        let sizes = [SEGMENT, 1, usize::from(cut) + 2];
        for ((place, lines), view) in harnesses.iter_mut().zip([HEADERS, BODIES]).zip([bytes_of, content_of])
        {
            if place.as_ref().is_some_and(|harness| harness.sessions() > SESSIONS) {
                *place = None;
            }
            let make = || Harness::new(mmb_nf_builtin::registry(), lines).expect("accepted lines");
            let harness = place.get_or_insert_with(make);
            let [whole, single, pieces] = sizes.map(|size| talk(harness, bytes, size));
            for other in [single, pieces] {
                let is_reset = whole.1 || other.1;
                assert!(whole.1 == other.1, "a reset depends on the borders of segments");
                for (one, two) in view(&whole.0).iter().zip(&view(&other.0)) {
                    // Less of a segment with an error has gone on.
                    let (short, long) = if one.len() < two.len() { (one, two) } else { (two, one) };
                    let same = if is_reset { long.starts_with(short) } else { long == short };
                    assert!(same, "{}\n{}", one.escape_ascii(), two.escape_ascii());
                }
            }
        }
    });
}

/// Whether the server sends bytes before the preface (RFC 9113, 3.4) tells that its client begins HTTP/2.
fn speaks_first(bytes: &[u8]) -> bool {
    let (mut client, mut before) = (Vec::new(), None);
    for (turn, part) in bytes.split(|&byte| byte == TURN).enumerate() {
        if turn & 1 == 0 {
            client.extend_from_slice(part);
        } else if !part.is_empty() {
            before.get_or_insert(client.len());
        }
    }
    let has_begun = |bytes: &[u8]| bytes.trim_ascii_start().starts_with(b"PRI * HTTP/2");
    before.is_some_and(|before| has_begun(&client) && !has_begun(&client[..before]))
}

/// Sends bytes through a function, in segments of a size. Returns what has left, and whether the connection
/// was reset.
fn talk(harness: &mut Harness, bytes: &[u8], size: usize) -> (Left, bool) {
    let (mut left, mut is_reset) = (Left::new(), false);
    let port = 4000 + harness.sessions() as u16;
    let (mut next, mut passed) = ([100_u32, 500], [101_u32, 501]);
    let mut send = |harness: &mut Harness, direction: usize, flags: u8, payload: &[u8]| {
        let other = 1 - direction;
        let ack = if flags == SYN { 0 } else { passed[other] };
        let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [port, 80]);
        let tcp = Tcp { seq: next[direction], ack, flags, ..Tcp::new(ports[direction], ports[other]) };
        let frame = Frame::new(Ip4::new(ends[direction], ends[other]), tcp).payload(payload).build();
        next[direction] += payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        for sent in harness.send("c", &[frame]) {
            is_reset |= matches!(sent.verdict, ChainVerdict::Refuse(_));
            let went_on = (sent.verdict == ChainVerdict::Pass).then_some(sent.frame);
            for frame in sent.emitted.into_iter().map(|(_, frame)| frame).chain(went_on) {
                let way = usize::from(frame[TCP..TCP + 2] == 80_u16.to_be_bytes());
                let number = frame[TCP + 4..].first_chunk().map_or(0, |&number| u32::from_be_bytes(number));
                let payload = &frame[TCP + usize::from(frame[TCP + 12] >> 4) * 4..];
                if frame[TCP + 13] & (SYN | RST) == 0 && !payload.is_empty() {
                    assert_eq!(number, passed[way]);
                    passed[way] += payload.len() as u32;
                    left.push((way, payload.to_vec()));
                }
            }
        }
        is_reset
    };
    send(harness, 0, SYN, b"");
    send(harness, 1, SYN | ACK, b"");
    'all: for (turn, part) in bytes.split(|&byte| byte == TURN).enumerate() {
        for piece in part.chunks(size) {
            if send(harness, turn & 1, ACK, piece) {
                break 'all;
            }
        }
    }
    // Bytes that wait for the end of a line or of a head are judged.
    let mut is_over = |direction: usize| send(harness, direction, ACK | FIN, b"");
    if !(is_over(0) || is_over(1)) {
        // Bytes that the windows had no room for.
        for n in 0..2 * WINDOWS {
            send(harness, n & 1, ACK, b"");
        }
    }
    (left, is_reset)
}

/// Returns the bytes of both directions.
fn bytes_of(left: &Left) -> [Vec<u8>; 2] {
    [0, 1].map(|way| left.iter().filter(|one| one.0 == way).flat_map(|one| one.1.clone()).collect())
}

/// Returns the first lines and the contents of the messages of both directions.
fn content_of(left: &Left) -> [Vec<u8>; 2] {
    let (mut connection, mut found) = (Connection::default(), [Vec::new(), Vec::new()]);
    for (way, bytes) in left {
        let mut bytes = bytes.as_slice();
        loop {
            let (len, event) = connection.next(*way, bytes);
            bytes = &bytes[len..];
            match event {
                Event::More => break,
                Event::Bytes(Element::Name | Element::Value, _) => {}
                Event::Bytes(_, part) | Event::Opaque(part) => found[*way].extend_from_slice(part),
                Event::Invalid(cause) => assert_eq!(cause, Cause::Http2),
                _ => {}
            }
        }
    }
    found
}
