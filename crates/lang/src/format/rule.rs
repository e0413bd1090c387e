//! The canonical text of rules, and of the values of their fields.

use std::fmt::{self, Display, Formatter, Write as _};

use super::list;
use crate::ast::{
    Action, Cond, Match, MatchExpr, Rule, RuleKind, RuleRef, Target, Value, ValueItem, ValueSet,
};
use crate::field::{FieldId, ValueKind};
use crate::keyword::cond_sign;
use crate::lex::quote_text;
use crate::names;

/// A rule without name and comment.
struct RuleBody<'a>(&'a Rule);

impl Rule {
    /// Prints the rule without name and comment: all that decides what it does.
    pub fn body(&self) -> impl Display {
        RuleBody(self)
    }
}

impl Display for RuleBody<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Rule { kind, matches, targets, .. } = self.0;
        kind.fmt(f)?;
        matches.iter().try_for_each(|one| write!(f, " {one}"))?;
        targets.iter().try_for_each(|target| write!(f, " {target}"))
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.body().fmt(f)?;
        self.name().map_or(Ok(()), |name| write!(f, " name {name}"))?;
        self.comment().map_or(Ok(()), |text| write!(f, " comment {}", quote_text(text)))
    }
}

impl Display for RuleRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            RuleRef::Index(index) => index.fmt(f),
            RuleRef::Name(name) => name.fmt(f),
        }
    }
}

impl Display for RuleKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleKind::Add => "add",
            RuleKind::Stateless => "add-stateless",
            RuleKind::Stateful => "add-stateful",
        })
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.negated {
            f.write_str("! ")?;
        }
        match &self.what {
            MatchExpr::All => f.write_str("all"),
            MatchExpr::Field { field, arg: None } => f.write_str(field.name()),
            MatchExpr::Field { field, arg: Some(arg) } => {
                f.write_str(field.name())?;
                if let Some(port) = arg.pair_port() {
                    write!(f, ",{}", port.name())?;
                }
                if arg.cond != Cond::Eq {
                    write!(f, " {}", arg.cond)?;
                }
                write!(f, " {}", Values(*field, &arg.values))
            }
        }
    }
}

impl Display for Cond {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(cond_sign(*self))
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.action.fmt(f)
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Action::Mod { field, value } => write!(f, " {field} {}", One(*field, value)),
            Action::Add { field, value: None } | Action::Shuffle { field, values: None } => {
                write!(f, " {field}")
            }
            Action::Add { field, value: Some(value) } => write!(f, " {field} {}", One(*field, value)),
            Action::Strip { keep, field, kind } => {
                write!(f, "{} {field}", if *keep { " !" } else { "" })?;
                kind.map_or(Ok(()), |kind| write!(f, " {kind}"))
            }
            Action::StripAll => f.write_str(" all"),
            Action::Map { field, values } | Action::Shuffle { field, values: Some(values) } => {
                write!(f, " {field} {}", Values(*field, values))
            }
            Action::Nat { pool } => write!(f, " {pool}"),
            Action::Lb { addresses } => list(f, "", addresses),
            Action::Drop { ten_thousandths } => percent(f, *ten_thousandths),
            Action::Accept | Action::Block | Action::Reject => Ok(()),
            Action::Log { prefix: None } => Ok(()),
            Action::Log { prefix: Some(text) } => write!(f, " prefix {}", quote_text(text)),
            Action::Chain { name } | Action::Broker { name } => write!(f, " {name}"),
        }
    }
}

impl Action {
    /// The keyword of the target.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Action::Mod { .. } => "mod",
            Action::Add { .. } => "add",
            Action::Strip { .. } | Action::StripAll => "strip",
            Action::Map { .. } => "map",
            Action::Shuffle { .. } => "shuffle",
            Action::Lb { .. } => "lb",
            Action::Nat { .. } => "nat",
            Action::Drop { .. } => "drop",
            Action::Accept => "accept",
            Action::Block => "block",
            Action::Reject => "reject",
            Action::Log { .. } => "log",
            Action::Chain { .. } => "chain",
            Action::Broker { .. } => "broker",
        }
    }
}

impl FieldId {
    /// A value of the field, in the syntax of rules.
    pub fn display(self, value: &Value) -> impl Display {
        One(self, value)
    }
}

impl Display for FieldId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Hundredths of a percent as a percentage; nothing for 100 %.
fn percent(f: &mut Formatter<'_>, ten_thousandths: u32) -> fmt::Result {
    let (whole, rest) = (ten_thousandths / 100, ten_thousandths % 100);
    match rest {
        _ if ten_thousandths == 10_000 => Ok(()),
        0 => write!(f, " {whole}"),
        rest if rest % 10 == 0 => write!(f, " {whole}.{}", rest / 10),
        rest => write!(f, " {whole}.{rest:02}"),
    }
}

/// The values of a field.
struct Values<'a>(FieldId, &'a ValueSet);

impl Display for Values<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let item = |f: &mut Formatter<'_>, item: &ValueItem| match item {
            ValueItem::Single(value) => One(self.0, value).fmt(f),
            // Always numbers: a protocol name may contain a dash.
            ValueItem::Range(ends) => match &**ends {
                [Value::Int(low), Value::Int(high)] => write!(f, "{low}-{high}"),
                [low, high] => write!(f, "{}-{}", One(self.0, low), One(self.0, high)),
            },
        };
        if let [only] = &**self.1 {
            return item(f, only);
        }
        f.write_char('{')?;
        for (index, one) in self.1.iter().enumerate() {
            if index > 0 {
                f.write_char(',')?;
            }
            item(f, one)?;
        }
        f.write_char('}')
    }
}

/// A value of a field.
struct One<'a>(FieldId, &'a Value);

impl Display for One<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Value::Int(number) => int(f, self.0.def().kind, *number),
            Value::Prefix { addr, len } if self.1.is_subnet() => write!(f, "{addr}/{len}"),
            Value::Prefix { addr, .. } => addr.fmt(f),
            Value::Iface(name) => name.fmt(f),
            Value::Set(name) | Value::PairSet(name, _) => write!(f, "@{name}"),
            Value::Bytes(bytes) => literal(f, bytes),
            Value::Option { kind, data } if data.is_empty() => kind.fmt(f),
            Value::Option { kind, data } => {
                write!(f, "{kind} ")?;
                literal(f, data)
            }
        }
    }
}

fn int(f: &mut Formatter<'_>, kind: ValueKind, number: u64) -> fmt::Result {
    let name = match kind {
        ValueKind::Proto => names::protocol_of(number),
        ValueKind::EtherType => names::ethertype_name(number),
        _ => None,
    };
    match name {
        Some(name) => f.write_str(name),
        None if kind == ValueKind::EtherType => write!(f, "0x{number:04x}"),
        None => number.fmt(f),
    }
}

/// Printable ASCII in quotes, everything else in hexadecimal.
fn literal(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) => f.write_str(&quote_text(text)),
        _ => {
            f.write_str("0x")?;
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        }
    }
}
