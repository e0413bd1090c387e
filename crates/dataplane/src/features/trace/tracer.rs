//! Follows packets from node to node.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use mmb_dpdk::Packet;
use mmb_flow::Key;
use mmb_packet::{DropReason, OUT_ROUTED, PacketFlags};
use mmb_policy::{Batch, Policy};
use mmb_session::Sessions;

use super::record::{
    AppliedRules, PacketTrace, TraceDetail, TraceEnd, TraceRequest, TraceStep, TracedSession,
};
use crate::engine::config::PortId;
use crate::engine::node::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::classify::matching::find_matches;
use crate::features::route::out::output_ports;

/// The node by which packets come in from ports.
const FIRST: &str = "l2-input";
/// The nodes to which other workers hand packets.
const AFTER_HANDOFF: [&str; 2] = ["flow-lookup", "classify"];
/// The nodes that ask rules.
const ASKS_RULES: [&str; 3] = ["classify", "flow-lookup", "flow-track"];
/// The node that looks sessions up, and the one that opens some.
const LOOKS_UP: &str = "flow-lookup";
const OPENS_SESSIONS: &str = "flow-track";
/// The nodes that know the packet's session afterwards.
const FINDS_SESSION: [&str; 4] = ["flow-lookup", "flow-classify", "flow-track", "chain"];
/// The nodes that may keep a packet beyond a walk.
const KEEPS: [&str; 6] = ["flow-lookup", "flow-classify", "flow-track", "chain", "ip-slow", "punt"];
/// The last node of a graph with ports.
pub(crate) const LIVE_SINK: &str = "port-tx";
/// Most packets that are followed at once.
const MOST_OPEN: usize = 1024;

/// The traces of a worker.
pub(crate) struct Tracer {
    request: TraceRequest,
    /// The node from which packets leave by ports.
    sink: &'static str,
    open: Vec<OpenTrace>,
    /// Packets whose traces have begun.
    begun: u64,
    /// Sessions that the last call of `flow-track` has opened, as far as packets have shown them.
    fresh: Vec<u32>,
    /// The request wants no more packets.
    is_over: bool,
    batch: Box<Batch>,
    frame: Vec<u8>,
}

/// A packet that is under way.
struct OpenTrace {
    /// Address of the packet's metadata.
    address: usize,
    trace: PacketTrace,
    matched: Vec<u32>,
    /// The last node.
    node: &'static str,
    /// The key of the last lookup of its session.
    key: Option<Key>,
    /// There was no session in front of the node that opens some.
    may_open: bool,
}

/// Shows the packets of a node to the worker's tracer.
pub(crate) fn observe(worker: &mut Worker, node: &'static str, packets: &mut [&mut Packet]) {
    if let Some(mut tracer) = worker.tracer.take() {
        tracer.observe(worker, node, packets);
        worker.tracer = Some(tracer);
    }
}

fn address(packet: &Packet) -> usize {
    std::ptr::from_ref(packet.meta()).addr()
}

impl Tracer {
    /// A tracer of a graph with this last node.
    pub fn new(request: TraceRequest, sink: &'static str) -> Tracer {
        Tracer {
            request,
            sink,
            open: Vec::new(),
            begun: 0,
            fresh: Vec::new(),
            is_over: false,
            batch: Box::default(),
            frame: Vec::new(),
        }
    }

    /// Traces no more packets.
    pub fn stop(&mut self) {
        self.is_over = true;
    }

    /// Whether the request wants no more packets.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// To be called between two walks: ends the traces of packets that are in no node any more, and watches
    /// the others in chains.
    pub fn begin_walk(&mut self, worker: &mut Worker) {
        self.take_visits(worker);
        let mut at = 0;
        while let Some(open) = self.open.get(at) {
            if KEEPS.contains(&open.node) && self.open.len() < MOST_OPEN {
                at += 1
            } else {
                self.finish(at, TraceEnd::Kept)
            }
        }
        self.watch(worker);
    }

    /// Ends all traces.
    pub fn finish_all(&mut self, worker: &mut Worker) {
        self.take_visits(worker);
        while !self.open.is_empty() {
            self.finish(0, TraceEnd::Kept);
        }
        worker.flows.sessions.watch(None);
    }

    fn watch(&self, worker: &mut Worker) {
        if self.request.detail == TraceDetail::Ends {
            return;
        }
        let addresses: Vec<usize> = self.open.iter().map(|open| open.address).collect();
        worker.flows.sessions.watch(Some(&addresses));
    }

