use mmb_lang::{Command, parse_line};
use mmb_packet::VecPacket;
use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
use proptest::prelude::*;

use super::*;
use crate::{Evaluation, Evaluator, PacketContext, Policy};

fn port(name: &str) -> Option<u16> {
    ["lan", "wan"].iter().position(|known| *known == name).map(|at| at as u16)
}

fn rule(line: &str) -> Rule {
    let Ok(Some(Command::Add(rule))) = parse_line(line) else { panic!("{line}") };
    rule
}

fn policy(lines: &[impl AsRef<str>]) -> Policy {
    let mut policy = Policy::new();
    for line in lines {
        let line = line.as_ref();
        policy.add(&rule(line), &port).unwrap_or_else(|error| panic!("{}", error.render(line)));
    }
    policy
}

fn alike(policy: &Policy, port: u16, proto: u8, source: &str, destination: &str) -> bool {
    let [source, destination] = [source, destination].map(|address| address.parse().unwrap());
    policy.port_dependence().unwrap().is_port_independent(port, proto, source, destination)
}

#[test]
fn rules_without_ports_have_no_area() {
    for line in [
        "add all accept",
        "add ip-saddr 10.0.0.0/8 ! ip-daddr 10.0.0.1 drop",
        "add in lan out wan ip-proto udp accept",
        "add tcp-sport drop",
        "add ! udp-dport drop",
        "add icmp-type ip6-ver 6 mod out wan",
        "add ip-ttl net-proto ip6 accept",
        "add-stateful tcp-dport 80 accept",
    ] {
        assert_eq!(Area::of(&rule(line), &port), None, "{line}");
    }
}

#[test]
fn areas_describe_rules_without_ports() {
    let ends = |source: (&str, u8), destination: (&str, u8)| {
        [source, destination].map(|(address, bits)| (wide(address.parse().unwrap()), bits))
    };
    let any = Area::default();
    let (four, six) = (Area { version: 4, ..any }, Area { version: 6, ..any });
    let all = ("::", 0);
    for (line, area) in [
        ("add tcp-dport 80 drop", Area { proto: Some(TCP), ..any }),
        ("add ! tcp-dport 80 drop", any),
        ("add udp-sport != 53 in wan drop", Area { proto: Some(UDP), port: Some(1), ..any }),
        ("add in {lan,wan} ! ip-saddr 10.0.0.1 udp-sport 1-9 drop", Area { proto: Some(UDP), ..any }),
        (
            "add ip-saddr 10.1.2.3 ip-daddr 10.31.0.0/18 tcp-dport 80 drop",
            Area { proto: Some(TCP), ends: ends(("10.1.2.3", 32), ("10.31.0.0", 16)), ..four },
        ),
        (
            "add ip-proto tcp ip-saddr {10.0.1.1,10.0.1.6-10.0.1.9} tcp-sport 1 drop",
            Area { proto: Some(TCP), ends: ends(("10.0.1.0", 28), all), ..four },
        ),
        (
            "add ip6-daddr 2001:db8:1::/47 udp-dport {53,123} drop",
            Area { proto: Some(UDP), ends: ends(all, ("2001:db8::", 32)), ..six },
        ),
        ("add ip-daddr != 10.0.0.1 mod tcp-dport 8080", four),
        ("add ip-proto 132 mod ip-daddr 10.0.0.1", Area { proto: Some(132), ..four }),
        ("add icmp-type 8 ip6-ttl drop", Area { version: 6, proto: Some(ICMP), ..any }),
        ("add icmp6-type 128 drop", Area { proto: Some(ICMP6), ..six }),
        ("add ip-ttl 1 accept", four),
        ("add all drop 50%", any),
    ] {
        let line = line.replace("ip6-ttl", "ip6-hop-limit");
        assert_eq!(Area::of(&rule(&line), &port), Some(area), "{line}");
    }
}

