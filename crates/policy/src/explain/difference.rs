//! What differs between a packet before and behind an edit, field by field.

use mmb_lang::{FIELDS, FieldDef, FieldId, Layer, ValueKind};
use mmb_packet::{Kind, payload, tcp_options};

use super::fields::{HeaderFields, bytes_text, payload_layer};

/// A field whose value an edit has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChange {
    /// The field: its name in rules; `eth-saddr` and `eth-daddr` for Ethernet addresses.
    pub field: String,
    /// The value before. None: the packet did not have the field.
    pub before: Option<String>,
    /// The value behind. None: the packet does not have the field any more.
    pub after: Option<String>,
}

/// The fields that differ. Single bits are left out if a field contains them.
pub fn differences(before: &HeaderFields<'_>, after: &HeaderFields<'_>) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    let mut note = |field: &str, before: Option<String>, after: Option<String>| {
        if before != after {
            changes.push(FieldChange { field: field.to_owned(), before, after });
        }
    };
    for (name, at) in [("eth-daddr", 0), ("eth-saddr", 6)] {
        note(name, ethernet_address(before.head, at), ethernet_address(after.head, at));
    }
    for def in FIELDS.iter().filter(|def| is_compared(def)) {
        note(def.name, before.text(def.id, &|_| None), after.text(def.id, &|_| None));
    }
    for (kind, name) in option_kinds(before, after) {
        note(&name, option_text(before, kind), option_text(after, kind));
    }
    for def in FIELDS.iter().filter(|def| def.loc.is_none() && is_innermost(def.proto, before, after)) {
        let Some(layer) = payload_layer(def.proto) else { continue };
        let of =
            |packet: &HeaderFields<'_>| payload(packet.head, &packet.meta, layer).unwrap_or(&[]).to_vec();
        if let Some((at, old, new)) = changed_part(&of(before), &of(after)) {
            let text = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes_text(def.id, bytes));
            note(&format!("{} at byte {at}", def.name), text(old), text(new));
        }
    }
    changes
}

/// Whether the field's value is compared: it is a number in a header.
fn is_compared(def: &FieldDef) -> bool {
    let is_single = def.width_bits == 1 || matches!(def.kind, ValueKind::Shorthand(_));
    def.in_header() && !is_single && def.proto != Layer::Interface
}

fn ethernet_address(head: &[u8], at: usize) -> Option<String> {
    let bytes = head.get(at..at + 6)?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
}

/// The kinds of the TCP options of both, and their names.
fn option_kinds(before: &HeaderFields<'_>, after: &HeaderFields<'_>) -> Vec<(u8, String)> {
    let kinds = |packet: &HeaderFields<'_>| {
        tcp_options(packet.head, &packet.meta).map(|o| o.kind).collect::<Vec<_>>()
    };
    let mut all = [kinds(before), kinds(after)].concat();
    all.sort_unstable();
    all.dedup();
    let name = |kind: u8| match FIELDS.iter().find(|def| def.option_kind() == Some(kind)) {
        Some(def) => def.name.to_owned(),
        None => format!("tcp-opt {kind}"),
    };
    all.into_iter().map(|kind| (kind, name(kind))).collect()
}

fn option_text(packet: &HeaderFields<'_>, kind: u8) -> Option<String> {
    if let Some(def) = FIELDS.iter().find(|def| def.option_kind() == Some(kind)) {
        return packet.text(def.id, &|_| None);
    }
    let data = tcp_options(packet.head, &packet.meta).find(|option| option.kind == kind)?.data;
    Some(if data.is_empty() { "present".to_owned() } else { bytes_text(FieldId::TcpOpt, data) })
}

/// Whether the payload behind this header lies behind no other header that both packets have.
fn is_innermost(layer: Layer, before: &HeaderFields<'_>, after: &HeaderFields<'_>) -> bool {
    let is_plain = |packet: &HeaderFields<'_>| packet.meta.kind.l4() == Kind::L4_NONE;
    match layer {
        Layer::Ip4 | Layer::Ip6 => is_plain(before) && is_plain(after),
        _ => true,
    }
}

/// The first byte that differs, and what stands from there on up to the equal end.
fn changed_part<'a>(before: &'a [u8], after: &'a [u8]) -> Option<(usize, &'a [u8], &'a [u8])> {
    if before == after {
        return None;
    }
    let first = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (old, new) = (&before[first..], &after[first..]);
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    Some((first, &old[..old.len() - same], &new[..new.len() - same]))
}
