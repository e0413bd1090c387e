//! Hosts that speak TCP, as far as a request and its response need it: they number, acknowledge and repeat
//! bytes. They keep nothing that comes out of order.

use std::net::IpAddr;

use mmb_flow::{Key, TcpSegment, parse_key};
use mmb_nf::testing::{assert_checksums, parsed};
use mmb_packet::build::{Frame, Ip4, Ip6, Net, Tcp};
use mmb_packet::tcp_options;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

pub type End = (IpAddr, u16);

/// What a host offers in its SYN.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    pub isn: u32,
    pub mss: u16,
    pub scale: Option<u8>,
    pub clock: Option<u32>,
    pub window: u32,
}

/// A segment that was received.
#[derive(Clone, Debug)]
pub struct Came {
    pub from: End,
    pub to: End,
    pub segment: TcpSegment,
    pub stamps: Option<(u32, u32)>,
    pub mss: Option<u16>,
    pub payload: Vec<u8>,
}

fn end(address: &[u8; 16], port: [u8; 2], is_ip4: bool) -> End {
    let address = match is_ip4 {
        true => IpAddr::from(<[u8; 4]>::try_from(&address[..4]).expect("four")),
        false => IpAddr::from(*address),
    };
    (address, u16::from_be_bytes(port))
}

impl Came {
    pub fn read(frame: &[u8]) -> Came {
        assert_checksums(frame);
        let meta = parsed(frame);
        let key: Key = parse_key(frame, &meta).expect("a key");
        let segment = TcpSegment::read(frame, &meta).expect("TCP");
        let (mut stamps, mut mss) = (None, None);
        for option in tcp_options(frame, &meta) {
            match (option.kind, option.data) {
                (8, &[a, b, c, d, e, f, g, h]) => {
                    stamps = Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])));
                }
                (2, &[a, b]) => mss = Some(u16::from_be_bytes([a, b])),
                _ => {}
            }
        }
        let payload = frame[usize::from(meta.end) - segment.len as usize..usize::from(meta.end)].to_vec();
        let is_ip4 = key.is_ip4();
        let (from, to) =
            (end(&key.source, key.source_port, is_ip4), end(&key.destination, key.destination_port, is_ip4));
        Came { from, to, segment, stamps, mss, payload }
    }
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Host {
    pub near: End,
    pub far: End,
    offer: Offer,
    /// Pieces that the application writes, one after the other.
    pub writes: Vec<Vec<u8>>,
    /// A piece is written when the one before is acknowledged (Nagle).
    pub waits: bool,
    sent: Vec<u8>,
    /// Bytes of it that are acknowledged, and those that may be sent.
    acked: usize,
    edge: usize,
    /// Bytes that have left at least once.
    left: usize,
    pub received: Vec<u8>,
    peer: Option<u32>,
    peer_mss: u16,
    peer_scale: u8,
    has_scale: bool,
    has_stamps: bool,
    latest: u32,
    pub is_open: bool,
    pub has_fin: bool,
    pub was_reset: bool,
    /// Segments with SYN that were sent.
    pub syns: u32,
}

impl Host {
    pub fn new(near: End, far: End, offer: Offer) -> Host {
        Host {
            near,
            far,
            offer,
            writes: Vec::new(),
            waits: false,
            sent: Vec::new(),
            acked: 0,
            edge: 0,
            left: 0,
            received: Vec::new(),
            peer: None,
            peer_mss: 536,
            peer_scale: 0,
            has_scale: false,
            has_stamps: false,
            latest: 0,
            is_open: false,
            has_fin: false,
            was_reset: false,
            syns: 0,
        }
    }

    fn frame(&self, now: u32, seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let is_syn = flags & SYN != 0;
        let mut options = Vec::new();
        if is_syn {
            options.extend([2, 4]);
            options.extend(self.offer.mss.to_be_bytes());
            if let Some(scale) = self.offer.scale.filter(|_| self.peer.is_none() || self.has_scale) {
                options.extend([1, 3, 3, scale]);
            }
        }
        if let Some(clock) = self.offer.clock.filter(|_| self.peer.is_none() || self.has_stamps) {
            options.extend([1, 1, 8, 10]);
            options.extend(clock.wrapping_add(now).to_be_bytes());
            options.extend(self.latest.to_be_bytes());
        }
        let own = if self.has_scale && !is_syn { self.offer.scale.unwrap_or(0) } else { 0 };
        let window = (self.offer.window >> own).min(65_535) as u16;
        let ack = self
            .peer
            .map_or(0, |isn| isn.wrapping_add(1 + self.received.len() as u32 + u32::from(self.has_fin)));
        let tcp = Tcp { seq, ack, flags, window, options, ..Tcp::new(self.near.1, self.far.1) };
        Frame::new(self.net(), tcp).payload(payload).build()
    }

    fn net(&self) -> Net {
        match (self.near.0, self.far.0) {
            (IpAddr::V4(near), IpAddr::V4(far)) => Ip4::new(near.octets(), far.octets()).into(),
            (IpAddr::V6(near), IpAddr::V6(far)) => Ip6::new(near.segments(), far.segments()).into(),
            _ => panic!("two families"),
        }
    }

    fn number(&self, position: usize) -> u32 {
        self.offer.isn.wrapping_add(1 + position as u32)
    }

