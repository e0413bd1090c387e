//! `ip4-input` and `ip6-input`: parse the headers of each packet once, and choose the worker that owns its flow.
//!
//! Theory of operation. Packets to which rules apply are processed in runs with the same input port, so that what the
//! port says is read once per run. A plain packet takes one inlined parse; everything else goes through
//! [`InputContext::classify_rest`]. On a routed port, the checks of a router come first (RFC 1812, 5.2.2 and 5.3.1).

use mmb_dpdk::{Packet, Vector};
use mmb_flow::{FlowRef, Key};
use mmb_packet::{DropReason, Kind, StageWord, checksum};
use mmb_session::Sessions;

use super::checksums::complete_checksum;
use super::locals::LocalAddresses;
use super::version::{Ip4, Ip6, IpVersion};
use crate::engine::handoff::Handoff;
use crate::engine::node::edges::{OWN_LOOKUP, edges, send, send_all};
use crate::engine::node::vector::{
    ROUTED_L3 as L3, VECTOR, for_each_prefetched, packet_addr, prefetch_ahead, prefetch_first,
};
use crate::engine::snapshot::{PolicyPath, Snapshot, path};
use crate::engine::worker::Worker;

edges! {
    /// The edges of both nodes.
    pub(crate) enum Edge {
        Classify => "classify",
        FlowLookup => "flow-lookup",
        Wire => "wire-output",
        Drop => "drop",
        Handoff => "handoff",
        /// To the lookup of the node's own IP version.
        Lookup => OWN_LOOKUP,
        Slow => "ip-slow",
        Punt => "punt",
    }
}

impl From<PolicyPath> for Edge {
    #[inline(always)]
    fn from(path: PolicyPath) -> Edge {
        match path {
            PolicyPath::Classify => Edge::Classify,
            PolicyPath::Sessions => Edge::FlowLookup,
        }
    }
}

pub(crate) fn process4(worker: &mut Worker, vector: Vector<'_>) {
    process::<Ip4>(worker, vector);
}

pub(crate) fn process6(worker: &mut Worker, vector: Vector<'_>) {
    process::<Ip6>(worker, vector);
}

#[inline(always)]
fn process<I: IpVersion>(worker: &mut Worker, vector: Vector<'_>) {
    if worker.snapshot.has_policy {
        process_with_policy::<I>(worker, vector);
    } else {
        process_without_policy::<I>(worker, vector);
    }
}

/// Without rules. A routed packet takes so little work that its route is prefetched at once.
#[inline(always)]
fn process_without_policy<I: IpVersion>(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, snapshot, routing, handoff, shared, .. } = worker;
    let context = InputContext { snapshot, locals: &routing.locals, id: *id, spread: handoff.spread };
    let table = routing.routes.single_table();
    let mut edges = [Edge::Lookup; VECTOR];
    let mut repairs = 0;
    for_each_prefetched(vector.packets(), |at, packet| {
        let (path, length) = (snapshot.path(packet.port()), packet.pkt_len());
        let (data, meta) = packet.data_and_meta();
        if path & (path::ROUTED | path::KERNEL) == path::ROUTED && I::parse_forwardable(data, length, meta) {
            if let Some(table) = table {
                I::prefetch_route(table, data);
            }
        } else {
            edges[at] = context.input::<I>(packet, path, None, &mut repairs);
        }
    });
    shared.workers[*id].counters.repairs.add(repairs);
    send(vector, &edges);
}

/// Where rules apply to packets of some port: in runs of packets with the same input port.
#[inline(always)]
fn process_with_policy<I: IpVersion>(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, snapshot, routing, handoff, flows, shared, .. } = worker;
    let (locals, sessions) = (&*routing.locals, &mut flows.sessions);
    let context = InputContext { snapshot, locals, id: *id, spread: handoff.spread };
    let is_uniform = handoff.spread == 1 && snapshot.has_uniform_path();
    let (n, uses_sessions) = (vector.len(), snapshot.needs_sessions());
    let mut edges = [Edge::from(snapshot.policy_path); VECTOR];
    let (mut repairs, mut diverges) = (0, false);
    sessions.begin_vector(I::KIND);
    prefetch_first(vector.packets());
    let mut at = 0;
    while at < n {
        let packets = vector.packets();
        let port = IngressPort::new(snapshot, locals, is_uniform, packets[at].port());
        let run = PortRun { context: &context, port, from: at, edges: &mut edges, repairs: &mut repairs };
        (at, diverges) = match (uses_sessions, port.routed) {
            (true, true) => run.process::<I, true, true>(sessions, packets, diverges),
            (true, false) => run.process::<I, true, false>(sessions, packets, diverges),
            (false, true) => run.process::<I, false, true>(sessions, packets, diverges),
            (false, false) => run.process::<I, false, false>(sessions, packets, diverges),
        };
    }
    shared.workers[*id].counters.repairs.add(repairs);
    if uses_sessions && !diverges {
        let packets = &*vector.packets();
        if let (Some(first), Some(last)) = (packets.first(), packets.last()) {
            sessions.are_in(n, [packet_addr(first), packet_addr(last)]);
        }
        return send_all(vector, Edge::FlowLookup);
    }
    send(vector, &edges);
}

