//! What the table says of one field.

use std::fmt;

use mmb_packet::{Ip6Ext, Loc, NamedOption};

use super::FieldId;

/// One field of the language.
#[derive(Clone, Copy, Debug)]
pub struct FieldDef {
    /// The field's number.
    pub id: FieldId,
    /// The field's name, part of the language.
    pub name: &'static str,
    /// The header it belongs to.
    pub proto: Layer,
    /// Bits of the value; 0 when its length varies or it has none.
    pub width_bits: u16,
    /// What values it takes.
    pub kind: ValueKind,
    /// Where the window has it; `None` for payloads, whose bytes are not in the window.
    pub loc: Option<Loc>,
    /// Whether rules can match it.
    pub match_: Support,
    /// Whether `mod` can write it. TCP options can also be added and stripped, all of them
    /// ([`FieldDef::is_option`]).
    pub modify: Support,
    /// Whether `map` and `shuffle` can give sessions another value of it, undone on the way back.
    pub translate: Support,
    /// One line for people.
    pub help: &'static str,
    /// A match, as one would write it.
    pub example: &'static str,
}

/// The header that a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// None: where the packet comes from or goes to.
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

/// What values a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// A number of [`FieldDef::width_bits`] bits.
    Int,
    /// One bit: 0 or 1; alone it asks for 1.
    Flag,
    /// Another field under the name of one of its values: alone it asks for that value. The parser writes it
    /// out wherever it is not alone, so that in a parsed rule it never has a condition and is never written
    /// to.
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
        /// Most bytes.
        max: u16,
    },
    /// None: there is only present and absent.
    Presence,
}

impl ValueKind {
    /// Whether the value is 0 or 1 whatever the field's width.
    pub(crate) const fn is_yes_or_no(self) -> bool {
        matches!(self, ValueKind::Flag | ValueKind::Shorthand(_))
    }
}

/// Whether something can be done with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Yes.
    Yes,
    /// It makes no sense; the reason, to follow a colon.
    No(&'static str),
}

impl FieldDef {
    /// The largest number that fits.
    pub const fn max_int(&self) -> u64 {
        match self.width_bits {
            0 => 0,
            bits if bits >= 64 => u64::MAX,
            bits => (1 << bits) - 1,
        }
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

    /// Whether the field is part of the fixed header of [`FieldDef::proto`], so that a packet with that
    /// header has the field; others (options, extension headers, payloads) may be missing from it.
    pub const fn in_header(&self) -> bool {
        !self.is_option() && !matches!(self.loc, None | Some(Loc::Ip6Ext(_)))
    }

    /// A field at a fixed place: matched and written as a number (one bit: a flag) unless the builder says
    /// otherwise.
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

    /// A TCP option; the builder says what values it takes.
    pub(super) const fn option(id: FieldId, name: &'static str, option: NamedOption) -> Self {
        Self::fixed(id, name, Loc::TcpOption(option), 0)
    }

    /// An IPv6 extension header, which is there or not.
    pub(super) const fn extension(id: FieldId, name: &'static str, header: Ip6Ext) -> Self {
        Self::fixed(id, name, Loc::Ip6Ext(header), 0)
            .kind(ValueKind::Presence)
            .read_only("extension headers are matched, not written")
            .example(name)
    }

    /// The bytes behind the header of `proto`.
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

    /// Sessions can be given another value of it.
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

/// Why most fields are not mapped and shuffled.
const NOT_TRANSLATED: &str =
    "it has no one value for all of a session that could be put back on the way back";
/// Why checksums are not written.
pub(super) const CHECKSUM: &str = "mmb keeps checksums right itself";
/// Why lengths are not written.
pub(super) const LENGTH: &str = "it follows from the packet's length";
/// Why payloads are not written.
const PAYLOAD: &str =
    "rules edit headers; with other bytes it would not be the stream or message its ends agreed on";
