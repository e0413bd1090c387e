//! Edited datagrams in the daemon's graph: with NAT, tags, routes, fragments and workers.

use mmb_packet::build::{Frame, Ip4, Transport, Udp};

use super::world::*;

const FUNCTIONS: [&str; 4] = [
    "nat pool add wan 203.0.113.1-203.0.113.1 ports 6000-6999 filtering endpoint-independent",
    "nf add hide nat wan",
    "nf add longer match evil replace harmless",
    "add-stateful ip-saddr 10.0.0.0/24 chain c",
];

/// The world with a chain of these functions.
fn world_with(body: &str, is_routed: bool, workers: usize) -> World {
    let chain = format!("chain add c {body}");
    let mut lines = FUNCTIONS.to_vec();
    lines.insert(3, &chain);
    let forwarding = if is_routed { routed(&lines) } else { forwarding(&lines, None) };
    world_of(workers, forwarding)
}

/// Its source address and port, and its payload.
fn facts(frame: &[u8]) -> ([u8; 4], [u8; 2], Vec<u8>) {
    mmb_nf::testing::assert_checksums(frame);
    (frame[26..30].try_into().unwrap(), frame[34..36].try_into().unwrap(), frame[42..].to_vec())
}

#[test]
fn datagrams_are_edited_in_both_directions() {
    for variant in 0..12 {
        let (is_routed, workers, body) = (
            variant & 1 != 0,
            1 + (variant >> 1 & 1),
            ["longer", "hide | longer", "longer | hide"][variant / 4],
        );
        let mut world = world_with(body, is_routed, workers);
        let left = world.send(LEFT, &there(5_000, b"an evil word, ev"));
        let [(RIGHT, out)] = &left[..] else { panic!("{left:?}") };
        let (source, port, payload) = facts(out);
        assert_eq!(payload, b"an harmless word, ev", "{body}");
        assert_eq!(out[22], if is_routed { 63 } else { 64 });
        let has_nat = body != "longer";
        assert_eq!(source, if has_nat { [203, 0, 113, 1] } else { INSIDE });
        // The reply goes to the translated address.
        let net = Ip4 { id: 0, ..Ip4::new(OUTSIDE, source) };
        let reply = Frame::new(net, Udp::new(53, u16::from_be_bytes(port)));
        let reply = reply.macs(NEIGHBOR_MAC, RIGHT_MAC).payload(&b"no evil"[..]).build();
        let left = world.send(RIGHT, &reply);
        let [(LEFT, out)] = &left[..] else { panic!("{left:?}") };
        assert_eq!(facts(out).2, b"no harmless");
        assert_eq!((&out[30..34], &out[36..38]), (&INSIDE[..], &5_000u16.to_be_bytes()[..]));
        assert_eq!(world.drops(), []);
    }
}

/// In a vector, datagrams leave in the order in which they came.
#[test]
fn edited_datagrams_do_not_overtake_others() {
    let mut world = world_with("longer", false, 1);
    let texts = ["1 evil", "2", "3 evil", "4 evil", "5"];
    let left = world.lab.run(0, texts.iter().map(|text| (LEFT, there(5_000, text.as_bytes()))).collect());
    let payloads: Vec<_> = left.iter().map(|(_, frame)| facts(frame).2).collect();
    assert_eq!(payloads, texts.map(|text| text.replace("evil", "harmless").into_bytes()));
}

/// The route's next hop has an MTU of 1500 bytes.
#[test]
fn a_routed_datagram_does_not_exceed_the_mtu_of_its_next_hop() {
    for (fill, is_edited) in [(1500 - 28 - 8, true), (1500 - 28 - 7, false)] {
        let mut world = world_with("longer", true, 1);
        let text = [vec![b'.'; fill], b"evil".to_vec()].concat();
        let left = world.send(LEFT, &there(5_000, &text));
        let [(RIGHT, out)] = &left[..] else { panic!("{left:?}") };
        assert_eq!(facts(out).2.ends_with(b"harmless"), is_edited, "{fill}");
        assert_eq!(world.drops(), []);
    }
}

/// RFC 791: fragments are read, and go on as they are.
#[test]
fn fragments_are_not_edited() {
    let mut world = world_with("longer", false, 1);
    let net = |flags: u8, fragment_offset| Ip4 { id: 9, flags, fragment_offset, ..Ip4::new(INSIDE, OUTSIDE) };
    let first = Frame::new(net(1, 0), Udp { checksum: false, ..Udp::new(5_000, 53) });
    let first = first.macs(NEIGHBOR_MAC, LEFT_MAC).payload(&b"an evil word and"[..]).build();
    let later = Frame::new(net(0, 3), Transport::Raw(17)).macs(NEIGHBOR_MAC, LEFT_MAC);
    let later = later.payload(&b" another evil word"[..]).build();
    for frame in [first, later] {
        assert_eq!(world.send(LEFT, &frame), [(RIGHT, frame.clone())]);
    }
    assert_eq!(world.drops(), []);
}
