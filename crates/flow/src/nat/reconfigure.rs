//! The change to another configuration.

use std::collections::HashMap;
use std::sync::Arc;

use super::config::{ForwardConfig, NatConfig};
use super::mappings::{Mapping, MappingKind};
use super::ownership;
use super::pool::Pool;
use super::state::Nat;
use super::types::HostLocation;

/// A static forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forward {
    pub(super) config: ForwardConfig,
    /// Its mapping, if this worker owns the internal host.
    pub(super) id: Option<u32>,
    /// Location of the internal host, if it is known.
    pub(super) location: Option<HostLocation>,
}

impl Nat {
    /// Changes to another configuration.
    ///
    /// A pool keeps its allocations if name, ports and blocks are unchanged and its addresses are the same or
    /// were extended at the end. Unchanged forwards keep their mappings too. All other mappings end: they
    /// serve no new sessions, and are removed with their last session.
    pub fn adopt(&mut self, config: Arc<NatConfig>) {
        if Arc::ptr_eq(&self.config, &config) {
            return;
        }
        if self.config.pools().is_empty() && !config.pools().is_empty() {
            self.mappings.allocate();
            self.hosts.allocate();
        }
        let forwards = self.take_kept_forwards(&config);
        self.adopt_pools(&config);
        self.config = config;
        self.adopt_forwards(forwards);
        self.has_removed_pools = self.pools.iter().flatten().any(|pool| !pool.current);
    }

    fn adopt_pools(&mut self, config: &NatConfig) {
        let mut old = std::mem::take(&mut self.slots);
        for pool in config.pools() {
            let kept = old.iter().position(|&slot| {
                self.pools
                    .get(usize::from(slot))
                    .and_then(Option::as_ref)
                    .is_some_and(|old| pool.extends(&old.config))
            });
            let slot = match kept {
                Some(at) => {
                    let slot = old.swap_remove(at);
                    if let Some(Some(kept)) = self.pools.get_mut(usize::from(slot)) {
                        kept.grow(pool.clone());
                    }
                    slot
                }
                None => self.add_pool(self.new_pool(pool)),
            };
            self.slots.push(slot);
        }
        for slot in old {
            let Some(entry) = self.pools.get_mut(usize::from(slot)) else { continue };
            if let Some(pool) = entry {
                pool.current = false;
            }
            entry.take_if(|pool| pool.mappings == 0);
        }
    }

    /// Stores a pool in a free slot and returns the slot.
    fn add_pool(&mut self, pool: Pool) -> u16 {
        if let Some(slot) = self.pools.iter().position(Option::is_none) {
            self.pools[slot] = Some(pool);
            return slot as u16;
        }
        self.pools.push(Some(pool));
        (self.pools.len() - 1) as u16
    }

    /// Removes the forwards that are not in the configuration, and returns the others.
    fn take_kept_forwards(&mut self, config: &NatConfig) -> HashMap<ForwardConfig, Forward> {
        let mut kept: HashMap<ForwardConfig, Forward> =
            self.forwards.drain(..).map(|forward| (forward.config, forward)).collect();
        let stay: std::collections::HashSet<_> = config.forwards().iter().collect();
        kept.retain(|_, forward| {
            let stays = stay.contains(&forward.config);
            if !stays {
                let (proto, external) = (forward.config.proto(), forward.config.external());
                self.pools.iter_mut().flatten().for_each(|pool| {
                    pool.reserve(external, proto, false);
                });
                if let Some(id) = forward.id {
                    self.mappings.end(id, None);
                    if self.mappings.unpin(id) {
                        self.mappings.remove(id, None);
                    }
                }
            }
            stays
        });
        kept
    }

    fn adopt_forwards(&mut self, mut kept: HashMap<ForwardConfig, Forward>) {
        let config = self.config.clone();
        for (n, &forward) in (0u32..).zip(config.forwards()) {
            let (proto, external, internal) = (forward.proto(), forward.external(), forward.internal());
            self.pools.iter_mut().flatten().filter(|pool| pool.current).for_each(|pool| {
                pool.reserve(external, proto, true);
            });
            if let Some(kept) = kept.remove(&forward) {
                if let Some(id) = kept.id {
                    self.mappings.renumber(id, n);
                }
                self.forwards.push(kept);
                continue;
            }
            // A host may use that port. Its mapping ends: the forward has priority.
            if let Some(id) = self.at_outside(proto.number(), external)
                && let Some(ends) = self.mappings.get(id).and_then(|mapping| self.ends_of(mapping))
            {
                self.mappings.end(id, Some(&ends));
            }
            let mine = ownership::host_worker(internal.address, self.workers) == self.worker;
            let mapping =
                || Mapping::new(proto.number(), MappingKind::Forward(n), internal.port, external.port);
            let id = if mine { self.mappings.add_forward(mapping()) } else { None };
            if let Some(id) = id {
                self.mappings.pin(id);
            }
            self.forwards.push(Forward { config: forward, id, location: None });
        }
    }
}
