//! Two hosts, and what stands between them.

use super::*;

pub(super) const CLIENT: [u8; 4] = [192, 0, 2, 9];
pub(super) const SERVER: [u8; 4] = [198, 51, 100, 1];
pub(super) const CLIENT6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 9];
pub(super) const SERVER6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
pub(super) const PSH: u8 = 8;

/// What a host offers in its SYN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    pub isn: u32,
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack: bool,
    /// Its clock for timestamps.
    pub clock: Option<u32>,
    /// Bytes that it takes.
    pub window: u32,
    pub ip6: bool,
}

pub(super) fn host() -> impl Strategy<Value = Host> {
    use prop::option::of;
    let options = (of(64..10_000u16), of(0..15u8), any::<bool>(), of(any::<u32>()));
    (any::<u32>(), options, 0..1u32 << 20, any::<bool>()).prop_map(
        |(isn, (mss, scale, sack, clock), window, ip6)| Host { isn, mss, scale, sack, clock, window, ip6 },
    )
}

/// A client as Linux is one.
pub(super) fn linux() -> Host {
    Host {
        isn: 1000,
        mss: Some(1460),
        scale: Some(7),
        sack: true,
        clock: Some(90_000),
        window: 64_240,
        ip6: false,
    }
}

/// The options of a SYN in an order of its own.
pub(super) fn syn_options(host: &Host, echo: u32) -> Vec<u8> {
    let mut options = Vec::new();
    if let Some(clock) = host.clock {
        options.extend([8, 10]);
        options.extend(clock.to_be_bytes());
        options.extend(echo.to_be_bytes());
    }
    host.scale.iter().for_each(|scale| options.extend([3, 3, *scale]));
    if host.sack {
        options.extend([4, 2]);
    }
    host.mss.iter().for_each(|mss| {
        options.extend([2, 4]);
        options.extend(mss.to_be_bytes());
    });
    options
}

pub(super) fn stamps(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat()
}

pub(super) fn network(way: Direction, ip6: bool) -> Net {
    let forward = way == Forward;
    match (ip6, forward) {
        (false, true) => Ip4 { options: vec![1; 4], ..Ip4::new(CLIENT, SERVER) }.into(),
        (false, false) => Ip4::new(SERVER, CLIENT).into(),
        (true, true) => Ip6::new(CLIENT6, SERVER6).into(),
        (true, false) => Ip6::new(SERVER6, CLIENT6).into(),
    }
}

pub(super) fn frame(way: Direction, ip6: bool, tcp: Tcp) -> Frame {
    let (sport, dport) = if way == Forward { (40_000, 80) } else { (80, 40_000) };
    Frame::new(network(way, ip6), Tcp { sport, dport, ..tcp })
}

/// What stands in a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub len: u32,
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack: bool,
    pub stamps: Option<(u32, u32)>,
}

/// Reads a frame, whose checksums must be right.
pub(super) fn read(frame: &[u8]) -> Read {
    assert_checksums(frame);
    let meta = parsed(frame);
    let TcpSegment { seq, ack, len, window, flags, .. } = TcpSegment::read(frame, &meta).expect("TCP");
    let mut read = Read { seq, ack, flags, window, len, ..Read::default() };
    for option in tcp_options(frame, &meta) {
        match (option.kind, option.data) {
            (2, &[a, b]) => read.mss = Some(u16::from_be_bytes([a, b])),
            (3, &[scale]) => read.scale = Some(scale),
            (4, []) => read.sack = true,
            (8, &[a, b, c, d, e, f, g, h]) => {
                read.stamps = Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])));
            }
            other => panic!("{other:?}"),
        }
    }
    read
}

/// A connection through the function, with what the engine does around it.
pub(super) struct Wire {
    pub bench: Bench<Synproxy>,
    pub session: usize,
    /// The server's number less the client's idea of it.
    pub delta: u32,
    pub cookie: u32,
}

impl Wire {
    /// Translates as the engine does.
    pub(super) fn translated(&self, way: Direction, frame: &[u8]) -> Vec<u8> {
        let (mut frame, key) = (frame.to_vec(), key_of_frame(frame));
        let mangle = Mangle { acknowledgment: self.delta, ..Mangle::default() };
        let meta = parsed(&frame);
        translate(&mut frame, &meta, &key, &key, Some(&mangle), way).unwrap();
        frame
    }

