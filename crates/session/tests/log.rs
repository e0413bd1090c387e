//! Rules that log packets.

mod common;

use common::*;
use mmb_packet::DropReason;
use mmb_packet::build::{Frame, Icmp, Ip4, Udp};
use mmb_session::LogVerdict;

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const SERVER: End = ([192, 0, 2, 7], 80);

/// Index of the rule, verdict, ports and TCP flags of a packet.
type Entry = (u32, LogVerdict, Option<[u16; 2]>, Option<u8>);

/// Returns the packets logged since the last call.
fn logged(net: &Net) -> Vec<Entry> {
    let packets = net.harness.rules().take_logged();
    let entry = |packet: &mmb_session::LoggedPacket| {
        (packet.rule, packet.verdict, packet.headers.ports, packet.headers.tcp_flags)
    };
    packets.iter().map(entry).collect()
}

fn dropped() -> LogVerdict {
    LogVerdict::Dropped(DropReason::Rule as u8)
}

/// A rule that logs does it for each packet, with what all rules together decide, and changes nothing.
#[test]
fn each_packet_is_logged_with_its_verdict() {
    let mut net = Net::new(&[
        "add tcp-dport 80 log drop",
        "add ip-ttl 9 log prefix \"low\"",
        "add udp-dport 53 log reject",
        "add udp-dport 54 drop",
        "add tcp-syn log",
    ]);
    for _ in 0..2 {
        net.drops(IN, &tcp(CLIENT, SERVER, ACK, 100, 1), DropReason::Rule);
    }
    let ports = Some([CLIENT.1, 80]);
    assert_eq!(logged(&net), [(1, dropped(), ports, Some(ACK)), (1, dropped(), ports, Some(ACK))]);
    let low = |port| Frame::new(Ip4 { ttl: 9, ..Ip4::new(CLIENT.0, SERVER.0) }, Udp::new(9, port));
    net.passes(IN, &low(55));
    net.passes(OUT, &low(55));
    net.drops(IN, &low(54), DropReason::Rule);
    let passed = |port| (2, LogVerdict::Passed(port), Some([9, 55]), None);
    assert_eq!(logged(&net), [passed(OUT), passed(IN), (2, dropped(), Some([9, 54]), None)]);
    net.run(IN, &udp(CLIENT, (SERVER.0, 53)));
    let rejected = LogVerdict::Answered(DropReason::Rule as u8);
    assert_eq!(logged(&net), [(3, rejected, Some([CLIENT.1, 53]), None)]);
    net.drops(IN, &tcp(CLIENT, SERVER, SYN, 1, 0), DropReason::Rule);
    let both: Vec<u32> = logged(&net).iter().map(|packet| packet.0).collect();
    assert_eq!(both, [1, 5]);
    net.passes(IN, &udp(CLIENT, (SERVER.0, 55)));
    assert!(logged(&net).is_empty());
    assert_eq!((net.matched(1), net.decided(1), net.matched(2)), (3, 3, 3));
}

/// Packets of open sessions are logged, too, though their decisions are usually cached.
#[test]
fn packets_of_sessions_are_logged() {
    let open = "add-stateful udp-dport 80 accept";
    for log in ["add udp-sport 80 log", "add ip-proto udp udp-sport 80 ip-ttl 64 log"] {
        let mut net = Net::new(&[open]);
        net.passes(IN, &udp(CLIENT, SERVER));
        net.passes(OUT, &udp(SERVER, CLIENT));
        net.change(&[open, log]);
        for _ in 0..3 {
            net.passes(OUT, &udp(SERVER, CLIENT));
        }
        assert_eq!(logged(&net).len(), 3, "{log}");
        net.change(&[open]);
        net.passes(OUT, &udp(SERVER, CLIENT));
        assert!(logged(&net).is_empty());
    }
}

/// A stateful rule logs the packet that opens a session, and each packet that it drops.
#[test]
fn stateful_rules_log_sessions() {
    let mut net = Net::new(&["add-stateful udp-dport 80 log accept", "add-stateful udp-dport 81 log drop"]);
    for _ in 0..3 {
        net.passes(IN, &udp(CLIENT, SERVER));
        net.passes(OUT, &udp(SERVER, CLIENT));
    }
    net.passes(IN, &udp((CLIENT.0, 7), SERVER));
    let opened = |port| (1, LogVerdict::Passed(OUT), Some([port, 80]), None);
    assert_eq!(logged(&net), [opened(CLIENT.1), opened(7)]);
    for _ in 0..2 {
        net.drops(IN, &udp(CLIENT, (SERVER.0, 81)), DropReason::Rule);
    }
    assert_eq!(logged(&net).len(), 2);
}

/// Twenty lines at once, then ten a second; the other packets are counted.
#[test]
fn lines_are_limited_by_rule() {
    let mut net = Net::new(&["add udp-dport 80 log drop", "add udp-dport 81 log drop"]);
    for _ in 0..100 {
        net.drops(IN, &udp(CLIENT, SERVER), DropReason::Rule);
    }
    net.drops(IN, &udp(CLIENT, (SERVER.0, 81)), DropReason::Rule);
    let rules: Vec<u32> = logged(&net).iter().map(|packet| packet.0).collect();
    assert_eq!((rules.len(), rules[20]), (21, 2));
    let log = net.harness.rules().policy.rule_log(0).unwrap().clone();
    assert_eq!(log.take_suppressed(), 80);
    net.wait(500);
    for _ in 0..100 {
        net.drops(IN, &udp(CLIENT, SERVER), DropReason::Rule);
    }
    assert_eq!(logged(&net).len(), 5);
}

#[test]
fn headers_of_icmp_are_noted() {
    let mut net = Net::new(&["add all log"]);
    let frame = Frame::new(Ip4::new(CLIENT.0, SERVER.0), Icmp::new(8));
    net.passes(IN, &frame);
    let packets = net.harness.rules().take_logged();
    let headers = packets[0].headers;
    assert_eq!(headers.addresses, Some([CLIENT.0.into(), SERVER.0.into()]));
    let bytes = frame.build();
    assert_eq!((headers.protocol, headers.icmp), (1, Some([bytes[34], bytes[35]])));
    assert_eq!((headers.length as usize, headers.ports), (bytes.len(), None));
}
