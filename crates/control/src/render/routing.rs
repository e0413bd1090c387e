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
         routing: {} to the kernel ({} neighbor, {} routing, {} local, {} other), {} ({} rate-limited), \
         {} in {}, {} queued for a neighbor\n",
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
mod tests;
