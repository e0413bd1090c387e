//! Rules with connection states and NAT, compared with a naive interpreter of iptables.
//!
//! The interpreter has a list of connections, takes the first rule that matches, and translates destinations
//! before the filter and sources behind it. The converted rules run in the session engine. Both get the
//! packets of random connections: first packets, replies, later packets, and packets that only look like
//! replies.

use std::net::{IpAddr, Ipv4Addr};

use mmb_flow::SessionSettings;
use mmb_import::{Kind, Machine, from_iptables};
use mmb_packet::VecPacket;
use mmb_packet::build::{Frame, Ip4, Udp};
use mmb_session_harness::{Outcome, RuleSet, SessionHarness};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// The address that sources get, and that ports are forwarded from.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const HOSTS: [[u8; 4]; 6] =
    [[10, 0, 0, 5], [10, 0, 0, 6], [10, 2, 0, 5], [10, 2, 0, 9], [198, 51, 100, 7], [198, 51, 100, 8]];
const PORTS: [u16; 4] = [53, 80, 443, 8080];

/// The interface to an address: `port0` is the house, `port2` a second network, `port1` the world.
fn route(address: Ipv4Addr) -> u16 {
    match address.octets() {
        [10, 0, 0, _] => 0,
        [10, 2, 0, _] => 2,
        _ => 1,
    }
}

/// Source and destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tuple {
    source: (Ipv4Addr, u16),
    destination: (Ipv4Addr, u16),
}

impl Tuple {
    fn reversed(self) -> Tuple {
        Tuple { source: self.destination, destination: self.source }
    }
}

/// A rule of the chain FORWARD.
#[derive(Clone, Debug, Default)]
struct Line {
    ports: [Option<u16>; 2],
    source: Option<Ipv4Addr>,
    destination: Option<Ipv4Addr>,
    dport: Option<u16>,
    states: Option<&'static str>,
    accepts: bool,
}

impl Line {
    fn random(random: &mut SmallRng) -> Line {
        const STATES: [&str; 7] = [
            "NEW",
            "ESTABLISHED",
            "RELATED,ESTABLISHED",
            "NEW,ESTABLISHED",
            "INVALID",
            "DNAT",
            "INVALID,NEW",
        ];
        let host = |random: &mut SmallRng| HOSTS.choose(random).map(|host| Ipv4Addr::from(*host));
        let mut line = Line { accepts: random.random(), ..Line::default() };
        for port in &mut line.ports {
            *port = random.random_bool(0.35).then(|| random.random_range(0..3));
        }
        line.source = host(random).filter(|_| random.random_bool(0.2));
        line.destination = host(random).filter(|_| random.random_bool(0.25));
        line.dport = PORTS.choose(random).copied().filter(|_| random.random_bool(0.3));
        line.states = STATES.choose(random).copied().filter(|_| random.random_bool(0.45));
        line
    }

    fn matches(&self, in_port: u16, view: Tuple, state: &str, is_redirected: bool) -> bool {
        let has_state =
            |states: &str| states.split(',').any(|word| word == state || word == "DNAT" && is_redirected);
        self.ports[0].is_none_or(|port| port == in_port)
            && self.ports[1].is_none_or(|port| port == route(view.destination.0))
            && self.source.is_none_or(|address| address == view.source.0)
            && self.destination.is_none_or(|address| address == view.destination.0)
            && self.dport.is_none_or(|port| port == view.destination.1)
            && self.states.is_none_or(has_state)
    }

    fn text(&self) -> String {
        let mut text = "-A FORWARD".to_owned();
        self.source.iter().for_each(|address| text += &format!(" -s {address}/32"));
        self.destination.iter().for_each(|address| text += &format!(" -d {address}/32"));
        self.ports[0].iter().for_each(|port| text += &format!(" -i port{port}"));
        self.ports[1].iter().for_each(|port| text += &format!(" -o port{port}"));
        self.dport.iter().for_each(|port| text += &format!(" -p udp -m udp --dport {port}"));
        self.states.iter().for_each(|states| text += &format!(" -m conntrack --ctstate {states}"));
        text + if self.accepts { " -j ACCEPT" } else { " -j DROP" }
    }
}

