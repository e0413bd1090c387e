//! The routes at one prefix, and their changes.
//!
//! Theory of operation. Routes of one table with equal metric are in the order in which the kernel considers
//! them. For IPv4 this is the order of insertion, at the front or at the back. For IPv6 all routes through
//! gateways are one route with several next hops. A message names all of them when some are added, and single
//! ones when they are removed.
//!
//! A dump may lag behind changes that arrive meanwhile. Each dump has a number. A route carries the number of
//! the dump in which it was last seen, and whether a change reported it. A dump does not affect a prefix and
//! metric that a change has reported since the dump began. Routes with an older number are removed at the end
//! of the dump.

use mmb_route::NextHopId;
use smallvec::SmallVec;

use super::paths::{PathSpec, PathTable};
use super::tree::RouteEntry;
use crate::netlink::{InsertMode, NextHopSpec, NextHopSpecs};

pub(crate) type RouteList = SmallVec<[RouteEntry; 1]>;

/// The number of the current or last dump.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DumpEpoch {
    number: u8,
    /// Whether a dump is in progress.
    pub dumping: bool,
}

impl DumpEpoch {
    /// The epoch of the next dump.
    pub fn next(self) -> DumpEpoch {
        DumpEpoch { number: (self.number + 1) & 0x7f, dumping: true }
    }

    /// The stamp of a route that is reported now, by a change or by the dump.
    pub fn stamp(self, change: bool) -> u8 {
        self.number << 1 | u8::from(change)
    }

    /// Whether a change has reported the route since the dump began.
    pub fn is_changed(self, stamp: u8) -> bool {
        stamp == self.stamp(true)
    }

    /// Whether the route was reported in this epoch.
    pub fn is_fresh(self, stamp: u8) -> bool {
        stamp >> 1 == self.number
    }
}

/// A route as a message describes it.
#[derive(Clone, Debug)]
pub(crate) struct RouteUpdate {
    pub rank: u8,
    pub metric: u32,
    pub kind: u8,
    pub protocol: u8,
    pub spec: PathSpec,
}

/// The range of the routes with this rank and metric.
fn same_metric(routes: &RouteList, rank: u8, metric: u32) -> std::ops::Range<usize> {
    let key = (rank, metric);
    let start = routes.partition_point(|route| (route.rank, route.metric) < key);
    let end = routes.partition_point(|route| (route.rank, route.metric) <= key);
    start..end
}

/// Adds a route. Returns whether a resynchronisation is needed to be certain.
pub(crate) fn add(
    routes: &mut RouteList,
    paths: &mut PathTable,
    update: RouteUpdate,
    mode: InsertMode,
    epoch: DumpEpoch,
) -> bool {
    let range = same_metric(routes, update.rank, update.metric);
    if mode == InsertMode::Dump && routes[range.clone()].iter().any(|route| epoch.is_changed(route.stamp)) {
        return false;
    }
    let stamp = epoch.stamp(mode != InsertMode::Dump);
    let needs_resync = mode != InsertMode::Dump && is_unconfirmed(&routes[range.clone()], epoch);
    if let Some(at) = range.clone().find(|at| are_siblings(&update.spec, paths.spec(routes[*at].path))) {
        let alone =
            mode == InsertMode::Replace || mode == InsertMode::Dump && !epoch.is_fresh(routes[at].stamp);
        let spec = if alone { update.spec.clone() } else { merge(&update.spec, paths.spec(routes[at].path)) };
        let path = paths.acquire(spec);
        paths.release(routes[at].path);
        routes[at] = new_entry(&update, path, stamp);
    } else {
        let path = paths.acquire(update.spec.clone());
        insert(routes, paths, new_entry(&update, path, stamp), mode, epoch);
    }
    mark_changed(routes, update.rank, update.metric, mode, epoch);
    needs_resync && same_metric(routes, update.rank, update.metric).len() > 1
}

fn new_entry(update: &RouteUpdate, path: NextHopId, stamp: u8) -> RouteEntry {
    RouteEntry {
        metric: update.metric,
        path,
        rank: update.rank,
        kind: update.kind,
        protocol: update.protocol,
        stamp,
    }
}

/// Whether the dump has not confirmed some of these routes yet. Then there may be more or fewer of them.
fn is_unconfirmed(range: &[RouteEntry], epoch: DumpEpoch) -> bool {
    epoch.dumping && range.iter().any(|route| !epoch.is_fresh(route.stamp))
}

/// Marks the routes with this metric as reported by a change.
fn mark_changed(routes: &mut RouteList, rank: u8, metric: u32, mode: InsertMode, epoch: DumpEpoch) {
    if mode != InsertMode::Dump {
        let range = same_metric(routes, rank, metric);
        routes[range].iter_mut().for_each(|route| route.stamp = epoch.stamp(true));
    }
}

