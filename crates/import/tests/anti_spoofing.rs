//! Anti-spoofing rule sets, as routers and hypervisors have them: a user chain lists the permitted sources,
//! each with a `RETURN`, and drops the rest. The sets are written as `iptables-save` and as `nft -j list
//! ruleset`, converted, and compared with the first match of the ordered rules for packets of each rule.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use mmb_import::{Kind, Machine, Script, from_iptables, from_nft};
use mmb_lang::{Command, Rule, parse_line};
use mmb_oracle::Verdict;
use mmb_packet::build::{Frame, Ip4, Udp};
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

/// What a rule does with its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Accept,
    Drop,
    Return,
    /// Packets pass the chain with this number.
    Jump(usize),
}

/// A rule: all tests that it has must hold.
#[derive(Clone, Copy, Debug)]
struct Line {
    source: Option<(Ipv4Addr, u8)>,
    ingress: Option<u16>,
    port: Option<u16>,
    action: Action,
}

const ANY: Line = Line { source: None, ingress: None, port: None, action: Action::Drop };

/// Chain 0 is `FORWARD`, whose policy drops; chain n is `cn`.
type Set = Vec<Vec<Line>>;

#[derive(Clone, Copy, Debug)]
struct Packet {
    source: Ipv4Addr,
    ingress: u16,
    port: u16,
}

impl Line {
    fn matches(&self, packet: &Packet) -> bool {
        let is_in = |(base, length): (Ipv4Addr, u8)| {
            (u32::from(base) ^ u32::from(packet.source)).checked_shr(32 - u32::from(length)).unwrap_or(0) == 0
        };
        self.source.is_none_or(is_in)
            && self.ingress.is_none_or(|ingress| ingress == packet.ingress)
            && self.port.is_none_or(|port| port == packet.port)
    }
}

/// Whether the first match accepts a packet. None: the end of the chain.
fn first_match(set: &Set, chain: usize, packet: &Packet) -> Option<bool> {
    for line in set[chain].iter().filter(|line| line.matches(packet)) {
        match line.action {
            Action::Accept => return Some(true),
            Action::Drop => return Some(false),
            Action::Return => return None,
            Action::Jump(target) => match first_match(set, target, packet) {
                None => {}
                decided => return decided,
            },
        }
    }
    None
}

fn iptables(set: &Set) -> String {
    let mut text = "*filter\n:FORWARD DROP [0:0]\n".to_owned();
    let name = |chain| if chain == 0 { "FORWARD".to_owned() } else { format!("c{chain}") };
    (1..set.len()).for_each(|chain| _ = writeln!(text, ":{} - [0:0]", name(chain)));
    for (chain, lines) in set.iter().enumerate() {
        for line in lines {
            _ = write!(text, "-A {}", name(chain));
            line.source.iter().for_each(|(base, length)| _ = write!(text, " -s {base}/{length}"));
            line.ingress.iter().for_each(|ingress| _ = write!(text, " -i port{ingress}"));
            line.port.iter().for_each(|port| _ = write!(text, " -p udp -m udp --dport {port}"));
            _ = match line.action {
                Action::Accept => writeln!(text, " -j ACCEPT"),
                Action::Drop => writeln!(text, " -j DROP"),
                Action::Return => writeln!(text, " -j RETURN"),
                Action::Jump(target) => writeln!(text, " -j {}", name(target)),
            };
        }
    }
    text + "COMMIT\n"
}

