//! Fragments that overlap, and fragments of ICMP errors.

mod common;

use common::*;
use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Tcp, Transport, Udp};
use mmb_packet::{DropReason, PacketBuf};
use mmb_session_harness::Outcome;

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const SERVER: End = ([192, 0, 2, 7], 80);
const NAT: [u8; 4] = [200, 0, 0, 1];
const ROUTER: [u8; 4] = [198, 51, 100, 1];
const LET_80: [&str; 2] = ["add-stateful tcp-dport 80 accept", "add all drop"];

/// A range of an IPv4 packet's payload as a fragment.
fn part4(whole: &Frame, id: u16, proto: u8, range: std::ops::Range<usize>) -> Frame {
    let bytes = whole.build();
    let address = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let data = bytes[34..].to_vec();
    let ip = Ip4 {
        id,
        flags: u8::from(range.end < data.len()),
        fragment_offset: range.start as u16 / 8,
        ..Ip4::new(address(26), address(30))
    };
    Frame::new(ip, Transport::Raw(proto)).payload(&data[range.start..range.end.min(data.len())])
}

fn part6(segment: &[u8], id: u32, range: std::ops::Range<usize>) -> Frame {
    let fragment =
        Extension::Fragment { offset: range.start as u16 / 8, more: range.end < segment.len(), id };
    let ip = Ip6::new([0xfd00, 0, 0, 0, 0, 0, 0, 1], [0xfd00, 0, 0, 0, 0, 0, 0, 2]).with([fragment]);
    Frame::new(ip, Transport::Raw(6)).payload(&segment[range])
}

fn outcome(net: &mut Net, frame: &Frame) -> Outcome {
    net.one(IN, frame).0
}

/// RFC 3128 and RFC 5722: what overlaps the approved first fragment, and all that follows, is dropped.
#[test]
fn an_overlap_drops_the_rest_of_the_datagram() {
    let segment = tcp(CLIENT, SERVER, ACK, 1, 1).payload([7; 60]);
    let bytes = segment.build()[34..].to_vec();
    let four = |id, range| part4(&segment, id, 6, range);
    let six = |id: u16, range| part6(&bytes, id.into(), range);
    let makers: [&dyn Fn(u16, std::ops::Range<usize>) -> Frame; 2] = [&four, &six];
    let overlap = Outcome::Dropped(DropReason::FragmentOverlap);
    for make in makers {
        let mut net = Net::new(&LET_80);
        let out = Outcome::Out(OUT);
        assert_eq!(outcome(&mut net, &make(1, 0..40)), out);
        assert_eq!(outcome(&mut net, &make(1, 0..40)), overlap, "a duplicate, dropped alone");
        assert_eq!(outcome(&mut net, &make(1, 40..56)), out);
        assert_eq!(outcome(&mut net, &make(1, 56..80)), out);
        assert_eq!(outcome(&mut net, &make(2, 0..40)), out);
        assert_eq!(outcome(&mut net, &make(2, 32..56)), overlap);
        assert_eq!(outcome(&mut net, &make(2, 40..56)), overlap);
        assert_eq!(outcome(&mut net, &make(2, 0..40)), overlap);
        assert_eq!(outcome(&mut net, &make(2, 56..80)), overlap);
        // Fragments that wait for the first one, which overlaps them.
        assert_eq!(net.run(IN, &make(3, 32..80)).len(), 0);
        let outcomes: Vec<_> = net.run(IN, &make(3, 0..40)).into_iter().map(|sent| sent.outcome).collect();
        assert!(outcomes.contains(&overlap) && outcomes.contains(&out) && outcomes.len() == 2);
        // The identification is forgotten after a while, and at once when its datagram was complete.
        assert_eq!(outcome(&mut net, &make(1, 0..40)), out);
        net.wait(3_000);
        assert_eq!(outcome(&mut net, &make(2, 0..40)), out);
    }
}

