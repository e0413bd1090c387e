//! Rules of which the first that matches decides, as rules that have no order.
//!
//! Theory of operation. A chain is a list of steps; packets go down it until a step accepts or drops them, and a jump
//! sends those that match through another chain first. mmb has no order: of all rules that match, one `accept` is
//! stronger than any `drop`. So a walk over the chain carries the filters that packets have to pass to get so far (the
//! conditions of the jumps, and the exclusions of what returned before), and hands out filters that accept and drop in
//! the order in which they decide. A `drop` becomes a rule as it is: an `accept` before it wins, as it did. An
//! `accept` must not win over the drops before it, so that what those drop is taken out of it ([`Filter::minus`]):
//! exactly, as one rule or several. Where that takes too many, the accept is left out and said to be; a packet is
//! dropped then that was accepted before, never the other way round.

use std::collections::{HashMap, HashSet};

use crate::filter::Filter;
use crate::script::{Kind, Script};
use crate::words;

/// Most filters that one step may take.
const MOST: usize = 64;
/// Most jumps inside each other; the kernel allows 16.
const DEEP: usize = 16;

/// What happens to packets that match a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They pass.
    Accept,
    /// They do not.
    Drop,
    /// Through another chain, and on behind this step if nothing there decides.
    Jump(String),
    /// Back behind the jump to this chain; the policy, if there was none.
    Return,
    /// Nothing: the step stands for something to be said about the rule here.
    Remark(Kind, String),
}

/// A rule of a chain.
#[derive(Clone, Debug)]
pub struct Step {
    /// What matches: any of these. They may overlap.
    pub filters: Vec<Filter>,
    /// What happens then.
    pub verdict: Verdict,
    /// Where it stands.
    pub place: String,
    /// Its text.
    pub source: String,
}

/// Chains by name.
pub type Chains = HashMap<String, Vec<Step>>;