fn nft(set: &Set) -> String {
    let name = |chain| if chain == 0 { "forward".to_owned() } else { format!("c{chain}") };
    let mut objects = vec![json!({"table": {"family": "ip", "name": "filter", "handle": 1}})];
    for chain in 0..set.len() {
        let mut object = json!({"family": "ip", "table": "filter", "name": name(chain), "handle": chain + 2});
        if chain == 0 {
            object["type"] = json!("filter");
            object["hook"] = json!("forward");
            object["prio"] = json!(0);
            object["policy"] = json!("drop");
        }
        objects.push(json!({ "chain": object }));
    }
    let matching = |left: Value, right: Value| json!({"match": {"op": "==", "left": left, "right": right}});
    for (chain, lines) in set.iter().enumerate() {
        for line in lines {
            let mut parts = Vec::new();
            if let Some((base, length)) = line.source {
                let left = json!({"payload": {"protocol": "ip", "field": "saddr"}});
                let right = match length {
                    32 => json!(base.to_string()),
                    _ => json!({"prefix": {"addr": base.to_string(), "len": length}}),
                };
                parts.push(matching(left, right));
            }
            if let Some(ingress) = line.ingress {
                parts.push(matching(json!({"meta": {"key": "iifname"}}), json!(format!("port{ingress}"))));
            }
            if let Some(port) = line.port {
                parts.push(matching(json!({"payload": {"protocol": "udp", "field": "dport"}}), json!(port)));
            }
            parts.push(match line.action {
                Action::Accept => json!({"accept": null}),
                Action::Drop => json!({"drop": null}),
                Action::Return => json!({"return": null}),
                Action::Jump(target) => json!({"jump": {"target": name(target)}}),
            });
            let handle = objects.len() + 100;
            objects.push(json!({"rule": {"family": "ip", "table": "filter", "chain": name(chain),
                "handle": handle, "expr": parts}}));
        }
    }
    json!({ "nftables": objects }).to_string()
}

/// A host or a small network.
fn source(random: &mut SmallRng) -> (Ipv4Addr, u8) {
    let length = *[32, 32, 32, 29, 24].choose(random).expect("not empty");
    let address = 10 << 24 | random.random_range(0..1 << 24);
    (Ipv4Addr::from(address >> (32 - length) << (32 - length)), length as u8)
}

/// A set with `ports` user chains, each for one ingress port, of `hosts` permitted sources; then accepts.
fn anti_spoofing(random: &mut SmallRng, ports: usize, hosts: usize, accepts: usize) -> Set {
    let mut set: Set = vec![Vec::new()];
    for port in 0..ports {
        let action = Action::Jump(port + 1);
        set[0].push(Line { ingress: Some(port as u16), action, ..ANY });
        let permitted = |_| Line { source: Some(source(random)), action: Action::Return, ..ANY };
        let mut chain: Vec<Line> = (0..hosts).map(permitted).collect();
        chain.push(ANY);
        set.push(chain);
    }
    for _ in 0..accepts {
        let port = Some(random.random_range(1..100));
        let source = random.random_bool(0.5).then(|| source(random));
        set[0].push(Line { source, port, action: Action::Accept, ..ANY });
    }
    set
}

/// Rules that overlap in several fields, in any order.
fn overlapping(random: &mut SmallRng, lines: usize) -> Set {
    let mut line = |action: &[Action]| Line {
        source: random.random_bool(0.7).then(|| source(random)),
        ingress: random.random_bool(0.5).then(|| random.random_range(0..8)),
        port: random.random_bool(0.7).then(|| random.random_range(1..100)),
        action: *action.choose(random).expect("not empty"),
    };
    let user = (0..lines / 2).map(|_| line(&[Action::Return, Action::Drop, Action::Accept])).collect();
    let mut forward = vec![Line { action: Action::Jump(1), ..ANY }];
    forward.extend((0..lines / 2).map(|_| line(&[Action::Drop, Action::Accept])));
    vec![forward, user]
}

/// Packets of random rules: of their source, or beside it.
fn packets(random: &mut SmallRng, set: &Set, count: usize) -> Vec<Packet> {
    let lines: Vec<&Line> = set.iter().flatten().collect();
    let packet = |_| {
        let line = lines.choose(random).expect("not empty");
        let (base, length) = line.source.unwrap_or((Ipv4Addr::new(10, 1, 2, 3), 8));
        let free = u32::MAX.checked_shr(length.into()).unwrap_or(0);
        let mut address = u32::from(base) | random.random::<u32>() & free;
        if random.random_bool(0.3) {
            address ^= 1 << random.random_range(0..24);
        }
        let ingress = line.ingress.unwrap_or_else(|| random.random_range(0..8));
        let port = line.port.unwrap_or_else(|| random.random_range(1..100));
        Packet { source: address.into(), ingress, port }
    };
    (0..count).map(packet).collect()
}

