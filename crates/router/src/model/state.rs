//! The kernel's state, as its messages report it, and the routes that it compiles to.
//!
//! Theory of operation. [`Model::apply`] takes one message and updates tables, next hops and interfaces at
//! once. [`Model::publication`] returns a copy, which shares all unchanged memory. The kernel does two things
//! without a message. When a link goes down, it removes the IPv4 routes and nexthop objects that depend on
//! it. When an address is removed, it removes the routes that use it as their source. The model repeats the
//! first by the kernel's rules. After both, [`Model::take_resync_request`] requests a comparison with the
//! kernel's whole state.
//!
//! Such a comparison is a dump between [`Model::begin_dump`] and [`Model::end_dump`], while changes continue.
//! The dump is applied like changes, but a change that arrived since `begin_dump` takes precedence. State
//! that neither has reported is removed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use mmb_route::{L3Interface, NextHopKind, RouteTable, Routes};
use rustc_hash::{FxHashMap, FxHashSet};

use super::family::Family;
use super::paths::{PathSpec, PathTable};
use super::prefix::AddressBits;
use super::route_list::{self, DumpEpoch, RouteUpdate};
use super::tree::{RouteEntry, Tree};
use crate::netlink::{Address, Event, InsertMode, Link, Neighbor, NexthopObject, Route, StateClass};

/// The kernel's numbers of the tables that form the main table, by rank.
const MAIN: [u32; 3] = [255, 254, 253];
/// The rank of routes in a VRF's table.
const VRF_RANK: u8 = 1;

/// Identity of a piece of kernel state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum StateKey {
    Link(u32),
    Address(u32, IpAddr, u8),
    Object(u32),
    Neighbor(u32, IpAddr),
    Route(u32, IpAddr, u8, u32),
}

/// The mirrored state; see the module's theory of operation.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub paths: PathTable,
    pub v4: Family<u32>,
    pub v6: Family<u128>,
    pub addresses: BTreeMap<(u32, IpAddr, u8), Address>,
    /// The kernel's table number of each table; the main table is the first.
    pub tables: Vec<Option<u32>>,
    fibs: Vec<RouteTable>,
    epoch: DumpEpoch,
    /// Stamp of the last report, for state that does not store its own.
    stamps: FxHashMap<StateKey, u8>,
    /// State that changes have removed since the dump began.
    removed: FxHashSet<StateKey>,
    /// Whether links or addresses have changed.
    pub interfaces_stale: bool,
    needs_resync: bool,
}

impl Model {
    /// A model with an empty main table.
    pub fn new() -> Model {
        let mut model = Model { interfaces_stale: true, ..Model::default() };
        model.add_table(MAIN[1]);
        model
    }

    /// Applies a change.
    pub fn apply(&mut self, event: Event) {
        self.apply_event(event, true);
    }

    /// Applies a part of a dump.
    pub fn confirm(&mut self, event: Event) {
        self.apply_event(event, false);
    }

    fn apply_event(&mut self, event: Event, change: bool) {
        if let Some((key, exists)) = key_of(&event)
            && !self.accept(key, exists, change)
        {
            return;
        }
        match event {
            Event::Link(link) => self.link(link.index, Some(link)),
            Event::LinkGone(index) => self.link(index, None),
            Event::Address(address) => self.address(address, true),
            Event::AddressGone(address) => self.address(address, false),
            Event::Object(id, object) => self.object(id, Some(object)),
            Event::ObjectGone(id) => self.object(id, None),
            Event::Neighbor(neighbor) => self.neighbor(neighbor, true),
            Event::NeighborGone(neighbor) => self.neighbor(neighbor, false),
            Event::Route(route, mode) => self.route(&route, Some(mode)),
            Event::RouteGone(route) => self.route(&route, None),
            Event::IgnoresDown { interface, v6, ignores } => {
                self.paths.set_ignore_down(interface, v6, ignores);
                self.settle_changed_paths();
            }
        }
    }

