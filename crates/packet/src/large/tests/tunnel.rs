//! Large frames inside tunnels: segments against packets that are built and wrapped one by one.

use super::*;

/// How a packet is carried.
#[derive(Clone, Copy, Debug)]
enum Carrier {
    /// VXLAN (RFC 7348), with or without a checksum of the outer UDP.
    Vxlan(bool),
    /// GRE (RFC 2784), with or without a checksum.
    Gre(bool),
    /// An IP packet directly inside another (RFC 2003, RFC 2473).
    Ip,
}

impl Carrier {
    /// Puts an Ethernet frame, or the IP packet in it, into a packet of the tunnel.
    fn wrap(self, frame: &[u8], is_ip4: bool, outer_is_ip4: bool, id: u16) -> Vec<u8> {
        let packet = &frame[14..];
        let (transport, payload): (Transport, Vec<u8>) = match self {
            Carrier::Vxlan(checksum) => {
                let udp = Udp { checksum, ..Udp::new(50_000, 4789) };
                (udp.into(), [&[8, 0, 0, 0, 0, 0, 7, 0], frame].concat())
            }
            Carrier::Gre(checksum) => {
                let ethertype = &frame[12..14];
                let flags: &[u8] = if checksum { &[0x80, 0] } else { &[0, 0] };
                let field: &[u8] = if checksum { &[0; 4] } else { &[] };
                let mut all = [flags, ethertype, field, packet].concat();
                if checksum {
                    let value = !fold(sum(&all, 0));
                    all[4..6].copy_from_slice(&value.to_be_bytes());
                }
                (Transport::Raw(47), all)
            }
            Carrier::Ip => (Transport::Raw(if is_ip4 { 4 } else { 41 }), packet.to_vec()),
        };
        let outer = match outer_is_ip4 {
            true => Frame::new(Ip4 { id, ..Ip4::new([192, 0, 2, 1], [192, 0, 2, 2]) }, transport),
            false => Frame::new(Ip6::new([1; 8], [2; 8]), transport),
        };
        outer.payload(payload).build()
    }

    /// Bytes in front of the inner IP packet, behind the outer IP header.
    fn bytes(self) -> usize {
        match self {
            Carrier::Vxlan(_) => 8 + 8 + 14,
            Carrier::Gre(checksum) => 4 + if checksum { 4 } else { 0 },
            Carrier::Ip => 0,
        }
    }
}

fn carriers() -> impl Strategy<Value = Carrier> {
    prop_oneof![
        any::<bool>().prop_map(Carrier::Vxlan),
        any::<bool>().prop_map(Carrier::Gre),
        Just(Carrier::Ip),
    ]
}

proptest! {
    #[test]
    fn segments_in_tunnels_are_what_a_sender_without_offload_sends(
        shape in shapes(),
        carrier in carriers(),
        outer_is_ip4 in any::<bool>(),
        outer_id in any::<u16>(),
        piece in 1..3000usize,
    ) {
        // The kernel passes no large frames with extension headers or tags inside a tunnel.
        let extra = if shape.is_ip4 { shape.extra.clone() } else { Vec::new() };
        let shape = Shape { tags: Vec::new(), extra, ..shape };
        let wrap = |frame: &[u8], at: usize| {
            carrier.wrap(frame, shape.is_ip4, outer_is_ip4, outer_id.wrapping_add(at as u16))
        };
        let inside = shape.large();
        let headers = LargeFrame::parse(&inside, inside.len()).unwrap();
        let outer_ip = if outer_is_ip4 { 20 } else { 40 };
        let transport = headers.transport() + outer_ip + carrier.bytes();
        let large = wrap(&inside, 0);
        let tunnel = LargeFrame::parse_tunnel(&large, large.len(), transport).unwrap();
        let found = cut(&tunnel, &large, shape.size, piece);
        let expected: Vec<_> = shape.expected().iter().enumerate().map(|(at, frame)| wrap(frame, at)).collect();
        prop_assert_eq!(found, expected);
        // Headers that are cut short, or are not where they should be.
        for transport in transport - 3..transport + 3 {
            for end in 0..tunnel.header_len() {
                let cut = LargeFrame::parse_tunnel(&large[..end], large.len(), transport);
                prop_assert!(cut.is_none(), "{end} {transport}");
            }
        }
    }

    #[test]
    fn any_bytes_of_a_tunnel_are_survived(
        shape in shapes(),
        carrier in carriers(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        words in prop::option::of(0..16u8),
        other in prop::option::weighted(0.2, 0..200usize),
    ) {
        let inside = shape.large();
        let right = LargeFrame::parse(&inside, inside.len()).unwrap().transport() + 20 + carrier.bytes();
        let mut large = carrier.wrap(&inside, shape.is_ip4, true, 0);
        if let (Some(words), true) = (words, large.len() > right + TCP_OFFSET) {
            large[right + TCP_OFFSET] = words << 4;
        }
        let most = large.len().min(200);
        changes.iter().for_each(|(at, value)| large[at.index(most)] = *value);
        if let Some(headers) = LargeFrame::parse_tunnel(&large, large.len(), other.unwrap_or(right)) {
            let last = headers.segments(shape.size).last();
            for place in headers.segments(shape.size).take(3).chain(last) {
                // The first buffer of a segment, which ends with its payload.
                let mut head = large[..headers.header_len() + place.payload.len()].to_vec();
                prop_assert!(headers.finish_segment(&mut head, &[], &place));
            }
        }
    }
}

#[test]
fn a_tcp_header_has_twenty_bytes_or_more() {
    let inside = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(1, 2)).payload([0; 201]).build();
    let large = Carrier::Ip.wrap(&inside, true, true, 0);
    let transport = large.len() - 201 - 20;
    for words in 0..=15u8 {
        let mut large = large.clone();
        large[transport + TCP_OFFSET] = words << 4;
        let found = LargeFrame::parse_tunnel(&large, large.len(), transport);
        let expected = (words >= 5).then_some(transport + usize::from(words) * 4);
        assert_eq!(found.map(|frame| frame.header_len()), expected, "data offset {words}");
    }
}
