//! What must hold for sessions and translation whatever comes in. The fuzz target `session` runs it on
//! packets, time and changes of rules that it makes of the fuzzer's bytes, tests of the crate on the corpus
//! and on random bytes.
//!
//! * Each packet comes out once, or is dropped once, or waits and does so later; its length stays, unless
//!   `synproxy` has made a SYN of it. What functions of chains make comes out besides.
//! * A packet with right checksums has right checksums when it comes out.
//! * What was translated has a reply that comes back to whom it is for, or is dropped.
//! * What was translated leads back to what it was.
//! * When everything is over, nothing is left.

use std::net::IpAddr;

use mmb_flow::{
    Direction, Key, Mangle, NatConfig, SessionSettings, TcpSegment, Timeouts, TrackInput, TrackState,
    parse_quote, translate, translate_icmp_error, untranslate,
};
use mmb_nf::{Context, DropReason, EmitTarget, Function, Packet, Properties, Setup, Verdict};
use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Tcp, Transport, Udp};
use mmb_packet::{Kind, Meta, PacketBuf, VecPacket, flags, parse};
use mmb_policy::Policy;
use mmb_session::{Driver, Outcome, Rules, Sent};

/// Each byte of a configuration takes some of these.
const RULES: [&str; 8] = [
    "add-stateful ip-saddr 10.0.0.0/8 nat p",
    "add-stateful ip6-saddr fd00::/8 map ip6-saddr 2001:db8::1 shuffle ip6-flow-label",
    "add-stateful ip-saddr 10.0.0.0/8 ip-proto tcp shuffle tcp-seq-num map tcp-ack-num 7 shuffle tcp-sport",
    "add-stateful udp-dport 53 map ip-daddr 192.0.2.9 map udp-dport 5353 map ip-id 99",
    "add-stateful ip-daddr 192.0.2.100 lb 192.0.2.1 192.0.2.2",
    "add-stateful ip-saddr 10.0.0.0/8 accept",
    "add in port1 out port0 ip-ttl < 64 drop",
    "add-stateful tcp-dport 80 ip-ttl > 3 mod ip-dscp 7 map ip-saddr 200.0.2.0/30",
];

/// The same where sessions go through chains.
const CHAINED: [&str; 8] = [
    "add-stateful ip-saddr 10.0.0.0/8 chain away",
    "add-stateful ip6-saddr fd00::/8 chain plain",
    "add-stateful ip-saddr 10.0.0.0/8 ip-proto tcp shuffle tcp-seq-num map tcp-ack-num 7 chain plain",
    "add-stateful udp-dport 53 map ip-daddr 192.0.2.9 map udp-dport 5353 chain twice",
    "add-stateful ip-daddr 192.0.2.100 chain web",
    "add-stateful tcp-dport 80 chain guarded",
    "add in port1 out port0 ip-ttl < 64 mod ip-id 99",
    "add-stateful ip-saddr 10.0.0.0/8 nat p chain plain",
];
const FUNCTIONS: [&str; 14] = [
    "nf add m monitor",
    "nf add c count",
    "nf add k mark dscp 3",
    "nf add s mss-clamp 500",
    "nf add r police 8kbit burst 1518 per source",
    "nf add a acl deny ip-saddr 10.0.0.3 allow",
    "nf add n nat p",
    "nf add b lb 192.0.2.1 192.0.2.2:5353 by least-connections",
    "nf add p split web: tcp-dport {80,5353} dns: udp-dport {53,5353}",
    "nf add t mirror port1 forward",
    "nf add f flow",
    "nf add g flow",
    "nf add y synproxy",
    "nf add w whim ip-proto udp",
];
/// As they are, and after a change.
const CHAINS: [[&str; 5]; 2] = [
    [
        "chain add away m | n | c",
        "chain add plain c | [w | k, else: s | t]",
        "chain add twice m | f | c",
        "chain add web b | p [web: s, dns: drop, rest: pass] | r",
        "chain add guarded y | a",
    ],
    [
        "chain add away a | n | f | m",
        "chain add plain [c | w, else: t] | k",
        "chain add twice m | f | c | g | r",
        "chain add web a | b | p [web: r, dns: m, rest: drop]",
        "chain add guarded c | y",
    ],
];

