//! `/metrics`: the daemon's counters in the OpenMetrics text format, which Prometheus scrapes.

use std::fmt;

use indexmap::IndexMap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::api::{
    CostEntry, DropList, FastPathReply, FunctionEntry, InterfaceEntry, InterfaceList, InterfaceState,
    NatReply, NodeEntry, PoolEntry, RoutingCounts, RuleEntry, Runtime, SessionCounts, VersionEntry,
    WorkerEntry,
};

/// Media type of the reply.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Rules with time series of their own; with more, a scrape would drown the server that stores it. `mmb_rules` tells
/// how many there are, and `list --json` has the counters of all.
pub const RULE_LIMIT: usize = 10_000;

/// The values of one scrape.
#[derive(Debug, Default)]
pub struct Scrape {
    /// The daemon.
    pub version: Option<VersionEntry>,
    /// The first [`RULE_LIMIT`] rules.
    pub rules: Vec<RuleEntry>,
    /// How many rules there are.
    pub rule_count: u64,
    /// Interfaces.
    pub interfaces: InterfaceList,
    /// Workers and sessions.
    pub runtime: Runtime,
    /// NAT pools.
    pub nat: NatReply,
    /// Instances of network functions.
    pub functions: Vec<FunctionEntry>,
    /// Flows that the kernel sends on by itself.
    pub fast_path: FastPathReply,
    /// Packets dropped.
    pub drops: DropList,
}

/// The scrape as text.
pub fn encode(scrape: Scrape) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("mmb");
    registry.register_collector(Box::new(scrape));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

/// Name, help text, and how to get the value.
type Metric<T> = (&'static str, &'static str, fn(&T) -> u64);

const RULE_METRICS: [Metric<RuleEntry>; 2] = [
    ("rule_packets", "Packets a rule matched (first 10,000 rules)", |r| r.packets),
    ("rule_bytes", "Bytes of the frames a rule matched (first 10,000 rules)", |r| r.bytes),
];

const WORKER_METRICS: [Metric<WorkerEntry>; 2] = [
    ("worker_sleeps", "Times a worker slept for want of packets", |w| w.sleeps),
    ("worker_checksum_repairs", "Checksums completed for a kernel peer", |w| w.checksum_repairs),
];

const INTERFACE_METRICS: [Metric<InterfaceEntry>; 7] = [
    ("interface_rx_packets", "Packets received", |d| d.rx_packets),
    ("interface_rx_bytes", "Bytes received", |d| d.rx_bytes),
    ("interface_tx_packets", "Packets sent", |d| d.tx_packets),
    ("interface_tx_bytes", "Bytes sent", |d| d.tx_bytes),
    ("interface_rx_missed", "Packets lost for want of a free buffer", |d| d.rx_missed),
    ("interface_rx_errors", "Packets received in error", |d| d.rx_errors),
    ("interface_tx_errors", "Packets that could not be sent", |d| d.tx_errors),
];

const NODE_METRICS: [Metric<NodeEntry>; 3] = [
    ("node_packets", "Packets a graph node has seen", |n| n.packets),
    ("node_vectors", "Vectors of packets a graph node has seen", |n| n.vectors),
    ("node_ticks", "Clock ticks (TSC) a graph node took", |n| n.cycles),
];

const SESSION_GAUGES: [Metric<SessionCounts>; 3] = [
    ("sessions", "Sessions there are", |s| s.sessions),
    ("sessions_half_open", "Sessions that nobody has answered yet", |s| s.half_open),
    ("sessions_capacity", "Most sessions there can be", |s| s.capacity),
];

const POOL_GAUGES: [Metric<PoolEntry>; 5] = [
    ("nat_hosts", "Hosts inside that have a mapping or a block of a NAT pool", |p| p.hosts),
    ("nat_sessions", "Sessions that hosts inside have opened through a NAT pool", |p| p.sessions),
    ("nat_ports", "Ports of a NAT pool, for each protocol", |p| p.ports_total),
    ("nat_blocks", "Port blocks of a NAT pool", |p| p.blocks_total),
    ("nat_blocks_used", "Port blocks of a NAT pool in use", |p| p.blocks_used),
];

const POOL_COUNTERS: [Metric<PoolEntry>; 2] = [
    ("nat_exhausted", "Times a NAT pool had no port left", |p| p.exhausted),
    ("nat_limited", "Times a host had reached the limit of its NAT pool", |p| p.limited),
];

