//! Checks whether the option edits of a rule are consistent.
//!
//! # Theory of operation
//!
//! The targets are simulated in order over the known options of a packet: initially none, then the kinds that
//! the rule has written, with their lengths. All `strip !` of a rule act at the position of the first. Errors
//! are edits that a later edit undoes, and options that fit no header.

use crate::ast::{Action, Target, Value};
use crate::diag::Diagnostic;
use crate::field::{FieldDef, FieldId};

/// Maximum number of option bytes in a TCP header: 15 words less the 5 of the fixed header (RFC 9293, 3.1).
const ROOM: usize = 40;

/// The options that a `strip` removes or keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Kind(u8),
}

impl Which {
    fn of(field: FieldId, kind: Option<u8>) -> Self {
        kind.or(field.def().option_kind()).map_or(Which::All, Which::Kind)
    }
}

/// The known options of the packet at a position of the rule.
struct Known {
    /// By kind: length of the option, 0 if unknown, and whether it is certainly present.
    length: [u8; 256],
    added: [bool; 256],
}

/// Rejects option edits that contradict each other.
pub(super) fn check(targets: &[Target]) -> Result<(), Diagnostic> {
    let is_edit = |target: &Target| match &target.action {
        Action::Mod { field, .. } => field.def().is_option(),
        Action::Add { .. } | Action::Strip { .. } | Action::StripAll => true,
        _ => false,
    };
    if !targets.iter().any(is_edit) {
        return Ok(());
    }
    check_strips(targets)?;
    let mut known = Known { length: [0; 256], added: [false; 256] };
    let kept: Vec<u8> = kinds(targets, true).collect();
    let mut whitelisted = false;
    for target in targets {
        match &target.action {
            Action::Mod { field, value } if field.def().is_option() => {
                known.write(target, field.def(), Some(value), false)?;
            }
            Action::Add { field, value } => known.write(target, field.def(), value.as_ref(), true)?,
            Action::Strip { keep: true, .. } if !std::mem::replace(&mut whitelisted, true) => {
                known.remove(target, |kind| !kept.contains(&kind))?;
            }
            Action::Strip { keep: false, field, kind } => {
                let which = Which::of(*field, *kind);
                known.remove(target, |kind| which == Which::All || which == Which::Kind(kind))?;
            }
            Action::StripAll => known.remove(target, |_| true)?,
            _ => {}
        }
    }
    Ok(())
}

/// The kinds that the `strip` targets of a rule keep or remove.
fn kinds(targets: &[Target], kept: bool) -> impl Iterator<Item = u8> {
    targets.iter().filter_map(move |target| match target.action {
        Action::Strip { keep, field, kind } if keep == kept => match Which::of(field, kind) {
            Which::Kind(kind) => Some(kind),
            Which::All => None,
        },
        _ => None,
    })
}

/// Checks for contradicting and repeated `strip` targets.
fn check_strips(targets: &[Target]) -> Result<(), Diagnostic> {
    let mut kept = [false; 256];
    kinds(targets, true).for_each(|kind| kept[usize::from(kind)] = true);
    let whitelist = kept.contains(&true);
    let (mut all, mut seen) = (false, [[false; 256]; 2]);
    for target in targets {
        let (keep, which) = match target.action {
            Action::Strip { keep, field, kind } => (keep, Which::of(field, kind)),
            Action::StripAll => (false, Which::All),
            _ => continue,
        };
        let error = |message: String| Err(Diagnostic::new(target.span.span(), message));
        match which {
            Which::All if keep => {
                let message = "`strip ! tcp-opt` keeps every option, so that it strips none".to_owned();
                return error(message).map_err(|error| error.with_help("name the options to keep by kind"));
            }
            Which::All if whitelist => {
                return error(format!(
                    "the rule keeps some options with `strip !`, and `{target}` removes them"
                ));
            }
            Which::Kind(kind) if !keep && kept[usize::from(kind)] => {
                return error(format!(
                    "the rule keeps that option with `strip !`, and `{target}` removes it"
                ));
            }
            _ => {}
        }
        let again = match which {
            Which::All => std::mem::replace(&mut all, true),
            Which::Kind(kind) => std::mem::replace(&mut seen[usize::from(keep)][usize::from(kind)], true),
        };
        if again {
            return error(format!("the rule has `{target}` twice"));
        }
    }
    Ok(())
}

impl Known {
    fn write(
        &mut self,
        target: &Target,
        def: &FieldDef,
        value: Option<&Value>,
        add: bool,
    ) -> Result<(), Diagnostic> {
        let data = match value {
            Some(Value::Bytes(data) | Value::Option { data, .. }) => data.len(),
            Some(_) => usize::from(def.width_bits) / 8,
            None => 0,
        };
        let kind = match value {
            Some(Value::Option { kind, .. }) => *kind,
            _ => def.option_kind().unwrap_or_default(),
        };
        let error = |message: String| Err(Diagnostic::new(target.span.span(), message));
        let at = usize::from(kind);
        if self.length[at] != 0 {
            let name = FieldDef::option_name(kind);
            return error(format!("the rule writes `{name}` twice"));
        }
        // Kind and length precede the data, which has at most 38 bytes.
        self.length[at] = (data + 2) as u8;
        self.added[at] = add;
        let added = self.length.iter().zip(&self.added).filter(|(_, added)| **added);
        let total: usize = added.map(|(length, _)| usize::from(*length)).sum();
        if total > ROOM {
            return error(format!(
                "the rule adds {total} bytes of options, and a TCP header has room for {ROOM}"
            ));
        }
        Ok(())
    }

    fn remove(&mut self, target: &Target, removed: impl Fn(u8) -> bool) -> Result<(), Diagnostic> {
        let undone = (0..=255).find(|&kind| self.length[usize::from(kind)] != 0 && removed(kind));
        match undone {
            None => Ok(()),
            Some(kind) => {
                let name = FieldDef::option_name(kind);
                let message = format!("the rule writes `{name}`, and `{target}` removes it");
                Err(Diagnostic::new(target.span.span(), message))
            }
        }
    }
}

impl FieldDef {
    /// An option in the syntax of the language: by name if it has one.
    fn option_name(kind: u8) -> String {
        let named = crate::FIELDS.iter().find(|def| def.option_kind() == Some(kind));
        named.map_or_else(|| format!("tcp-opt {kind}"), |def| def.name.to_owned())
    }
}
