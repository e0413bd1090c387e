//! Ranges of values that a field cannot have in a matching packet.
//!
//! # Theory of operation
//!
//! A condition on a number is a set of ranges. The conditions on one field together permit the values that
//! none of them excludes. The excluded ranges of all fields are collected in one list and sorted once. If the
//! excluded ranges of a field cover all of its values, no packet can match.

use crate::ast::{Cond, Match, MatchExpr};
use crate::field::{FieldDef, FieldId, ValueKind};
use crate::ranges::{Range, complement, fitting};

/// Whether a field has one number per packet, so that conditions can be combined. `tcp-opt` has several.
fn is_number(def: &FieldDef) -> bool {
    let number = matches!(
        def.kind,
        ValueKind::Int | ValueKind::Flag | ValueKind::Proto | ValueKind::Ip4 | ValueKind::Ip6
    );
    number && def.id != FieldId::TcpOpt
}

/// The field that a match compares with numbers, and the values that the match excludes.
pub(super) fn excluded(one: &Match) -> Option<(&'static FieldDef, Vec<Range>)> {
    let MatchExpr::Field { field, arg: Some(arg) } = &one.what else { return None };
    let def = field.def();
    if !is_number(def) || arg.named_set().is_some() {
        return None;
    }
    let fitting = fitting(arg, def.largest());
    let holds_elsewhere = (arg.cond == Cond::Ne) == one.negated;
    Some((def, if holds_elsewhere { complement(fitting, def.largest()) } else { fitting }))
}

/// Whether a match is more than equality or inequality with one value.
pub(super) fn is_complex(one: &Match) -> bool {
    match &one.what {
        MatchExpr::Field { arg: Some(arg), .. } => {
            !matches!(arg.cond, Cond::Eq | Cond::Ne) || arg.values.single().is_none()
        }
        _ => false,
    }
}
