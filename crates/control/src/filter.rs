//! Which sessions `show connections` and `clear connections` mean: matches of the language, asked of sessions.
//!
//! A session is meant if the headers that all packets of one of its directions have in common match, as the packets come
//! in. The matches become a policy of one rule, and each session two windows as the classifier reads them.

use mmb_dataplane::{Connection, MAX_PORTS, PortId};
use mmb_flow::Key;
use mmb_lang::{Action, Match, Rule, RuleKind, SourceSpan};
use mmb_packet::{Kind, Meta, OUT_ROUTED, fill_window};
use mmb_policy::{Batch, Policy, VECTOR};

use crate::config::Config;
use crate::error::Fault;

/// Sessions that fill a batch.
const SESSIONS: usize = VECTOR / 2;
/// Where the transport header stands behind an IPv4 header.
const L4_OF_IP4: usize = 20;
/// Where it stands behind an IPv6 header.
const L4_OF_IP6: usize = 40;

/// A question about sessions.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// One rule that accepts what is meant.
    policy: Policy,
    /// The other end of the wire, by port; of routed ones, [`OUT_ROUTED`].
    peers: [u16; MAX_PORTS],
}

impl Filter {
    /// None: all sessions are meant.
    ///
    /// # Errors
    /// A match that cannot be asked of a session, an interface that is not there, or matches that exclude each other.
    pub fn new(matches: &[Match], config: &Config) -> Result<Option<Filter>, Fault> {
        if matches.is_empty() {
            return Ok(None);
        }
        mmb_lang::check_filter(matches)?;
        config.check_matches(matches)?;
        let rule = Rule {
            kind: RuleKind::Add,
            matches: matches.to_vec(),
            targets: vec![Action::Accept.into()],
            span: SourceSpan::default(),
        };
        let mut policy = Policy::new();
        policy.add(&rule, &|name: &str| config.resolve(name))?;
        let mut peers = [PortId::NONE.0; MAX_PORTS];
        for i in config.interfaces() {
            let out = i.peer.map(|peer| peer.0).or(i.routed.map(|_| OUT_ROUTED));
            if let (Some(at), Some(out)) = (i.id.index(), out) {
                peers[at] = out;
            }
        }
        Ok(Some(Filter { policy, peers }))
    }

    /// Keeps the sessions that are meant. `batch` is a buffer to work in.
    pub fn retain(&self, connections: &mut Vec<Connection>, batch: &mut Batch) {
        let mut keep = Vec::with_capacity(connections.len());
        for some in connections.chunks(SESSIONS) {
            batch.len = 2 * some.len();
            for (i, view) in some.iter().enumerate() {
                let [there, back] = view.in_port;
                self.window(&view.original, false, [there, back], batch, 2 * i);
                self.window(&view.reply, true, [back, there], batch, 2 * i + 1);
            }
            self.policy.classify(batch);
            let before = keep.len();
            keep.resize(before + some.len(), false);
            for hit in &batch.hits {
                keep[before + usize::from(hit.pkt) / 2] = true;
            }
        }
        let mut keep = keep.into_iter();
        connections.retain(|_| keep.next().unwrap_or(false));
    }

    /// Fills a window with what packets of one direction have in common. `ports` are those by which they come in, and those
    /// of the other direction.
    fn window(&self, key: &Key, is_reply: bool, ports: [u16; 2], batch: &mut Batch, at: usize) {
        let (head, meta) = headers(key, is_reply);
        let [in_port, others] = ports;
        let out_port = match self.peers.get(usize::from(in_port)) {
            // Routes may lead elsewhere by now; where answers come from is the best that is known.
            Some(&OUT_ROUTED) => others,
            Some(&peer) => peer,
            None => PortId::NONE.0,
        };
        if let Some(window) = batch.windows.get_mut(at) {
            fill_window(&head, &meta, in_port, out_port, self.policy.chunks(), window);
        }
    }
}