/// Filters that decide, or something to be said.
enum Found<'a> {
    Decision(&'a Step, Vec<Filter>),
    Remark(&'a Step, Kind, String),
}

/// Writes the rules for a chain and those it jumps to. `rest` is what the chain's policy drops, if it does.
pub fn convert(chains: &Chains, chain: &str, rest: Option<&Filter>, script: &mut Script) {
    let mut walk = Walk { chains, found: Vec::new(), said: HashSet::new() };
    walk.chain(chain, vec![Filter::default()], 0);
    let mut drops: Vec<Filter> = Vec::new();
    for found in walk.found {
        match found {
            Found::Remark(step, kind, reason) => script.remark(kind, &step.place, &step.source, reason),
            Found::Decision(step, filters) if step.verdict == Verdict::Drop => {
                write(script, &filters, "drop", step);
                drops.extend(filters);
            }
            Found::Decision(step, filters) => accept(script, filters, &drops, step),
        }
    }
    if let Some(rest) = rest {
        let policy = Step {
            filters: Vec::new(),
            verdict: Verdict::Drop,
            place: format!("chain {chain}"),
            source: "policy drop".into(),
        };
        write(script, std::slice::from_ref(rest), "drop", &policy);
    }
}

/// The rules for what a step accepts behind `drops`.
fn accept(script: &mut Script, filters: Vec<Filter>, drops: &[Filter], step: &Step) {
    let mut remark = |kind, reason: &str| script.remark(kind, &step.place, &step.source, reason);
    match all_minus(filters, drops) {
        Some(left) if left.is_empty() => {
            remark(Kind::Note, "never decides: drops before it take all its packets")
        }
        Some(left) => write(script, &left, "accept", step),
        None => remark(Kind::NotMapped, "the drops before it overlap with it in too many ways"),
    }
}

/// What is in `filters` and in none of `drops`; None when it takes too many filters to say.
fn all_minus(mut filters: Vec<Filter>, drops: &[Filter]) -> Option<Vec<Filter>> {
    for drop in drops {
        if filters.iter().all(|filter| filter.intersection(drop).is_none()) {
            continue;
        }
        filters = distinct(filters.iter().flat_map(|filter| filter.minus(drop)));
        if filters.len() > MOST {
            return None;
        }
    }
    Some(filters)
}

/// The filters without those that are part of another.
fn distinct(filters: impl Iterator<Item = Filter>) -> Vec<Filter> {
    let mut kept: Vec<Filter> = Vec::new();
    for filter in filters {
        if !kept.iter().any(|other| filter.is_within(other)) {
            kept.retain(|other| !other.is_within(&filter));
            kept.push(filter);
        }
    }
    kept
}

/// The rules for what happens to some filters, behind a comment that says where they come from.
fn write(script: &mut Script, filters: &[Filter], target: &str, step: &Step) {
    let Step { place, source, .. } = step;
    script.comment(format!("{place}: {source}"));
    for filter in filters {
        match words::matches(filter) {
            Ok(lines) => {
                for matches in lines {
                    script.rule(&format!("add {matches} {target}"), place, source);
                }
            }
            Err(reason) => script.remark(Kind::NotMapped, place, source, reason),
        }
    }
}

struct Walk<'a> {
    chains: &'a Chains,
    found: Vec<Found<'a>>,
    /// Places of steps about which something was said; a chain may be walked several times.
    said: HashSet<(&'a str, String)>,
}

impl<'a> Walk<'a> {
    /// Sends what fits one of `within` down a chain.
    fn chain(&mut self, name: &str, mut within: Vec<Filter>, depth: usize) {
        let chains = self.chains;
        for step in chains.get(name).map_or(&[][..], Vec::as_slice) {
            if let Verdict::Remark(kind, reason) = &step.verdict {
                self.say(step, *kind, reason);
                continue;
            }
            let Some(filters) = both(&within, &step.filters) else {
                self.say(
                    step,
                    Kind::NotMapped,
                    "the jumps to it and what returns before it take too many rules",
                );
                continue;
            };
            match &step.verdict {
                _ if filters.is_empty() => self.say(step, Kind::Note, "no packet gets here that matches"),
                Verdict::Accept | Verdict::Drop => self.found.push(Found::Decision(step, filters)),
                Verdict::Jump(_) if depth >= DEEP => {
                    self.say(step, Kind::NotMapped, "the chains jump too deep")
                }
                Verdict::Jump(target) if !chains.contains_key(target) => {
                    self.say(step, Kind::NotMapped, &format!("there is no chain `{target}`"));
                }
                Verdict::Jump(target) => self.chain(target, filters, depth + 1),
                Verdict::Return => match all_minus(within.clone(), &step.filters) {
                    Some(left) => within = left,
                    None => {
                        self.say(step, Kind::NotMapped, "what returns here takes too many rules to exclude")
                    }
                },
                Verdict::Remark(..) => {}
            }
        }
    }

    fn say(&mut self, step: &'a Step, kind: Kind, reason: &str) {
        if self.said.insert((&step.place, reason.to_owned())) {
            self.found.push(Found::Remark(step, kind, reason.to_owned()));
        }
    }
}

/// What fits one of each; None when there are too many.
fn both(a: &[Filter], b: &[Filter]) -> Option<Vec<Filter>> {
    let all = distinct(a.iter().flat_map(|a| b.iter().filter_map(|b| a.intersection(b))));
    (all.len() <= MOST).then_some(all)
}

#[cfg(test)]
mod tests {
    use mmb_lang::FieldId;

    use super::*;
    use crate::filter::Values;

    fn step(questions: &[(FieldId, Values)], verdict: Verdict) -> Step {
        let and = |filter: Filter, (field, values): &(FieldId, Values)| filter.and(*field, values);
        let filter = questions.iter().try_fold(Filter::default(), and).unwrap();
        Step { filters: vec![filter], verdict, place: "here".into(), source: "rule".into() }
    }

    fn rules(chains: &[(&str, Vec<Step>)]) -> Vec<String> {
        let chains = chains.iter().map(|(name, steps)| ((*name).to_owned(), steps.clone())).collect();
        let mut script = Script::default();
        convert(&chains, "main", Some(&Filter::default()), &mut script);
        script.text().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    fn ttl(low: u128, high: u128) -> (FieldId, Values) {
        (FieldId::IpTtl, Values::range(low, high))
    }

    fn port(number: u128) -> (FieldId, Values) {
        (FieldId::TcpDport, Values::one(number))
    }

    #[test]
    fn an_accept_does_not_win_over_drops_before_it() {
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
    fn jumps_carry_their_condition_and_returns_their_exclusion() {
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
                "add tcp-dport 80 ! ip-ttl 5 ! ip-ttl 6 accept",
                "add all drop",
            ]
        );
    }

    /// Numbers that look random.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, sides: u128) -> u128 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u128::from(self.0 >> 33) % sides
        }

        fn filter(&mut self) -> Filter {
            let fields = [FieldId::IpTtl, FieldId::IpId, FieldId::IpDscp];
            let mut filter = Filter::default();
            for field in fields {
                if self.below(2) == 0 {
                    let low = self.below(4);
                    let values = Values::range(low, low + self.below(2));
                    filter = filter.and(field, &values).unwrap();
                }
            }
            filter
        }

        fn chain(&mut self, jumps: &[&str]) -> Vec<Step> {
            let mut step = || {
                let verdict = match self.below(5) {
                    0 | 1 => Verdict::Accept,
                    2 => Verdict::Drop,
                    3 => Verdict::Return,
                    _ if jumps.is_empty() => Verdict::Drop,
                    _ => Verdict::Jump(jumps[self.below(jumps.len() as u128) as usize].into()),
                };
                Step { filters: vec![self.filter()], verdict, place: "here".into(), source: "rule".into() }
            };
            (0..5).map(|_| step()).collect()
        }
    }

    /// An IPv4 packet with these values of TTL, identification and code point.
    type Packet = [u128; 3];

    fn answers(packet: Packet, term: &crate::filter::Term) -> bool {
        let value = match term.field {
            FieldId::IpTtl => packet[0],
            FieldId::IpId => packet[1],
            FieldId::IpDscp => packet[2],
            FieldId::NetProto => crate::filter::IP4,
            other => unreachable!("{other:?}"),
        };
        !term.values.intersection(&Values::one(value)).is_empty()
    }

    fn fits(packet: Packet, filter: &Filter) -> bool {
        filter.terms().iter().all(|term| answers(packet, term))
            && !filter.without().iter().any(|term| answers(packet, term))
    }

    /// What the chains decide, step by step.
    fn first_match(chains: &Chains, chain: &str, packet: Packet) -> Option<bool> {
        for step in &chains[chain] {
            if !step.filters.iter().any(|filter| fits(packet, filter)) {
                continue;
            }
            match &step.verdict {
                Verdict::Accept => return Some(true),
                Verdict::Drop => return Some(false),
                Verdict::Return => return None,
                Verdict::Jump(target) => match first_match(chains, target, packet) {
                    None => {}
                    decided => return decided,
                },
                Verdict::Remark(..) => {}
            }
        }
        None
    }

    #[test]
    fn rules_without_order_decide_as_the_first_match_did() {
        let mut dice = Dice(3);
        for _ in 0..300 {
            let chains = Chains::from([
                ("main".to_owned(), dice.chain(&["a", "b"])),
                ("a".to_owned(), dice.chain(&["b"])),
                ("b".to_owned(), dice.chain(&[])),
            ]);
            let (accepts, drops) = decisions(&chains);
            for packet in (0..125).map(|n| [n % 5, n / 5 % 5, n / 25]) {
                let accepted = accepts.iter().any(|filter| fits(packet, filter));
                let dropped = drops.iter().any(|filter| fits(packet, filter));
                let expected = first_match(&chains, "main", packet);
                assert_eq!(accepted, expected == Some(true), "{packet:?} {chains:#?}");
                assert_eq!(dropped && !accepted, expected == Some(false), "{packet:?} {chains:#?}");
            }
        }
    }

    /// All filters that accept and all that drop.
    fn decisions(chains: &Chains) -> (Vec<Filter>, Vec<Filter>) {
        let mut walk = Walk { chains, found: Vec::new(), said: HashSet::new() };
        walk.chain("main", vec![Filter::default()], 0);
        let (mut accepts, mut drops) = (Vec::new(), Vec::new());
        for found in walk.found {
            match found {
                Found::Decision(step, filters) if step.verdict == Verdict::Drop => drops.extend(filters),
                Found::Decision(_, filters) => accepts.extend(all_minus(filters, &drops).unwrap()),
                Found::Remark(_, kind, reason) => assert_eq!(kind, Kind::Note, "{reason}"),
            }
        }
        (accepts, drops)
    }
}
