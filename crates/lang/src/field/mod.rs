//! The field table: all fields of the language, defined once.
//!
//! Parser, formatter, checks, completion, documentation and classifier read this table. A new field is added
//! here and nowhere else. Bit layouts: IPv4 RFC 791 with RFC 2474 and RFC 3168, IPv6 RFC 8200, ICMP RFC 792,
//! ICMPv6 RFC 4443, UDP RFC 768, TCP RFC 9293 with RFC 3168. Option kinds and header numbers: IANA.

mod def;
mod docs;
mod icmp_udp;
mod id;
mod ip4;
mod ip6;
mod table;
mod tcp;

pub use def::{FieldDef, Layer, Support, ValueKind};
pub use docs::{FieldInfo, fields_markdown};
pub use id::FieldId;
pub use table::{FIELDS, field};
