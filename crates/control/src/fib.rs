//! Listing routes and neighbours.
//!
//! Theory of operation. The mirror gives routes in pages, each with the place behind it, and holds nothing for the listing in
//! between. A listing writes and forgets page after page, so that its memory does not grow with the table, and the writer's
//! pace is the reader's. It is no snapshot: routes come and go meanwhile.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::IpAddr;

use mmb_dataplane::PortId;
use mmb_lang::Subnet;
use mmb_router::{FibEntry, FibHop, FibQuery, FibSelect, RouterCounters};

use crate::api::{NeighborEntry, NeighborList, NextHopEntry, RouteEntry, RoutingCounts};
use crate::config::Config;
use crate::connections::interface_names;
use crate::control::Control;
use crate::render::FibColumns;

/// What `show fib` lists, to be written by [`Control::write_fib`].
#[derive(Clone, Debug)]
pub struct FibListing {
    select: FibSelect,
    /// Most routes.
    limit: usize,
    names: Vec<String>,
    /// Whether any port is routed.
    routed: bool,
}

/// Routes in a page.
const PAGE: usize = 1000;

/// What to say of no routes where none can be.
const NOT_ROUTED: &str = "no routes: no interface is routed; `route NAME` routes what comes in at one\n";

impl Control {
    /// `show fib`.
    pub(crate) fn fib_listing(&self, within: Option<Subnet>) -> FibListing {
        let config = self.present().config;
        let select = match within {
            None => FibSelect::All,
            Some(subnet) if subnet.is_address() => FibSelect::Address(subnet.address),
            Some(subnet) => FibSelect::Subnet(subnet.address, subnet.len),
        };
        let (names, routed) = (interface_names(&config), is_routed(&config));
        FibListing { select, limit: usize::MAX, names, routed }
    }

    /// Writes a listing for people.
    pub(crate) fn write_fib(&self, listing: &FibListing, out: &mut dyn Write) -> io::Result<()> {
        let mut columns = FibColumns::new();
        self.pages(listing, |page| {
            page.iter().for_each(|entry| columns.row(&route(entry, &listing.names)));
            out.write_all(columns.flush().as_bytes())
        })?;
        match columns.is_empty() {
            true => out.write_all(if listing.routed { b"no routes\n" } else { NOT_ROUTED.as_bytes() }),
            false => Ok(()),
        }
    }

    /// Writes a listing as a [`crate::api::FibList`], one route a line.
    pub(crate) fn write_fib_json(&self, listing: &FibListing, mut out: &mut dyn Write) -> io::Result<()> {
        let mut separator = "\n";
        out.write_all(b"{\"routes\":[")?;
        let more = self.pages(listing, |page| {
            for entry in page {
                out.write_all(separator.as_bytes())?;
                serde_json::to_writer(&mut out, &route(entry, &listing.names))?;
                separator = ",\n";
            }
            Ok(())
        })?;
        write!(out, "],\"more\":{more}}}")
    }

    /// Calls `each` for the routes that are meant, some at a time. True: there are more than the limit.
    fn pages(
        &self,
        listing: &FibListing,
        mut each: impl FnMut(&[FibEntry]) -> io::Result<()>,
    ) -> io::Result<bool> {
        let mut query = FibQuery { select: listing.select, ..FibQuery::default() };
        let mut left = listing.limit;
        while left > 0 {
            let Some(page) = self.mirror().ask(|router| router.fib(&query, left.min(PAGE))) else {
                return Ok(false);
            };
            each(&page.entries)?;
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
        let names = interface_names(&self.present().config);
        let within = within.map(|subnet| (subnet.address, subnet.len));
        let found = self.mirror().ask(|router| router.neighbors(within)).unwrap_or_default();
        let entry = |n: mmb_router::NeighborEntry| NeighborEntry {
            address: n.address,
            interface: name_of(n.port, &names),
            kernel_interface: n.interface,
            mac: n.mac.map(mac_text),
            state: Cow::Borrowed(n.state),
        };
        // The kernel keeps groups that it sends to in the same table, and the likes of 0.0.0.0; they are nobody's addresses.
        let hosts = found.into_iter().filter(|n| !n.address.is_multicast() && !n.address.is_unspecified());
        NeighborList { neighbors: hosts.map(entry).collect() }
    }

    /// What routing did; none while no interface is routed.
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
        } = self.mirror().ask(|router| router.counters())?;
        let work = self.engine().routing_counters();
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
            punted: work.punted,
            icmp_errors: work.icmp_errors,
            icmp_suppressed: work.icmp_suppressed,
            fragmented: work.fragmented,
            fragments: work.fragments,
            queued: work.queued,
            waiting: work.waiting,
        })
    }
}

impl FibListing {
    /// The same, of so many routes at most.
    pub(crate) fn at_most(self, limit: Option<usize>) -> FibListing {
        FibListing { limit: limit.unwrap_or(self.limit), ..self }
    }
}

fn is_routed(config: &Config) -> bool {
    config.interfaces().iter().any(|i| i.routed.is_some())
}

/// The operator's name of a port.
fn name_of(port: Option<PortId>, names: &[String]) -> Option<String> {
    names.get(port?.index()?).filter(|name| !name.is_empty()).cloned()
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn route(entry: &FibEntry, names: &[String]) -> RouteEntry {
    let hop = |hop: &FibHop| NextHopEntry {
        gateway: hop.gateway,
        kernel_interface: hop.interface.clone(),
        interface: name_of(hop.port, names),
        state: Cow::Borrowed(hop.state),
        weight: hop.weight,
        mac: hop.mac.map(mac_text),
        mtu: hop.mtu,
    };
    RouteEntry {
        prefix: prefix(entry.key.prefix, entry.key.length),
        table: entry.key.table,
        kind: Cow::Borrowed(entry.kind),
        protocol: entry.protocol.clone(),
        metric: entry.metric,
        next_hops: entry.hops.iter().map(hop).collect(),
    }
}

fn prefix(address: IpAddr, length: u8) -> String {
    format!("{address}/{length}")
}