    /// Records the report of a piece of state. Returns false if a change has reported it since the dump
    /// began, and this is the dump.
    fn accept(&mut self, key: StateKey, exists: bool, change: bool) -> bool {
        let stale = self.removed.contains(&key)
            || self.stamps.get(&key).is_some_and(|stamp| self.epoch.is_changed(*stamp));
        if !change && stale {
            return false;
        }
        if self.epoch.dumping && !exists {
            self.removed.insert(key);
        } else if change {
            self.removed.remove(&key);
        }
        match (key, exists) {
            // Routes store their own stamps.
            (StateKey::Route(..), _) => {}
            (_, true) => drop(self.stamps.insert(key, self.epoch.stamp(change && self.epoch.dumping))),
            (_, false) => drop(self.stamps.remove(&key)),
        }
        true
    }

    /// Starts a dump of the whole state.
    pub fn begin_dump(&mut self) {
        self.epoch = self.epoch.next();
        self.removed.clear();
    }

    /// Ends a dump. Removes state that was not reported, of classes whose dump is complete.
    pub fn end_dump(&mut self, complete: impl Fn(StateClass) -> bool) {
        let epoch = self.epoch;
        self.epoch.dumping = false;
        self.removed.clear();
        let missing: Vec<StateKey> =
            self.stamps.iter().filter(|(_, stamp)| !epoch.is_fresh(**stamp)).map(|(key, _)| *key).collect();
        for key in missing {
            match key {
                StateKey::Link(index) if complete(StateClass::Links) => self.apply(Event::LinkGone(index)),
                StateKey::Object(id) if complete(StateClass::Objects) => self.apply(Event::ObjectGone(id)),
                StateKey::Address(interface, address, length) if complete(StateClass::Addresses) => {
                    self.apply(Event::AddressGone(Address {
                        interface,
                        address,
                        length,
                        primary: false,
                        scope: 0,
                    }));
                }
                StateKey::Neighbor(interface, address) if complete(neighbors_of(address)) => {
                    self.apply(Event::NeighborGone(Neighbor { interface, address, mac: None, state: 0 }));
                }
                _ => {}
            }
        }
        let fresh = |route: &RouteEntry, _: &PathTable| epoch.is_fresh(route.stamp);
        if complete(StateClass::Routes4) {
            self.v4.retain(&mut self.paths, &mut self.fibs, fresh, |_| false);
        }
        if complete(StateClass::Routes6) {
            self.v6.retain(&mut self.paths, &mut self.fibs, fresh, |_| false);
        }
        self.needs_resync = false;
    }

    /// Whether a comparison with the kernel's whole state has been requested since the last call.
    pub fn take_resync_request(&mut self) -> bool {
        std::mem::take(&mut self.needs_resync)
    }

    fn link(&mut self, index: u32, link: Option<Link>) {
        let before = self.paths.links.get(&index).cloned();
        if before == link {
            return;
        }
        self.interfaces_stale = true;
        let was = |f: fn(&Link) -> bool| before.as_ref().is_some_and(f) && !link.as_ref().is_some_and(f);
        let (down, silent) = (was(|link| link.up), was(|link| link.up && link.carrier));
        let vrf = |link: &Option<Link>| link.as_ref().and_then(|link| link.vrf);
        let tables = vrf(&before) != vrf(&link);
        self.paths.set_link(index, link);
        if silent {
            for id in self.paths.objects_via(index) {
                self.object(id, None);
            }
            self.needs_resync = true;
        }
        if down {
            self.remove_dead_paths();
        }
        self.settle_changed_paths();
        if tables {
            self.set_tables();
        }
    }

    fn address(&mut self, address: Address, exists: bool) {
        let key = (address.interface, address.address, address.length);
        if exists {
            self.interfaces_stale |= self.addresses.insert(key, address) != Some(address);
        } else if self.addresses.remove(&key).is_some() {
            self.interfaces_stale = true;
            self.needs_resync |= address.address.is_ipv4();
        }
    }

