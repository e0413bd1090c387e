//! The tables of the views, from a sample.

use mmb_control::api::{ConnectionEntry, FlowEntry, InterfaceState};

use super::sample::{Extra, Rates, Sample};
use super::table::{Cell, Row, Table, human};

/// A view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Interfaces.
    Ports,
    /// Rules.
    Rules,
    /// Sessions.
    Sessions,
    /// Drops by reason.
    Drops,
    /// NAT pools.
    Nat,
    /// Network functions.
    Functions,
    /// Nodes of the graph.
    Nodes,
    /// Workers.
    Workers,
}

impl View {
    /// All views, in the order of their keys.
    pub const ALL: [View; 8] = [
        View::Ports,
        View::Rules,
        View::Sessions,
        View::Drops,
        View::Nat,
        View::Functions,
        View::Nodes,
        View::Workers,
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            View::Ports => "ports",
            View::Rules => "rules",
            View::Sessions => "sessions",
            View::Drops => "drops",
            View::Nat => "nat",
            View::Functions => "functions",
            View::Nodes => "nodes",
            View::Workers => "workers",
        }
    }

    /// What the view needs besides what all need.
    pub fn extra(self) -> Extra {
        match self {
            View::Rules => Extra::Rules,
            View::Sessions => Extra::Sessions,
            _ => Extra::None,
        }
    }

    /// The column that orders the rows at first.
    pub fn column(self) -> usize {
        match self {
            View::Ports | View::Workers => 0,
            View::Sessions => 4,
            _ => 1,
        }
    }

    /// The table of a sample.
    pub fn table(self, sample: &Sample, rates: &mut Rates) -> Table {
        match self {
            View::Ports => ports(sample, rates),
            View::Rules => rules(sample, rates),
            View::Sessions => sessions(sample, rates),
            View::Drops => drops(sample, rates),
            View::Nat => nat(sample, rates),
            View::Functions => functions(sample, rates),
            View::Nodes => nodes(sample, rates),
            View::Workers => workers(sample, rates),
        }
    }
}

