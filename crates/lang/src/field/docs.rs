//! The text form of the field table: `show fields` and `docs/fields.md`.

use std::fmt::Write as _;

use serde::Serialize;

use super::{FIELDS, FieldDef, FieldId, Support, ValueKind};

/// The description of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldInfo {
    /// The field's name.
    pub name: &'static str,
    /// The header it belongs to.
    pub layer: String,
    /// Width in bits; `None` if it varies.
    pub bits: Option<u16>,
    /// The values it takes.
    pub values: String,
    /// How it can be matched: `alone` and conditions, or `no: ` and the reason.
    pub matched: String,
    /// The targets that write it, or `no: ` and the reason.
    pub written: String,
    /// Meaning.
    pub help: &'static str,
    /// An example of a match.
    pub example: &'static str,
}

impl FieldDef {
    /// The description of the field.
    pub fn info(&self) -> FieldInfo {
        FieldInfo {
            name: self.name,
            layer: self.proto.to_string(),
            bits: (self.width_bits != 0).then_some(self.width_bits),
            values: self.values(),
            matched: self.matched(),
            written: self.written(),
            help: self.help,
            example: self.example,
        }
    }

    /// The conditions that parser and checks accept.
    fn matched(&self) -> String {
        match (self.match_, self.kind) {
            (Support::No(reason), _) => format!("no: {reason}"),
            (_, ValueKind::Presence) => "alone".to_owned(),
            (_, ValueKind::Shorthand(_)) => "alone, `==` `!=`".to_owned(),
            (_, ValueKind::Interface | ValueKind::EtherType) => "`==` `!=`, sets".to_owned(),
            (_, ValueKind::Bytes { .. }) if self.is_option() => {
                "alone, `==` `!=` (all its data), `contains`, sets".to_owned()
            }
            (_, ValueKind::Bytes { .. }) => "alone, `==` `!=` (at its start), `contains`, sets".to_owned(),
            _ => "alone, `==` `!=` `<` `<=` `>` `>=`, ranges, sets".to_owned(),
        }
    }

    /// The targets that parser and checks accept.
    fn written(&self) -> String {
        match (self.modify, self.is_option()) {
            (Support::Yes, true) => "`mod` `add` `strip`".to_owned(),
            (Support::Yes, false) if self.translate == Support::Yes => "`mod` `map` `shuffle`".to_owned(),
            (Support::Yes, false) => "`mod`".to_owned(),
            (Support::No(reason), true) => format!("`add` `strip`; no `mod`: {reason}"),
            (Support::No(reason), false) => format!("no: {reason}"),
        }
    }

    /// The values of the field, in a form that follows "takes".
    pub fn values(&self) -> String {
        match self.kind {
            ValueKind::Int if self.id == FieldId::TcpOpt => "a kind, 2 to 255".to_owned(),
            ValueKind::Int if self.is_port() => format!("0 to {} or a service name", self.max_int()),
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

/// The introduction of `docs/fields.md`.
const INTRODUCTION: &str = "\
# Fields

<!-- Generated from crates/lang by `MMB_BLESS=1 cargo test -p mmb-lang --test fields`. -->

A match is `[!] <field> [[<cond>] <value>]`, or `all`. A field alone matches if the header or option is
present, or if the bit is 1 for a field of one bit. With a value, the packet must have the field, and its
value must match. `!` negates the whole match: `! ip-proto udp` also holds for IPv6 packets, `ip-proto != udp`
only for IPv4 packets. Bits after a prefix are ignored: `ip-saddr 10.0.0.1/24` equals `ip-saddr 10.0.0.0/24`.
Conditions are `==` `!=` `<` `<=` `>` `>=` (`eq` `ne` `lt` `le` `gt` `ge`), `contains` for bytes, and `not`
for `!`. After `==` and `!=`, a range (`1024-65535`) or a set (`{80,443,8000-8100}`) is allowed too. A set
matches if one of its members does.

`mod` leaves packets without the field unchanged. A target may omit its field if exactly one match of the rule
names a field that it can act on: `tcp-opt-mss > 1460 mod 1460`, `tcp-opt-timestamp strip`.

**Sessions.** In `add-stateful` rules, `map <field> <values>` gives a session another value of the field: the
given value, or one of several, equal for all packets of the session. `shuffle <field> [<values>]` gives it a
random value; without values, any value of the field, for ports those from 1024 on. Replies get the old value
back. This also holds for `mod` of an address or a port. The last column lists the fields that support it.

**TCP options.** An option that stands in a header twice is there; its value is that of the last one that has
the length its kind asks for, as in the TCP stacks of Linux and the BSDs. A header's options end where they
cannot be read any more. `mod` gives the value to every option of the kind; `add` does the same, and where
there is none appends one; `strip` removes all of a kind, `strip all` all options, `strip ! tcp-opt-mss strip
! tcp-opt-sackp` all but these two. Maximum segment size, window scale, SACK permitted and the fast open
cookie mean something in SYN segments only (RFC 9293, 7323, 2018, 7413): match `tcp-syn` to add them there and
nowhere else. A packet whose options would need more than 40 bytes, whose frame would grow beyond what its
output port takes, or that is the first fragment of a datagram and would change its length, goes on as it
came, without any edit, and is counted; after `set on-error drop` it is dropped.

**Payloads** are what the packet carries of them; a payload without a byte is not there. Behind `==` literal
bytes must stand at the start, behind `contains` anywhere. Nothing is put together across packets. Fragments
other than the first have no TCP, UDP or ICMP payload, and their bytes can be matched as `ip-payload` and
`ip6-payload`.
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
