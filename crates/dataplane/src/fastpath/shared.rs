//! What of the fast path crosses threads: which generation is in force, and which ports there are.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mmb_dpdk::{FastGranularity, FastKey, FastPort};
use mmb_policy::PortDependence;

use super::Kernel;
use crate::engine::config::MAX_PORTS;

/// A port that the kernel may send from and to by itself.
#[derive(Clone)]
pub(crate) struct FastEnd {
    /// What it is to the kernel; no other port ever is.
    pub number: FastPort,
    /// Its interface takes frames that are redirected to it, as far as is known.
    pub redirects: Arc<AtomicBool>,
}

/// The fast path of one snapshot.
#[derive(Clone)]
pub(crate) struct FastSetup {
    pub kernel: Arc<dyn Kernel>,
    /// It is switched on, and the policy is one for it.
    pub learns: bool,
    /// There are no rules: what becomes of a packet is settled by where it comes in and goes to, if routes have one next hop each.
    pub plain: bool,
    /// No packets need sessions, and of some ports do not count: of which. If routes have one next hop each, what becomes of one of them
    /// is what becomes of all between its addresses.
    pub pairs: Option<PortDependence>,
    /// By port id.
    pub ends: [Option<FastEnd>; MAX_PORTS],
}

impl FastSetup {
    /// Whether another's entries are this one's.
    pub(super) fn has_kernel_of(&self, other: &FastSetup) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.kernel), Arc::as_ptr(&other.kernel))
    }

    /// A port at which packets of flows may come in.
    pub(super) fn from(&self, port: u16) -> Option<&FastEnd> {
        self.ends.get(usize::from(port))?.as_ref()
    }

    /// What settles where packets go. `spread`: some route has several next hops.
    pub fn granularity(&self, spread: bool) -> FastGranularity {
        match &self.pairs {
            _ if spread => FastGranularity::Flow,
            _ if self.plain => FastGranularity::Destination,
            Some(_) => FastGranularity::Pair,
            None => FastGranularity::Flow,
        }
    }

    /// Whether a flow that comes in by a port is treated as all others between its addresses are, but for where routes lead.
    pub(super) fn is_pair(&self, port: u16, key: &FastKey) -> bool {
        let alike =
            |pairs: &PortDependence| pairs.is_port_independent(port, key.proto, key.source, key.destination);
        self.pairs.as_ref().is_some_and(alike)
    }

    /// What a port is to the kernel, if it can be sent to.
    pub(super) fn to(&self, port: u16) -> Option<FastPort> {
        let end = self.from(port)?;
        end.redirects.load(Ordering::Acquire).then_some(end.number)
    }
}

/// What settles where packets go under a generation.
pub(super) fn granularity(generation: u64) -> FastGranularity {
    match generation & (BY_DESTINATION | BY_PAIR) {
        BY_DESTINATION => FastGranularity::Destination,
        BY_PAIR => FastGranularity::Pair,
        _ => FastGranularity::Flow,
    }
}

/// In a generation: where packets go is settled by their destinations.
const BY_DESTINATION: u64 = 1 << 1;
/// … or, of some of them, by both addresses.
const BY_PAIR: u64 = 1 << 2;

/// Which generation of entries the kernel heeds.
///
/// It is made of the numbers of the snapshot and of the routes in force, and of how often a port has proved unable to take frames.
/// Whoever changes one of these writes the new generation before anybody is told that the change is made; a worker gives its
/// entries the generation of what it has worked with. So entries that come late are not heeded, and need not be found.
#[derive(Default)]
pub(crate) struct FastShared {
    in_force: AtomicU64,
    changes: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    setup: Option<Arc<FastSetup>>,
    snapshot: u64,
    routes: u64,
    /// Some route has several next hops.
    spread: bool,
}

impl FastShared {
    /// The generation that the kernel heeds; 0: none.
    pub fn in_force(&self) -> u64 {
        self.in_force.load(Ordering::Acquire)
    }

    /// The generation of what is learnt now with this snapshot and these routes, and what settles where packets go by these.
    /// It is to be asked for before ports are asked whether they take frames.
    pub fn generation(&self, snapshot: u64, routes: u64, granularity: FastGranularity) -> u64 {
        // Numbers that come again after millions of publications do no harm: no entry lasts as long. Never 0, and below 2^62.
        let changes = u64::from(self.changes.load(Ordering::Acquire));
        let granularity = match granularity {
            FastGranularity::Flow => 0,
            FastGranularity::Destination => BY_DESTINATION,
            FastGranularity::Pair => BY_PAIR,
        };
        (snapshot & 0x3f_ffff) << 40 | (routes & 0xfff_ffff) << 12 | (changes & 0x1ff) << 3 | granularity | 1
    }

