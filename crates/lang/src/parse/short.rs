//! Targets without a field: `tcp-opt-mss > 1460 mod 1460`, `tcp-opt-timestamp strip`.

use super::{Parse, Parser};
use crate::ast::{Cond, Match, MatchExpr, Value};
use crate::diag::{Diagnostic, nearest_distance};
use crate::field::{FIELDS, FieldDef, FieldId, ValueKind, field};
use crate::keyword::is_reserved;
use crate::lex::Tok;
use crate::shape::is_name;
use crate::span::Span;

/// The implied field of a target without a field: the one field of the matches that the target can act on.
pub(super) enum Subject {
    /// The field. For `tcp-opt <kind>`, with the kind.
    One(&'static FieldDef, Option<u8>),
    /// No match names such a field.
    None,
    /// Several matches name such fields, or one names several kinds of options.
    Several,
}

impl Subject {
    /// The implied field of these matches, among the fields for which `can` returns true.
    pub(super) fn of(matches: &[Match], can: fn(&FieldDef) -> bool) -> Self {
        let mut named = matches.iter().filter(|one| match &one.what {
            MatchExpr::All => false,
            MatchExpr::Field { field, .. } => can(field.def()),
        });
        match (named.next(), named.next()) {
            (Some(one), None) => Self::named_by(one),
            (None, _) => Self::None,
            _ => Self::Several,
        }
    }

    fn named_by(one: &Match) -> Self {
        let MatchExpr::Field { field, arg } = &one.what else { return Self::None };
        let (def, Some(arg)) = (field.def(), arg) else { return Self::One(field.def(), None) };
        if arg.pair_port().is_some() {
            return Self::Several;
        }
        if *field != FieldId::TcpOpt {
            return Self::One(def, None);
        }
        match arg.values.single() {
            Some(Value::Int(kind @ 2..=255)) if arg.cond == Cond::Eq && !one.negated => {
                Self::One(def, Some(*kind as u8))
            }
            _ => Self::Several,
        }
    }

    /// Whether the next token is a value where a field could stand, so that the field is implied. A word
    /// similar to a field counts as a typing error of the field.
    pub(super) fn operand(&self, parser: &Parser<'_>) -> bool {
        let word = match parser.peek() {
            Tok::Text | Tok::OpenText => return true,
            Tok::Word => parser.text(parser.lex.peek()),
            _ => return false,
        };
        match self {
            _ if field(word).is_some() => false,
            Self::One(def, _) if def.kind == ValueKind::Interface => {
                let slip = nearest_distance(word, FIELDS.iter().map(|def| def.name)).is_some();
                is_name(word) && !is_reserved(word) && !slip
            }
            Self::One(def, _) => parser.looks_like_value(def, word),
            _ => word.starts_with(|c: char| c.is_ascii_digit()),
        }
    }

    /// The implied field, and the kind if the field is `tcp-opt` and the match names one.
    ///
    /// # Errors
    /// There is no such field, or several. The error has the given `span`.
    pub(super) fn resolved(&self, target: &str, span: Span) -> Parse<(&'static FieldDef, Option<u8>)> {
        let found = match self {
            Self::One(def, kind) => return Ok((def, *kind)),
            Self::None => "there is none",
            Self::Several => "there are several",
        };
        let help = format!(
            "`{target}` alone means the one field of the rule's matches that it can act on, and {found}"
        );
        Err(Diagnostic::new(span, format!("the field behind `{target}` is missing")).with_help(help))
    }
}
