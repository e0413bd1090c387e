//! The kernel's state as its messages tell it, and what it compiles to.
//!
//! Theory of operation. [`Model::apply`] takes one message at a time and leaves everything compiled: tables, next hops and
//! faces are at any time those of the messages so far, and [`Model::publication`] hands out a copy, which shares all that has
//! not changed. Two things the kernel does without a message: IPv4 routes and nexthop objects go with the link that they
//! depend on when it is switched off, and routes go with the address that was their source. The first is done here, by the
//! kernel's rules; after any of them [`Model::take_doubt`] asks for a comparison with the kernel as a whole.
//!
//! Such a comparison is a dump of everything between [`Model::begin`] and [`Model::end`], while changes go on: what it tells
//! is applied like changes are, except that a change that has come since `begin` is newer. What neither has told of is gone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use mmb_route::{L3Interface, NextHopKind, RouteTable, Routes};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{Address, Event, How, Link, Neighbor, Object, Route};
use crate::hops::{Recipe, Ways};
use crate::lines::{self, Moment, News};
use crate::prefix::{Bits, Prefix};
use crate::tree::{Context, Line, Neighbors, Tree};

/// The kernel's numbers of the tables that make up the main one, by rank.
const MAIN: [u32; 3] = [255, 254, 253];
/// The rank of routes in the table of a VRF.
const VRF_RANK: u8 = 1;

/// What the kernel tells of, apart from what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Link(u32),
    Address(u32, IpAddr, u8),
    Object(u32),
    Neighbor(u32, IpAddr),
    Route(u32, IpAddr, u8, u32),
}

/// Kinds of state that are dumped one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    Links,
    Addresses,
    Settings4,
    Settings6,
    Objects,
    Neighbors4,
    Neighbors6,
    Routes4,
    Routes6,
}

/// All routes of a family.
#[derive(Debug, Default)]
pub(crate) struct Family<A> {
    pub trees: Vec<Tree<A>>,
    pub neighbors: Neighbors<A>,
}

/// The mirrored state; see the module's theory of operation.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub ways: Ways,
    pub v4: Family<u32>,
    pub v6: Family<u128>,
    pub addresses: BTreeMap<(u32, IpAddr, u8), Address>,
    /// The kernel's numbers of the tables, by place; the main one is the first.
    pub tables: Vec<Option<u32>>,
    fibs: Vec<RouteTable>,
    moment: Moment,
    /// When what has no place for a stamp of its own was last heard of.
    seen: FxHashMap<Key, u8>,
    /// What changes have removed since the dump began.
    gone: FxHashSet<Key>,
    /// Links or addresses have changed.
    pub faces_stale: bool,
    doubt: bool,
}

impl Model {
    /// Nothing but the main table, and what is the kernel's in any.
    pub fn new() -> Model {
        let mut model = Model { faces_stale: true, ..Model::default() };
        model.add_table(MAIN[1]);
        model
    }

    /// Takes in a message.
    pub fn apply(&mut self, event: Event) {
        self.take(event, true);
    }

    /// Takes in a line of a dump.
    pub fn confirm(&mut self, event: Event) {
        self.take(event, false);
    }

