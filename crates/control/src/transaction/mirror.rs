//! The mirror of the kernel's routes and neighbours, which exists while a port is routed.
//!
//! Theory of operation. [`mmb_router::Router`] has a thread that listens to the kernel and publishes routes
//! to the engine. It starts with the first routed port and stops with the last. It learns about a routed port
//! before the engine does, and keeps it until the engine has dropped it; in between it mirrors for the ports
//! of both configurations. Only changes start, stop and configure it, one at a time. Queries run beside them.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mmb_dataplane::Engine;
use mmb_route::Routes;
use mmb_router::{RoutedPort, Router, RouterError, restore_settings};
use mmb_system::log;

use super::addresses::PortAddresses;
use super::engine_plane::EnginePlane;
use super::state::State;

/// The ports and addresses that the mirror has to know.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    ports: Vec<RoutedPort>,
    /// Addresses of NAT pools and forwards, and virtual addresses of rules. Packets to them stay with mmb
    /// even if the kernel has these addresses too.
    keep: Vec<RangeInclusive<IpAddr>>,
}

impl Plan {
    /// The plan for a state.
    pub fn of(state: &State) -> Plan {
        let ports = state.config.routed_ports(|id| state.is_up(id));
        let mut keep = if ports.is_empty() { Vec::new() } else { state.config.nat().outside() };
        if !ports.is_empty() {
            let mut virtuals: Vec<_> = state.config.policy().virtual_addresses().collect();
            virtuals.sort_unstable();
            virtuals.dedup();
            keep.extend(virtuals.into_iter().map(|address| address..=address));
        }
        Plan { ports, keep }
    }

    /// Ports and addresses of both plans. A port that both have is as `later` has it.
    pub fn union(&self, later: &Plan) -> Plan {
        let mut both = later.clone();
        let gone = self.ports.iter().filter(|old| later.ports.iter().all(|new| new.port != old.port));
        both.ports.extend(gone.cloned());
        let gone = self.keep.iter().filter(|range| !later.keep.contains(range));
        both.keep.extend(gone.cloned());
        both
    }
}

/// The router, if a port is routed, and the plan that it follows.
#[derive(Default)]
pub(crate) struct Mirror {
    router: RwLock<Option<Router>>,
    /// None before the first plan, and after a plan that failed.
    plan: Mutex<Option<Plan>>,
    /// The directory of what the process keeps.
    state: Option<PathBuf>,
    /// The addresses of the ports.
    addresses: Arc<PortAddresses>,
}

impl Mirror {
    /// A mirror that keeps the kernel's previous settings in the directory `state`. Restores settings that a
    /// killed process has left there.
    pub(super) fn new(state: Option<&Path>) -> Mirror {
        if let Some(state) = state {
            restore_settings(state);
        }
        Mirror { state: state.map(Path::to_owned), ..Mirror::default() }
    }

    /// Makes the router follow a plan. Returns when the engine has the routes.
    ///
    /// # Errors
    /// The router's. The routes are then undefined until a plan succeeds.
    pub(super) fn set(&self, engine: &Arc<Engine>, plan: Plan) -> Result<(), RouterError> {
        let mut current = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref() == Some(&plan) {
            return Ok(());
        }
        if plan.ports.is_empty() {
            *current = Some(plan);
            let router = self.router.write().unwrap_or_else(PoisonError::into_inner).take();
            if router.is_some() {
                // Dropping waits for the router's thread. The lock is free again, so queries do not wait.
                drop(router);
                // No port uses the routes. There may be a million of them.
                engine.publish_routes(Routes::default());
            }
            return Ok(());
        }
        *current = None;
        if self.with_router(|_| ()).is_none() {
            let plane = EnginePlane { engine: engine.clone(), addresses: self.addresses.clone() };
            let router = Router::start(Arc::new(plane), self.state.as_deref())?;
            *self.router.write().unwrap_or_else(PoisonError::into_inner) = Some(router);
        }
        self.with_router(|router| router.set_ports(plan.ports.clone(), plan.keep.clone())).transpose()?;
        *current = Some(plan);
        Ok(())
    }

    /// Makes the router follow a plan, and logs an error where nothing can be undone any more.
    pub(super) fn set_or_log(&self, engine: &Arc<Engine>, plan: Plan) {
        if let Err(error) = self.set(engine, plan) {
            log::error(format!("routes: {error}\n"));
        }
    }

    /// The addresses of the ports.
    pub(super) fn addresses(&self) -> &PortAddresses {
        &self.addresses
    }

    /// Calls `query` with the router, if it runs.
    pub fn with_router<T>(&self, query: impl FnOnce(&Router) -> T) -> Option<T> {
        self.router.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(query)
    }
}

#[cfg(test)]
mod tests {
    use mmb_router::Device;

    use super::*;

    #[test]
    fn the_union_has_the_ports_of_both_plans() {
        let port = |id: u16, ifname: &str| RoutedPort {
            port: id,
            name: format!("p{id}"),
            ifname: ifname.to_owned(),
            device: Device::Xdp,
        };
        let range = |n: u8| IpAddr::from([192, 0, 2, n])..=IpAddr::from([192, 0, 2, n]);
        let before = Plan { ports: vec![port(0, "eth0"), port(1, "eth1")], keep: vec![range(1), range(2)] };
        let after = Plan { ports: vec![port(1, "eth9"), port(2, "eth2")], keep: vec![range(2), range(3)] };
        let both = Plan {
            ports: vec![port(1, "eth9"), port(2, "eth2"), port(0, "eth0")],
            keep: vec![range(2), range(3), range(1)],
        };
        assert_eq!(before.union(&after), both);
        assert_eq!(before.union(&before), before);
    }
}
