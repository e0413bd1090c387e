//! `/metrics`: the daemon's counters, which Prometheus scrapes, in the OpenMetrics text format or the one of
//! Prometheus.

mod format;
mod series;

use std::fmt;

use indexmap::IndexMap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

pub(crate) use self::format::Exposition;
use self::series::*;
use crate::api::{
    BrokerEntry, DomainStatus, DropList, FastPathReply, FunctionEntry, InterfaceList, InterfaceState,
    NatReply, PoolEntry, PuntCounts, RuleEntry, Runtime, SetEntry, VersionEntry,
};

/// Maximum number of rules with time series of their own; more would overload the server that stores them.
/// `mmb_rules` is the number of all rules, and `list --json` has the counters of all.
pub const RULE_LIMIT: usize = 10_000;

/// The values of one scrape.
#[derive(Debug, Default)]
pub struct Scrape {
    /// Release and process.
    pub version: Option<VersionEntry>,
    /// The first [`RULE_LIMIT`] rules.
    pub rules: Vec<RuleEntry>,
    /// Number of all rules.
    pub rule_count: u64,
    /// Interfaces.
    pub interfaces: InterfaceList,
    /// Workers and sessions.
    pub runtime: Runtime,
    /// NAT pools.
    pub nat: NatReply,
    /// Instances of network functions.
    pub functions: Vec<FunctionEntry>,
    /// Domains, and the processes of their functions.
    pub domains: Vec<DomainStatus>,
    /// Brokers.
    pub brokers: Vec<BrokerEntry>,
    /// Named sets.
    pub sets: Vec<SetEntry>,
    /// The fast path.
    pub fast_path: FastPathReply,
    /// Packets dropped.
    pub drops: DropList,
    /// Lines of output that were lost.
    pub log_lost_lines: u64,
    /// What the control API refused, by reason.
    pub api_refused: IndexMap<String, u64>,
}

/// Encodes a scrape as OpenMetrics text.
///
/// # Errors
/// Those of the encoder.
pub fn encode(scrape: Scrape) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("mmb");
    registry.register_collector(Box::new(scrape));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

impl Collector for Scrape {
    fn encode(&self, mut e: DescriptorEncoder) -> fmt::Result {
        self.daemon(&mut e)?;
        self.per_rule(&mut e)?;
        self.per_interface(&mut e)?;
        self.per_worker(&mut e)?;
        self.sessions(&mut e)?;
        self.per_pool(&mut e)?;
        self.per_function(&mut e)?;
        self.per_domain(&mut e)?;
        self.per_broker(&mut e)?;
        self.per_set(&mut e)?;
        self.fast_path(&mut e)?;
        self.routing(&mut e)?;
        let help = "Connections and requests that the control API refused";
        per_reason(&mut e, "api_refused", help, &self.api_refused)?;
        let DropList { drops, unedited } = &self.drops;
        per_reason(&mut e, "drops", "Packets dropped", drops)?;
        per_reason(
            &mut e,
            "unedited",
            "Packets forwarded unedited because they could not be edited",
            unedited,
        )
    }
}

/// Begins a metric. A name that ends in `_bytes` or `_seconds` has this unit (OpenMetrics 1.0, "UNIT").
fn describe<'e>(
    e: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &'e str,
    kind: MetricType,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    static UNITS: [(&str, Unit); 2] = [("_bytes", Unit::Bytes), ("_seconds", Unit::Seconds)];
    let with_unit = UNITS.iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, unit)));
    let (name, unit) = with_unit.map_or((name, None), |(name, unit)| (name, Some(unit)));
    e.encode_descriptor(name, help, unit, kind)
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
    let mut metric = describe(e, name, help, MetricType::Counter)?;
    counts.iter().try_for_each(|(reason, &n)| counter(&mut metric, &[("reason", reason)], n))
}

impl Scrape {
    fn daemon(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        describe(e, "rules", "Number of rules", MetricType::Gauge)?.encode_gauge(&self.rule_count)?;
        let Some(v) = &self.version else { return Ok(()) };
        describe(e, "build", "The running release", MetricType::Info)?
            .encode_info(&[("version", v.version.as_str())])?;
        describe(
            e,
            "log_lost_lines",
            "Lines of the daemon's output that were lost because nobody read them in time",
            MetricType::Counter,
        )?
        .encode_counter::<[(&str, &str); 0], _, u64>(&self.log_lost_lines, None)?;
        describe(e, "uptime_seconds", "Seconds since the start of the daemon", MetricType::Gauge)?
            .encode_gauge(&v.uptime_seconds)
    }