fn rules(script: &Script) -> Vec<(u32, Rule)> {
    let text = script.text();
    let rule = |line| match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{line}: {other:?}"),
    };
    (1..).zip(text.lines().filter(|line| !line.starts_with('#')).map(rule)).collect()
}

/// Compares the converted rules with the ordered ones. A rule that was left out may only drop more.
fn compare(set: &Set, script: &Script, packets: &[Packet]) {
    let rules = rules(script);
    let is_whole = script.remarks().all(|remark| remark.kind == Kind::Note);
    let port = |name: &str| name.strip_prefix("port").and_then(|number| number.parse().ok());
    for packet in packets {
        let frame = Frame::new(Ip4::new(packet.source.octets(), [192, 0, 2, 1]), Udp::new(9, packet.port));
        let outcome = mmb_oracle::evaluate(&rules, &port, packet.ingress, 99, &frame.build());
        let passes = !matches!(outcome.verdict, Verdict::Drop(_));
        let expected = first_match(set, 0, packet).unwrap_or(false);
        assert!(passes == expected || !is_whole && expected, "{packet:?}: {outcome:?}, expected {expected}");
    }
}

fn converted(set: &Set) -> [Script; 2] {
    let machine = Machine::default();
    let iptables = from_iptables(&iptables(set), None, &machine).expect("a file");
    [iptables, from_nft(&nft(set), None, &machine).expect("a file")]
}

/// A thousand subtracted addresses are one set in one rule.
#[test]
fn permitted_sources_become_one_set() {
    let random = &mut SmallRng::seed_from_u64(1);
    let set = anti_spoofing(random, 1, 1000, 0);
    for script in converted(&set) {
        // A host may lie in a network before it.
        assert!(script.remarks().all(|remark| remark.kind == Kind::Note), "{}", script.text());
        let rules = rules(&script);
        assert_eq!(rules.len(), 2, "one rule of the chain, and the policy");
        assert_eq!(rules[0].1.to_string().matches("ip-saddr").count(), 1);
        compare(&set, &script, &packets(random, &set, 300));
    }
}

#[test]
fn anti_spoofing_sets_agree_with_the_first_match() {
    let random = &mut SmallRng::seed_from_u64(2);
    for (ports, hosts, accepts) in [(2, 40, 10), (3, 100, 30), (6, 20, 5)] {
        let set = anti_spoofing(random, ports, hosts, accepts);
        let packets = packets(random, &set, 400);
        converted(&set).iter().for_each(|script| compare(&set, script, &packets));
    }
}

/// A rule that is left out drops more, never less.
#[test]
fn overlapping_sets_are_converted_or_refused() {
    let random = &mut SmallRng::seed_from_u64(3);
    for lines in [6, 12, 30, 80] {
        for _ in 0..4 {
            let set = overlapping(random, lines);
            let packets = packets(random, &set, 200);
            converted(&set).iter().for_each(|script| compare(&set, script, &packets));
        }
    }
}

/// Sets of the size that operators have, and worse ones, take bounded work.
#[test]
fn large_sets_are_converted_in_bounded_time() {
    let random = &mut SmallRng::seed_from_u64(4);
    let mut sets = vec![
        anti_spoofing(random, 6, 1000, 200),
        anti_spoofing(random, 1, 6000, 200),
        overlapping(random, 6200),
    ];
    sets[0][0].shuffle(random);
    for set in sets {
        let rules = set.iter().map(Vec::len).sum::<usize>();
        for input in [iptables(&set), nft(&set)] {
            let start = Instant::now();
            let script = if input.starts_with('*') { from_iptables } else { from_nft }(
                &input,
                None,
                &Machine::default(),
            );
            // A release build takes less than a second; this one is slower, and may run beside others.
            let (taken, lines) = (start.elapsed(), script.expect("a file").text().lines().count());
            assert!(taken < Duration::from_secs(20), "{rules} rules, {lines} lines: {taken:?}");
        }
    }
}
