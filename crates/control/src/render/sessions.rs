//! Sessions and NAT as text.

use std::net::IpAddr;

use super::columns::Align::{Left, Right};
use super::columns::Columns;
use crate::api::{ConnectionEntry, FlowEntry, NatReply};

/// `show connections`, rendered piece by piece.
#[derive(Debug)]
pub(crate) enum ConnectionColumns {
    /// The columns that fit a line.
    Short(Columns<9>),
    /// All columns.
    Verbose(Columns<15>),
}

impl ConnectionColumns {
    /// A table without connections.
    pub fn new(verbose: bool) -> Self {
        let short = [
            ("protocol", Left),
            ("state", Left),
            ("forward", Left),
            ("reverse", Left),
            ("age", Right),
            ("expires", Right),
            ("packets", Left),
            ("bytes", Left),
            ("rules", Left),
        ];
        if !verbose {
            return ConnectionColumns::Short(Columns::new(short));
        }
        let [a, b, c, d, e, f, g, h, i] = short;
        let more = [("idle", Right), ("in", Left), ("worker", Right), ("translated", Left), ("chain", Left)];
        let [j, k, l, m, n] = more;
        let id = ("id", Left);
        ConnectionColumns::Verbose(Columns::new([id, a, b, c, d, e, j, f, g, h, k, l, m, n, i]))
    }

    /// Adds a connection.
    pub fn row(&mut self, c: &ConnectionEntry) {
        let mut short = [
            c.protocol.to_string(),
            c.state.to_string(),
            flow(&c.forward),
            flow(&c.reverse),
            format!("{}s", c.age_seconds),
            format!("{}s", c.expires_seconds),
            format!("{}/{}", c.forward.packets, c.reverse.packets),
            format!("{}/{}", c.forward.bytes, c.reverse.bytes),
            rules(&c.rules),
        ];
        let refused = c.refused.as_ref().map_or_else(String::new, |reason| format!("refused: {reason}"));
        let chain = match &c.chain {
            Some(chain) if c.refused.is_some() => format!("{chain}, {refused}"),
            Some(chain) => chain.clone(),
            None => refused,
        };
        match self {
            ConnectionColumns::Short(columns) => {
                let [.., rules] = &mut short;
                if !chain.is_empty() {
                    rules.push_str(&format!(" ({chain})"));
                }
                columns.row(short);
            }
            ConnectionColumns::Verbose(columns) => {
                let [protocol, state, forward, reverse, age, expires, packets, bytes, rules] = short;
                let interface = |f: &FlowEntry| f.in_.clone().unwrap_or_else(|| "-".to_owned());
                columns.row([
                    c.id.clone(),
                    protocol,
                    state,
                    forward,
                    reverse,
                    age,
                    format!("{}s", c.idle_seconds),
                    expires,
                    packets,
                    bytes,
                    format!("{}/{}", interface(&c.forward), interface(&c.reverse)),
                    c.worker.to_string(),
                    if c.translated { "yes" } else { "no" }.to_owned(),
                    if chain.is_empty() { "-".to_owned() } else { format!("{chain}{}", functions(c)) },
                    rules,
                ]);
            }
        }
    }

    /// Whether no connection was added.
    pub fn is_empty(&self) -> bool {
        match self {
            ConnectionColumns::Short(columns) => columns.is_empty(),
            ConnectionColumns::Verbose(columns) => columns.is_empty(),
        }
    }

    /// Renders the connections since the last call; empty before the first connection.
    pub fn flush(&mut self) -> String {
        if self.is_empty() {
            return String::new();
        }
        match self {
            ConnectionColumns::Short(columns) => columns.flush(),
            ConnectionColumns::Verbose(columns) => columns.flush(),
        }
    }
}

/// What functions of the chain say about a connection.
fn functions(c: &ConnectionEntry) -> String {
    c.functions.iter().map(|(name, text)| format!("; {name}: {text}")).collect()
}

fn flow(f: &FlowEntry) -> String {
    format!("{} > {}", end(&f.source, f.source_port), end(&f.destination, f.destination_port))
}

pub(super) fn end(address: &IpAddr, port: Option<u16>) -> String {
    match (address, port) {
        (address, None) => address.to_string(),
        (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
        (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
    }
}

pub(super) fn rules(indexes: &[u32]) -> String {
    if indexes.is_empty() {
        return "-".to_owned();
    }
    indexes.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// `show nat`.
pub fn nat(reply: &NatReply) -> String {
    if reply.pools.is_empty() && reply.forwards.is_empty() {
        return "no NAT pools and no forwards; add one with `nat pool add NAME ADDRESSES …`\n".to_owned();
    }
    let mut text = String::new();
    if !reply.pools.is_empty() {
        text.push_str(&pools(reply));
    }
    if !reply.forwards.is_empty() {
        let mut columns = Columns::new([("forward", Left), ("outside", Left), ("inside", Left)]);
        for f in &reply.forwards {
            columns.row([
                f.protocol.clone(),
                format!("{}:{}", f.outside, f.outside_port),
                format!("{}:{}", f.inside, f.inside_port),
            ]);
        }
        text.push_str(&columns.render());
    }
    text
}

fn pools(reply: &NatReply) -> String {
    let mut columns = Columns::new([
        ("pool", Left),
        ("addresses", Left),
        ("ports", Left),
        ("hosts", Right),
        ("sessions", Right),
        ("udp", Right),
        ("tcp", Right),
        ("icmp", Right),
        ("of", Right),
        ("blocks", Left),
        ("limit", Right),
        ("limited", Right),
        ("exhausted", Right),
        ("filtering", Left),
    ]);
    for p in &reply.pools {
        let [first, last] = &p.addresses;
        let range = if first == last { first.clone() } else { format!("{first}-{last}") };
        let addresses = match &p.interface {
            Some(name) if range.is_empty() => format!("interface {name}"),
            Some(name) => format!("{range} ({name})"),
            None => range,
        };
        let used = |proto: &str| p.ports_used.get(proto).copied().unwrap_or(0).to_string();
        let blocks = p.block.map(|size| format!("{}/{} of {size}", p.blocks_used, p.blocks_total));
        columns.row([
            p.name.clone(),
            addresses,
            format!("{}-{}", p.ports[0], p.ports[1]),
            p.hosts.to_string(),
            p.sessions.to_string(),
            used("udp"),
            used("tcp"),
            used("icmp"),
            p.ports_total.to_string(),
            blocks.unwrap_or_else(|| "-".to_owned()),
            p.limit.map_or_else(|| "-".to_owned(), |n| n.to_string()),
            p.limited.to_string(),
            p.exhausted.to_string(),
            p.filtering.clone(),
        ]);
    }
    columns.render()
}

#[cfg(test)]
mod tests;
