//! Datagrams that functions make longer, and the MTU of their path behind the box.

use mmb_flow::SessionSettings;
use mmb_packet::PacketBuf;
use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Net as Network, Udp};
use mmb_session_harness::{Outcome, RuleSet};

use crate::common::*;

/// A datagram of a client to its server.
fn datagram(is_ip4: bool, has_df: bool, text: &[u8]) -> Frame {
    let net: Network = match is_ip4 {
        true => Ip4 { flags: if has_df { 2 } else { 0 }, ..Ip4::new([10, 0, 0, 1], [192, 0, 2, 7]) }.into(),
        false => Ip6::new([1; 16], [2; 16]).into(),
    };
    Frame::new(net, Udp::new(4000, 53)).payload(text.to_vec())
}

/// The error of a router behind the box about a packet (RFC 1191, 4; RFC 4443, 3.2).
fn too_big(is_ip4: bool, mtu: u16, about: &[u8]) -> Frame {
    let [high, low] = mtu.to_be_bytes();
    let rest = [0, 0, high, low];
    match is_ip4 {
        true => Frame::new(Ip4::new([192, 0, 2, 254], [10, 0, 0, 1]), Icmp { code: 4, rest, ..Icmp::new(3) }),
        false => Frame::new(Ip6::new([3; 16], [1; 16]), Icmp { rest, ..Icmp::new(2) }),
    }
    .payload(about[14..].to_vec())
}

/// The sender keeps to the MTU that the error tells. Its datagrams of this length are not edited any more,
/// since they would be lost again.
#[test]
fn a_datagram_does_not_become_longer_than_its_path_takes() {
    for (is_ip4, has_df) in [(true, true), (true, false), (false, false)] {
        let lines = [
            "nf add m match evil replace harmless",
            "chain add c m",
            "add-stateful in port0 udp-dport 53 chain c",
        ];
        let rules =
            RuleSet::parse_with(&lines, SessionSettings::default(), None, &mmb_nf_builtin::registry(), 1);
        let mut net = Net::with(rules.unwrap_or_else(|error| panic!("{error}")), 1, 100);
        let header = if is_ip4 { 20 } else { 40 };
        let text = [vec![b'.'; 1396 - header - 8], b"evil".to_vec()].concat();
        let edited = [&text[..text.len() - 4], &b"harmless"[..]].concat();
        let [plain, longer] = [&text, &edited].map(|text| datagram(is_ip4, has_df, text).build());
        let sent = |net: &mut Net| {
            let sent = net.run(IN, &datagram(is_ip4, has_df, &text));
            let out =
                sent.iter().filter(|one| matches!(one.outcome, Outcome::Out(OUT) | Outcome::Emitted(OUT)));
            out.map(|one| one.packet.head().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(sent(&mut net), std::slice::from_ref(&longer));
        // One byte more than the link carries.
        net.passes(OUT, &too_big(is_ip4, 1403, &longer));
        assert_eq!(sent(&mut net), [plain]);
        // A larger one carries it.
        net.passes(OUT, &too_big(is_ip4, 1404, &longer));
        assert_eq!(sent(&mut net), std::slice::from_ref(&longer));
        net.passes(OUT, &too_big(is_ip4, 1403, &longer));
        for _ in 0..25 {
            net.wait(25_000);
            sent(&mut net);
        }
        assert_eq!(sent(&mut net), [longer], "routes change (RFC 1191, 6.3)");
    }
}
