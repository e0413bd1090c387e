//! Answers to questions about the mirrored state.

use std::net::IpAddr;

use mmb_dataplane::PortId;
use mmb_route::{NextHop, NextHopKind};

use crate::event::{Leg, Neighbor};
use crate::model::{Family, Model};
use crate::prefix::{Bits, Prefix};
use crate::query::{FibEntry, FibHop, FibKey, FibPage, FibQuery, FibSelect, NeighborEntry};
use crate::tree::{Entry, Tree};

impl Model {
    /// Entries of the tables, at most `limit`.
    pub fn fib(&self, query: &FibQuery, limit: usize) -> FibPage {
        let mut page = FibPage::default();
        let mut places: Vec<(usize, u32)> =
            self.tables.iter().enumerate().filter_map(|(place, table)| Some((place, (*table)?))).collect();
        places.sort_unstable_by_key(|&(place, table)| (place != 0, table));
        let from =
            query.after.map(|key| places.iter().position(|&(_, table)| table == key.table).unwrap_or(0));
        for (at, &(place, table)) in places.iter().enumerate() {
            if from.is_some_and(|from| at < from) || query.table.is_some_and(|wanted| wanted != table) {
                continue;
            }
            let after = query.after.filter(|key| key.table == table);
            let full = self.page(&self.v4, place, table, query.select, after, limit, &mut page)
                || self.page(&self.v6, place, table, query.select, after, limit, &mut page);
            if full {
                page.next = page.entries.last().map(|entry| entry.key);
                break;
            }
        }
        page
    }

    /// Adds the entries of one tree to a page. True: there are more than fit.
    #[allow(clippy::too_many_arguments)]
    fn page<A: Bits>(
        &self,
        family: &Family<A>,
        place: usize,
        table: u32,
        select: FibSelect,
        after: Option<FibKey>,
        limit: usize,
        page: &mut FibPage,
    ) -> bool {
        let tree: &Tree<A> = &family.trees[place];
        let after = match after {
            // Families come in order.
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
                let found = A::of(address).and_then(|bits| tree.find(bits));
                let found = found.filter(|(prefix, _)| after.is_none_or(|after| *prefix > after));
                page.entries.extend(found.and_then(|(prefix, entry)| self.entry(table, prefix, entry)));
                return false;
            }
        };
        let start = after.map_or(start, |after| after.max(start));
        let range = tree.from(start).take_while(|(prefix, _)| **prefix <= end);
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

    /// What packets to a prefix follow; nothing if it does not count.
    fn entry<A: Bits>(&self, table: u32, prefix: Prefix<A>, entry: &Entry) -> Option<FibEntry> {
        let key = FibKey { table, prefix: prefix.bits.address(), length: prefix.length };
        if entry.hop == 0 {
            return None;
        }
        let hops = || self.ways.legs(entry.hop).into_iter().map(|leg| self.fib_hop(leg)).collect();
        if entry.neighbor {
            let protocol = "kernel".to_owned();
            return Some(FibEntry { key, kind: "neighbor", metric: 0, protocol, hops: hops() });
        }
        let line = entry.lines.iter().find(|line| self.ways.is_alive(line.way))?;
        Some(FibEntry {
            key,
            kind: kind_name(line.kind),
            metric: line.metric,
            protocol: protocol_name(line.protocol),
            hops: hops(),
        })
    }

    fn fib_hop(&self, (leg, hop, alive): (Leg, NextHop, bool)) -> FibHop {
        let state = match hop.kind {
            _ if !alive => "dead",
            NextHopKind::Forward => "forward",
            NextHopKind::Resolve => "resolve",
            NextHopKind::Failed => "failed",
            _ => "punt",
        };
        let neighbor = leg.gateway.and_then(|gateway| self.ways.neighbors.get(&(leg.interface, gateway)));
        FibHop {
            gateway: leg.gateway,
            interface: self.name_of(leg.interface),
            port: self.ways.port(leg.interface).map(PortId),
            weight: leg.weight,
            state,
            mac: neighbor.and_then(|neighbor| neighbor.mac),
            mtu: hop.mtu,
        }
    }

    fn name_of(&self, interface: u32) -> String {
        self.ways.links.get(&interface).map_or_else(|| interface.to_string(), |link| link.name.clone())
    }

    /// Neighbours whose addresses lie within a prefix, in order.
    pub fn neighbors_within(&self, within: Option<(IpAddr, u8)>) -> Vec<NeighborEntry> {
        let mut all = Vec::new();
        self.add_neighbors(&self.v4, within, &mut all);
        self.add_neighbors(&self.v6, within, &mut all);
        all
    }

    fn add_neighbors<A: Bits>(
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
            let known = interfaces.iter().filter_map(|i| self.ways.neighbors.get(&(*i, bits.address())));
            all.extend(known.map(|neighbor| NeighborEntry {
                address: neighbor.address,
                interface: self.name_of(neighbor.interface),
                port: self.ways.port(neighbor.interface).map(PortId),
                mac: neighbor.mac,
                state: state_name(neighbor),
            }));
        }
    }
}

/// As iproute2 calls it.
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

/// As iproute2 calls it: linux/rtnetlink.h.
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