    fn object(&mut self, id: u32, object: Option<NexthopObject>) {
        let removed = object.is_none();
        self.paths.set_object(id, object);
        if removed {
            self.stamps.remove(&StateKey::Object(id));
            self.paths.remove_from_groups(id);
            self.remove_dead_paths();
        }
        self.settle_changed_paths();
    }

    fn neighbor(&mut self, neighbor: Neighbor, exists: bool) {
        let key = (neighbor.interface, neighbor.address);
        // A neighbour without a state counts as unknown.
        let exists = exists && neighbor.state != 0;
        let known = self.paths.neighbors.contains_key(&key);
        self.paths.set_neighbor(key, exists.then_some(neighbor));
        if known != exists {
            let (paths, fibs) = (&mut self.paths, &mut self.fibs);
            self.v4.neighbor(key, exists, paths, fibs);
            self.v6.neighbor(key, exists, paths, fibs);
        }
    }

    fn route(&mut self, route: &Route, mode: Option<InsertMode>) {
        let Some((slot, rank)) = self.slot_of(route.table) else { return };
        if route.tos != 0 || route.source_length != 0 {
            return;
        }
        let (metric, kind, protocol) = (route.metric, route.kind, route.protocol);
        let update = RouteUpdate { rank, metric, kind, protocol, spec: spec(route) };
        let epoch = self.epoch;
        let mut needs_resync = false;
        let change = |routes: &mut route_list::RouteList, paths: &mut PathTable| {
            needs_resync = match mode {
                Some(mode) => route_list::add(routes, paths, update, mode, epoch),
                None => route_list::remove(routes, paths, update, epoch),
            };
        };
        let (paths, fib) = (&mut self.paths, &mut self.fibs[slot]);
        match route.prefix {
            IpAddr::V4(_) => self.v4.change(slot, route, paths, fib, change),
            IpAddr::V6(_) => self.v6.change(slot, route, paths, fib, change),
        }
        self.needs_resync |= needs_resync;
    }

    /// Index of the table for the kernel's table number, and the rank of its routes there.
    fn slot_of(&self, table: u32) -> Option<(usize, u8)> {
        if let Some(rank) = MAIN.iter().position(|main| *main == table) {
            return Some((0, rank as u8));
        }
        let slot = self.tables.iter().position(|known| *known == Some(table))?;
        Some((slot, VRF_RANK))
    }

    /// Gives each VRF a table. Routes of new VRFs may have been skipped before.
    fn set_tables(&mut self) {
        let wanted: FxHashSet<u32> = self
            .paths
            .links
            .values()
            .filter_map(|link| link.vrf)
            .filter(|table| !MAIN.contains(table))
            .collect();
        for slot in 1..self.tables.len() {
            if self.tables[slot].is_some_and(|table| !wanted.contains(&table)) {
                self.tables[slot] = None;
                let (paths, fibs) = (&mut self.paths, &mut self.fibs);
                self.v4.clear(slot, paths, fibs);
                self.v6.clear(slot, paths, fibs);
            }
        }
        for table in wanted {
            if !self.tables.contains(&Some(table)) {
                self.add_table(table);
                self.needs_resync = true;
            }
        }
    }

