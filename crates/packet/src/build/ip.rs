//! Network headers.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::{fold, pseudo4, pseudo6, sum};
use crate::{ETHERTYPE_IP4, ETHERTYPE_IP6};

/// The network header of a frame.
#[derive(Clone, Debug)]
pub enum Net {
    /// IPv4.
    Ip4(Ip4),
    /// IPv6.
    Ip6(Ip6),
    /// No IP header: another ethertype.
    Other {
        /// Ethertype, host order.
        ethertype: u16,
    },
}

/// An IPv4 header (RFC 791).
#[derive(Clone, Debug)]
pub struct Ip4 {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub id: u16,
    /// Three bits: 4 reserved, 2 don't fragment, 1 more fragments.
    pub flags: u8,
    /// Fragment offset in units of 8 bytes. Later fragments use [`super::Transport::Raw`].
    pub fragment_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Options, padded with zeros to a multiple of 4; at most 40 bytes.
    pub options: Vec<u8>,
}

impl Ip4 {
    /// A header with TTL 64 and everything else 0.
    pub fn new(src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>) -> Self {
        let (src, dst) = (src.into(), dst.into());
        Ip4 { src, dst, tos: 0, id: 0, flags: 0, fragment_offset: 0, ttl: 64, options: Vec::new() }
    }

    fn header_len(&self) -> usize {
        20 + self.options.len().next_multiple_of(4)
    }

    fn header(&self, proto: u8, payload: usize) -> Vec<u8> {
        let len = self.header_len();
        let fragment = u16::from(self.flags) << 13 | self.fragment_offset & 0x1fff;
        let mut h = vec![0x40 | (len / 4) as u8 & 0x0f, self.tos];
        h.extend(((len + payload) as u16).to_be_bytes());
        h.extend(self.id.to_be_bytes());
        h.extend(fragment.to_be_bytes());
        h.extend([self.ttl, proto, 0, 0]);
        h.extend(self.src.octets());
        h.extend(self.dst.octets());
        h.extend(&self.options);
        h.resize(len, 0);
        let csum = !fold(sum(&h, 0));
        h[10..12].copy_from_slice(&csum.to_be_bytes());
        h
    }
}

/// An IPv6 header (RFC 8200) with its extension headers.
#[derive(Clone, Debug)]
pub struct Ip6 {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Extension headers in order.
    pub extensions: Vec<Extension>,
}

/// An IPv6 extension header.
#[derive(Clone, Debug)]
pub enum Extension {
    /// A header whose length counts units of 8 bytes: hop-by-hop (0), destination (60), mobility (135), HIP
    /// (139), shim6 (140).
    Plain {
        /// Protocol number.
        number: u8,
        /// Bytes behind next header and length, padded with zeros to a multiple of 8 including those two.
        body: Vec<u8>,
    },
    /// Routing (43). With segments left, the pseudo header uses the first address of a segment routing
    /// header (type 4, RFC 8754) or the last address of other types (RFC 8200, 8.1) as destination.
    Routing {
        /// Routing type.
        kind: u8,
        /// Segments left.
        segments_left: u8,
        /// Addresses.
        addresses: Vec<Ipv6Addr>,
    },
    /// Fragment (44). Later fragments use [`super::Transport::Raw`].
    Fragment {
        /// Offset in units of 8 bytes.
        offset: u16,
        /// More fragments follow.
        more: bool,
        /// Identification.
        id: u32,
    },
    /// Authentication (51, RFC 4302) with an integrity check value of 12 bytes, all zero.
    Authentication {
        /// Security parameters index.
        spi: u32,
        /// Sequence number.
        sequence: u32,
    },
}

impl Extension {
    fn number(&self) -> u8 {
        match self {
            Extension::Plain { number, .. } => *number,
            Extension::Routing { .. } => 43,
            Extension::Fragment { .. } => 44,
            Extension::Authentication { .. } => 51,
        }
    }

