//! What a packet has become leads back to what it was, and where it was going was known before.

mod common;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};

use common::*;
use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Net as Ip, Tcp, Transport, Udp};
use mmb_packet::{Kind, Meta, PacketBuf, VecPacket, parse};
use mmb_session_harness::Outcome;
use proptest::prelude::*;
use proptest::sample::select;

/// What may be in force, together: both address families, all that is ever replaced.
const RULES: &[&[&str]] = &[
    &["nat pool add p 200.0.0.1-200.0.0.3", "add-stateful in port0 nat p"],
    &["add-stateful in port0 map ip-saddr 200.0.0.1 shuffle tcp-sport shuffle udp-sport"],
    &["add-stateful all shuffle tcp-seq-num shuffle tcp-ack-num shuffle ip-id"],
    &["add-stateful all mod tcp-dport 8080 mod udp-dport 5353 map ip6-flow-label 77"],
    &["add-stateful in port0 lb 192.0.2.50 192.0.2.51 2001:db8:1::50"],
    &["add-stateful in port0 map ip6-saddr 2001:db8:9::1-2001:db8:9::3 shuffle udp-sport"],
    &["add-stateful all accept"],
];

/// A conversation between a host inside and one outside.
#[derive(Clone, Copy, Debug)]
struct Conversation {
    ip4: bool,
    proto: u8,
    host: u8,
    peer: u8,
    ports: [u16; 2],
    seq: [u32; 2],
    /// It is cut into fragments, of which the first is seen.
    cut: bool,
    length: u8,
}

fn conversations() -> impl Strategy<Value = Conversation> {
    let numbers = (any::<[u16; 2]>(), any::<[u32; 2]>(), any::<u8>());
    let kind = (any::<bool>(), select(&[6u8, 6, 17, 17, 1, 47][..]), prop::bool::weighted(0.1));
    (kind, 0..4u8, 0..4u8, numbers).prop_map(|((ip4, proto, cut), host, peer, (ports, seq, length))| {
        Conversation { ip4, proto, host, peer, ports, seq, cut, length }
    })
}

/// A packet as it is on the wire: both ends, and what one side says.
#[derive(Clone, Copy, Debug)]
struct WirePacket {
    from: IpAddr,
    to: IpAddr,
    ports: [u16; 2],
    flags: u8,
    seq: u32,
    ack: u32,
    id: u16,
    /// Of an ICMP query.
    asks: bool,
}

impl Conversation {
    fn first(&self) -> WirePacket {
        let ends: [IpAddr; 2] = match self.ip4 {
            true => [[10, 0, 0, self.host].into(), [192, 0, 2, self.peer].into()],
            false => [[self.host; 16].into(), [self.peer | 0x20; 16].into()],
        };
        let [from, to] = ends;
        WirePacket { from, to, ports: self.ports, flags: SYN, seq: self.seq[0], ack: 0, id: 7, asks: true }
    }

