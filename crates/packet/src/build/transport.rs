//! Transport headers.

/// The transport header of a frame.
#[derive(Clone, Debug)]
pub enum Transport {
    /// TCP.
    Tcp(Tcp),
    /// UDP.
    Udp(Udp),
    /// ICMP over IPv4, ICMPv6 over IPv6.
    Icmp(Icmp),
    /// No header: a protocol number, followed directly by the payload.
    Raw(u8),
}

/// A TCP header (RFC 9293).
#[derive(Clone, Debug, Default)]
pub struct Tcp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Value of the four reserved bits.
    pub reserved: u8,
    /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN; most significant bit first.
    pub flags: u8,
    /// Window.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options, padded with zeros to a multiple of 4; at most 40 bytes.
    pub options: Vec<u8>,
}

impl Tcp {
    /// A header with the ACK flag, the maximum window, and everything else 0.
    pub fn new(sport: u16, dport: u16) -> Self {
        Tcp { sport, dport, flags: 0x10, window: u16::MAX, ..Tcp::default() }
    }

    fn header(&self) -> Vec<u8> {
        let len = 20 + self.options.len().next_multiple_of(4);
        let mut h = Vec::with_capacity(len);
        h.extend(self.sport.to_be_bytes());
        h.extend(self.dport.to_be_bytes());
        h.extend(self.seq.to_be_bytes());
        h.extend(self.ack.to_be_bytes());
        h.extend([((len / 4) << 4) as u8 | self.reserved & 0x0f, self.flags]);
        h.extend(self.window.to_be_bytes());
        h.extend([0, 0]);
        h.extend(self.urgent.to_be_bytes());
        h.extend(&self.options);
        h.resize(len, 0);
        h
    }
}

/// A UDP header (RFC 768).
#[derive(Clone, Debug)]
pub struct Udp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// `false`: the checksum field is 0, which means "none".
    pub checksum: bool,
}

impl Udp {
    /// A header with a checksum.
    pub fn new(sport: u16, dport: u16) -> Self {
        Udp { sport, dport, checksum: true }
    }

    fn header(&self) -> Vec<u8> {
        let ([a, b], [c, d]) = (self.sport.to_be_bytes(), self.dport.to_be_bytes());
        vec![a, b, c, d, 0, 0, 0, 0]
    }
}

/// An ICMP (RFC 792) or ICMPv6 (RFC 4443) header.
#[derive(Clone, Debug)]
pub struct Icmp {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The four bytes behind the checksum, for example identifier and sequence number of an echo.
    pub rest: [u8; 4],
}

impl Icmp {
    /// A header with code 0 and the last four bytes 0.
    pub fn new(kind: u8) -> Self {
        Icmp { kind, code: 0, rest: [0; 4] }
    }

    fn header(&self) -> Vec<u8> {
        let mut h = vec![self.kind, self.code, 0, 0];
        h.extend(self.rest);
        h
    }
}

impl From<Tcp> for Transport {
    fn from(tcp: Tcp) -> Self {
        Transport::Tcp(tcp)
    }
}

impl From<Udp> for Transport {
    fn from(udp: Udp) -> Self {
        Transport::Udp(udp)
    }
}

impl From<Icmp> for Transport {
    fn from(icmp: Icmp) -> Self {
        Transport::Icmp(icmp)
    }
}

impl Transport {
    /// The protocol number, over IPv6 or over IPv4.
    pub(super) fn number(&self, over_ip6: bool) -> u8 {
        match self {
            Transport::Tcp(_) => 6,
            Transport::Udp(_) => 17,
            Transport::Icmp(_) if over_ip6 => 58,
            Transport::Icmp(_) => 1,
            Transport::Raw(number) => *number,
        }
    }

    /// The header with length and checksum fields 0.
    pub(super) fn header(&self) -> Vec<u8> {
        match self {
            Transport::Tcp(tcp) => tcp.header(),
            Transport::Udp(udp) => udp.header(),
            Transport::Icmp(icmp) => icmp.header(),
            Transport::Raw(_) => Vec::new(),
        }
    }

    /// Writes UDP's length field.
    pub(super) fn set_length(&self, segment: &mut [u8]) {
        if let Transport::Udp(_) = self {
            let len = segment.len() as u16;
            segment[4..6].copy_from_slice(&len.to_be_bytes());
        }
    }

    /// Offset of the checksum field; `None` if the header has none or leaves it 0.
    pub(super) fn checksum_at(&self) -> Option<usize> {
        match self {
            Transport::Tcp(_) => Some(16),
            Transport::Udp(Udp { checksum: true, .. }) => Some(6),
            Transport::Icmp(_) => Some(2),
            Transport::Udp(_) | Transport::Raw(_) => None,
        }
    }

    /// The checksum as sent: a computed 0 becomes 0xffff in UDP, where 0 means "none".
    pub(super) fn as_sent(&self, csum: u16) -> u16 {
        if csum == 0 && matches!(self, Transport::Udp(_)) { 0xffff } else { csum }
    }
}
