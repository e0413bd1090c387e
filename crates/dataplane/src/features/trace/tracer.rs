//! Follows packets from node to node.

use std::time::{SystemTime, UNIX_EPOCH};

use mmb_dpdk::Packet;
use mmb_flow::FlowRef;
use mmb_packet::{DropReason, OUT_ROUTED, PacketFlags};
use mmb_policy::{Batch, Policy};

use super::record::{AppliedRules, PacketTrace, TraceEnd, TraceRequest, TraceStep, TracedSession};
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
/// The nodes that know the packet's session afterwards.
const FINDS_SESSION: [&str; 4] = ["flow-lookup", "flow-classify", "flow-track", "chain"];
/// The nodes that may keep a packet beyond a walk.
const KEEPS: [&str; 6] = ["flow-lookup", "flow-classify", "flow-track", "chain", "ip-slow", "punt"];
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
            is_over: false,
            batch: Box::default(),
            frame: Vec::new(),
        }
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
            let is_kept = open.trace.steps.last().is_some_and(|step| KEEPS.contains(&step.node));
            if is_kept && self.open.len() < MOST_OPEN { at += 1 } else { self.finish(at, TraceEnd::Kept) }
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
        for (packet, is_selected) in packets.iter().zip(selected) {
            let is_handed = packet.meta().flags.contains(PacketFlags::HANDED);
            let address = address(packet);
            let known = self.open.iter().position(|open| open.address == address);
            if let Some(known) = known.filter(|_| is_first) {
                // Another packet has its buffer.
                self.finish(known, TraceEnd::Kept);
            }
            let is_begun = is_selected && (is_first || is_handed && known.is_none());
            if self.is_over || !is_begun || self.open.len() >= MOST_OPEN {
                continue;
            }
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
            self.open.push(OpenTrace { address, trace, matched: Vec::new() });
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
        let (packet, trace) = (&packets[at], &mut self.open[number].trace);
        let meta = *packet.meta();
        if let Some(before) = trace.steps.last()
            && FINDS_SESSION.contains(&before.node)
            && worker.snapshot.needs_sessions()
        {
            let environment = worker.snapshot.for_worker(worker.id);
            let view = worker.flows.sessions.view(meta.session, worker.clock.now, &environment);
            trace.session = view.map(|view| TracedSession {
                is_new: view.packets.iter().sum::<u64>() <= 1,
                direction: FlowRef(meta.session).direction(),
                view,
            });
        }
        let is_rewrite = node == "ip4-rewrite" || node == "ip6-rewrite";
        let gateway =
            is_rewrite.then(|| worker.routing.routes.hops.get(meta.stage.next_hop()).gateway).flatten();
        let step = trace.steps.len();
        let (head, len) = (packet.data().to_vec(), packet.pkt_len());
        trace.steps.push(TraceStep { node, head, len, meta, functions: Vec::new(), gateway });
        if let Some((slots, out_port)) = rules {
            let policy = &worker.snapshot.policy;
            let mut matched: Vec<u32> = slots.iter().filter_map(|slot| policy.index(*slot)).collect();
            matched.sort_unstable();
            trace.rules = Some(AppliedRules { matched, out_port, step, decider: None });
            self.open[number].matched = slots;
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
        find_matches(&snapshot.policy, around, &mut self.batch, packet, &mut self.frame, out);
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
    for (at, packet) in packets.iter().enumerate().take(VECTOR) {
        let mut meta = mmb_packet::Meta::default();
        batch.windows[at] = mmb_packet::Window::default();
        let is_parsed = mmb_packet::parse(packet.data(), packet.pkt_len(), &mut meta);
        if is_parsed.is_err_and(|reason| !reason.is_transport_error()) {
            continue;
        }
        let (port, window) = (packet.port(), &mut batch.windows[at]);
        mmb_packet::fill_window(
            packet.data(),
            &meta,
            port,
            worker.snapshot.peer(port),
            filter.chunks(),
            window,
        );
        if filter.needs_bytes() {
            filter.inspect(batch, at, packet.data(), &meta);
        }
    }
    batch.len = packets.len().min(VECTOR);
    filter.classify(batch);
    for hit in &batch.hits {
        selected[usize::from(hit.pkt)] = true;
    }
}
