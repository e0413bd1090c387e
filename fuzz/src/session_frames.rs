//! Frames for the fuzz target `session`.

use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Tcp, Transport, Udp};
use mmb_packet::{Kind, Meta, PacketFlags};

/// Addresses and ports of a frame.
pub(super) fn endpoints(frame: &[u8], meta: &Meta) -> (Vec<u8>, [u8; 4]) {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let addresses = if meta.kind.l3() == Kind::IP4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let ports = frame.get(l4..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
    (frame[addresses].to_vec(), ports)
}

/// The frame with source and destination exchanged. Its checksums stay valid.
pub(super) fn reversed(frame: &[u8], meta: &Meta) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let (at, len) = if meta.kind.l3() == Kind::IP4 { (l3 + 12, 4) } else { (l3 + 8, 16) };
    let (source, destination) = frame[at..at + 2 * len].split_at_mut(len);
    source.swap_with_slice(destination);
    if matches!(meta.kind.l4(), Kind::TCP | Kind::UDP) {
        let (source, destination) = frame[l4..l4 + 4].split_at_mut(2);
        source.swap_with_slice(destination);
    }
    frame
}

/// The ones'-complement sum of RFC 1071.
fn sum(bytes: &[u8], start: u32) -> u32 {
    let sum = bytes.chunks(2).fold(u64::from(start), |sum, pair| {
        sum + u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
    });
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    ((sum & 0xffff) + (sum >> 16)) as u32
}

/// Whether the checksums of a parsed frame are valid (RFC 1071: the sum is all ones). Fragments have no
/// transport checksum of their own.
pub(super) fn has_valid_checksums(frame: &[u8], meta: &Meta) -> bool {
    let (l3, l4, end) = (usize::from(meta.l3_off), usize::from(meta.l4_off), usize::from(meta.end));
    let header = usize::from(frame[l3] & 0x0f) * 4;
    let ip4 = meta.kind.l3() == Kind::IP4;
    if ip4 && sum(&frame[l3..l3 + header], 0) != 0xffff {
        return false;
    }
    let checked = matches!(meta.kind.l4(), Kind::TCP | Kind::UDP | Kind::ICMP | Kind::ICMP6);
    if !checked || meta.flags.intersects(PacketFlags::FRAGMENT | PacketFlags::ROUTED) {
        return true;
    }
    if meta.kind.l4() == Kind::UDP && (frame[l4 + 6..l4 + 8] == [0, 0] || usize::from(meta.end) < l4 + 8) {
        return ip4;
    }
    let pseudo = match meta.kind.l4() {
        Kind::ICMP => 0,
        _ => sum(&endpoints(frame, meta).0, u32::from(meta.proto) + (end - l4) as u32),
    };
    sum(&frame[l4..end], pseudo) == 0xffff
}

/// Builds a valid frame from a few bytes, so that the fuzzer passes the parser.
pub(super) fn build_frame(kind: u8, &[ends, ports, flags, seq]: &[u8; 4]) -> Vec<u8> {
    let host = [10, 0, 0, ends & 3];
    let other = [[192, 0, 2, 1], [192, 0, 2, 100], [200, 0, 1, 1], [10, 0, 0, 3]][usize::from(ends >> 2 & 3)];
    let [sport, dport] = [40_000 + u16::from(ports & 3), [80, 53, 5353, 2002][usize::from(ports >> 2 & 3)]];
    let turn = ends & 0x80 != 0;
    let ([from, to], [sport, dport]) =
        if turn { ([other, host], [dport, sport]) } else { ([host, other], [sport, dport]) };
    let (seq, window) = (u32::from(seq) << 8, 500 + u16::from(flags));
    let options = if ports & 0x40 == 0 { vec![] } else { vec![1, 1, 5, 10, 0, 0, 0, seq as u8, 0, 0, 9, 9] };
    let transport: Transport = match kind & 3 {
        0 => Tcp { flags, seq, ack: seq + 1, window, options, ..Tcp::new(sport, dport) }.into(),
        1 => Udp::new(sport, dport).into(),
        2 => Icmp { rest: [0, ports, 0, 1], ..Icmp::new([8, 0, 13, 128][usize::from(flags & 3)]) }.into(),
        _ => Transport::Raw([17, 6, 47, 50][usize::from(flags & 3)]),
    };
    let six = |address: [u8; 4]| {
        let mut long = [0; 16];
        long[0] = 0xfd;
        long[12..].copy_from_slice(&address);
        long
    };
    let payload = vec![kind; usize::from(ports >> 4) * 2];
    let offset = u16::from(flags >> 5);
    let frame = match kind >> 2 & 3 {
        0 | 1 => Frame::new(Ip4 { ttl: kind, id: 5, ..Ip4::new(from, to) }, transport),
        2 => {
            let pieces = u8::from(kind & 0x40 == 0);
            Frame::new(Ip4 { flags: pieces, fragment_offset: offset, id: 6, ..Ip4::new(from, to) }, transport)
        }
        _ => {
            let piece = Extension::Fragment { offset, more: kind & 0x40 == 0, id: 7 };
            let chain = if kind & 0x80 == 0 { vec![] } else { vec![piece] };
            Frame::new(Ip6::new(six(from), six(to)).with(chain), transport)
        }
    };
    frame.payload(payload).build()
}