    fn bytes(&self, next: u8) -> Vec<u8> {
        let mut h = vec![next, 0];
        match self {
            Extension::Plain { body, .. } => h.extend(body),
            Extension::Routing { kind, segments_left, addresses } => {
                let last_entry = if *kind == 4 { addresses.len().saturating_sub(1) as u8 } else { 0 };
                h.extend([*kind, *segments_left, last_entry, 0, 0, 0]);
                addresses.iter().for_each(|a| h.extend(a.octets()));
            }
            Extension::Fragment { offset, more, id } => {
                h.extend((offset << 3 | u16::from(*more)).to_be_bytes());
                h.extend(id.to_be_bytes());
                return h;
            }
            Extension::Authentication { spi, sequence } => {
                h[1] = 24 / 4 - 2;
                h.extend([0, 0]);
                h.extend(spi.to_be_bytes());
                h.extend(sequence.to_be_bytes());
                h.resize(24, 0);
                return h;
            }
        }
        h.resize(h.len().next_multiple_of(8), 0);
        h[1] = (h.len() / 8 - 1) as u8;
        h
    }
}

impl Ip6 {
    /// A header with hop limit 64, everything else 0, and no extension header.
    pub fn new(src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>) -> Self {
        let (src, dst) = (src.into(), dst.into());
        Ip6 { src, dst, traffic_class: 0, flow_label: 0, hop_limit: 64, extensions: Vec::new() }
    }

    /// Replaces the extension headers.
    pub fn with(mut self, extensions: impl Into<Vec<Extension>>) -> Self {
        self.extensions = extensions.into();
        self
    }

    fn extension_bytes(&self, proto: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (i, extension) in self.extensions.iter().enumerate() {
            bytes.extend(extension.bytes(self.next_after(i, proto)));
        }
        bytes
    }

    /// Number of the header behind extension `i`.
    fn next_after(&self, i: usize, proto: u8) -> u8 {
        self.extensions.get(i + 1).map_or(proto, Extension::number)
    }

    fn header(&self, proto: u8, payload: usize) -> Vec<u8> {
        let extensions = self.extension_bytes(proto);
        let first = self.extensions.first().map_or(proto, Extension::number);
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let mut h = word.to_be_bytes().to_vec();
        h.extend(((extensions.len() + payload) as u16).to_be_bytes());
        h.extend([first, self.hop_limit]);
        h.extend(self.src.octets());
        h.extend(self.dst.octets());
        h.extend(extensions);
        h
    }

    fn final_destination(&self) -> Ipv6Addr {
        let routed = self.extensions.iter().find_map(|e| match e {
            Extension::Routing { kind: 4, segments_left: 1.., addresses } => addresses.first(),
            Extension::Routing { segments_left: 1.., addresses, .. } => addresses.last(),
            _ => None,
        });
        routed.copied().unwrap_or(self.dst)
    }
}

impl From<Ip4> for Net {
    fn from(ip: Ip4) -> Self {
        Net::Ip4(ip)
    }
}

impl From<Ip6> for Net {
    fn from(ip: Ip6) -> Self {
        Net::Ip6(ip)
    }
}

impl Net {
    pub(super) fn ethertype(&self) -> u16 {
        match self {
            Net::Ip4(_) => ETHERTYPE_IP4,
            Net::Ip6(_) => ETHERTYPE_IP6,
            Net::Other { ethertype } => *ethertype,
        }
    }

    /// Maximum number of bytes behind the network headers.
    pub(super) fn max_payload(&self) -> usize {
        let most = usize::from(u16::MAX);
        match self {
            Net::Ip4(ip) => most.saturating_sub(ip.header_len()),
            Net::Ip6(ip) => most.saturating_sub(ip.extension_bytes(0).len()),
            Net::Other { .. } => usize::MAX,
        }
    }

    pub(super) fn header(&self, proto: u8, payload: usize) -> Vec<u8> {
        match self {
            Net::Ip4(ip) => ip.header(proto, payload),
            Net::Ip6(ip) => ip.header(proto, payload),
            Net::Other { .. } => Vec::new(),
        }
    }

    pub(super) fn pseudo_sum(&self, proto: u8, len: usize) -> u32 {
        match self {
            Net::Ip4(ip) => pseudo4(ip.src.octets(), ip.dst.octets(), proto, len as u16),
            Net::Ip6(ip) => pseudo6(&ip.src.octets(), &ip.final_destination().octets(), proto, len as u32),
            Net::Other { .. } => 0,
        }
    }
}
