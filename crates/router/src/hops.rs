//! Next hops: from what routes say to what becomes of a packet.
//!
//! Theory of operation. A route leads to a **way**: a number that the tables hold, and that the workers look up. What the
//! number means depends on links, neighbours, nexthop objects and ports, and is computed again when one of them changes,
//! in place: a neighbour's new address, a member of a group that dies, or another nexthop object is one write, however
//! many routes lead there. Ways are interned by what they are made from, and counted by what refers to them: routes, and
//! other ways, since a way to several neighbours is made of ways to one. Only when a way dies or comes to life have the
//! routes to be looked at, because then other routes win; such ways are handed out as **flipped**.

use std::net::IpAddr;

use mmb_route::{NextHop, NextHopId, NextHopKind, NextHops};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::event::{Leg, Legs, Link, Neighbor, Object};
use crate::members;

/// What a way is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Recipe {
    /// The same for all packets, whatever happens.
    Fixed(NextHopKind),
    /// Next hops of their own. `v6` is the family of the routes, `mtu` theirs (0: the link's).
    Legs { v6: bool, mtu: u16, legs: Legs },
    /// A nexthop object.
    Object { v6: bool, mtu: u16, id: u32 },
}

/// What is known of one way.
#[derive(Debug, Default)]
struct Way {
    recipe: Option<Recipe>,
    references: u32,
    alive: bool,
    /// Ways that it is made of, with their weights.
    parts: Vec<(NextHopId, u16)>,
}

/// How a way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Alive,
    /// Its routes do not count for now.
    Dead,
    /// The kernel has removed IPv4 routes that lead there, without a word.
    Gone,
}

/// All ways, and what they depend on; see the module's theory of operation.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// Interfaces by index.
    pub links: FxHashMap<u32, Link>,
    /// Neighbours.
    pub neighbors: FxHashMap<(u32, IpAddr), Neighbor>,
    /// Routed ports by the index of their interface.
    ports: FxHashMap<u32, u16>,
    objects: FxHashMap<u32, Object>,
    /// Interfaces (of IPv6: true) through which routes are dead while there is no carrier.
    ignore_down: FxHashSet<(u32, bool)>,
    ways: Vec<Way>,
    free: Vec<NextHopId>,
    interned: FxHashMap<Recipe, NextHopId>,
    /// Ways that lead to a neighbour directly.
    by_neighbor: FxHashMap<(u32, IpAddr), SmallVec<[NextHopId; 2]>>,
    /// Ways that are made of a way.
    users: FxHashMap<NextHopId, SmallVec<[NextHopId; 2]>>,
    flipped: Vec<NextHopId>,
    hops: NextHops,
    members: members::Ranges,
    changed: bool,
}

