//! Tests of the parent module.

use mmb_packet::build::{Frame, Ip4, Ip6, Tcp, Udp};

use super::*;
use mmb_nf::testing::{Bench, Forward, Reverse, refused};

const DENIED: Verdict = Verdict::Refuse(DropReason::Acl);

fn tcp(from: [u8; 4], dport: u16) -> Vec<u8> {
    Frame::new(Ip4::new(from, [192, 0, 2, 1]), Tcp::new(4000, dport)).build()
}

/// Returns the verdict for a session that a packet opens.
fn verdict(bench: &mut Bench<Acl>, frame: &[u8]) -> Verdict {
    let session = bench.open(frame);
    bench.packet(session, Forward, frame).verdict
}

#[test]
fn the_first_clause_decides_and_the_rest_is_denied() {
    let words = "deny ip-saddr 10.0.0.66 allow tcp-dport {80,443} allow in near udp-dport 53 \
        deny tcp-dport 22 allow ip-daddr 192.0.2.1 tcp-dport 22";
    let mut bench = Bench::<Acl>::new(words);
    assert_eq!(verdict(&mut bench, &tcp([10, 0, 0, 1], 80)), Verdict::Pass);
    assert_eq!(verdict(&mut bench, &tcp([10, 0, 0, 66], 80)), DENIED);
    assert_eq!(verdict(&mut bench, &tcp([10, 0, 0, 1], 22)), DENIED);
    assert_eq!(verdict(&mut bench, &tcp([10, 0, 0, 1], 8080)), DENIED);
    let six =
        Frame::new(Ip6::new([0x2001, 0, 0, 0, 0, 0, 0, 1], [0x2001, 0, 0, 0, 0, 0, 0, 2]), Udp::new(1, 53));
    assert_eq!(verdict(&mut bench, &six.build()), Verdict::Pass);
}

#[test]
fn replies_need_no_clause() {
    let mut bench = Bench::<Acl>::new("allow ip-saddr 10.0.0.0/8");
    let frame = tcp([10, 0, 0, 1], 80);
    let session = bench.open(&frame);
    let reply = Frame::new(Ip4::new([192, 0, 2, 1], [10, 0, 0, 1]), Tcp::new(80, 4000)).build();
    assert_eq!(bench.packet(session, Reverse, &reply).verdict, Verdict::Pass);
    assert_eq!(verdict(&mut bench, &reply), DENIED, "but not as a session of its own");
}

/// The input port is that of the session's first packet.
#[test]
fn the_port_is_where_the_session_began() {
    let mut bench = Bench::<Acl>::new("allow in far");
    let session = bench.open(&tcp([10, 0, 0, 1], 80));
    assert_eq!(bench.packet(session, Reverse, &tcp([10, 0, 0, 1], 80)).verdict, DENIED);
}

#[test]
fn a_clause_without_matches_is_everything() {
    let mut bench = Bench::<Acl>::new("deny udp-dport 53 allow");
    assert_eq!(verdict(&mut bench, &tcp([10, 0, 0, 1], 80)), Verdict::Pass);
}

#[test]
fn invalid_arguments_are_named() {
    for (words, named) in [
        ("", "allows nothing"),
        ("deny tcp-dport 80", "allows nothing"),
        ("tcp-dport 80 allow all", "`tcp-dport`"),
        ("allow tcp-dprot 80", "tcp-dport"),
        ("allow tcp-syn", "single packets"),
    ] {
        assert!(refused::<Acl>(words).contains(named), "{words}: {}", refused::<Acl>(words));
    }
}
