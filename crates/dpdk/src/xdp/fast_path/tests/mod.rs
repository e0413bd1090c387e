//! Runs the program in the kernel (as root) and compares its results with frames built from scratch and with
//! a naive parser.
#![allow(clippy::unwrap_used)]

mod cost;
mod endings;
mod numbers;
mod rules;
mod tc;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
use mmb_packet::checksum;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::fast_flow::{FAST_FIN, FAST_RST, FastMacs, FastTranslation};
use super::super::program::XdpProgram;
use super::super::program::tests::{in_namespace, run_on, unbound_socket};
use super::*;
use crate::port::{NetDev, XdpFeatures};

/// The generation in force.
pub(crate) const NOW: u64 = 7;

/// A port on `mmb0` without a socket, so that its frames go to the kernel; and a port on `peer0` to send to.
pub(crate) struct Rig {
    port: XdpProgram,
    out: Member,
    pub(crate) path: Arc<FastPath>,
    _alone: MutexGuard<'static, ()>,
}

fn index(name: &str) -> u32 {
    NetDev::lookup(name).unwrap().unwrap().index
}

/// The rig; None without root.
pub(crate) fn rig() -> Option<Rig> {
    let alone = in_namespace()?;
    let socket = unbound_socket();
    let port = XdpProgram::attach(index("mmb0"), socket.as_raw_fd()).unwrap();
    port.engage();
    drop(socket);
    let out = Member::join(index("peer0")).unwrap();
    let path = Arc::clone(&out.path);
    assert!(Arc::ptr_eq(&path, &port.fast().unwrap().unwrap().path), "all ports share one");
    path.set_generation(NOW, FastGranularity::Flow);
    Some(Rig { port, out, path, _alone: alone })
}

impl Rig {
    /// The forwarded frame; None: the frame went to the socket unchanged.
    pub(crate) fn send(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let (verdict, out, _) = run_on(&self.port, frame, 1);
        match verdict {
            sys::XDP_REDIRECT => Some(out),
            sys::XDP_PASS => {
                assert_eq!(out, frame, "a frame that is not forwarded is unchanged");
                None
            }
            verdict => panic!("verdict {verdict}"),
        }
    }

    pub(crate) fn key(&self, proto: u8, from: (IpAddr, u16), to: (IpAddr, u16)) -> FastKey {
        let port = self.port.fast().unwrap().unwrap().port;
        FastKey {
            granularity: FastGranularity::Flow,
            port,
            proto,
            source: from.0,
            destination: to.0,
            source_port: from.1,
            destination_port: to.1,
        }
    }

    /// Forwards packets of up to 1,500 bytes unchanged.
    pub(crate) fn wire(&self) -> FastAction {
        FastAction::forward_unchanged(self.out.port, 1500)
    }

    /// Forwards as a router with NAT to these addresses and ports.
    fn nat(&self, source: (IpAddr, u16), destination: (IpAddr, u16)) -> FastAction {
        FastAction {
            macs: Some(FastMacs { destination: [0xaa; 6], source: [0xbb; 6] }),
            decrement_ttl: true,
            translation: Some(FastTranslation {
                source: source.0,
                destination: destination.0,
                source_port: source.1,
                destination_port: destination.1,
            }),
            ..self.wire()
        }
    }
}

/// Address and port.
pub(crate) type End = (IpAddr, u16);

/// The parameters of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    proto: u8,
    pub(crate) ends: [End; 2],
    macs: [[u8; 6]; 2],
    ttl: u8,
    /// Random bits for the other fields.
    noise: u32,
    payload: Vec<u8>,
    partial: bool,
    pad: usize,
}

