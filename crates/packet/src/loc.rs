//! Where the fields of the rule language are in a packet and in the window.

use crate::meta::Kind;
use crate::window::{
    ETHERTYPE, IN_PORT, IP6_EXTENSIONS, KIND, OPTION_MSS, OPTION_TIMESTAMP, OPTION_WSCALE, OPTIONS_PRESENT,
    OPTIONS_VALUED, OUT_PORT,
};

/// Location of a field in a packet; it determines the offset in the window. Bit 0 is the most significant
/// bit of the header's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loc {
    /// Input port (interface), 16 bits.
    InPort,
    /// Output port (interface), 16 bits.
    OutPort,
    /// Ethertype after VLAN tags, 16 bits.
    Ethertype,
    /// Bit offset in the IPv4 header.
    Ip4(u16),
    /// Bit offset in the IPv6 header.
    Ip6(u16),
    /// Bit offset in the TCP header.
    Tcp(u16),
    /// Bit offset in the UDP header.
    Udp(u16),
    /// Bit offset in the ICMP header.
    Icmp(u16),
    /// Bit offset in the ICMPv6 header.
    Icmp6(u16),
    /// A named TCP option: presence, and the value if it is a number.
    TcpOption(NamedOption),
    /// Any TCP option (kind 2 or above): presence.
    TcpOptionAny,
    /// An IPv6 extension header: presence.
    Ip6Ext(Ip6Ext),
}

/// TCP options that have a name in the rule language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NamedOption {
    /// Maximum segment size (RFC 9293, 3.2): kind 2, a number of 16 bits.
    Mss,
    /// Window scale (RFC 7323, 2.2): kind 3, a number of 8 bits.
    Wscale,
    /// SACK permitted (RFC 2018, 2): kind 4, no value.
    Sackp,
    /// SACK blocks (RFC 2018, 3): kind 5, bytes.
    Sack,
    /// Timestamps (RFC 7323, 3.2): kind 8, a number of 64 bits: value, then echo reply.
    Timestamp,
    /// Fast open cookie (RFC 7413, 2): kind 34, bytes.
    FastOpen,
    /// Multipath TCP (RFC 8684, 3): kind 30, bytes.
    Mptcp,
}

impl NamedOption {
    /// All named options, in the order of their presence bits, most significant first.
    pub const ALL: [NamedOption; 7] = [
        NamedOption::Mss,
        NamedOption::Wscale,
        NamedOption::Sackp,
        NamedOption::Sack,
        NamedOption::Timestamp,
        NamedOption::FastOpen,
        NamedOption::Mptcp,
    ];

    /// The option's kind (IANA, "TCP Option Kind Numbers").
    pub const fn kind(self) -> u8 {
        match self {
            NamedOption::Mss => 2,
            NamedOption::Wscale => 3,
            NamedOption::Sackp => 4,
            NamedOption::Sack => 5,
            NamedOption::Timestamp => 8,
            NamedOption::FastOpen => 34,
            NamedOption::Mptcp => 30,
        }
    }

    /// Returns the named option of this kind.
    pub fn of(kind: u8) -> Option<NamedOption> {
        Self::ALL.into_iter().find(|option| option.kind() == kind)
    }

    /// Length of the option's data behind kind and length, in bytes; `None` if it varies.
    pub const fn data_len(self) -> Option<usize> {
        match self {
            NamedOption::Mss => Some(2),
            NamedOption::Wscale => Some(1),
            NamedOption::Sackp => Some(0),
            NamedOption::Timestamp => Some(8),
            NamedOption::Sack | NamedOption::FastOpen | NamedOption::Mptcp => None,
        }
    }

    /// The option's bit in the window bytes [`OPTIONS_PRESENT`] and [`OPTIONS_VALUED`].
    pub const fn bit(self) -> u8 {
        0x80 >> self as u8
    }

    /// Byte offset of the option's value in the window; `None` if the value is not a number.
    const fn value_at(self) -> Option<usize> {
        match self {
            NamedOption::Mss => Some(OPTION_MSS),
            NamedOption::Wscale => Some(OPTION_WSCALE),
            NamedOption::Timestamp => Some(OPTION_TIMESTAMP),
            _ => None,
        }
    }
}

/// The presence bit that every option sets.
pub(crate) const ANY_OPTION: u8 = 0x01;

/// IPv6 extension headers (RFC 8200, 4; IANA, "IPv6 Extension Header Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ip6Ext {
    /// Hop-by-hop options (0).
    HopByHop,
    /// Routing (43).
    Routing,
    /// Fragment (44).
    Fragment,
    /// Encapsulating security payload (50).
    Esp,
    /// Authentication (51).
    Ah,
    /// Destination options (60).
    DestOpt,
    /// Mobility (135).
    Mobility,
    /// Host identity protocol (139).
    Hip,
    /// Shim6 (140).
    Shim6,
    /// Any extension header.
    Any,
}

impl Ip6Ext {
    /// The header's bit in the window's big-endian 16-bit number at [`IP6_EXTENSIONS`].
    pub const fn bit(self) -> u16 {
        0x8000 >> self as u16
    }
}

