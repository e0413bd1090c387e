//! Checks that values of rules built by hand have the shape that the parser produces.

use std::net::IpAddr;

use crate::ast::{
    Action, Comparison, Cond, SetKind, Value, ValueItem, ValueSet, is_address_field, is_port_field,
};
use crate::field::{FieldDef, FieldId, ValueKind};
use crate::keyword::{is_body_word, is_reserved};
use crate::shape::{accepts_cond, is_log_prefix, is_name, network, order};

/// Why values do not have the shape that the parser produces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ShapeError {
    #[error("`{0}` needs a value")]
    ValueMissing(&'static str),
    #[error("`{0}` takes no value")]
    ValueNotTaken(&'static str),
    #[error("`{field}` cannot be compared so with `{cond}`")]
    Condition { field: &'static str, cond: Cond },
    #[error("the range of `{0}` ends before it starts")]
    Range(&'static str),
    #[error("the value does not fit: `{field}` takes {values}")]
    Value { field: &'static str, values: String },
    #[error("`{0}` takes a whole address, not a subnet")]
    Subnet(&'static str),
    #[error("`{action}` is for TCP options, and `{field}` is not one")]
    NotAnOption { action: &'static str, field: FieldId },
    #[error("the value of `{0}` is missing")]
    OptionValueMissing(FieldId),
    #[error("an option's kind is 2 to 255")]
    PaddingKind,
    #[error("`{0}` has its kind in its name")]
    KindGiven(FieldId),
    #[error("the option's kind or length is wrong")]
    Option,
    #[error("`tcp-opt` is written as a kind and bytes")]
    OptionBytes,
    #[error("a named set stands alone, not among other values")]
    SetAmongValues,
    #[error("`{0}` takes a value, not a named set")]
    SetWritten(&'static str),
    #[error("invalid name of a {0}")]
    Name(&'static str),
    #[error("the address behind `lb` is missing")]
    NoBackend,
    #[error("the prefix of log lines is too long, empty, or contains control characters")]
    LogPrefix,
    #[error("`drop` takes 0.01 to 100 percent in steps of 0.01")]
    Share,
}

type Shape = Result<(), ShapeError>;

/// Checks that condition and values fit the field.
pub(super) fn check_arg(def: &FieldDef, arg: Option<&Comparison>) -> Shape {
    let Some(arg) = arg else {
        return match def.kind {
            ValueKind::Interface | ValueKind::EtherType => Err(ShapeError::ValueMissing(def.name)),
            _ => Ok(()),
        };
    };
    if matches!(def.kind, ValueKind::Shorthand(_)) {
        return Err(ShapeError::ValueNotTaken(def.name));
    }
    check_values(def, &arg.values)?;
    if arg.values.len() > 1 && arg.values.iter().any(is_set) {
        return Err(ShapeError::SetAmongValues);
    }
    let one = arg.values.single().is_some_and(|value| !value.is_subnet() && !is_set_name(value));
    match arg.cond {
        cond if !accepts_cond(def, cond) => Err(ShapeError::Condition { field: def.name, cond }),
        Cond::Eq | Cond::Ne | Cond::Contains => Ok(()),
        _ if one => Ok(()),
        cond => Err(ShapeError::Condition { field: def.name, cond }),
    }
}

fn is_set(item: &ValueItem) -> bool {
    matches!(item, ValueItem::Single(value) if is_set_name(value))
}

fn is_set_name(value: &Value) -> bool {
    matches!(value, Value::Set(_) | Value::PairSet(..))
}

fn check_values(def: &FieldDef, values: &ValueSet) -> Shape {
    values.iter().try_for_each(|item| match item {
        ValueItem::Single(value) => check_value(def, value),
        ValueItem::Range(ends) => {
            let [low, high] = &**ends;
            check_value(def, low)?;
            check_value(def, high)?;
            match (order(low), order(high)) {
                (Some(low), Some(high)) if low <= high => Ok(()),
                _ => Err(ShapeError::Range(def.name)),
            }
        }
    })
}

fn check_value(def: &FieldDef, value: &Value) -> Shape {
    let fits = match (def.kind, value) {
        (ValueKind::Flag, Value::Int(number)) => *number <= 1,
        (ValueKind::Int | ValueKind::Proto | ValueKind::EtherType, Value::Int(number)) => {
            *number <= def.max_int()
        }
        (ValueKind::Ip4, Value::Prefix { addr: addr @ IpAddr::V4(_), len }) => {
            *len <= 32 && network(*addr, *len) == *addr
        }
        (ValueKind::Ip6, Value::Prefix { addr: addr @ IpAddr::V6(_), len }) => {
            *len <= 128 && network(*addr, *len) == *addr
        }
        (ValueKind::Interface, Value::Iface(name)) => is_name(name) && !is_reserved(name),
        (_, Value::Set(name)) => is_name(name) && SetKind::ALL.iter().any(|kind| kind.fits(def.id)),
        (_, Value::PairSet(name, port)) => is_name(name) && is_address_field(def.id) && is_port_field(*port),
        (ValueKind::Bytes { max }, Value::Bytes(bytes)) => (1..=usize::from(max)).contains(&bytes.len()),
        _ => false,
    };
    if fits { Ok(()) } else { Err(ShapeError::Value { field: def.name, values: def.values().to_string() }) }
}

/// Checks that the operands of a target fit each other.
pub(super) fn check_action(action: &Action) -> Shape {
    match action {
        Action::Mod { field, value } => check_operand(field.def(), value),
        Action::Add { field, value } => {
            let def = field.def();
            match value {
                _ if !def.is_option() => Err(ShapeError::NotAnOption { action: "add", field: *field }),
                Some(value) => check_operand(def, value),
                None if matches!(def.kind, ValueKind::Presence | ValueKind::Bytes { .. }) => Ok(()),
                None => Err(ShapeError::OptionValueMissing(*field)),
            }
        }
        Action::Strip { field, kind, .. } => match kind {
            _ if !field.def().is_option() => Err(ShapeError::NotAnOption { action: "strip", field: *field }),
            Some(0 | 1) => Err(ShapeError::PaddingKind),
            Some(_) if *field != FieldId::TcpOpt => Err(ShapeError::KindGiven(*field)),
            _ => Ok(()),
        },
        Action::Map { field, values } | Action::Shuffle { field, values: Some(values) } => {
            if values.iter().any(is_set) {
                return Err(ShapeError::SetWritten(field.def().name));
            }
            check_values(field.def(), values)
        }
        Action::Log { prefix: Some(text) } if !is_log_prefix(text) => Err(ShapeError::LogPrefix),
        Action::Nat { pool } if !is_name(pool) || is_reserved(pool) => Err(ShapeError::Name("pool")),
        Action::Lb { addresses } if addresses.is_empty() => Err(ShapeError::NoBackend),
        Action::Drop { ten_thousandths } if !(1..=10_000).contains(ten_thousandths) => Err(ShapeError::Share),
        Action::Chain { name } if !is_name(name) || is_reserved(name) => Err(ShapeError::Name("chain")),
        Action::Broker { name } if !is_name(name) || is_body_word(name) => Err(ShapeError::Name("broker")),
        _ => Ok(()),
    }
}

/// Checks the value that `mod` or `add` writes.
fn check_operand(def: &FieldDef, value: &Value) -> Shape {
    match value {
        Value::Option { kind, data } if def.id == FieldId::TcpOpt => {
            if *kind >= 2 && data.len() <= 38 {
                Ok(())
            } else {
                Err(ShapeError::Option)
            }
        }
        _ if def.id == FieldId::TcpOpt => Err(ShapeError::OptionBytes),
        _ if value.is_subnet() => Err(ShapeError::Subnet(def.name)),
        value if is_set_name(value) => Err(ShapeError::SetWritten(def.name)),
        _ => check_value(def, value),
    }
}
