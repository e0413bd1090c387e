//! Paths: from the next hops that routes name to the treatment of packets.
//!
//! Theory of operation. A route leads to a **path**. The tables hold its number, and the workers look the
//! number up. The treatment behind the number depends on links, neighbours, nexthop objects and ports. It is
//! updated in place when one of them changes. A neighbour's new address, a dead member of a group, or a
//! changed nexthop object is one write, however many routes use the path.
//!
//! Paths are interned by their specification. Routes and other paths hold references: a path to several
//! neighbours consists of paths to one each. Other routes may win only if a path becomes alive or dead. The
//! table collects such paths as *liveness changes*, and their routes are evaluated again.
//!
//! Changes are counted if they may concern flows that are forwarded ([`PathTable::flow_generation`]). Packets
//! to unused addresses of a link make the kernel add, give up and remove neighbours all the time. Such
//! changes concern no flow, so sessions and the fast path go on with the next hops that they keep. The number
//! of a path that packets were forwarded by is not used again before the count has changed.

mod resolve;

use std::net::IpAddr;

use mmb_route::{NextHop, NextHopId, NextHopKind, NextHops};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::groups::GroupRanges;
use crate::netlink::{Link, Neighbor, NextHopSpec, NextHopSpecs, NexthopObject};

/// The specification of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PathSpec {
    /// A fixed treatment.
    Fixed(NextHopKind),
    /// Next hops. `v6` is the family of the routes, `mtu` the MTU of the routes (0: the link's).
    NextHops { v6: bool, mtu: u16, next_hops: NextHopSpecs },
    /// A nexthop object.
    Object { v6: bool, mtu: u16, id: u32 },
}

/// A path.
#[derive(Debug, Default)]
struct Path {
    spec: Option<PathSpec>,
    references: u32,
    alive: bool,
    /// Paths that it consists of, with their weights.
    parts: Vec<(NextHopId, u16)>,
}

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathState {
    Alive,
    /// Its routes are ignored for now.
    Dead,
    /// The kernel has removed IPv4 routes with this path, without a message.
    Removed,
}

/// All paths and the state that they depend on; see the module's theory of operation.
#[derive(Debug, Default)]
pub(crate) struct PathTable {
    /// Links by interface index.
    pub links: FxHashMap<u32, Link>,
    /// Neighbours by interface index and address.
    pub neighbors: FxHashMap<(u32, IpAddr), Neighbor>,
    /// Routed ports by interface index.
    ports: FxHashMap<u32, u16>,
    objects: FxHashMap<u32, NexthopObject>,
    /// Interfaces (true: for IPv6) whose routes are dead without carrier.
    ignore_down: FxHashSet<(u32, bool)>,
    paths: Vec<Path>,
    free: Vec<NextHopId>,
    by_spec: FxHashMap<PathSpec, NextHopId>,
    /// Paths to a single neighbour.
    by_neighbor: FxHashMap<(u32, IpAddr), SmallVec<[NextHopId; 2]>>,
    /// For each path, the paths that contain it.
    users: FxHashMap<NextHopId, SmallVec<[NextHopId; 2]>>,
    liveness_changed: Vec<NextHopId>,
    hops: NextHops,
    groups: GroupRanges,
    changed: bool,
    flow_generation: u64,
}