const FUNCTION_METRICS: [Metric<CostEntry>; 4] = [
    ("function_packets", "Packets that a network function has seen", |f| f.packets),
    ("function_drops", "Packets that a network function has dropped", |f| f.drops),
    ("function_refused", "Packets with which a network function has refused or ended their session", |f| {
        f.refused
    }),
    ("function_ticks", "Clock ticks (TSC) that a network function took", |f| f.ticks),
];

const FAST_COUNTERS: [Metric<FastPathReply>; 3] = [
    ("fast_path_flows", "Flows that were given to the kernel", |f| f.installed),
    ("fast_path_packets", "Packets that the kernel has sent on by itself", |f| f.packets),
    ("fast_path_bytes", "Bytes of their frames", |f| f.bytes),
];

const ROUTING_GAUGES: [Metric<RoutingCounts>; 3] = [
    ("router_next_hops", "Next hops of routes, groups of them included", |r| r.next_hops),
    ("router_neighbors", "Neighbors that the kernel knows", |r| r.neighbors),
    ("neighbor_waiting", "Packets that wait until a neighbor is found", |r| r.waiting),
];

const ROUTING_COUNTERS: [Metric<RoutingCounts>; 11] = [
    (
        "router_resyncs",
        "Times the mirror of the kernel's routes was compared with the kernel as a whole",
        |r| r.resyncs,
    ),
    ("router_overruns", "Times it had to be, since the kernel told more than could be read", |r| r.overruns),
    ("router_messages", "Messages from the kernel about routes, neighbors, links and addresses", |r| {
        r.messages
    }),
    ("router_publications", "Times that other routes were given to the workers", |r| r.publications),
    ("router_requests", "Times that the kernel was asked to find a neighbor", |r| r.requests),
    ("punted_packets", "Packets of routed interfaces that were handed to the kernel", |r| r.punted),
    ("icmp_errors", "ICMP errors sent about packets that could not be routed", |r| r.icmp_errors),
    ("icmp_errors_suppressed", "ICMP errors that were due and held back: there were too many", |r| {
        r.icmp_suppressed
    }),
    ("fragmented_packets", "Packets that were cut into fragments", |r| r.fragmented),
    ("fragments", "Fragments that they were cut into", |r| r.fragments),
    ("neighbor_queued_packets", "Packets that waited until a neighbor was found", |r| r.queued),
];

impl Collector for Scrape {
    fn encode(&self, mut e: DescriptorEncoder) -> fmt::Result {
        self.daemon(&mut e)?;
        self.per_rule(&mut e)?;
        self.per_interface(&mut e)?;
        self.per_worker(&mut e)?;
        self.sessions(&mut e)?;
        self.per_pool(&mut e)?;
        self.per_function(&mut e)?;
        self.fast_path(&mut e)?;
        self.routing(&mut e)?;
        let DropList { drops, unedited } = &self.drops;
        per_reason(&mut e, "drops", "Packets dropped", drops)?;
        per_reason(
            &mut e,
            "unedited",
            "Packets that went on as they came: their edits could not be made",
            unedited,
        )
    }
}

/// One time series of a counter.
fn counter<const N: usize>(
    metric: &mut MetricEncoder,
    labels: &[(&str, &str); N],
    value: u64,
) -> fmt::Result {
    metric.encode_family(labels)?.encode_counter::<[(&str, &str); 0], _, u64>(&value, None)
}

/// One time series of a gauge.
fn gauge<const N: usize>(metric: &mut MetricEncoder, labels: &[(&str, &str); N], value: u64) -> fmt::Result {
    metric.encode_family(labels)?.encode_gauge(&value)
}

/// One counter with a time series for each reason.
fn per_reason(
    e: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    counts: &IndexMap<String, u64>,
) -> fmt::Result {
    let mut metric = e.encode_descriptor(name, help, None, MetricType::Counter)?;
    counts.iter().try_for_each(|(reason, &n)| counter(&mut metric, &[("reason", reason)], n))
}

