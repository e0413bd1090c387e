//! What the engine needs from its surroundings: configuration, rules and packets.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use mmb_flow::SessionSettings;
use mmb_nf::Program;
use mmb_packet::Meta;
use mmb_policy::{Policy, RuleLog};

/// Configuration of a worker's sessions, fixed at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Maximum number of sessions of all workers together.
    pub sessions: usize,
    /// Number of this worker.
    pub worker: u16,
    /// Number of workers. A flow belongs to worker `flow_hash * workers >> 32`
    /// ([`mmb_packet::Meta::flow_hash`]).
    pub workers: u16,
    /// Seed of all choices. All workers have the same one, so that they agree. It is a secret.
    pub seed: u64,
    /// Most bytes of a session's scratchpad, [`mmb_nf::HEADER_BYTES`] included. Chains that need more
    /// ([`Program::bytes`]) are ignored.
    pub scratchpad: usize,
}

/// A packet that a rule logs.
#[derive(Clone, Debug)]
pub struct LoggedPacket {
    /// Index of the rule.
    pub rule: u32,
    /// How the rule logs.
    pub log: Arc<RuleLog>,
    /// The port that the packet came in by.
    pub in_port: u16,
    /// What became of it.
    pub verdict: LogVerdict,
    /// Its headers, as it came in.
    pub headers: LoggedHeaders,
}

/// What became of a packet that a rule logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogVerdict {
    /// It goes on to this port, or to routing ([`mmb_packet::OUT_ROUTED`]).
    Passed(u16),
    /// It is dropped for this reason ([`mmb_packet::DropReason`] as a number).
    Dropped(u8),
    /// It is dropped for this reason, and its sender gets an answer.
    Answered(u8),
}

/// The part of a packet's headers that is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedHeaders {
    /// Source and destination.
    pub addresses: Option<[IpAddr; 2]>,
    /// Protocol number.
    pub protocol: u8,
    /// Source and destination port of TCP and UDP.
    pub ports: Option<[u16; 2]>,
    /// Flags of TCP (RFC 9293, 3.1).
    pub tcp_flags: Option<u8>,
    /// Type and code of ICMP.
    pub icmp: Option<[u8; 2]>,
    /// The packet is a fragment.
    pub is_fragment: bool,
    /// Ethernet addresses: source and destination.
    pub ethernet: [[u8; 6]; 2],
    /// Bytes of the frame.
    pub length: u32,
}

/// The rules in force and the ports around the engine.
pub trait Environment {
    /// The rules.
    fn policy(&self) -> &Policy;
    /// NAT pools and forwards.
    fn nat(&self) -> &Arc<mmb_flow::NatConfig>;
    /// The service chains that rules name. By default there are none.
    fn chains(&self) -> &Arc<Program> {
        static NONE: LazyLock<Arc<Program>> = LazyLock::new(Arc::default);
        &NONE
    }
    /// Settings of the connection tracker.
    fn settings(&self) -> SessionSettings;
    /// The port at the other end of the wire; [`mmb_packet::OUT_ROUTED`] for a routed port.
    fn out_port(&self, in_port: u16) -> u16;
    /// Whether packets that come in by the port are routed.
    fn routed(&self, in_port: u16) -> bool {
        let _ = in_port;
        false
    }
    /// Whether an address is the machine's, for packets that come in by the port, and rules or NAT use it,
    /// too.
    fn is_shared(&self, in_port: u16, address: IpAddr) -> bool {
        let _ = (in_port, address);
        false
    }
    /// Whether packets that come in by the port come from brokers, and those that leave by it go there.
    fn leads_to_broker(&self, port: u16) -> bool {
        let _ = port;
        false
    }
    /// The Ethernet address of the kernel's side of a port. None: the port has no device.
    fn mac_of(&self, port: u16) -> Option<[u8; 6]> {
        let _ = port;
        None
    }
    /// Returns the bytes of the longest IP packet that the output of a packet in a chain takes. `to`: its
    /// destination behind the chain, as in [`mmb_flow::Key`].
    fn mtu(&self, packet: &mmb_nf::Packet<'_>, to: &[u8; 16]) -> usize {
        let _ = (packet, to);
        usize::MAX
    }
    /// Adds packets, and the bytes of their frames, to the counters of the rule in a slot.
    fn count(&self, slot: u32, packets: u32, bytes: u64);
    /// Adds packets to the counter of what the rule in a slot decided.
    fn count_decided(&self, slot: u32, packets: u32);
    /// Logs a packet. It must not wait.
    fn log(&self, packet: LoggedPacket) {
        drop(packet);
    }
    /// Prefetches the counters of the rule in a slot.
    fn prefetch_count(&self, slot: u32) {
        let _ = slot;
    }
}

/// A vector of at most [`mmb_policy::VECTOR`] packets, addressed by position. Prefetches ignore positions
/// past the end.
pub trait Packets {
    /// Number of packets.
    fn len(&self) -> usize;
    /// Whether the vector is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The contiguous beginning of a packet.
    fn head(&self, at: usize) -> &[u8];
    /// The parsed metadata of a packet.
    fn meta(&self, at: usize) -> &Meta;
    /// Head and metadata, mutable.
    fn head_and_meta(&mut self, at: usize) -> (&mut [u8], &mut Meta);
    /// Input port of a packet.
    fn in_port(&self, at: usize) -> u16;
    /// Length of the frame in bytes.
    fn bytes(&self, at: usize) -> u32;
    /// The head, mutable.
    #[inline(always)]
    fn head_mut(&mut self, at: usize) -> &mut [u8] {
        self.head_and_meta(at).0
    }
    /// The metadata, mutable.
    #[inline(always)]
    fn meta_mut(&mut self, at: usize) -> &mut Meta {
        self.head_and_meta(at).1
    }
    /// Prefetches the metadata of a packet.
    #[inline(always)]
    fn prefetch_meta(&self, at: usize) {
        self.prefetch(at);
    }
    /// Prefetches the bytes of a packet that is about to be translated.
    #[inline(always)]
    fn prefetch_bytes(&self, at: usize) {
        self.prefetch(at);
    }
    /// Whether [`Packets::forward4`] and [`Packets::forward6`] can route packets.
    #[inline(always)]
    fn can_forward(&self) -> bool {
        false
    }
    /// Routes an IPv4 packet to a cached next hop ([`crate::Sessions::set_next_hop`]). Returns `false`, with
    /// the packet unchanged, if the packet needs the full forwarding path.
    #[inline(always)]
    fn forward4(&mut self, at: usize, hop: u16) -> bool {
        let _ = (at, hop);
        false
    }
    /// Routes an IPv6 packet, as [`Packets::forward4`].
    #[inline(always)]
    fn forward6(&mut self, at: usize, hop: u16) -> bool {
        let _ = (at, hop);
        false
    }
    /// Prefetches a packet that is about to be routed.
    #[inline(always)]
    fn prefetch_forward(&self, at: usize) {
        self.prefetch(at);
    }
    /// Prefetches metadata and bytes of a packet.
    #[inline(always)]
    fn prefetch(&self, at: usize) {
        let _ = at;
    }
}
