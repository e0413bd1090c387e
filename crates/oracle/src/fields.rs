//! Field locations, copied by hand from the figures of the RFCs and independent of the language's table. A
//! wrong bit offset there shows up as a difference. A test compares widths and kinds of both tables.

use crate::bits;
use crate::headers::{Headers, Net, Transport};

/// The header that contains a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Net(Net),
    Transport(Transport),
}

/// A field's header, first bit and width in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldLocation {
    header: Header,
    pub first_bit: usize,
    pub width: usize,
}

/// Location of the header field `name`; `None` if it has no fixed offset in a header.
#[rustfmt::skip]
pub(crate) fn place(name: &str) -> Option<FieldLocation> {
    use Transport::{Icmp, Icmp6, Tcp, Udp};
    const IP4: Header = Header::Net(Net::Ip4);
    const IP6: Header = Header::Net(Net::Ip6);
    let (header, first_bit, width) = match name {
        // RFC 791, 3.1; RFC 2474 and RFC 3168 for the second byte.
        "ip-ver"             => (IP4, 0, 4),
        "ip-ihl"             => (IP4, 4, 4),
        "ip-dscp"            => (IP4, 8, 6),
        "ip-ecn" | "ip-non-ect" | "ip-ect0" | "ip-ect1" | "ip-ce" => (IP4, 14, 2),
        "ip-len"             => (IP4, 16, 16),
        "ip-id"              => (IP4, 32, 16),
        "ip-flags"           => (IP4, 48, 3),
        "ip-res"             => (IP4, 48, 1),
        "ip-df"              => (IP4, 49, 1),
        "ip-mf"              => (IP4, 50, 1),
        "ip-frag-offset"     => (IP4, 51, 13),
        "ip-ttl"             => (IP4, 64, 8),
        "ip-proto"           => (IP4, 72, 8),
        "ip-checksum"        => (IP4, 80, 16),
        "ip-saddr"           => (IP4, 96, 32),
        "ip-daddr"           => (IP4, 128, 32),
        // RFC 8200, 3.
        "ip6-ver"            => (IP6, 0, 4),
        "ip6-traffic-class"  => (IP6, 4, 8),
        "ip6-flow-label"     => (IP6, 12, 20),
        "ip6-len"            => (IP6, 32, 16),
        "ip6-next"           => (IP6, 48, 8),
        "ip6-hop-limit"      => (IP6, 56, 8),
        "ip6-saddr"          => (IP6, 64, 128),
        "ip6-daddr"          => (IP6, 192, 128),
        // RFC 792; RFC 4443, 2.1.
        "icmp-type"          => (Header::Transport(Icmp), 0, 8),
        "icmp-code"          => (Header::Transport(Icmp), 8, 8),
        "icmp-checksum"      => (Header::Transport(Icmp), 16, 16),
        "icmp6-type"         => (Header::Transport(Icmp6), 0, 8),
        "icmp6-code"         => (Header::Transport(Icmp6), 8, 8),
        "icmp6-checksum"     => (Header::Transport(Icmp6), 16, 16),
        // RFC 768.
        "udp-sport"          => (Header::Transport(Udp), 0, 16),
        "udp-dport"          => (Header::Transport(Udp), 16, 16),
        "udp-len"            => (Header::Transport(Udp), 32, 16),
        "udp-checksum"       => (Header::Transport(Udp), 48, 16),
        // RFC 9293, 3.1.
        "tcp-sport"          => (Header::Transport(Tcp), 0, 16),
        "tcp-dport"          => (Header::Transport(Tcp), 16, 16),
        "tcp-seq-num"        => (Header::Transport(Tcp), 32, 32),
        "tcp-ack-num"        => (Header::Transport(Tcp), 64, 32),
        "tcp-offset"         => (Header::Transport(Tcp), 96, 4),
        "tcp-reserved"       => (Header::Transport(Tcp), 100, 4),
        "tcp-flags"          => (Header::Transport(Tcp), 104, 8),
        "tcp-cwr"            => (Header::Transport(Tcp), 104, 1),
        "tcp-ece"            => (Header::Transport(Tcp), 105, 1),
        "tcp-urg"            => (Header::Transport(Tcp), 106, 1),
        "tcp-ack"            => (Header::Transport(Tcp), 107, 1),
        "tcp-push"           => (Header::Transport(Tcp), 108, 1),
        "tcp-rst"            => (Header::Transport(Tcp), 109, 1),
        "tcp-syn"            => (Header::Transport(Tcp), 110, 1),
        "tcp-fin"            => (Header::Transport(Tcp), 111, 1),
        "tcp-win"            => (Header::Transport(Tcp), 112, 16),
        "tcp-checksum"       => (Header::Transport(Tcp), 128, 16),
        "tcp-urg-ptr"        => (Header::Transport(Tcp), 144, 16),
        _ => return None,
    };
    Some(FieldLocation { header, first_bit, width })
}

/// The codepoint of an ECN shorthand (RFC 3168, 5).
pub(crate) fn shorthand(name: &str) -> Option<u128> {
    match name {
        "ip-non-ect" => Some(0b00),
        "ip-ect1" => Some(0b01),
        "ip-ect0" => Some(0b10),
        "ip-ce" => Some(0b11),
        _ => None,
    }
}

impl FieldLocation {
    /// Offset of the header in the frame, if the packet has the header.
    fn header_at(&self, headers: &Headers) -> Option<usize> {
        match self.header {
            Header::Net(net) => (headers.net == net).then_some(headers.net_at),
            Header::Transport(transport) => (headers.transport == transport).then_some(headers.transport_at),
        }
    }

    /// The field's value, if the packet has the field.
    pub fn read(&self, frame: &[u8], headers: &Headers) -> Option<u128> {
        let at = self.header_at(headers)?;
        Some(bits::get(&frame[at..], self.first_bit, self.width))
    }

    /// Sets the field, if the packet has it. Checksums are not updated.
    pub fn write(&self, frame: &mut [u8], headers: &Headers, value: u128) {
        if let Some(at) = self.header_at(headers) {
            bits::set(&mut frame[at..], self.first_bit, self.width, value);
        }
    }
}