    fn per_rule(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        for (name, help, get) in RULE_METRICS {
            let mut metric = describe(e, name, help, MetricType::Counter)?;
            for r in &self.rules {
                let (index, text) = (r.index.to_string(), r.text.as_str());
                match &r.name {
                    Some(name) => {
                        counter(&mut metric, &[("index", &index), ("rule", text), ("name", name)], get(r))?;
                    }
                    None => counter(&mut metric, &[("index", &index), ("rule", text)], get(r))?,
                }
            }
        }
        Ok(())
    }

    fn per_interface(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let mut up = describe(e, "interface_up", "1: open, with a carrier", MetricType::Gauge)?;
        for i in &self.interfaces.interfaces {
            let up_now = u32::from(i.state == InterfaceState::Up && i.link);
            up.encode_family(&[("interface", i.name.as_str())])?.encode_gauge(&up_now)?;
        }
        for (name, help, get) in INTERFACE_METRICS {
            let mut metric = describe(e, name, help, MetricType::Counter)?;
            for i in &self.interfaces.interfaces {
                counter(&mut metric, &[("interface", &i.name)], get(i))?;
            }
        }
        let help = "Packets received on an interface and dropped, by reason";
        let mut metric = describe(e, "interface_drops", help, MetricType::Counter)?;
        for i in &self.interfaces.interfaces {
            for (reason, &n) in &i.drops {
                counter(&mut metric, &[("interface", &i.name), ("reason", reason)], n)?;
            }
        }
        Ok(())
    }

    /// Metrics of routing; none while no interface is routed.
    fn routing(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let Some(r) = &self.runtime.routing else { return Ok(()) };
        let lags = [
            (
                "router_lag_seconds",
                "Time from the last change in the kernel until packets followed it",
                r.lag_last_us,
            ),
            ("router_lag_max_seconds", "Maximum of router_lag_seconds", r.lag_max_us),
        ];
        for (name, help, microseconds) in lags {
            let seconds = microseconds as f64 / 1e6;
            describe(e, name, help, MetricType::Gauge)?.encode_gauge(&seconds)?;
        }
        let mut metric = describe(e, "router_routes", "Routes by family", MetricType::Gauge)?;
        for (family, n) in [("ip4", r.routes_ip4), ("ip6", r.routes_ip6)] {
            gauge(&mut metric, &[("family", family)], n)?;
        }
        let help = "Packets of routed interfaces that were passed to the kernel, by class";
        let mut metric = describe(e, "punted_packets", help, MetricType::Counter)?;
        let PuntCounts { neighbor, routing, local, other } = r.punted_by_class;
        for (class, n) in [("neighbor", neighbor), ("routing", routing), ("local", local), ("other", other)] {
            counter(&mut metric, &[("class", class)], n)?;
        }
        for (name, help, get) in ROUTING_GAUGES {
            describe(e, name, help, MetricType::Gauge)?.encode_gauge(&get(r))?;
        }
        for (name, help, get) in ROUTING_COUNTERS {
            let mut metric = describe(e, name, help, MetricType::Counter)?;
            metric.encode_counter::<[(&str, &str); 0], _, u64>(&get(r), None)?;
        }
        Ok(())
    }

    fn sessions(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let sessions = &self.runtime.sessions;
        for (name, help, get) in SESSION_GAUGES {
            describe(e, name, help, MetricType::Gauge)?.encode_gauge(&get(sessions))?;
        }
        let mut metric = describe(e, "worker_sessions", "Sessions that a worker owns", MetricType::Gauge)?;
        for w in &self.runtime.workers {
            gauge(&mut metric, &[("worker", &w.worker.to_string())], w.sessions)?;
        }
        describe(e, "sessions_created", "Sessions opened", MetricType::Counter)?
            .encode_counter::<[(&str, &str); 0], _, u64>(&sessions.created, None)?;
        let help = "Limit of a source address that has reached it within the last minute";
        let mut metric = describe(e, "sessions_limited_source", help, MetricType::Gauge)?;
        for source in sessions.limited_sources.iter().filter(|source| source.seconds_ago < 60) {
            gauge(&mut metric, &[("source", &source.address.to_string())], source.limit.into())?;
        }
        per_reason(e, "sessions_ended", "Sessions that ended", &sessions.ended)?;
        per_reason(e, "sessions_refused", "Packets that could not open a session", &sessions.refused)
    }

