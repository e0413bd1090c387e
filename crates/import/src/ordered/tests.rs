use mmb_lang::FieldId;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::filter::Values;

fn step(terms: &[(FieldId, Values)], verdict: Verdict) -> Step {
    let and = |filter: Filter, (field, values): &(FieldId, Values)| filter.and(*field, values);
    let filter = terms.iter().try_fold(Filter::default(), and).unwrap();
    Step { filters: vec![filter], verdict, place: "here".into(), source: "rule".into() }
}

fn policy(drops: bool) -> Policy {
    Policy { filter: Filter::default(), drops }
}

fn rules(chains: &[(&str, Vec<Step>)]) -> Vec<String> {
    let chains = chains.iter().map(|(name, steps)| ((*name).to_owned(), steps.clone())).collect();
    let mut script = Script::default();
    convert(&chains, "main", &policy(true), &Translations::default(), &mut script);
    script.text().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn ttl(low: u128, high: u128) -> (FieldId, Values) {
    (FieldId::IpTtl, Values::range(low, high))
}

fn port(number: u128) -> (FieldId, Values) {
    (FieldId::TcpDport, Values::one(number))
}

#[test]
fn an_accept_does_not_beat_drops_before_it() {
    use Verdict::{Accept, Drop};
    let main = vec![
        step(&[port(80)], Accept),
        step(&[ttl(1, 1)], Drop),
        step(&[port(22)], Accept),
        step(&[ttl(1, 1), port(443)], Accept),
        step(&[ttl(9, 9), port(53)], Drop),
        step(&[ttl(8, 9)], Accept),
    ];
    assert_eq!(
        rules(&[("main", main)]),
        [
            "add tcp-dport 80 accept",
            "add ip-ttl 1 drop",
            "add tcp-dport 22 ! ip-ttl 1 accept",
            "add ip-ttl 9 ip-proto tcp tcp-dport 53 drop",
            "add ip-ttl 8-9 ! ip-ttl 9 accept",
            "add ip-ttl 8-9 ! tcp-dport 53 accept",
            "add all drop",
        ]
    );
}

#[test]
fn jumps_keep_their_condition_and_returns_are_subtracted() {
    use Verdict::{Accept, Drop, Jump, Return};
    let main = vec![step(&[port(80)], Jump("web".into())), step(&[port(81)], Jump("nowhere".into()))];
    let web = vec![
        step(&[ttl(5, 5)], Return),
        step(&[ttl(6, 6)], Drop),
        step(&[port(81)], Accept),
        step(&[], Accept),
        step(&[], Return),
        step(&[], Drop),
    ];
    assert_eq!(
        rules(&[("main", main), ("web", web)]),
        [
            "add ip-ttl 6 ip-proto tcp tcp-dport 80 drop",
            "add tcp-dport 80 ! ip-ttl 5-6 accept",
            "add all drop",
        ]
    );
}

/// A step logs the packets that no accept and no drop before it has decided about.
#[test]
fn logs_are_rules_of_their_own() {
    use Verdict::{Accept, Drop, Log};
    let log = |prefix: &str| Log(log_prefix(prefix));
    let main = vec![
        step(&[port(22)], log("ssh: ")),
        step(&[port(22)], Accept),
        step(&[ttl(6, 6)], Drop),
        step(&[], log("")),
    ];
    assert_eq!(
        rules(&[("main", main)]),
        [
            "add tcp-dport 22 log prefix \"ssh\"",
            "add tcp-dport 22 accept",
            "add ip-ttl 6 drop",
            "add ! ip-ttl 6 ! tcp-dport 22 log",
            "add all drop",
        ]
    );
}

fn random_filter(random: &mut SmallRng) -> Filter {
    let mut filter = Filter::default();
    for field in [FieldId::IpTtl, FieldId::IpId, FieldId::IpDscp] {
        if random.random() {
            let low = random.random_range(0..4);
            let values = Values::range(low, low + random.random_range(0..2));
            filter = filter.and(field, &values).unwrap();
        }
    }
    filter
}

fn random_chain(random: &mut SmallRng, jumps: &[&str]) -> Vec<Step> {
    let mut step = || {
        let verdict = match random.random_range(0..5) {
            0 | 1 => Verdict::Accept,
            2 => Verdict::Drop,
            3 => Verdict::Return,
            _ if jumps.is_empty() => Verdict::Reject,
            _ => Verdict::Jump(jumps[random.random_range(0..jumps.len())].into()),
        };
        let filters = vec![random_filter(random)];
        Step { filters, verdict, place: "here".into(), source: "rule".into() }
    };
    (0..5).map(|_| step()).collect()
}

/// An IPv4 packet: its TTL, identification and DSCP.
type Packet = [u128; 3];

fn has_value(packet: Packet, term: &crate::filter::Term) -> bool {
    let value = match term.field {
        FieldId::IpTtl => packet[0],
        FieldId::IpId => packet[1],
        FieldId::IpDscp => packet[2],
        FieldId::NetProto => crate::filter::IP4,
        other => unreachable!("{other:?}"),
    };
    !term.values.intersection(&Values::one(value)).is_empty()
}

fn is_in(packet: Packet, filter: &Filter) -> bool {
    filter.terms().iter().all(|term| has_value(packet, term))
        && !filter.excluded().iter().any(|term| has_value(packet, term))
}

/// The decision of the ordered chains.
fn first_match(chains: &Chains, chain: &str, packet: Packet) -> Option<bool> {
    for step in &chains[chain] {
        if !step.filters.iter().any(|filter| is_in(packet, filter)) {
            continue;
        }
        match &step.verdict {
            Verdict::Accept => return Some(true),
            Verdict::Drop | Verdict::Reject => return Some(false),
            Verdict::Return => return None,
            Verdict::Jump(target) => match first_match(chains, target, packet) {
                None => {}
                decided => return decided,
            },
            Verdict::Log(_) | Verdict::Translate(_) | Verdict::UnknownReturn | Verdict::Remark(..) => {}
        }
    }
    None
}

#[test]
fn unordered_rules_decide_as_the_first_match() {
    let random = &mut SmallRng::seed_from_u64(3);
    for _ in 0..300 {
        let chains = Chains::from([
            ("main".to_owned(), random_chain(random, &["a", "b"])),
            ("a".to_owned(), random_chain(random, &["b"])),
            ("b".to_owned(), random_chain(random, &[])),
        ]);
        let (accepts, drops) = decisions(&chains);
        for packet in (0..125).map(|n| [n % 5, n / 5 % 5, n / 25]) {
            let accepted = accepts.iter().any(|filter| is_in(packet, filter));
            let dropped = drops.iter().any(|filter| is_in(packet, filter));
            let expected = first_match(&chains, "main", packet);
            assert_eq!(accepted, expected == Some(true), "{packet:?} {chains:#?}");
            assert_eq!(dropped && !accepted, expected == Some(false), "{packet:?} {chains:#?}");
        }
    }
}

/// Whatever packets return, the result accepts none that the chain drops, and drops all that it drops.
#[test]
fn unknown_returns_drop_more_and_never_less() {
    let random = &mut SmallRng::seed_from_u64(4);
    let mut lost = 0;
    for _ in 0..300 {
        let chains = Chains::from([
            ("main".to_owned(), random_chain(random, &["a"])),
            ("a".to_owned(), random_chain(random, &[])),
        ]);
        let mut unknown = chains.clone();
        for step in unknown.values_mut().flatten().filter(|step| step.verdict == Verdict::Return) {
            step.verdict = Verdict::UnknownReturn;
            step.filters.clear();
        }
        let (accepts, drops) = decisions(&unknown);
        for packet in (0..125).map(|n| [n % 5, n / 5 % 5, n / 25]) {
            let accepted = accepts.iter().any(|filter| is_in(packet, filter));
            let dropped = drops.iter().any(|filter| is_in(packet, filter));
            let expected = first_match(&chains, "main", packet);
            assert!(!accepted || expected == Some(true), "{packet:?} {chains:#?}");
            assert!(expected != Some(false) || dropped, "{packet:?} {chains:#?}");
            lost += usize::from(!accepted && expected == Some(true));
        }
    }
    assert!(lost > 0, "no return mattered");
}

/// All filters that accept and all that drop.
fn decisions(chains: &Chains) -> (Vec<Filter>, Vec<Filter>) {
    let mut budget = Budget::default();
    let (mut accepts, mut drops) = (Vec::new(), Vec::new());
    for outcome in walk(chains, "main", &mut budget) {
        match outcome {
            Outcome::Decision(step, filters) if step.verdict.drop_target().is_some() => drops.extend(filters),
            Outcome::Decision(_, filters) => accepts.extend(all_minus(filters, &drops, &mut budget).unwrap()),
            Outcome::Remark(_, kind, reason) => {
                assert!(kind == Kind::Note || reason.contains("not all known"), "{reason}");
            }
        }
    }
    (accepts, drops)
}

/// Units of work that a conversion of the chain `main` takes.
fn work(chains: Vec<(&str, Vec<Step>)>) -> usize {
    let chains = chains.into_iter().map(|(name, steps)| (name.to_owned(), steps)).collect();
    let mut budget = Budget::default();
    let before = budget.left();
    convert_within(
        &mut budget,
        &chains,
        "main",
        &policy(true),
        &Translations::default(),
        &mut Script::default(),
    );
    before - budget.left()
}

/// The work grows with the rules, not with their square, and has a limit: twenty million operations, which
/// take less than a second in a release build.
#[test]
fn the_work_of_large_sets_is_bounded() {
    use Verdict::{Accept, Drop, Jump, Return};
    let source = |number: u128| (FieldId::IpSaddr, Values::one(0x0a00_0000 + number * 7));
    let anti_spoofing = |sources: u128| {
        let mut listed: Vec<Step> = (0..sources).map(|number| step(&[source(number)], Return)).collect();
        listed.push(step(&[], Drop));
        let main = vec![step(&[ttl(1, 9)], Jump("listed".into())), step(&[port(80)], Accept)];
        work(vec![("main", main), ("listed", listed)])
    };
    let (few, many) = (anti_spoofing(1_550), anti_spoofing(6_200));
    assert!((6_200..1_000_000).contains(&many), "{many} operations");
    assert!(many < 6 * few, "{few} operations for a quarter of the rules, {many} for all");
    let random = &mut SmallRng::seed_from_u64(5);
    let overlapping: Vec<Step> = (0..6_200)
        .map(|_| {
            let low = random.random_range(0..1 << 31);
            let terms = [
                (FieldId::IpSaddr, Values::range(low, low + random.random_range(0..1 << 28))),
                (FieldId::TcpDport, Values::range(1, random.random_range(2..65_535))),
            ];
            step(&terms, if random.random() { Accept } else { Drop })
        })
        .collect();
    let most = work(vec![("main", overlapping)]);
    assert!(most <= Budget::default().left(), "{most} operations");
    println!("6,200 rules: {many} operations for an anti-spoofing set, {most} for rules that overlap");
}

/// Chains that jump to the next one several times are walked exponentially often; a loop of jumps, too.
#[test]
fn many_ways_through_chains_take_bounded_work() {
    use Verdict::{Accept, Drop, Jump};
    let name = |n: usize| if n == 0 { "main".to_owned() } else { format!("c{n}") };
    let mut chains: Chains = (0..14)
        .map(|n| {
            let jumps = (0..4).map(|low| step(&[ttl(low * 9, 250)], Jump(name(n + 1))));
            (name(n), jumps.chain([step(&[ttl(n as u128, 200)], Drop), step(&[port(22)], Accept)]).collect())
        })
        .collect();
    let mut script = Script::default();
    convert(&chains, "main", &policy(false), &Translations::default(), &mut script);
    assert!(script.text().lines().count() < 60_000 && script.remarks().count() < 100);
    chains.insert("c3".into(), vec![step(&[], Jump("c1".into()))]);
    let mut script = Script::default();
    convert(&chains, "main", &policy(false), &Translations::default(), &mut script);
    let looped = script.remarks().filter(|remark| remark.reason.contains("loop")).count();
    assert!(looped == 1, "{looped}");
}

/// The source drops all packets of two ranges of addresses, and accepts all others. With any budget, both
/// ranges are dropped, and no rule accepts a packet of them.
#[test]
fn a_small_budget_drops_more_and_never_less() {
    use Verdict::{Accept, Drop, Jump, Return};
    let source = |low: u128| (FieldId::IpSaddr, Values::range(low, low + 9));
    let main = vec![
        step(&[ttl(1, 200), port(80)], Jump("web".into())),
        step(&[ttl(7, 90)], Jump("web".into())),
        step(&[], Jump("private".into())),
        step(&[port(22)], Accept),
        step(&[], Accept),
    ];
    let web = vec![step(&[ttl(5, 5)], Return), step(&[source(100)], Drop), step(&[], Return)];
    let private = vec![
        step(&[ttl(30, 40)], Jump("deep".into())),
        step(&[source(100)], Drop),
        step(&[source(200)], Drop),
    ];
    let deep = vec![step(&[ttl(31, 31)], Return), step(&[source(200)], Drop), step(&[], Return)];
    let chains: Chains = [("main", main), ("web", web), ("private", private), ("deep", deep)]
        .into_iter()
        .map(|(name, steps)| (name.to_owned(), steps))
        .collect();
    let whole = {
        let mut budget = Budget::default();
        convert_within(
            &mut budget,
            &chains,
            "main",
            &policy(false),
            &Translations::default(),
            &mut Script::default(),
        );
        Budget::default().left() - budget.left()
    };
    for total in 0..=whole {
        let mut script = Script::default();
        convert_within(
            &mut Budget::of(total),
            &chains,
            "main",
            &policy(false),
            &Translations::default(),
            &mut script,
        );
        let text = script.text();
        let dropped = |low: &str| text.lines().any(|line| line == format!("add ip-saddr {low} drop"));
        assert!(dropped("0.0.0.100-0.0.0.109") && dropped("0.0.0.200-0.0.0.209"), "{total}: {text}");
        let accepts = text.lines().filter(|line| line.starts_with("add") && line.ends_with("accept"));
        let spared = ["! ip-saddr", "0.0.0.100-0.0.0.109", "0.0.0.200-0.0.0.209"];
        let is_safe = |line: &str| spared.iter().all(|part| line.contains(part));
        accepts.for_each(|line| assert!(is_safe(line), "{total}: {line}"));
    }
}