/// A function that takes the traffic it is told to, and does whatever the last byte of a packet says.
struct Whim(String);

impl Function for Whim {
    const TYPE: &'static str = "whim";
    const USAGE: &'static str = "MATCH…";
    const HELP: &'static str = "does anything";
    type Pad = u64;
    type Local = ();

    fn new(setup: &Setup<'_>) -> Result<Self, mmb_nf::ArgError> {
        Ok(Whim(setup.args.join(" ")))
    }

    fn properties(&self) -> Properties {
        Properties { accepts: self.0.clone(), ..Properties::default() }
    }

    fn packet(&self, packet: &mut Packet<'_>, pad: &mut u64, cx: &mut Context<'_, ()>) -> Verdict {
        *pad += 1;
        let last = packet.head.last().copied().unwrap_or(0);
        match last >> 2 & 7 {
            0 => Verdict::Drop(DropReason::ChainError),
            1 => Verdict::Refuse(DropReason::Acl),
            2 => Verdict::End(DropReason::BackendDown),
            3 => {
                cx.emit([EmitTarget::Ingress, EmitTarget::Egress][usize::from(last >> 7)], packet.head);
                Verdict::Pass
            }
            4 if *pad > 3 => Verdict::Branch(last),
            _ => Verdict::Pass,
        }
    }
}

/// Timeouts that a few bytes of time can reach.
const TIMEOUTS: Timeouts = Timeouts {
    tcp_handshake: 4_000,
    tcp_established: 60_000,
    tcp_half_closed: 9_000,
    tcp_closed: 5_000,
    tcp_reset: 3_000,
    udp_unreplied: 7_000,
    udp_replied: 20_000,
    icmp: 6_000,
    other: 8_000,
    fragment: 2_000,
};
/// Longer than all of them, and what is kept beyond them.
const FOREVER: u32 = 400_000;
const SESSIONS: usize = 24;

const FILTERING: [&str; 3] = ["endpoint-independent", "address-dependent", "address-and-port-dependent"];

/// Whether a configuration has chains.
const CHAINS_TOO: u8 = 0x40;

fn rules(config: u8, more: u8, workers: u16, before: Option<&Rules>) -> Rules {
    let filtering = FILTERING[usize::from(more >> 2) % 3];
    let pool =
        format!("nat pool add p 200.0.1.1-200.0.1.2 ports 2000-2031 block 16 limit 12 filtering {filtering}");
    let chained = more & CHAINS_TOO != 0;
    let all = if chained { CHAINED } else { RULES };
    let mut lines: Vec<&str> = (0..8).filter(|n| config & 1 << n != 0).map(|n| all[n]).collect();
    lines.push(&pool);
    if chained {
        lines.extend(FUNCTIONS);
        lines.extend(CHAINS[usize::from(more & 1)]);
    }
    if more & 1 != 0 {
        lines.push("nat forward add tcp 200.0.1.1 80 to 10.0.0.2 80");
    }
    let settings =
        SessionSettings { timeouts: TIMEOUTS, tcp_pickup: more & 2 == 0, tcp_window_check: more & 0x80 != 0 };
    let mut registry = mmb_nf_builtin::registry();
    registry.add::<Whim>();
    let rules = Rules::read_with(&lines, settings, before, &registry, workers).expect("good lines");
    // Both ports are a wire's, or routed, or one of them.
    let routed: &[u16] = [&[][..], &[0, 1], &[0], &[1]][usize::from(more >> 4 & 3)];
    rules.routed(routed, |to| match to {
        IpAddr::V4(to) => Some(u16::from(to.octets()[0] != 10)),
        IpAddr::V6(to) => Some(u16::from(to.octets()[0] != 0xfd)),
    })
}

/// Panics if a promise is broken on what the bytes say.
pub fn check(bytes: &[u8]) {
    any_metadata(bytes);
    any_segments(bytes);
    let Some((&[config, more, workers], steps)) = bytes.split_first_chunk() else { return };
    let workers = 1 + u16::from(workers % 3);
    let first = rules(config, more, workers, None);
    let driver = Driver::new(workers, SESSIONS, 1, first).expect("memory");
    let mut history = History { driver, now: 0, came: 0, went: 0, last: None };
    history.driver.pass(0);
    history.run(steps);
    history.end();
}

