//! Sessions whose connections end at a broker: which ones they are, and where their packets go.

mod common;

use std::net::IpAddr;

use common::*;
use mmb_flow::SessionSettings;
use mmb_packet::build::{Frame, Ip4, Tcp, Transport};
use mmb_session_harness::{Outcome, RuleSet};

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const SERVER: End = ([192, 0, 2, 7], 80);
/// The port that leads to the broker.
const BROKER: u16 = RuleSet::FIRST_BROKER + 1;
const RULE: &str = "add in port0 tcp-dport 80 broker port9";

/// 10/8 is inside, and the world is behind the other port. Both are routed.
fn routed(rules: RuleSet) -> RuleSet {
    rules.with_routing(&[IN, OUT], |to| match to {
        IpAddr::V4(to) if to.octets()[0] == 10 => Some(IN),
        _ => Some(OUT),
    })
}

fn net(lines: &[&str]) -> Net {
    Net::with(routed(rules(lines)), 1, 100)
}

fn change(net: &mut Net, lines: &[&str]) {
    let old = net.harness.rules();
    let rules = routed(rules_with(lines, SessionSettings::default(), Some(&old.policy)));
    net.harness.replace_rules(rules);
}

#[track_caller]
fn goes(net: &mut Net, in_port: u16, frame: &Frame, out: u16) {
    let (outcome, bytes) = net.one(in_port, frame);
    assert_eq!((outcome, bytes), (Outcome::Out(out), frame.build()));
}

/// A handshake, and packets of both directions.
#[track_caller]
fn connects(net: &mut Net, far: u16) {
    goes(net, IN, &tcp(CLIENT, SERVER, SYN, 100, 0), far);
    goes(net, far, &tcp(SERVER, CLIENT, SYN | ACK, 500, 101), IN);
    goes(net, IN, &tcp(CLIENT, SERVER, ACK, 101, 501), far);
    exchanges(net, far);
}

#[track_caller]
fn exchanges(net: &mut Net, far: u16) {
    for _ in 0..3 {
        goes(net, IN, &tcp(CLIENT, SERVER, ACK, 101, 501), far);
        goes(net, far, &tcp(SERVER, CLIENT, ACK, 501, 101), IN);
    }
}

#[test]
fn a_connection_goes_to_the_broker_and_back() {
    let mut net = net(&[RULE]);
    connects(&mut net, BROKER);
    let view = net.view();
    assert_eq!((view.in_port, view.state), ([IN, BROKER], "established"));
    assert!(view.packets.iter().all(|packets| *packets >= 4), "{view:?}");
    assert!(net.matched(1) > 4);
}

#[test]
fn a_connection_keeps_its_plane() {
    let mut net = net(&[RULE]);
    connects(&mut net, BROKER);
    change(&mut net, &[]);
    exchanges(&mut net, BROKER);
    // Another rule of the same name changes nothing, and a new connection follows the rules.
    change(&mut net, &["add-stateful in port0 accept"]);
    exchanges(&mut net, BROKER);
    let other = ([10, 0, 0, 1], 40_001);
    goes(&mut net, IN, &tcp(other, SERVER, SYN, 1, 0), OUT);
    change(&mut net, &["add-stateful in port0 accept", RULE]);
    goes(&mut net, OUT, &tcp(SERVER, other, SYN | ACK, 5, 2), IN);
    for _ in 0..3 {
        goes(&mut net, IN, &tcp(other, SERVER, ACK, 2, 6), OUT);
    }
    exchanges(&mut net, BROKER);
}

#[test]
fn only_connections_from_their_beginning_are_selected() {
    let mut net = net(&["add in port0 broker port9"]);
    goes(&mut net, IN, &tcp(CLIENT, SERVER, ACK, 101, 501), OUT);
    goes(&mut net, IN, &tcp(CLIENT, ([192, 0, 2, 8], 80), SYN | ACK, 101, 501), OUT);
    goes(&mut net, IN, &udp(CLIENT, SERVER), OUT);
    goes(&mut net, IN, &ping(CLIENT.0, SERVER.0, 7), OUT);
    assert_eq!(net.views().len(), 2, "only TCP matches the rule");
    goes(&mut net, IN, &tcp(([10, 0, 0, 2], 1), SERVER, SYN, 1, 0), BROKER);
    // A new connection in the place of one that has ended.
    goes(&mut net, IN, &tcp(CLIENT, SERVER, ACK | RST, 101, 501), OUT);
}

#[test]
fn wires_have_no_brokers() {
    let mut net = Net::new(&[RULE]);
    net.passes(IN, &tcp(CLIENT, SERVER, SYN, 100, 0));
    net.passes(IN, &tcp(CLIENT, SERVER, ACK, 101, 501));
}

#[test]
fn chains_come_before_brokers() {
    let lines = ["nf add c count", "chain add web c", "add-stateful tcp-dport 80 chain web", RULE];
    let registry = mmb_nf_builtin::registry();
    let rules = RuleSet::parse_with(&lines, SessionSettings::default(), None, &registry, 1);
    let mut net = Net::with(routed(rules.unwrap_or_else(|error| panic!("{error}"))), 1, 100);
    goes(&mut net, IN, &tcp(CLIENT, SERVER, SYN, 100, 0), OUT);
}

