//! `ip4-input` and `ip6-input`: the one parse of a packet's headers, and the choice of the flow's worker. On a routed port, also
//! what a router has to hold against a packet before it does anything with it (RFC 1812, 5.2.2, 5.3.1).

use mmb_dpdk::{Packet, Vector};
use mmb_flow::{FlowRef, Key};
use mmb_packet::{DropReason, Kind, StageWord, checksum};
use mmb_session::Sessions;

use crate::engine::snapshot::{Snapshot, path};
use crate::engine::vector::{ROUTED_L3 as L3, VECTOR, ask, begin, for_each};
use crate::engine::worker::Worker;
use crate::features::flow_rules::is_sessionless;
use crate::features::ip::locals::Locals;
use crate::features::ip::version::{Ip, Ip4, Ip6};
use crate::features::session::dispatch::who;

/// Where packets go that rules apply to: the one edge or the other, as the snapshot says.
pub(crate) const CLASSIFY: u16 = 0;
/// The same, if the rules need sessions.
pub(crate) const FLOW_LOOKUP: u16 = 4;
const WIRE: u16 = 1;
const DROP: u16 = 2;
const HANDOFF: u16 = 3;
const LOOKUP: u16 = 5;
const SLOW: u16 = 6;
const PUNT: u16 = 7;
/// Segments behind the first one that a checksum is completed over; a frame of more is left as it came.
const SEGMENTS: usize = 32;

/// The edges of a node whose packets are routed by `lookup`.
pub(crate) fn next(lookup: &'static str) -> Vec<&'static str> {
    vec!["classify", "wire-output", "drop", "handoff", "flow-lookup", lookup, "ip-slow", "punt"]
}

pub(crate) fn process4(worker: &mut Worker, vector: Vector<'_>) {
    process::<Ip4>(worker, vector);
}

pub(crate) fn process6(worker: &mut Worker, vector: Vector<'_>) {
    process::<Ip6>(worker, vector);
}

#[inline(always)]
fn process<I: Ip>(worker: &mut Worker, vector: Vector<'_>) {
    if worker.snapshot.ruled { ruled::<I>(worker, vector) } else { unruled::<I>(worker, vector) }
}

/// Where no rules apply: what is routed is so little work that its destination is asked for at once.
#[inline(always)]
fn unruled<I: Ip>(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, snapshot, routes, locals, spread, shared, .. } = worker;
    let under = Under { snapshot, locals, id: *id, spread: *spread };
    let table = routes.single_table();
    let n = vector.len();
    let mut edges = [LOOKUP; VECTOR];
    let mut repairs = 0;
    for_each(vector.packets(), |at, packet| {
        let (path, length) = (snapshot.path(packet.port()), packet.pkt_len());
        let (data, meta) = packet.data_and_meta();
        if path & (path::ROUTED | path::KERNEL) == path::ROUTED && I::look(data, length, meta) {
            if let Some(table) = table {
                I::ask(table, data);
            }
        } else {
            edges[at] = under.input::<I>(packet, path, None, &mut repairs);
        }
    });
    shared.workers[*id].counters.repairs.add(repairs);
    vector.send(&edges[..n]);
}

/// Where rules apply, or to some ports: packets are looked at in runs of those that came in by one port.
#[inline(always)]
fn ruled<I: Ip>(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, snapshot, locals, spread, sessions, shared, .. } = worker;
    let under = Under { snapshot, locals, id: *id, spread: *spread };
    let (rules, alone) = (snapshot.rules, *spread == 1 && snapshot.mark == 0);
    let n = vector.len();
    let mut edges = [rules; VECTOR];
    let (mut repairs, mut others, flows) = (0, false, rules == FLOW_LOOKUP);
    sessions.begin_vector(I::KIND);
    begin(vector.packets());
    let mut at = 0;
    while at < n {
        let packets = vector.packets();
        let by = By::port(snapshot, locals, alone, packets[at].port());
        let run = Run { under: &under, by, from: at, edges: &mut edges, repairs: &mut repairs };
        (at, others) = match (flows, by.routed) {
            (true, true) => run.go::<I, true, true>(sessions, packets, others),
            (true, false) => run.go::<I, true, false>(sessions, packets, others),
            (false, true) => run.go::<I, false, true>(sessions, packets, others),
            (false, false) => run.go::<I, false, false>(sessions, packets, others),
        };
    }
    shared.workers[*id].counters.repairs.add(repairs);
    if flows && !others {
        let packets = &*vector.packets();
        if let (Some(first), Some(last)) = (packets.first(), packets.last()) {
            sessions.are_in(n, [who(first), who(last)]);
        }
        return vector.send_all(FLOW_LOOKUP);
    }
    vector.send(&edges[..n]);
}

