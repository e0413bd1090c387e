//! Translation against packets that are built with the translated values.

use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Tcp, Transport, Udp};
use mmb_packet::{Kind, Meta, parse, parse_plain_ip4};
use proptest::prelude::*;

use super::*;
use crate::{KeyError, Xlat4, parse_key};

/// The fields of a packet that may change.
#[derive(Clone, Debug)]
struct Numbers {
    sequence: u32,
    acknowledgment: u32,
    edges: Vec<[u32; 2]>,
    id: u16,
    label: u32,
}

/// The fields of a packet that do not change.
#[derive(Clone, Debug)]
struct Shape {
    /// Protocol, or 0 for UDP without a checksum.
    proto: u8,
    has_ack: bool,
    /// Bytes of padding before and after the blocks of the SACK option.
    padding: [usize; 2],
    vlan: bool,
    options: usize,
    routed: bool,
    payload: Vec<u8>,
}

impl Shape {
    fn sack(&self, edges: &[[u32; 2]]) -> Vec<u8> {
        let mut options = vec![1; self.padding[0]];
        for blocks in edges.chunks(2) {
            options.extend([5, 2 + 8 * blocks.len() as u8]);
            options.extend(blocks.as_flattened().iter().flat_map(|edge| edge.to_be_bytes()));
            options.extend(vec![1; self.padding[1]]);
        }
        options
    }

    fn transport(&self, key: &Key, numbers: &Numbers) -> Transport {
        let (sport, dport) = (u16::from_be_bytes(key.source_port), u16::from_be_bytes(key.destination_port));
        match self.proto {
            6 => Tcp {
                seq: numbers.sequence,
                ack: numbers.acknowledgment,
                flags: if self.has_ack { 0x18 } else { 0x02 },
                options: self.sack(&numbers.edges),
                ..Tcp::new(sport, dport)
            }
            .into(),
            17 => Udp::new(sport, dport).into(),
            0 => Udp { checksum: false, ..Udp::new(sport, dport) }.into(),
            _ => {
                let [high, low] = key.source_port;
                let kind = if key.is_ip4() { 8 } else { 128 };
                Icmp { rest: [high, low, 0, 1], ..Icmp::new(kind) }.into()
            }
        }
    }

    fn frame(&self, key: &Key, numbers: &Numbers) -> Vec<u8> {
        let transport = self.transport(key, numbers);
        let frame = if key.is_ip4() {
            let [source, destination] = [key.source, key.destination].map(|a| [a[0], a[1], a[2], a[3]]);
            let options = vec![1; self.options * 4];
            Frame::new(Ip4 { id: numbers.id, options, ..Ip4::new(source, destination) }, transport)
        } else {
            let hops = Extension::Routing {
                kind: 0,
                segments_left: 1,
                addresses: vec![[7; 16].into(), [9; 16].into()],
            };
            let skipped = Extension::Plain { number: 60, body: vec![0; self.options * 8] };
            let extensions = if self.routed { vec![skipped, hops] } else { vec![skipped] };
            let ip = Ip6 { flow_label: numbers.label, ..Ip6::new(key.source, key.destination) };
            Frame::new(ip.with(extensions), transport)
        };
        let frame = if self.vlan { frame.vlan(5) } else { frame };
        frame.payload(self.payload.clone()).build()
    }

    /// Two keys of such packets.
    fn keys(&self, ip4: bool, addresses: [[u8; 16]; 4], ports: [[u8; 2]; 4]) -> (Key, Key) {
        let narrow = |address: [u8; 16]| {
            if ip4 { wide([address[0], address[1], address[2], address[3]]) } else { address }
        };
        let (network, query) = if ip4 { (Kind::IP4, 8) } else { (Kind::IP6, 128) };
        let key = |i: usize| {
            let (transport, proto) = match self.proto {
                6 => (Kind::TCP, 6),
                0 | 17 => (Kind::UDP, 17),
                _ if ip4 => (Kind::ICMP, 1),
                _ => (Kind::ICMP6, 58),
            };
            Key {
                source: narrow(addresses[i]),
                destination: narrow(addresses[i + 1]),
                source_port: ports[i],
                destination_port: if self.proto == 1 { [0, query] } else { ports[i + 1] },
                kind: network | transport,
                proto,
                asks: if self.proto == 1 { Key::BY_SOURCE } else { [0; 2] },
            }
        };
        (key(0), key(2))
    }
}