impl Loc {
    /// Bit offset of the field's value in the window, or of its presence bit if the window holds no value.
    pub const fn window_bit(self) -> usize {
        match self {
            Loc::InPort => IN_PORT * 8,
            Loc::OutPort => OUT_PORT * 8,
            Loc::Ethertype => ETHERTYPE * 8,
            Loc::Ip4(b) => match b {
                72..=79 => 13 * 8 + (b as usize - 72),
                0..=95 => 64 * 8 + b as usize,
                _ => b as usize - 96,
            },
            Loc::Ip6(b) => match b {
                48..=55 => 13 * 8 + (b as usize - 48),
                0..=63 => 64 * 8 + b as usize,
                _ => 16 * 8 + (b as usize - 64),
            },
            Loc::Tcp(b) | Loc::Udp(b) | Loc::Icmp(b) | Loc::Icmp6(b) => match b {
                0..=31 => 8 * 8 + b as usize,
                _ => 48 * 8 + (b as usize - 32),
            },
            Loc::TcpOption(option) => match option.value_at() {
                Some(at) => at * 8,
                None => OPTIONS_PRESENT * 8 + option.bit().leading_zeros() as usize,
            },
            Loc::TcpOptionAny => OPTIONS_PRESENT * 8 + ANY_OPTION.leading_zeros() as usize,
            Loc::Ip6Ext(header) => IP6_EXTENSIONS * 8 + header.bit().leading_zeros() as usize,
        }
    }

    /// The presence test: `(offset, mask, value)`. The packet has the field if `window[offset] & mask ==
    /// value`.
    ///
    /// It tests the option or the extension header itself, or the header that contains a fixed-offset
    /// field.
    pub const fn present(self) -> (usize, u8, u8) {
        let (mask, value) = match self {
            Loc::InPort | Loc::OutPort | Loc::Ethertype => (0, 0),
            Loc::Ip4(_) => (Kind::L3_MASK, Kind::IP4),
            Loc::Ip6(_) => (Kind::L3_MASK, Kind::IP6),
            Loc::Tcp(_) => (Kind::L4_MASK, Kind::TCP),
            Loc::Udp(_) => (Kind::L4_MASK, Kind::UDP),
            Loc::Icmp(_) => (Kind::L4_MASK, Kind::ICMP),
            Loc::Icmp6(_) => (Kind::L4_MASK, Kind::ICMP6),
            Loc::TcpOption(option) => return (OPTIONS_PRESENT, option.bit(), option.bit()),
            Loc::TcpOptionAny => return (OPTIONS_PRESENT, ANY_OPTION, ANY_OPTION),
            Loc::Ip6Ext(header) => {
                let [high, low] = header.bit().to_be_bytes();
                return match high {
                    0 => (IP6_EXTENSIONS + 1, low, low),
                    _ => (IP6_EXTENSIONS, high, high),
                };
            }
        };
        (KIND, mask, value)
    }

    /// The value test: as [`Loc::present`], for the value at [`Loc::window_bit`].
    ///
    /// It differs for options, which can be present with a length other than the kind's.
    pub const fn valued(self) -> (usize, u8, u8) {
        match self {
            Loc::TcpOption(option) if option.value_at().is_some() => {
                (OPTIONS_VALUED, option.bit(), option.bit())
            }
            _ => self.present(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_options_are_found_by_kind() {
        for option in NamedOption::ALL {
            assert_eq!(NamedOption::of(option.kind()), Some(option));
        }
        assert_eq!([0, 1, 6, 253].map(NamedOption::of), [None; 4]);
    }

    #[test]
    fn presence_bits() {
        let option = |o| Loc::TcpOption(o).present();
        assert_eq!(option(NamedOption::Mss), (91, 0x80, 0x80));
        assert_eq!(option(NamedOption::Wscale), (91, 0x40, 0x40));
        assert_eq!(option(NamedOption::Timestamp), (91, 0x08, 0x08));
        assert_eq!(option(NamedOption::Mptcp), (91, 0x02, 0x02));
        assert_eq!(Loc::TcpOptionAny.present(), (91, 0x01, 0x01));
        let header = |h| Loc::Ip6Ext(h).present();
        assert_eq!(header(Ip6Ext::HopByHop), (94, 0x80, 0x80));
        assert_eq!(header(Ip6Ext::Hip), (94, 0x01, 0x01));
        assert_eq!(header(Ip6Ext::Shim6), (95, 0x80, 0x80));
        assert_eq!(header(Ip6Ext::Any), (95, 0x40, 0x40));
        assert_eq!(Loc::Tcp(3).present(), (KIND, 0xf0, 0x10));
    }

    #[test]
    fn values_have_their_own_window_bits() {
        let option = |o| (Loc::TcpOption(o).window_bit(), Loc::TcpOption(o).valued());
        assert_eq!(option(NamedOption::Timestamp), (80 * 8, (92, 0x08, 0x08)));
        assert_eq!(option(NamedOption::Mss), (88 * 8, (92, 0x80, 0x80)));
        assert_eq!(option(NamedOption::Wscale), (90 * 8, (92, 0x40, 0x40)));
        assert_eq!(
            option(NamedOption::Sack),
            (91 * 8 + 3, (91, 0x10, 0x10)),
            "its bytes are not in the window"
        );
        assert_eq!(Loc::Ip6Ext(Ip6Ext::Any).window_bit(), 95 * 8 + 1);
        assert_eq!(Loc::Ip4(64).valued(), Loc::Ip4(64).present());
    }
}