impl Sent {
    fn frame(&self) -> Frame {
        let [(src, sport), (dst, dport)] = self.ends;
        let noise = self.noise;
        let net: Net = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (tos, id) = (noise as u8, (noise >> 8) as u16);
                Ip4 { tos, id, ttl: self.ttl, flags: 2 * (noise & 1) as u8, ..Ip4::new(src, dst) }.into()
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (traffic_class, flow_label) = (noise as u8, noise >> 12);
                Ip6 { traffic_class, flow_label, hop_limit: self.ttl, ..Ip6::new(src, dst) }.into()
            }
            _ => unreachable!(),
        };
        let transport: Transport = match self.proto {
            6 => {
                // ACK, with or without PSH, URG, ECE and CWR.
                let (flags, seq) = (0x10 | noise as u8 & 0xe8, noise.wrapping_mul(0x9e37_79b1));
                let options = match (noise >> 5) as usize % 11 {
                    // Timestamps, or padding.
                    3 => [[1, 1, 8, 10], seq.to_be_bytes(), noise.to_be_bytes()].concat(),
                    words => vec![1; words * 4],
                };
                Tcp { flags, seq, ack: !seq, window: noise as u16, options, ..Tcp::new(sport, dport) }.into()
            }
            17 => Udp { checksum: src.is_ipv6() || noise & 6 != 0, ..Udp::new(sport, dport) }.into(),
            _ => Icmp {
                rest: bytemuck::cast([sport.to_be(), noise as u16]),
                ..Icmp::new(u8::try_from(dport).unwrap())
            }
            .into(),
        };
        let frame = Frame::new(net, transport).macs(self.macs[0], self.macs[1]);
        let frame = frame.payload(self.payload.clone()).pad_to(self.pad);
        if self.partial { frame.partial_checksum() } else { frame }
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        self.frame().build()
    }
}

fn v4() -> impl Strategy<Value = IpAddr> {
    prop_oneof![Just(0), Just(u32::MAX), any::<u32>()].prop_map(|n| Ipv4Addr::from(n).into())
}

fn v6() -> impl Strategy<Value = IpAddr> {
    prop_oneof![Just(0), Just(u128::MAX), any::<u128>()].prop_map(|n| Ipv6Addr::from(n).into())
}

/// A packet of an IPv4 flow.
pub(crate) fn packet(proto: u8) -> Sent {
    let ends = [([10, 0, 0, 1].into(), 1000), ([10, 0, 0, 2].into(), if proto == 1 { 8 } else { 80 })];
    Sent { proto, ends, macs: [[2; 6]; 2], ttl: 64, noise: 4, payload: vec![5; 30], partial: false, pad: 60 }
}

/// A packet of an IPv6 flow.
fn packet6(proto: u8) -> Sent {
    let [source, destination] = [1, 2].map(|n| Ipv6Addr::from(0xfd_u128 << 120 | n));
    let ends = [(source.into(), 1000), (destination.into(), if proto == 58 { 128 } else { 80 })];
    Sent { ends, ..packet(proto) }
}

