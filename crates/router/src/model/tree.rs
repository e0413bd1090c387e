//! The routes of one table and family, and the entries that the workers see.
//!
//! Theory of operation. The kernel searches tables in order: `local`, `main`, `default`. Here they are one
//! tree, and each route has a **rank**, the number of its table. At each prefix the best route with a live
//! path wins and enters the FIB. A longer prefix of a later rank would win over a shorter one of an earlier
//! rank, which the kernel finds first. Such prefixes are **covered** and stay out of the FIB. (For IPv4 the
//! kernel keeps `local` and `main` in one tree, unless it has policy rules, so these two do not cover each
//! other.) A `throw` route makes the kernel continue with the next table: the prefix gets the best route of
//! the next rank. Neighbours on connected networks get host entries where there is no host route.
//!
//! After a change, the prefix is **settled**: the winner is determined again. If it differs, covered prefixes
//! and neighbours inside are settled, too.

use std::collections::{BTreeMap, BTreeSet};

use mmb_route::{NextHopId, RouteTable};
use smallvec::SmallVec;

use super::paths::{PathSpec, PathTable};
use super::prefix::{AddressBits, Prefix};
use crate::netlink::{NextHopSpec, NextHopSpecs};

/// Number of ranks: `local`, `main`, `default`.
pub(crate) const RANKS: usize = 3;

/// A route at its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteEntry {
    pub metric: u32,
    pub path: NextHopId,
    pub rank: u8,
    /// `RTN_…`.
    pub kind: u8,
    /// `RTPROT_…`.
    pub protocol: u8,
    /// Stamp of the last report; see [`super::route_list`].
    pub stamp: u8,
}

/// The routes at a prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixEntry {
    /// In the order in which the kernel considers them.
    pub routes: SmallVec<[RouteEntry; 1]>,
    /// The FIB's entry; 0: none.
    pub hop: NextHopId,
    /// A bit for each rank that has a live route here, followed by a bit for each rank whose first live route
    /// is `throw`.
    present: u8,
    /// Whether the FIB's entry is a neighbour. Then this entry holds a reference to its path.
    pub neighbor: bool,
}

const _: () = assert!(size_of::<PrefixEntry>() == 32);

/// For each neighbour's address the interfaces behind which it is.
pub(crate) type Neighbors<A> = BTreeMap<A, SmallVec<[u32; 2]>>;

/// State that settling needs in addition to the tree.
pub(crate) struct Context<'a, A> {
    pub paths: &'a mut PathTable,
    pub neighbors: &'a Neighbors<A>,
    pub fib: &'a mut RouteTable,
}

/// The routes of one table and family; see the module's theory of operation.
#[derive(Debug, Default)]
pub(crate) struct Tree<A> {
    entries: BTreeMap<Prefix<A>, PrefixEntry>,
    /// For each rank, the number of prefixes of each length with live routes.
    present: [Lengths; RANKS],
    /// Number of prefixes of each length with a route in the FIB.
    installed: Lengths,
    /// Number of routes of each rank.
    routes: [usize; RANKS],
    throws: BTreeSet<Prefix<A>>,
}

/// Number of prefixes by length.
#[derive(Debug)]
struct Lengths([u32; 129]);

impl Default for Lengths {
    fn default() -> Self {
        Lengths([0; 129])
    }
}

impl Lengths {
    fn count(&mut self, length: u8, more: bool) {
        let number = &mut self.0[usize::from(length)];
        *number = if more { *number + 1 } else { number.saturating_sub(1) };
    }

    fn has(&self, length: u8) -> bool {
        self.0[usize::from(length)] > 0
    }

    /// The existing lengths up to this one, longest first.
    fn up_to(&self, length: u8) -> impl Iterator<Item = u8> + '_ {
        (0..=length).rev().filter(|length| self.0[usize::from(*length)] > 0)
    }
}

impl<A: AddressBits> Tree<A> {
    /// Number of routes.
    pub fn count(&self) -> usize {
        self.routes.iter().sum()
    }

    /// All entries from a prefix on, in order.
    pub fn range_from(&self, start: Prefix<A>) -> impl Iterator<Item = (&Prefix<A>, &PrefixEntry)> {
        self.entries.range(start..)
    }

    /// The entry for packets to an address.
    pub fn lookup(&self, address: A) -> Option<(Prefix<A>, &PrefixEntry)> {
        let host = Prefix::host(address);
        let neighbor = self.entries.get_key_value(&host).filter(|(_, entry)| entry.neighbor);
        neighbor.map(|(prefix, entry)| (*prefix, entry)).or_else(|| self.route_to(host))
    }

    fn route_to(&self, host: Prefix<A>) -> Option<(Prefix<A>, &PrefixEntry)> {
        self.installed.up_to(host.length).find_map(|length| {
            let (prefix, entry) = self.entries.get_key_value(&host.within(length))?;
            (entry.hop != 0 && !entry.neighbor).then_some((*prefix, entry))
        })
    }

