//! `ip4-input` and `ip6-input`: parse the headers of each packet once, and choose the worker that owns its
//! flow.
//!
//! Theory of operation. Packets to which rules apply are processed in runs with the same input port, so that
//! what the port says is read once per run. A plain packet takes one inlined parse; everything else goes
//! through [`InputContext::classify_rest`]. On a routed port, the checks of a router come first (RFC 1812,
//! 5.2.2 and 5.3.1).

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, Kind, StageWord, checksum};
use mmb_route::Routes;

use super::checksums::complete_checksum;
use super::hook::{Ingress, IngressHook, InputNodes, InputParts, PlainPacket};
use super::locals::LocalAddresses;
use super::sources::address_fault;
use super::version::{Ip4, Ip6, IpVersion};
use crate::engine::handoff::Handoff;
use crate::engine::node::edges::{OWN_LOOKUP, edges, send, send_all};
use crate::engine::node::vector::{
    ROUTED_L3 as L3, VECTOR, for_each_prefetched, prefetch_ahead, prefetch_first,
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

/// The nodes with the hook of a feature.
pub(crate) const fn nodes<G: Ingress>() -> InputNodes {
    InputNodes { ip4: process::<Ip4, G>, ip6: process::<Ip6, G> }
}

fn process<I: IpVersion, G: Ingress>(worker: &mut Worker, vector: Vector<'_>) {
    let has_policy = worker.snapshot.has_policy;
    let (parts, hook) = G::split(worker);
    if has_policy {
        process_with_policy::<I, G::Hook<'_>>(&parts, hook, vector);
    } else {
        process_without_policy::<I, G::Hook<'_>>(&parts, vector);
    }
}

/// Without rules. A routed packet takes so little work that its route is prefetched at once.
#[inline(always)]
fn process_without_policy<I: IpVersion, H: IngressHook>(parts: &InputParts<'_>, mut vector: Vector<'_>) {
    let context = InputContext::new(parts);
    let table = parts.routing.routes.single_table();
    // With a reverse path filter, no packet is plain: its source is looked up, too.
    let plain_mask = path::ROUTED | path::KERNEL | path::REVERSE_PATH;
    let mut edges = [Edge::Lookup; VECTOR];
    let mut repairs = 0;
    for_each_prefetched(vector.packets(), |at, packet| {
        let (path, length) = (parts.snapshot.path(packet.port()), packet.pkt_len());
        let (data, meta) = packet.data_and_meta();
        if path & plain_mask == path::ROUTED && I::parse_forwardable(data, length, meta) {
            if let Some(table) = table {
                I::prefetch_route(table, data);
            }
        } else {
            edges[at] = context.input::<I, H>(packet, path, None, &mut repairs);
        }
    });
    parts.repairs.add(repairs);
    send(vector, &edges);
}

/// Where rules apply to packets of some port: in runs of packets with the same input port.
#[inline(always)]
fn process_with_policy<I: IpVersion, H: IngressHook>(
    parts: &InputParts<'_>,
    mut hook: H,
    mut vector: Vector<'_>,
) {
    let context = InputContext::new(parts);
    let is_uniform = parts.spread == 1 && parts.snapshot.has_uniform_path();
    let n = vector.len();
    let mut edges = [context.policy_edge; VECTOR];
    let (mut repairs, mut diverges) = (0, false);
    hook.begin();
    prefetch_first(vector.packets());
    let mut at = 0;
    while at < n {
        let packets = vector.packets();
        let port = IngressPort::new(parts.snapshot, parts.locals(), is_uniform, packets[at].port());
        let run = PortRun { context: &context, port, from: at, edges: &mut edges, repairs: &mut repairs };
        (at, diverges) = match port.routed {
            true => run.process::<I, H, true>(&mut hook, packets, diverges),
            false => run.process::<I, H, false>(&mut hook, packets, diverges),
        };
    }
    parts.repairs.add(repairs);
    if !diverges {
        hook.end(vector.packets(), I::KIND);
        return send_all(vector, context.policy_edge);
    }
    send(vector, &edges);
}

/// Properties of the ingress port, read once for a run of packets.
#[derive(Clone, Copy)]
struct IngressPort {
    port: u16,
    /// Plain packets go straight to the rules; on a routed port, after the checks of a router.
    is_simple: bool,
    routed: bool,
    /// See [`crate::engine::config::AddressChecks::martians`].
    checks_martians: bool,
    /// See [`LocalAddresses::bits`].
    locals: u64,
}

impl IngressPort {
    #[inline]
    fn new(snapshot: &Snapshot, locals: &LocalAddresses, is_uniform: bool, port: u16) -> IngressPort {
        let (path, checks) = (snapshot.path(port), snapshot.address_checks);
        let routed = path & path::ROUTED != 0;
        IngressPort {
            port,
            is_simple: is_uniform && path & (path::RULES | path::KERNEL | path::REVERSE_PATH) == path::RULES,
            routed,
            checks_martians: checks.martians,
            locals: locals.bits(port, snapshot.policy_path == PolicyPath::Classify),
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
    /// Processes the run. Returns the position behind it, and whether some packet so far does not go to the
    /// rules (`diverges`: whether one before the run does not).
    ///
    /// `ROUTED`: see [`IngressPort::routed`].
    #[inline(always)]
    fn process<I: IpVersion, H: IngressHook, const ROUTED: bool>(
        self,
        hook: &mut H,
        packets: &mut [&mut Packet],
        mut diverges: bool,
    ) -> (usize, bool) {
        let PortRun { context, port, from, edges, repairs } = self;
        // The hook can use the hash of the device, if the device supplies one.
        let is_hashed = packets[from].rss_hash().is_some();
        for at in from..packets.len() {
            prefetch_ahead(packets, at);
            let packet = &mut *packets[at];
            if packet.port() != port.port {
                return (at, diverges);
            }
            let length = packet.pkt_len();
            let device_hash = if is_hashed { packet.rss_hash() } else { None };
            let (data, meta) = packet.data_and_meta();
            let l3 = if ROUTED { L3 } else { usize::from(meta.l3_off) };
            if port.is_simple
                && let Some(headers) = I::parse_plain(data, l3, length, meta)
                && (!ROUTED | I::is_forwarded(&headers, port.locals))
                    & !(port.checks_martians & I::is_impossible(&headers))
            {
                let (headers, port, bytes) = (&headers, port.port, length as u32);
                hook.take_plain(at, &PlainPacket { headers, data, meta, device_hash, port, bytes });
            } else {
                let path = context.snapshot.path(port.port);
                edges[at] = context.classify_rest::<I, H>(hook, at, packet, path, repairs);
                diverges |= edges[at] != context.policy_edge;
            }
        }
        (packets.len(), diverges)
    }
}

/// What the nodes use to decide about a packet.
struct InputContext<'a> {
    snapshot: &'a Snapshot,
    locals: &'a LocalAddresses,
    routes: &'a Routes,
    /// The worker that runs the node.
    id: usize,
    /// See [`Handoff::spread`].
    spread: u32,
    /// The edge of packets to which rules apply.
    policy_edge: Edge,
}

impl<'a> InputContext<'a> {
    #[inline(always)]
    fn new(parts: &InputParts<'a>) -> InputContext<'a> {
        let InputParts { id, snapshot, routing, spread, .. } = *parts;
        InputContext {
            snapshot,
            locals: &routing.locals,
            routes: &routing.routes,
            id,
            spread,
            policy_edge: snapshot.policy_path.into(),
        }
    }

    /// The edge of a packet that is not plain; kept out of the loop of plain packets.
    #[inline(never)]
    fn classify_rest<I: IpVersion, H: IngressHook>(
        &self,
        hook: &mut H,
        at: usize,
        packet: &mut Packet,
        path: u8,
        repairs: &mut u64,
    ) -> Edge {
        let length = packet.pkt_len();
        let (data, meta) = packet.data_and_meta();
        let headers = I::parse_plain(data, usize::from(meta.l3_off), length, meta);
        let edge = self.input::<I, H>(packet, path, headers.as_ref(), repairs);
        if edge == self.policy_edge {
            match &headers {
                Some(headers) => hook.take_plain(at, &PlainPacket::new(packet, headers)),
                None => hook.take_other(at, packet),
            }
        }
        edge
    }

    /// Parses a packet, unless `headers` shows that this was done, and returns its edge.
    #[inline(never)]
    fn input<I: IpVersion, H: IngressHook>(
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
            if packet.is_large() && packet.segment_size() == 0 {
                packet.meta_mut().drop_reason = DropReason::GsoFrame as u8;
                return Edge::Drop;
            }
            *repairs += u64::from(complete_checksum(packet));
        }
        if let Err(reason) = parsed
            && !reason.is_transport_error()
        {
            return malformed(packet, snapshot, reason);
        }
        if path & path::ROUTED != 0 {
            if !I::is_forwardable(packet.data())
                && let Some(edge) = not_forwardable::<H>(packet, snapshot)
            {
                return edge;
            }
            if self.locals.may_contain(packet.port(), I::destination_hash(packet.data()))
                && self.is_local::<I>(packet)
            {
                return Edge::Punt;
            }
        }
        if let Some(reason) =
            address_fault::<I>(packet, path, snapshot.address_checks.martians, (self.locals, self.routes))
        {
            packet.meta_mut().drop_reason = reason as u8;
            return Edge::Drop;
        }
        if path & path::RULES == 0 {
            return if path & path::ROUTED != 0 { Edge::Lookup } else { Edge::Wire };
        }
        if let Err(reason) = parsed {
            // No rule can read the ports, but the receiver may.
            packet.meta_mut().drop_reason = reason as u8;
            return Edge::Drop;
        }
        match self.owner_of(hash) {
            owner if owner == self.id => snapshot.policy_path_of(packet).into(),
            owner => {
                packet.meta_mut().stage = StageWord::from_worker(owner as u16);
                Edge::Handoff
            }
        }
    }

    /// Whether a packet of a routed port is the machine's, whatever rules say. Shared addresses are if no
    /// session is looked up.
    #[cold]
    fn is_local<I: IpVersion>(&self, packet: &Packet) -> bool {
        let (port, destination) = (packet.port(), I::destination(packet.data()));
        let asks_sessions = || self.snapshot.policy_path_of(packet) == PolicyPath::Sessions;
        self.locals.contains(port, destination)
            || self.locals.is_shared(port, destination) && !asks_sessions()
    }

    /// The worker that owns a flow.
    #[inline]
    fn owner_of(&self, hash: u32) -> usize {
        if self.spread == 1 { self.id } else { Handoff::owner(self.spread, hash) }
    }
}

/// The edge of a packet on a routed port whose IPv4 header has options or a wrong checksum, or whose TTL has
/// run out; none if it is forwarded all the same.
///
/// A packet whose TTL has run out meets neither rules nor features, as with Linux: it is for the machine
/// itself, or its sender gets an ICMP error.
#[cold]
fn not_forwardable<H: IngressHook>(packet: &mut Packet, snapshot: &Snapshot) -> Option<Edge> {
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
    if H::claims_expired(snapshot, packet) {
        // Not the machine's own packet, whatever routes say: it would be sent on.
        packet.meta_mut().drop_reason = DropReason::TtlExpired as u8;
        return Some(Edge::Slow);
    }
    Some(Edge::Lookup)
}

/// The edge of a packet whose IP header is malformed.
///
/// It is dropped where rules apply, because nothing shows that it complies with them, and by a router (RFC
/// 1812, 5.2.2). A plain wire forwards it. A frame that the kernel truncated because it exceeds every buffer
/// is dropped.
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
