use super::*;
use PuntClass::{Local, Neighbor, Other, Routing};

const UNICAST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MULTICAST: [u8; 6] = [1, 0, 0x5e, 0, 0, 5];

fn frame(to: [u8; 6], ethertype: u16, l3: &[u8]) -> Vec<u8> {
    [&to[..], &[2, 0, 0, 0, 0, 2], &ethertype.to_be_bytes(), l3].concat()
}

fn ip4(to: [u8; 6], proto: u8, l4: &[u8]) -> Vec<u8> {
    let mut head = [0u8; 20];
    (head[0], head[9]) = (0x45, proto);
    frame(to, IP4, &[&head[..], l4].concat())
}

fn ip6(to: [u8; 6], next: u8, l4: &[u8]) -> Vec<u8> {
    let mut head = [0u8; 40];
    (head[0], head[6]) = (0x60, next);
    frame(to, IP6, &[&head[..], l4].concat())
}

fn ports(from: u16, to: u16) -> Vec<u8> {
    [from.to_be_bytes(), to.to_be_bytes(), [0, 8], [0, 0]].concat()
}

#[test]
fn protocols_have_their_class() {
    let cases = [
        (frame([0xff; 6], ARP, &[0; 28]), Neighbor),
        (frame(UNICAST, ARP, &[]), Neighbor),
        (ip6(MULTICAST, ICMP6, &[135, 0, 0, 0]), Neighbor),
        (ip6(UNICAST, ICMP6, &[136, 0, 0, 0]), Neighbor),
        (ip6(UNICAST, ICMP6, &[128, 0, 0, 0]), Local),
        (ip4(MULTICAST, 89, &[]), Routing),
        (ip4(UNICAST, 112, &[]), Routing),
        (ip6(MULTICAST, 89, &[]), Routing),
        (ip4(UNICAST, TCP, &ports(40_000, 179)), Routing),
        (ip6(UNICAST, TCP, &ports(179, 40_000)), Routing),
        (ip4(UNICAST, UDP, &ports(49_152, 3784)), Routing),
        // Only the port of the machine counts: any host may choose its own.
        (ip4(UNICAST, UDP, &ports(3784, 4000)), Local),
        (ip4(UNICAST, TCP, &ports(40_000, 22)), Local),
        (ip4(UNICAST, 1, &[8, 0, 0, 0]), Local),
        (ip4([0xff; 6], UDP, &ports(68, 67)), Other),
        (ip6(MULTICAST, HOP_BY_HOP, &[ICMP6, 0, 5, 2, 0, 0, 1, 0, 143, 0]), Routing),
        // IS-IS, LLDP, and an ethertype that nobody knows.
        (frame([1, 0x80, 0xc2, 0, 0, 0x14], 100, &[0xfe, 0xfe, 3, 0x83]), Routing),
        (frame([1, 0x80, 0xc2, 0, 0, 0x0e], 0x88cc, &[]), Routing),
        (frame(UNICAST, 0x9999, &[]), Other),
        (vec![0xff; 13], Other),
    ];
    for (frame, class) in cases {
        assert_eq!(class_of(&frame), class, "{frame:02x?}");
    }
}

#[test]
fn later_fragments_have_no_ports() {
    let mut frame = ip4(UNICAST, TCP, &ports(40_000, 179));
    frame[14 + 7] = 1;
    assert_eq!(class_of(&frame), Local);
}

#[test]
fn cut_frames_have_a_class() {
    let whole = [
        ip4(UNICAST, TCP, &ports(1, 179)),
        ip6(UNICAST, HOP_BY_HOP, &[ICMP6, 0, 5, 2, 0, 0, 1, 0, 143, 0]),
        frame(UNICAST, 0x8100, &[0, 1, 0x08, 0x00, 0x4f]),
    ];
    for frame in whole {
        for length in 0..frame.len() {
            // Whatever the class is: no byte behind the end is read.
            let class = class_of(&frame[..length]);
            assert!(PuntClass::ALL.contains(&class));
        }
    }
}
