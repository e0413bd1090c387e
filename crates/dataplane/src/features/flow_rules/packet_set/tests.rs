//! Tests of the parent module.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn sets(text: &str) -> Vec<PacketSet> {
    PacketSet::of_matches(&mmb_lang::parse_matches(text).unwrap())
}

#[test]
fn matches_become_sets() {
    assert_eq!(sets("all"), PacketSet::all_classes());
    assert_eq!(
        sets("ip-ttl 1"),
        [PacketSet::all(true, FlowProto::Tcp), PacketSet::all(true, FlowProto::Udp)]
    );
    assert_eq!(sets("icmp-type 8"), []);
    assert_eq!(sets("ip-proto icmp"), []);
    assert_eq!(sets("ip-proto udp"), [PacketSet::all(true, FlowProto::Udp)]);
    let dns = PacketSet { ports: [ALL_PORTS, (53, 53)], ..PacketSet::all(true, FlowProto::Udp) };
    assert_eq!(sets("ip-proto udp udp-dport 53"), [dns]);
    assert_eq!(
        sets("udp-dport 53 ! udp-sport 53"),
        [dns, PacketSet { ports: dns.ports, ..PacketSet::all(false, FlowProto::Udp) }]
    );
    let net = 0x0a01_0000..=0x0a01_ffff_u128;
    let from = PacketSet {
        addresses: [(*net.start(), *net.end()), (0, 0xffff_ffff)],
        ..PacketSet::all(true, FlowProto::Tcp)
    };
    assert_eq!(sets("ip-saddr 10.1.0.0/16 tcp-syn"), [from]);
    assert_eq!(from.reversed().addresses, [(0, 0xffff_ffff), from.addresses[0]]);
    assert_eq!(sets("tcp-dport {80,443-444}").len(), 4);
    assert_eq!(sets("ip-saddr 10.0.0.0/8 tcp-dport < 1024")[0].ports[1], (0, 1023));
    assert_eq!(sets("tcp-dport > 65000")[0].ports[1], (65_001, 65_535));
    assert_eq!(sets("tcp-dport != 80")[0].ports[1], ALL_PORTS, "the set contains more, never less");
    let many: Vec<String> = (0..40).map(|n| (n * 2).to_string()).collect();
    assert_eq!(sets(&format!("tcp-dport {{{}}}", many.join(",")))[0].ports[1], (0, 78));
}

#[test]
fn sets_become_patterns() {
    let [all, ..] = PacketSet::all_classes();
    let any = FlowAddresses::V4([(Ipv4Addr::UNSPECIFIED, 0); 2]);
    let pattern = FlowPattern { addresses: any, proto: FlowProto::Tcp, ports: [(0, 0); 2] };
    assert_eq!(all.patterns(), Some(vec![pattern]));
    let web = PacketSet { ports: [ALL_PORTS, (80, 80)], ..all };
    assert_eq!(web.patterns(), Some(vec![FlowPattern { ports: [(0, 0), (80, 0xffff)], ..pattern }]));
    let low = PacketSet { ports: [ALL_PORTS, (0, 1023)], ..all };
    assert_eq!(low.patterns(), Some(vec![FlowPattern { ports: [(0, 0), (0, 0xfc00)], ..pattern }]));
    assert_eq!(PacketSet { ports: [(1, 65534), (1, 65534)], ..all }.patterns(), None);
}

proptest! {
    #[test]
    fn prefixes_cover_the_range_once(a: u16, b: u16, n: u16) {
        let (first, last) = (a.min(b), a.max(b));
        let within = |&(value, bits): &(u128, u8)| {
            (value ^ u128::from(n)) >> (16 - bits) == 0
        };
        let holding = prefixes((first.into(), last.into()), 16).iter().filter(|p| within(p)).count();
        prop_assert_eq!(holding, usize::from((first..=last).contains(&n)));
    }

    #[test]
    fn wide_ranges_have_few_prefixes(a: u128, b: u128) {
        let prefixes = prefixes((a.min(b), a.max(b)), 128);
        prop_assert!(prefixes.len() <= 254);
    }
}