/// What is read once about the port by which packets came in.
#[derive(Clone, Copy)]
struct IngressPort {
    port: u16,
    /// Plain packets go straight to the rules; on a routed port, after the checks of a router.
    is_simple: bool,
    routed: bool,
    /// See [`LocalAddresses::bits`].
    locals: u64,
}

impl IngressPort {
    #[inline]
    fn new(snapshot: &Snapshot, locals: &LocalAddresses, is_uniform: bool, port: u16) -> IngressPort {
        let path = snapshot.path(port);
        IngressPort {
            port,
            is_simple: is_uniform && path & (path::RULES | path::KERNEL) == path::RULES,
            routed: path & path::ROUTED != 0,
            locals: locals.bits(port),
        }
    }
}

/// Packets of a vector with the same input port, from a position on.
struct PortRun<'a> {
    context: &'a InputContext<'a>,
    port: IngressPort,
    from: usize,
    edges: &'a mut [Edge; VECTOR],
    repairs: &'a mut u64,
}

impl PortRun<'_> {
    /// Processes the run. Returns the position behind it, and whether some packet so far does not go to the rules
    /// (`diverges`: whether one before the run does not).
    ///
    /// `SESSIONS`: rules need sessions, which take the parsed headers over while they are in registers. `ROUTED`: see
    /// [`IngressPort::routed`].
    #[inline(always)]
    fn process<I: IpVersion, const SESSIONS: bool, const ROUTED: bool>(
        self,
        sessions: &mut Sessions,
        packets: &mut [&mut Packet],
        mut diverges: bool,
    ) -> (usize, bool) {
        let PortRun { context, port, from, edges, repairs } = self;
        // The flow table starts its search at the device's hash, if the device supplies one.
        let is_hashed = SESSIONS && packets[from].rss_hash().is_some();
        for at in from..packets.len() {
            prefetch_ahead(packets, at);
            let packet = &mut *packets[at];
            if packet.port() != port.port {
                return (at, diverges);
            }
            let length = packet.pkt_len();
            let (data, meta) = packet.data_and_meta();
            let l3 = if ROUTED { L3 } else { usize::from(meta.l3_off) };
            if port.is_simple
                && let Some(headers) = I::parse_plain(data, l3, length, meta)
                && (!ROUTED || I::is_forwarded(&headers, port.locals))
            {
                if SESSIONS {
                    let device_hash = if is_hashed { packet.rss_hash() } else { None };
                    I::take_in(sessions, at, &headers, device_hash, port.port, length as u32);
                }
            } else {
                let path = context.snapshot.path(port.port);
                edges[at] = context.classify_rest::<I>(sessions, at, packet, path, repairs);
                diverges |= edges[at] != Edge::FlowLookup;
            }
        }
        (packets.len(), diverges)
    }
}

/// What the nodes use to decide about a packet.
struct InputContext<'a> {
    snapshot: &'a Snapshot,
    locals: &'a LocalAddresses,
    /// The worker that runs the node.
    id: usize,
    /// See [`Handoff::spread`].
    spread: u32,
}