/// Later fragments of an ICMP error follow the first one, translated like it.
#[test]
fn errors_in_fragments_pass_nat() {
    for workers in [1, 4] {
        let lines = ["nat pool add p 200.0.0.1", "add-stateful ip-saddr 10.0.0.0/8 nat p"];
        let mut net = Net::with(rules(&lines), workers, 1000);
        let long = |from: End, to| udp(from, to).payload([9; 400]);
        let (_, out) = net.one(IN, &long(CLIENT, SERVER));
        let shown: End = (NAT, source(&out).1);
        let there = error(3, 1, ROUTER, NAT, &long(shown, SERVER));
        let back = error(3, 1, ROUTER, CLIENT.0, &long(CLIENT, SERVER));
        let length = there.build().len() - 34;
        for (id, order) in [(1, [0, 1]), (2, [1, 0])] {
            let split = |whole: &Frame| [part4(whole, id, 1, 0..200), part4(whole, id, 1, 200..length)];
            let mut sent = Vec::new();
            for at in order {
                sent.extend(net.run(OUT, &split(&there)[at]));
            }
            sent.sort_by_key(|sent| sent.packet.head()[21]);
            for (sent, expected) in sent.iter().zip(split(&back)) {
                assert_eq!((sent.outcome, sent.packet.head()), (Outcome::Out(IN), &expected.build()[..]));
            }
            assert_eq!(sent.len(), 2);
        }
    }
}

/// Over IPv6 and without NAT, the error belongs to its session, and so do its fragments.
#[test]
fn errors_in_fragments_belong_to_their_session() {
    let [a, b] = [1, 2].map(|n| [0xfd00, 0, 0, 0, 0, 0, 0, n]);
    let mut net = Net::new(&["add-stateful udp-dport 80 accept", "add all drop"]);
    let datagram = Frame::new(Ip6::new(a, b), Udp::new(9, 80)).payload([7; 100]);
    net.passes(IN, &datagram);
    let error = Frame::new(Ip6::new(b, a), Icmp { code: 4, ..Icmp::new(1) }).payload(&datagram.build()[14..]);
    let message = error.build()[54..].to_vec();
    let part = |id, offset: usize, more| {
        let header = Extension::Fragment { offset: offset as u16 / 8, more, id };
        let data = if more { &message[..80] } else { &message[offset..] };
        Frame::new(Ip6::new(b, a).with([header]), Transport::Raw(58)).payload(data)
    };
    net.passes(OUT, &part(1, 0, true));
    net.passes(OUT, &part(1, 80, false));
    // Without the first fragment, nothing shows what it belongs to.
    assert_eq!(net.run(OUT, &part(2, 80, false)).len(), 0);
    let lost: Vec<_> = net.wait(3_000).into_iter().map(|sent| sent.outcome).collect();
    assert_eq!(lost, [Outcome::Dropped(DropReason::FragmentLost)]);
    let other = Tcp { flags: ACK, ..Tcp::new(9, 81) };
    net.drops(IN, &Frame::new(Ip6::new(a, b), other), DropReason::Rule);
}

/// The rule that drops the first fragment has dropped the others, too.
#[test]
fn later_fragments_count_for_the_rule_that_dropped_the_first() {
    let mut net = Net::new(&["add udp-dport 80 drop", "add-stateful udp-dport 81 accept"]);
    let [a, b] = [1, 2].map(|n| [0xfd00, 0, 0, 0, 0, 0, 0, n]);
    let datagram = Frame::new(Ip6::new(a, b), Udp::new(9, 80)).payload([7; 100]).build()[54..].to_vec();
    let part = |offset: usize, more| {
        let header = Extension::Fragment { offset: offset as u16 / 8, more, id: 1 };
        let data = if more { &datagram[..80] } else { &datagram[offset..] };
        Frame::new(Ip6::new(a, b).with([header]), Transport::Raw(17)).payload(data)
    };
    net.drops(IN, &part(0, true), DropReason::Rule);
    net.drops(IN, &part(80, false), DropReason::Rule);
    assert_eq!((net.matched(1), net.decided(1)), (1, 2));
}
