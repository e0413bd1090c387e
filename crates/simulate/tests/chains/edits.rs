//! Edited connections in the daemon's graph: next to other functions, with NAT, tags, routes and workers.

use std::collections::BTreeMap;

use mmb_dataplane::PortId;
use mmb_packet::build::{Frame, Icmp, Ip4, Tcp};
use mmb_packet::{Meta, parse};

use super::world::*;

const SYN: u8 = 2;
const ACK: u8 = 16;
const PORTS: [PortId; 2] = [LEFT, RIGHT];
const ROUTER: [u8; 4] = [198, 51, 100, 77];

/// A TCP segment, as it left.
#[derive(Debug)]
struct Segment {
    frame: Vec<u8>,
    ends: [([u8; 4], u16); 2],
    seq: u32,
    ack: u32,
    flags: u8,
    payload: Vec<u8>,
}

fn segment(frame: &[u8]) -> Segment {
    mmb_nf::testing::assert_checksums(frame);
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).unwrap();
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    let address = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).unwrap();
    Segment {
        frame: frame.to_vec(),
        ends: [(address(l3 + 12), word(l4)), (address(l3 + 16), word(l4 + 2))],
        seq: number(l4 + 4),
        ack: number(l4 + 8),
        flags: frame[l4 + 13],
        payload: frame[l4 + usize::from(frame[l4 + 12] >> 4) * 4..usize::from(meta.end)].to_vec(),
    }
}

/// One end of a connection. Bytes are numbered from the first one.
struct End {
    initial: u32,
    /// Its address and port, and those of the other end as it sees them.
    ends: [([u8; 4], u16); 2],
    received: BTreeMap<u32, u8>,
    peer: u32,
}

struct Connection {
    world: World,
    vlan: Option<u16>,
    mss: u16,
    sides: [End; 2],
}

impl Connection {
    fn open(world: World, vlan: Option<u16>, mss: u16) -> Connection {
        let end = |initial, ends| End { initial, ends, received: BTreeMap::new(), peer: 0 };
        let (client, server) = ((INSIDE, 5_000), (OUTSIDE, 80));
        let sides = [end(0xffff_ff80, [client, server]), end(7_000, [server, client])];
        let mut connection = Connection { world, vlan, mss, sides };
        for (side, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let from = if flags & SYN == 0 { 0 } else { u32::MAX };
            let left = connection.send(side, from, flags, b"");
            let [one] = &left[..] else { panic!("{left:?}") };
            let other = &mut connection.sides[1 - side];
            assert_eq!((one.ends[1], one.payload.len()), (other.ends[0], 0));
            // NAT may have given the client another address.
            other.ends[1] = one.ends[0];
            if flags & SYN != 0 {
                other.peer = one.seq.wrapping_add(1);
            }
        }
        connection
    }

    fn frame(&self, side: usize, from: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let End { initial, ends: [own, other], peer, .. } = &self.sides[side];
        let options = if flags & SYN == 0 { vec![] } else { [&[2, 4][..], &self.mss.to_be_bytes()].concat() };
        let ack = if flags & ACK == 0 { 0 } else { peer.wrapping_add(self.next(side)) };
        let seq = initial.wrapping_add(from);
        let tcp = Tcp { seq, ack, flags, window: 60_000, options, ..Tcp::new(own.1, other.1) };
        let frame = Frame::new(Ip4 { id: 0, ..Ip4::new(own.0, other.0) }, tcp);
        let frame = frame.macs(NEIGHBOR_MAC, [LEFT_MAC, RIGHT_MAC][side]).payload(payload);
        self.vlan.into_iter().fold(frame, Frame::vlan).build()
    }

    /// The bytes that a side has received in order.
    fn next(&self, side: usize) -> u32 {
        (0..).find(|at| !self.sides[side].received.contains_key(at)).unwrap()
    }

    /// Sends a segment. Returns what leaves to the other side.
    fn send(&mut self, side: usize, from: u32, flags: u8, payload: &[u8]) -> Vec<Segment> {
        let frame = self.frame(side, from, flags, payload);
        self.run(side, &[frame])
    }

