//! Invariants of the crate on random frames: valid ones of every layout, corrupted ones, and random bytes.

#[path = "../../../fuzz/src/packet.rs"]
mod packet;

use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
use mmb_packet::{DropReason, Kind, Meta, PacketFlags, parse};
use proptest::collection::vec;
use proptest::prelude::*;

fn ip4() -> impl Strategy<Value = Ip4> {
    (any::<[u8; 4]>(), any::<[u8; 4]>(), any::<(u8, u16, u8)>(), vec(any::<u8>(), 0..=40))
        .prop_map(|(src, dst, (tos, id, ttl), options)| Ip4 { tos, id, ttl, options, ..Ip4::new(src, dst) })
}

fn extension() -> impl Strategy<Value = Extension> {
    let number = prop::sample::select(vec![0, 60, 135, 139, 140]);
    prop_oneof![
        (number, vec(any::<u8>(), 0..40)).prop_map(|(number, body)| Extension::Plain { number, body }),
        (any::<u8>(), 0..3u8, vec(any::<[u8; 16]>(), 0..3)).prop_map(|(kind, segments_left, a)| {
            let addresses = a.into_iter().map(Into::into).collect();
            Extension::Routing { kind, segments_left, addresses }
        }),
        any::<(u32, u32)>().prop_map(|(spi, sequence)| Extension::Authentication { spi, sequence }),
        (any::<bool>(), any::<u32>()).prop_map(|(more, id)| Extension::Fragment { offset: 0, more, id }),
    ]
}

fn ip6() -> impl Strategy<Value = Ip6> {
    (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<(u8, u32, u8)>(), vec(extension(), 0..4)).prop_map(
        |(src, dst, (traffic_class, flow_label, hop_limit), mut extensions)| {
            let mut fragment_headers = 0;
            extensions.retain(|extension| {
                fragment_headers += usize::from(matches!(extension, Extension::Fragment { .. }));
                !matches!(extension, Extension::Fragment { .. }) || fragment_headers == 1
            });
            Ip6 { traffic_class, flow_label, hop_limit, ..Ip6::new(src, dst) }.with(extensions)
        },
    )
}

fn transport() -> impl Strategy<Value = Transport> {
    let tcp = (any::<(u16, u16, u32, u32, u8, u16)>(), vec(any::<u8>(), 0..=40)).prop_map(
        |((sport, dport, seq, ack, flags, window), options)| {
            Tcp { seq, ack, flags, window, options, ..Tcp::new(sport, dport) }.into()
        },
    );
    let udp = any::<(u16, u16, bool)>()
        .prop_map(|(sport, dport, checksum)| Udp { checksum, ..Udp::new(sport, dport) }.into());
    let icmp = any::<(u8, u8, [u8; 4])>().prop_map(|(kind, code, rest)| Icmp { kind, code, rest }.into());
    // Neither a protocol that the parser reads nor an extension header.
    prop_oneof![3 => tcp, 3 => udp, 1 => icmp, 1 => Just(Transport::Raw(47))]
}

/// Mostly known kinds, so that duplicates occur.
fn option_kind() -> impl Strategy<Value = u8> {
    prop_oneof![9 => prop::sample::select(vec![1, 1, 2, 3, 4, 5, 8, 8, 30, 34]), 1 => any::<u8>()]
}

#[derive(Clone, Debug)]
struct ValidFrame {
    tags: Vec<u16>,
    net: Net,
    transport: Transport,
    payload: Vec<u8>,
    padding: usize,
}

impl ValidFrame {
    fn frame(&self) -> Frame {
        let bare = Frame::new(self.net.clone(), self.transport.clone()).payload(&*self.payload);
        self.tags.iter().fold(bare, |frame, tpid| frame.tag(*tpid, 7))
    }

    fn build(&self) -> Vec<u8> {
        let frame = self.frame();
        let len = frame.build().len() + self.padding;
        frame.pad_to(len).build()
    }
}

fn valid_frame() -> impl Strategy<Value = ValidFrame> {
    let tags = vec(prop::sample::select(vec![0x8100, 0x88a8, 0x9100]), 0..=4);
    let net = prop_oneof![ip4().prop_map(Net::from), ip6().prop_map(Net::from)];
    (tags, net, transport(), vec(any::<u8>(), 0..100), 0..30usize).prop_map(
        |(tags, net, transport, payload, padding)| ValidFrame { tags, net, transport, payload, padding },
    )
}

fn extension_len(extension: &Extension) -> usize {
    match extension {
        Extension::Plain { body, .. } => (body.len() + 2).next_multiple_of(8),
        Extension::Routing { addresses, .. } => 8 + 16 * addresses.len(),
        Extension::Fragment { .. } => 8,
        Extension::Authentication { .. } => 24,
    }
}

