//! Settings of sessions.

/// Lifetime of a session without packets, by its state, in milliseconds.
///
/// The defaults are the minimum that the RFCs permit, or the recommended value if that is larger: RFC 5382
/// REQ-5 (TCP), RFC 4787 REQ-5 (UDP), RFC 5508 REQ-2 (ICMP), RFC 7857 section 2.2 (after a reset).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A TCP connection during the handshake.
    pub tcp_handshake: u32,
    /// An open TCP connection.
    pub tcp_established: u32,
    /// A TCP connection that one side has closed.
    pub tcp_half_closed: u32,
    /// A TCP connection that both sides have closed.
    pub tcp_closed: u32,
    /// A TCP connection that was reset.
    pub tcp_reset: u32,
    /// UDP before the first reply.
    pub udp_unreplied: u32,
    /// UDP after the first reply.
    pub udp_replied: u32,
    /// ICMP queries.
    pub icmp: u32,
    /// Other protocols.
    pub other: u32,
    /// How long a later fragment waits for the first fragment, and how long a first fragment is remembered.
    pub fragment: u32,
    /// How long a function of a chain may hold a packet.
    pub held: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            tcp_handshake: 240_000,
            tcp_established: 7_440_000,
            tcp_half_closed: 240_000,
            tcp_closed: 240_000,
            tcp_reset: 240_000,
            udp_unreplied: 120_000,
            udp_replied: 300_000,
            icmp: 60_000,
            other: 120_000,
            fragment: 2_000,
            held: 10_000,
        }
    }
}

/// How many packets functions of chains may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLimits {
    /// Most packets that a function holds of one session, both directions together.
    pub session: u32,
    /// Most packets that all functions of a worker hold.
    pub worker: u32,
}

impl Default for HeldLimits {
    fn default() -> Self {
        HeldLimits { session: 256, worker: 4096 }
    }
}

/// Settings of sessions and of the connection tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Limits for packets that functions hold.
    pub held: HeldLimits,
    /// Whether a TCP segment other than a SYN may open a session.
    pub tcp_pickup: bool,
    /// Whether TCP segments outside of the window are dropped.
    pub tcp_window_check: bool,
    /// Maximum number of sessions that a source address may have open.
    pub source_limit: SourceLimit,
    /// What becomes of connections that stream functions cannot read.
    pub streams: mmb_stream::Policy,
}

/// Maximum number of sessions of a source address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceLimit {
    /// A share of the table.
    #[default]
    Share,
    /// A number.
    Sessions(u32),
    /// None.
    Off,
}

impl SourceLimit {
    /// A source may have this part of the table.
    pub const SHARE: u32 = 8;
    /// A source may have at least this number of sessions.
    pub const SHARE_MIN: u32 = 4096;

    /// The limit in a table with room for `capacity` sessions; none if there is no limit.
    pub fn for_capacity(self, capacity: u32) -> Option<u32> {
        match self {
            SourceLimit::Share => Some((capacity / SourceLimit::SHARE).max(SourceLimit::SHARE_MIN)),
            SourceLimit::Sessions(limit) => Some(limit),
            SourceLimit::Off => None,
        }
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        SessionSettings {
            timeouts: Timeouts::default(),
            held: HeldLimits::default(),
            tcp_pickup: true,
            tcp_window_check: false,
            source_limit: SourceLimit::default(),
            streams: mmb_stream::Policy::default(),
        }
    }
}
