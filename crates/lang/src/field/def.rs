//! The definition of a field.

use std::fmt;

use mmb_packet::{Ip6Ext, Loc, NamedOption};

use super::FieldId;

/// A field of the language.
#[derive(Clone, Copy, Debug)]
pub struct FieldDef {
    /// Number of the field.
    pub id: FieldId,
    /// Name of the field in the language.
    pub name: &'static str,
    /// Header of the field.
    pub proto: Layer,
    /// Width in bits; 0 if the length varies or the field has no value.
    pub width_bits: u16,
    /// Kind of the values.
    pub kind: ValueKind,
    /// Location in the classifier's window; `None` for payloads, which are not in the window.
    pub loc: Option<Loc>,
    /// Whether rules can match the field.
    pub match_: Support,
    /// Whether `mod` can write the field. All TCP options can also be added and stripped
    /// ([`FieldDef::is_option`]).
    pub modify: Support,
    /// Whether `map` and `shuffle` can give sessions another value of the field.
    pub translate: Support,
    /// One line of help.
    pub help: &'static str,
    /// An example of a match.
    pub example: &'static str,
}

/// The header of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// No header: the packet's ports.
    Interface,
    /// The ethertype.
    Network,
    /// IPv4.
    Ip4,
    /// IPv6.
    Ip6,
    /// ICMP, which travels over IPv4.
    Icmp,
    /// ICMPv6, which travels over IPv6.
    Icmp6,
    /// UDP, over either.
    Udp,
    /// TCP, over either.
    Tcp,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Interface => "interfaces",
            Layer::Network => "network protocol",
            Layer::Ip4 => "IPv4",
            Layer::Ip6 => "IPv6",
            Layer::Icmp => "ICMP",
            Layer::Icmp6 => "ICMPv6",
            Layer::Udp => "UDP",
            Layer::Tcp => "TCP",
        })
    }
}

/// The kind of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// A number of [`FieldDef::width_bits`] bits.
    Int,
    /// One bit: 0 or 1. Without a condition, the match is for 1.
    Flag,
    /// A name for one value of another field. Without a condition, the match is for that value. With a
    /// condition or as the field of a target, the parser replaces it by the other field.
    Shorthand(u8),
    /// An IP protocol number or name.
    Proto,
    /// An ethertype or the name of a network protocol.
    EtherType,
    /// An IPv4 address or subnet.
    Ip4,
    /// An IPv6 address or subnet.
    Ip6,
    /// The name of an interface.
    Interface,
    /// 1 to `max` literal bytes: `0x474554` or `"GET"`.
    Bytes {
        /// Maximum number of bytes.
        max: u16,
    },
    /// No value: the field is present or absent.
    Presence,
}

impl ValueKind {
    /// Whether the value is 0 or 1 for any width of the field.
    pub(crate) const fn is_yes_or_no(self) -> bool {
        matches!(self, ValueKind::Flag | ValueKind::Shorthand(_))
    }
}

/// Whether an operation is possible with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Yes.
    Yes,
    /// Not possible. The reason follows a colon in messages.
    No(&'static str),
}

impl FieldDef {
    /// The largest value of the field.
    pub const fn max_int(&self) -> u64 {
        match self.width_bits {
            0 => 0,
            bits if bits >= 64 => u64::MAX,
            bits => (1 << bits) - 1,
        }
    }

    /// The largest number of [`FieldDef::width_bits`] bits.
    pub const fn largest(&self) -> u128 {
        match self.width_bits {
            0 => 0,
            bits if bits >= 128 => u128::MAX,
            bits => (1 << bits) - 1,
        }
    }

    /// Whether the field is a port of TCP or UDP, whose values may be names of services.
    pub(crate) fn is_port(&self) -> bool {
        use FieldId::*;
        matches!(self.id, TcpSport | TcpDport | UdpSport | UdpDport)
    }

