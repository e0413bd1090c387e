//! Statements for NAT of nftables.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::error::ExpressionError;
use crate::nat::Translation;

/// Reads a statement `masquerade`, `snat` or `dnat`.
///
/// # Errors
/// mmb has no equal translation.
pub(super) fn of(name: &str, value: &Value) -> Result<Translation, ExpressionError> {
    let unknown = || ExpressionError::UnknownTranslation { statement: format!("{name} {value}") };
    let ports = match &value["port"] {
        Value::Null => None,
        port => Some(
            range(port, |end| end.as_u64().and_then(|port| u16::try_from(port).ok())).ok_or_else(unknown)?,
        ),
    };
    if name == "masquerade" {
        return Ok(Translation::Masquerade { ports });
    }
    let addresses =
        range(&value["addr"], |end| end.as_str()?.parse::<Ipv4Addr>().ok()).ok_or_else(unknown)?;
    if name == "snat" {
        return Ok(Translation::Source { addresses, ports });
    }
    let is_single = addresses.0 == addresses.1 && ports.is_none_or(|(low, high)| low == high);
    let port = ports.map(|(low, _)| low);
    is_single.then_some(Translation::Destination { address: addresses.0, port }).ok_or_else(unknown)
}

/// The ends of a value or a range.
fn range<T: Copy>(value: &Value, end: impl Fn(&Value) -> Option<T>) -> Option<(T, T)> {
    match value["range"].as_array().map(Vec::as_slice) {
        Some([low, high]) => Some((end(low)?, end(high)?)),
        _ => end(value).map(|one| (one, one)),
    }
}
