//! Sessions and NAT.

use std::net::IpAddr;

use super::columns::Align::{Left, Right};
use super::columns::Columns;
use crate::api::{ConnectionEntry, FlowEntry, NatReply};

/// `show connections`, as it goes on.
#[derive(Debug)]
pub(crate) enum ConnectionColumns {
    /// What fits a line.
    Short(Columns<9>),
    /// All.
    Verbose(Columns<14>),
}

impl ConnectionColumns {
    /// No connections yet.
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
        ConnectionColumns::Verbose(Columns::new([a, b, c, d, e, j, f, g, h, k, l, m, n, i]))
    }

    /// Adds one.
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
                    if chain.is_empty() { "-".to_owned() } else { chain },
                    rules,
                ]);
            }
        }
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        match self {
            ConnectionColumns::Short(columns) => columns.is_empty(),
            ConnectionColumns::Verbose(columns) => columns.is_empty(),
        }
    }

    /// The lines since the last call; none before the first connection.
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

fn flow(f: &FlowEntry) -> String {
    format!("{} > {}", end(&f.source, f.source_port), end(&f.destination, f.destination_port))
}

fn end(address: &IpAddr, port: Option<u16>) -> String {
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
        return "no NAT pools and no forwards; add one with `nat pool add NAME ADDRESS[-ADDRESS] …`\n"
            .to_owned();
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
        let used = |proto: &str| p.ports_used.get(proto).copied().unwrap_or(0).to_string();
        let blocks = p.block.map(|size| format!("{}/{} of {size}", p.blocks_used, p.blocks_total));
        columns.row([
            p.name.clone(),
            if first == last { first.clone() } else { format!("{first}-{last}") },
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
mod tests {
    use super::*;
    use crate::api::{ForwardEntry, PoolEntry};

    fn side(source: &str, sport: Option<u16>, destination: &str, dport: Option<u16>, n: u64) -> FlowEntry {
        FlowEntry {
            source: source.parse().unwrap(),
            source_port: sport,
            destination: destination.parse().unwrap(),
            destination_port: dport,
            in_: (n > 0).then(|| "left".to_owned()),
            packets: n,
            bytes: 60 * n,
        }
    }

    fn connection(forward: FlowEntry, reverse: FlowEntry) -> ConnectionEntry {
        ConnectionEntry {
            protocol: "tcp".into(),
            state: "established".into(),
            forward,
            reverse,
            translated: true,
            age_seconds: 3,
            idle_seconds: 1,
            expires_seconds: 7439,
            rules: vec![1, 12],
            chain: None,
            refused: None,
            worker: 0,
            uid: 1,
        }
    }

    #[test]
    fn connections_have_both_tuples_as_packets_come_in() {
        let mut columns = ConnectionColumns::new(false);
        assert_eq!(columns.flush(), "");
        columns.row(&connection(
            side("10.0.0.1", Some(4000), "192.0.2.1", Some(80), 10),
            side("192.0.2.1", Some(80), "198.51.100.1", Some(4000), 8),
        ));
        let text = columns.flush();
        let line = "tcp       established  10.0.0.1:4000 > 192.0.2.1:80  192.0.2.1:80 > 198.51.100.1:4000   3s    7439s  \
                    10/8     600/480  1,12";
        assert_eq!(text.lines().nth(1), Some(line), "{text}");
        let six = ("2001:db8::1", "2001:db8::2");
        columns.row(&connection(side(six.0, Some(1), six.1, Some(2), 1), side(six.1, None, six.0, None, 0)));
        let text = columns.flush();
        assert!(text.contains("[2001:db8::1]:1 > [2001:db8::2]:2  2001:db8::2 > 2001:db8::1  "), "{text}");
        assert_eq!(text.lines().count(), 1);
        let mut chained =
            connection(side(six.0, Some(1), six.1, Some(2), 1), side(six.1, None, six.0, None, 0));
        chained.chain = Some("web".to_owned());
        columns.row(&chained);
        assert!(columns.flush().ends_with("  1,12 (web)\n"));
        chained.refused = Some("acl".to_owned());
        columns.row(&chained);
        assert!(columns.flush().ends_with("  1,12 (web, refused: acl)\n"));
    }

    #[test]
    fn verbose_adds_columns() {
        let mut columns = ConnectionColumns::new(true);
        let ends = ("10.0.0.1", "10.0.0.2");
        columns.row(&connection(side(ends.0, None, ends.1, None, 1), side(ends.1, None, ends.0, None, 0)));
        let text = columns.flush();
        let heads: Vec<_> = text.lines().next().unwrap_or_default().split_whitespace().collect();
        let cells: Vec<_> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        // `A > B` are three words, twice.
        assert_eq!((heads.len(), cells.len()), (14, 18), "{text}");
        assert!(cells.contains(&"left/-") && cells.contains(&"yes"), "{text}");
    }

    #[test]
    fn nat_shows_pools_and_forwards() {
        assert!(nat(&NatReply::default()).starts_with("no NAT pools"));
        let pool = PoolEntry {
            name: "p".to_owned(),
            addresses: ["192.0.2.1".to_owned(), "192.0.2.4".to_owned()],
            ports: [1024, 65535],
            block: Some(64),
            ports_used: [("tcp".to_owned(), 7)].into_iter().collect(),
            ports_total: 258_048,
            blocks_used: 3,
            blocks_total: 4032,
            filtering: "address-dependent".to_owned(),
            ..PoolEntry::default()
        };
        let forward = ForwardEntry {
            protocol: "tcp".to_owned(),
            outside: "192.0.2.1".to_owned(),
            outside_port: 80,
            inside: "10.0.0.1".to_owned(),
            inside_port: 8080,
        };
        let text = nat(&NatReply { pools: vec![pool], forwards: vec![forward] });
        assert!(text.contains("192.0.2.1-192.0.2.4") && text.contains("3/4032 of 64"), "{text}");
        assert!(text.ends_with("tcp      192.0.2.1:80  10.0.0.1:8080\n"), "{text}");
    }
}
