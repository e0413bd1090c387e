//! Listing routes and neighbours.
//!
//! Theory of operation. The mirror returns routes in pages, each with the place where the next page begins,
//! and keeps nothing between pages. A listing writes and drops one page after the other. Its memory does not
//! grow with the table, and it goes on as fast as the reader reads. It is not a snapshot: routes change
//! meanwhile.

use std::io::{self, Write};

use mmb_dataplane::PortId;
use mmb_lang::{PuntClass, Subnet};
use mmb_router::{FibEntry, FibHop, FibQuery, FibSelect, RouterCounters};

use super::ports::PortNames;
use crate::api::{NeighborEntry, NeighborList, NextHopEntry, PuntCounts, RouteEntry, RoutingCounts};
use crate::config::Config;
use crate::render::FibColumns;
use crate::text::mac_text;
use crate::transaction::Control;

/// The routes of `show fib`, read while they are written.
#[derive(Clone, Debug)]
pub struct FibListing {
    select: FibSelect,
    /// Maximum number of routes.
    limit: usize,
    names: PortNames,
    /// Whether any port is routed.
    is_routed: bool,
}

/// Routes in a page.
const PAGE: usize = 1000;

/// The text where no port is routed.
const NOT_ROUTED: &str = "no routes: no interface is routed; `route NAME` routes the packets of one\n";

impl Control {
    /// `show fib`.
    pub(crate) fn fib_listing(&self, within: Option<Subnet>) -> FibListing {
        let config = self.state().config;
        let select = match within {
            None => FibSelect::All,
            Some(subnet) if subnet.is_address() => FibSelect::Address(subnet.address),
            Some(subnet) => FibSelect::Subnet(subnet.address, subnet.len),
        };
        let (names, is_routed) = (PortNames::of(&config), is_routed(&config));
        FibListing { select, limit: usize::MAX, names, is_routed }
    }

    /// Writes a listing as text.
    pub(crate) fn write_fib(&self, listing: &FibListing, out: &mut dyn Write) -> io::Result<()> {
        let mut columns = FibColumns::new();
        self.for_each_page(listing, |page| {
            page.iter().for_each(|entry| columns.row(&route(entry, &listing.names)));
            out.write_all(columns.flush().as_bytes())
        })?;
        match columns.is_empty() {
            true => out.write_all(if listing.is_routed { b"no routes\n" } else { NOT_ROUTED.as_bytes() }),
            false => Ok(()),
        }
    }

    /// Writes a listing as a [`crate::api::FibList`], one route per line.
    pub(crate) fn write_fib_json(&self, listing: &FibListing, mut out: &mut dyn Write) -> io::Result<()> {
        let mut separator = "\n";
        out.write_all(b"{\"routes\":[")?;
        let more = self.for_each_page(listing, |page| {
            for entry in page {
                out.write_all(separator.as_bytes())?;
                serde_json::to_writer(&mut out, &route(entry, &listing.names))?;
                separator = ",\n";
            }
            Ok(())
        })?;
        write!(out, "],\"more\":{more}}}")
    }

    /// Calls `visit` with the selected routes, page by page. True: there are more routes than the limit.
    fn for_each_page(
        &self,
        listing: &FibListing,
        mut visit: impl FnMut(&[FibEntry]) -> io::Result<()>,
    ) -> io::Result<bool> {
        let mut query = FibQuery { select: listing.select, ..FibQuery::default() };
        let mut left = listing.limit;
        while left > 0 {
            let page = self.mirror().with_router(|router| router.fib(&query, left.min(PAGE)));
            let Some(page) = page else { return Ok(false) };
            visit(&page.entries)?;
            left = left.saturating_sub(page.entries.len());
            if page.next.is_none() {
                return Ok(false);
            }
            query.after = page.next;
        }
        Ok(true)
    }

    /// `show neighbors`.
    pub fn neighbors(&self, within: Option<Subnet>) -> NeighborList {
        let names = PortNames::of(&self.state().config);
        let within = within.map(|subnet| (subnet.address, subnet.len));
        let found = self.mirror().with_router(|router| router.neighbors(within)).unwrap_or_default();
        let entry = |n: mmb_router::NeighborEntry| NeighborEntry {
            address: n.address,
            interface: n.port.and_then(|port| names.get(PortId(port))),
            kernel_interface: n.interface,
            mac: n.mac.map(mac_text),
            state: n.state.into(),
        };
        // The kernel's table also has multicast groups that it sends to, and addresses such as 0.0.0.0.
        let hosts = found.into_iter().filter(|n| !n.address.is_multicast() && !n.address.is_unspecified());
        NeighborList { neighbors: hosts.map(entry).collect() }
    }

    /// Counters of routing; none while no interface is routed.
    pub(crate) fn routing(&self) -> Option<RoutingCounts> {
        let RouterCounters {
            lag_last_us,
            lag_max_us,
            resyncs,
            overruns,
            messages,
            publications,
            requests,
            routes4,
            routes6,
            next_hops,
            neighbors,
            ..
        } = self.mirror().with_router(|router| router.counters())?;
        let workers = self.engine().routing_counters();
        let punted = |class: PuntClass| workers.punted[class as usize];
        Some(RoutingCounts {
            routes_ip4: routes4,
            routes_ip6: routes6,
            next_hops,
            neighbors,
            lag_last_us,
            lag_max_us,
            resyncs,
            overruns,
            messages,
            publications,
            requests,
            punted: workers.punted.iter().sum(),
            punted_by_class: PuntCounts {
                neighbor: punted(PuntClass::Neighbor),
                routing: punted(PuntClass::Routing),
                local: punted(PuntClass::Local),
                other: punted(PuntClass::Other),
            },
            icmp_errors: workers.icmp_errors,
            icmp_suppressed: workers.icmp_suppressed,
            fragmented: workers.fragmented,
            fragments: workers.fragments,
            queued: workers.queued,
            waiting: workers.waiting,
        })
    }
}

impl FibListing {
    /// The listing with at most `limit` routes.
    pub(crate) fn with_limit(self, limit: Option<usize>) -> FibListing {
        FibListing { limit: limit.unwrap_or(self.limit), ..self }
    }
}

fn is_routed(config: &Config) -> bool {
    config.interfaces().iter().any(|i| i.routed.is_some())
}

fn route(entry: &FibEntry, names: &PortNames) -> RouteEntry {
    let hop = |hop: &FibHop| NextHopEntry {
        gateway: hop.gateway,
        kernel_interface: hop.interface.clone(),
        interface: hop.port.and_then(|port| names.get(PortId(port))),
        state: hop.state.into(),
        weight: hop.weight,
        mac: hop.mac.map(mac_text),
        mtu: hop.mtu,
    };
    RouteEntry {
        prefix: format!("{}/{}", entry.key.prefix, entry.key.length),
        table: entry.key.table,
        kind: entry.kind.into(),
        protocol: entry.protocol.clone(),
        metric: entry.metric,
        next_hops: entry.hops.iter().map(hop).collect(),
    }
}