struct History {
    driver: Driver,
    now: u32,
    came: usize,
    went: usize,
    /// The last packet that went out, and by which port.
    last: Option<(u16, Vec<u8>)>,
}

impl History {
    fn run(&mut self, mut bytes: &[u8]) {
        while let Some((&[what, a], rest)) = bytes.split_first_chunk() {
            bytes = rest;
            let in_port = u16::from(what >> 7);
            match what & 7 {
                0 => self.wait(u32::from(a) * 100),
                1 => {
                    let (frame, rest) = bytes.split_at(bytes.len().min(a.into()));
                    self.packet(in_port, frame);
                    bytes = rest;
                }
                2 => {
                    let workers = self.driver.workers().len() as u16;
                    let rules = rules(a, what, workers, Some(self.driver.rules()));
                    self.driver.change(rules);
                }
                3 | 4 => {
                    let Some((details, rest)) = bytes.split_first_chunk() else { return };
                    bytes = rest;
                    let mut frame = made(a, details);
                    if what & 7 == 4
                        && let Some((&[at, value], rest)) = bytes.split_first_chunk()
                    {
                        bytes = rest;
                        let place = usize::from(at) % frame.len();
                        frame[place] = value;
                    }
                    self.packet(in_port, &frame);
                }
                5 => self.complain(a),
                6 => self.reply(a),
                _ => self.drop_all(),
            }
        }
    }

    fn drop_all(&mut self) {
        let (workers, rules) = self.driver.workers_mut();
        for sessions in workers {
            while sessions.clear_batch(2, rules) {}
        }
    }

    fn wait(&mut self, milliseconds: u32) {
        self.now += milliseconds;
        let sent = self.driver.pass(self.now);
        self.take(&sent);
    }

    fn take(&mut self, sent: &[Sent]) {
        for sent in sent {
            if matches!(sent.outcome, Outcome::Emitted(_)) {
                continue;
            }
            self.went += 1;
            assert_ne!(sent.outcome, Outcome::Lost);
            if let Outcome::Out(port) = sent.outcome {
                self.last = Some((port, sent.packet.head().to_vec()));
            }
        }
        let waiting = self.came - self.went;
        assert!(waiting <= 1024, "{waiting} wait");
        for sessions in self.driver.workers() {
            assert!(sessions.counters().sessions <= SESSIONS as u64);
        }
    }

    /// One packet, and what it must not do.
    fn packet(&mut self, in_port: u16, frame: &[u8]) {
        self.came += 1;
        let sent = self.driver.run(in_port, VecPacket::new(frame));
        if let [Sent { packet, outcome: Outcome::Out(port), .. }] = &sent[..] {
            let out = packet.head();
            if self.driver.rules().chains.chain("guarded").is_some() && out.len() != frame.len() {
                return self.take(&sent);
            }
            assert_eq!(out.len(), frame.len());
            let (mut before, mut after) = (Meta::default(), Meta::default());
            if parse(frame, frame.len(), &mut before).is_ok() && before.kind != Kind::default() {
                assert_eq!(parse(out, out.len(), &mut after), Ok(()));
                assert_eq!((before.kind, before.l4_off, before.end), (after.kind, after.l4_off, after.end));
                let sound = is_right(frame, &before);
                assert!(!sound || is_right(out, &after), "checksum: {frame:x?} {out:x?}");
                self.leads_back(frame, &before, out);
                self.comes_back(frame, &before, *port, out);
            }
        }
        self.take(&sent);
    }

    /// What has other addresses or ports than before is led back to them, if one worker knows everything.
    fn leads_back(&self, frame: &[u8], meta: &Meta, out: &[u8]) {
        let ports = matches!(meta.kind.l4(), Kind::TCP | Kind::UDP | Kind::L4_NONE);
        let moved = ends(frame, meta) != ends(out, meta);
        let whole = meta.flags & (flags::LATER_FRAGMENT | flags::ROUTED) == 0;
        if let ([sessions], true) = (self.driver.workers(), ports && moved && whole) {
            let mut back = out.to_vec();
            assert!(sessions.untranslate(&mut back, meta), "{frame:x?} {out:x?}");
            assert_eq!(ends(&back, meta), ends(frame, meta), "{frame:x?} {out:x?}");
            let sound = is_right(frame, meta);
            assert!(!sound || is_right(&back, meta), "checksum: {frame:x?} {out:x?} {back:x?}");
        }
    }

