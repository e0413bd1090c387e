//! Queries of the mirrored state.

use std::net::IpAddr;

use mmb_route::{NextHop, NextHopKind};

use super::family::Family;
use super::prefix::{AddressBits, Prefix};
use super::state::Model;
use super::tree::{PrefixEntry, Tree};
use crate::netlink::{Neighbor, NextHopSpec};
use crate::query::{FibEntry, FibHop, FibKey, FibPage, FibQuery, FibSelect, NeighborEntry};

impl Model {
    /// Entries of the tables, at most `limit`.
    pub fn fib(&self, query: &FibQuery, limit: usize) -> FibPage {
        let mut page = FibPage::default();
        let mut slots: Vec<(usize, u32)> =
            self.tables.iter().enumerate().filter_map(|(slot, table)| Some((slot, (*table)?))).collect();
        slots.sort_unstable_by_key(|&(slot, table)| (slot != 0, table));
        let from =
            query.after.map(|key| slots.iter().position(|&(_, table)| table == key.table).unwrap_or(0));
        for (at, &(slot, table)) in slots.iter().enumerate() {
            if from.is_some_and(|from| at < from) || query.table.is_some_and(|wanted| wanted != table) {
                continue;
            }
            let after = query.after.filter(|key| key.table == table);
            let full = self.page(&self.v4, slot, table, query.select, after, limit, &mut page)
                || self.page(&self.v6, slot, table, query.select, after, limit, &mut page);
            if full {
                page.next = page.entries.last().map(|entry| entry.key);
                break;
            }
        }
        page
    }

    /// Adds the entries of one tree to a page. Returns true if more entries exist than fit.
    #[allow(clippy::too_many_arguments)]
    fn page<A: AddressBits>(
        &self,
        family: &Family<A>,
        slot: usize,
        table: u32,
        select: FibSelect,
        after: Option<FibKey>,
        limit: usize,
        page: &mut FibPage,
    ) -> bool {
        let tree: &Tree<A> = &family.trees[slot];
        let after = match after {
            // IPv4 precedes IPv6.
            Some(key) if key.prefix.is_ipv6() && !A::V6 => return false,
            Some(key) => Prefix::<A>::new(key.prefix, key.length),
            None => None,
        };
        let (start, end) = match select {
            FibSelect::All => (Prefix::default(), Prefix::default().end()),
            FibSelect::Subnet(address, length) => match Prefix::<A>::new(address, length) {
                Some(prefix) => (prefix, prefix.end()),
                None => return false,
            },
            FibSelect::Address(address) => {
                let found = A::of(address).and_then(|bits| tree.lookup(bits));
                let found = found.filter(|(prefix, _)| after.is_none_or(|after| *prefix > after));
                page.entries.extend(found.and_then(|(prefix, entry)| self.entry(table, prefix, entry)));
                return false;
            }
        };
        let start = after.map_or(start, |after| after.max(start));
        let range = tree.range_from(start).take_while(|(prefix, _)| **prefix <= end);
        let behind = range.filter(|(prefix, _)| after.is_none_or(|after| **prefix > after));
        for (prefix, entry) in behind {
            let Some(entry) = self.entry(table, *prefix, entry) else { continue };
            if page.entries.len() >= limit {
                return true;
            }
            page.entries.push(entry);
        }
        false
    }

    /// The table entry at a prefix. None if it is not in use.
    fn entry<A: AddressBits>(&self, table: u32, prefix: Prefix<A>, entry: &PrefixEntry) -> Option<FibEntry> {
        let key = FibKey { table, prefix: prefix.bits.address(), length: prefix.length };
        if entry.hop == 0 {
            return None;
        }
        let hops =
            || self.paths.next_hops(entry.hop).into_iter().map(|next_hop| self.fib_hop(next_hop)).collect();
        if entry.neighbor {
            let protocol = "kernel".to_owned();
            return Some(FibEntry { key, kind: "neighbor", metric: 0, protocol, hops: hops() });
        }
        let route = entry.routes.iter().find(|route| self.paths.is_alive(route.path))?;
        Some(FibEntry {
            key,
            kind: kind_name(route.kind),
            metric: route.metric,
            protocol: protocol_name(route.protocol),
            hops: hops(),
        })
    }