    fn run(&mut self, side: usize, frames: &[Vec<u8>]) -> Vec<Segment> {
        let frames = frames.iter().map(|frame| (PORTS[side], frame.clone())).collect();
        let left = self.world.lab.run(0, frames);
        let to_other = left.iter().filter(|(port, _)| *port == PORTS[1 - side]);
        let segments: Vec<_> = to_other.map(|(_, frame)| segment(frame)).collect();
        let other = &mut self.sides[1 - side];
        for segment in segments.iter().filter(|segment| segment.flags & SYN == 0) {
            for (n, byte) in (0..).zip(&segment.payload) {
                let at = segment.seq.wrapping_add(n).wrapping_sub(other.peer);
                assert_eq!(other.received.entry(at).or_insert(*byte), byte, "one value for each byte");
            }
        }
        segments
    }

    /// Sends a text in segments with changing borders and order, each twice. The other side acknowledges.
    fn say(&mut self, side: usize, text: &str) {
        let pieces: Vec<_> = (0u32..).step_by(7).zip(text.as_bytes().chunks(7)).collect();
        for pair in pieces.chunks(2) {
            for (from, piece) in pair.iter().rev() {
                self.send(side, *from, ACK, piece);
            }
            let (from, len) = (pair[0].0, pair.iter().map(|(_, piece)| piece.len()).sum::<usize>());
            self.send(side, from, ACK, &text.as_bytes()[from as usize..from as usize + len]);
            self.send(1 - side, 0, ACK, b"");
        }
    }

    fn heard(&self, side: usize) -> String {
        self.sides[side].received.values().map(|&byte| char::from(byte)).collect()
    }
}

const FUNCTIONS: [&str; 12] = [
    "nat pool add wan 203.0.113.1-203.0.113.1 ports 6000-6999 filtering endpoint-independent",
    "nf add hide nat wan",
    "nf add longer match evil replace harmless",
    "nf add shorter match harm replace h",
    "nf add less match evil remove",
    "nf add masked match evil mask",
    "nf add volume payload-count",
    "nf add sum digest crc32c",
    "nf add access http-log",
    "nf add web http-filter block path /forbidden",
    "nf add headers http-edit request header set X-Evil evil response header del Server",
    "nf add found match less alert",
];

const REQUEST: &str = "GET /an/evil/page HTTP/1.1\r\nHost: b.example\r\nX-Word: devilevil\r\n\r\n";
const RESPONSE: &str =
    "HTTP/1.1 200 OK\r\nServer: evil\r\nX-Word: evilevil\r\nContent-Length: 8\r\n\r\nall good";

/// Functions that edit stand next to each other stream function, and before and behind NAT.
#[test]
fn edits_next_to_all_other_stream_functions() {
    let harmless = |text: &str| text.replace("evil", "harmless");
    let headers = |text: &str| text.replace("\r\n\r\n", "\r\nX-Evil: evil\r\n\r\n");
    let no_server = |text: &str| {
        ["evil", "harmless", "****"]
            .iter()
            .fold(text.to_owned(), |text, word| text.replace(&format!("Server: {word}\r\n"), ""))
    };
    let masked = |text: &str| text.replace("evil", "****");
    let shorter = |text: &str| text.replace("harm", "h");
    let none = |text: &str| text.replace("evil", "");
    let cases: [(&str, String, String); 10] = [
        ("longer", harmless(REQUEST), harmless(RESPONSE)),
        ("volume then longer then sum", harmless(REQUEST), harmless(RESPONSE)),
        ("less then access", none(REQUEST), none(RESPONSE)),
        ("access then less then volume", none(REQUEST), none(RESPONSE)),
        ("masked then found then access", masked(REQUEST), masked(RESPONSE)),
        // Replies meet the functions in reverse order.
        ("longer then shorter", shorter(&harmless(REQUEST)), harmless(RESPONSE)),
        ("headers then longer", harmless(&headers(REQUEST)), no_server(&harmless(RESPONSE))),
        ("headers then volume then found", headers(REQUEST), no_server(RESPONSE)),
        ("headers then masked then volume", masked(&headers(REQUEST)), no_server(&masked(RESPONSE))),
        ("web then less", none(REQUEST), none(RESPONSE)),
    ];
    for (case, (body, request, response)) in cases.iter().enumerate() {
        for variant in 0..8 {
            let (is_routed, workers, has_nat) = (variant & 1 != 0, 1 + (variant >> 1 & 1), variant & 4 != 0);
            let body = match has_nat {
                true if case % 2 == 0 => format!("{body} | hide"),
                true => format!("hide | {body}"),
                false => (*body).to_owned(),
            };
            let chain = format!("chain add c {body}");
            let mut lines = FUNCTIONS.to_vec();
            lines.extend([&chain[..], "add-stateful ip-saddr 10.0.0.0/24 chain c"]);
            let forwarding = if is_routed { routed(&lines) } else { forwarding(&lines, None) };
            let vlan = (case % 2 == 0 && !is_routed).then_some(7);
            let mut connection = Connection::open(world_of(workers, forwarding), vlan, 1460);
            connection.say(0, REQUEST);
            connection.say(1, RESPONSE);
            let heard = (connection.heard(1), connection.heard(0));
            assert_eq!(heard, (request.clone(), response.clone()), "{chain}, variant {variant}");
            assert_eq!(connection.world.drops(), [], "{chain}, variant {variant}");
        }
    }
}

