//! Resolution: the treatment of packets that follows from a path's specification and the kernel's state.

use mmb_route::{NextHop, NextHopId, NextHopKind};

use super::{Path, PathSpec, PathTable, forget};
use crate::netlink::{Link, Neighbor, NextHopSpec, NextHopSpecs, NexthopObject};

impl PathTable {
    /// The paths for which `which` is true.
    pub(super) fn select(&self, mut which: impl FnMut(&Path) -> bool) -> Vec<NextHopId> {
        let paths = self.paths.iter().enumerate();
        paths.filter(|(_, path)| path.spec.is_some() && which(path)).map(|(id, _)| id as NextHopId).collect()
    }

    /// Updates the paths with one next hop for which `concerns` is true.
    pub(super) fn refresh_where(&mut self, concerns: impl Fn(&NextHopSpec) -> bool) {
        let is_single = |path: &Path| match &path.spec {
            Some(PathSpec::NextHops { next_hops, .. }) => next_hops.len() == 1 && concerns(&next_hops[0]),
            _ => false,
        };
        for id in self.select(is_single) {
            self.refresh(id);
        }
    }

    /// Acquires the paths that a path consists of.
    pub(super) fn make_parts(&mut self, id: NextHopId) {
        let (v6, mtu, next_hops) = match self.spec(id) {
            Some(PathSpec::NextHops { v6, mtu, next_hops }) if next_hops.len() > 1 => {
                (*v6, *mtu, next_hops.clone())
            }
            Some(&PathSpec::Object { v6, mtu, id }) => (v6, mtu, self.next_hops_of_object(id)),
            _ => return,
        };
        let several = next_hops.len() > 1;
        let parts = next_hops.into_iter().map(|next_hop| {
            // Members have no table entries for their neighbours, since an entry leads to one neighbour only.
            let kernel_only = next_hop.kernel_only || several && next_hop.gateway.is_none();
            let next_hops = NextHopSpecs::from_elem(NextHopSpec { weight: 1, kernel_only, ..next_hop }, 1);
            let part = self.acquire(PathSpec::NextHops { v6, mtu, next_hops });
            self.users.entry(part).or_default().push(id);
            (part, next_hop.weight)
        });
        let parts = parts.collect();
        self.paths[id as usize].parts = parts;
    }

    pub(super) fn drop_parts(&mut self, id: NextHopId, parts: Vec<(NextHopId, u16)>) {
        for (part, _) in parts {
            forget(&mut self.users, part, id);
            self.release(part);
        }
    }

    fn next_hops_of_object(&self, id: u32) -> NextHopSpecs {
        match self.objects.get(&id) {
            Some(NexthopObject::Single(next_hop)) => NextHopSpecs::from_elem(*next_hop, 1),
            Some(NexthopObject::Group(members)) => {
                let next_hop = |&(member, weight): &(u32, u16)| match self.objects.get(&member) {
                    Some(NexthopObject::Single(next_hop)) => Some(NextHopSpec { weight, ..*next_hop }),
                    _ => None,
                };
                members.iter().filter_map(next_hop).collect()
            }
            Some(NexthopObject::Blackhole) | None => NextHopSpecs::new(),
        }
    }

    /// Updates the treatment of a path and of the paths that contain it.
    pub(super) fn refresh(&mut self, id: NextHopId) {
        let (alive, hop) = match &self.paths[id as usize].spec {
            None => return,
            Some(PathSpec::Fixed(kind)) => (true, NextHop { kind: *kind, ..NextHop::default() }),
            Some(PathSpec::NextHops { v6, mtu, next_hops }) if next_hops.len() == 1 => {
                self.resolve_single(&next_hops[0], *v6, *mtu)
            }
            Some(PathSpec::Object { id: object, .. })
                if matches!(self.objects.get(object), Some(NexthopObject::Blackhole)) =>
            {
                (true, NextHop { kind: NextHopKind::Blackhole, ..NextHop::default() })
            }
            Some(_) => self.resolve_group(id),
        };
        let path = &mut self.paths[id as usize];
        let flips = path.alive != alive;
        path.alive = alive;
        if flips {
            self.liveness_changed.push(id);
        }
        if !self.set_hop(id, hop) && !flips {
            return;
        }
        for user in self.users.get(&id).cloned().unwrap_or_default() {
            self.refresh(user);
        }
    }

    /// Sets the treatment of a path. Returns whether it was another one.
    pub(super) fn set_hop(&mut self, id: NextHopId, hop: NextHop) -> bool {
        let before = *self.hops.get(id);
        if before == hop {
            return false;
        }
        self.hops.set(id, hop);
        self.note_change(concerns_flows(&before, &hop));
        true
    }

    /// Treatment of a path with one next hop: a neighbour, or all neighbours on a link.
    fn resolve_single(&self, next_hop: &NextHopSpec, v6: bool, mtu: u16) -> (bool, NextHop) {
        let link = self.links.get(&next_hop.interface);
        let ignored = |link: &&Link| !link.carrier && self.ignore_down.contains(&(link.index, v6));
        let Some(link) = link.filter(|link| link.up && !ignored(link)) else {
            return (false, NextHop::default());
        };
        let (false, Some(port)) = (next_hop.kernel_only, self.port(next_hop.interface)) else {
            return (
                true,
                NextHop { kind: NextHopKind::Punt, interface: next_hop.interface, ..NextHop::default() },
            );
        };
        let link_mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
        let mtu = if mtu == 0 { link_mtu } else { mtu.min(link_mtu) };
        let hop = NextHop {
            kind: NextHopKind::Resolve,
            interface: next_hop.interface,
            port,
            mtu,
            gateway: next_hop.gateway,
            ..NextHop::default()
        };
        let neighbor =
            next_hop.gateway.and_then(|gateway| self.neighbors.get(&(next_hop.interface, gateway)));
        (true, neighbor.map_or(hop, |neighbor| apply_neighbor(hop, neighbor, link)))
    }

    /// Treatment of a path that consists of others.
    fn resolve_group(&mut self, id: NextHopId) -> (bool, NextHop) {
        let parts = &self.paths[id as usize].parts;
        let alive: Vec<_> = parts.iter().filter(|(part, _)| self.is_alive(*part)).copied().collect();
        let before = *self.hops.get(id);
        match alive[..] {
            [] => (false, self.groups.clear(&before)),
            [(one, _)] => {
                self.groups.release(&before);
                (true, *self.hops.get(one))
            }
            _ => (true, self.groups.set(&mut self.hops, id, before, &alive)),
        }
    }
}

/// Whether a change from one treatment to another concerns flows that are forwarded by the path, or whose
/// sources a reverse path filter has found there.
fn concerns_flows(old: &NextHop, new: &NextHop) -> bool {
    use NextHopKind::{Failed, Forward, NoRoute, Resolve};
    match (old.kind, new.kind) {
        // No entry of a table leads to a path that is new, dead or released. What did changes, too.
        (NoRoute, _) | (Resolve | Failed, NoRoute) => false,
        // Nothing is forwarded to a neighbour without an address.
        (Resolve | Failed, Resolve | Failed | Forward) => old.port != new.port,
        // The fast path learns nothing while a neighbour is stale.
        (Forward, Forward) => !old.neighbor_stale || old.port != new.port,
        _ => true,
    }
}

/// Applies the state of a neighbour to a next hop.
fn apply_neighbor(mut hop: NextHop, neighbor: &Neighbor, link: &Link) -> NextHop {
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