/// A connection that the interpreter knows.
#[derive(Clone, Copy, Debug)]
struct Connection {
    received: Tuple,
    /// With the translated destination: what the filter sees.
    view: Tuple,
    /// As it leaves.
    sent: Tuple,
}

/// A ruleset, and the connections through it.
#[derive(Clone, Debug, Default)]
struct Kernel {
    lines: Vec<Line>,
    drops: bool,
    /// The house has the public address in the world.
    hides: bool,
    /// A port of the public address leads into the house.
    forward: Option<(u16, (Ipv4Addr, u16))>,
    connections: Vec<Connection>,
}

impl Kernel {
    fn random(random: &mut SmallRng) -> Kernel {
        let mut lines: Vec<Line> = (0..random.random_range(1..6)).map(|_| Line::random(random)).collect();
        if random.random_bool(0.7) {
            let states = Some("RELATED,ESTABLISHED");
            let at = random.random_range(0..=lines.len().min(2));
            lines.insert(at, Line { states, accepts: true, ..Line::default() });
        }
        let inside = (Ipv4Addr::new(10, 0, 0, 5), 80);
        Kernel {
            lines,
            drops: random.random_bool(0.7),
            hides: random.random(),
            forward: random.random_bool(0.5).then_some((8080, inside)),
            connections: Vec::new(),
        }
    }

    fn text(&self) -> String {
        let mut text = "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n".to_owned();
        if let Some((port, (address, inside))) = self.forward {
            let matches = format!("-d {PUBLIC}/32 -p udp -m udp --dport {port}");
            text += &format!("-A PREROUTING {matches} -j DNAT --to-destination {address}:{inside}\n");
        }
        if self.hides {
            text += &format!("-A POSTROUTING -s 10.0.0.0/24 -o port1 -j SNAT --to-source {PUBLIC}\n");
        }
        let policy = if self.drops { "DROP" } else { "ACCEPT" };
        text += &format!("COMMIT\n*filter\n:FORWARD {policy} [0:0]\n");
        self.lines.iter().for_each(|line| text += &(line.text() + "\n"));
        text + "COMMIT\n"
    }

    /// Whether the first matching rule accepts.
    fn accepts(&self, in_port: u16, view: Tuple, state: &str, is_redirected: bool) -> bool {
        let first = self.lines.iter().find(|line| line.matches(in_port, view, state, is_redirected));
        first.map_or(!self.drops, |line| line.accepts)
    }

    /// How a received packet leaves. None: it is dropped, or for the machine itself. A translated source has
    /// the port `chosen`: any will do.
    fn forward(&mut self, in_port: u16, packet: Tuple, chosen: Option<u16>) -> Option<Tuple> {
        for connection in &self.connections {
            let redirected = connection.view != connection.received;
            let (view, sent) = match packet {
                packet if packet == connection.received => (connection.view, connection.sent),
                packet if packet == connection.sent.reversed() => {
                    (connection.view.reversed(), connection.received.reversed())
                }
                _ => continue,
            };
            return self.accepts(in_port, view, "ESTABLISHED", redirected).then_some(sent);
        }
        let mut view = packet;
        if let Some((port, inside)) = self.forward
            && packet.destination == (PUBLIC, port)
        {
            view.destination = inside;
        }
        if view.destination.0 == PUBLIC || !self.accepts(in_port, view, "NEW", view != packet) {
            return None;
        }
        let mut sent = view;
        if self.hides && route(view.source.0) == 0 && route(view.destination.0) == 1 {
            sent.source = (PUBLIC, chosen.unwrap_or(sent.source.1));
        }
        self.connections.push(Connection { received: packet, view, sent });
        Some(sent)
    }
}

