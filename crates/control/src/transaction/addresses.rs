//! The addresses of routed ports, for NAT pools that follow them.
//!
//! Theory of operation. The mirror of the kernel's state stores the address of each routed port here, on its
//! own thread, and wakes the thread that watches interfaces. That thread gives the pools their new addresses
//! by a change like any other, so that it waits for a change in progress. The mirror never waits.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, OnceLock, PoisonError};

use mmb_dataplane::PortId;
use mmb_router::LinkWaker;

use crate::config::Config;

/// The IPv4 addresses of routed ports.
#[derive(Default)]
pub(super) struct PortAddresses {
    addresses: Mutex<BTreeMap<PortId, Ipv4Addr>>,
    /// Wakes the thread that runs `Control::follow_addresses`.
    waker: OnceLock<LinkWaker>,
}

impl PortAddresses {
    /// Sets the thread that is woken when an address changes.
    pub fn set_waker(&self, waker: LinkWaker) {
        let _ = self.waker.set(waker);
    }

    /// Stores the address of a port; none if it has none.
    pub fn set(&self, port: PortId, address: Option<Ipv4Addr>) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let old = match address {
            Some(address) => addresses.insert(port, address),
            None => addresses.remove(&port),
        };
        if old != address {
            self.wake();
        }
    }

    /// Makes the thread compare the addresses with those of the pools.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// The addresses of the interfaces that pools follow, by the interfaces' names.
    pub fn followed(&self, config: &Config) -> BTreeMap<String, Ipv4Addr> {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let followed =
            config.interfaces().iter().filter(|i| config.nat().followers(&i.name).next().is_some());
        followed.filter_map(|i| Some((i.name.clone(), *addresses.get(&i.id)?))).collect()
    }
}