    /// Changes the routes at a prefix and settles it. `f` maintains the references to paths.
    pub fn change(
        &mut self,
        prefix: Prefix<A>,
        context: &mut Context<'_, A>,
        f: impl FnOnce(&mut SmallVec<[RouteEntry; 1]>, &mut PathTable),
    ) {
        let entry = self.entries.entry(prefix).or_default();
        entry.routes.iter().for_each(|route| self.routes[usize::from(route.rank)] -= 1);
        f(&mut entry.routes, context.paths);
        entry.routes.iter().for_each(|route| self.routes[usize::from(route.rank)] += 1);
        if entry.routes.iter().any(is_throw) {
            self.throws.insert(prefix);
        } else if !self.throws.is_empty() {
            self.throws.remove(&prefix);
        }
        self.settle(prefix, false, context);
    }

    /// Keeps the routes for which `keep` is true. Settles prefixes that lose a route or have one for which
    /// `look` is true.
    pub fn retain(
        &mut self,
        context: &mut Context<'_, A>,
        keep: impl Fn(&RouteEntry, &PathTable) -> bool,
        look: impl Fn(&RouteEntry) -> bool,
    ) {
        let affected =
            |entry: &PrefixEntry| entry.routes.iter().any(|route| look(route) || !keep(route, context.paths));
        let affected: Vec<Prefix<A>> =
            self.entries.iter().filter(|(_, entry)| affected(entry)).map(|(prefix, _)| *prefix).collect();
        for prefix in affected {
            self.change(prefix, context, |routes, paths| {
                let (kept, lost) = routes.iter().copied().partition(|route| keep(route, paths));
                *routes = kept;
                let lost: SmallVec<[RouteEntry; 1]> = lost;
                lost.iter().for_each(|route| paths.release(route.path));
            });
        }
    }

    /// Settles a neighbour's address after a change of the neighbour.
    pub fn settle_neighbor(&mut self, address: A, context: &mut Context<'_, A>) {
        self.settle(Prefix::host(address), true, context);
    }

    /// Determines and installs the FIB entry of a prefix, then settles what depends on it. `has_same_routes`:
    /// only a neighbour has changed.
    fn settle(&mut self, prefix: Prefix<A>, has_same_routes: bool, context: &mut Context<'_, A>) {
        let before = self.entries.get(&prefix).map_or((0, 0, false), |e| (e.hop, e.present, e.neighbor));
        let present = self.update_presence(prefix, before.1, context.paths);
        let route = self.best_route(prefix, context.paths);
        let mut found = (route.unwrap_or(0), false);
        if prefix.length == A::BITS {
            // A host route may be a connected network itself. Otherwise the surrounding network counts.
            let surrounding = || self.route_to(prefix.within(A::BITS - 1)).map_or(0, |(_, entry)| entry.hop);
            let network = if found.0 != 0 { found.0 } else { surrounding() };
            let path = self.neighbor_path(prefix.bits, network, context);
            found = if path != 0 { (path, true) } else { found };
        }
        let (hop, neighbor) = found;
        if (before.0, before.2) != found {
            // The connected network around a neighbour forwards nothing by itself.
            let was_unused = before.0 == 0 || hop == 0 && context.paths.is_unresolved(before.0);
            context.paths.note_change(!(has_same_routes && was_unused));
        }
        self.install(prefix, before, (hop, neighbor), context);
        let routed = |(hop, neighbor): (NextHopId, bool)| if neighbor { 0 } else { hop };
        let has_moved = routed((before.0, before.2)) != routed((hop, neighbor));
        // `throw` routes depend on other ranks, so they are always settled.
        if (has_moved || present != before.1 || !self.throws.is_empty()) && prefix.length < A::BITS {
            self.settle_inside(prefix, present ^ before.1, context);
        }
    }

    fn update_presence(&mut self, prefix: Prefix<A>, before: u8, paths: &PathTable) -> u8 {
        let Some(entry) = self.entries.get_mut(&prefix) else { return 0 };
        if prefix.is_reserved() {
            return 0;
        }
        let mut present = 0;
        for route in entry.routes.iter().rev().filter(|route| paths.is_alive(route.path)) {
            // The first live route of a rank decides whether the kernel continues.
            let (bit, throw) = (1 << route.rank, 1 << (usize::from(route.rank) + RANKS));
            present |= bit;
            present = if is_throw(route) { present | throw } else { present & !throw };
        }
        entry.present = present;
        for rank in 0..RANKS {
            let bit = 1 << rank;
            if (before ^ present) & bit != 0 {
                self.present[rank].count(prefix.length, present & bit != 0);
            }
        }
        present
    }

