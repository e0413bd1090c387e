//! Service chains and brokers, as far as rules refer to them.

use mmb_lang::{Action, Match, Rule};

use crate::headers;
use crate::matching::{self, Packet};

/// The traffic class of a service chain: matches that must all hold.
pub type ChainClasses<'a> = dyn Fn(&str) -> Vec<Match> + 'a;

/// The rules that match a frame, as in [`crate::evaluate`]. A rule with a chain matches only if the frame
/// is in the chain's class.
pub fn matching_rules<'a>(
    rules: &'a [(u32, Rule)],
    classes: &ChainClasses<'_>,
    ifaces: &dyn Fn(&str) -> Option<u16>,
    (in_port, out_port): (u16, u16),
    frame: &[u8],
) -> Vec<&'a (u32, Rule)> {
    let Ok(Some(headers)) = headers::read(frame) else { return Vec::new() };
    let packet = Packet { frame, headers: &headers, in_port, out_port, ifaces, in_set: &|_, _, _, _| false };
    let holds = |rule: &Rule| {
        let class = named(rule).map(classes).unwrap_or_default();
        matching::rule_matches(rule, &packet) && matching::all_hold(&class, &packet)
    };
    rules.iter().filter(|(_, rule)| holds(rule)).collect()
}

/// The chain of a session if these rules match its first packet: the index of the last rule with a chain,
/// and the chain.
pub fn chain<'a>(matching: &[&'a (u32, Rule)]) -> Option<(u32, &'a str)> {
    matching.iter().rev().find_map(|(index, rule)| Some((*index, named(rule)?)))
}

/// The broker of a session if these rules match its first packet, a SYN: the index of the last rule with a
/// broker, and the broker. Rules that drop open no session, and a session with a chain has no broker.
pub fn broker<'a>(matching: &[&'a (u32, Rule)]) -> Option<(u32, &'a str)> {
    let named = |rule: &'a Rule| {
        rule.targets.iter().find_map(|target| match &target.action {
            Action::Broker { name } => Some(&*name.text),
            _ => None,
        })
    };
    match chain(matching) {
        Some(_) => None,
        None => matching.iter().rev().find_map(|(index, rule)| Some((*index, named(rule)?))),
    }
}

/// The chain that a rule names.
fn named(rule: &Rule) -> Option<&str> {
    rule.targets.iter().find_map(|target| match &target.action {
        Action::Chain { name } => Some(&*name.text),
        _ => None,
    })
}
