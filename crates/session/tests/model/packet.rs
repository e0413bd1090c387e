//! Packets as the model sees them.

use mmb_packet::build::{Frame, Icmp, Ip4, Tcp, Transport, Udp};

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// One direction of a conversation. For an echo, `source.1` is the identifier, and `destination.1` [`ECHO`];
/// its reply has them the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    pub proto: u8,
    pub source: ([u8; 4], u16),
    pub destination: ([u8; 4], u16),
}

/// Stands for the other end's port of an echo.
pub const ECHO: u16 = 8;

impl Tuple {
    pub fn reversed(self) -> Tuple {
        Tuple { source: self.destination, destination: self.source, ..self }
    }

    /// As a later fragment has it.
    pub fn without_ports(self) -> Tuple {
        Tuple { source: (self.source.0, 0), destination: (self.destination.0, 0), ..self }
    }

    /// What a frame that was made of `like` has become.
    pub fn read(frame: &[u8], like: Tuple) -> Tuple {
        let address = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).expect("four bytes");
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let ports = match like.proto {
            ICMP if like.destination.1 == ECHO => [word(38), ECHO],
            ICMP => [ECHO, word(38)],
            _ => [word(34), word(36)],
        };
        Tuple { source: (address(26), ports[0]), destination: (address(30), ports[1]), ..like }
    }
}

/// What a packet is besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    pub tos: u8,
    pub len: usize,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
}

pub fn frame(tuple: Tuple, detail: Detail) -> Frame {
    let Tuple { proto, source, destination } = tuple;
    let transport: Transport = match proto {
        TCP => {
            Tcp { flags: detail.flags, seq: detail.seq, ack: detail.ack, ..Tcp::new(source.1, destination.1) }
                .into()
        }
        UDP => Udp::new(source.1, destination.1).into(),
        _ => {
            let request = destination.1 == ECHO;
            let [high, low] = if request { source.1 } else { destination.1 }.to_be_bytes();
            Icmp { rest: [high, low, 0, 1], ..Icmp::new(if request { 8 } else { 0 }) }.into()
        }
    };
    let ip = Ip4 { tos: detail.tos, ..Ip4::new(source.0, destination.0) };
    Frame::new(ip, transport).payload(vec![0x5a; detail.len])
}

/// An ICMP error that quotes the beginning of a frame, so many bytes of its IP packet.
pub fn error(from: [u8; 4], to: [u8; 4], tos: u8, about: &Frame, quoted: usize) -> Frame {
    let about = about.build();
    let quote = &about[14..about.len().min(14 + quoted)];
    Frame::new(Ip4 { tos, ..Ip4::new(from, to) }, Icmp { code: 1, ..Icmp::new(3) }).payload(quote)
}

/// A frame in fragments of `size` bytes.
pub fn fragments(frame: &[u8], tos: u8, id: u16, size: usize) -> Vec<Vec<u8>> {
    let pieces = frame[34..].chunks(size);
    let last = pieces.len() - 1;
    let address = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).expect("four bytes");
    let piece = |(n, payload): (usize, &[u8])| {
        let fragment_offset = u16::try_from(n * size / 8).expect("a short frame");
        let ip = Ip4 {
            tos,
            id,
            flags: u8::from(n != last),
            fragment_offset,
            ..Ip4::new(address(26), address(30))
        };
        Frame::new(ip, Transport::Raw(frame[23])).payload(payload).build()
    };
    pieces.enumerate().map(piece).collect()
}