#[test]
fn port_independence_follows_the_rules() {
    let mut rules = policy(&["add ip-daddr 10.0.0.0/24 accept", "add all drop"]);
    let asked = |rules: &Policy| {
        [("10.0.0.1", "10.0.0.2"), ("10.0.0.1", "10.0.0.9")]
            .map(|(source, destination)| alike(rules, 0, TCP, source, destination))
    };
    assert_eq!(asked(&rules), [true; 2]);
    let add = |rules: &mut Policy| {
        rules.add(&rule("add ip-daddr 10.0.0.2 tcp-dport 22 drop"), &port).unwrap();
    };
    add(&mut rules);
    let before = rules.clone();
    assert_eq!(asked(&rules), [false, true]);
    assert!(alike(&rules, 0, UDP, "10.0.0.1", "10.0.0.2"));
    add(&mut rules);
    rules.del(3);
    assert_eq!(asked(&rules), [false, true]);
    rules.del(4);
    assert_eq!((asked(&rules), asked(&before)), ([true; 2], [false, true]));
    assert_eq!(asked(&before.rebuilt()), [false, true]);
    let kept = before.replace(&[rule("add ip-daddr 10.0.0.2 tcp-dport 22 drop")], &port).unwrap();
    assert_eq!(asked(&kept), [false, true]);
    rules.add(&rule("add tcp-dport 22 drop"), &port).unwrap();
    assert_eq!(asked(&rules), [false; 2]);
    assert!(rules.port_dependence().unwrap().has_port_independent());
    rules.add(&rule("add udp-dport 22 drop"), &port).unwrap();
    assert!(!rules.port_dependence().unwrap().has_port_independent());
    rules.flush();
    assert!(asked(&rules) == [true; 2] && rules.port_dependence().unwrap().has_port_independent());
    rules.add(&rule("add ! tcp-dport 22 drop"), &port).unwrap();
    assert!(!rules.port_dependence().unwrap().has_port_independent());
    rules.flush();
    rules.add(&rule("add-stateful ip-daddr 10.0.0.2 accept"), &port).unwrap();
    assert!(rules.port_dependence().is_none());
}

/// Rules of all kinds that allow offloading, on few addresses.
fn rules() -> impl Strategy<Value = Vec<String>> {
    let address = |name: &'static str| {
        (0..4u8, 0..4u8, 24..=32u8, 0..4u8).prop_map(move |(a, b, bits, kind)| match kind {
            0 => format!("ip-{name} 10.0.0.{}/{bits}", u32::from(a) >> (32 - bits) << (32 - bits)),
            1 => format!("ip-{name} != 10.0.0.{a}"),
            2 => format!("! ip-{name} {{10.0.0.{a},10.0.0.7}}"),
            _ => format!("ip-{name} 10.0.0.{}-10.0.0.{}", a.min(b), a.max(b)),
        })
    };
    let address6 = |name: &'static str| {
        (0..4u8, 120..=128u8).prop_map(move |(a, bits)| {
            let a = u32::from(a) >> (128 - bits) << (128 - bits);
            format!("ip6-{name} fd00::{a:x}/{bits}")
        })
    };
    let ports = (prop::sample::select(&["tcp", "udp"][..]), prop::bool::ANY, 0..4u16, 0..5u8).prop_map(
        |(proto, is_source, n, kind)| {
            let field = format!("{proto}-{}", if is_source { "sport" } else { "dport" });
            match kind {
                0 => field,
                1 => format!("! {field} {n}"),
                2 => format!("{field} != {n}"),
                3 => format!("{field} 1-{}", n + 1),
                _ => format!("{field} {n}"),
            }
        },
    );
    let others = prop::sample::select(
        &[
            "all",
            "in lan",
            "! in lan",
            "out wan",
            "ip-proto udp",
            "ip-ver 4",
            "icmp-type",
            "! tcp-win",
            "net-proto ip6",
        ][..],
    )
    .prop_map(str::to_owned);
    let matches = prop_oneof![
        2 => address("saddr"),
        2 => address("daddr"),
        1 => address6("saddr"),
        1 => address6("daddr"),
        3 => ports,
        1 => others,
    ];
    let targets = prop::sample::select(
        &[
            "drop",
            "accept",
            "drop",
            "accept",
            "mod out wan",
            "mod tcp-dport 9",
            "mod ip-daddr 10.0.0.9",
            "mod udp-sport 2",
        ][..],
    );
    let rule = (prop::collection::vec(matches, 1..4), targets)
        .prop_map(|(matches, target)| format!("add {} {target}", matches.join(" ")));
    // Contradictory rules are left out.
    let is_rule = |line: &String| {
        let rule = parse_line(line).ok().flatten();
        matches!(rule, Some(Command::Add(rule)) if Policy::new().add(&rule, &port).is_ok())
    };
    prop::collection::vec(rule.prop_filter("no rule", is_rule), 1..8)
}

