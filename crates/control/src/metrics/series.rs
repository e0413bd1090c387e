//! Names, help texts and values of the metrics.

use crate::api::{
    CostEntry, DomainStatus, FastPathReply, InterfaceEntry, NodeEntry, PoolEntry, ProcessEntry,
    RoutingCounts, RuleEntry, SessionCounts, SetEntry, StreamCounts, WorkerEntry,
};

/// Name, help text and value of a metric.
pub(super) type Metric<T> = (&'static str, &'static str, fn(&T) -> u64);

pub(super) const RULE_METRICS: [Metric<RuleEntry>; 3] = [
    ("rule_packets", "Packets a rule matched (first 10,000 rules)", |r| r.packets),
    ("rule_bytes", "Bytes of the frames a rule matched (first 10,000 rules)", |r| r.bytes),
    (
        "rule_decided",
        "Packets that a rule dropped, or accepted although another would drop them (first 10,000 rules)",
        |r| r.decided.unwrap_or(0),
    ),
];

pub(super) const WORKER_METRICS: [Metric<WorkerEntry>; 2] = [
    ("worker_sleeps", "Times a worker slept because there were no packets", |w| w.sleeps),
    ("worker_checksum_repairs", "Checksums completed for a kernel peer", |w| w.checksum_repairs),
];

pub(super) const INTERFACE_METRICS: [Metric<InterfaceEntry>; 8] = [
    ("interface_rx_packets", "Packets received", |d| d.rx_packets),
    ("interface_rx_bytes", "Bytes received", |d| d.rx_bytes),
    ("interface_tx_packets", "Packets sent", |d| d.tx_packets),
    ("interface_tx_bytes", "Bytes sent", |d| d.tx_bytes),
    ("interface_rx_missed", "Packets dropped by the device because it had no free buffer", |d| d.rx_missed),
    ("interface_rx_errors", "Packets received with errors", |d| d.rx_errors),
    ("interface_tx_errors", "Packets that could not be sent", |d| d.tx_errors),
    ("interface_tx_merged", "Packets sent as a part of the large frame before them", |d| d.tx_merged),
];

pub(super) const NODE_METRICS: [Metric<NodeEntry>; 3] = [
    ("node_packets", "Packets that a graph node processed", |n| n.packets),
    ("node_vectors", "Vectors that a graph node processed", |n| n.vectors),
    ("node_ticks", "Clock ticks (TSC) spent in a graph node", |n| n.ticks),
];

pub(super) const SESSION_GAUGES: [Metric<SessionCounts>; 4] = [
    ("sessions", "Open sessions", |s| s.sessions),
    ("sessions_half_open", "Open sessions without a reply so far", |s| s.half_open),
    ("sessions_capacity", "Maximum number of sessions", |s| s.capacity),
    ("held_packets", "Packets that functions of chains hold", |s| s.held_packets),
];

pub(super) const SET_GAUGES: [Metric<SetEntry>; 2] = [
    ("set_elements", "Elements of a named set", |s| s.elements),
    ("set_expiring", "Elements of a named set that expire", |s| s.expiring),
];

pub(super) const POOL_GAUGES: [Metric<PoolEntry>; 5] = [
    ("nat_hosts", "Inside hosts with a mapping or a block of a NAT pool", |p| p.hosts),
    ("nat_sessions", "Sessions opened by inside hosts through a NAT pool", |p| p.sessions),
    ("nat_ports", "Ports of a NAT pool, for each protocol", |p| p.ports_total),
    ("nat_blocks", "Port blocks of a NAT pool", |p| p.blocks_total),
    ("nat_blocks_used", "Port blocks of a NAT pool in use", |p| p.blocks_used),
];

pub(super) const POOL_COUNTERS: [Metric<PoolEntry>; 2] = [
    ("nat_exhausted", "Times a NAT pool had no free port", |p| p.exhausted),
    ("nat_limited", "Times a host had reached the limit of its NAT pool", |p| p.limited),
];

pub(super) const FUNCTION_METRICS: [Metric<CostEntry>; 7] = [
    ("function_packets", "Packets that a network function processed", |f| f.packets),
    ("function_drops", "Packets that a network function dropped", |f| f.drops),
    ("function_refused", "Packets with which a network function refused or ended their session", |f| {
        f.refused
    }),
    ("function_consumed", "Packets in whose place a network function sent others, or none", |f| f.consumed),
    ("function_held", "Packets that a network function held", |f| f.held),
    ("function_released", "Held packets that a network function released", |f| f.released),
    ("function_ticks", "Clock ticks (TSC) spent in a network function", |f| f.ticks),
];

