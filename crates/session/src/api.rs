//! What surrounds the engine, and what it says.

use std::sync::{Arc, LazyLock};

use mmb_flow::{Key, SessionId, SessionSettings};
use mmb_nf::Program;
use mmb_packet::Meta;
use mmb_policy::Policy;

/// How a worker's sessions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Most sessions of this worker.
    pub sessions: usize,
    /// This worker's number.
    pub worker: u16,
    /// How many workers there are; each flow belongs to the one that [`mmb_packet::Meta::flow_hash`], scaled, names.
    pub workers: u16,
    /// What choices are made with: the same for all workers, so that they agree, and a secret from senders.
    pub seed: u64,
    /// Bytes of each session's scratchpad for functions of service chains, [`mmb_nf::HEADER_BYTES`] among them. Chains that
    /// need more ([`Program::bytes`]) are not heard of.
    pub scratchpad: usize,
}

/// The rules that packets are under, and what stands around the engine.
pub trait Environment {
    /// The rules.
    fn policy(&self) -> &Policy;
    /// NAT's pools and forwards.
    fn nat(&self) -> &Arc<mmb_flow::NatConfig>;
    /// The service chains that rules give their sessions to; by default, there is none.
    fn chains(&self) -> &Arc<Program> {
        static NONE: LazyLock<Arc<Program>> = LazyLock::new(Arc::default);
        &NONE
    }
    /// Settings of the tracker.
    fn settings(&self) -> SessionSettings;
    /// The port at the other end of a port's wire; [`mmb_packet::OUT_ROUTED`] of a routed port.
    fn out_port(&self, in_port: u16) -> u16;
    /// Whether what comes in by a port is routed.
    fn routed(&self, in_port: u16) -> bool {
        let _ = in_port;
        false
    }
    /// Counts packets, and the bytes of their frames, that the rule in a slot matched.
    fn count(&self, slot: u32, packets: u32, bytes: u64);
    /// Asks for the memory that [`Environment::count`] of that slot will look at.
    fn prefetch_count(&self, slot: u32) {
        let _ = slot;
    }
}

/// A vector of at most [`mmb_policy::VECTOR`] packets, by their position.
pub trait Packets {
    /// How many.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The contiguous beginning of a packet.
    fn head(&self, at: usize) -> &[u8];
    /// What the parse of a packet found.
    fn meta(&self, at: usize) -> &Meta;
    /// Both, to be written.
    fn head_and_meta(&mut self, at: usize) -> (&mut [u8], &mut Meta);
    /// The port by which a packet came in.
    fn in_port(&self, at: usize) -> u16;
    /// Length of a packet's frame in bytes.
    fn bytes(&self, at: usize) -> u32;
    /// What no other packet has that is under way: where it is.
    #[inline(always)]
    fn packet_addr(&self, at: usize) -> usize {
        self.head(at).as_ptr().addr()
    }
    /// The first of them, to be written.
    #[inline(always)]
    fn head_mut(&mut self, at: usize) -> &mut [u8] {
        self.head_and_meta(at).0
    }
    /// As [`Packets::prefetch`], of a packet of which only the bytes are wanted.
    #[inline(always)]
    fn prefetch_bytes(&self, at: usize) {
        self.prefetch(at);
    }
    /// Whether packets whose next hop is known can be sent on to it.
    #[inline(always)]
    fn can_forward(&self) -> bool {
        false
    }
    /// Sends a packet on to a next hop that was kept for it ([`crate::Sessions::set_next_hop`]), as a router does. `false`, and no byte of
    /// the packet has changed: that takes a closer look.
    #[inline(always)]
    fn forward(&mut self, at: usize, hop: u16) -> bool {
        let _ = (at, hop);
        false
    }
    /// As [`Packets::prefetch`], of a packet that is about to be sent on.
    #[inline(always)]
    fn prefetch_forward(&self, at: usize) {
        self.prefetch(at);
    }
    /// Asks for the memory of a packet that is about to be changed; of one that there is not, for nothing.
    #[inline(always)]
    fn prefetch(&self, at: usize) {
        let _ = at;
    }
}