/// The converted rules in the session engine.
fn forwarded(engine: &mut SessionHarness, in_port: u16, packet: Tuple) -> Option<Tuple> {
    let (source, destination) = (packet.source, packet.destination);
    let ip = Ip4::new(source.0.octets(), destination.0.octets());
    let frame = Frame::new(ip, Udp::new(source.1, destination.1)).payload([0; 16]).build();
    let processed = engine.process(in_port, VecPacket::new(&frame));
    let one = processed.first().filter(|one| matches!(one.outcome, Outcome::Out(_)))?;
    let bytes: &[u8] = mmb_packet::PacketBuf::head(&one.packet);
    let address = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    Some(Tuple { source: (address(26), port(34)), destination: (address(30), port(36)) })
}

#[derive(Default)]
struct Counts {
    exact: usize,
    accepted: usize,
    dropped: usize,
    lost: usize,
}

fn compare(kernel: &mut Kernel, random: &mut SmallRng, counts: &mut Counts) {
    let source = kernel.text();
    let script = from_iptables(&source, None, &Machine::default()).expect("a file");
    let text = script.text();
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("set ")).collect();
    let rules = RuleSet::parse(&lines, SessionSettings::default(), None).expect("rules");
    let to = |address: IpAddr| match address {
        IpAddr::V4(address) if address != PUBLIC => Some(route(address)),
        _ => None,
    };
    let mut engine = SessionHarness::new(1, 64, 1, rules.with_routing(&[0, 1, 2], to)).expect("memory");
    // The tracker's own view of invalid packets does not matter here: there are none.
    let is_exact = script.remarks().all(|remark| {
        remark.kind == Kind::Note || remark.kind == Kind::Differs && remark.reason.starts_with("the tracker")
    });
    counts.exact += usize::from(is_exact);
    for number in 0..8 {
        let mut host = || Ipv4Addr::from(*HOSTS.choose(random).expect("not empty"));
        let (mut from, mut to) = (host(), host());
        let mut port = PORTS.choose(random).copied().unwrap_or(53);
        if kernel.forward.is_some() && random.random_bool(0.3) {
            (from, to, port) = (Ipv4Addr::new(198, 51, 100, 8), PUBLIC, 8080);
        }
        let opener = Tuple { source: (from, 20_000 + number), destination: (to, port) };
        if route(from) == route(to) {
            continue;
        }
        let mut check = |in_port: u16, packet: Tuple| {
            let found = forwarded(&mut engine, in_port, packet);
            let expected = kernel.forward(in_port, packet, found.map(|found| found.source.1));
            let context = || format!("{packet:?} by port{in_port}\n{source}\n{text}\n{expected:?} {found:?}");
            assert!(found.is_none() || found == expected, "too much passes: {}", context());
            assert!(!is_exact || found == expected, "not the same: {}", context());
            *(if found.is_some() { &mut counts.accepted } else { &mut counts.dropped }) += 1;
            counts.lost += usize::from(found != expected);
            found.filter(|_| found == expected)
        };
        // A packet that looks like a reply to nothing.
        if to != PUBLIC && random.random_bool(0.3) {
            check(route(to), Tuple { destination: (from, 30_000 + number), ..opener.reversed() });
        }
        let Some(sent) = check(route(from), opener) else { continue };
        let reply = sent.reversed();
        for _ in 0..2 {
            if check(route(reply.source.0), reply).is_none() || check(route(from), opener).is_none() {
                break;
            }
        }
    }
}

#[test]
fn states_and_translations_decide_as_the_kernel() {
    let (random, mut counts) = (&mut SmallRng::seed_from_u64(22), Counts::default());
    const RULESETS: usize = 1500;
    for _ in 0..RULESETS {
        compare(&mut Kernel::random(random), random, &mut counts);
    }
    let Counts { exact, accepted, dropped, lost } = counts;
    println!(
        "{exact} of {RULESETS} rulesets exact, {accepted} packets pass, {dropped} do not, {lost} too few"
    );
    assert!(
        exact > RULESETS / 2 && accepted > RULESETS && dropped > RULESETS,
        "{exact} {accepted} {dropped}"
    );
}
