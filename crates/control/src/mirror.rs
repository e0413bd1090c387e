//! The mirror of the kernel's routes and neighbours: there while a port is routed.
//!
//! Theory of operation. [`mmb_router::Router`] has a thread that listens to the kernel and publishes routes to the engine. It
//! is started for the first routed port and ends with the last one, so that a daemon that routes nothing has none of it. It
//! is told the routed ports before the engine is told to route by them, and that ports are routed no more after the engine is:
//! in between it knows those of both. Only changes start, stop and tell it, one at a time; queries run beside them.

use std::io::{self, Write};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mmb_dataplane::Engine;
use mmb_route::Routes;
use mmb_router::{RoutedPort, Router, RouterError};

use crate::control::State;

/// What the mirror is to be of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    ports: Vec<RoutedPort>,
    /// Addresses of NAT pools and forwards: packets for them are ours even if the machine has them, too.
    keep: Vec<RangeInclusive<IpAddr>>,
}

impl Plan {
    /// What this state asks for.
    pub fn of(state: &State) -> Plan {
        let ports = state.config.routed_ports(|id| state.is_up(id));
        let keep = if ports.is_empty() { Vec::new() } else { state.config.nat().outside() };
        Plan { ports, keep }
    }

    /// Both: what `later` says counts for ports of either.
    pub fn and(&self, later: &Plan) -> Plan {
        let mut both = later.clone();
        let gone = self.ports.iter().filter(|old| later.ports.iter().all(|new| new.port != old.port));
        both.ports.extend(gone.cloned());
        let gone = self.keep.iter().filter(|range| !later.keep.contains(range));
        both.keep.extend(gone.cloned());
        both
    }
}

/// The router, if there is one, and what it was told.
#[derive(Default)]
pub(crate) struct Mirror {
    router: RwLock<Option<Router>>,
    /// None: nothing yet, or it could not do what it was told last.
    told: Mutex<Option<Plan>>,
}

impl Mirror {
    /// Makes it mirror this; returns when the engine has the routes.
    ///
    /// # Errors
    /// The router's. What it mirrors then is of no use until it is told again.
    pub fn set(&self, engine: &Arc<Engine>, plan: Plan) -> Result<(), RouterError> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.as_ref() == Some(&plan) {
            return Ok(());
        }
        if plan.ports.is_empty() {
            *told = Some(plan);
            let router = self.router.write().unwrap_or_else(PoisonError::into_inner).take();
            if router.is_some() {
                // It waits for its thread, which queries need not.
                drop(router);
                // Nobody goes by the routes any more; there may be a million.
                engine.publish_routes(Routes::default());
            }
            return Ok(());
        }
        *told = None;
        if self.ask(|_| ()).is_none() {
            let router = Router::start(engine.clone())?;
            *self.router.write().unwrap_or_else(PoisonError::into_inner) = Some(router);
        }
        self.ask(|router| router.set_ports(plan.ports.clone(), plan.keep.clone())).transpose()?;
        *told = Some(plan);
        Ok(())
    }

    /// The same where a failure leaves nothing to be undone: it is a line of the log.
    pub fn set_if_possible(&self, engine: &Arc<Engine>, plan: Plan) {
        if let Err(error) = self.set(engine, plan) {
            // A log that cannot be written is no reason to stop.
            let _ = writeln!(io::stderr(), "routes: {error}");
        }
    }

    /// Asks the router, if there is one.
    pub fn ask<T>(&self, question: impl FnOnce(&Router) -> T) -> Option<T> {
        self.router.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(question)
    }
}

#[cfg(test)]
mod tests {
    use mmb_dataplane::PortId;
    use mmb_router::Device;

    use super::*;

    #[test]
    fn in_between_there_are_the_ports_of_before_and_after() {
        let port = |id: u16, ifname: &str| RoutedPort {
            port: PortId(id),
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
        assert_eq!(before.and(&after), both);
        assert_eq!(before.and(&before), before);
    }
}