    fn take(&mut self, event: Event, change: bool) {
        if let Some((key, there)) = key_of(&event)
            && !self.is_news(key, there, change)
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
            Event::Route(route, how) => self.route(&route, Some(how)),
            Event::RouteGone(route) => self.route(&route, None),
            Event::IgnoresDown { interface, v6, ignores } => {
                self.ways.set_ignore_down(interface, v6, ignores);
                self.settle_flipped();
            }
        }
    }

    /// Notes that this was told of. False: a change has told of it since the dump began, so that the dump need not.
    fn is_news(&mut self, key: Key, there: bool, change: bool) -> bool {
        let stale = self.gone.contains(&key)
            || self.seen.get(&key).is_some_and(|stamp| self.moment.is_changed(*stamp));
        if !change && stale {
            return false;
        }
        if self.moment.dumping && !there {
            self.gone.insert(key);
        } else if change {
            self.gone.remove(&key);
        }
        match (key, there) {
            // Routes have their stamps with them.
            (Key::Route(..), _) => {}
            (_, true) => drop(self.seen.insert(key, self.moment.stamp(change && self.moment.dumping))),
            (_, false) => drop(self.seen.remove(&key)),
        }
        true
    }

    /// A dump of everything begins.
    pub fn begin(&mut self) {
        self.moment = self.moment.next();
        self.gone.clear();
    }

    /// It is over: what it has not told of is gone, if it is of a class for which the dump is complete.
    pub fn end(&mut self, complete: impl Fn(Class) -> bool) {
        let moment = self.moment;
        self.moment.dumping = false;
        self.gone.clear();
        let missing: Vec<Key> =
            self.seen.iter().filter(|(_, stamp)| !moment.is_fresh(**stamp)).map(|(key, _)| *key).collect();
        for key in missing {
            match key {
                Key::Link(index) if complete(Class::Links) => self.apply(Event::LinkGone(index)),
                Key::Object(id) if complete(Class::Objects) => self.apply(Event::ObjectGone(id)),
                Key::Address(interface, address, length) if complete(Class::Addresses) => {
                    self.apply(Event::AddressGone(Address {
                        interface,
                        address,
                        length,
                        primary: false,
                        scope: 0,
                    }));
                }
                Key::Neighbor(interface, address) if complete(neighbors_of(address)) => {
                    self.apply(Event::NeighborGone(Neighbor { interface, address, mac: None, state: 0 }));
                }
                _ => {}
            }
        }
        let fresh = |line: &Line, _: &Ways| moment.is_fresh(line.stamp);
        if complete(Class::Routes4) {
            self.v4.retain(&mut self.ways, &mut self.fibs, fresh, |_| false);
        }
        if complete(Class::Routes6) {
            self.v6.retain(&mut self.ways, &mut self.fibs, fresh, |_| false);
        }
        self.doubt = false;
    }

    /// Whether the mirror should be compared with the kernel, since this was asked last.
    pub fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.doubt)
    }

    fn link(&mut self, index: u32, link: Option<Link>) {
        let before = self.ways.links.get(&index).cloned();
        if before == link {
            return;
        }
        self.faces_stale = true;
        let was = |f: fn(&Link) -> bool| before.as_ref().is_some_and(f) && !link.as_ref().is_some_and(f);
        let (down, silent) = (was(|link| link.up), was(|link| link.up && link.carrier));
        let vrf = |link: &Option<Link>| link.as_ref().and_then(|link| link.vrf);
        let tables = vrf(&before) != vrf(&link);
        self.ways.set_link(index, link);
        if silent {
            for id in self.ways.objects_on(index) {
                self.object(id, None);
            }
            self.doubt = true;
        }
        if down {
            self.drop_gone();
        }
        self.settle_flipped();
        if tables {
            self.set_tables();
        }
    }

    fn address(&mut self, address: Address, there: bool) {
        let key = (address.interface, address.address, address.length);
        if there {
            self.faces_stale |= self.addresses.insert(key, address) != Some(address);
        } else if self.addresses.remove(&key).is_some() {
            self.faces_stale = true;
            self.doubt |= address.address.is_ipv4();
        }
    }

    fn object(&mut self, id: u32, object: Option<Object>) {
        let gone = object.is_none();
        self.ways.set_object(id, object);
        if gone {
            self.seen.remove(&Key::Object(id));
            self.ways.leave_groups(id);
            self.drop_gone();
        }
        self.settle_flipped();
    }

    fn neighbor(&mut self, neighbor: Neighbor, there: bool) {
        let key = (neighbor.interface, neighbor.address);
        // Without a state it is as good as unknown.
        let there = there && neighbor.state != 0;
        let known = self.ways.neighbors.contains_key(&key);
        self.ways.set_neighbor(key, there.then_some(neighbor));
        if known != there {
            let (ways, fibs) = (&mut self.ways, &mut self.fibs);
            self.v4.neighbor(key, there, ways, fibs);
            self.v6.neighbor(key, there, ways, fibs);
        }
    }

    fn route(&mut self, route: &Route, how: Option<How>) {
        let Some((place, rank)) = self.place(route.table) else { return };
        if route.tos != 0 || route.source_length != 0 {
            return;
        }
        let (metric, kind, protocol) = (route.metric, route.kind, route.protocol);
        let news = News { rank, metric, kind, protocol, recipe: recipe(route) };
        let moment = self.moment;
        let mut doubt = false;
        let change = |lines: &mut lines::Lines, ways: &mut Ways| {
            doubt = match how {
                Some(how) => lines::add(lines, ways, news, how, moment),
                None => lines::remove(lines, ways, news, moment),
            };
        };
        let (ways, fib) = (&mut self.ways, &mut self.fibs[place]);
        match route.prefix {
            IpAddr::V4(_) => self.v4.change(place, route, ways, fib, change),
            IpAddr::V6(_) => self.v6.change(place, route, ways, fib, change),
        }
        self.doubt |= doubt;
    }

    /// The place of the kernel's table, and the rank of its routes there.
    fn place(&self, table: u32) -> Option<(usize, u8)> {
        if let Some(rank) = MAIN.iter().position(|main| *main == table) {
            return Some((0, rank as u8));
        }
        let place = self.tables.iter().position(|known| *known == Some(table))?;
        Some((place, VRF_RANK))
    }

    /// Sees to it that each VRF has a table. Routes of new ones may have been passed over before.
    fn set_tables(&mut self) {
        let wanted: FxHashSet<u32> = self
            .ways
            .links
            .values()
            .filter_map(|link| link.vrf)
            .filter(|table| !MAIN.contains(table))
            .collect();
        for place in 1..self.tables.len() {
            if self.tables[place].is_some_and(|table| !wanted.contains(&table)) {
                self.tables[place] = None;
                let (ways, fibs) = (&mut self.ways, &mut self.fibs);
                self.v4.clear(place, ways, fibs);
                self.v6.clear(place, ways, fibs);
            }
        }
        for table in wanted {
            if !self.tables.contains(&Some(table)) {
                self.add_table(table);
                self.doubt = true;
            }
        }
    }

    fn add_table(&mut self, table: u32) {
        let free = self.tables.iter().position(Option::is_none);
        let place = free.unwrap_or(self.tables.len());
        if free.is_none() {
            self.tables.push(None);
            self.fibs.push(RouteTable::default());
            self.v4.trees.push(Tree::default());
            self.v6.trees.push(Tree::default());
            let punt = self.ways.acquire(Recipe::Fixed(NextHopKind::Punt));
            let fib = &mut self.fibs[place];
            u32::RESERVED.iter().for_each(|prefix| u32::insert(fib, *prefix, punt));
            u128::RESERVED.iter().for_each(|prefix| u128::insert(fib, *prefix, punt));
        }
        self.tables[place] = Some(table);
    }

    /// Removes the routes that the kernel has removed without a word.
    fn drop_gone(&mut self) {
        let gone = self.ways.gone();
        if !gone.is_empty() {
            let keep = |line: &Line, _: &Ways| !gone.contains(&line.way);
            self.v4.retain(&mut self.ways, &mut self.fibs, keep, |_| false);
            self.v6.retain(&mut self.ways, &mut self.fibs, keep, |_| false);
        }
    }

    fn settle_flipped(&mut self) {
        let flipped: FxHashSet<_> = self.ways.take_flipped().into_iter().collect();
        if !flipped.is_empty() {
            let look = |line: &Line| flipped.contains(&line.way);
            self.v4.retain(&mut self.ways, &mut self.fibs, |_, _| true, look);
            self.v6.retain(&mut self.ways, &mut self.fibs, |_, _| true, look);
        }
    }

    /// These interfaces, by index, are routed ports.
    pub fn set_ports(&mut self, ports: FxHashMap<u32, u16>) {
        self.ways.set_ports(ports);
        self.settle_flipped();
        let (ways, fibs) = (&mut self.ways, &mut self.fibs);
        self.v4.settle_neighbors(ways, fibs);
        self.v6.settle_neighbors(ways, fibs);
    }

    /// The routes to be published, if they have changed.
    pub fn publication(&mut self, faces: &[Option<L3Interface>]) -> Option<Routes> {
        self.ways.take_changed().then(|| self.routes(faces))
    }

    /// The routes as they are.
    pub fn routes(&self, faces: &[Option<L3Interface>]) -> Routes {
        Routes { tables: self.fibs.clone(), hops: self.ways.hops().clone(), interfaces: faces.to_vec() }
    }
}