    /// What has other addresses or ports than before has a session. Its reply is for the one who sent it.
    fn comes_back(&mut self, frame: &[u8], meta: &Meta, port: u16, out: &[u8]) {
        let whole = meta.flags & (flags::FRAGMENT | flags::ROUTED) == 0;
        let ports = matches!(meta.kind.l4(), Kind::TCP | Kind::UDP);
        let moved = ends(frame, meta) != ends(out, meta);
        if !(whole && ports && moved) {
            return;
        }
        let mut reply = turned(out, meta);
        if meta.kind.l4() == Kind::TCP {
            reply[usize::from(meta.l4_off) + 13] = TcpSegment::ACK;
        }
        self.came += 1;
        let sent = self.driver.run(port, VecPacket::new(&reply));
        if let [Sent { packet, outcome: Outcome::Out(_), .. }] = &sent[..] {
            assert_eq!(ends(packet.head(), meta), ends(&turned(frame, meta), meta), "{frame:x?} {out:x?}");
        }
        self.take(&sent);
    }

    /// The other side sends the last packet back, with other flags.
    fn reply(&mut self, flags: u8) {
        let Some((port, frame)) = self.last.take() else { return };
        let mut meta = Meta::default();
        if parse(&frame, frame.len(), &mut meta).is_err() || meta.kind == Kind::default() {
            return;
        }
        let mut frame = turned(&frame, &meta);
        if meta.kind.l4() == Kind::TCP {
            frame[usize::from(meta.l4_off) + 13] = flags;
        }
        self.packet(port, &frame);
    }

    /// The other side, or a router behind it, complains about the last packet.
    fn complain(&mut self, a: u8) {
        let Some((port, frame)) = self.last.take() else { return };
        let mut meta = Meta::default();
        if parse(&frame, frame.len(), &mut meta).is_err() {
            return;
        }
        let l3 = usize::from(meta.l3_off);
        let quoted = &frame[l3..frame.len().min(l3 + 48 + usize::from(a))];
        let transport = |kind| Icmp { code: a & 3, ..Icmp::new(kind) };
        let error = match meta.kind.l3() {
            Kind::IP4 => {
                let [from, to] =
                    [16, 12].map(|at| <[u8; 4]>::try_from(&quoted[at..at + 4]).expect("four bytes"));
                let from = if a & 4 == 0 { from } else { [198, 51, 100, a] };
                Frame::new(Ip4::new(from, to), transport([3, 11, 12, 4][usize::from(a >> 6)]))
            }
            Kind::IP6 => {
                let [from, to] =
                    [24, 8].map(|at| <[u8; 16]>::try_from(&quoted[at..at + 16]).expect("sixteen bytes"));
                Frame::new(Ip6::new(from, to), transport([1, 2, 3, 4][usize::from(a >> 6)]))
            }
            _ => return,
        };
        self.packet(port, &error.payload(quoted).build());
    }

    /// After long enough, nothing is left.
    fn end(mut self) {
        for _ in 0..4 {
            self.wait(FOREVER / 4);
        }
        assert_eq!(self.came, self.went, "packets wait for ever");
        let rules = Rules::new(Policy::new(), NatConfig::default(), self.driver.rules().settings);
        self.driver.change(rules);
        for sessions in self.driver.workers() {
            assert_eq!((sessions.counters().sessions, sessions.nat().mappings()), (0, 0));
        }
    }
}