    /// Whether the field is a TCP option, `tcp-opt` included.
    pub const fn is_option(&self) -> bool {
        matches!(self.loc, Some(Loc::TcpOption(_) | Loc::TcpOptionAny))
    }

    /// The kind of a TCP option that has a name.
    pub const fn option_kind(&self) -> Option<u8> {
        match self.loc {
            Some(Loc::TcpOption(option)) => Some(option.kind()),
            _ => None,
        }
    }

    /// Whether the field is in the fixed header of [`FieldDef::proto`], so that every packet with that header
    /// has it. Options, extension headers and payloads are not.
    pub const fn in_header(&self) -> bool {
        !self.is_option() && !matches!(self.loc, None | Some(Loc::Ip6Ext(_)))
    }

    /// A field with a fixed location. By default it is matched and written as a number, or as a flag if it
    /// has one bit.
    pub(super) const fn fixed(id: FieldId, name: &'static str, loc: Loc, width_bits: u16) -> Self {
        let proto = match loc {
            Loc::InPort | Loc::OutPort => Layer::Interface,
            Loc::Ethertype => Layer::Network,
            Loc::Ip4(_) => Layer::Ip4,
            Loc::Ip6(_) | Loc::Ip6Ext(_) => Layer::Ip6,
            Loc::Tcp(_) | Loc::TcpOption(_) | Loc::TcpOptionAny => Layer::Tcp,
            Loc::Udp(_) => Layer::Udp,
            Loc::Icmp(_) => Layer::Icmp,
            Loc::Icmp6(_) => Layer::Icmp6,
        };
        Self {
            id,
            name,
            proto,
            width_bits,
            kind: if width_bits == 1 { ValueKind::Flag } else { ValueKind::Int },
            loc: Some(loc),
            match_: Support::Yes,
            modify: Support::Yes,
            translate: Support::No(NOT_TRANSLATED),
            help: "",
            example: "",
        }
    }

    /// A TCP option. The builder sets the kind of its values.
    pub(super) const fn option(id: FieldId, name: &'static str, option: NamedOption) -> Self {
        Self::fixed(id, name, Loc::TcpOption(option), 0)
    }

    /// An IPv6 extension header, which is present or absent.
    pub(super) const fn extension(id: FieldId, name: &'static str, header: Ip6Ext) -> Self {
        Self::fixed(id, name, Loc::Ip6Ext(header), 0)
            .kind(ValueKind::Presence)
            .read_only("extension headers are matched, not written")
            .example(name)
    }

    /// The bytes after the header of `proto`.
    pub(super) const fn payload(id: FieldId, name: &'static str, proto: Layer) -> Self {
        Self {
            id,
            name,
            proto,
            width_bits: 0,
            kind: ValueKind::Bytes { max: 1024 },
            loc: None,
            match_: Support::Yes,
            modify: Support::No(PAYLOAD),
            translate: Support::No(NOT_TRANSLATED),
            help: "",
            example: "",
        }
    }

    pub(super) const fn kind(mut self, kind: ValueKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sessions can get another value of the field.
    pub(super) const fn translated(mut self) -> Self {
        self.translate = Support::Yes;
        self
    }

    pub(super) const fn bits(mut self, width_bits: u16) -> Self {
        self.width_bits = width_bits;
        self
    }

    pub(super) const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    pub(super) const fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    pub(super) const fn read_only(mut self, reason: &'static str) -> Self {
        self.modify = Support::No(reason);
        self
    }
}

/// Why most fields cannot be mapped and shuffled.
const NOT_TRANSLATED: &str =
    "its value differs between the packets of a session, so replies cannot be restored";
/// Why checksums are not written.
pub(super) const CHECKSUM: &str = "mmb updates checksums itself";
/// Why lengths are not written.
pub(super) const LENGTH: &str = "it follows from the packet's length";
/// Why payloads are not written.
const PAYLOAD: &str = "rules edit headers, and the ends would not agree on other bytes";