fn extension_flag(extension: &Extension) -> PacketFlags {
    match extension {
        Extension::Routing { segments_left: 1.., .. } => PacketFlags::ROUTED,
        Extension::Fragment { more: true, .. } => PacketFlags::FRAGMENT,
        _ => PacketFlags::empty(),
    }
}

/// The expected parse result, computed from the parts and not from the bytes.
fn expectation(s: &ValidFrame) -> (u8, u8, [usize; 3], PacketFlags) {
    let l3 = 14 + 4 * s.tags.len();
    let (net, l4, flags, icmp, icmp_kind) = match &s.net {
        Net::Ip4(ip) => {
            (Kind::IP4, l3 + 20 + ip.options.len().next_multiple_of(4), PacketFlags::empty(), 1, Kind::ICMP)
        }
        Net::Ip6(ip) => {
            let extensions = ip.extensions.iter().map(extension_len).sum::<usize>();
            let flags = ip.extensions.iter().map(extension_flag).collect();
            (Kind::IP6, l3 + 40 + extensions, flags, 58, Kind::ICMP6)
        }
        Net::Other { .. } => unreachable!("not generated"),
    };
    let (kind, proto, header) = match &s.transport {
        Transport::Tcp(tcp) => (Kind::TCP, 6, 20 + tcp.options.len().next_multiple_of(4)),
        Transport::Udp(_) => (Kind::UDP, 17, 8),
        Transport::Icmp(_) => (icmp_kind, icmp, 8),
        Transport::Raw(number) => (Kind::L4_NONE, *number, 0),
    };
    (net | kind, proto, [l3, l4, l4 + header + s.payload.len()], flags)
}

proptest! {
    #[test]
    fn valid_frames_are_parsed(s in valid_frame()) {
        let frame = s.build();
        let mut m = Meta::default();
        prop_assert_eq!(parse(&frame, frame.len(), &mut m), Ok(()));
        let offsets = [m.l3_off, m.l4_off, m.end].map(usize::from);
        prop_assert_eq!((m.kind.0, m.proto, offsets, m.flags), expectation(&s));
        packet::check(&frame);
    }

    #[test]
    fn completed_checksums_equal_the_builders(s in valid_frame()) {
        let right = s.build();
        let mut frame = s.frame().partial_checksum().pad_to(right.len()).build();
        let mut m = Meta::default();
        prop_assert_eq!(parse(&frame, frame.len(), &mut m), Ok(()));
        if m.flags.is_empty() && matches!(m.kind.l4(), Kind::TCP | Kind::UDP) && right != frame {
            let none = matches!(s.transport, Transport::Udp(Udp { checksum: false, .. }));
            prop_assert_eq!(mmb_packet::checksum::complete_partial(&mut frame, [], &m), !none);
        }
        if m.flags.is_empty() {
            prop_assert_eq!(frame, right);
        }
    }

    #[test]
    fn corrupted_frames_keep_the_invariants(s in valid_frame(), hits in vec(any::<(prop::sample::Index, u8)>(), 1..4)) {
        let mut frame = s.build();
        for (at, byte) in hits {
            let at = at.index(frame.len().min(160));
            frame[at] = byte;
        }
        packet::check(&frame);
    }

    #[test]
    fn random_bytes_keep_the_invariants(mut noise in vec(any::<u8>(), 0..200), ip in prop::bool::ANY, six in prop::bool::ANY) {
        if ip && noise.len() > 14 {
            noise[12..15].copy_from_slice(if six { &[0x86, 0xdd, 0x60] } else { &[0x08, 0x00, 0x45] });
        }
        packet::check(&noise);
    }

    #[test]
    fn options_keep_the_invariants(list in vec((option_kind(), 0..12u8, any::<[u8; 10]>()), 0..8), cut in 0..60usize) {
        let mut area = Vec::new();
        for (kind, length, data) in list {
            area.push(kind);
            if kind > 1 {
                area.push(length);
                area.extend(&data[..usize::from(length).saturating_sub(2)]);
            }
        }
        area.truncate(cut);
        packet::options::check(&area);
    }

    #[test]
    fn cut_frames_are_truncated(s in valid_frame(), cut in any::<prop::sample::Index>()) {
        let frame = s.build();
        let mut m = Meta::default();
        let [l3, _, end] = expectation(&s).2;
        let cut = l3 + cut.index(end - l3);
        let reason = match s.net {
            Net::Ip4(_) => DropReason::Ip4Truncated,
            _ => DropReason::Ip6Truncated,
        };
        prop_assert_eq!(parse(&frame[..cut], cut, &mut m), Err(reason));
    }
}