    /// Adds the functions that packets have passed since the last call.
    fn take_visits(&mut self, worker: &mut Worker) {
        for visit in worker.flows.sessions.take_visits() {
            if let Some(open) = self.open.iter_mut().find(|open| open.address == visit.packet)
                && let Some(step) = open.trace.steps.last_mut()
            {
                step.functions.push(visit);
            }
        }
    }

    fn observe(&mut self, worker: &mut Worker, node: &'static str, packets: &mut [&mut Packet]) {
        self.take_visits(worker);
        if node == FIRST || AFTER_HANDOFF.contains(&node) {
            self.begin(worker, node, packets);
        }
        if self.open.is_empty() {
            return;
        }
        if node == OPENS_SESSIONS {
            self.fresh.clear();
        }
        for at in 0..packets.len() {
            let address = address(packets[at]);
            let Some(number) = self.open.iter().position(|open| open.address == address) else { continue };
            self.step(worker, node, packets, (at, number));
            if let Some(end) = self.end(node, packets[at]) {
                self.decide(worker, number, end);
                self.finish(number, end);
            }
        }
        if node == "chain" {
            self.watch(worker);
        }
    }

    /// Begins to trace those packets of the first node that the request selects.
    fn begin(&mut self, worker: &Worker, node: &str, packets: &mut [&mut Packet]) {
        let is_first = node == FIRST;
        let mut selected = [self.request.filter.is_none(); VECTOR];
        if let Some(filter) = &self.request.filter {
            select(filter, worker, &mut self.batch, packets, &mut selected);
        }
        let mut begun = 0;
        for (packet, is_selected) in packets.iter().zip(selected) {
            let is_handed = packet.meta().flags.contains(PacketFlags::HANDED);
            let address = address(packet);
            let known = self.open.iter().position(|open| open.address == address);
            if let Some(known) = known.filter(|_| is_first) {
                // Another packet has its buffer.
                self.finish(known, TraceEnd::Kept);
            }
            let is_begun = is_selected && (is_first || is_handed && known.is_none());
            if self.is_over || !is_begun {
                continue;
            }
            if self.open.len() >= MOST_OPEN || begun == self.request.detail.most_of_vector() {
                self.request.missed.fetch_add(1, Relaxed);
                continue;
            }
            begun += 1;
            self.begun += 1;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let trace = PacketTrace {
                number: self.begun,
                worker: worker.id,
                time_ns: now.as_nanos() as u64,
                in_port: PortId(packet.port()),
                steps: Vec::new(),
                rules: None,
                session: None,
                end: TraceEnd::Kept,
            };
            self.open.push(OpenTrace {
                address,
                trace,
                matched: Vec::new(),
                node: FIRST,
                key: None,
                may_open: false,
            });
        }
    }

    /// Notes a packet in front of a node.
    fn step(
        &mut self,
        worker: &mut Worker,
        node: &'static str,
        packets: &mut [&mut Packet],
        (at, number): (usize, usize),
    ) {
        let rules = ASKS_RULES.contains(&node).then(|| self.find_rules(worker, &mut packets[at..=at]));
        let is_noted = match self.request.detail {
            TraceDetail::Path => true,
            TraceDetail::Ends => node == FIRST || self.end(node, packets[at]).is_some(),
        };
        let packet = &packets[at];
        let Tracer { open, request, fresh, .. } = self;
        let OpenTrace { trace, matched: applied, node: last, key, may_open, .. } = &mut open[number];
        let before = std::mem::replace(last, node);
        let meta = *packet.meta();
        let sessions = &worker.flows.sessions;
        let environment = worker.snapshot.for_worker(worker.id);
        let find = |key: Option<Key>| sessions.find(&key?, worker.clock.now, &environment);
        if FINDS_SESSION.contains(&before)
            && let Some((view, direction)) = find(*key)
        {
            let was_new = trace.session.as_ref().is_some_and(|session| session.is_new);
            let is_new = was_new || *may_open && !fresh.contains(&view.uid);
            if is_new {
                fresh.push(view.uid);
            }
            trace.session = Some(TracedSession { is_new, direction, view });
        }
        match node {
            LOOKS_UP => *key = Sessions::lookup_key(packet.data(), &meta),
            OPENS_SESSIONS => *may_open = find(*key).is_none(),
            _ => {}
        }
        let is_rewrite = node == "ip4-rewrite" || node == "ip6-rewrite";
        let gateway =
            is_rewrite.then(|| worker.routing.routes.hops.get(meta.stage.next_hop()).gateway).flatten();
        let step = trace.steps.len();
        if is_noted {
            let is_whole = request.detail == TraceDetail::Ends;
            let head = if is_whole { packet.to_vec() } else { packet.data().to_vec() };
            let len = packet.pkt_len();
            trace.steps.push(TraceStep { node, head, len, meta, functions: Vec::new(), gateway });
        }
        if let Some((slots, out_port)) = rules {
            let policy = &worker.snapshot.policy;
            let mut matched: Vec<u32> = slots.iter().filter_map(|slot| policy.index(*slot)).collect();
            matched.sort_unstable();
            trace.rules = Some(AppliedRules { matched, out_port, step, decider: None });
            *applied = slots;
        }
    }