/// A packet of a supported protocol, and its addresses and ports after a translation.
fn sent() -> impl Strategy<Value = (Sent, [End; 2])> {
    let port = || prop_oneof![Just(0), Just(u16::MAX), any::<u16>()];
    let addresses = prop_oneof![prop::array::uniform4(v4()), prop::array::uniform4(v6())];
    let ports = prop::array::uniform4(port());
    let granularity = (0u8..3, any::<bool>(), any::<bool>(), 1u8..=255, any::<u32>());
    let data = (prop::collection::vec(any::<u8>(), 0..1400), 0usize..300);
    (addresses, ports, granularity, data, any::<[[u8; 6]; 2]>()).prop_map(
        |(addresses, ports, (kind, reply, partial, ttl, noise), (payload, pad), macs)| {
            let ip6 = addresses[0].is_ipv6();
            let proto = [6, 17, if ip6 { 58 } else { 1 }][usize::from(kind)];
            let mut ports = ports;
            if kind == 2 {
                let kind = if ip6 { 128 + u16::from(reply) } else { 8 * u16::from(!reply) };
                (ports[1], ports[3]) = (kind, kind);
            }
            let ends = [(addresses[0], ports[0]), (addresses[1], ports[1])];
            let sent = Sent { proto, ends, macs, ttl, noise, payload, partial: partial && kind < 2, pad };
            (sent, [(addresses[2], ports[2]), (addresses[3], ports[3])])
        },
    )
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

/// A forwarded packet equals the one that the builder makes for the new addresses.
#[test]
fn forwarded_packets_equal_built_ones() {
    let Some(rig) = rig() else { return };
    let macs = prop::option::of(any::<[[u8; 6]; 2]>());
    let cases = (sent(), macs, any::<[bool; 3]>());
    let result = runner(4000).run(&cases, |((sent, ends), macs, [hop, translate, track_tcp])| {
        let key = rig.key(sent.proto, sent.ends[0], sent.ends[1]);
        let mut after = Sent { partial: false, ..sent.clone() };
        let mut action = FastAction { track_tcp, decrement_ttl: hop, ..rig.wire() };
        if let Some([source, destination]) = macs {
            action.macs = Some(FastMacs { destination, source });
            after.macs = [source, destination];
        }
        if translate {
            action.translation = rig.nat(ends[0], ends[1]).translation;
            after.ends = ends;
        }
        after.ttl -= u8::from(hop);
        rig.path.install(1, NOW, &key, &action).unwrap();
        let (before, expected) = (sent.build(), after.build());
        let got = rig.send(&before);
        if hop && sent.ttl == 1 || before.len() > 1514 {
            prop_assert_eq!(got, None);
            prop_assert_eq!(rig.path.flow_stats(1), FastFlowStats::default());
        } else {
            prop_assert_eq!(got, Some(expected));
            let stats = rig.path.flow_stats(1);
            prop_assert_eq!((stats.packets, stats.bytes), (1, before.len() as u64));
            prop_assert_eq!(stats.ack.is_some(), track_tcp && sent.proto == 6);
        }
        rig.path.remove(&key, 1);
        prop_assert_eq!(rig.send(&before), None);
        Ok(())
    });
    result.unwrap();
}

/// Protocol, addresses and ports, and TCP flags (for other protocols, flags that are always forwarded).
type Read = (u8, [End; 2], u8);

/// Parses a frame by the documented rules; None: it goes to the socket.
fn parse_frame(frame: &[u8]) -> Option<Read> {
    let word = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().unwrap()));
    let ip = frame.get(14..)?;
    let (proto, src, dst, l4): (u8, IpAddr, IpAddr, &[u8]) = match word(12)? {
        0x0800 => {
            let header: &[u8; 20] = ip.first_chunk()?;
            let total = usize::from(word(16)?);
            if header[0] != 0x45
                || word(20)? & !0x4000 != 0
                || checksum::fold(checksum::sum(header, 0)) != 0xffff
            {
                return None;
            }
            let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&header[at..at + 4]).unwrap());
            (header[9], address(12), address(16), ip.get(20..total)?)
        }
        0x86dd => {
            let header: &[u8; 40] = ip.first_chunk()?;
            let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&header[at..at + 16]).unwrap());
            let l4 = ip.get(40..40 + usize::from(word(18)?))?;
            if header[0] >> 4 != 6 {
                return None;
            }
            (header[6], address(8), address(24), l4)
        }
        _ => return None,
    };
    let word = |at: usize| u16::from_be_bytes([l4[at], l4[at + 1]]);
    let flags = match (proto, src.is_ipv4()) {
        (6, _) if l4.len() >= 20 => {
            let header = usize::from(l4[12] >> 4) * 4;
            (header >= 20 && header <= l4.len()).then_some(l4[13])
        }
        (17, ip4) if l4.len() >= 8 => {
            (usize::from(word(4)) == l4.len() && (ip4 || word(6) != 0)).then_some(0x10)
        }
        (1, true) if l4.len() >= 8 => return matches!(l4[..2], [0 | 8, 0]).then(|| echo(src, dst, l4)),
        (58, false) if l4.len() >= 8 => return matches!(l4[..2], [128 | 129, 0]).then(|| echo(src, dst, l4)),
        _ => None,
    };
    flags.map(|flags| (proto, [(src, word(0)), (dst, word(2))], flags))
}

fn echo(src: IpAddr, dst: IpAddr, l4: &[u8]) -> Read {
    let identifier = u16::from_be_bytes([l4[4], l4[5]]);
    (if src.is_ipv4() { 1 } else { 58 }, [(src, identifier), (dst, l4[0].into())], 0x10)
}

/// Whether a TCP segment with these flags is forwarded by an action.
fn is_forwarded(flags: u8, action: &FastAction) -> bool {
    match flags & 0x17 {
        0x10 => true,
        _ => action.pass_control,
    }
}