impl Ways {
    /// The way made from this; to be released by whoever asks for it.
    pub fn acquire(&mut self, recipe: Recipe) -> NextHopId {
        if let Some(&id) = self.interned.get(&recipe) {
            self.ways[id as usize].references += 1;
            return id;
        }
        if self.ways.is_empty() {
            // Number 0 is that of packets without a route.
            self.ways.push(Way::default());
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.ways.push(Way::default());
            (self.ways.len() - 1) as NextHopId
        });
        if let Some(key) = neighbor_of(&recipe) {
            self.by_neighbor.entry(key).or_default().push(id);
        }
        self.ways[id as usize] =
            Way { recipe: Some(recipe.clone()), references: 1, alive: false, parts: Vec::new() };
        self.interned.insert(recipe, id);
        self.make_parts(id);
        self.refresh(id);
        // Nothing leads there yet.
        self.flipped.retain(|flipped| *flipped != id);
        id
    }

    /// The way of packets that no route is for, where saying nothing would mean something else. It stays.
    pub fn no_route(&mut self) -> NextHopId {
        let recipe = Recipe::Fixed(NextHopKind::NoRoute);
        let known = self.interned.get(&recipe).copied();
        known.unwrap_or_else(|| self.acquire(recipe))
    }

    /// One reference less.
    pub fn release(&mut self, id: NextHopId) {
        let way = &mut self.ways[id as usize];
        way.references -= 1;
        if way.references > 0 {
            return;
        }
        let way = std::mem::take(way);
        if let Some(recipe) = way.recipe {
            if let Some(key) = neighbor_of(&recipe) {
                forget(&mut self.by_neighbor, key, id);
            }
            self.interned.remove(&recipe);
        }
        self.drop_parts(id, way.parts);
        self.members.free(self.hops.get(id));
        self.hops.set(id, NextHop::default());
        self.changed = true;
        self.free.push(id);
    }

    /// What a way is made from.
    pub fn recipe(&self, id: NextHopId) -> Option<&Recipe> {
        self.ways.get(id as usize)?.recipe.as_ref()
    }

    /// Whether routes to it count.
    pub fn is_alive(&self, id: NextHopId) -> bool {
        self.ways.get(id as usize).is_some_and(|way| way.alive)
    }

    /// How a way is, for a route of `v6` or not.
    pub fn fate(&self, id: NextHopId) -> Fate {
        let Some(Recipe::Legs { v6, legs, .. }) = self.recipe(id) else {
            let gone =
                matches!(self.recipe(id), Some(Recipe::Object { id, .. }) if !self.objects.contains_key(id));
            return if gone {
                Fate::Gone
            } else if self.is_alive(id) {
                Fate::Alive
            } else {
                Fate::Dead
            };
        };
        let down = |leg: &Leg| self.links.get(&leg.interface).is_none_or(|link| !link.up);
        let missing = |leg: &Leg| !self.links.contains_key(&leg.interface);
        if legs.iter().all(down) || !v6 && legs.iter().any(missing) {
            Fate::Gone
        } else if self.is_alive(id) {
            Fate::Alive
        } else {
            Fate::Dead
        }
    }

    /// The ways whose routes the kernel has removed.
    pub fn gone(&self) -> FxHashSet<NextHopId> {
        (0..self.ways.len() as NextHopId)
            .filter(|id| self.recipe(*id).is_some() && self.fate(*id) == Fate::Gone)
            .collect()
    }

    /// Its next hops with their weights, and whether each counts: for those who ask.
    pub fn legs(&self, id: NextHopId) -> Vec<(Leg, NextHop, bool)> {
        let Some(way) = self.ways.get(id as usize) else { return Vec::new() };
        let one = |id: NextHopId, weight: u16| match self.recipe(id) {
            Some(Recipe::Legs { legs, .. }) if legs.len() == 1 => {
                Some((Leg { weight, ..legs[0] }, *self.hops.get(id), self.is_alive(id)))
            }
            _ => None,
        };
        match way.parts.is_empty() {
            true => one(id, 1).into_iter().collect(),
            false => way.parts.iter().filter_map(|&(part, weight)| one(part, weight)).collect(),
        }
    }

    /// How many ways there are.
    pub fn count(&self) -> usize {
        self.interned.len()
    }

    /// What the workers look up.
    pub fn hops(&self) -> &NextHops {
        &self.hops
    }

    /// Whether anything has changed for packets since this was asked last.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// What leads to ways has changed.
    pub fn note_change(&mut self) {
        self.changed = true;
    }

    /// Ways that have died or come to life since this was asked last.
    pub fn take_flipped(&mut self) -> Vec<NextHopId> {
        std::mem::take(&mut self.flipped)
    }

    /// An interface has become so, or is gone.
    pub fn set_link(&mut self, index: u32, link: Option<Link>) {
        let same = match link {
            Some(link) => self.links.insert(index, link.clone()).is_some_and(|before| before == link),
            None => self.links.remove(&index).is_none(),
        };
        if !same {
            self.refresh_on(|leg| leg.interface == index);
        }
    }

    /// Whether routes through an interface are dead without carrier.
    pub fn set_ignore_down(&mut self, interface: u32, v6: bool, ignores: bool) {
        let key = (interface, v6);
        if if ignores { self.ignore_down.insert(key) } else { self.ignore_down.remove(&key) } {
            self.refresh_on(|leg| leg.interface == interface);
        }
    }

    /// These interfaces are routed ports.
    pub fn set_ports(&mut self, ports: FxHashMap<u32, u16>) {
        if self.ports != ports {
            self.ports = ports;
            self.refresh_on(|_| true);
        }
    }

    /// The routed port on an interface.
    pub fn port(&self, interface: u32) -> Option<u16> {
        self.ports.get(&interface).copied()
    }

    /// A neighbour has become so, or is gone. False if it was so already.
    pub fn set_neighbor(&mut self, key: (u32, IpAddr), neighbor: Option<Neighbor>) -> bool {
        let before = match neighbor {
            Some(neighbor) => self.neighbors.insert(key, neighbor),
            None => self.neighbors.remove(&key),
        };
        if before == neighbor {
            return false;
        }
        for id in self.by_neighbor.get(&key).cloned().unwrap_or_default() {
            self.refresh(id);
        }
        true
    }

    /// A nexthop object has become so, or is gone.
    pub fn set_object(&mut self, object: u32, new: Option<Object>) {
        let before = match &new {
            Some(new) => self.objects.insert(object, new.clone()),
            None => self.objects.remove(&object),
        };
        if before == new {
            return;
        }
        let groups = self.objects.iter().filter(|(_, other)| is_member(other, object)).map(|(id, _)| *id);
        let concerned: FxHashSet<u32> = groups.chain([object]).collect();
        let made_of =
            |way: &Way| matches!(&way.recipe, Some(Recipe::Object { id, .. }) if concerned.contains(id));
        for id in self.select(made_of) {
            let old = std::mem::take(&mut self.ways[id as usize].parts);
            self.make_parts(id);
            self.drop_parts(id, old);
            self.refresh(id);
        }
    }

    /// The objects whose packets go out by an interface.
    pub fn objects_on(&self, interface: u32) -> Vec<u32> {
        let on = |object: &Object| matches!(object, Object::Leg(leg) if leg.interface == interface);
        self.objects.iter().filter(|(_, object)| on(object)).map(|(id, _)| *id).collect()
    }

    /// Takes an object out of groups; those that it was the last of are gone as well.
    pub fn leave_groups(&mut self, object: u32) {
        let groups: Vec<u32> =
            self.objects.iter().filter(|(_, other)| is_member(other, object)).map(|(id, _)| *id).collect();
        for id in groups {
            let Some(Object::Group(members)) = self.objects.get(&id) else { continue };
            let left: Vec<_> = members.iter().filter(|(member, _)| *member != object).copied().collect();
            self.set_object(id, (!left.is_empty()).then_some(Object::Group(left)));
        }
    }

    fn select(&self, mut which: impl FnMut(&Way) -> bool) -> Vec<NextHopId> {
        let ways = self.ways.iter().enumerate();
        ways.filter(|(_, way)| way.recipe.is_some() && which(way)).map(|(id, _)| id as NextHopId).collect()
    }

    fn refresh_on(&mut self, concerns: impl Fn(&Leg) -> bool) {
        let direct = |way: &Way| matches!(&way.recipe, Some(Recipe::Legs { legs, .. }) if legs.len() == 1 && concerns(&legs[0]));
        for id in self.select(direct) {
            self.refresh(id);
        }
    }

    /// Finds the ways that a way is made of.
    fn make_parts(&mut self, id: NextHopId) {
        let (v6, mtu, legs) = match self.recipe(id) {
            Some(Recipe::Legs { v6, mtu, legs }) if legs.len() > 1 => (*v6, *mtu, legs.clone()),
            Some(&Recipe::Object { v6, mtu, id }) => (v6, mtu, self.legs_of_object(id)),
            _ => return,
        };
        let several = legs.len() > 1;
        let parts = legs.into_iter().map(|leg| {
            // Its neighbours have no entries of their own in the tables, which lead to one neighbour each.
            let kernel = leg.kernel || several && leg.gateway.is_none();
            let legs = Legs::from_elem(Leg { weight: 1, kernel, ..leg }, 1);
            let part = self.acquire(Recipe::Legs { v6, mtu, legs });
            self.users.entry(part).or_default().push(id);
            (part, leg.weight)
        });
        let parts = parts.collect();
        self.ways[id as usize].parts = parts;
    }

    fn drop_parts(&mut self, id: NextHopId, parts: Vec<(NextHopId, u16)>) {
        for (part, _) in parts {
            forget(&mut self.users, part, id);
            self.release(part);
        }
    }

    fn legs_of_object(&self, id: u32) -> Legs {
        match self.objects.get(&id) {
            Some(Object::Leg(leg)) => Legs::from_elem(*leg, 1),
            Some(Object::Group(members)) => {
                let leg = |&(member, weight): &(u32, u16)| match self.objects.get(&member) {
                    Some(Object::Leg(leg)) => Some(Leg { weight, ..*leg }),
                    _ => None,
                };
                members.iter().filter_map(leg).collect()
            }
            Some(Object::Blackhole) | None => Legs::new(),
        }
    }

    /// Computes what a way means, and what those made of it do.
    fn refresh(&mut self, id: NextHopId) {
        let (alive, hop) = match &self.ways[id as usize].recipe {
            None => return,
            Some(Recipe::Fixed(kind)) => (true, NextHop { kind: *kind, ..NextHop::default() }),
            Some(Recipe::Legs { v6, mtu, legs }) if legs.len() == 1 => self.direct(&legs[0], *v6, *mtu),
            Some(Recipe::Object { id: object, .. })
                if matches!(self.objects.get(object), Some(Object::Blackhole)) =>
            {
                (true, NextHop { kind: NextHopKind::Blackhole, ..NextHop::default() })
            }
            Some(_) => self.composed(id),
        };
        let way = &mut self.ways[id as usize];
        let flips = way.alive != alive;
        way.alive = alive;
        if flips {
            self.flipped.push(id);
        }
        if *self.hops.get(id) != hop {
            self.hops.set(id, hop);
            self.changed = true;
        } else if !flips {
            return;
        }
        for user in self.users.get(&id).cloned().unwrap_or_default() {
            self.refresh(user);
        }
    }

    /// A way to one neighbour, or to all on a link.
    fn direct(&self, leg: &Leg, v6: bool, mtu: u16) -> (bool, NextHop) {
        let link = self.links.get(&leg.interface);
        let ignored = |link: &&Link| !link.carrier && self.ignore_down.contains(&(link.index, v6));
        let Some(link) = link.filter(|link| link.up && !ignored(link)) else {
            return (false, NextHop::default());
        };
        let (false, Some(port)) = (leg.kernel, self.port(leg.interface)) else {
            return (
                true,
                NextHop { kind: NextHopKind::Punt, interface: leg.interface, ..NextHop::default() },
            );
        };
        let link_mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
        let mtu = if mtu == 0 { link_mtu } else { mtu.min(link_mtu) };
        let hop = NextHop {
            kind: NextHopKind::Resolve,
            interface: leg.interface,
            port,
            mtu,
            gateway: leg.gateway,
            ..NextHop::default()
        };
        let neighbor = leg.gateway.and_then(|gateway| self.neighbors.get(&(leg.interface, gateway)));
        (true, neighbor.map_or(hop, |neighbor| towards(hop, neighbor, link)))
    }

    /// A way made of others.
    fn composed(&mut self, id: NextHopId) -> (bool, NextHop) {
        let parts = &self.ways[id as usize].parts;
        let alive: Vec<_> = parts.iter().filter(|(part, _)| self.is_alive(*part)).copied().collect();
        let before = *self.hops.get(id);
        match alive[..] {
            [] => (false, self.members.none(&before)),
            [(one, _)] => {
                self.members.free(&before);
                (true, *self.hops.get(one))
            }
            _ => {
                self.changed = true;
                (true, self.members.group(&mut self.hops, id, before, &alive))
            }
        }
    }
}