    pub(super) fn forward(&mut self, tcp: Tcp, ip6: bool) -> (Done, Option<Read>) {
        let done = self.bench.packet(self.session, Forward, &frame(Forward, ip6, tcp).payload(*b"x").build());
        let passed = done.verdict == Verdict::Pass;
        let out = passed.then(|| read(&self.translated(Forward, &done.frame)));
        (done, out)
    }

    pub(super) fn reverse(&mut self, tcp: Tcp, ip6: bool) -> (Done, Option<Read>) {
        let came = frame(Reverse, ip6, tcp).build();
        let meta = parsed(&came);
        let segment = TcpSegment::read(&came, &meta).unwrap();
        if self.delta == 0 && segment.flags & (SYN | ACK) == SYN | ACK {
            self.delta = segment.seq.wrapping_sub(self.cookie);
        }
        let done = self.bench.packet(self.session, Reverse, &self.translated(Reverse, &came));
        let out = (done.verdict == Verdict::Pass).then(|| read(&done.frame));
        (done, out)
    }
}

pub(super) fn syn_of(host: &Host) -> Frame {
    let window = host.window.min(65_535) as u16;
    let options = syn_options(host, 0);
    frame(Forward, host.ip6, Tcp { seq: host.isn, flags: SYN, window, options, ..Tcp::default() })
}

/// A window as a host that scales tells it.
pub(super) fn advertised_window(window: u32, scale: Option<u8>) -> u16 {
    (window >> scale.unwrap_or(0)).min(65_535) as u16
}

/// The client's side of the handshake: the answer to its SYN, its acknowledgment, and whether it scales
/// windows.
pub(super) fn handshake(bench: &mut Bench<Synproxy>, client: &Host) -> (Read, Frame) {
    let (admission, answer, _) = bench.admit(&syn_of(client).build());
    assert_eq!(admission, Admission::Answer);
    let answer = read(&answer);
    let scale = client.scale.filter(|_| answer.scale.is_some());
    let options = match (client.clock, answer.stamps) {
        (Some(clock), Some((value, _))) => stamps(clock.wrapping_add(5), value),
        _ => Vec::new(),
    };
    let ack = Tcp {
        seq: client.isn.wrapping_add(1),
        ack: answer.seq.wrapping_add(1),
        flags: ACK,
        window: advertised_window(client.window, scale),
        options,
        ..Tcp::default()
    };
    (answer, frame(Forward, client.ip6, ack))
}

/// Completes the handshake of a client and opens its session. Returns the session, the answer that the client
/// got, and the SYN to the server.
pub(super) fn connect(mut bench: Bench<Synproxy>, client: &Host) -> (Wire, Read, Read) {
    let (answer, ack) = handshake(&mut bench, client);
    let (admission, syn, translation) = bench.admit(&ack.build());
    assert_eq!((admission, translation.proxied_isn), (Admission::Open, Some(answer.seq)));
    assert_eq!(key_of_frame(&syn), key_of_frame(&ack.build()));
    let session = bench.open(&syn);
    let mut wire = Wire { bench, session, delta: 0, cookie: answer.seq };
    let done = wire.bench.packet(session, Forward, &syn);
    assert_eq!((done.verdict, done.emitted.len()), (Verdict::Pass, 0));
    (wire, answer, read(&done.frame))
}

/// The server's answer to a SYN.
pub(super) fn answer_of(server: &Host, syn: &Read) -> Tcp {
    let window = server.window.min(65_535) as u16;
    let options = syn_options(server, syn.stamps.map_or(0, |(value, _)| value));
    Tcp { seq: server.isn, ack: syn.seq.wrapping_add(1), flags: SYN | ACK, window, options, ..Tcp::default() }
}

/// What a server agrees to: only what the SYN offers (RFC 7323, 1.3; RFC 2018, 2).
pub(super) fn agreed(server: &Host, syn: &Read) -> Host {
    Host {
        scale: server.scale.filter(|_| syn.scale.is_some()),
        sack: server.sack && syn.sack,
        clock: server.clock.filter(|_| syn.stamps.is_some()),
        ..*server
    }
}

/// `left` and `right` are windows of the same bytes in scales that tell them to so many bits.
pub(super) fn same_window(left: u32, right: u32, bits: u8) -> bool {
    left >> bits == right >> bits || left.min(right) >= 65_535 >> bits << bits
}