/// Inserts a route among those with its metric.
fn insert(
    routes: &mut RouteList,
    paths: &mut PathTable,
    new: RouteEntry,
    mode: InsertMode,
    epoch: DumpEpoch,
) {
    let mut range = same_metric(routes, new.rank, new.metric);
    let same = range.clone().find(|at| routes[*at].path == new.path && routes[*at].kind == new.kind);
    if let (Some(at), InsertMode::Prepend | InsertMode::Append) = (same, mode) {
        paths.release(new.path);
        routes[at] = new;
        return;
    }
    if mode == InsertMode::Replace && !range.is_empty() && same != Some(range.start) {
        paths.release(routes.remove(range.start).path);
        range.end -= 1;
    }
    let same = range.clone().find(|at| routes[*at].path == new.path && routes[*at].kind == new.kind);
    if let Some(at) = same {
        paths.release(routes.remove(at).path);
        range.end -= 1;
    }
    let at = match mode {
        InsertMode::Prepend | InsertMode::Replace => range.start,
        InsertMode::Append => range.end,
        InsertMode::Dump => {
            let seen = range.clone().rfind(|at| epoch.is_fresh(routes[*at].stamp));
            seen.map_or(range.start, |at| at + 1)
        }
    };
    routes.insert(at, new);
}

/// Removes a route. Returns whether a resynchronisation is needed to be certain.
pub(crate) fn remove(
    routes: &mut RouteList,
    paths: &mut PathTable,
    update: RouteUpdate,
    epoch: DumpEpoch,
) -> bool {
    let range = same_metric(routes, update.rank, update.metric);
    let needs_resync = is_unconfirmed(&routes[range.clone()], epoch);
    if let Some(at) = range.clone().find(|at| are_siblings(&update.spec, paths.spec(routes[*at].path))) {
        let left = subtract(&update.spec, paths.spec(routes[at].path));
        let before = routes[at].path;
        match left {
            Some(spec) => routes[at].path = paths.acquire(spec),
            None => drop(routes.remove(at)),
        }
        paths.release(before);
    } else {
        let is_it =
            |route: &RouteEntry| route.kind == update.kind && paths.spec(route.path) == Some(&update.spec);
        let only = range.len() == 1;
        let at = range.clone().find(|at| is_it(&routes[*at])).or(only.then_some(range.start));
        if let Some(at) = at {
            paths.release(routes.remove(at).path);
        }
    }
    mark_changed(routes, update.rank, update.metric, InsertMode::Prepend, epoch);
    needs_resync && !same_metric(routes, update.rank, update.metric).is_empty()
}

/// Whether two are parts of one IPv6 route: all next hops have gateways.
fn are_siblings(new: &PathSpec, old: Option<&PathSpec>) -> bool {
    let gateways = |spec: &PathSpec| match spec {
        PathSpec::NextHops { v6, next_hops, .. } => {
            *v6 && next_hops.iter().all(|next_hop| next_hop.gateway.is_some())
        }
        _ => false,
    };
    gateways(new) && old.is_some_and(gateways)
}

fn merge(new: &PathSpec, old: Option<&PathSpec>) -> PathSpec {
    match (new, old) {
        (PathSpec::NextHops { v6, mtu, next_hops }, Some(PathSpec::NextHops { next_hops: old, .. })) => {
            let known = |next_hop| next_hops.iter().any(|other| is_same(other, next_hop));
            let kept: NextHopSpecs = old.iter().filter(|next_hop| !known(*next_hop)).copied().collect();
            normalized(*v6, *mtu, kept.into_iter().chain(next_hops.iter().copied()).collect())
        }
        _ => new.clone(),
    }
}

/// The remaining route after some next hops are removed. None if none remain.
fn subtract(gone: &PathSpec, old: Option<&PathSpec>) -> Option<PathSpec> {
    match (gone, old) {
        (PathSpec::NextHops { next_hops: gone, .. }, Some(PathSpec::NextHops { v6, mtu, next_hops })) => {
            let stays = |next_hop: &&NextHopSpec| !gone.iter().any(|other| is_same(other, next_hop));
            let left: NextHopSpecs = next_hops.iter().filter(stays).copied().collect();
            (!left.is_empty()).then(|| normalized(*v6, *mtu, left))
        }
        _ => None,
    }
}

fn is_same(one: &NextHopSpec, other: &NextHopSpec) -> bool {
    (one.interface, one.gateway) == (other.interface, other.gateway)
}

/// The canonical specification of next hops: sorted, and with weight 1 if there is only one.
pub(crate) fn normalized(v6: bool, mtu: u16, mut next_hops: NextHopSpecs) -> PathSpec {
    next_hops.sort_by_key(|next_hop| (next_hop.interface, next_hop.gateway, next_hop.weight));
    if let [next_hop] = &mut next_hops[..] {
        next_hop.weight = 1;
    }
    PathSpec::NextHops { v6, mtu, next_hops }
}
