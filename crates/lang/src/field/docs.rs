//! The field table for people: `show fields` and `docs/fields.md`.

use std::fmt::Write as _;

use serde::Serialize;

use super::{FIELDS, FieldDef, Support, ValueKind};

/// One field in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldInfo {
    /// The field's name.
    pub name: &'static str,
    /// The header it belongs to.
    pub layer: String,
    /// Its width in bits; `None` when that varies.
    pub bits: Option<u16>,
    /// The values it takes.
    pub values: String,
    /// `yes`, `not yet`, or `no: ` and the reason.
    pub matched: String,
    /// `yes`, `not yet`, or `no: ` and the reason.
    pub written: String,
    /// What it is.
    pub help: &'static str,
    /// A match.
    pub example: &'static str,
}

impl FieldDef {
    /// The field in words.
    pub fn info(&self) -> FieldInfo {
        let support = |support| match support {
            Support::Yes => "yes".to_owned(),
            Support::NotYet => "not yet".to_owned(),
            Support::No(reason) => format!("no: {reason}"),
        };
        FieldInfo {
            name: self.name,
            layer: self.proto.to_string(),
            bits: (self.width_bits != 0).then_some(self.width_bits),
            values: self.values(),
            matched: support(self.match_),
            written: support(self.modify),
            help: self.help,
            example: self.example,
        }
    }

    /// The values the field takes, as they follow "takes".
    pub fn values(&self) -> String {
        match self.kind {
            ValueKind::Int => format!("0 to {}", self.max_int()),
            ValueKind::Flag | ValueKind::Shorthand(_) => "0 or 1".to_owned(),
            ValueKind::Proto => "a protocol name or 0 to 255".to_owned(),
            ValueKind::EtherType => "ip, ip6 or an ethertype".to_owned(),
            ValueKind::Ip4 => "an IPv4 address or subnet".to_owned(),
            ValueKind::Ip6 => "an IPv6 address or subnet".to_owned(),
            ValueKind::Interface => "the name of an interface".to_owned(),
            ValueKind::Bytes { max } => format!("1 to {max} bytes, as \"text\" or 0x…"),
            ValueKind::Presence => "no value".to_owned(),
        }
    }
}

/// What stands above the tables of `docs/fields.md`.
const INTRODUCTION: &str = "\
# Fields

<!-- Written from the field table in crates/lang; `MMB_BLESS=1 cargo test -p mmb-lang --test fields` writes it anew. -->

A match is `[!] <field> [[<cond>] <value>]`, or `all`. A field alone asks for the header or option to be there, and a
field of one bit for the bit to be 1; with a value, the packet must have the field and its value must fit. `!` turns
the whole match round: `! ip-proto udp` holds for IPv6 packets too, `ip-proto != udp` only for IPv4 packets.
Bits behind a prefix do not count: `ip-saddr 10.0.0.1/24` is `ip-saddr 10.0.0.0/24`. `mod` leaves packets alone that do
not have the field.

\"Not yet\": the language knows the field, this version of mmb refuses rules that use it so.
";

/// `docs/fields.md`: every field, its width, its values, what can be matched and written.
pub fn fields_markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    let mut layer = None;
    for def in &FIELDS {
        if layer != Some(def.proto) {
            layer = Some(def.proto);
            let title = def.proto.to_string();
            let (first, rest) = title.split_at(1);
            let _ = write!(out, "\n## {}{rest}\n\n", first.to_uppercase());
            out.push_str("| field | bits | values | meaning | example | matched | written |\n");
            out.push_str("|---|---|---|---|---|---|---|\n");
        }
        let info = def.info();
        let bits = info.bits.map_or_else(|| "–".to_owned(), |bits| bits.to_string());
        let _ = writeln!(
            out,
            "| `{}` | {bits} | {} | {} | `{}` | {} | {} |",
            info.name, info.values, info.help, info.example, info.matched, info.written
        );
    }
    out
}