impl PathTable {
    /// The path with this specification. The caller holds a reference and must release it.
    pub fn acquire(&mut self, spec: PathSpec) -> NextHopId {
        if let Some(&id) = self.by_spec.get(&spec) {
            self.paths[id as usize].references += 1;
            return id;
        }
        if self.paths.is_empty() {
            // Number 0 is the path of packets without a route.
            self.paths.push(Path::default());
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.paths.push(Path::default());
            (self.paths.len() - 1) as NextHopId
        });
        if let Some(key) = neighbor_of(&spec) {
            self.by_neighbor.entry(key).or_default().push(id);
        }
        self.paths[id as usize] =
            Path { spec: Some(spec.clone()), references: 1, alive: false, parts: Vec::new() };
        self.by_spec.insert(spec, id);
        self.make_parts(id);
        self.refresh(id);
        // No route uses it yet.
        self.liveness_changed.retain(|liveness_changed| *liveness_changed != id);
        id
    }

    /// The path for packets without a route, for prefixes that need an explicit entry. It is never released.
    pub fn no_route(&mut self) -> NextHopId {
        let spec = PathSpec::Fixed(NextHopKind::NoRoute);
        if let Some(&known) = self.by_spec.get(&spec) {
            return known;
        }
        // It may get the number of a route's path that has just been released.
        self.note_change(true);
        self.acquire(spec)
    }

    /// Releases a reference.
    pub fn release(&mut self, id: NextHopId) {
        let path = &mut self.paths[id as usize];
        path.references -= 1;
        if path.references > 0 {
            return;
        }
        let path = std::mem::take(path);
        if let Some(spec) = path.spec {
            if let Some(key) = neighbor_of(&spec) {
                forget(&mut self.by_neighbor, key, id);
            }
            self.by_spec.remove(&spec);
        }
        self.drop_parts(id, path.parts);
        self.groups.release(self.hops.get(id));
        self.set_hop(id, NextHop::default());
        self.free.push(id);
    }

    /// The specification of a path.
    pub fn spec(&self, id: NextHopId) -> Option<&PathSpec> {
        self.paths.get(id as usize)?.spec.as_ref()
    }

    /// Whether routes with this path are usable.
    pub fn is_alive(&self, id: NextHopId) -> bool {
        self.paths.get(id as usize).is_some_and(|path| path.alive)
    }

    /// The state of a path.
    pub fn state(&self, id: NextHopId) -> PathState {
        let Some(PathSpec::NextHops { v6, next_hops, .. }) = self.spec(id) else {
            let is_removed =
                matches!(self.spec(id), Some(PathSpec::Object { id, .. }) if !self.objects.contains_key(id));
            return if is_removed {
                PathState::Removed
            } else if self.is_alive(id) {
                PathState::Alive
            } else {
                PathState::Dead
            };
        };
        let down = |next_hop: &NextHopSpec| self.links.get(&next_hop.interface).is_none_or(|link| !link.up);
        let missing = |next_hop: &NextHopSpec| !self.links.contains_key(&next_hop.interface);
        if next_hops.iter().all(down) || !v6 && next_hops.iter().any(missing) {
            PathState::Removed
        } else if self.is_alive(id) {
            PathState::Alive
        } else {
            PathState::Dead
        }
    }

    /// The paths whose routes the kernel has removed.
    pub fn removed(&self) -> FxHashSet<NextHopId> {
        (0..self.paths.len() as NextHopId)
            .filter(|id| self.spec(*id).is_some() && self.state(*id) == PathState::Removed)
            .collect()
    }

    /// The next hops of a path with their treatment and whether they are alive. For queries.
    pub fn next_hops(&self, id: NextHopId) -> Vec<(NextHopSpec, NextHop, bool)> {
        let Some(path) = self.paths.get(id as usize) else { return Vec::new() };
        let one = |id: NextHopId, weight: u16| match self.spec(id) {
            Some(PathSpec::NextHops { next_hops, .. }) if next_hops.len() == 1 => {
                Some((NextHopSpec { weight, ..next_hops[0] }, *self.hops.get(id), self.is_alive(id)))
            }
            _ => None,
        };
        match path.parts.is_empty() {
            true => one(id, 1).into_iter().collect(),
            false => path.parts.iter().filter_map(|&(part, weight)| one(part, weight)).collect(),
        }
    }

    /// Number of paths.
    pub fn count(&self) -> usize {
        self.by_spec.len()
    }

    /// The next hops for the workers.
    pub fn hops(&self) -> &NextHops {
        &self.hops
    }

    /// Whether the treatment of packets has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Records that a table entry or a treatment has changed. `concerns_flows`: packets may have been
    /// forwarded, or their sources confirmed, by what was changed.
    pub fn note_change(&mut self, concerns_flows: bool) {
        self.changed = true;
        self.flow_generation += u64::from(concerns_flows);
    }

    /// See [`mmb_route::Routes::flow_generation`].
    pub fn flow_generation(&self) -> u64 {
        self.flow_generation
    }

    /// Whether packets with this path wait for the address of a neighbour, or are refused without it.
    pub fn is_unresolved(&self, id: NextHopId) -> bool {
        matches!(self.hops.get(id).kind, NextHopKind::Resolve | NextHopKind::Failed)
    }

    /// Paths that became alive or dead since the last call.
    pub fn take_liveness_changes(&mut self) -> Vec<NextHopId> {
        std::mem::take(&mut self.liveness_changed)
    }

    /// Updates a link, or removes it.
    pub fn set_link(&mut self, index: u32, link: Option<Link>) {
        let same = match link {
            Some(link) => self.links.insert(index, link.clone()).is_some_and(|before| before == link),
            None => self.links.remove(&index).is_none(),
        };
        if !same {
            self.refresh_where(|next_hop| next_hop.interface == index);
        }
    }

    /// Sets whether routes through an interface are dead without carrier.
    pub fn set_ignore_down(&mut self, interface: u32, v6: bool, ignores: bool) {
        let key = (interface, v6);
        if if ignores { self.ignore_down.insert(key) } else { self.ignore_down.remove(&key) } {
            self.refresh_where(|next_hop| next_hop.interface == interface);
        }
    }

    /// Sets the routed ports, by interface index.
    pub fn set_ports(&mut self, ports: FxHashMap<u32, u16>) {
        if self.ports != ports {
            self.ports = ports;
            self.refresh_where(|_| true);
        }
    }

    /// The routed port of an interface.
    pub fn port(&self, interface: u32) -> Option<u16> {
        self.ports.get(&interface).copied()
    }

    /// Updates a neighbour, or removes it. Returns whether it changed.
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

    /// Updates a nexthop object, or removes it.
    pub fn set_object(&mut self, object: u32, new: Option<NexthopObject>) {
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
            |path: &Path| matches!(&path.spec, Some(PathSpec::Object { id, .. }) if concerned.contains(id));
        for id in self.select(made_of) {
            let old = std::mem::take(&mut self.paths[id as usize].parts);
            self.make_parts(id);
            self.drop_parts(id, old);
            self.refresh(id);
        }
    }

    /// The nexthop objects that use an interface.
    pub fn objects_via(&self, interface: u32) -> Vec<u32> {
        let on = |object: &NexthopObject| matches!(object, NexthopObject::Single(next_hop) if next_hop.interface == interface);
        self.objects.iter().filter(|(_, object)| on(object)).map(|(id, _)| *id).collect()
    }

    /// Removes an object from all groups. Groups that become empty are removed, too.
    pub fn remove_from_groups(&mut self, object: u32) {
        let groups: Vec<u32> =
            self.objects.iter().filter(|(_, other)| is_member(other, object)).map(|(id, _)| *id).collect();
        for id in groups {
            let Some(NexthopObject::Group(members)) = self.objects.get(&id) else { continue };
            let left: Vec<_> = members.iter().filter(|(member, _)| *member != object).copied().collect();
            self.set_object(id, (!left.is_empty()).then_some(NexthopObject::Group(left)));
        }
    }
}

fn is_member(object: &NexthopObject, member: u32) -> bool {
    matches!(object, NexthopObject::Group(members) if members.iter().any(|(id, _)| *id == member))
}

fn forget<K: std::hash::Hash + Eq>(map: &mut FxHashMap<K, SmallVec<[NextHopId; 2]>>, key: K, id: NextHopId) {
    if let std::collections::hash_map::Entry::Occupied(mut entry) = map.entry(key) {
        // Removes only one occurrence: a group may have a member twice.
        if let Some(at) = entry.get().iter().position(|other| *other == id) {
            entry.get_mut().swap_remove(at);
        }
        if entry.get().is_empty() {
            entry.remove();
        }
    }
}

/// The neighbour that a path with one next hop leads to.
fn neighbor_of(spec: &PathSpec) -> Option<(u32, IpAddr)> {
    match spec {
        PathSpec::NextHops { next_hops, .. } => match &next_hops[..] {
            [next_hop] => next_hop.gateway.map(|gateway| (next_hop.interface, gateway)),
            _ => None,
        },
        _ => None,
    }
}