/// The headers of a packet with this key, without Ethernet, as far as the key says what they are.
fn headers(key: &Key, is_reply: bool) -> ([u8; 64], Meta) {
    let mut head = [0; 64];
    let l4;
    if key.is_ip4() {
        l4 = L4_OF_IP4;
        (head[0], head[9]) = (0x45, key.proto);
        head[12..16].copy_from_slice(&key.source[..4]);
        head[16..20].copy_from_slice(&key.destination[..4]);
    } else {
        l4 = L4_OF_IP6;
        (head[0], head[6]) = (0x60, key.proto);
        head[8..24].copy_from_slice(&key.source);
        head[24..40].copy_from_slice(&key.destination);
    }
    let mut kind = Kind(key.kind);
    match kind.l4() {
        Kind::TCP | Kind::UDP => {
            head[l4..l4 + 2].copy_from_slice(&key.source_port);
            head[l4 + 2..l4 + 4].copy_from_slice(&key.destination_port);
        }
        Kind::ICMP | Kind::ICMP6 => match icmp_type(key, is_reply) {
            Some(icmp_type) => head[l4] = icmp_type,
            None => kind = Kind(kind.l3()),
        },
        _ => {}
    }
    let meta = Meta {
        l3_off: 0,
        l4_off: l4 as u16,
        end: head.len() as u16,
        ethertype: if key.is_ip4() { 0x0800 } else { 0x86dd },
        kind,
        proto: key.proto,
        ..Meta::default()
    };
    (head, meta)
}

/// The type of ICMP messages with this key. None: the key is of messages that are no queries and have no type in common.
fn icmp_type(key: &Key, is_reply: bool) -> Option<u8> {
    let [_, query] = if is_reply { key.source_port } else { key.destination_port };
    match (is_reply, query) {
        (_, 0) => None,
        (false, query) => Some(query),
        // RFC 792: an echo request is 8, its reply 0. Elsewhere the reply's number follows the request's.
        (true, 8) => Some(0),
        (true, query) => query.checked_add(1),
    }
}

#[cfg(test)]
mod tests {
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

    /// What is the same in all packets of a direction: addresses by number, ports, protocol.
    #[derive(Clone, Copy, Debug)]
    struct Flow {
        six: bool,
        proto: u8,
        ends: [u8; 2],
        ports: [u16; 2],
        in_port: u16,
    }

    impl Flow {
        fn key(&self, is_reply: bool) -> Key {
            let address = |n: u8| match self.six {
                false => [10, 0, 0, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                true => [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n],
            };
            let query = if self.six { 128u16 } else { 8 };
            let (l4, ports) = match (self.proto, is_reply) {
                (6, _) => (Kind::TCP, self.ports),
                (17, _) => (Kind::UDP, self.ports),
                (1 | 58, false) => (Kind::ICMP, [self.ports[0], query]),
                (1 | 58, true) => (Kind::ICMP, [query, self.ports[0]]),
                _ => (Kind::L4_NONE, [0, 0]),
            };
            let l4 = if l4 == Kind::ICMP && self.six { Kind::ICMP6 } else { l4 };
            Key {
                source: address(self.ends[0]),
                destination: address(self.ends[1]),
                source_port: ports[0].to_be_bytes(),
                destination_port: ports[1].to_be_bytes(),
                kind: l4 | if self.six { Kind::IP6 } else { Kind::IP4 },
                proto: self.proto,
                asks: [0; 2],
            }
        }

        fn frame(&self, is_reply: bool) -> Vec<u8> {
            let key = self.key(false);
            let (source, destination) = (key.source, key.destination);
            let four = |a: [u8; 16]| [a[0], a[1], a[2], a[3]];
            let net = match self.six {
                false => Net::from(Ip4::new(four(source), four(destination))),
                true => Net::from(Ip6::new(source, destination)),
            };
            let [sport, dport] = self.ports;
            let types = if self.six { [128, 129] } else { [8, 0] };
            let transport = match self.proto {
                6 => Transport::from(Tcp::new(sport, dport)),
                17 => Transport::from(Udp::new(sport, dport)),
                1 | 58 => Transport::from(Icmp::new(types[usize::from(is_reply)])),
                other => Transport::Raw(other),
            };
            Frame::new(net, transport).payload(vec![0; 20]).build()
        }
    }

