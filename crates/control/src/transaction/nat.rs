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
        let warnings = unrouted.map(warning).into_iter().chain(shared_ports(pool)).collect();
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
        for pool in state.config.nat().pools() {
            let interface = pool.addresses.interface().map(|name| &*name.text);
            let changes =
                interface.is_some_and(|name| new.get(name) != state.config.nat().followed().get(name));
            let shared = if changes { shared_ports(pool) } else { None };
            lines.extend(shared.map(|warning| format!("nat: warning: {warning}\n")));
        }
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

/// A warning if a pool with the address of an interface gives out ports that the machine's own connections
/// use there, too: an answer to such a port goes to the host inside, and the machine's connection fails.
fn shared_ports(pool: &NatPool) -> Option<String> {
    pool.addresses.interface()?;
    let read = |name| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok();
    let reserved = read("ip_local_reserved_ports").unwrap_or_default();
    let [low, high] = overlap(pool.ports, &read("ip_local_port_range")?, &reserved)?;
    Some(format!(
        "the pool {} shares the ports {low}-{high} with connections of the machine itself: give it others (`ports \
         LO-HI`), or keep the machine from them (sysctl net.ipv4.ip_local_reserved_ports={low}-{high})",
        &*pool.name
    ))
}

/// The first and the last port that are in `ports`, and that the kernel gives out by these values of sysctl.
fn overlap(ports: [u16; 2], range: &str, reserved: &str) -> Option<[u16; 2]> {
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u16>().ok());
    let [low, high] = [ends.next()?.max(ports[0]), ends.next()?.min(ports[1])];
    let is_reserved = |port: u16| {
        reserved.trim().split(',').any(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let ends = (first.parse::<u16>(), last.parse::<u16>());
            matches!(ends, (Ok(first), Ok(last)) if (first..=last).contains(&port))
        })
    };
    let mut free = (low..=high).filter(|port| !is_reserved(*port));
    let first = free.next()?;
    Some([first, free.next_back().unwrap_or(first)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are as the kernel prints them (ip-sysctl.rst).
    #[test]
    fn ports_of_the_kernel_that_a_pool_has() {
        let all = [1, 65535];
        assert_eq!(overlap(all, "32768\t60999\n", "\n"), Some([32768, 60999]));
        assert_eq!(overlap([1024, 32767], "32768\t60999\n", "\n"), None);
        assert_eq!(overlap([50000, 65535], "32768\t60999\n", "\n"), Some([50000, 60999]));
        assert_eq!(overlap(all, "32768\t60999\n", "32768-60999\n"), None);
        assert_eq!(overlap(all, "32768\t60999\n", "8080,32768-40000,60999\n"), Some([40001, 60998]));
        assert_eq!(overlap([32768, 32768], "32768\t60999\n", ""), Some([32768, 32768]));
        assert_eq!(overlap(all, "", ""), None);
    }
}