    /// Finds the rules that match one packet, and the output port that they read.
    fn find_rules(&mut self, worker: &mut Worker, packet: &mut [&mut Packet]) -> (Vec<u32>, u16) {
        let Worker { id, snapshot, routing, flows, .. } = worker;
        let environment = snapshot.for_worker(*id);
        let sessions = &flows.sessions;
        let out =
            |packet: &Packet| sessions.effective_destination(&environment, packet.data(), packet.meta());
        let around = (&**snapshot, &*routing.routes);
        find_matches(snapshot.policy.classifier(), around, &mut self.batch, packet, &mut self.frame, out);
        let peer = packet.first().map_or(PortId::NONE.0, |packet| snapshot.peer(packet.port()));
        let out_port = match peer {
            OUT_ROUTED if snapshot.needs_out_port => output_ports(&routing.routes, snapshot, packet, out)[0],
            peer => peer,
        };
        (self.batch.hits.iter().map(|hit| hit.slot).collect(), out_port)
    }

    /// What becomes of a packet in a last node.
    fn end(&self, node: &str, packet: &Packet) -> Option<TraceEnd> {
        let meta = packet.meta();
        Some(match node {
            node if node == self.sink => TraceEnd::Sent(PortId(meta.out_port)),
            "drop" => {
                TraceEnd::Dropped(DropReason::from_number(meta.drop_reason).unwrap_or(DropReason::Rule))
            }
            "handoff" => TraceEnd::HandedOver,
            "consume" => TraceEnd::Consumed,
            _ => return None,
        })
    }

    /// Finds the rule that decides: among those that match the packet, and those of its session.
    fn decide(&mut self, worker: &Worker, number: usize, end: TraceEnd) {
        let (policy, OpenTrace { trace, matched, .. }) = (&worker.snapshot.policy, &mut self.open[number]);
        let of_session = trace.session.iter().flat_map(|session| &session.view.rules);
        let of_session = of_session.filter_map(|index| Some(policy.rule(*index)?.slot));
        let decider = policy
            .decider(matched.iter().copied().chain(of_session), end == TraceEnd::Dropped(DropReason::Rule));
        if let Some(rules) = &mut trace.rules {
            rules.decider = decider;
        }
    }

    fn finish(&mut self, number: usize, end: TraceEnd) {
        let OpenTrace { mut trace, .. } = self.open.remove(number);
        trace.end = end;
        if !self.is_over {
            self.is_over = !(self.request.sink)(trace);
        }
    }
}

/// Finds the packets that a filter matches as they come in.
fn select(
    filter: &Policy,
    worker: &Worker,
    batch: &mut Batch,
    packets: &[&mut Packet],
    selected: &mut [bool; VECTOR],
) {
    let classifier = filter.classifier();
    for (at, packet) in packets.iter().enumerate().take(VECTOR) {
        let mut meta = mmb_packet::Meta::default();
        batch.windows[at] = mmb_packet::Window::default();
        let is_parsed = mmb_packet::parse(packet.data(), packet.pkt_len(), &mut meta);
        if is_parsed.is_err_and(|reason| !reason.is_transport_error()) {
            continue;
        }
        let (port, window) = (packet.port(), &mut batch.windows[at]);
        let peer = worker.snapshot.peer(port);
        mmb_packet::fill_window(packet.data(), &meta, port, peer, classifier.chunks(), window);
        if classifier.needs_bytes() {
            classifier.inspect(batch, at, packet.data(), &meta);
        }
    }
    batch.len = packets.len().min(VECTOR);
    classifier.classify(batch);
    for hit in &batch.hits {
        selected[usize::from(hit.pkt)] = true;
    }
}
