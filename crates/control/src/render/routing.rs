//! Routes, neighbours and counters of routing as text.

use super::columns::Align::{Left, Right};
use super::columns::Columns;
use crate::api::{NeighborList, NextHopEntry, RouteEntry, RoutedEntry, RoutingCounts};
use crate::text::count;

/// The kernel's number of its main table.
const MAIN: u32 = 254;

/// `show fib`, rendered piece by piece.
#[derive(Debug)]
pub(crate) struct FibColumns(Columns<6>);

impl FibColumns {
    /// A table without routes.
    pub fn new() -> Self {
        FibColumns(Columns::new([
            ("prefix", Left),
            ("table", Left),
            ("kind", Left),
            ("protocol", Left),
            ("metric", Right),
            ("next hops", Left),
        ]))
    }

    /// Adds a route.
    pub fn row(&mut self, r: &RouteEntry) {
        let hops: Vec<_> = r.next_hops.iter().map(next_hop).collect();
        self.0.row([
            r.prefix.clone(),
            if r.table == MAIN { "main".to_owned() } else { r.table.to_string() },
            r.kind.to_string(),
            r.protocol.clone(),
            r.metric.to_string(),
            if hops.is_empty() { "-".to_owned() } else { hops.join(", ") },
        ]);
    }

    /// Whether no route was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Renders the routes since the last call; empty before the first route.
    pub fn flush(&mut self) -> String {
        if self.is_empty() { String::new() } else { self.0.flush() }
    }
}

/// `via GATEWAY INTERFACE STATE`.
fn next_hop(hop: &NextHopEntry) -> String {
    let via = hop.gateway.map_or_else(String::new, |gateway| format!("via {gateway} "));
    let name = hop.interface.as_ref().unwrap_or(&hop.kernel_interface);
    let weight = if hop.weight > 1 { format!(" weight {}", hop.weight) } else { String::new() };
    format!("{via}{name} {}{weight}", hop.state)
}

/// `show neighbors`.
pub fn neighbors(list: &NeighborList) -> String {
    if list.neighbors.is_empty() {
        return "no neighbors\n".to_owned();
    }
    let mut columns = Columns::new([
        ("address", Left),
        ("interface", Left),
        ("kernel", Left),
        ("mac", Left),
        ("state", Left),
    ]);
    for n in &list.neighbors {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        columns.row([
            n.address.to_string(),
            or_none(&n.interface),
            n.kernel_interface.clone(),
            or_none(&n.mac),
            n.state.to_string(),
        ]);
    }
    columns.render()
}

/// A sentence on the kernel interface with the addresses of a routed interface.
pub(super) fn addresses(routed: &RoutedEntry) -> String {
    let name = &routed.interface;
    match &routed.twin {
        None => format!("its addresses are those of {name}"),
        Some(twin) => format!(
            "its addresses are those of the twin {name}; {} to the kernel, {} from it",
            count(twin.to_kernel, "packet"),
            twin.from_kernel
        ),
    }
}

/// The lines of `show runtime` about routing.
pub(crate) fn routing(r: &RoutingCounts) -> String {
    let milliseconds = |us: u64| format!("{}.{:02} ms", us / 1000, us % 1000 / 10);
    format!(
        "routes: {} IPv4, {} IPv6, {}, {}; last change after {}, the slowest after {}; {} ({} for lost messages)\n\
         routing: {} to the kernel ({} neighbor, {} routing, {} local, {} other), {} ({} rate-limited), {} in {}, {} queued for a neighbor\n",
        r.routes_ip4,
        r.routes_ip6,
        count(r.next_hops, "next hop"),
        count(r.neighbors, "neighbor"),
        milliseconds(r.lag_last_us),
        milliseconds(r.lag_max_us),
        count(r.resyncs, "resync"),
        r.overruns,
        count(r.punted, "packet"),
        r.punted_by_class.neighbor,
        r.punted_by_class.routing,
        r.punted_by_class.local,
        r.punted_by_class.other,
        count(r.icmp_errors, "ICMP error"),
        r.icmp_suppressed,
        count(r.fragmented, "packet"),
        count(r.fragments, "fragment"),
        r.queued,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NeighborEntry;

    fn hop(gateway: Option<&str>, interface: Option<&str>, state: &'static str, weight: u16) -> NextHopEntry {
        NextHopEntry {
            gateway: gateway.map(|g| g.parse().unwrap()),
            kernel_interface: "eth7".to_owned(),
            interface: interface.map(str::to_owned),
            state: state.into(),
            weight,
            mac: None,
            mtu: 1500,
        }
    }

    #[test]
    fn routes_have_their_next_hops_in_one_cell() {
        let mut columns = FibColumns::new();
        assert_eq!(columns.flush(), "");
        let route = |prefix: &str, kind: &'static str, next_hops| RouteEntry {
            prefix: prefix.to_owned(),
            table: if kind == "unicast" { 10 } else { 254 },
            kind: kind.into(),
            protocol: "bgp".to_owned(),
            metric: 20,
            next_hops,
        };
        let two = vec![
            hop(Some("192.0.2.1"), Some("wan"), "forward", 1),
            hop(Some("2001:db8::1"), None, "punt", 2),
        ];
        columns.row(&route("198.51.100.0/24", "unicast", two));
        columns.row(&route("203.0.113.0/24", "blackhole", Vec::new()));
        columns.row(&route("10.0.0.7/32", "neighbor", vec![hop(None, Some("lan"), "forward", 1)]));
        let expected = "\
prefix           table  kind       protocol  metric  next hops
198.51.100.0/24  10     unicast    bgp           20  via 192.0.2.1 wan forward, via 2001:db8::1 eth7 punt weight 2
203.0.113.0/24   main   blackhole  bgp           20  -
10.0.0.7/32      main   neighbor   bgp           20  lan forward
";
        assert_eq!(columns.flush(), expected);
    }

    #[test]
    fn unknown_values_of_neighbours_are_dashes() {
        assert_eq!(neighbors(&NeighborList::default()), "no neighbors\n");
        let neighbor = NeighborEntry {
            address: "10.0.0.7".parse().unwrap(),
            kernel_interface: "eth7".to_owned(),
            interface: Some("lan".to_owned()),
            mac: None,
            state: "incomplete".into(),
        };
        let text = neighbors(&NeighborList { neighbors: vec![neighbor] });
        assert_eq!(text.lines().nth(1), Some("10.0.0.7  lan        eth7    -    incomplete"));
    }

    #[test]
    fn routing_takes_two_lines() {
        let counts = RoutingCounts { routes_ip4: 7, neighbors: 1, lag_max_us: 1_234, ..Default::default() };
        let text = routing(&counts);
        assert!(text.starts_with("routes: 7 IPv4, 0 IPv6, 0 next hops, 1 neighbor; "), "{text}");
        assert!(text.contains("the slowest after 1.23 ms") && text.lines().count() == 2, "{text}");
    }
}