fn wide(address: [u8; 4]) -> [u8; 16] {
    std::array::from_fn(|i| address.get(i).copied().unwrap_or(0))
}

/// The numbers of a packet after a translation, as [`Mangle`] documents it.
fn moved(numbers: &Numbers, shape: &Shape, mangle: &Mangle, direction: Direction) -> Numbers {
    let forward = direction == Direction::Forward;
    let shift = |n: u32, by: u32| if forward { n.wrapping_add(by) } else { n.wrapping_sub(by) };
    let (own, other) = if forward {
        (mangle.sequence, mangle.acknowledgment)
    } else {
        (mangle.acknowledgment, mangle.sequence)
    };
    let other = if shape.has_ack { other } else { 0 };
    let label = match forward {
        _ if mangle.old_label == mangle.new_label => numbers.label,
        true => mangle.new_label,
        false if numbers.label == mangle.new_label => mangle.old_label,
        false => numbers.label,
    };
    let id = match mangle.fixed_id {
        _ if !forward => numbers.id,
        0 => numbers.id.wrapping_add(mangle.ip_id),
        _ => mangle.ip_id,
    };
    Numbers {
        sequence: shift(numbers.sequence, own),
        acknowledgment: shift(numbers.acknowledgment, other),
        edges: numbers.edges.iter().map(|block| block.map(|edge| shift(edge, other))).collect(),
        id,
        label,
    }
}

fn parsed(frame: &[u8]) -> Meta {
    let mut meta = Meta::default();
    assert_eq!(parse(frame, frame.len(), &mut meta), Ok(()));
    meta
}

fn shapes() -> impl Strategy<Value = Shape> {
    (
        prop::sample::select(vec![0, 1, 6, 17]),
        prop::bool::weighted(0.8),
        prop::array::uniform2(0..2usize),
        any::<bool>(),
        0..4usize,
        any::<bool>(),
        prop::collection::vec(any::<u8>(), 0..60),
    )
        .prop_map(|(proto, has_ack, padding, vlan, options, routed, payload)| Shape {
            proto,
            has_ack,
            padding,
            vlan,
            options,
            routed,
            payload,
        })
}

fn all_numbers() -> impl Strategy<Value = Numbers> {
    let edges = prop::collection::vec(any::<[u32; 2]>(), 0..4);
    (any::<u32>(), any::<u32>(), edges, any::<u16>(), 0..1u32 << 20).prop_map(
        |(sequence, acknowledgment, edges, id, label)| Numbers { sequence, acknowledgment, edges, id, label },
    )
}

fn mangles() -> impl Strategy<Value = Mangle> {
    let number = || prop_oneof![Just(0), any::<u32>()];
    let label = || 0..1u32 << 20;
    (number(), number(), any::<u16>(), 0..2u8, label(), label()).prop_map(
        |(sequence, acknowledgment, ip_id, fixed_id, old_label, new_label)| Mangle {
            sequence,
            acknowledgment,
            old_label,
            new_label,
            ip_id,
            fixed_id,
            zero: 0,
        },
    )
}

fn directions() -> impl Strategy<Value = Direction> {
    prop::sample::select(vec![Direction::Forward, Direction::Reverse])
}

/// The numbers of a packet that was translated in `direction` and back. Replaced identifications and labels
/// are lost.
fn regained(numbers: &Numbers, mangle: &Mangle, direction: Direction) -> Numbers {
    let mut numbers = numbers.clone();
    let labels = mangle.old_label != mangle.new_label;
    match direction {
        Direction::Forward => {
            numbers.id = if mangle.fixed_id != 0 { mangle.ip_id } else { numbers.id };
            numbers.label = if labels { mangle.old_label } else { numbers.label };
        }
        Direction::Reverse if labels && numbers.label == mangle.old_label => numbers.label = mangle.new_label,
        Direction::Reverse => {}
    }
    numbers
}

