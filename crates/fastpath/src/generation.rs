//! The generation in force, which all threads share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mmb_dpdk::FastGranularity;

use crate::config::FastPathConfig;
use crate::heartbeat::Heartbeats;

/// In a generation: keys are destinations.
const BY_DESTINATION: u64 = 1 << 1;
/// In a generation: keys of address pairs exist.
const BY_PAIR: u64 = 1 << 2;

/// The granularity of a generation's keys.
pub(crate) fn granularity(generation: u64) -> FastGranularity {
    match generation & (BY_DESTINATION | BY_PAIR) {
        BY_DESTINATION => FastGranularity::Destination,
        BY_PAIR => FastGranularity::Pair,
        _ => FastGranularity::Flow,
    }
}

/// Which generation of entries the kernel obeys.
///
/// # Theory of operation
/// A generation consists of the number of the published snapshot, of how often routes have changed in a way
/// that may concern forwarded flows, and of how often a port gained or lost the ability to take frames. A
/// publication writes the new generation before it returns. A worker stamps its entries with the generation
/// of the configuration that it has used. So entries that arrive late are ignored and need not be found.
#[derive(Default)]
pub struct FastPathState {
    in_force: AtomicU64,
    port_changes: AtomicU32,
    published: Mutex<Published>,
    pub(crate) heartbeats: Heartbeats,
}

#[derive(Default)]
struct Published {
    config: Option<Arc<FastPathConfig>>,
    snapshot: u64,
    routes: u64,
    /// Some route has several next hops.
    is_multipath: bool,
}

impl FastPathState {
    /// The generation that the kernel obeys; 0: none.
    pub fn in_force(&self) -> u64 {
        self.in_force.load(Ordering::Acquire)
    }

    /// Whether flows are learned.
    pub fn is_learning(&self) -> bool {
        self.in_force() != 0
    }

    /// The generation of what is learned now with this snapshot, these routes and this granularity. It must
    /// be read before the ports' state is. Never 0, and below 2^62.
    pub fn generation(&self, snapshot: u64, routes: u64, granularity: FastGranularity) -> u64 {
        // Numbers that wrap after millions of publications do no harm: no entry lasts as long.
        let changes = u64::from(self.port_changes.load(Ordering::Acquire));
        let granularity = match granularity {
            FastGranularity::Flow => 0,
            FastGranularity::Destination => BY_DESTINATION,
            FastGranularity::Pair => BY_PAIR,
        };
        (snapshot & 0x3f_ffff) << 40 | (routes & 0xfff_ffff) << 12 | (changes & 0x1ff) << 3 | granularity | 1
    }

    /// Applies a change and puts the resulting generation in force.
    fn update(&self, change: impl FnOnce(&mut Published)) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let before = published.config.clone();
        change(&mut published);
        let Published { config, snapshot, routes, is_multipath } = &*published;
        let generation = match config {
            Some(config) if config.is_learning => {
                self.generation(*snapshot, *routes, config.granularity(*is_multipath))
            }
            _ => 0,
        };
        if let Some(before) = before {
            let is_same = |config: &Arc<FastPathConfig>| config.has_same_kernel(&before);
            if !config.as_ref().is_some_and(is_same) {
                before.kernel.set_generation(0, FastGranularity::Flow);
            }
        }
        if let Some(config) = config {
            config.kernel.set_generation(generation, granularity(generation));
        }
        self.in_force.store(generation, Ordering::Release);
    }

    /// Puts another snapshot in force.
    pub fn publish(&self, config: Option<Arc<FastPathConfig>>, snapshot: u64) {
        self.update(|published| (published.config, published.snapshot) = (config, snapshot));
    }

    /// Puts routes or local addresses in force by which flows may be forwarded otherwise. `is_multipath`
    /// tells whether a current route has several next hops.
    pub fn publish_routes(&self, routes: u64, is_multipath: impl FnOnce() -> bool) {
        self.update(|published| {
            (published.routes, published.is_multipath) = (published.routes.max(routes), is_multipath());
        });
    }

    /// Starts a new generation after a port gained or lost the ability to take frames.
    pub fn ports_changed(&self) {
        self.update(|_| {
            self.port_changes.fetch_add(1, Ordering::AcqRel);
        });
    }
}

#[cfg(test)]
mod tests;