/// A name and a value of a row's own view.
fn pair(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn ports(sample: &Sample, rates: &mut Rates) -> Table {
    let row = |i: &mmb_control::api::InterfaceEntry| {
        let mut rate = |what: &str, value| rates.of(format!("port {} {what}", i.name), value);
        let (rx, rx_bytes) = (rate("rx", i.rx_packets), rate("rx bytes", i.rx_bytes));
        let (tx, tx_bytes) = (rate("tx", i.tx_packets), rate("tx bytes", i.tx_bytes));
        let lost = rate("lost", i.rx_missed + i.rx_errors + i.tx_errors);
        let state = match (i.state, i.link) {
            (InterfaceState::Up, true) => "up",
            (InterfaceState::Up, false) => "no link",
            (InterfaceState::Down, _) => "down",
        };
        let mut detail = vec![
            pair("device", &i.kind),
            pair("driver", &i.driver),
            pair("mac", &i.mac),
            pair("mtu", i.mtu),
            pair("wire", i.wire.as_deref().unwrap_or("-")),
            pair("received", format!("{} packets, {} bytes", i.rx_packets, i.rx_bytes)),
            pair("sent", format!("{} packets, {} bytes", i.tx_packets, i.tx_bytes)),
            pair("no free buffer", i.rx_missed),
            pair("errors", format!("{} received, {} sent", i.rx_errors, i.tx_errors)),
        ];
        detail.extend(i.reason.iter().map(|reason| pair("reason", reason)));
        detail.extend(
            i.drops.iter().filter(|(_, n)| **n > 0).map(|(reason, n)| pair(&format!("drop {reason}"), n)),
        );
        let history = rates.history(format!("port {}", i.name), rx + tx);
        Row {
            key: i.name.clone(),
            cells: vec![
                Cell::text(&i.name),
                Cell::text(state),
                Cell::Number(rx),
                Cell::Number(8.0 * rx_bytes),
                Cell::Number(tx),
                Cell::Number(8.0 * tx_bytes),
                Cell::Number(lost),
                Cell::History(history),
            ],
            detail,
        }
    };
    Table {
        columns: vec!["port", "state", "rx pkt/s", "rx bit/s", "tx pkt/s", "tx bit/s", "lost/s", "rx+tx"],
        rows: sample.interfaces.interfaces.iter().map(row).collect(),
        empty: "no interfaces; `mmb interface add` adds one",
    }
}

fn rules(sample: &Sample, rates: &mut Rates) -> Table {
    let row = |rule: &mmb_control::api::RuleEntry| {
        let mut rate = |what: &str, value| rates.of(format!("rule {} {what}", rule.index), value);
        let (packets, bytes) = (rate("packets", rule.packets), rate("bytes", rule.bytes));
        let decided = rule.decided.map_or(Cell::text("-"), |n| Cell::Number(rate("decided", n)));
        Row {
            key: rule.index.to_string(),
            cells: vec![
                Cell::Number(f64::from(rule.index)),
                Cell::Number(packets),
                Cell::Number(8.0 * bytes),
                decided,
                Cell::text(&rule.text),
            ],
            detail: vec![
                pair("rule", &rule.text),
                pair("name", rule.name.as_deref().unwrap_or("-")),
                pair("comment", rule.comment.as_deref().unwrap_or("-")),
                pair("packets", rule.packets),
                pair("bytes", rule.bytes),
                pair("decided", rule.decided.map_or("-".to_owned(), |n| n.to_string())),
            ],
        }
    };
    let empty = match sample.too_many_rules {
        true => "too many rules to show; `mmb list MATCH` lists some of them",
        false => "no rules",
    };
    Table {
        columns: vec!["index", "pkt/s", "bit/s", "decided/s", "rule"],
        rows: sample.rules.rules.iter().map(row).collect(),
        empty,
    }
}

/// Addresses and ports of a flow.
fn flow(flow: &FlowEntry) -> String {
    let end = |address: std::net::IpAddr, port: Option<u16>| match port {
        Some(port) if address.is_ipv6() => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
        None => address.to_string(),
    };
    let source = end(flow.source, flow.source_port);
    format!("{source} > {}", end(flow.destination, flow.destination_port))
}

fn sessions(sample: &Sample, rates: &mut Rates) -> Table {
    let row = |c: &ConnectionEntry| {
        let forward = flow(&c.forward);
        let key = format!("{} {forward}", c.protocol);
        let packets = rates.of(format!("session {key} packets"), c.forward.packets + c.reverse.packets);
        let bytes = rates.of(format!("session {key} bytes"), c.forward.bytes + c.reverse.bytes);
        let mut detail = vec![
            pair("forward", &forward),
            pair("reverse", flow(&c.reverse)),
            pair("state", &c.state),
            pair("age", format!("{} s", c.age_seconds)),
            pair("idle", format!("{} s", c.idle_seconds)),
            pair("expires", format!("{} s", c.expires_seconds)),
            pair("packets", format!("{}/{}", c.forward.packets, c.reverse.packets)),
            pair("bytes", format!("{}/{}", c.forward.bytes, c.reverse.bytes)),
            pair("rules", c.rules.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
            pair("translated", if c.translated { "yes" } else { "no" }),
            pair("chain", c.chain.as_deref().unwrap_or("-")),
            pair("worker", c.worker),
        ];
        detail.extend(c.functions.iter().map(|(name, text)| pair(name, text)));
        Row {
            key,
            cells: vec![
                Cell::text(&c.protocol),
                Cell::text(&c.state),
                Cell::text(forward),
                Cell::Number(packets),
                Cell::Number(8.0 * bytes),
                Cell::Number((c.forward.bytes + c.reverse.bytes) as f64),
            ],
            detail,
        }
    };
    Table {
        columns: vec!["protocol", "state", "session", "pkt/s", "bit/s", "bytes"],
        rows: sample.connections.iter().map(row).collect(),
        empty: "no sessions",
    }
}

fn drops(sample: &Sample, rates: &mut Rates) -> Table {
    let row = |(reason, &n): (&String, &u64)| {
        let rate = rates.of(format!("drop {reason}"), n);
        let mut detail = vec![pair("reason", reason), pair("packets", n)];
        let here = sample.interfaces.interfaces.iter().filter_map(|i| Some((&i.name, i.drops.get(reason)?)));
        detail.extend(here.filter(|(_, n)| **n > 0).map(|(name, n)| pair(&format!("from {name}"), n)));
        Row {
            key: reason.clone(),
            cells: vec![
                Cell::text(reason),
                Cell::Number(rate),
                Cell::Number(n as f64),
                Cell::History(rates.history(format!("drop {reason}"), rate)),
            ],
            detail,
        }
    };
    Table {
        columns: vec!["reason", "pkt/s", "packets", "pkt/s over time"],
        rows: sample.drops.drops.iter().filter(|(_, n)| **n > 0).map(row).collect(),
        empty: "nothing was dropped",
    }
}

fn nat(sample: &Sample, rates: &mut Rates) -> Table {
    let row = |pool: &mmb_control::api::PoolEntry| {
        let used = pool.ports_used.values().copied().max().unwrap_or(0);
        let of = |n: u64, all: u64| if all == 0 { 0.0 } else { n as f64 / all as f64 };
        let exhausted = rates.of(format!("pool {} exhausted", pool.name), pool.exhausted);
        let limited = rates.of(format!("pool {} limited", pool.name), pool.limited);
        let [first, last] = &pool.addresses;
        let mut detail = vec![
            pair("addresses", format!("{first}-{last}")),
            pair("filtering", &pool.filtering),
            pair("blocks", format!("{} of {}", pool.blocks_used, pool.blocks_total)),
            pair("no free port", format!("{} times", pool.exhausted)),
            pair("limit of a host", format!("{} times", pool.limited)),
        ];
        detail.extend(
            pool.ports_used
                .iter()
                .map(|(proto, n)| pair(&format!("{proto} ports"), format!("{n} of {}", pool.ports_total))),
        );
        Row {
            key: pool.name.clone(),
            cells: vec![
                Cell::text(&pool.name),
                Cell::Share(of(used, pool.ports_total)),
                Cell::Number(pool.hosts as f64),
                Cell::Number(pool.sessions as f64),
                Cell::Share(of(pool.blocks_used, pool.blocks_total)),
                Cell::Number(exhausted),
                Cell::Number(limited),
            ],
            detail,
        }
    };
    Table {
        columns: vec!["pool", "ports", "hosts", "sessions", "blocks", "exhausted/s", "limited/s"],
        rows: sample.nat.pools.iter().map(row).collect(),
        empty: "no NAT pools",
    }
}

fn functions(sample: &Sample, rates: &mut Rates) -> Table {
    let row = |function: &mmb_control::api::FunctionEntry| {
        let cost = &function.cost;
        let mut rate = |what: &str, value| rates.of(format!("function {} {what}", cost.name), value);
        let (packets, drops, ticks) = (
            rate("packets", cost.packets),
            rate("drops", cost.drops + cost.refused),
            rate("ticks", cost.ticks),
        );
        let mut detail = vec![
            pair("type", &function.type_),
            pair("arguments", function.arguments.join(" ")),
            pair("chains", function.chains.join(", ")),
            pair("packets", cost.packets),
            pair("held", cost.held),
            pair("released", cost.released),
        ];
        detail.extend(function.report.iter().map(|(name, text)| pair(name, text)));
        Row {
            key: cost.name.clone(),
            cells: vec![
                Cell::text(&cost.name),
                Cell::Number(packets),
                Cell::Number(drops),
                Cell::Number(if packets > 0.0 { ticks / packets } else { 0.0 }),
                Cell::text(&function.type_),
            ],
            detail,
        }
    };
    Table {
        columns: vec!["function", "pkt/s", "drops/s", "ticks/pkt", "type"],
        rows: sample.functions.functions.iter().map(row).collect(),
        empty: "no functions",
    }
}

fn nodes(sample: &Sample, rates: &mut Rates) -> Table {
    // The sum over the workers, in the order of the first one that has the node.
    let mut sums: Vec<(&str, [u64; 3])> = Vec::new();
    for (name, node) in sample.runtime.workers.iter().flat_map(|worker| &worker.nodes) {
        let at = sums.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            sums.push((name, [0; 3]));
            sums.len() - 1
        });
        for (sum, value) in sums[at].1.iter_mut().zip([node.packets, node.vectors, node.ticks]) {
            *sum += value;
        }
    }
    let mut found = Vec::new();
    for (name, counters) in &sums {
        let mut rate = |at: usize| rates.of(format!("node {name} {at}"), counters[at]);
        found.push((*name, rate(0), rate(1), rate(2), counters));
    }
    let all: f64 = found.iter().map(|(.., ticks, _)| ticks).sum();
    let row = |&(name, packets, vectors, ticks, counters): &(&str, f64, f64, f64, &[u64; 3])| Row {
        key: name.to_owned(),
        cells: vec![
            Cell::text(name),
            Cell::Share(if all > 0.0 { ticks / all } else { 0.0 }),
            Cell::Number(packets),
            Cell::Number(if packets > 0.0 { ticks / packets } else { 0.0 }),
            Cell::Number(if vectors > 0.0 { packets / vectors } else { 0.0 }),
        ],
        detail: vec![pair("packets", counters[0]), pair("vectors", counters[1]), pair("ticks", counters[2])],
    };
    Table {
        columns: vec!["node", "of ticks", "pkt/s", "ticks/pkt", "pkt/vector"],
        rows: found.iter().map(row).collect(),
        empty: "no nodes",
    }
}