impl Scrape {
    fn daemon(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        e.encode_descriptor("rules", "Rules loaded", None, MetricType::Gauge)?
            .encode_gauge(&self.rule_count)?;
        let Some(v) = &self.version else { return Ok(()) };
        e.encode_descriptor("build", "The release that runs", None, MetricType::Info)?
            .encode_info(&[("version", v.version.as_str())])?;
        e.encode_descriptor("uptime_seconds", "Seconds since the daemon's start", None, MetricType::Gauge)?
            .encode_gauge(&v.uptime_seconds)
    }

    fn per_rule(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        for (name, help, get) in RULE_METRICS {
            let mut metric = e.encode_descriptor(name, help, None, MetricType::Counter)?;
            for r in &self.rules {
                counter(&mut metric, &[("index", &r.index.to_string()), ("rule", &r.text)], get(r))?;
            }
        }
        Ok(())
    }

    fn per_interface(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let mut up =
            e.encode_descriptor("interface_up", "1: open, with a carrier", None, MetricType::Gauge)?;
        for i in &self.interfaces.interfaces {
            let up_now = u32::from(i.state == InterfaceState::Up && i.link);
            up.encode_family(&[("interface", i.name.as_str())])?.encode_gauge(&up_now)?;
        }
        for (name, help, get) in INTERFACE_METRICS {
            let mut metric = e.encode_descriptor(name, help, None, MetricType::Counter)?;
            for i in &self.interfaces.interfaces {
                counter(&mut metric, &[("interface", &i.name)], get(i))?;
            }
        }
        let help = "Packets dropped that came in at an interface, by reasons that have happened";
        let mut metric = e.encode_descriptor("interface_drops", help, None, MetricType::Counter)?;
        for i in &self.interfaces.interfaces {
            for (reason, &n) in &i.drops {
                counter(&mut metric, &[("interface", &i.name), ("reason", reason)], n)?;
            }
        }
        Ok(())
    }

