//! Which matches of a rule hold for a packet, and the packet's value where they do not.
//!
//! Each match is compiled as a rule of its own and classified by the code of the packet path, so that the
//! answer is the engine's.

use mmb_classify::Batch;
use mmb_lang::{Action, Diagnostic, FieldId, MatchExpr, Rule, RuleKind};
use mmb_packet::Kind;

use super::fields::HeaderFields;
use crate::Policy;

/// A match of a rule, and a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchOutcome {
    /// The match, as in the rule.
    pub text: String,
    /// Whether it holds for the packet.
    pub holds: bool,
    /// The packet's value of the field. None: it has no such field, or the match is `all`.
    pub value: Option<String>,
}

/// Evaluates the matches of a rule one by one, with the named sets of a policy.
///
/// `ifaces` maps an interface to its port, `names` a port to its interface.
///
/// # Errors
/// The rule names an interface that does not exist.
pub fn explain_matches(
    rule: &Rule,
    sets: &Policy,
    packet: &HeaderFields<'_>,
    ifaces: &dyn Fn(&str) -> Option<u16>,
    names: &dyn Fn(u16) -> Option<String>,
) -> Result<Vec<MatchOutcome>, Diagnostic> {
    let mut batch = Batch::default();
    let outcome = |one: &mmb_lang::Match| {
        let single = Rule {
            kind: RuleKind::Add,
            matches: vec![one.clone()],
            targets: vec![Action::Accept.into()],
            label: None,
            span: rule.span,
        };
        let mut policy = Policy::new().with_sets(sets.sets().clone());
        policy.add(&single, ifaces)?;
        let value = match one.what {
            MatchExpr::All => None,
            MatchExpr::Field { field, .. } => value_text(packet, (field, one.pair_port()), names),
        };
        Ok(MatchOutcome { text: one.to_string(), holds: matches(&policy, packet, &mut batch), value })
    };
    rule.matches.iter().map(outcome).collect()
}

/// The packet's value of a field, or of an address and a port as in elements of sets.
fn value_text(
    packet: &HeaderFields<'_>,
    (field, port): (FieldId, Option<FieldId>),
    names: &dyn Fn(u16) -> Option<String>,
) -> Option<String> {
    let value = packet.text(field, names)?;
    let Some(port) = port else { return Some(value) };
    Some(match packet.text(port, names) {
        Some(number) if value.contains(':') => format!("[{value}]:{number}"),
        Some(number) => format!("{value}:{number}"),
        None => format!("{value} without {port}"),
    })
}

/// The slots of the rules of a policy that match, by the code of the packet path.
pub fn matching_slots(policy: &Policy, packet: &HeaderFields<'_>) -> Vec<u32> {
    let mut batch = Batch::default();
    match matches(policy, packet, &mut batch) {
        true => batch.hits.iter().map(|hit| hit.slot).collect(),
        false => Vec::new(),
    }
}

/// Whether some rule of a policy matches. The hits of the batch are the rules.
fn matches(policy: &Policy, packet: &HeaderFields<'_>, batch: &mut Batch) -> bool {
    if packet.meta.kind == Kind::default() {
        return false;
    }
    policy.classifier().classify_one(batch, packet.head, &packet.meta, packet.ports);
    !batch.hits.is_empty()
}