    fn install(
        &mut self,
        prefix: Prefix<A>,
        before: (NextHopId, u8, bool),
        (hop, neighbor): (NextHopId, bool),
        context: &mut Context<'_, A>,
    ) {
        let entry = self.entries.entry(prefix).or_default();
        (entry.hop, entry.neighbor) = (hop, neighbor);
        if entry.routes.is_empty() && hop == 0 {
            self.entries.remove(&prefix);
        }
        let from_route = |hop: NextHopId, neighbor: bool| hop != 0 && !neighbor;
        if from_route(before.0, before.2) != from_route(hop, neighbor) {
            self.installed.count(prefix.length, from_route(hop, neighbor));
        }
        if before.0 != hop {
            match hop {
                0 => A::remove(context.fib, prefix),
                hop => A::insert(context.fib, prefix, hop),
            }
        }
        if before.2 {
            context.paths.release(before.0);
        }
    }

    /// The path of the winning route at a prefix. The route holds the reference.
    fn best_route(&self, prefix: Prefix<A>, paths: &mut PathTable) -> Option<NextHopId> {
        if prefix.is_reserved() {
            return None;
        }
        let entry = self.entries.get(&prefix)?;
        let mut is_thrown = false;
        for stage in stages(A::V6) {
            let own = first_alive(entry, stage, paths);
            match own.or_else(|| self.longest_match(prefix, stage, paths)) {
                None => {}
                Some(route) if is_throw(route) => is_thrown |= own.is_some(),
                // A shorter prefix already leads there, or covers later ranks.
                Some(route) => return (own.is_some() || is_thrown).then_some(route.path),
            }
        }
        is_thrown.then(|| paths.no_route())
    }

    /// The route of the longest prefix around this one in the tables of a stage.
    fn longest_match(&self, prefix: Prefix<A>, stage: &[u8], paths: &PathTable) -> Option<&RouteEntry> {
        let lengths = (0..=prefix.length).rev();
        let is_there = |length: &u8| stage.iter().any(|rank| self.present[usize::from(*rank)].has(*length));
        let mut lengths = lengths.filter(is_there);
        lengths.find_map(|length| first_alive(self.entries.get(&prefix.within(length))?, stage, paths))
    }

    /// A path to the neighbour with this address, if `network` is a connected network with this neighbour;
    /// else 0. The caller holds a reference.
    fn neighbor_path(&self, address: A, network: NextHopId, context: &mut Context<'_, A>) -> NextHopId {
        let reserved = Prefix::host(address).is_reserved();
        let Some(interfaces) = context.neighbors.get(&address).filter(|_| !reserved) else { return 0 };
        let Some(PathSpec::NextHops { v6, mtu, next_hops }) = context.paths.spec(network) else { return 0 };
        let [next_hop @ NextHopSpec { gateway: None, kernel_only: false, .. }] = next_hops[..] else {
            return 0;
        };
        if !interfaces.contains(&next_hop.interface) || context.paths.port(next_hop.interface).is_none() {
            return 0;
        }
        let next_hop = NextHopSpec { gateway: Some(address.address()), ..next_hop };
        let spec = PathSpec::NextHops { v6: *v6, mtu: *mtu, next_hops: NextHopSpecs::from_elem(next_hop, 1) };
        context.paths.acquire(spec)
    }

    /// Settles what depends on a prefix after live routes of these ranks were added or removed.
    fn settle_inside(&mut self, prefix: Prefix<A>, ranks: u8, context: &mut Context<'_, A>) {
        let inside = |other: &Prefix<A>| *other != prefix;
        let range = prefix..=prefix.end();
        let mut dependent: Vec<Prefix<A>> = Vec::new();
        if self.can_cover(ranks) {
            dependent.extend(self.entries.range(range).map(|(other, _)| *other).filter(inside));
        } else if !self.throws.is_empty() {
            dependent.extend(self.throws.range(range).copied().filter(inside));
        }
        let hosts = context.neighbors.range(prefix.bits..=prefix.end().bits);
        dependent.extend(hosts.map(|(address, _)| Prefix::host(*address)));
        for prefix in dependent {
            self.settle(prefix, false, context);
        }
    }

    /// Whether there are routes that routes of these ranks could cover.
    fn can_cover(&self, ranks: u8) -> bool {
        let top = (ranks | ranks >> RANKS).trailing_zeros();
        let behind = stages(A::V6)
            .iter()
            .skip_while(|stage| !stage.iter().any(|rank| u32::from(*rank) == top))
            .skip(1);
        behind.flat_map(|stage| stage.iter()).any(|rank| self.routes[usize::from(*rank)] > 0)
    }
}

/// Ranks that the kernel searches together, in order.
fn stages(v6: bool) -> &'static [&'static [u8]] {
    if v6 { &[&[0], &[1], &[2]] } else { &[&[0, 1], &[2]] }
}

/// The route of a stage that the kernel considers first.
fn first_alive<'a>(entry: &'a PrefixEntry, stage: &[u8], paths: &PathTable) -> Option<&'a RouteEntry> {
    entry.routes.iter().find(|route| stage.contains(&route.rank) && paths.is_alive(route.path))
}

fn is_throw(route: &RouteEntry) -> bool {
    route.kind == libc::RTN_THROW
}