/// Addresses and ports.
fn ends(frame: &[u8], meta: &Meta) -> (Vec<u8>, [u8; 4]) {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let addresses = if meta.kind.l3() == Kind::IP4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let ports = frame.get(l4..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
    (frame[addresses].to_vec(), ports)
}

/// The frame the other way round. Its checksums stay right.
fn turned(frame: &[u8], meta: &Meta) -> Vec<u8> {
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

fn sum(bytes: &[u8], start: u32) -> u32 {
    let sum = bytes.chunks(2).fold(u64::from(start), |sum, pair| {
        sum + u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
    });
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    ((sum & 0xffff) + (sum >> 16)) as u32
}

/// Whether the checksums of a parsed frame are right, as RFC 1071 sums them: all ones. Fragments have none of
/// their own.
fn is_right(frame: &[u8], meta: &Meta) -> bool {
    let (l3, l4, end) = (usize::from(meta.l3_off), usize::from(meta.l4_off), usize::from(meta.end));
    let header = usize::from(frame[l3] & 0x0f) * 4;
    let ip4 = meta.kind.l3() == Kind::IP4;
    if ip4 && sum(&frame[l3..l3 + header], 0) != 0xffff {
        return false;
    }
    let checked = matches!(meta.kind.l4(), Kind::TCP | Kind::UDP | Kind::ICMP | Kind::ICMP6);
    if !checked || meta.flags & (flags::FRAGMENT | flags::ROUTED) != 0 {
        return true;
    }
    if meta.kind.l4() == Kind::UDP && (frame[l4 + 6..l4 + 8] == [0, 0] || usize::from(meta.end) < l4 + 8) {
        return ip4;
    }
    let pseudo = match meta.kind.l4() {
        Kind::ICMP => 0,
        _ => sum(&ends(frame, meta).0, u32::from(meta.proto) + (end - l4) as u32),
    };
    sum(&frame[l4..end], pseudo) == 0xffff
}

/// A sound frame from a few bytes, so that the fuzzer gets far.
fn made(kind: u8, &[ends, ports, flags, seq]: &[u8; 4]) -> Vec<u8> {
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

/// Metadata of another packet, or of none: no panic, and nothing done beyond the head.
fn any_metadata(bytes: &[u8]) {
    let Some((&[l3, l4, end, kind, proto], head)) = bytes.split_first_chunk() else { return };
    let (l3_off, l4_off) = (u16::from(l3), u16::from(l3) + u16::from(l4));
    let meta = Meta {
        l3_off,
        l4_off,
        end: l4_off + u16::from(end),
        kind: Kind(kind),
        proto,
        flags: end & 7,
        ..Meta::default()
    };
    let from = Key { kind, proto, ..Key::default() };
    let to = Key { source: [7; 16], destination: [8; 16], source_port: [9; 2], ..from };
    let mangle = Mangle { sequence: 77, acknowledgment: 88, new_label: 5, ip_id: 3, ..Mangle::default() };
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut head = head.to_vec();
        let quoted = parse_quote(&head, &meta);
        let _ = translate(&mut head, &meta, &from, &to, Some(&mangle), direction);
        let _ = untranslate(&mut head, &meta, &to, &from, Some(&mangle), direction);
        if let Some(quoted) = quoted {
            let _ = translate_icmp_error(&mut head, &meta, &quoted, &from, &to, Some(&mangle), direction);
        }
    }
}

/// The tracker takes any segments in any order.
fn any_segments(bytes: &[u8]) {
    let segment = |chunk: &[u8; 8]| {
        let [flags, window, seq, ack, len, high, scale, way] = *chunk;
        let long = |byte: u8| u32::from(byte) << (high & 0x18) | u32::from(high >> 6) << 30;
        let segment = TcpSegment {
            seq: long(seq),
            ack: long(ack),
            len: len.into(),
            window: u16::from(window) << 8,
            flags,
            scale: (scale & 1 != 0).then_some(scale >> 1),
        };
        (if way & 1 == 0 { Direction::Forward } else { Direction::Reverse }, TrackInput::Tcp(segment))
    };
    let (chunks, _) = bytes.as_chunks();
    for tcp_window_check in [false, true] {
        let settings = SessionSettings { tcp_window_check, ..SessionSettings::default() };
        let (mut acks, mut track) = ([0; 2], None::<TrackState>);
        for (direction, traffic) in chunks.iter().map(segment) {
            match &mut track {
                None => track = TrackState::open(&traffic, &mut acks, &settings).ok().map(|(track, _)| track),
                Some(track) => {
                    let seen = track.update(direction, &traffic, &mut acks, &settings);
                    assert!(seen.timeout > 0 && !track.state_name().is_empty());
                    assert!(!seen.settled[0] || !tcp_window_check);
                }
            }
        }
    }
}