/// Protocol, whether it is IPv6, the last bytes of the addresses, and the input port.
type Sample = (u8, bool, [u8; 2], u16);

/// The result for a packet and its matching rules, and whether the packet is unchanged.
fn processed(policy: &Policy, (kind, six, [a, b], port): Sample, ports: [u16; 2]) -> (Evaluation, bool) {
    let transport: Transport = match kind {
        0 => Tcp::new(ports[0], ports[1]).into(),
        1 => Udp::new(ports[0], ports[1]).into(),
        _ => Icmp::new(if six { 128 } else { 8 }).into(),
    };
    let net: Net = if six {
        let end = |n| std::net::Ipv6Addr::from(0xfd_u128 << 120 | u128::from(n));
        Ip6::new(end(a).octets(), end(b).octets()).into()
    } else {
        Ip4::new([10, 0, 0, a], [10, 0, 0, b]).into()
    };
    let before = Frame::new(net, transport).payload([7; 20]).build();
    let mut packet = VecPacket::new(&before);
    let result = Evaluator::new().evaluate(policy, &mut packet, PacketContext::wire(port, 1 - port), || 0);
    let is_same = mmb_packet::PacketBuf::head(&packet) == before.as_slice();
    (result, is_same)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Packets that are port independent match the same rules, have the same result and are unchanged.
    #[test]
    fn port_independent_packets_have_equal_results(
        lines in rules(),
        classes in prop::collection::vec((0..3u8, any::<bool>(), [0..5u8, 0..5u8], 0..2u16), 4),
        ports in prop::collection::vec([0..6u16, 0..6u16], 8),
    ) {
        let policy = policy(&lines);
        prop_assert_eq!(policy.offload_obstacle(), None);
        let pairs = policy.port_dependence().unwrap();
        for class in classes {
            let (kind, six, [a, b], port) = class;
            let proto = [TCP, UDP, if six { ICMP6 } else { ICMP }][usize::from(kind)];
            let end = |n: u8| if six { format!("fd00::{n:x}") } else { format!("10.0.0.{n}") }.parse().unwrap();
            if !pairs.is_port_independent(port, proto, end(a), end(b)) {
                continue;
            }
            prop_assert!(pairs.has_port_independent() || kind == 2);
            let (first, is_same) = processed(&policy, class, ports[0]);
            prop_assert!(is_same);
            for other in &ports {
                prop_assert_eq!(&processed(&policy, class, *other).0, &first, "{:?} {:?}", lines, class);
            }
        }
    }

    /// The result does not depend on the order or grouping of additions, nor on removed rules.
    #[test]
    fn the_result_depends_on_the_present_rules_only(lines in rules(), gone in rules()) {
        let mut policy = policy(&gone);
        let before: Vec<u32> = policy.rules().map(|view| view.index).collect();
        lines.iter().for_each(|line| drop(policy.add(&rule(line), &port)));
        before.into_iter().for_each(|index| assert!(policy.del(index).is_some()));
        let rules: Vec<Rule> = lines.iter().map(|line| rule(line)).collect();
        let anew = Policy::new().replace(&rules, &port).unwrap();
        let marks = |policy: &Policy| policy.port_dependence().unwrap().marks.iter().copied().collect::<Vec<_>>();
        prop_assert_eq!(marks(&policy), marks(&anew));
        for shape in &*anew.port_dependence.shapes {
            prop_assert!(policy.port_dependence.shapes.contains(shape));
        }
    }
}
