//! `nat pool` and `nat forward`, and pools that follow the addresses of interfaces.

use std::net::Ipv4Addr;

use mmb_lang::{Endpoint4, NatForward, NatPool, NatProto, Word};
use mmb_system::log;

use super::control::Control;
use crate::api::Done;
use crate::config::Config;
use crate::error::CommandError;

impl Control {
    /// `nat pool add`.
    pub(crate) fn add_pool(&self, pool: &NatPool) -> Result<Done, CommandError> {
        let unrouted = self.add(|config| {
            config.add_pool(pool)?;
            let interface = pool.addresses.interface().and_then(|name| config.interface(name));
            Ok(interface.filter(|interface| interface.routed.is_none()).map(|i| i.name.clone()))
        })?;
        let warning =
            |name| format!("interface `{name}` is not routed: the pool has no address until `route {name}`");
        let warnings = unrouted.map(warning).into_iter().collect();
        Ok(Done { warnings, ..Done::new(format!("NAT pool {} added", &*pool.name)) })
    }

    /// `nat pool del`.
    pub(crate) fn delete_pool(&self, name: &Word) -> Result<Done, CommandError> {
        self.change(|config| config.delete_pool(name))?;
        Ok(Done::new(format!("NAT pool {} deleted", &**name)))
    }

    /// `nat forward add`.
    pub(crate) fn add_forward(&self, forward: &NatForward) -> Result<Done, CommandError> {
        self.add(|config| config.nat_mut().add_forward(forward))?;
        let NatForward { proto, outside, inside } = forward;
        Ok(Done::new(format!("{proto} {outside} is forwarded to {inside}")))
    }

    /// `nat forward del`.
    pub(crate) fn delete_forward(&self, proto: NatProto, outside: Endpoint4) -> Result<Done, CommandError> {
        self.change(|config| config.nat_mut().delete_forward(proto, outside))?;
        Ok(Done::new(format!("{proto} {outside} is no longer forwarded")))
    }

    /// Gives pools that follow interfaces the present addresses.
    pub(super) fn follow_addresses(&self) {
        let is_current = |config: &Config| *config.nat().followed() == self.addresses().followed(config);
        if is_current(&self.state().config) {
            return;
        }
        let (_turn, state) = self.begin();
        let mut next = state.clone();
        let new = self.addresses().followed(&next.config);
        let mut lines = Vec::new();
        for name in new.keys().chain(state.config.nat().followed().keys()) {
            let address = new.get(name);
            if address == state.config.nat().followed().get(name) {
                continue;
            }
            let address = address.map_or_else(|| "no address".to_owned(), Ipv4Addr::to_string);
            let pools = state.config.nat().followers(name);
            lines.extend(pools.map(|pool| format!("nat: pool {}: {name} has {address}\n", &*pool.name)));
        }
        lines.sort_unstable();
        lines.dedup();
        next.config.nat_mut().follow(new);
        let refused = next.config.nat().refused().iter();
        lines.extend(refused.map(|(pool, error)| format!("nat: pool {pool} has no address: {error}\n")));
        match self.transition(state, &next) {
            Ok(()) => self.commit(next),
            Err(error) => lines.push(format!("nat: pools keep their addresses: {}\n", error.reason())),
        }
        log::error(lines.concat());
    }
}
