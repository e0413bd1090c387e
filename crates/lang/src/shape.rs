//! The shape of names and values. Parser and checks share these functions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ast::{Cond, Value};
use crate::field::{FieldDef, ValueKind};

/// Maximum length of an interface name in bytes: the limit of the Linux kernel.
pub const MAX_NAME: usize = 15;

/// Maximum length of the name of a rule in bytes.
pub(crate) const MAX_RULE_NAME: usize = 31;
/// Maximum length of the comment on a rule in bytes.
pub(crate) const MAX_COMMENT: usize = 255;
/// Maximum number of bytes of the prefix of log lines, as in nftables.
pub const MAX_LOG_PREFIX: usize = 127;

/// Whether `text` has the shape of a rule's name. It begins with a letter, so that it is not an index.
pub(crate) fn is_rule_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && is_word(text, MAX_RULE_NAME)
}

/// Whether a character could make a terminal print something else than the text: control characters, line
/// separators, and controls of the direction of writing (Unicode Standard Annex 9, 2).
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether `text` has the shape of a comment on a rule or an element.
pub fn is_comment(text: &str) -> bool {
    (1..=MAX_COMMENT).contains(&text.len()) && !text.chars().any(is_hidden)
}

/// Whether `text` has the shape of the prefix of log lines.
pub(crate) fn is_log_prefix(text: &str) -> bool {
    (1..=MAX_LOG_PREFIX).contains(&text.len()) && !text.chars().any(is_hidden)
}

/// Whether `text` has the shape of a name.
pub(crate) fn is_name(text: &str) -> bool {
    is_word(text, MAX_NAME)
}

/// Whether `text` has the shape of a name of at most `longest` bytes.
pub(crate) fn is_word(text: &str, longest: usize) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=longest).contains(&text.len()) && text.bytes().all(valid)
}

/// Whether a field supports a condition, whatever the value.
pub(crate) fn accepts_cond(def: &FieldDef, cond: Cond) -> bool {
    use ValueKind::{Bytes, EtherType, Interface, Presence, Shorthand};
    match cond {
        Cond::Eq | Cond::Ne => def.kind != Presence,
        Cond::Contains => matches!(def.kind, Bytes { .. }),
        _ => !matches!(def.kind, Presence | Shorthand(_) | Interface | EtherType | Bytes { .. }),
    }
}

/// The position of a value in the order of its field; `None` for subnets and values without an order.
pub(crate) fn order(value: &Value) -> Option<u128> {
    match value {
        Value::Int(number) => Some((*number).into()),
        Value::Prefix { addr: IpAddr::V4(addr), len: 32 } => Some(addr.to_bits().into()),
        Value::Prefix { addr: IpAddr::V6(addr), len: 128 } => Some(addr.to_bits()),
        _ => None,
    }
}

/// The address with all bits after the first `len` cleared.
pub(crate) fn network(addr: IpAddr, len: u8) -> IpAddr {
    let len = u32::from(len);
    match addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(len)).unwrap_or(0);
            Ipv4Addr::from_bits(addr.to_bits() & mask).into()
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(len)).unwrap_or(0);
            Ipv6Addr::from_bits(addr.to_bits() & mask).into()
        }
    }
}