fn neighbors_of(address: IpAddr) -> Class {
    if address.is_ipv4() { Class::Neighbors4 } else { Class::Neighbors6 }
}

/// What an event is about, and whether it is there.
fn key_of(event: &Event) -> Option<(Key, bool)> {
    let route = |route: &Route| Key::Route(route.table, route.prefix, route.length, route.metric);
    let address = |address: &Address| Key::Address(address.interface, address.address, address.length);
    let neighbor = |neighbor: &Neighbor| Key::Neighbor(neighbor.interface, neighbor.address);
    Some(match event {
        Event::Link(link) => (Key::Link(link.index), true),
        Event::LinkGone(index) => (Key::Link(*index), false),
        Event::Address(it) => (address(it), true),
        Event::AddressGone(it) => (address(it), false),
        Event::Object(id, _) => (Key::Object(*id), true),
        Event::ObjectGone(id) => (Key::Object(*id), false),
        Event::Neighbor(it) => (neighbor(it), true),
        Event::NeighborGone(it) => (neighbor(it), false),
        Event::Route(it, _) => (route(it), true),
        Event::RouteGone(it) => (route(it), false),
        Event::IgnoresDown { .. } => return None,
    })
}

/// What a route's way is made from.
fn recipe(route: &Route) -> Recipe {
    let v6 = route.prefix.is_ipv6();
    match route.kind {
        libc::RTN_UNICAST | libc::RTN_BLACKHOLE if route.object != 0 => {
            Recipe::Object { v6, mtu: route.mtu, id: route.object }
        }
        libc::RTN_UNICAST if !route.legs.is_empty() => lines::normal(v6, route.mtu, route.legs.clone()),
        libc::RTN_BLACKHOLE => Recipe::Fixed(NextHopKind::Blackhole),
        libc::RTN_UNREACHABLE => Recipe::Fixed(NextHopKind::Unreachable),
        libc::RTN_PROHIBIT => Recipe::Fixed(NextHopKind::Prohibit),
        _ => Recipe::Fixed(NextHopKind::Punt),
    }
}