    /// The host opens, or its timer goes off: everything that is not acknowledged leaves again.
    pub fn repeat(&mut self, now: u32) -> Vec<Vec<u8>> {
        if self.was_reset {
            return Vec::new();
        }
        if !self.is_open {
            self.syns += 1;
            let flags = if self.peer.is_some() { SYN | ACK } else { SYN };
            return vec![self.frame(now, self.offer.isn, flags, b"")];
        }
        self.left = self.acked;
        self.send_new(now)
    }

    /// Sends what the application has written and the window allows.
    fn send_new(&mut self, now: u32) -> Vec<Vec<u8>> {
        while !self.writes.is_empty() && (!self.waits || self.acked == self.sent.len()) {
            self.sent.extend(self.writes.remove(0));
        }
        let mut frames = Vec::new();
        let most = usize::from(self.peer_mss) - if self.has_stamps { 12 } else { 0 };
        let end = self.edge.min(self.sent.len());
        while self.left < end {
            let to = end.min(self.left + most);
            let piece = self.sent[self.left..to].to_vec();
            frames.push(self.frame(now, self.number(self.left), ACK | PSH, &piece));
            self.left = to;
        }
        frames
    }

    /// Takes a segment. Returns the answers.
    pub fn receive(&mut self, now: u32, came: &Came) -> Vec<Vec<u8>> {
        let Came { segment, stamps, .. } = came;
        if segment.flags & RST != 0 {
            let is_next =
                self.peer.is_none_or(|isn| isn.wrapping_add(1 + self.received.len() as u32) == segment.seq);
            self.was_reset |= is_next;
            return Vec::new();
        }
        if self.has_stamps && segment.flags & SYN == 0 {
            let value = stamps.expect("timestamps were agreed on (RFC 7323, 3.2)").0;
            if (value.wrapping_sub(self.latest) as i32) < 0 {
                // PAWS (RFC 7323, 5.3).
                return vec![self.frame(now, self.number(self.left), ACK, b"")];
            }
            self.latest = value;
        }
        if segment.flags & SYN != 0 {
            self.greet(came);
        }
        let Some(peer) = self.peer else { return Vec::new() };
        if segment.flags & ACK != 0 {
            let position = segment.ack.wrapping_sub(self.number(0)) as i32;
            if (0..=self.sent.len() as i32).contains(&position) {
                self.is_open = true;
                self.acked = self.acked.max(position as usize);
                self.left = self.left.max(self.acked);
                let scale = if segment.flags & SYN != 0 { 0 } else { self.peer_scale };
                self.edge = self.edge.max(position as usize + (usize::from(segment.window) << scale));
            }
        }
        if !self.is_open {
            return self.repeat(now);
        }
        let next = peer.wrapping_add(1 + self.received.len() as u32);
        let begin = segment.seq.wrapping_add(u32::from(segment.flags & SYN != 0));
        if let Ok(skip) = usize::try_from(next.wrapping_sub(begin) as i32)
            && skip <= came.payload.len()
            && !self.has_fin
        {
            self.received.extend(&came.payload[skip..]);
            self.has_fin |= segment.flags & FIN != 0;
        }
        let mut answers = self.send_new(now);
        // A segment that the host does not accept is answered (RFC 9293, 3.10.7.4).
        let is_old = (begin.wrapping_sub(next) as i32) < 0;
        if answers.is_empty() && (segment.len != 0 || is_old || segment.flags & (SYN | FIN) != 0) {
            answers.push(self.frame(now, self.number(self.left), ACK, b""));
        }
        answers
    }

    fn greet(&mut self, came: &Came) {
        if self.peer.is_some() {
            return;
        }
        self.peer = Some(came.segment.seq);
        self.peer_mss = came.mss.unwrap_or(536).min(self.offer.mss);
        self.has_scale = self.offer.scale.is_some() && came.segment.scale.is_some();
        self.peer_scale = came.segment.scale.filter(|_| self.has_scale).unwrap_or(0);
        self.has_stamps = self.offer.clock.is_some() && came.stamps.is_some();
        self.latest = came.stamps.map_or(0, |(value, _)| value);
    }

    pub fn close(&self, now: u32) -> Vec<u8> {
        self.frame(now, self.number(self.left), ACK | FIN, b"")
    }

    /// The reset of a host that has the connection. It acknowledges what has come.
    pub fn abort(&self, now: u32) -> Vec<u8> {
        self.frame(now, self.number(self.left), ACK | RST, b"")
    }

    /// Whether a server that keeps nothing of a SYN recognizes the connection by this segment.
    pub fn proves_cookie(&self, came: &Came) -> bool {
        self.is_open || self.peer.is_some_and(|isn| came.segment.seq == isn.wrapping_add(1))
    }

    /// The answer of a host to an acknowledgment of which it knows nothing (RFC 9293, 3.10.7.2).
    pub fn reset(&self, came: &Came) -> Vec<u8> {
        let tcp = Tcp { seq: came.segment.ack, flags: RST, ..Tcp::new(self.near.1, self.far.1) };
        Frame::new(self.net(), tcp).build()
    }

    /// The answer of a host to a segment of which it knows nothing (RFC 9293, 3.10.7.1).
    pub fn refuse(&self, came: &Came) -> Vec<u8> {
        let ack = came.segment.seq.wrapping_add(came.segment.len + u32::from(came.segment.flags & SYN != 0));
        let tcp = Tcp { ack, flags: RST | ACK, ..Tcp::new(self.near.1, self.far.1) };
        Frame::new(self.net(), tcp).build()
    }
}