impl InputContext<'_> {
    /// The edge of a packet that is not plain; kept out of the loop of plain packets.
    #[inline(never)]
    fn classify_rest<I: IpVersion>(
        &self,
        sessions: &mut Sessions,
        at: usize,
        packet: &mut Packet,
        path: u8,
        repairs: &mut u64,
    ) -> Edge {
        let (port, length) = (packet.port(), packet.pkt_len());
        let (data, meta) = packet.data_and_meta();
        let headers = I::parse_plain(data, usize::from(meta.l3_off), length, meta);
        let edge = self.input::<I>(packet, path, headers.as_ref(), repairs);
        if edge == Edge::FlowLookup {
            match &headers {
                Some(headers) => I::take_in(sessions, at, headers, packet.rss_hash(), port, length as u32),
                None => sessions.take_in(at, packet.data(), packet.meta(), port, length as u32),
            }
        }
        edge
    }

    /// Parses a packet, unless `headers` shows that this was done, and returns its edge.
    #[inline(never)]
    fn input<I: IpVersion>(
        &self,
        packet: &mut Packet,
        path: u8,
        headers: Option<&I::Headers>,
        repairs: &mut u64,
    ) -> Edge {
        let snapshot = self.snapshot;
        let length = packet.pkt_len();
        let (data, meta) = packet.data_and_meta();
        let parsed = match headers {
            Some(headers) => {
                meta.flow_hash = I::flow_hash(headers);
                Ok(())
            }
            None => I::parse(data, length, meta),
        };
        let hash = meta.flow_hash;
        if path & path::KERNEL != 0 && parsed.is_ok() {
            *repairs += u64::from(complete_checksum(packet));
        }
        if let Err(reason) = parsed {
            return malformed(packet, snapshot, reason);
        }
        if path & path::ROUTED != 0 {
            if !I::is_forwardable(packet.data())
                && let Some(edge) = not_forwardable(packet, snapshot)
            {
                return edge;
            }
            if self.locals.may_contain(packet.port(), I::destination_hash(packet.data()))
                && self.locals.contains(packet.port(), I::destination(packet.data()))
            {
                return Edge::Punt;
            }
        }
        if path & path::RULES == 0 {
            return if path & path::ROUTED != 0 { Edge::Lookup } else { Edge::Wire };
        }
        match self.owner_of(hash) {
            owner if owner == self.id => snapshot.policy_path_of(packet).into(),
            owner => {
                packet.meta_mut().stage = StageWord::from_worker(owner as u16);
                Edge::Handoff
            }
        }
    }

    /// The worker that owns a flow.
    #[inline]
    fn owner_of(&self, hash: u32) -> usize {
        if self.spread == 1 { self.id } else { Handoff::owner(self.spread, hash) }
    }
}

/// The edge of a packet on a routed port whose IPv4 header has options or a wrong checksum, or whose TTL has run out;
/// none if it is forwarded all the same.
///
/// A packet whose TTL has run out meets neither rules nor features, as with Linux: it is for the machine itself, or
/// its sender gets an ICMP error.
#[cold]
fn not_forwardable(packet: &mut Packet, snapshot: &Snapshot) -> Option<Edge> {
    let (head, meta) = packet.data_and_meta();
    let header = head.get(L3..usize::from(meta.l4_off))?;
    let is_ip4 = meta.kind.l3() == Kind::IP4;
    if is_ip4 && checksum::fold(checksum::sum(header, 0)) != 0xffff {
        meta.drop_reason = DropReason::Ip4Checksum as u8;
        return Some(Edge::Drop);
    }
    if *header.get(if is_ip4 { 8 } else { 7 })? > 1 {
        return None;
    }
    meta.session = FlowRef::NONE.0;
    let mut key = Key { kind: meta.kind.0, proto: meta.proto, ..Key::default() };
    if is_ip4 && let Some(to) = header.get(16..20) {
        key.destination[..4].copy_from_slice(to);
    }
    if snapshot.claims_destination(&key) {
        // Not the machine's own packet, whatever routes say: it would be sent on.
        meta.drop_reason = DropReason::TtlExpired as u8;
        return Some(Edge::Slow);
    }
    Some(Edge::Lookup)
}

/// The edge of a packet whose IP header is malformed.
///
/// It is dropped where rules apply, because nothing shows that it complies with them, and by a router (RFC 1812,
/// 5.2.2). A plain wire forwards it. A frame that the kernel truncated because it exceeds every buffer is dropped.
#[cold]
fn malformed(packet: &mut Packet, snapshot: &Snapshot, reason: DropReason) -> Edge {
    let is_cut = snapshot.port(packet.port()).is_some_and(|port| packet.pkt_len() >= port.max_frame());
    let is_truncated = matches!(reason, DropReason::Ip4Truncated | DropReason::Ip6Truncated);
    let reason = if is_cut && is_truncated { DropReason::GsoFrame } else { reason };
    let path = snapshot.path(packet.port());
    if reason != DropReason::GsoFrame && path & (path::RULES | path::ROUTED) == 0 {
        return Edge::Wire;
    }
    packet.meta_mut().drop_reason = reason as u8;
    Edge::Drop
}
