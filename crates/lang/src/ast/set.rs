//! Named sets: their definition and their elements, which are also operands of other commands.

use std::net::IpAddr;

use super::{Word, address_bits};
use crate::field::FieldId;

/// An address or a subnet, of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subnet {
    /// Address of the network. Bits after `len` are zero.
    pub address: IpAddr,
    /// Prefix length; 32 or 128 for a single address.
    pub len: u8,
}

impl Subnet {
    /// Whether it is a single address.
    pub fn is_address(&self) -> bool {
        self.len >= address_bits(&self.address)
    }
}

/// `set add NAME KIND [timeout TIME] [file FILE] [comment TEXT]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedSet {
    /// The name, without `@`.
    pub name: Word,
    /// What its elements are.
    pub kind: SetKind,
    /// Lifetime in seconds of elements that are added without one: 1 to [`NamedSet::MAX_TIMEOUT`]. None: they
    /// stay.
    pub timeout: Option<u32>,
    /// A file in the directory of files with elements, one each line, or as CSV.
    pub file: Option<Box<str>>,
    /// 1 to 255 bytes without control characters.
    pub comment: Option<Box<str>>,
}

impl NamedSet {
    /// The longest lifetime of an element in seconds: a year.
    pub const MAX_TIMEOUT: u32 = 365 * 86_400;
}

/// What the elements of a set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetKind {
    /// IPv4 and IPv6 addresses.
    Address,
    /// Prefixes of both families; an address is in the set if one of them contains it.
    Prefix,
    /// Ports and ranges of ports.
    Port,
    /// Addresses or prefixes of both families, each with a port or a range of ports.
    AddressPort,
}

impl SetKind {
    /// All kinds.
    pub const ALL: [SetKind; 4] = [SetKind::Address, SetKind::Prefix, SetKind::Port, SetKind::AddressPort];

    /// The keyword after the name of a new set.
    pub fn word(self) -> &'static str {
        match self {
            SetKind::Address => "address",
            SetKind::Prefix => "prefix",
            SetKind::Port => "port",
            SetKind::AddressPort => "address-port",
        }
    }

    /// Whether rules can compare a field with sets of this kind.
    pub fn fits(self, field: FieldId) -> bool {
        match self {
            SetKind::Address | SetKind::Prefix => is_address_field(field),
            SetKind::Port => is_port_field(field),
            SetKind::AddressPort => false,
        }
    }

    /// Whether rules compare an address and a port with sets of this kind.
    pub fn has_pairs(self) -> bool {
        self == SetKind::AddressPort
    }

    /// Whether an element can be in sets of this kind.
    pub fn accepts(self, element: &SetElement) -> bool {
        match (self, element) {
            (SetKind::Address, SetElement::Prefix(subnet)) => subnet.is_address(),
            (SetKind::Prefix, SetElement::Prefix(_))
            | (SetKind::Port, SetElement::Ports(..))
            | (SetKind::AddressPort, SetElement::Pair(..)) => true,
            _ => false,
        }
    }
}

/// Whether a field is an address.
pub(crate) fn is_address_field(field: FieldId) -> bool {
    use FieldId::{Ip6Daddr, Ip6Saddr, IpDaddr, IpSaddr};
    matches!(field, IpSaddr | IpDaddr | Ip6Saddr | Ip6Daddr)
}

/// Whether a field is a port.
pub(crate) fn is_port_field(field: FieldId) -> bool {
    use FieldId::{TcpDport, TcpSport, UdpDport, UdpSport};
    matches!(field, TcpSport | TcpDport | UdpSport | UdpDport)
}

/// An element of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SetElement {
    /// An address or a prefix.
    Prefix(Subnet),
    /// The ports from the first to the second, inclusive.
    Ports(u16, u16),
    /// An address or a prefix, together with ports from the first to the second, inclusive.
    Pair(Subnet, u16, u16),
}

impl SetElement {
    /// Bits of the fields that the element can equal: 32, 128 or 16. Of a pair: bits of the address.
    pub fn width(&self) -> u8 {
        match self {
            SetElement::Prefix(subnet) | SetElement::Pair(subnet, ..) => address_bits(&subnet.address),
            SetElement::Ports(..) => 16,
        }
    }

    /// The first and the last port of a pair.
    pub fn pair_ports(&self) -> Option<(u16, u16)> {
        match *self {
            SetElement::Pair(_, first, last) => Some((first, last)),
            _ => None,
        }
    }

    /// The first and the last value of these fields that the element contains. Of a pair: of the address.
    pub fn bounds(&self) -> (u128, u128) {
        match *self {
            SetElement::Ports(first, last) => (first.into(), last.into()),
            SetElement::Prefix(Subnet { address, len }) | SetElement::Pair(Subnet { address, len }, ..) => {
                let (first, width) = match address {
                    IpAddr::V4(address) => (address.to_bits().into(), 32),
                    IpAddr::V6(address) => (address.to_bits(), 128),
                };
                let free = u32::saturating_sub(width, len.into());
                (first, first | u128::MAX.checked_shr(128 - free).unwrap_or(0))
            }
        }
    }
}

/// `set NAME add ELEMENT … [timeout TIME] [comment TEXT]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetElements {
    /// The set.
    pub name: Word,
    /// At least one.
    pub elements: Vec<SetElement>,
    /// Lifetime in seconds, as in [`NamedSet::timeout`]. None: that of the set.
    pub timeout: Option<u32>,
    /// As in [`NamedSet::comment`].
    pub comment: Option<Box<str>>,
}
