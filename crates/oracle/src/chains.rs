//! Service chains, as far as rules have to do with them.

use mmb_lang::{Action, Match, Rule};

use crate::headers;
use crate::matching::{self, Packet};

/// The traffic that a service chain takes: all of these matches hold.
pub type ChainClasses<'a> = dyn Fn(&str) -> Vec<Match> + 'a;

/// The rules that match a frame, as in [`crate::evaluate`], where a rule with a chain does only if the frame is of the
/// traffic that the chain takes.
pub fn matching_rules<'a>(
    rules: &'a [(u32, Rule)],
    classes: &ChainClasses<'_>,
    ifaces: &dyn Fn(&str) -> Option<u16>,
    (in_port, out_port): (u16, u16),
    frame: &[u8],
) -> Vec<&'a (u32, Rule)> {
    let Ok(Some(headers)) = headers::read(frame) else { return Vec::new() };
    let packet = Packet { frame, headers: &headers, in_port, out_port, ifaces };
    let holds = |rule: &Rule| {
        let class = named(rule).map(classes).unwrap_or_default();
        matching::rule_matches(rule, &packet) && matching::all_hold(&class, &packet)
    };
    rules.iter().filter(|(_, rule)| holds(rule)).collect()
}

/// The chain that a session goes through if these rules match the packet that opens it: what the last one says that
/// names one, and its index.
pub fn chain<'a>(matching: &[&'a (u32, Rule)]) -> Option<(u32, &'a str)> {
    matching.iter().rev().find_map(|(index, rule)| Some((*index, named(rule)?)))
}

/// The chain that a rule names.
fn named(rule: &Rule) -> Option<&str> {
    rule.targets.iter().find_map(|target| match &target.action {
        Action::Chain { name } => Some(&*name.text),
        _ => None,
    })
}
