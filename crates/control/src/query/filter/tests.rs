use mmb_flow::SessionId;
use mmb_lang::{Command, PortKind, Word};
use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
use mmb_policy::{Evaluator, PacketContext};
use proptest::prelude::*;

use super::*;

fn matches_of(text: &str) -> Vec<Match> {
    match mmb_lang::parse_line(&format!("show connections {text}")) {
        Ok(Some(Command::ShowConnections { matches, .. })) => matches,
        other => panic!("{text}: {other:?}"),
    }
}

/// Interfaces `a` and `b`, wired, and `c`.
fn config() -> Config {
    let mut config = Config::new();
    for name in ["a", "b", "c"] {
        config.add_interface(&Word::from(name), &PortKind::Null, None).unwrap();
    }
    config.wire(&Word::from("a"), &Word::from("b")).unwrap();
    config
}

/// What all packets of a direction share: addresses by number, ports, protocol.
#[derive(Clone, Copy, Debug)]
struct Flow {
    is_ip6: bool,
    proto: u8,
    ends: [u8; 2],
    ports: [u16; 2],
    in_port: u16,
}

impl Flow {
    fn key(&self, is_reply: bool) -> Key {
        let address = |n: u8| match self.is_ip6 {
            false => [10, 0, 0, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            true => [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n],
        };
        let query = if self.is_ip6 { 128u16 } else { 8 };
        let (l4, ports) = match (self.proto, is_reply) {
            (6, _) => (Kind::TCP, self.ports),
            (17, _) => (Kind::UDP, self.ports),
            (1 | 58, false) => (Kind::ICMP, [self.ports[0], query]),
            (1 | 58, true) => (Kind::ICMP, [query, self.ports[0]]),
            _ => (Kind::L4_NONE, [0, 0]),
        };
        let l4 = if l4 == Kind::ICMP && self.is_ip6 { Kind::ICMP6 } else { l4 };
        Key {
            source: address(self.ends[0]),
            destination: address(self.ends[1]),
            source_port: ports[0].to_be_bytes(),
            destination_port: ports[1].to_be_bytes(),
            kind: l4 | if self.is_ip6 { Kind::IP6 } else { Kind::IP4 },
            proto: self.proto,
            asks: [0; 2],
        }
    }

    fn frame(&self, is_reply: bool) -> Vec<u8> {
        let key = self.key(false);
        let (source, destination) = (key.source, key.destination);
        let four = |a: [u8; 16]| [a[0], a[1], a[2], a[3]];
        let net = match self.is_ip6 {
            false => Net::from(Ip4::new(four(source), four(destination))),
            true => Net::from(Ip6::new(source, destination)),
        };
        let [sport, dport] = self.ports;
        let types = if self.is_ip6 { [128, 129] } else { [8, 0] };
        let transport = match self.proto {
            6 => Transport::from(Tcp::new(sport, dport)),
            17 => Transport::from(Udp::new(sport, dport)),
            1 | 58 => Transport::from(Icmp::new(types[usize::from(is_reply)])),
            other => Transport::Raw(other),
        };
        Frame::new(net, transport).payload(vec![0; 20]).build()
    }
}

fn flow(is_ip6: bool, proto: u8) -> impl Strategy<Value = Flow> {
    ([0u8..4, 0u8..4], [0u16..4, 0u16..4], 0u16..3).prop_map(move |(ends, ports, in_port)| Flow {
        is_ip6,
        proto: if is_ip6 && proto == 1 { 58 } else { proto },
        ends,
        ports,
        in_port,
    })
}

/// Both directions of a session. The second need not be the reverse of the first.
fn session() -> impl Strategy<Value = [Flow; 2]> {
    (any::<bool>(), prop::sample::select(vec![1u8, 6, 17, 47]))
        .prop_flat_map(|(is_ip6, proto)| [flow(is_ip6, proto), flow(is_ip6, proto)])
}

fn view([forward, reverse]: &[Flow; 2], n: u32) -> Connection {
    Connection {
        worker: 0,
        id: SessionId(n),
        uid: 0,
        original: forward.key(false),
        reply: reverse.key(true),
        state: "",
        age: 0,
        idle: 0,
        expires: 0,
        in_port: [forward.in_port, reverse.in_port],
        packets: [0; 2],
        bytes: [0; 2],
        rules: Vec::new(),
        mapped: false,
        chain: None,
        refused: None,
        functions: Vec::new(),
    }
}

fn one_match() -> impl Strategy<Value = String> {
    let fixed = [
        "all",
        "ip-saddr",
        "ip6-daddr",
        "tcp-dport",
        "udp-sport",
        "ip-proto tcp",
        "ip-proto != tcp",
        "ip-proto {icmp,gre}",
        "ip6-next icmp6",
        "ip6-next < 17",
        "net-proto ip6",
        "in a",
        "in {b,c}",
        "out b",
        "out != a",
    ];
    let field = prop::sample::select(vec!["tcp-sport", "tcp-dport", "udp-sport", "udp-dport"]);
    let value = prop_oneof![
        (0u16..4).prop_map(|n| n.to_string()),
        (0u16..2).prop_map(|n| format!("{n}-{}", n + 1)),
        (0u16..4).prop_map(|n| format!("!= {n}")),
        (0u16..4).prop_map(|n| format!(">= {n}")),
    ];
    let plain = prop_oneof![
        prop::sample::select(fixed.to_vec()).prop_map(str::to_owned),
        (field, value).prop_map(|(f, v)| format!("{f} {v}")),
        (0u8..4, 30u8..=32).prop_map(|(n, len)| format!("ip-saddr 10.0.0.{n}/{len}")),
        (0u8..4, 126u8..=128).prop_map(|(n, len)| format!("ip6-daddr 2001:db8::{n}/{len}")),
    ];
    (any::<bool>(), plain).prop_map(|(no, text)| if no && text != "all" { format!("! {text}") } else { text })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A session passes if packets with its headers match a policy with the same rule.
    #[test]
    fn sessions_pass_if_their_packets_match(
        sessions in prop::collection::vec(session(), 1..300),
        matches in prop::collection::vec(one_match(), 1..3),
    ) {
        let (config, text) = (config(), matches.join(" "));
        let Ok(Some(Command::Add(rule))) = mmb_lang::parse_line(&format!("add {text} accept")) else {
            // Matches that contradict each other.
            return Ok(());
        };
        let mut policy = Policy::new();
        if policy.add(&rule, &|name: &str| config.port_of(name)).is_err() {
            prop_assert!(SessionFilter::new(&rule.matches, &config).is_err());
            return Ok(());
        }
        let filter = SessionFilter::new(&rule.matches, &config).unwrap().unwrap();
        let mut evaluator = Evaluator::new();
        let mut passes = |flow: &Flow, is_reply| {
            let around = PacketContext::wire(flow.in_port, [1, 0, u16::MAX][usize::from(flow.in_port)]);
            let mut frame = mmb_packet::VecPacket::new(&flow.frame(is_reply));
            !evaluator.evaluate(&policy, &mut frame, around, || 0).matched.is_empty()
        };
        let expected: Vec<u32> = (0..)
            .zip(&sessions)
            .filter(|(_, [forward, reverse])| passes(forward, false) | passes(reverse, true))
            .map(|(n, _)| n)
            .collect();
        let mut views: Vec<_> = (0..).zip(&sessions).map(|(n, flows)| view(flows, n)).collect();
        filter.retain(&mut views, &mut Batch::default());
        prop_assert_eq!(views.iter().map(|v| v.id.0).collect::<Vec<_>>(), expected, "{}", text);
    }
}

#[test]
fn routed_packets_leave_by_the_ingress_port_of_replies() {
    let mut config = config();
    config.route(&[Word::from("c")], None).unwrap();
    let flow = Flow { is_ip6: false, proto: 17, ends: [1, 2], ports: [3, 4], in_port: 2 };
    let mut other = Flow { in_port: 0, ..flow };
    let passes = |matches: &str, flows: &[Flow; 2]| {
        let filter = SessionFilter::new(&matches_of(matches), &config).unwrap().unwrap();
        let mut views = vec![view(flows, 0)];
        filter.retain(&mut views, &mut Batch::default());
        !views.is_empty()
    };
    // Requests are received on `c`, replies on `a`. The wire of `a` leads to `b`.
    assert!(passes("in c out a", &[flow, other]) && passes("in a out b", &[flow, other]));
    assert!(!passes("out c", &[flow, other]));
    other.in_port = PortId::NONE.0;
    assert!(!passes("in c out a", &[flow, other]));
}

#[test]
fn fields_that_sessions_do_not_have_are_refused() {
    let config = config();
    assert!(SessionFilter::new(&[], &config).unwrap().is_none());
    for (text, word) in
        [("in x", "`x`"), ("tcp-win 3", "tcp-win"), ("tcp-syn", "tcp-syn"), ("ip-ttl 3", "ip-ttl")]
    {
        let parsed = mmb_lang::parse_line(&format!("show connections {text}"));
        let error = match parsed {
            Ok(_) => SessionFilter::new(&matches_of(text), &config).unwrap_err().diagnostic,
            Err(diagnostic) => diagnostic,
        };
        assert!(error.message.contains(word), "{text}: {error:?}");
    }
}
