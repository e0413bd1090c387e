//! Counters and listings of sessions.

use std::sync::Arc;

use mmb_flow::{Key, SessionId};

/// Counters of a worker's sessions since start, and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Sessions opened.
    pub created: u64,
    /// Sessions ended by their timeout.
    pub expired: u64,
    /// Sessions ended before their timeout because the table was nearly full.
    pub aged: u64,
    /// Sessions replaced by a new connection with the same addresses and ports.
    pub replaced: u64,
    /// Half-open sessions ended to make room.
    pub evicted: u64,
    /// Sessions ended because their rule or their NAT mapping was removed.
    pub ended: u64,
    /// Sessions cleared by an operator.
    pub cleared: u64,
    /// Sessions ended by a function of their chain.
    pub closed: u64,
    /// Sessions refused because the table was full.
    pub refused_full: u64,
    /// Sessions refused because their source had reached its limit.
    pub refused_source: u64,
    /// Sessions refused because no translation was free.
    pub refused_exhausted: u64,
    /// Sessions refused because their source has as many mappings as the pool allows.
    pub refused_limit: u64,
    /// Sessions refused because TCP pick-up is off and the packet does not open a connection.
    pub refused_middle: u64,
    /// Decisions computed.
    pub decided: u64,
    /// Packets given to another worker.
    pub redirected: u64,
    /// ICMP errors that belonged to a session.
    pub icmp_errors: u64,
    /// Packets answered with an ICMP error.
    pub answered: u64,
    /// Fragments held until the first fragment arrived.
    pub held: u64,
    /// Gauge: sessions.
    pub sessions: u64,
    /// Gauge: half-open sessions, which may be evicted.
    pub half_open: u64,
    /// Gauge: entries that name the worker of a flow.
    pub redirects: u64,
    /// Gauge: packets that functions of chains hold.
    pub chain_held: u64,
    /// Gauge: cached decisions.
    pub decisions: u64,
    /// Maximum number of sessions of all workers; 0 for all workers but the first.
    pub capacity: u64,
}

/// A session, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The worker that owns the session.
    pub worker: u16,
    /// Number of the session at that worker.
    pub id: SessionId,
    /// Distinguishes the session from others that use the same number earlier or later.
    pub uid: u32,
    /// Key of the opening packet as it came in.
    pub original: Key,
    /// Key of a reply as it comes in.
    pub reply: Key,
    /// Name of the tracker's state.
    pub state: &'static str,
    /// Milliseconds since the session was opened.
    pub age: u32,
    /// Milliseconds since the last packet.
    pub idle: u32,
    /// Milliseconds until the session ends if no packet arrives.
    pub expires: u32,
    /// Input port of the last packet of each direction; 0xffff: no packet yet.
    pub in_port: [u16; 2],
    /// Packets of each direction.
    pub packets: [u64; 2],
    /// Bytes of the frames of each direction.
    pub bytes: [u64; 2],
    /// Indexes of the session's rules, ascending.
    pub rules: Vec<u32>,
    /// The session has a mapping of a NAT pool.
    pub mapped: bool,
    /// Name of the session's service chain.
    pub chain: Option<Arc<str>>,
    /// Set if a function of the chain refused the session. All its packets are dropped until rules or chains
    /// change.
    pub refused: Option<mmb_packet::DropReason>,
    /// What functions of the chain say about the session, each with its name.
    pub functions: Vec<(String, String)>,
}

/// Position of a listing; the default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpCursor(pub u32);