/// Whether packets with this source must not be forwarded to this destination (RFC 1812, 5.3.7, and RFC 4291,
/// 2.5).
fn is_martian(source: IpAddr, destination: IpAddr) -> bool {
    match source {
        _ if source == destination => true,
        IpAddr::V4(source) => matches!(source.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(source) => {
            source.is_multicast()
                || source.to_ipv4_mapped().is_some()
                || source.is_unicast_link_local()
                || source.is_unspecified()
                || source.is_loopback()
        }
    }
}

/// Damages a frame.
fn damage(frame: &mut Vec<u8>, flips: &[(usize, u8)], len: usize, fix: bool) {
    for (at, bits) in flips {
        let at = at % frame.len();
        frame[at] ^= bits;
    }
    frame.truncate(len);
    if fix && frame.len() >= 34 && frame[12..14] == [8, 0] {
        // Otherwise the header checksum hides nearly all other damage.
        frame[24..26].fill(0);
        let sum = !checksum::fold(checksum::sum(&frame[14..34], 0));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Of damaged frames, exactly the valid ones of the installed flow are forwarded, unchanged but for completed
/// checksums.
#[test]
fn only_valid_packets_of_the_flow_are_forwarded() {
    let Some(rig) = rig() else { return };
    let flip = (0usize..80, any::<u8>());
    // TCP flags change more often.
    let flip = prop_oneof![3 => flip, 1 => (prop_oneof![Just(47usize), Just(67)], any::<u8>())];
    let changes = prop_oneof![
        3 => prop::collection::vec(flip, 0..3).prop_map(|flips| (flips, usize::MAX)),
        1 => (14usize..120).prop_map(|len| (Vec::new(), len)),
    ];
    let hits = std::cell::Cell::new(0);
    let shapes = vec![FastGranularity::Flow, FastGranularity::Pair, FastGranularity::Destination];
    let cases = (sent(), changes, any::<[bool; 2]>(), prop::sample::select(shapes));
    let result =
        runner(30_000).run(&cases, |((sent, ends), (flips, len), [fix, pass_control], granularity)| {
            let (key, slot) = (rig.key(sent.proto, sent.ends[0], sent.ends[1]), 1);
            let key = match granularity {
                FastGranularity::Flow => key,
                FastGranularity::Pair => key.without_ports(),
                FastGranularity::Destination => FastKey::for_destination(key.port, key.destination),
            };
            rig.path.set_generation(NOW, granularity);
            let mut frame = sent.build();
            damage(&mut frame, &flips, len, fix);
            let action = FastAction { pass_control, ..rig.wire() };
            rig.path.install(slot, NOW, &key, &action).unwrap();
            let got = rig.send(&frame);
            let flow = parse_frame(&frame).filter(|_| frame.len() <= 1514);
            let expected = flow.filter(|(proto, ends, flags)| {
                let same = match granularity {
                    FastGranularity::Flow => (*proto, *ends) == (sent.proto, sent.ends),
                    FastGranularity::Pair => {
                        (*proto, ends.map(|end| end.0)) == (sent.proto, sent.ends.map(|end| end.0))
                    }
                    FastGranularity::Destination => {
                        ends[1].0 == sent.ends[1].0 && !is_martian(ends[0].0, ends[1].0)
                    }
                };
                same && is_forwarded(*flags, &action)
            });
            prop_assert_eq!(got.is_some(), expected.is_some());
            if let (Some(got), Some((proto, _, flags))) = (got, expected) {
                let mut meta = mmb_packet::Meta::default();
                if mmb_packet::parse(&frame, frame.len(), &mut meta).is_ok() {
                    checksum::complete_partial(&mut frame, [], &meta);
                }
                prop_assert_eq!(got, frame.clone());
                let ended = if proto == 6 { flags & (FAST_FIN | FAST_RST) } else { 0 };
                prop_assert_eq!(rig.path.flow_stats(slot).ended, ended);
                if granularity == FastGranularity::Flow {
                    // With a translation it is changed; the test above checks how.
                    let nat = FastAction { pass_control, ..rig.nat(ends[0], ends[1]) };
                    rig.path.install(slot, NOW, &key, &nat).unwrap();
                    prop_assert_ne!(rig.send(&frame), Some(frame));
                }
                hits.set(hits.get() + 1);
            }
            rig.path.remove(&key, slot);
            Ok(())
        });
    result.unwrap();
    assert!(hits.get() > 2000, "{hits:?}");
}