/// What is to be done with a packet.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// It goes on: to the other end of the wire, or to routing if it came in by a routed port. `meta.out_port` says
    /// nothing.
    #[default]
    Pass,
    /// It goes out by `meta.out_port`, or to routing if that is [`mmb_packet::OUT_ROUTED`].
    Send,
    /// The rules in `meta.edits()` edit it; then it goes as with [`Next::Send`].
    Edit,
    /// It is dropped for `meta.drop_reason`.
    Drop,
    /// It has become an ICMP error, or what a function answers, and goes out by `meta.out_port`, a routed port, too: its
    /// Ethernet addresses are turned round already. The packet that it was is dropped, for `meta.drop_reason`.
    Reply,
    /// It is given to the worker whose number stands in `meta.stage`, and is looked up there as it is, without a
    /// parse.
    HandOff,
    /// It is kept under the ticket that stands in `meta.stage` until [`crate::Sessions::next_released_fragment`] calls for it.
    Hold,
    /// It belongs to a session, and the rules that look at each packet have yet to be found for it.
    PerPacketRules,
    /// All rules have yet to be found for it.
    SlowPath,
    /// It goes through its session's service chain ([`crate::Sessions::process_chain`]), after the edits of rules, which stand in
    /// `meta.edits()` as with [`Next::Edit`]; then as with [`Next::Send`].
    Chain,
    /// It is looked up once more: it has been through a chain, and comes back to an inside host.
    Relookup,
    /// It goes out by `meta.out_port`, as a router sends it on ([`Packets::forward`]).
    Forwarded,
}

/// Which kinds of [`Next`] occur among the packets of a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextSet(u16);

impl NextSet {
    /// Notes that one occurs.
    #[inline]
    pub fn add(&mut self, next: Next) {
        self.0 |= 1 << next as u8;
    }

    /// Whether one occurs.
    #[inline]
    pub fn has(self, next: Next) -> bool {
        self.0 & 1 << next as u8 != 0
    }

    /// Whether no other than this one occurs.
    #[inline]
    pub fn all(self, next: Next) -> bool {
        self.0 & !(1 << next as u8) == 0
    }
}

/// What becomes of a held fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleasedFragment {
    /// It is looked up once more.
    Retry(u32),
    /// It is dropped: the first fragment of its datagram did not come.
    TimedOut(u32),
}

/// What a worker's engine has counted since it began, and how many sessions there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Sessions that were opened.
    pub created: u64,
    /// … that ended since no packet came for too long.
    pub expired: u64,
    /// … that a packet opening another connection with the same addresses and ports ended.
    pub replaced: u64,
    /// … that were half open and had to make room.
    pub evicted: u64,
    /// … that ended because the rule that they hung on, or their NAT mapping, went.
    pub ended: u64,
    /// … that an operator cleared.
    pub cleared: u64,
    /// … that a function of their chain ended.
    pub closed: u64,
    /// Packets that would have opened a session, for which there was no room.
    pub refused_full: u64,
    /// … which no translation was left for.
    pub refused_exhausted: u64,
    /// … whose source has as many mappings as its pool allows.
    pub refused_limit: u64,
    /// … in the middle of a TCP connection, with pick-up off.
    pub refused_middle: u64,
    /// Cached decisions that were made, anew after a change of rules or for the first time.
    pub decided: u64,
    /// Packets given to the worker that their session lives with.
    pub redirected: u64,
    /// ICMP errors that were translated or passed as part of a session.
    pub icmp_errors: u64,
    /// Packets answered with an ICMP error.
    pub answered: u64,
    /// Fragments that had to wait for the first one.
    pub held: u64,
    /// Sessions there are.
    pub sessions: u64,
    /// … of which nothing but the first packet has been seen, so that they can make room for others.
    pub half_open: u64,
    /// Entries that only say which worker a flow lives with.
    pub redirects: u64,
    /// Decisions kept.
    pub decisions: u64,
    /// Most sessions there can be.
    pub capacity: u64,
}

/// A session as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The worker it lives with.
    pub worker: u16,
    /// Its number there.
    pub id: SessionId,
    /// Tells it from others that had or will have the number.
    pub uid: u32,
    /// Addresses and ports of its first packet, as that came in.
    pub original: Key,
    /// Those of a reply, as that comes in.
    pub reply: Key,
    /// The tracker's name for its state.
    pub state: &'static str,
    /// Milliseconds since it was opened.
    pub age: u32,
    /// Milliseconds since its last packet.
    pub idle: u32,
    /// Milliseconds until it ends if no packet comes.
    pub expires: u32,
    /// The ports by which packets of either direction came in last; 0xffff: none has come.
    pub in_port: [u16; 2],
    /// Packets of either direction.
    pub packets: [u64; 2],
    /// Bytes of their frames.
    pub bytes: [u64; 2],
    /// Indexes of its rules, ascending.
    pub rules: Vec<u32>,
    /// It holds a mapping of a NAT pool, or came in by one.
    pub mapped: bool,
    /// The service chain that it goes through.
    pub chain: Option<Arc<str>>,
    /// A function of its chain has refused it: its packets are dropped until rules or chains change.
    pub refused: Option<mmb_packet::DropReason>,
}

/// How far a dump has come; starts at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpCursor(pub u32);