/// Name, help text, label and values of the metrics of stream contexts.
type StreamMetric =
    (&'static str, &'static str, &'static str, fn(&StreamCounts) -> &indexmap::IndexMap<String, u64>);

pub(super) const STREAM_METRICS: [StreamMetric; 3] = [
    ("stream_bytes", "Bytes of streams that functions read, removed or inserted", "kind", |s| &s.bytes),
    ("stream_events", "Packets, segments, connections and edits of streams", "event", |s| &s.events),
    ("stream_refused", "What could not be read or edited of streams", "reason", |s| &s.refused),
];

pub(super) const DOMAIN_GAUGES: [Metric<DomainStatus>; 2] = [
    ("domain_buffers", "Buffers of a domain for packets", |d| d.buffers),
    ("domain_buffers_used", "Buffers of a domain that are in use", |d| d.used),
];

/// Name of a value of a function's process, help text, whether it is a gauge, and the value.
type ProcessMetric = (&'static str, &'static str, bool, fn(&ProcessEntry) -> u64);

pub(super) const PROCESS_METRICS: [ProcessMetric; 11] = [
    ("process_up", "Whether the process of a function runs", true, |p| p.process.is_some().into()),
    ("process_restarts", "Processes of a function that were started again", false, |p| p.restarts),
    ("process_descriptors", "Descriptors that were sent to a process", false, |p| p.descriptors),
    ("process_in_place", "Packets that a process has read without a copy", false, |p| p.in_place),
    ("process_wakeups", "Times that a sleeping process was woken up", false, |p| p.wakeups),
    ("process_waiting", "Descriptors that wait for a process", true, |p| p.waiting),
    ("process_returned", "Descriptors of a process that wait for the workers", true, |p| p.returned),
    ("process_credits", "Descriptors that can be sent to a process now", true, |p| p.credits),
    ("process_full", "Packets for a process for which there was no room", false, |p| p.full),
    ("process_lost", "Packets that were in a process when it ended", false, |p| p.lost),
    ("process_refused", "Descriptors from a process that were refused", false, |p| p.refused),
];

/// Name of a broker's counter, help text, and whether it is a gauge.
pub(super) const BROKER_METRICS: [(&str, &str, bool); 21] = [
    ("clients", "Connections of clients to a broker", true),
    ("accepted", "Connections that a broker accepted", false),
    ("limited", "Connections that a limit of a broker did not allow", false),
    ("requests", "Requests that a broker received", false),
    ("invalid", "Requests that a broker did not accept as HTTP/1.x", false),
    ("status_2xx", "Responses of a broker with status 2xx", false),
    ("status_3xx", "Responses of a broker with status 3xx", false),
    ("status_4xx", "Responses of a broker with status 4xx", false),
    ("status_5xx", "Responses of a broker with status 5xx", false),
    ("answered", "Responses that a broker or its functions made", false),
    ("aborted", "Clients that left before their response was complete", false),
    ("client_timeouts", "Deadlines that clients of a broker missed", false),
    ("server_timeouts", "Deadlines that servers of a broker missed", false),
    ("servers", "Connections of a broker to servers", true),
    ("connects", "Connections to servers that a broker opened", false),
    ("reused", "Requests that used a kept connection to a server", false),
    ("retries", "Requests that a broker sent to another server", false),
    ("failed", "Requests that no server has answered", false),
    ("tunnels", "Tunnels that were begun by status 101", false),
    ("bytes_in", "Bytes that a broker received from clients", false),
    ("bytes_out", "Bytes that a broker sent to clients", false),
];

pub(super) const FAST_COUNTERS: [Metric<FastPathReply>; 3] = [
    ("fast_path_flows", "Flows offloaded to the kernel", |f| f.installed),
    ("fast_path_packets", "Packets that the kernel forwarded", |f| f.packets),
    ("fast_path_bytes", "Bytes of the frames that the kernel forwarded", |f| f.bytes),
];

pub(super) const ROUTING_GAUGES: [Metric<RoutingCounts>; 3] = [
    ("router_next_hops", "Next hops of routes, and groups of next hops", |r| r.next_hops),
    ("router_neighbors", "Neighbors that the kernel knows", |r| r.neighbors),
    ("neighbor_waiting", "Packets that are queued until a neighbor is resolved", |r| r.waiting),
];

pub(super) const ROUTING_COUNTERS: [Metric<RoutingCounts>; 10] = [
    ("router_resyncs", "Times the whole mirror of routes was compared with the kernel", |r| r.resyncs),
    ("router_overruns", "Times the kernel sent more messages than could be read", |r| r.overruns),
    ("router_messages", "Messages from the kernel about routes, neighbors, links and addresses", |r| {
        r.messages
    }),
    ("router_publications", "Times that new routes were published to the workers", |r| r.publications),
    ("router_requests", "Times that the kernel was asked to resolve a neighbor", |r| r.requests),
    ("icmp_errors", "ICMP errors sent about packets that could not be routed", |r| r.icmp_errors),
    ("icmp_errors_suppressed", "ICMP errors that were not sent because of the rate limit", |r| {
        r.icmp_suppressed
    }),
    ("fragmented_packets", "Packets that were fragmented", |r| r.fragmented),
    ("fragments", "Fragments sent for fragmented packets", |r| r.fragments),
    ("neighbor_queued_packets", "Packets that were queued until a neighbor was resolved", |r| r.queued),
];