    fn frame(&self, packet: &WirePacket) -> Vec<u8> {
        let [sport, dport] = packet.ports;
        let transport: Transport = match self.proto {
            6 => {
                // A selective acknowledgment that begins at an odd offset.
                let edges = [packet.ack.wrapping_add(9), packet.ack.wrapping_add(19)];
                let mut options = vec![1, 5, 10];
                options.extend(edges.iter().flat_map(|edge| edge.to_be_bytes()));
                let options = if packet.flags & SYN == 0 { options } else { vec![] };
                let (flags, seq, ack) = (packet.flags, packet.seq, packet.ack);
                Tcp { flags, seq, ack, options, ..Tcp::new(sport, dport) }.into()
            }
            17 => {
                Udp { checksum: !self.ip4 || self.length.is_multiple_of(2), ..Udp::new(sport, dport) }.into()
            }
            1 => {
                let kind = match (self.ip4, packet.asks) {
                    (true, true) => 8,
                    (true, false) => 0,
                    (false, asks) => 129 - u8::from(asks),
                };
                let [high, low] = if packet.asks { sport } else { dport }.to_be_bytes();
                Icmp { rest: [high, low, 0, 1], ..Icmp::new(kind) }.into()
            }
            proto => Transport::Raw(proto),
        };
        let ip: Ip = match (packet.from, packet.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let id = if self.cut { next_datagram() } else { packet.id };
                Ip4 { id, flags: u8::from(self.cut), ..Ip4::new(from, to) }.into()
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                // Either side keeps to its own label.
                let ip = Ip6 { flow_label: 0xabc00 | u32::from(packet.id), ..Ip6::new(from, to) };
                let id = u32::from(next_datagram());
                let fragment = Extension::Fragment { offset: 0, more: true, id };
                if self.cut { ip.with([fragment]).into() } else { ip.into() }
            }
            ends => unreachable!("{ends:?}"),
        };
        // A fragment has a multiple of eight bytes, and at least one.
        let (header, whole) = (if self.ip4 { 34 } else { 54 }, usize::from(self.length) / 8 * 8);
        let bare = Frame::new(ip.clone(), transport.clone()).build().len() - header;
        Frame::new(ip, transport).payload(vec![0xa5; whole + 8 - bare % 8]).build()
    }

    /// What a packet says that has come through.
    fn read(&self, frame: &[u8]) -> WirePacket {
        let meta = parsed(frame);
        let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
        let four = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).expect("four bytes");
        let sixteen = |at: usize| <[u8; 16]>::try_from(&frame[at..at + 16]).expect("an address");
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (from, to): (IpAddr, IpAddr) = match self.ip4 {
            true => (four(l3 + 12).into(), four(l3 + 16).into()),
            false => (sixteen(l3 + 8).into(), sixteen(l3 + 24).into()),
        };
        let mut packet = WirePacket { from, to, flags: 0, asks: true, ..self.first() };
        match meta.kind.l4() {
            Kind::TCP => {
                packet.ports = [word(l4), word(l4 + 2)];
                packet.flags = frame[l4 + 13];
                packet.seq = u32::from_be_bytes(four(l4 + 4));
                packet.ack = u32::from_be_bytes(four(l4 + 8));
            }
            Kind::UDP => packet.ports = [word(l4), word(l4 + 2)],
            Kind::ICMP | Kind::ICMP6 => {
                packet.asks = matches!(frame[l4], 8 | 128);
                packet.ports = [word(l4 + 4); 2];
            }
            _ => {}
        }
        packet
    }

    /// What the receiver of that answers, whose next sequence number is `seq`.
    fn answer(&self, heard: &WirePacket, flags: u8, seq: u32) -> WirePacket {
        let [sport, dport] = heard.ports;
        WirePacket {
            from: heard.to,
            to: heard.from,
            ports: [dport, sport],
            flags,
            seq,
            ack: heard.seq.wrapping_add(1),
            id: 9,
            asks: !heard.asks,
        }
    }
}

/// A new identification for each fragment: it is the only one of its datagram.
fn next_datagram() -> u16 {
    static LAST: AtomicU16 = AtomicU16::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

fn parsed(frame: &[u8]) -> Meta {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).expect("a sound packet");
    meta
}

/// The destination address of a packet.
fn heads_for(frame: &[u8]) -> IpAddr {
    let meta = parsed(frame);
    let ip = &frame[usize::from(meta.l3_off)..];
    match meta.kind.l3() {
        Kind::IP4 => <[u8; 4]>::try_from(&ip[16..20]).expect("an address").into(),
        _ => <[u8; 16]>::try_from(&ip[24..40]).expect("an address").into(),
    }
}