    fn settle(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.setup.clone();
        change(&mut state);
        let State { setup, snapshot, routes, spread } = &*state;
        let generation = match setup {
            Some(setup) if setup.learns => self.generation(*snapshot, *routes, setup.granularity(*spread)),
            _ => 0,
        };
        if let Some(before) = before {
            let stays = |setup: &Arc<FastSetup>| setup.has_kernel_of(&before);
            if !state.setup.as_ref().is_some_and(stays) {
                before.kernel.set_generation(0, FastGranularity::Flow);
            }
        }
        if let Some(setup) = &state.setup {
            setup.kernel.set_generation(generation, granularity(generation));
        }
        self.in_force.store(generation, Ordering::Release);
    }

    /// Another snapshot is in force.
    pub fn publish(&self, setup: Option<Arc<FastSetup>>, snapshot: u64) {
        self.settle(|state| (state.setup, state.snapshot) = (setup, snapshot));
    }

    /// Other routes are in force, or other addresses are local. `spread` says of those that are in force when it is asked whether some
    /// have several next hops.
    pub fn publish_routes(&self, routes: u64, spread: impl FnOnce() -> bool) {
        self.settle(|state| (state.routes, state.spread) = (state.routes.max(routes), spread()));
    }

    /// A port takes no frames any more, or takes them from now on.
    pub fn ends_changed(&self) {
        self.settle(|_| {
            self.changes.fetch_add(1, Ordering::AcqRel);
        });
    }

    /// Whether flows are learnt.
    pub fn learns(&self) -> bool {
        self.in_force() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    fn setup(kernel: &Arc<Fake>, learns: bool) -> Option<Arc<FastSetup>> {
        let ends = std::array::from_fn(|_| None);
        Some(Arc::new(FastSetup { kernel: kernel.clone(), learns, plain: true, pairs: None, ends }))
    }

    #[test]
    fn what_settles_where_packets_go() {
        let (kernel, shared) = (Arc::new(Fake::default()), FastShared::default());
        for (plain, pairs, one, spread) in [
            (true, false, FastGranularity::Destination, FastGranularity::Flow),
            (true, true, FastGranularity::Destination, FastGranularity::Flow),
            (false, true, FastGranularity::Pair, FastGranularity::Flow),
            (false, false, FastGranularity::Flow, FastGranularity::Flow),
        ] {
            let pairs = pairs.then(PortDependence::default);
            let setup =
                setup(&kernel, true).map(|setup| FastSetup { plain, pairs, ..FastSetup::clone(&setup) });
            shared.publish(setup.map(Arc::new), 1);
            for (n, wanted) in [(1, one), (2, spread), (3, one)] {
                shared.publish_routes(n, || n == 2);
                assert_eq!((kernel.granularity(), granularity(shared.in_force())), (wanted, wanted));
            }
        }
    }

    #[test]
    fn every_change_is_another_generation_at_once() {
        let (kernel, shared) = (Arc::new(Fake::default()), FastShared::default());
        assert_eq!(shared.in_force(), 0);
        let mut seen = vec![0];
        let mut next = |n: u64, r: u64, plain: bool| {
            let granularity = if plain { FastGranularity::Destination } else { FastGranularity::Flow };
            let expected = shared.generation(n, r, granularity);
            assert_eq!((kernel.generation(), shared.in_force()), (expected, expected));
            assert!(!seen.contains(&shared.in_force()));
            seen.push(shared.in_force());
        };
        shared.publish(setup(&kernel, true), 1);
        next(1, 0, true);
        shared.publish_routes(1, || false);
        next(1, 1, true);
        // Numbers of routes may be told in any order.
        shared.publish_routes(3, || false);
        shared.publish_routes(2, || false);
        next(1, 3, true);
        assert_eq!(kernel.granularity(), FastGranularity::Destination);
        shared.publish_routes(4, || true);
        next(1, 4, false);
        assert_eq!(kernel.granularity(), FastGranularity::Flow);
        shared.publish(setup(&kernel, true), 2);
        next(2, 4, false);
        shared.ends_changed();
        next(2, 4, false);
        assert!(shared.generation(u64::MAX, u64::MAX, FastGranularity::Pair) < 1 << 62);
    }

    #[test]
    fn none_is_in_force_while_nothing_is_learnt() {
        let (kernel, other, shared) =
            (Arc::new(Fake::default()), Arc::new(Fake::default()), FastShared::default());
        shared.publish(setup(&kernel, true), 1);
        assert!(shared.learns());
        shared.publish(setup(&kernel, false), 2);
        assert_eq!((kernel.generation(), shared.in_force()), (0, 0));
        shared.publish_routes(1, || false);
        assert_eq!((kernel.generation(), shared.learns()), (0, false));
        shared.publish(setup(&kernel, true), 3);
        shared.publish(setup(&other, true), 4);
        assert_eq!((kernel.generation(), other.generation()), (0, shared.in_force()));
        shared.publish(None, 5);
        assert_eq!((other.generation(), shared.in_force()), (0, 0));
    }
}
