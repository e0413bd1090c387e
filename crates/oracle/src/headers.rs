//! Locations of a frame's headers, read directly by the layouts of the RFCs.
//!
//! Deliberately independent of `mmb_packet::parse`: two implementations of the same RFCs reveal each
//! other's errors.

use mmb_packet::DropReason;

const ETHERTYPE_IP4: u16 = 0x0800;
const ETHERTYPE_IP6: u16 = 0x86dd;
/// 802.1Q, 802.1ad and the pre-standard stacked tag.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const MAX_TAGS: usize = 4;

/// The network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Net {
    Ip4,
    Ip6,
}

/// The transport layer, if its whole fixed header is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    None,
    Tcp,
    Udp,
    Icmp,
    Icmp6,
}

/// Headers of a frame with an IP packet. Offsets are bytes from the start of the frame.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    pub net: Net,
    /// The IP header.
    pub net_at: usize,
    pub transport: Transport,
    /// The transport header, if there is one.
    pub transport_at: usize,
    /// End of the IP packet.
    pub end: usize,
    /// Whether the packet is a fragment, including first ones: the transport checksum covers bytes outside
    /// this frame.
    pub fragment: bool,
    /// Whether an IPv6 routing header has segments left, so that `ip6-daddr` is not the final destination.
    pub routed: bool,
    /// The final destination, if `routed` and the type of routing header is known.
    pub final_destination: Option<[u8; 16]>,
    /// Numbers of the complete IPv6 extension headers.
    pub extensions: Vec<u8>,
}

/// The headers of `frame`; `None` if it is not IP.
///
/// # Errors
/// The drop reason of an unreadable IP packet.
pub(crate) fn read(frame: &[u8]) -> Result<Option<Headers>, DropReason> {
    match ethertype(frame)? {
        Some((ETHERTYPE_IP4, at)) => read_ip4(frame, at).map(Some),
        Some((ETHERTYPE_IP6, at)) => read_ip6(frame, at).map(Some),
        _ => Ok(None),
    }
}

/// Ethertype behind VLAN tags, and the offset of its payload; `None` if the frame ends before it.
///
/// # Errors
/// [`DropReason::VlanDepth`] for a frame with more tags than the engine skips.
fn ethertype(frame: &[u8]) -> Result<Option<(u16, usize)>, DropReason> {
    let mut at = 12;
    for _ in 0..=MAX_TAGS {
        let Some(kind) = be16(frame, at) else { return Ok(None) };
        at += 2;
        if !TAGS.contains(&kind) {
            return Ok(Some((kind, at)));
        }
        at += 2; // the tag's control information
    }
    Err(DropReason::VlanDepth)
}