/// The lengths to which a quotation may be cut. `upto`: bytes up to the transport header; `all`: all bytes.
/// Eight bytes of that header, its fixed part without the urgent pointer, or all of it.
fn cut(shape: &Shape, upto: usize, all: usize, which: u8) -> usize {
    match (which, shape.proto) {
        (0, _) => upto + 8,
        (1, 6) => upto + 16,
        _ => all,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn translated_packets_equal_packets_built_anew(
        shape in shapes(),
        ip4 in any::<bool>(),
        addresses in any::<[[u8; 16]; 4]>(),
        ports in any::<[[u8; 2]; 4]>(),
        numbers in all_numbers(),
        mangle in mangles(),
        direction in directions(),
        known_label in any::<bool>(),
    ) {
        let (from, to) = shape.keys(ip4, addresses, ports);
        let label = if known_label { mangle.new_label } else { numbers.label };
        let numbers = Numbers { label, ..numbers };
        let before = shape.frame(&from, &numbers);
        let after = shape.frame(&to, &moved(&numbers, &shape, &mangle, direction));
        let meta = parsed(&before);
        prop_assert_eq!(parse_key(&before, &meta), Ok(from));
        let mut frame = before.clone();
        prop_assert_eq!(translate(&mut frame, &meta, &from, &to, Some(&mangle), direction), Ok(()));
        prop_assert_eq!(&frame, &after);
        prop_assert_eq!(untranslate(&mut frame, &meta, &to, &from, Some(&mangle), direction), Ok(()));
        prop_assert_eq!(frame, shape.frame(&from, &regained(&numbers, &mangle, direction)));

        let mut there = before.clone();
        prop_assert_eq!(translate(&mut there, &meta, &from, &to, None, direction), Ok(()));
        if let Some(xlat) = Xlat4::between(&from, &to) {
            let mut short = before.clone();
            translate_ip4(&xlat, &mut short, &meta);
            prop_assert_eq!(&short, &there);
            let mut again = meta;
            if let Some(common) = parse_plain_ip4(&before, usize::from(again.l3_off), before.len(), &mut again) {
                let (mut short, l4) = (before.clone(), usize::from(common.l4));
                translate_ip4_common(&xlat, &mut short, l4, meta.kind.l4() == Kind::UDP);
                prop_assert_eq!(&short, &there);
                let cut = &mut before.clone()[..l4 + 19];
                translate_ip4_common(&xlat, cut, l4, meta.kind.l4() == Kind::UDP);
                prop_assert_eq!(&*cut, &before[..l4 + 19]);
            }
            let back = Xlat4::between(&to.reversed(), &from.reversed()).unwrap();
            prop_assert_eq!(Xlat4::pair(&from, &to.reversed()), Some([xlat, back]));
        }
        prop_assert_eq!(translate(&mut there, &meta, &to, &from, None, direction), Ok(()));
        prop_assert_eq!(there, before);
    }

    #[test]
    fn translated_errors_quote_the_packet_as_sent(
        shape in shapes(),
        ip4 in any::<bool>(),
        addresses in any::<[[u8; 16]; 4]>(),
        complainer in any::<[u8; 16]>(),
        ports in any::<[[u8; 2]; 4]>(),
        numbers in all_numbers(),
        mangle in mangles(),
        direction in directions(),
        source_stays in any::<bool>(),
        known_label in any::<bool>(),
        which_cut in 0..3u8,
    ) {
        // An identification that was replaced is lost.
        let mangle = Mangle { fixed_id: 0, ..mangle };
        let (sent, mut seen) = shape.keys(ip4, addresses, ports);
        if source_stays {
            (seen.destination, seen.destination_port) = (sent.destination, sent.destination_port);
        }
        let opposite = match direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        let label = match direction {
            // Forward packets have one label. Replies have the one that is replaced, or another one.
            Direction::Reverse => mangle.old_label,
            Direction::Forward if known_label => mangle.new_label,
            Direction::Forward => mangle.new_label.max(mangle.old_label) ^ mangle.new_label.min(mangle.old_label) ^ 1,
        };
        prop_assume!(label != mangle.old_label || direction == Direction::Reverse);
        let numbers = Numbers { label, ..numbers };
        let [before, after] = [(&seen, moved(&numbers, &shape, &mangle, opposite)), (&sent, numbers)].map(|(key, numbers)| {
            let frame = shape.frame(key, &numbers);
            let meta = parsed(&frame);
            let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
            frame[l3..cut(&shape, l4, frame.len(), which_cut)].to_vec()
        });
        let error = |source: [u8; 16], destination: [u8; 16], quoted: &[u8]| {
            let four = |a: [u8; 16]| [a[0], a[1], a[2], a[3]];
            let frame = if ip4 {
                Frame::new(Ip4::new(four(source), four(destination)), Icmp::new(11))
            } else {
                Frame::new(Ip6::new(source, destination), Icmp::new(3))
            };
            frame.payload(quoted).build()
        };
        let hidden = if sent.destination == seen.destination { complainer } else { sent.destination };
        let mut frame = error(complainer, seen.source, &before);
        let meta = parsed(&frame);
        prop_assert_eq!(parse_key(&frame, &meta), Err(KeyError::IcmpError));
        let quote = parse_quote(&frame, &meta).expect("long enough");
        prop_assert_eq!(quote.key, seen);
        let (from, to) = (seen.reversed(), sent.reversed());
        let done = translate_icmp_error(&mut frame, &meta, &quote, &from, &to, Some(&mangle), direction);
        prop_assert_eq!(done, Ok(()));
        prop_assert_eq!(frame, error(hidden, sent.source, &after));
    }

    /// For any packet and metadata, nothing outside of the packet is read or written.
    #[test]
    fn malformed_packets_do_not_panic(
        shape in shapes(),
        ip4 in any::<bool>(),
        addresses in any::<[[u8; 16]; 4]>(),
        ports in any::<[[u8; 2]; 4]>(),
        numbers in all_numbers(),
        mangle in mangles(),
        error in any::<bool>(),
        hits in prop::collection::vec((0..200usize, any::<u8>()), 0..6),
        length in 0..200usize,
        offsets in prop::option::of(any::<[u16; 3]>()),
    ) {
        let (from, to) = shape.keys(ip4, addresses, ports);
        let mut frame = shape.frame(&from, &numbers);
        if error {
            let outer = if ip4 {
                Frame::new(Ip4::new([1; 4], [2; 4]), Icmp::new(3))
            } else {
                Frame::new(Ip6::new([1; 16], [2; 16]), Icmp::new(1))
            };
            frame = outer.payload(&frame[14..]).build();
        }
        for (at, byte) in hits {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        let mut meta = Meta::default();
        if parse(&frame, frame.len(), &mut meta).is_err() {
            return Ok(());
        }
        if let Some([l3, l4, end]) = offsets {
            (meta.l3_off, meta.l4_off, meta.end) = (l3 % 256, l4 % 256, end % 256);
        }
        frame.truncate(length.max(14));
        if let Some(quote) = parse_quote(&frame, &meta) {
            let (from, to) = (quote.key.reversed(), Key { kind: quote.key.kind, ..to });
            let mut frame = frame.clone();
            let done = translate_icmp_error(&mut frame, &meta, &quote, &from, &to, Some(&mangle), Direction::Reverse);
            prop_assert_eq!(done, Ok(()));
        }
        let before = frame.clone();
        if translate(&mut frame, &meta, &from, &to, Some(&mangle), Direction::Forward).is_err() {
            prop_assert_eq!(&frame, &before);
        }
        let before = frame.clone();
        if untranslate(&mut frame, &meta, &from, &to, Some(&mangle), Direction::Forward).is_err() {
            prop_assert_eq!(&frame, &before);
        }
        if let Some(xlat) = Xlat4::between(&from, &to) {
            translate_ip4(&xlat, &mut frame, &meta);
        }
        prop_assert_eq!(frame.len(), before.len());
    }
}