/// Sends a packet through; gives what comes out, once it has been seen that this leads back to what went in.
/// `known`: its session is there.
fn through(net: &mut Net, in_port: u16, frame: &[u8], known: bool) -> Option<Vec<u8>> {
    let sessions = &net.harness.workers()[0];
    let before = sessions.effective_destination(net.harness.rules(), frame, &parsed(frame));
    let sent = net.harness.process(in_port, VecPacket::new(frame)).pop()?;
    let Outcome::Out(_) = sent.outcome else { return None };
    let after = sent.packet.head().to_vec();
    if known {
        assert_eq!(before, Some(heads_for(&after)));
    }
    let mut back = after.clone();
    let mut turned = false;
    for sessions in net.harness.workers() {
        turned |= sessions.untranslate(&mut back, &parsed(&after));
    }
    assert_eq!(back, frame);
    assert!(turned || after == frame);
    Some(after)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn translated_packets_can_be_untranslated(
        rules in prop::sample::subsequence(RULES, 1..4),
        conversations in prop::collection::vec(conversations(), 1..6),
        workers in 1..3u16,
    ) {
        let mut net = Net::with(common::rules(&rules.concat()), workers, 1000);
        for conversation in conversations {
            let alone = workers == 1;
            let first = conversation.first();
            let Some(shown) = through(&mut net, IN, &conversation.frame(&first), false) else { continue };
            let shown = conversation.read(&shown);
            let reply = conversation.answer(&shown, SYN | ACK, conversation.seq[1]);
            let heard = through(&mut net, OUT, &conversation.frame(&reply), alone).expect("it passes");
            let heard = conversation.read(&heard);
            prop_assert_eq!(heard.from, first.to);
            let more = WirePacket { id: first.id, ..conversation.answer(&heard, ACK, first.seq.wrapping_add(1)) };
            for known in [alone, alone] {
                let shown = through(&mut net, IN, &conversation.frame(&more), known).expect("it passes");
                let reply = conversation.answer(&conversation.read(&shown), ACK, conversation.seq[1].wrapping_add(1));
                through(&mut net, OUT, &conversation.frame(&reply), known);
            }
        }
    }
}

/// Two hosts inside that reach each other by their external ends: both sessions are undone where one worker
/// has them.
#[test]
fn hairpins_can_be_untranslated() {
    let (one, two, server): (End, End, End) =
        (([10, 0, 0, 1], 4000), ([10, 0, 0, 2], 4000), ([192, 0, 2, 7], 80));
    let lines = ["nat pool add p 200.0.0.1 filtering endpoint-independent", "add-stateful in port0 nat p"];
    let mut net = Net::new(&lines);
    let ends =
        [one, two].map(|end| source(&through(&mut net, IN, &udp(end, server).build(), false).expect("out")));
    for _ in 0..3 {
        for (from, to) in [(one, ends[1]), (two, ends[0])] {
            // In a wire its Ethernet addresses say whom it is for.
            let frame = udp(from, to).build();
            let before =
                net.harness.workers()[0].effective_destination(net.harness.rules(), &frame, &parsed(&frame));
            let mut sent = net.harness.process(IN, VecPacket::new(&frame)).pop().expect("it passes").packet;
            assert_eq!(before, Some(heads_for(sent.head())));
            let meta = parsed(sent.head());
            assert!(net.harness.workers()[0].untranslate(sent.head_mut(), &meta));
            assert_eq!(sent.head()[14..], frame[14..]);
        }
    }
}

/// What nothing was done to stays as it is: packets of no session, of one that is not translated, as they
/// came in, later fragments, errors.
#[test]
fn packets_without_session_are_not_untranslated() {
    let (client, server): (End, End) = (([10, 0, 0, 1], 4000), ([192, 0, 2, 7], 80));
    let mut net = Net::new(&[
        "nat pool add p 200.0.0.1",
        "add-stateful ip-saddr 10.0.0.1 nat p",
        "add-stateful all accept",
    ]);
    let plain: End = ([10, 0, 0, 2], 4000);
    net.run(IN, &udp(client, server));
    net.run(IN, &udp(plain, server));
    let shown: End = ([200, 0, 0, 1], 4000);
    let later = Ip4 { fragment_offset: 3, ..Ip4::new(shown.0, server.0) };
    let about = error(3, 4, server.0, shown.0, &udp(shown, server));
    for frame in [
        udp(client, server),
        udp(server, shown),
        udp(plain, server),
        udp(server, plain),
        udp(shown, (server.0, 81)),
        Frame::new(later, Transport::Raw(17)).payload([0; 8]),
        about,
    ] {
        let before = frame.build();
        let mut after = before.clone();
        assert!(!net.harness.workers()[0].untranslate(&mut after, &parsed(&before)));
        assert_eq!(after, before);
    }
    let mut frame = udp(shown, server).build();
    let meta = parsed(&frame);
    assert!(net.harness.workers()[0].untranslate(&mut frame, &meta));
    assert_eq!(frame, udp(client, server).build());
}
