//! Traffic classes that never have sessions.

use mmb_dpdk::FlowPattern;
use mmb_policy::{Binding, Policy};

use super::packet_set::PacketSet;
use crate::engine::config::Forwarding;

/// Stateless rules that are considered, at most.
const RULES_MAX: usize = 4_096;
/// Flow rules, at most.
const PATTERNS_MAX: usize = 64;

/// The classes of TCP and UDP packets that belong to no session, open none, and are not for a pool or forward
/// of NAT. They are as few and as large as IP version, protocol and the matches of stateless rules allow.
///
/// A session begins with a packet that a stateful rule matches. All its packets match that rule, or do so
/// with source and destination exchanged. With a pool, answers go to the pool's addresses, and hidden hosts
/// may send to hosts that they have not contacted; the same holds for forwards. If a rule changes addresses
/// or ports in other ways, the packets of its sessions are unknown, and there is no class.
pub(super) fn stateless(forwarding: &Forwarding) -> Vec<FlowPattern> {
    let Some(stateful) = stateful_sets(forwarding) else { return Vec::new() };
    let is_free = |set: &PacketSet| !stateful.iter().any(|other| other.intersects(set));
    let mut classes: Vec<PacketSet> = PacketSet::all_classes().into_iter().filter(is_free).collect();
    if classes.len() < PacketSet::all_classes().len() {
        for set in stateless_rules(&forwarding.policy) {
            if is_free(&set) && !classes.iter().any(|class| class.contains(&set)) {
                classes.push(set);
            }
        }
    }
    let mut patterns: Vec<FlowPattern> = classes.iter().filter_map(PacketSet::patterns).flatten().collect();
    patterns.truncate(PATTERNS_MAX);
    patterns
}

/// The packets that stateless rules match.
fn stateless_rules(policy: &Policy) -> impl Iterator<Item = PacketSet> {
    let stateless = policy.rules().filter(|view| policy.stateful(view.slot).is_none()).take(RULES_MAX);
    stateless.filter_map(|view| view.rule().ok()).flat_map(|rule| PacketSet::of_matches(&rule.matches))
}

/// Sets that contain every packet that may belong to a session, open one, or be rejected or logged by a
/// stateless rule; None: unknown.
fn stateful_sets(forwarding: &Forwarding) -> Option<Vec<PacketSet>> {
    let policy = &forwarding.policy;
    let mut sets = Vec::new();
    for view in policy.rules() {
        let Some(stateful) = policy.stateful(view.slot) else {
            // Answers and log lines are made where sessions are opened.
            if policy.rule_info(view.slot).rejects || policy.rule_log(view.slot).is_some() {
                sets.extend(PacketSet::of_matches(&view.rule().ok()?.matches));
            }
            continue;
        };
        if let Some(name) = &stateful.chain {
            let chain = forwarding.chains.chain(name)?;
            if forwarding.chains.translates(chain) {
                return None;
            }
        }
        // The rule's own matches, without those of its chain: a session outlives a change of the chain.
        let matched = PacketSet::of_matches(&view.rule().ok()?.matches);
        for binding in &stateful.bindings {
            match binding {
                Binding::Nat { .. } => sets.extend(matched.iter().map(PacketSet::same_sources)),
                Binding::IpId(_) | Binding::FlowLabel(_) | Binding::SeqNum(_) | Binding::AckNum(_) => {}
                Binding::Address { .. } | Binding::Port { .. } | Binding::Balance { .. } => return None,
            }
        }
        sets.extend(matched.iter().map(PacketSet::reversed));
        sets.extend(matched);
    }
    for pool in forwarding.nat.pools() {
        let (first, last) = pool.addresses();
        sets.extend(PacketSet::to_addresses(first.to_bits(), last.to_bits()));
    }
    for forward in forwarding.nat.forwards() {
        let (external, internal) = (forward.external().address, forward.internal().address);
        sets.extend(PacketSet::to_addresses(external, external));
        sets.extend(PacketSet::to_addresses(internal, internal).map(|set| set.reversed()));
    }
    Some(sets)
}

#[cfg(test)]
mod tests;