    fn per_pool(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let series: [(&[Metric<PoolEntry>], MetricType); 2] =
            [(&POOL_GAUGES, MetricType::Gauge), (&POOL_COUNTERS, MetricType::Counter)];
        for (metrics, kind) in series {
            for (name, help, get) in metrics {
                let mut metric = describe(e, name, help, kind)?;
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
        let mut metric = describe(e, "nat_ports_used", help, MetricType::Gauge)?;
        for pool in &self.nat.pools {
            for (proto, &n) in &pool.ports_used {
                gauge(&mut metric, &[("pool", &pool.name), ("protocol", proto)], n)?;
            }
        }
        Ok(())
    }

    fn per_function(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        for (name, help, get) in FUNCTION_METRICS {
            let mut metric = describe(e, name, help, MetricType::Counter)?;
            for f in &self.functions {
                counter(&mut metric, &[("function", &f.cost.name), ("type", &f.type_)], get(&f.cost))?;
            }
        }
        for (name, help, label, get) in STREAM_METRICS {
            let mut metric = describe(e, name, help, MetricType::Counter)?;
            for f in &self.functions {
                for (which, count) in f.stream.iter().flat_map(get) {
                    counter(&mut metric, &[("function", &f.cost.name), (label, which)], *count)?;
                }
            }
        }
        Ok(())
    }

    fn per_domain(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        for (name, help, get) in DOMAIN_GAUGES {
            let mut metric = e.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for domain in &self.domains {
                gauge(&mut metric, &[("domain", domain.name.as_str())], get(domain))?;
            }
        }
        for (name, help, is_gauge, get) in PROCESS_METRICS {
            let kind = if is_gauge { MetricType::Gauge } else { MetricType::Counter };
            let mut metric = e.encode_descriptor(name, help, None, kind)?;
            for domain in &self.domains {
                for one in &domain.functions {
                    let labels = [("domain", domain.name.as_str()), ("function", one.function.as_str())];
                    match is_gauge {
                        true => gauge(&mut metric, &labels, get(one))?,
                        false => counter(&mut metric, &labels, get(one))?,
                    }
                }
            }
        }
        Ok(())
    }

    fn per_broker(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        for (name, help, kind) in BROKER_METRICS {
            let kind = if kind { MetricType::Gauge } else { MetricType::Counter };
            let name_of_metric = format!("broker_{name}");
            let mut metric = describe(e, &name_of_metric, help, kind)?;
            for broker in &self.brokers {
                let (labels, value) = ([("broker", broker.name.as_str())], broker.counters.get(name));
                match (kind, value) {
                    (_, None) => {}
                    (MetricType::Gauge, Some(&value)) => gauge(&mut metric, &labels, value)?,
                    (_, Some(&value)) => counter(&mut metric, &labels, value)?,
                }
            }
        }
        Ok(())
    }

    fn per_set(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        for (name, help, get) in SET_GAUGES {
            let mut metric = e.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for set in &self.sets {
                gauge(&mut metric, &[("set", set.name.as_str())], get(set))?;
            }
        }
        Ok(())
    }

    fn fast_path(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        let fast = &self.fast_path;
        describe(e, "fast_path_entries", "Flows that are offloaded to the kernel", MetricType::Gauge)?
            .encode_gauge(&fast.entries)?;
        for (name, help, get) in FAST_COUNTERS {
            describe(e, name, help, MetricType::Counter)?
                .encode_counter::<[(&str, &str); 0], _, u64>(&get(fast), None)?;
        }
        per_reason(e, "fast_path_refused", "Flows that were not offloaded", &fast.refused)
    }

    fn per_worker(&self, e: &mut DescriptorEncoder) -> fmt::Result {
        for (name, help, get) in WORKER_METRICS {
            let mut metric = describe(e, name, help, MetricType::Counter)?;
            for w in &self.runtime.workers {
                counter(&mut metric, &[("worker", &w.worker.to_string())], get(w))?;
            }
        }
        for (name, help, get) in NODE_METRICS {
            let mut metric = describe(e, name, help, MetricType::Counter)?;
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
mod tests;