/// The broker sees translated packets, and what it sends is translated back.
#[test]
fn translation_comes_first() {
    let lines = ["nat pool add p 200.0.0.1", "add-stateful in port0 ip-saddr 10.0.0.0/8 nat p", RULE];
    let mut net = net(&lines);
    let outside = ([200, 0, 0, 1], CLIENT.1);
    for (flags, seq, ack) in [(SYN, 100, 0), (ACK, 101, 501), (ACK, 101, 501)] {
        let (outcome, bytes) = net.one(IN, &tcp(CLIENT, SERVER, flags, seq, ack));
        assert_eq!((outcome, source(&bytes)), (Outcome::Out(BROKER), outside));
        let flags = if flags == SYN { SYN | ACK } else { ACK };
        let (outcome, bytes) =
            net.one(BROKER, &tcp(SERVER, outside, flags, if flags == ACK { 501 } else { 500 }, 101));
        assert_eq!((outcome, destination(&bytes)), (Outcome::Out(IN), CLIENT));
    }
}

/// Rules that edit, and rules that are evaluated for each packet, apply on the way to the broker.
#[test]
fn rules_apply_on_the_way() {
    let with_ttl = |flags: u8, seq: u32, ack: u32, ttl: u8| {
        let tcp = Tcp { flags, seq, ack, ..Tcp::new(CLIENT.1, SERVER.1) };
        Frame::new(Ip4 { ttl, ..Ip4::new(CLIENT.0, SERVER.0) }, tcp)
    };
    for more in [&["add in port0 mod ip-ttl 9"][..], &["add in port0 mod ip-ttl 9", "add ip-ttl 3 drop"]] {
        let mut net = net(&[&[RULE], more].concat());
        for (flags, seq, ack) in [(SYN, 100, 0), (ACK, 101, 501), (ACK, 101, 501)] {
            let (outcome, bytes) = net.one(IN, &with_ttl(flags, seq, ack, 64));
            assert_eq!((outcome, bytes), (Outcome::Out(BROKER), with_ttl(flags, seq, ack, 9).build()));
            if flags == SYN {
                goes(&mut net, BROKER, &tcp(SERVER, CLIENT, SYN | ACK, 500, 101), IN);
            }
        }
    }
}

/// A broker connects to a server with the address of its client: no rule is needed for the way back.
#[test]
fn connections_of_brokers_come_back() {
    for lines in [&[RULE][..], &["add tcp-dport 80 broker port8"], &["add-stateful all accept"], &[]] {
        let mut net = net(lines);
        goes(&mut net, BROKER, &tcp(CLIENT, SERVER, SYN, 100, 0), OUT);
        goes(&mut net, OUT, &tcp(SERVER, CLIENT, SYN | ACK, 500, 101), BROKER);
        for _ in 0..3 {
            goes(&mut net, BROKER, &tcp(CLIENT, SERVER, ACK, 101, 501), OUT);
            goes(&mut net, OUT, &tcp(SERVER, CLIENT, ACK, 501, 101), BROKER);
        }
        let about = tcp(CLIENT, SERVER, ACK, 101, 501);
        goes(&mut net, OUT, &error(3, 1, [192, 0, 2, 1], CLIENT.0, &about), BROKER);
    }
}

/// A range of the segment in a frame of the client, as a fragment.
fn fragment(whole: &Frame, id: u16, range: std::ops::Range<usize>) -> Frame {
    let segment = whole.build()[34..].to_vec();
    let offset = range.start as u16 / 8;
    let more = u8::from(range.end < segment.len());
    let ip = Ip4 { id, flags: more, fragment_offset: offset, ..Ip4::new(CLIENT.0, SERVER.0) };
    Frame::new(ip, Transport::Raw(6)).payload(&segment[range])
}

#[test]
fn fragments_follow_their_connection() {
    let mut net = net(&[RULE]);
    connects(&mut net, BROKER);
    change(&mut net, &[]);
    let segment = tcp(CLIENT, SERVER, ACK, 101, 501).payload([7; 60]);
    goes(&mut net, IN, &fragment(&segment, 1, 0..40), BROKER);
    goes(&mut net, IN, &fragment(&segment, 1, 40..80), BROKER);
    // The later one comes first, and waits.
    assert_eq!(net.run(IN, &fragment(&segment, 2, 40..80)).len(), 0);
    let outcomes: Vec<_> =
        net.run(IN, &fragment(&segment, 2, 0..40)).into_iter().map(|sent| sent.outcome).collect();
    assert_eq!(outcomes, [Outcome::Out(BROKER); 2]);
}

/// An error about what the broker has sent goes to the broker; one about what the client has sent, to the
/// client.
#[test]
fn errors_follow_their_connection() {
    let mut net = net(&[RULE]);
    connects(&mut net, BROKER);
    change(&mut net, &[]);
    let router = [10, 0, 0, 254];
    let about = tcp(SERVER, CLIENT, ACK, 501, 101);
    goes(&mut net, IN, &error(3, 4, router, SERVER.0, &about), BROKER);
    let about = tcp(CLIENT, SERVER, ACK, 101, 501);
    goes(&mut net, BROKER, &error(3, 1, SERVER.0, CLIENT.0, &about), IN);
}