    fn flow(six: bool, proto: u8) -> impl Strategy<Value = Flow> {
        ([0u8..4, 0u8..4], [0u16..4, 0u16..4], 0u16..3).prop_map(move |(ends, ports, in_port)| Flow {
            six,
            proto: if six && proto == 1 { 58 } else { proto },
            ends,
            ports,
            in_port,
        })
    }

    /// Both directions of a session, of which the second need not be the reverse of the first.
    fn session() -> impl Strategy<Value = [Flow; 2]> {
        (any::<bool>(), prop::sample::select(vec![1u8, 6, 17, 47]))
            .prop_flat_map(|(six, proto)| [flow(six, proto), flow(six, proto)])
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
        (any::<bool>(), plain)
            .prop_map(|(no, text)| if no && text != "all" { format!("! {text}") } else { text })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Packets with those headers, through a policy with that rule, say the same.
        #[test]
        fn sessions_are_meant_if_their_packets_match(
            sessions in prop::collection::vec(session(), 1..300),
            matches in prop::collection::vec(one_match(), 1..3),
        ) {
            let (config, text) = (config(), matches.join(" "));
            let Ok(Some(Command::Add(rule))) = mmb_lang::parse_line(&format!("add {text} accept")) else {
                // Matches that contradict each other.
                return Ok(());
            };
            let mut policy = Policy::new();
            if policy.add(&rule, &|name: &str| config.resolve(name)).is_err() {
                prop_assert!(Filter::new(&rule.matches, &config).is_err());
                return Ok(());
            }
            let filter = Filter::new(&rule.matches, &config).unwrap().unwrap();
            let mut evaluator = Evaluator::new();
            let mut is_meant = |flow: &Flow, is_reply| {
                let around = PacketContext::wire(flow.in_port, [1, 0, u16::MAX][usize::from(flow.in_port)]);
                let mut frame = mmb_packet::VecPacket::new(&flow.frame(is_reply));
                !evaluator.evaluate(&policy, &mut frame, around, || 0).matched.is_empty()
            };
            let expected: Vec<u32> = (0..)
                .zip(&sessions)
                .filter(|(_, [forward, reverse])| is_meant(forward, false) | is_meant(reverse, true))
                .map(|(n, _)| n)
                .collect();
            let mut views: Vec<_> = (0..).zip(&sessions).map(|(n, flows)| view(flows, n)).collect();
            filter.retain(&mut views, &mut Batch::default());
            prop_assert_eq!(views.iter().map(|v| v.id.0).collect::<Vec<_>>(), expected, "{}", text);
        }
    }

    #[test]
    fn what_is_routed_leaves_where_answers_come_from() {
        let mut config = config();
        config.route(&[Word::from("c")], None).unwrap();
        let flow = Flow { six: false, proto: 17, ends: [1, 2], ports: [3, 4], in_port: 2 };
        let mut other = Flow { in_port: 0, ..flow };
        let meant = |matches: &str, flows: &[Flow; 2]| {
            let filter = Filter::new(&matches_of(matches), &config).unwrap().unwrap();
            let mut views = vec![view(flows, 0)];
            filter.retain(&mut views, &mut Batch::default());
            !views.is_empty()
        };
        // In at `c`, answers at `a`; the answers themselves are of a wire's, which leads to `b`.
        assert!(meant("in c out a", &[flow, other]) && meant("in a out b", &[flow, other]));
        assert!(!meant("out c", &[flow, other]));
        other.in_port = PortId::NONE.0;
        assert!(!meant("in c out a", &[flow, other]));
    }

    #[test]
    fn what_sessions_do_not_have_is_refused() {
        let config = config();
        assert!(Filter::new(&[], &config).unwrap().is_none());
        for (text, word) in
            [("in x", "`x`"), ("tcp-win 3", "tcp-win"), ("tcp-syn", "tcp-syn"), ("ip-ttl 3", "ip-ttl")]
        {
            let parsed = mmb_lang::parse_line(&format!("show connections {text}"));
            let error = match parsed {
                Ok(_) => Filter::new(&matches_of(text), &config).unwrap_err().diagnostic,
                Err(diagnostic) => diagnostic,
            };
            assert!(error.message.contains(word), "{text}: {error:?}");
        }
    }
}