    fn add_table(&mut self, table: u32) {
        let free = self.tables.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.tables.len());
        if free.is_none() {
            self.tables.push(None);
            self.fibs.push(RouteTable::default());
            self.v4.trees.push(Tree::default());
            self.v6.trees.push(Tree::default());
            let punt = self.paths.acquire(PathSpec::Fixed(NextHopKind::Punt));
            let fib = &mut self.fibs[slot];
            u32::RESERVED.iter().for_each(|prefix| u32::insert(fib, *prefix, punt));
            u128::RESERVED.iter().for_each(|prefix| u128::insert(fib, *prefix, punt));
            self.paths.note_change(true);
        }
        self.tables[slot] = Some(table);
    }

    /// Removes the routes that the kernel has removed without a message.
    fn remove_dead_paths(&mut self) {
        let removed = self.paths.removed();
        if !removed.is_empty() {
            let keep = |route: &RouteEntry, _: &PathTable| !removed.contains(&route.path);
            self.v4.retain(&mut self.paths, &mut self.fibs, keep, |_| false);
            self.v6.retain(&mut self.paths, &mut self.fibs, keep, |_| false);
        }
    }

    fn settle_changed_paths(&mut self) {
        let liveness_changed: FxHashSet<_> = self.paths.take_liveness_changes().into_iter().collect();
        if !liveness_changed.is_empty() {
            let look = |route: &RouteEntry| liveness_changed.contains(&route.path);
            self.v4.retain(&mut self.paths, &mut self.fibs, |_, _| true, look);
            self.v6.retain(&mut self.paths, &mut self.fibs, |_, _| true, look);
        }
    }

    /// Sets the routed ports, by interface index.
    pub fn set_ports(&mut self, ports: FxHashMap<u32, u16>) {
        self.paths.set_ports(ports);
        self.settle_changed_paths();
        let (paths, fibs) = (&mut self.paths, &mut self.fibs);
        self.v4.settle_neighbors(paths, fibs);
        self.v6.settle_neighbors(paths, fibs);
    }

    /// The routes for publication, if they have changed.
    pub fn publication(&mut self, interfaces: &[Option<L3Interface>]) -> Option<Routes> {
        self.paths.take_changed().then(|| self.routes(interfaces))
    }

    /// The current routes.
    pub fn routes(&self, interfaces: &[Option<L3Interface>]) -> Routes {
        Routes {
            tables: self.fibs.clone(),
            hops: self.paths.hops().clone(),
            interfaces: interfaces.to_vec(),
            flow_generation: self.paths.flow_generation(),
        }
    }
}

fn neighbors_of(address: IpAddr) -> StateClass {
    if address.is_ipv4() { StateClass::Neighbors4 } else { StateClass::Neighbors6 }
}

/// The identity of the state that an event is about, and whether it exists.
fn key_of(event: &Event) -> Option<(StateKey, bool)> {
    let route = |route: &Route| StateKey::Route(route.table, route.prefix, route.length, route.metric);
    let address = |address: &Address| StateKey::Address(address.interface, address.address, address.length);
    let neighbor = |neighbor: &Neighbor| StateKey::Neighbor(neighbor.interface, neighbor.address);
    Some(match event {
        Event::Link(link) => (StateKey::Link(link.index), true),
        Event::LinkGone(index) => (StateKey::Link(*index), false),
        Event::Address(it) => (address(it), true),
        Event::AddressGone(it) => (address(it), false),
        Event::Object(id, _) => (StateKey::Object(*id), true),
        Event::ObjectGone(id) => (StateKey::Object(*id), false),
        Event::Neighbor(it) => (neighbor(it), true),
        Event::NeighborGone(it) => (neighbor(it), false),
        Event::Route(it, _) => (route(it), true),
        Event::RouteGone(it) => (route(it), false),
        Event::IgnoresDown { .. } => return None,
    })
}

/// The path specification of a route.
fn spec(route: &Route) -> PathSpec {
    let v6 = route.prefix.is_ipv6();
    match route.kind {
        libc::RTN_UNICAST | libc::RTN_BLACKHOLE if route.object != 0 => {
            PathSpec::Object { v6, mtu: route.mtu, id: route.object }
        }
        libc::RTN_UNICAST if !route.next_hops.is_empty() => {
            route_list::normalized(v6, route.mtu, route.next_hops.clone())
        }
        libc::RTN_BLACKHOLE => PathSpec::Fixed(NextHopKind::Blackhole),
        libc::RTN_UNREACHABLE => PathSpec::Fixed(NextHopKind::Unreachable),
        libc::RTN_PROHIBIT => PathSpec::Fixed(NextHopKind::Prohibit),
        _ => PathSpec::Fixed(NextHopKind::Punt),
    }
}