    /// The mirror of the kernel's routes, and what routing did; nothing while no interface is routed.
    fn routing(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let Some(r) = &self.runtime.routing else { return Ok(()) };
        let lags = [
            (
                "router_lag_seconds",
                "Time from the kernel's last change until packets went by it",
                r.lag_last_us,
            ),
            ("router_lag_max_seconds", "The longest that this took", r.lag_max_us),
        ];
        for (name, help, microseconds) in lags {
            let seconds = microseconds as f64 / 1e6;
            e.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&seconds)?;
        }
        let mut metric = e.encode_descriptor("router_routes", "Routes by family", None, MetricType::Gauge)?;
        for (family, n) in [("ip4", r.routes_ip4), ("ip6", r.routes_ip6)] {
            gauge(&mut metric, &[("family", family)], n)?;
        }
        for (name, help, get) in ROUTING_GAUGES {
            e.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&get(r))?;
        }
        for (name, help, get) in ROUTING_COUNTERS {
            let mut metric = e.encode_descriptor(name, help, None, MetricType::Counter)?;
            metric.encode_counter::<[(&str, &str); 0], _, u64>(&get(r), None)?;
        }
        Ok(())
    }

    fn sessions(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let sessions = &self.runtime.sessions;
        for (name, help, get) in SESSION_GAUGES {
            e.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&get(sessions))?;
        }
        let mut metric = e.encode_descriptor(
            "worker_sessions",
            "Sessions that live with a worker",
            None,
            MetricType::Gauge,
        )?;
        for w in &self.runtime.workers {
            gauge(&mut metric, &[("worker", &w.worker.to_string())], w.sessions)?;
        }
        e.encode_descriptor("sessions_created", "Sessions opened", None, MetricType::Counter)?
            .encode_counter::<[(&str, &str); 0], _, u64>(&sessions.created, None)?;
        per_reason(e, "sessions_ended", "Sessions that ended", &sessions.ended)?;
        per_reason(
            e,
            "sessions_refused",
            "Packets that would have opened a session and were refused",
            &sessions.refused,
        )
    }

    fn per_pool(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let series: [(&[Metric<PoolEntry>], MetricType); 2] =
            [(&POOL_GAUGES, MetricType::Gauge), (&POOL_COUNTERS, MetricType::Counter)];
        for (metrics, kind) in series {
            for (name, help, get) in metrics {
                let mut metric = e.encode_descriptor(name, help, None, kind)?;
                for pool in &self.nat.pools {
                    let labels = [("pool", pool.name.as_str())];
                    match kind {
                        MetricType::Counter => counter(&mut metric, &labels, get(pool))?,
                        _ => gauge(&mut metric, &labels, get(pool))?,
                    }
                }
            }
        }
        let help = "Ports of a NAT pool in use";
        let mut metric = e.encode_descriptor("nat_ports_used", help, None, MetricType::Gauge)?;
        for pool in &self.nat.pools {
            for (proto, &n) in &pool.ports_used {
                gauge(&mut metric, &[("pool", &pool.name), ("protocol", proto)], n)?;
            }
        }
        Ok(())
    }

    fn per_function(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        for (name, help, get) in FUNCTION_METRICS {
            let mut metric = e.encode_descriptor(name, help, None, MetricType::Counter)?;
            for f in &self.functions {
                counter(&mut metric, &[("function", &f.cost.name), ("type", &f.type_)], get(&f.cost))?;
            }
        }
        Ok(())
    }

    fn fast_path(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let fast = &self.fast_path;
        e.encode_descriptor("fast_path_entries", "Flows in the kernel", None, MetricType::Gauge)?
            .encode_gauge(&fast.entries)?;
        for (name, help, get) in FAST_COUNTERS {
            e.encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<[(&str, &str); 0], _, u64>(&get(fast), None)?;
        }
        per_reason(e, "fast_path_refused", "Flows that were not given to the kernel", &fast.refused)
    }

    fn per_worker(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        for (name, help, get) in WORKER_METRICS {
            let mut metric = e.encode_descriptor(name, help, None, MetricType::Counter)?;
            for w in &self.runtime.workers {
                counter(&mut metric, &[("worker", &w.worker.to_string())], get(w))?;
            }
        }
        for (name, help, get) in NODE_METRICS {
            let mut metric = e.encode_descriptor(name, help, None, MetricType::Counter)?;
            for w in &self.runtime.workers {
                let worker = w.worker.to_string();
                for (name, n) in &w.nodes {
                    counter(&mut metric, &[("worker", &worker), ("node", name)], get(n))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routing_has_its_figures_while_there_is_any() {
        assert!(!encode(Scrape::default()).unwrap().contains("router"));
        let routing = RoutingCounts {
            routes_ip4: 1_000_000,
            lag_last_us: 1_500,
            resyncs: 2,
            punted: 9,
            ..RoutingCounts::default()
        };
        let drops = [("no-route".to_owned(), 4)].into_iter().collect();
        let lan = InterfaceEntry { name: "lan".into(), drops, ..InterfaceEntry::default() };
        let text = encode(Scrape {
            runtime: Runtime { routing: Some(routing), ..Runtime::default() },
            interfaces: InterfaceList { interfaces: vec![lan] },
            ..Scrape::default()
        })
        .unwrap();
        for line in [
            "mmb_router_lag_seconds 0.0015",
            "mmb_router_routes{family=\"ip4\"} 1000000",
            "mmb_router_resyncs_total 2",
            "mmb_punted_packets_total 9",
            "mmb_interface_drops_total{interface=\"lan\",reason=\"no-route\"} 4",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn counters_end_in_total_and_labels_are_escaped() {
        let scrape = Scrape {
            rules: vec![RuleEntry { index: 7, packets: 3, bytes: 180, text: "add in \"a\\b\" drop".into() }],
            rule_count: 1,
            runtime: Runtime {
                sessions: SessionCounts {
                    sessions: 5,
                    created: 9,
                    refused: [("session-full".to_owned(), 2)].into_iter().collect(),
                    ..SessionCounts::default()
                },
                ..Runtime::default()
            },
            drops: DropList {
                drops: [("rule".to_owned(), 3)].into_iter().collect(),
                unedited: [("option-mtu".to_owned(), 4)].into_iter().collect(),
            },
            ..Scrape::default()
        };
        let text = encode(scrape).unwrap();
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        has(r#"mmb_rule_packets_total{index="7",rule="add in \"a\\b\" drop"} 3"#);
        has(r#"mmb_drops_total{reason="rule"} 3"#);
        has(r#"mmb_unedited_total{reason="option-mtu"} 4"#);
        has("# TYPE mmb_drops counter");
        has("mmb_rules 1");
        has("mmb_sessions 5");
        has("mmb_sessions_created_total 9");
        has(r#"mmb_sessions_refused_total{reason="session-full"} 2"#);
        assert!(text.ends_with("# EOF\n"));
    }
}