    fn fib_hop(&self, (next_hop, hop, alive): (NextHopSpec, NextHop, bool)) -> FibHop {
        let state = match hop.kind {
            _ if !alive => "dead",
            NextHopKind::Forward => "forward",
            NextHopKind::Resolve => "resolve",
            NextHopKind::Failed => "failed",
            _ => "punt",
        };
        let neighbor =
            next_hop.gateway.and_then(|gateway| self.paths.neighbors.get(&(next_hop.interface, gateway)));
        FibHop {
            gateway: next_hop.gateway,
            interface: self.name_of(next_hop.interface),
            port: self.paths.port(next_hop.interface),
            weight: next_hop.weight,
            state,
            mac: neighbor.and_then(|neighbor| neighbor.mac),
            mtu: hop.mtu,
        }
    }

    fn name_of(&self, interface: u32) -> String {
        self.paths.links.get(&interface).map_or_else(|| interface.to_string(), |link| link.name.clone())
    }

    /// Neighbours in ascending order of addresses; those inside a prefix, or all.
    pub fn neighbors_within(&self, within: Option<(IpAddr, u8)>) -> Vec<NeighborEntry> {
        let mut all = Vec::new();
        self.add_neighbors(&self.v4, within, &mut all);
        self.add_neighbors(&self.v6, within, &mut all);
        all
    }

    fn add_neighbors<A: AddressBits>(
        &self,
        family: &Family<A>,
        within: Option<(IpAddr, u8)>,
        all: &mut Vec<NeighborEntry>,
    ) {
        let prefix = match within {
            None => Prefix::<A>::default(),
            Some((address, length)) => match Prefix::new(address, length) {
                Some(prefix) => prefix,
                None => return,
            },
        };
        for (bits, interfaces) in family.neighbors.range(prefix.bits..=prefix.end().bits) {
            let known = interfaces.iter().filter_map(|i| self.paths.neighbors.get(&(*i, bits.address())));
            all.extend(known.map(|neighbor| NeighborEntry {
                address: neighbor.address,
                interface: self.name_of(neighbor.interface),
                port: self.paths.port(neighbor.interface),
                mac: neighbor.mac,
                state: state_name(neighbor),
            }));
        }
    }
}

/// The name of a neighbour's state in iproute2.
fn state_name(neighbor: &Neighbor) -> &'static str {
    match neighbor.state {
        libc::NUD_INCOMPLETE => "incomplete",
        libc::NUD_REACHABLE => "reachable",
        libc::NUD_STALE => "stale",
        libc::NUD_DELAY => "delay",
        libc::NUD_PROBE => "probe",
        libc::NUD_FAILED => "failed",
        libc::NUD_NOARP => "noarp",
        libc::NUD_PERMANENT => "permanent",
        _ => "none",
    }
}

fn kind_name(kind: u8) -> &'static str {
    match kind {
        libc::RTN_UNICAST => "unicast",
        libc::RTN_LOCAL => "local",
        libc::RTN_BROADCAST => "broadcast",
        libc::RTN_ANYCAST => "anycast",
        libc::RTN_MULTICAST => "multicast",
        libc::RTN_BLACKHOLE => "blackhole",
        libc::RTN_UNREACHABLE => "unreachable",
        libc::RTN_PROHIBIT => "prohibit",
        libc::RTN_THROW => "throw",
        _ => "other",
    }
}

/// The name of a routing protocol in iproute2 (linux/rtnetlink.h).
fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        0 => "unspec",
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        8 => "gated",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        18 => "keepalived",
        42 => "babel",
        84 => "openr",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        number => return number.to_string(),
    };
    name.to_owned()
}