fn is_member(object: &Object, member: u32) -> bool {
    matches!(object, Object::Group(members) if members.iter().any(|(id, _)| *id == member))
}

fn forget<K: std::hash::Hash + Eq>(map: &mut FxHashMap<K, SmallVec<[NextHopId; 2]>>, key: K, id: NextHopId) {
    if let std::collections::hash_map::Entry::Occupied(mut entry) = map.entry(key) {
        // One of them only: a group may have the same member twice.
        if let Some(at) = entry.get().iter().position(|other| *other == id) {
            entry.get_mut().swap_remove(at);
        }
        if entry.get().is_empty() {
            entry.remove();
        }
    }
}

/// The neighbour that a way leads to directly.
fn neighbor_of(recipe: &Recipe) -> Option<(u32, IpAddr)> {
    match recipe {
        Recipe::Legs { legs, .. } => match &legs[..] {
            [leg] => leg.gateway.map(|gateway| (leg.interface, gateway)),
            _ => None,
        },
        _ => None,
    }
}

/// What becomes of packets to a neighbour in this state.
fn towards(mut hop: NextHop, neighbor: &Neighbor, link: &Link) -> NextHop {
    use libc::{NUD_DELAY, NUD_FAILED, NUD_NOARP, NUD_PERMANENT, NUD_PROBE, NUD_REACHABLE, NUD_STALE};
    const VALID: u16 = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;
    match (neighbor.mac, link.mac) {
        (Some(to), Some(from)) if neighbor.state & VALID != 0 => {
            hop.kind = NextHopKind::Forward;
            hop.header[..6].copy_from_slice(&to);
            hop.header[6..].copy_from_slice(&from);
            hop.neighbor_stale = neighbor.state & NUD_STALE != 0;
        }
        _ if neighbor.state & NUD_FAILED != 0 => hop.kind = NextHopKind::Failed,
        _ => {}
    }
    hop
}
