//! Flows of the fast path: their keys, actions and counters.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_dpdk_sys as sys;

/// Number of slots. Slot 0 is the header and holds no flow.
pub const FAST_SLOTS: u32 = sys::STEER_FAST_SLOTS;

/// The number of a port on the fast path. A process never uses a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FastPort(pub u32);

/// The key of an entry: a flow as it enters a port, or what several flows have in common
/// ([`FastGranularity`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FastKey {
    /// Which packets the key covers.
    pub granularity: FastGranularity,
    /// Ingress port.
    pub port: FastPort,
    /// TCP (6), UDP (17), ICMP (1) or ICMPv6 (58).
    pub proto: u8,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port; the identifier of echo requests and replies.
    pub source_port: u16,
    /// Destination port; the type of echo requests and replies.
    pub destination_port: u16,
}

/// What the kernel does with the packets of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastAction {
    /// Egress port. Frames to an interface that cannot take them are lost
    /// ([`crate::Port::can_receive_redirects`]).
    pub out: FastPort,
    /// New Ethernet addresses; None: unchanged.
    pub macs: Option<FastMacs>,
    /// Whether TTL or hop limit is decremented. A packet that would reach 0 goes to the socket.
    pub decrement_ttl: bool,
    /// Longest frame without its Ethernet header, in bytes; longer ones go to the socket.
    pub max_len: u16,
    /// New addresses and ports; None: unchanged.
    pub translation: Option<FastTranslation>,
    /// TCP, with `track_tcp`: what is added to numbers. Segments with options other than timestamps go to the
    /// socket then, and those without timestamps if something is added to these.
    pub numbers: Option<FastNumbers>,
    /// Whether [`FastFlowStats::ack`] is maintained. Excludes `pass_control`.
    pub track_tcp: bool,
    /// TCP: whether segments with SYN, FIN or RST and those without ACK are forwarded too; otherwise they go
    /// to the socket.
    pub pass_control: bool,
    /// TCP, with `track_tcp` and without `numbers`: whether the first FIN and its retransmissions are
    /// forwarded and recorded ([`FastFlowStats::fin_end`]). Other FINs go to the socket.
    pub pass_fin: bool,
    /// TCP, with `track_tcp`: the acknowledgement number that the first segment must carry. Segments before
    /// it go to the socket.
    pub awaited_ack: Option<u32>,
}

impl FastAction {
    /// Forwards frames of up to `max_len` bytes unchanged, except segments that open or close connections.
    pub fn forward_unchanged(out: FastPort, max_len: u16) -> FastAction {
        FastAction {
            out,
            macs: None,
            decrement_ttl: false,
            max_len,
            translation: None,
            numbers: None,
            track_tcp: false,
            pass_control: false,
            pass_fin: false,
            awaited_ack: None,
        }
    }
}

/// Ethernet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastMacs {
    /// Destination.
    pub destination: [u8; 6],
    /// Source.
    pub source: [u8; 6],
}

/// Addresses and ports after a translation, including those that do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastTranslation {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port; the identifier of echo requests and replies.
    pub source_port: u16,
    /// Destination port; ignored for echo requests and replies.
    pub destination_port: u16,
}

/// Differences that are added to the numbers of TCP segments. They wrap. Also the shift of their windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastNumbers {
    /// Added to sequence numbers.
    pub sequence: u32,
    /// Added to acknowledgment numbers.
    pub acknowledgment: u32,
    /// Added to timestamps (TSval, RFC 7323).
    pub timestamp: u32,
    /// Added to echoed timestamps (TSecr).
    pub echo: u32,
    /// Left shift of windows in bits, from -14 to 14. A window that becomes too large is the largest one.
    pub window_shift: i8,
}

impl FastNumbers {
    /// Whether nothing is changed.
    pub fn is_zero(&self) -> bool {
        *self == FastNumbers::default()
    }

    /// Whether something is added to timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.timestamp | self.echo != 0
    }
}

/// What the kernel counts for an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastFlowStats {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames. While a packet is counted, `packets` may include it and `bytes` not yet.
    pub bytes: u64,
    /// Time of the last packet, in nanoseconds of CLOCK_MONOTONIC_COARSE; 0: none yet.
    pub last: u64,
    /// TCP: [`FAST_FIN`] and [`FAST_RST`] of segments that were forwarded. The other fields include those
    /// segments, except a FIN by `pass_fin`, which may be counted a moment later.
    pub ended: u8,
    /// TCP, with [`FAST_FIN`] and `pass_fin`: the sequence number behind the FIN, as received.
    pub fin_end: u32,
    /// TCP: the last acknowledgement number as received, if it is tracked and a packet was seen.
    pub ack: Option<u32>,
}

/// In [`FastFlowStats::ended`]: a FIN.
pub const FAST_FIN: u8 = 1;
/// In [`FastFlowStats::ended`]: an RST.
pub const FAST_RST: u8 = 4;

/// The kind of program by which a port takes part in the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastHook {
    /// At XDP. Frames can only be redirected to interfaces whose drivers take them.
    Xdp,
    /// At tc. Packets can be sent out of every interface, with many segments as one.
    Tc,
}

/// Which header fields a key contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FastGranularity {
    /// All fields of a [`FastKey`].
    #[default]
    Flow,
    /// All but the ports. Keys of flows exist besides ([`FastKey::without_ports`]); if both match, the pair's
    /// entry applies.
    Pair,
    /// Ingress port and destination address only ([`FastKey::for_destination`]). Packets with a source that
    /// must not be forwarded (multicast, loopback, unspecified, IPv6 link-local) go to the socket.
    Destination,
}

impl FastKey {
    /// The key of all packets from a port to a destination, for [`FastGranularity::Destination`].
    pub fn for_destination(port: FastPort, destination: IpAddr) -> FastKey {
        let source = match destination {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let granularity = FastGranularity::Destination;
        FastKey { granularity, port, proto: 0, source, destination, source_port: 0, destination_port: 0 }
    }

    /// The key of all packets of this protocol between the same addresses, for [`FastGranularity::Pair`].
    pub fn without_ports(self) -> FastKey {
        FastKey { granularity: FastGranularity::Pair, source_port: 0, destination_port: 0, ..self }
    }
}
