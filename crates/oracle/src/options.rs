//! TCP options, read and edited as a list (RFC 9293, 3.1 and 3.2).
//!
//! Deliberately independent of `mmb_packet::tcp_options`: see [`crate::headers`].

use mmb_lang::{Action, FieldId, Rule, Value};

/// Maximum bytes of options: 15 words of header less the 5 of the fixed header.
const ROOM: usize = 40;

/// An option other than kinds 0 and 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opt {
    pub kind: u8,
    /// Bytes behind kind and length.
    pub data: Vec<u8>,
    /// Number of NOPs directly before the option.
    nops: usize,
    /// Offset of the data in the option area; 0 for an added option.
    data_at: usize,
}

/// The options in the bytes behind a fixed TCP header, up to an end-of-list option or to unreadable bytes.
pub(crate) fn walk(area: &[u8]) -> Vec<Opt> {
    let mut list = Vec::new();
    let mut at = 0;
    let mut nops = 0;
    while at < area.len() && area[at] != 0 {
        if area[at] == 1 {
            nops += 1;
            at += 1;
            continue;
        }
        // Kind, length (which counts both), data.
        if at + 1 >= area.len() {
            break;
        }
        let length = usize::from(area[at + 1]);
        if length < 2 || at + length > area.len() {
            break;
        }
        list.push(Opt { kind: area[at], data: area[at + 2..at + length].to_vec(), nops, data_at: at + 2 });
        nops = 0;
        at += length;
    }
    list
}

/// Kind of the option `name`, and the data length with which it has a numeric value (RFC 9293, 3.2; RFC
/// 7323, 2.2 and 3.2; RFC 2018, 2 and 3; RFC 7413, 2; RFC 8684, 3). Copied by hand, like the locations of
/// fields.
pub(crate) fn named(name: &str) -> Option<(u8, Option<usize>)> {
    match name {
        "tcp-opt-mss" => Some((2, Some(2))),
        "tcp-opt-wscale" => Some((3, Some(1))),
        "tcp-opt-sackp" => Some((4, None)),
        "tcp-opt-sack" => Some((5, None)),
        "tcp-opt-timestamp" => Some((8, Some(8))),
        "tcp-opt-fast-open" => Some((34, None)),
        "tcp-opt-mptcp" => Some((30, None)),
        _ => None,
    }
}

/// The option area after the edits of these rules in order; `None` if it is unchanged.
///
/// # Errors
/// The options need more bytes than a header has.
pub(crate) fn edited(area: &[u8], rules: &[&Rule]) -> Result<Option<Vec<u8>>, TooLong> {
    let before = walk(area);
    let mut list = before.clone();
    for rule in rules {
        edit(&mut list, rule);
    }
    let same = |a: &Opt, b: &Opt| a.kind == b.kind && a.data.len() == b.data.len();
    if list.len() == before.len() && list.iter().zip(&before).all(|(a, b)| same(a, b)) {
        let mut bytes = area.to_vec();
        for (new, old) in list.iter().zip(&before) {
            bytes[old.data_at..old.data_at + old.data.len()].copy_from_slice(&new.data);
        }
        return Ok((bytes != area).then_some(bytes));
    }
    let mut bytes = Vec::new();
    for option in &list {
        bytes.extend(std::iter::repeat_n(1, option.nops));
        bytes.push(option.kind);
        bytes.push((option.data.len() + 2) as u8);
        bytes.extend(&option.data);
    }
    if bytes.len() > ROOM {
        return Err(TooLong);
    }
    while bytes.len() % 4 != 0 {
        bytes.push(0);
    }
    Ok(Some(bytes))
}

/// More than 40 bytes of options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

fn edit(list: &mut Vec<Opt>, rule: &Rule) {
    let actions = || rule.targets.iter().map(|target| &target.action);
    // All `strip !` of a rule are one edit, in the position of the first.
    let keeps: Vec<u8> = actions()
        .filter_map(|action| match action {
            Action::Strip { keep: true, field, kind } => kind.or(named(field.name()).map(|(kind, _)| kind)),
            _ => None,
        })
        .collect();
    let mut whitelisted = false;
    for action in actions() {
        match action {
            Action::Mod { field, value } if is_option(*field) => set(list, *field, Some(value), false),
            Action::Add { field, value } => set(list, *field, value.as_ref(), true),
            Action::StripAll => list.clear(),
            Action::Strip { keep: true, .. } => {
                if !whitelisted {
                    list.retain(|option| keeps.contains(&option.kind));
                }
                whitelisted = true;
            }
            Action::Strip { keep: false, field, kind } => {
                match kind.or(named(field.name()).map(|(kind, _)| kind)) {
                    Some(kind) => list.retain(|option| option.kind != kind),
                    None => list.clear(),
                }
            }
            _ => {}
        }
    }
}

/// Whether the field is a TCP option, by name or by number.
pub(crate) fn is_option(field: FieldId) -> bool {
    field.name().starts_with("tcp-opt")
}

/// Gives this value to every option of the kind; with `add`, appends one if there is none.
fn set(list: &mut Vec<Opt>, field: FieldId, value: Option<&Value>, add: bool) {
    let (kind, length) = named(field.name()).unwrap_or((0, None));
    let (kind, data) = match value {
        None => (kind, Vec::new()),
        Some(Value::Int(number)) => (kind, number.to_be_bytes()[8 - length.unwrap_or(8)..].to_vec()),
        Some(Value::Bytes(bytes)) => (kind, bytes.to_vec()),
        Some(Value::Option { kind, data }) => (*kind, data.to_vec()),
        Some(other) => panic!("mmb_lang::check lets no option with {other:?} pass"),
    };
    if add && list.iter().all(|option| option.kind != kind) {
        list.push(Opt { kind, data: Vec::new(), nops: 0, data_at: 0 });
    }
    for option in list.iter_mut().filter(|option| option.kind == kind) {
        option.data = data.clone();
    }
}

#[cfg(test)]
mod tests;