/// RFC 5927, section 4.1: a sender ignores errors about numbers that it does not have in flight. So an error
/// about an edited segment quotes the number that its sender knows.
#[test]
fn errors_quote_the_numbers_of_the_sender() {
    let error = |about: &[u8], mtu: u16, to: [u8; 4]| {
        let icmp = Icmp { code: 4, rest: u32::from(mtu).to_be_bytes(), ..Icmp::new(3) };
        let frame = Frame::new(Ip4 { id: 0, ..Ip4::new(ROUTER, to) }, icmp).macs(NEIGHBOR_MAC, RIGHT_MAC);
        frame.payload(&about[14..14 + 28]).build()
    };
    for has_nat in [false, true] {
        let chain = if has_nat { "chain add c longer | hide" } else { "chain add c longer" };
        let mut lines = FUNCTIONS.to_vec();
        lines.extend([chain, "add-stateful ip-saddr 10.0.0.0/24 chain c"]);
        let mut connection = Connection::open(world(forwarding(&lines, None)), None, 1460);
        let text = format!("an evil word{}", " and so on".repeat(90));
        let sent = connection.send(0, 0, ACK, text.as_bytes());
        assert_eq!(sent.iter().map(|one| one.payload.len()).collect::<Vec<_>>(), [912, 4]);
        // The next segment is four bytes ahead of its sender's numbers, and too big for a link.
        let behind = text.len() as u32;
        let sent = connection.send(0, behind, ACK, text.as_bytes());
        let original = connection.frame(0, behind, ACK, b"");
        let to = sent[0].ends[0].0;
        let left = connection.world.send(RIGHT, &error(&sent[0].frame, 800, to));
        let [(LEFT, frame)] = &left[..] else { panic!("{left:?}") };
        assert_eq!(frame[42..70], {
            let mut quoted = sent[0].frame.clone();
            quoted[26..34].copy_from_slice(&original[26..34]);
            quoted[34..42].copy_from_slice(&original[34..42]);
            quoted[24..26].copy_from_slice(&frame[52..54]);
            quoted[14..42].to_vec()
        });
        mmb_nf::testing::assert_checksums(frame);
        // About a number that was never sent.
        let mut forged = sent[0].frame.clone();
        forged[38] ^= 0x40;
        assert_eq!(connection.world.send(RIGHT, &error(&forged, 576, to)), []);
        assert_eq!(connection.world.drops(), [("icmp-forged", 1)]);
        // What functions make fits the link: 800 bytes less the headers. 576 was not believed.
        let sent = connection.send(0, 2 * behind, ACK, text.as_bytes());
        assert_eq!(sent.iter().map(|one| one.payload.len()).collect::<Vec<_>>(), [760, 156]);
        assert!(sent.iter().all(|one| one.ack == sent[0].ack));
    }
}