/// What there is to know of a port.
#[derive(Clone, Copy)]
struct By {
    port: u16,
    /// Common packets have nothing but routing between them and the rules.
    simple: bool,
    routed: bool,
    /// As [`Locals::bits`].
    locals: u64,
}

impl By {
    #[inline]
    fn port(snapshot: &Snapshot, locals: &Locals, alone: bool, port: u16) -> By {
        let path = snapshot.path(port);
        By {
            port,
            simple: alone && path & (path::RULES | path::KERNEL) == path::RULES,
            routed: path & path::ROUTED != 0,
            locals: locals.bits(port),
        }
    }
}

/// Packets of a vector that came in by one port, from a position on.
struct Run<'a> {
    under: &'a Under<'a>,
    by: By,
    from: usize,
    edges: &'a mut [u16; VECTOR],
    repairs: &'a mut u64,
}

impl Run<'_> {
    /// Looks at them, and says where they end, and whether some of the vector so far, as `others` says of those before, do not go where
    /// rules are asked. Between a common packet and the rules stands nothing but routing, unless other workers have a share; the
    /// sessions, if there are to be any (`FLOWS`), take it in while it is at hand. `ROUTED`: as [`By::routed`].
    #[inline(always)]
    fn go<I: Ip, const FLOWS: bool, const ROUTED: bool>(
        self,
        sessions: &mut Sessions,
        packets: &mut [&mut Packet],
        mut others: bool,
    ) -> (usize, bool) {
        let Run { under, by, from, edges, repairs } = self;
        // The device's own hash, if it tells: the flow table guesses by it where the session stands.
        let hashed = FLOWS && packets[from].rss_hash().is_some();
        for at in from..packets.len() {
            ask(packets, at);
            let packet = &mut *packets[at];
            if packet.port() != by.port {
                return (at, others);
            }
            let length = packet.pkt_len();
            let (data, meta) = packet.data_and_meta();
            let l3 = if ROUTED { L3 } else { usize::from(meta.l3_off) };
            if by.simple
                && let Some(common) = I::parse_common(data, l3, length, meta)
                && (!ROUTED || I::is_forwarded(&common, by.locals))
            {
                if FLOWS {
                    let brought = if hashed { packet.rss_hash() } else { None };
                    I::take_in(sessions, at, &common, brought, by.port, length as u32);
                }
            } else {
                let path = under.snapshot.path(by.port);
                edges[at] = under.otherwise::<I>(sessions, at, packet, path, repairs);
                others |= edges[at] != FLOW_LOOKUP;
            }
        }
        (packets.len(), others)
    }
}

/// What packets are looked at with.
struct Under<'a> {
    snapshot: &'a Snapshot,
    locals: &'a Locals,
    /// The worker that has them.
    id: usize,
    /// Workers among which flows are spread by software: 1 when each receives its own flows already.
    spread: u32,
}

impl Under<'_> {
    /// What else there is where rules apply; out of the way of common packets.
    #[inline(never)]
    fn otherwise<I: Ip>(
        &self,
        sessions: &mut Sessions,
        at: usize,
        packet: &mut Packet,
        path: u8,
        repairs: &mut u64,
    ) -> u16 {
        let (port, length) = (packet.port(), packet.pkt_len());
        let (data, meta) = packet.data_and_meta();
        let common = I::parse_common(data, usize::from(meta.l3_off), length, meta);
        let edge = self.input::<I>(packet, path, common.as_ref(), repairs);
        if edge == FLOW_LOOKUP {
            match &common {
                Some(common) => I::take_in(sessions, at, common, packet.rss_hash(), port, length as u32),
                None => sessions.take_in(at, packet.data(), packet.meta(), port, length as u32),
            }
        }
        edge
    }

    /// Parses a packet if that has not come to something yet, and answers its edge.
    #[inline(never)]
    fn input<I: Ip>(
        &self,
        packet: &mut Packet,
        path: u8,
        common: Option<&I::Common>,
        repairs: &mut u64,
    ) -> u16 {
        let snapshot = self.snapshot;
        let length = packet.pkt_len();
        let (data, meta) = packet.data_and_meta();
        let parsed = match common {
            Some(common) => {
                meta.flow_hash = I::flow_hash(common);
                Ok(())
            }
            None => I::parse(data, length, meta),
        };
        let hash = meta.flow_hash;
        if path & path::KERNEL != 0 && parsed.is_ok() {
            *repairs += u64::from(finish_checksum(packet));
        }
        if let Err(reason) = parsed {
            return malformed(packet, snapshot, reason);
        }
        if path & path::ROUTED != 0 {
            if !I::goes_on(packet.data())
                && let Some(edge) = stopped(packet, snapshot)
            {
                return edge;
            }
            if self.locals.may_have(packet.port(), I::hash_to(packet.data()))
                && self.locals.has(packet.port(), I::to(packet.data()))
            {
                return PUNT;
            }
        }
        if path & path::RULES == 0 {
            return past_rules(path);
        }
        match self.owner_of(hash) {
            owner if owner == self.id => {
                if snapshot.mark != 0 && is_sessionless(packet, snapshot.mark) {
                    CLASSIFY
                } else {
                    snapshot.rules
                }
            }
            owner => hand_off(packet, owner),
        }
    }

    /// The worker that a flow belongs to: the hash scaled to the number of workers, without a division.
    #[inline]
    fn owner_of(&self, hash: u32) -> usize {
        match self.spread {
            1 => self.id,
            n => ((u64::from(hash) * u64::from(n)) >> 32) as usize,
        }
    }
}

