//! Properties of the function `http-lb` for any bytes of a client. The fuzz target `http` runs them on the
//! fuzzer's bytes. A test of the crate runs them on the corpus and on random bytes.
//!
//! * A server is chosen, or the client is answered, for the same bytes wherever they are cut.
//! * It agrees with the parser: no server is chosen before a head is complete.
//! * The server gets exactly what the client has sent.

use std::cell::RefCell;

use mmb_http::{Connection, Event};
use mmb_nf::{ChainVerdict, DropReason, Harness};
use mmb_packet::build::{Frame, Ip4, Tcp};

/// A byte that ends the bytes of the client.
const TURN: u8 = 0xff;
/// Most bytes of an input, and of a segment.
const MOST: usize = 4096;
const SEGMENT: usize = 1400;
/// Connections after which a harness is made anew.
const CONNECTIONS: u16 = 500;
/// Offset of the TCP header in a frame.
const TCP: usize = 34;
const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;
const LINES: &str = "nf add l http-lb path /b to 10.0.0.3 default to 10.0.0.2\nchain add c l";

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The head is not complete.
    Waits,
    /// The client gets an answer from mmb.
    Answered,
    /// A server gets the request.
    Handed,
}

thread_local! {
    static HARNESS: RefCell<Option<(Harness, u16)>> = const { RefCell::new(None) };
}

/// Runs the input `bytes`. Panics if a property does not hold.
pub fn check(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first().filter(|(_, bytes)| bytes.len() <= MOST) else { return };
    let bytes = bytes.split(|&byte| byte == TURN).next().unwrap_or_default();
    HARNESS.with_borrow_mut(|place| {
        if place.as_ref().is_some_and(|(_, connections)| *connections > CONNECTIONS) {
            *place = None;
        }
        let make = || (Harness::new(mmb_nf_builtin::registry(), LINES).expect("accepted lines"), 0);
        let (harness, connections) = place.get_or_insert_with(make);
        let outcomes = [SEGMENT, 1, usize::from(cut) + 2].map(|size| {
            *connections += 1;
            talk(harness, 4000 + *connections, bytes, size)
        });
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:?}");
        match (parsed(bytes), outcomes[0]) {
            (Outcome::Handed, Outcome::Handed | Outcome::Answered) => {}
            (parsed, outcome) => assert_eq!(parsed, outcome, "{}", bytes.escape_ascii()),
        }
    });
}

/// What the parser finds. A complete head may still have an invalid target.
fn parsed(mut bytes: &[u8]) -> Outcome {
    let mut connection = Connection::default();
    loop {
        let (len, event) = connection.next(0, bytes);
        bytes = &bytes[len..];
        match event {
            Event::More => return Outcome::Waits,
            Event::Head(_) => return Outcome::Handed,
            Event::Invalid(_) | Event::Opaque(_) => return Outcome::Answered,
            _ => {}
        }
    }
}

fn number(frame: &[u8], at: usize) -> u32 {
    frame[TCP + at..].first_chunk().map_or(0, |&number| u32::from_be_bytes(number))
}

fn payload(frame: &[u8]) -> &[u8] {
    &frame[TCP + usize::from(frame[TCP + 12] >> 4) * 4..]
}

/// A client connects and sends bytes in segments of a size, until a server is chosen or mmb answers.
fn talk(harness: &mut Harness, port: u16, bytes: &[u8], size: usize) -> Outcome {
    let (client, service) = ([10, 0, 0, 1], [10, 0, 0, 9]);
    let segment = |flags: u8, [seq, ack]: [u32; 2], payload: &[u8]| {
        let tcp = Tcp { seq, ack, flags, window: 1000, ..Tcp::new(port, 80) };
        Frame::new(Ip4::new(client, service), tcp).payload(payload).build()
    };
    let answer = harness.send("c", &[segment(SYN, [1000, 0], b"")]).remove(0);
    assert!(answer.is_answered && answer.frame[TCP + 13] == SYN | ACK);
    let next = number(&answer.frame, 4).wrapping_add(1);
    let mut at = 0;
    for piece in bytes.chunks(size) {
        let sent = harness.send("c", &[segment(ACK, [1001 + at as u32, next], piece)]).remove(0);
        at += piece.len();
        let flags = sent.frame[TCP + 13];
        match sent.verdict {
            // The harness has little room for an answer behind a small packet.
            ChainVerdict::Drop(DropReason::NoBuffer) => return Outcome::Answered,
            ChainVerdict::Pass if sent.is_answered && flags & FIN != 0 => {
                assert!(payload(&sent.frame).starts_with(b"HTTP/1.1 ") && number(&sent.frame, 4) == next);
                return Outcome::Answered;
            }
            ChainVerdict::Pass if sent.is_answered => {
                assert_eq!((flags, number(&sent.frame, 8)), (ACK, 1001 + at as u32));
            }
            ChainVerdict::Pass => {
                assert_eq!((flags, number(&sent.frame, 4), number(&sent.frame, 8)), (SYN, 1000, 0));
                let tcp = Tcp { seq: 500, ack: 1001, flags: SYN | ACK, window: 1000, ..Tcp::new(80, port) };
                let answer = Frame::new(Ip4::new(service, client), tcp).build();
                let joined = harness.send("c", &[answer]).remove(0);
                assert_eq!(joined.verdict, ChainVerdict::Consume);
                let handed: Vec<u8> =
                    joined.emitted.iter().flat_map(|(_, frame)| payload(frame).to_vec()).collect();
                assert!(handed == bytes[..at], "{}", handed.escape_ascii());
                return Outcome::Handed;
            }
            other => panic!("{other:?}"),
        }
    }
    Outcome::Waits
}