fn workers(sample: &Sample, rates: &mut Rates) -> Table {
    let row = |worker: &mmb_control::api::WorkerEntry| {
        let number = worker.worker;
        let mut rate = |what: &str, value| rates.of(format!("worker {number} {what}"), value);
        let of =
            |get: fn(&mmb_control::api::NodeEntry) -> u64| worker.nodes.values().map(get).max().unwrap_or(0);
        let (packets, vectors) = (rate("packets", of(|n| n.packets)), rate("vectors", of(|n| n.vectors)));
        let (ticks, sleeps) =
            (rate("ticks", worker.nodes.values().map(|n| n.ticks).sum()), rate("sleeps", worker.sleeps));
        Row {
            key: number.to_string(),
            cells: vec![
                Cell::Number(number as f64),
                Cell::text(worker.cpu.map_or("-".to_owned(), |cpu| cpu.to_string())),
                Cell::Number(packets),
                Cell::Number(if vectors > 0.0 { packets / vectors } else { 0.0 }),
                Cell::Number(ticks),
                Cell::Number(sleeps),
                Cell::Number(worker.sessions as f64),
                Cell::History(rates.history(format!("worker {number}"), packets)),
            ],
            detail: worker
                .nodes
                .iter()
                .map(|(name, n)| {
                    pair(
                        name,
                        format!("{} packets, {:.0} ticks each", human(n.packets as f64), n.ticks_per_packet),
                    )
                })
                .collect(),
        }
    };
    Table {
        columns: vec![
            "worker",
            "cpu",
            "pkt/s",
            "pkt/vector",
            "ticks/s",
            "sleeps/s",
            "sessions",
            "pkt/s over time",
        ],
        rows: sample.runtime.workers.iter().map(row).collect(),
        empty: "no workers",
    }
}