impl<A: Bits> Family<A> {
    fn change(
        &mut self,
        place: usize,
        route: &Route,
        ways: &mut Ways,
        fib: &mut RouteTable,
        f: impl FnOnce(&mut lines::Lines, &mut Ways),
    ) {
        if let Some(prefix) = Prefix::new(route.prefix, route.length) {
            let context = &mut Context { ways, neighbors: &self.neighbors, fib };
            self.trees[place].change(prefix, context, f);
        }
    }

    fn retain(
        &mut self,
        ways: &mut Ways,
        fibs: &mut [RouteTable],
        keep: impl Fn(&Line, &Ways) -> bool,
        look: impl Fn(&Line) -> bool,
    ) {
        for (tree, fib) in self.trees.iter_mut().zip(fibs) {
            tree.retain(&mut Context { ways, neighbors: &self.neighbors, fib }, &keep, &look);
        }
    }

    fn clear(&mut self, place: usize, ways: &mut Ways, fibs: &mut [RouteTable]) {
        let context = &mut Context { ways, neighbors: &self.neighbors, fib: &mut fibs[place] };
        self.trees[place].retain(context, |_, _| false, |_| false);
    }

    fn neighbor(
        &mut self,
        (interface, address): (u32, IpAddr),
        there: bool,
        ways: &mut Ways,
        fibs: &mut [RouteTable],
    ) {
        let Some(bits) = A::of(address) else { return };
        let interfaces = self.neighbors.entry(bits).or_default();
        interfaces.retain(|other| *other != interface);
        if there {
            interfaces.push(interface);
        } else if interfaces.is_empty() {
            self.neighbors.remove(&bits);
        }
        for (tree, fib) in self.trees.iter_mut().zip(fibs) {
            tree.settle_neighbor(bits, &mut Context { ways, neighbors: &self.neighbors, fib });
        }
    }

    fn settle_neighbors(&mut self, ways: &mut Ways, fibs: &mut [RouteTable]) {
        for (tree, fib) in self.trees.iter_mut().zip(fibs) {
            for bits in self.neighbors.keys() {
                tree.settle_neighbor(*bits, &mut Context { ways, neighbors: &self.neighbors, fib });
            }
        }
    }

    /// Routes in all tables.
    pub fn count(&self) -> usize {
        self.trees.iter().map(Tree::count).sum()
    }
}