/// RFC 791, 3.1.
fn read_ip4(frame: &[u8], at: usize) -> Result<Headers, DropReason> {
    let packet = &frame[at..];
    if packet.len() < 20 {
        return Err(DropReason::Ip4Truncated);
    }
    let version = packet[0] >> 4;
    let header = usize::from(packet[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    if version != 4 || header < 20 || total < header {
        return Err(DropReason::Ip4Malformed);
    }
    if packet.len() < total {
        return Err(DropReason::Ip4Truncated);
    }
    let more_fragments = packet[6] & 0x20 != 0;
    let offset = u16::from_be_bytes([packet[6] & 0x1f, packet[7]]);
    let end = at + total;
    let transport_at = at + header;
    let transport = match offset {
        0 => transport(packet[9], Net::Ip4, &frame[transport_at..end], more_fragments)?,
        _ => behind_first(packet[9], offset)?,
    };
    Ok(Headers {
        net: Net::Ip4,
        net_at: at,
        transport,
        transport_at,
        end,
        fragment: more_fragments || offset != 0,
        routed: false,
        final_destination: None,
        extensions: Vec::new(),
    })
}

/// RFC 8200, 3 and 4.
fn read_ip6(frame: &[u8], at: usize) -> Result<Headers, DropReason> {
    let packet = &frame[at..];
    if packet.len() < 40 {
        return Err(DropReason::Ip6Truncated);
    }
    let payload = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
    // RFC 2675: a length of 0 with a hop-by-hop header means that a jumbo option has the length.
    let jumbogram = payload == 0 && packet[6] == 0 && packet.len() > 40;
    if packet[0] >> 4 != 6 || jumbogram {
        return Err(DropReason::Ip6Malformed);
    }
    if packet.len() - 40 < payload {
        return Err(DropReason::Ip6Truncated);
    }
    let end = at + 40 + payload;
    let mut headers = Headers {
        net: Net::Ip6,
        net_at: at,
        transport: Transport::None,
        transport_at: end,
        end,
        fragment: false,
        routed: false,
        final_destination: None,
        extensions: Vec::new(),
    };
    walk_extensions(frame, packet[6], at + 40, &mut headers)?;
    Ok(headers)
}

/// Follows the chain of extension headers to the transport header; each must lie inside the packet.
fn walk_extensions(frame: &[u8], first: u8, start: usize, headers: &mut Headers) -> Result<(), DropReason> {
    let mut next = first;
    let mut at = start;
    loop {
        let rest = &frame[at..headers.end];
        // RFC 8200, 4.1: each header at most once; two fragment headers would be reassembled twice.
        if next == 44 && rest.len() >= 8 && headers.extensions.contains(&44) {
            return Err(DropReason::L4Malformed);
        }
        let length = match next {
            // Hop-by-hop, routing, destination options, mobility, HIP, shim6: length in units of 8 bytes
            // beyond the first 8.
            0 | 43 | 60 | 135 | 139 | 140 if rest.len() >= 8 => (usize::from(rest[1]) + 1) * 8,
            // Fragment: always 8 bytes.
            44 if rest.len() >= 8 => 8,
            // Authentication (RFC 4302, 2.2): length in 4 bytes, minus 2.
            51 if rest.len() >= 8 => (usize::from(rest[1]) + 2) * 4,
            0 | 43 | 44 | 51 | 60 | 135 | 139 | 140 => return Err(cut_short(headers.fragment)),
            _ => {
                // The bytes behind ESP are encrypted; the header itself has 8 bytes (RFC 4303, 2).
                if next == 50 && rest.len() >= 8 {
                    headers.extensions.push(50);
                }
                headers.transport = transport(next, Net::Ip6, rest, headers.fragment)?;
                headers.transport_at = at;
                return Ok(());
            }
        };
        if rest.len() < length {
            return Err(cut_short(headers.fragment));
        }
        headers.extensions.push(next);
        match next {
            43 if rest[3] != 0 => {
                headers.routed = true;
                headers.final_destination = final_destination(&rest[..length]);
            }
            44 => {
                let offset = u16::from_be_bytes([rest[2], rest[3]]) >> 3;
                let more = rest[3] & 1 != 0;
                // Offset 0 and no more fragments: a whole packet with a fragment header (RFC 6946).
                headers.fragment |= offset != 0 || more;
                if offset != 0 {
                    // The first fragment has the extension headers and what follows them (RFC 7112, 5).
                    if matches!(rest[0], 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140)
                        && usize::from(offset) * 8 < 1024
                    {
                        return Err(DropReason::TinyFragment);
                    }
                    headers.transport = behind_first(rest[0], offset)?;
                    return Ok(());
                }
            }
            _ => {}
        }
        next = rest[0];
        at += length;
    }
}

/// The final address of a routing header: the last one of type 0 (RFC 2460, 4.4) and type 2 (RFC 6275,
/// 6.4), the first one of a segment routing header, type 4 (RFC 8754, 2).
fn final_destination(routing: &[u8]) -> Option<[u8; 16]> {
    let addresses = &routing[8..];
    let address = match routing[2] {
        0 | 2 => addresses.rchunks_exact(16).next(),
        4 => addresses.chunks_exact(16).next(),
        _ => None,
    };
    address?.try_into().ok()
}

impl Headers {
    /// Range of the TCP options in the frame, from the end of the fixed header to the data offset; `None`
    /// without a readable TCP header.
    pub fn option_area(&self, frame: &[u8]) -> Option<std::ops::Range<usize>> {
        let at = self.transport_at;
        (self.transport == Transport::Tcp).then(|| at + 20..at + usize::from(frame[at + 12] >> 4) * 4)
    }

    /// The bytes of the payload field `name`; `None` if the packet has no such header or no byte behind it.
    pub fn payload<'a>(&self, frame: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let at = self.transport_at;
        let (there, start, end) = match name {
            "ip-payload" => {
                let header = usize::from(frame[self.net_at] & 15) * 4;
                (self.net == Net::Ip4, self.net_at + header, self.end)
            }
            "ip6-payload" => (self.net == Net::Ip6, self.net_at + 40, self.end),
            "icmp-payload" => (self.transport == Transport::Icmp, at + 8, self.end),
            "icmp6-payload" => (self.transport == Transport::Icmp6, at + 8, self.end),
            "udp-payload" if self.transport == Transport::Udp => {
                let length = u16::from_be_bytes([frame[at + 4], frame[at + 5]]);
                (true, at + 8, self.end.min(at + usize::from(length)))
            }
            "tcp-payload" => match self.option_area(frame) {
                Some(options) => (true, options.end, self.end),
                None => return None,
            },
            _ => return None,
        };
        (there && start < end).then(|| &frame[start..end])
    }
}

/// The transport header at the start of `segment`, which extends to the end of the packet. `fragment`: the
/// packet is the first fragment of a datagram.
fn transport(protocol: u8, net: Net, segment: &[u8], fragment: bool) -> Result<Transport, DropReason> {
    let (transport, least) = match (protocol, net) {
        (6, _) => (Transport::Tcp, 20),
        (17, _) => (Transport::Udp, 8),
        (1, Net::Ip4) => (Transport::Icmp, 8),
        (58, Net::Ip6) => (Transport::Icmp6, 8),
        _ => return Ok(Transport::None),
    };
    if segment.len() < least {
        return Err(cut_short(fragment));
    }
    // RFC 9293, 3.1: the data offset counts the header in 32-bit words. RFC 768: so does the length, in
    // bytes.
    let claimed = match transport {
        Transport::Tcp => usize::from(segment[12] >> 4) * 4,
        Transport::Udp => usize::from(u16::from_be_bytes([segment[4], segment[5]])),
        _ => least,
    };
    if claimed < least {
        return Err(DropReason::L4Malformed);
    }
    if transport == Transport::Tcp && claimed > segment.len() {
        return Err(cut_short(fragment));
    }
    Ok(transport)
}

/// The reason for a packet that ends inside its headers (RFC 1858, 3; RFC 7112, 5).
fn cut_short(fragment: bool) -> DropReason {
    if fragment { DropReason::TinyFragment } else { DropReason::L4Truncated }
}

/// The transport header of a fragment with an offset: none. A TCP header has 20 bytes, all in the first
/// fragment (RFC 3128, 2).
fn behind_first(protocol: u8, offset: u16) -> Result<Transport, DropReason> {
    if protocol == 6 && usize::from(offset) * 8 < 20 {
        Err(DropReason::TinyFragment)
    } else {
        Ok(Transport::None)
    }
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}