/// The edge of a packet that no rules apply to.
#[inline(always)]
fn past_rules(path: u8) -> u16 {
    if path & path::ROUTED != 0 { LOOKUP } else { WIRE }
}

/// A packet on a routed port whose header has options, or is damaged, or does not let it go on; its edge, if that is special.
/// One that is at its end is not shown to rules or NAT, as with Linux: it is for the machine itself, or its sender is told.
#[cold]
fn stopped(packet: &mut Packet, snapshot: &Snapshot) -> Option<u16> {
    let (head, meta) = packet.data_and_meta();
    let header = head.get(L3..usize::from(meta.l4_off))?;
    let is_ip4 = meta.kind.l3() == Kind::IP4;
    if is_ip4 && checksum::fold(checksum::sum(header, 0)) != 0xffff {
        meta.drop_reason = DropReason::Ip4Checksum as u8;
        return Some(DROP);
    }
    if *header.get(if is_ip4 { 8 } else { 7 })? > 1 {
        return None;
    }
    meta.session = FlowRef::NONE.0;
    let mut key = Key { kind: meta.kind.0, proto: meta.proto, ..Key::default() };
    if is_ip4 && let Some(to) = header.get(16..20) {
        key.destination[..4].copy_from_slice(to);
    }
    if snapshot.nat.is_nat_destination(&key) {
        // Not the machine's own, whatever routes say: it would be translated and sent on.
        meta.drop_reason = DropReason::TtlExpired as u8;
        return Some(SLOW);
    }
    Some(LOOKUP)
}

/// Marks a packet for another worker.
#[inline]
fn hand_off(packet: &mut Packet, owner: usize) -> u16 {
    packet.meta_mut().stage = StageWord::from_worker(owner as u16);
    HANDOFF
}

/// Completes a transport checksum that a kernel peer left to hardware that is not there.
pub(crate) fn finish_checksum(packet: &mut Packet) -> bool {
    let meta = *packet.meta();
    let (head, segments) = packet.split_first_segment();
    let mut rest: [&[u8]; SEGMENTS] = [&[]; SEGMENTS];
    let mut n = 0;
    for (to, segment) in rest.iter_mut().zip(segments) {
        *to = segment;
        n += 1;
    }
    checksum::complete_partial(head, &rest[..n], &meta)
}

/// A packet whose IP header is wrong: dropped where rules apply, since nobody can say that it complies with them, and by a
/// router (RFC 1812, 5.2.2); passed on by a plain wire. A frame that the kernel cut because it is too large for any buffer is damaged and goes.
#[cold]
fn malformed(packet: &mut Packet, snapshot: &Snapshot, reason: DropReason) -> u16 {
    let cut = snapshot.port(packet.port()).is_some_and(|port| packet.pkt_len() >= port.max_frame());
    let truncated = matches!(reason, DropReason::Ip4Truncated | DropReason::Ip6Truncated);
    let reason = if cut && truncated { DropReason::GsoFrame } else { reason };
    let path = snapshot.path(packet.port());
    if reason != DropReason::GsoFrame && path & (path::RULES | path::ROUTED) == 0 {
        return WIRE;
    }
    packet.meta_mut().drop_reason = reason as u8;
    DROP
}
