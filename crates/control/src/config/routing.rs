//! Routed interfaces, and the ports that they need besides their own.
//!
//! Theory of operation. Every routed port has a kernel interface with its addresses, by which the kernel
//! takes part in the network. For an AF_XDP port this is the interface that the port is bound to. Packets
//! from mmb to the kernel go through one TAP, [`PUNT`], for all AF_XDP ports. Every other routed port gets a
//! TAP twin, which has the name of the port in the kernel. Twins and the TAP are ports of the engine that the
//! operator does not see. Their ids are allocated from the highest down, those of interfaces from the lowest
//! up.

use std::sync::Arc;

use mmb_dataplane::{Forwarding, MAX_PORTS, PortConfig, PortId, Routed};
use mmb_lang::{PortKind, Word};
use mmb_router::RoutedPort;

use super::Config;
use super::devices::{Device, DeviceKind, PUNT, broker_tap, kernel_interface};
use super::interfaces::{Interface, Routing, no_free_port};
use crate::error::CommandError;

/// Maximum length of the name of a kernel interface (IFNAMSIZ without the final zero), in bytes.
const MAX_NAME: usize = 15;

impl Interface {
    /// Whether the port is an AF_XDP port, whose addresses are those of the kernel interface that it is bound
    /// to.
    pub(crate) fn is_xdp(&self) -> bool {
        matches!(self.kind, PortKind::AfXdp { .. })
    }

    /// The kernel interface with the addresses of a routed port; none if the port is not routed.
    pub fn kernel_name(&self) -> Option<&str> {
        self.routed?;
        match &self.kind {
            PortKind::AfXdp { ifname } => Some(ifname),
            _ => Some(&self.name),
        }
    }
}

impl Config {
    /// Routes the packets received on these interfaces. Twins get the ids that they have in `earlier`.
    ///
    /// # Errors
    /// An interface does not exist or is wired, its twin cannot have its name, or no port id is free.
    pub fn route(&mut self, names: &[Word], earlier: Option<&Config>) -> Result<(), CommandError> {
        for name in names {
            let at = self.position(name)?;
            let interface = &self.interfaces[at];
            if let Some(peer) = interface.peer.and_then(|id| self.interface_by_id(id)) {
                let message = format!(
                    "interface `{}` is wired to `{}`, and so cannot be routed",
                    interface.name, peer.name
                );
                let error = CommandError::conflict(message, name.span);
                return Err(error.help(format!("`wire del {}` first", interface.name)));
            }
            self.set_routed(at, name, earlier)?;
        }
        Ok(())
    }

    /// Ends the routing of an interface.
    ///
    /// # Errors
    /// There is no such interface, or it is not routed.
    pub fn unroute(&mut self, name: &Word) -> Result<(), CommandError> {
        let at = self.position(name)?;
        if self.interfaces[at].routed.is_none() {
            let message = format!("interface `{}` is not routed", &**name);
            return Err(CommandError::conflict(message, name.span));
        }
        Arc::make_mut(&mut self.interfaces)[at].routed = None;
        self.update_punt(name, None)
    }

    /// Makes the interface at `at` a routed one, with a twin if its device needs one.
    pub(super) fn set_routed(
        &mut self,
        at: usize,
        name: &Word,
        earlier: Option<&Config>,
    ) -> Result<(), CommandError> {
        let interface = &self.interfaces[at];
        let twin = match interface.routed.and_then(|routing| routing.twin) {
            _ if interface.is_xdp() => None,
            Some(twin) => Some(twin),
            None => {
                self.check_twin_name(name)?;
                let keep = earlier.and_then(|c| c.interface(name)?.routed?.twin);
                Some(self.hidden_port(keep, earlier).ok_or_else(|| no_free_port(name.span))?)
            }
        };
        Arc::make_mut(&mut self.interfaces)[at].routed = Some(Routing { twin });
        self.update_punt(name, earlier)
    }

    /// Adds a port for [`PUNT`] if a routed AF_XDP port needs it, and removes it if none does.
    fn update_punt(&mut self, name: &Word, earlier: Option<&Config>) -> Result<(), CommandError> {
        let is_needed = self.interfaces.iter().any(|i| i.routed.is_some() && i.is_xdp());
        self.punt = match self.punt {
            _ if !is_needed => None,
            Some(punt) => Some(punt),
            None => {
                if let Some(other) = self.interface_on(PUNT) {
                    let message = format!(
                        "interface `{}` uses {PUNT}, by which routed AF_XDP ports reach the kernel",
                        other.name
                    );
                    let error = CommandError::conflict(message, name.span);
                    return Err(error.help(format!("`interface del {}` first", other.name)));
                }
                let keep = earlier.and_then(|c| c.punt);
                Some(self.hidden_port(keep, earlier).ok_or_else(|| no_free_port(name.span))?)
            }
        };
        Ok(())
    }

    /// Checks that a twin can have the name of its interface in the kernel.
    fn check_twin_name(&self, name: &Word) -> Result<(), CommandError> {
        // Names of directories in /proc and /sys, and of the settings for all interfaces, cannot be
        // interfaces.
        let is_reserved = matches!(&**name, "." | ".." | "default" | PUNT) || name.len() > MAX_NAME;
        let message = if is_reserved {
            format!("the twin of interface `{0}` cannot have the name {0} in the kernel", &**name)
        } else if let Some(other) = self.interface_on(name) {
            format!(
                "the twin of interface `{0}` cannot have the name {0} in the kernel: interface `{1}` uses {0}",
                &**name, other.name
            )
        } else {
            return Ok(());
        };
        Err(CommandError::conflict(message, name.span).help("give the interface another name".to_owned()))
    }

    /// The interface whose port uses a kernel interface.
    fn interface_on(&self, ifname: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|i| kernel_interface(&i.kind) == Some(ifname))
    }

    /// The purpose of a kernel interface that mmb creates itself; none for others.
    pub(super) fn own_kernel_interface(&self, ifname: &str) -> Option<String> {
        let twin = |i: &&Interface| i.name == *ifname && i.routed.is_some_and(|r| r.twin.is_some());
        match self.interfaces.iter().find(twin) {
            Some(i) => Some(format!("it is the twin of the routed interface `{}`", i.name)),
            None if self.punt.is_some() && ifname == PUNT => {
                Some("routed AF_XDP ports reach the kernel by it".to_owned())
            }
            None => None,
        }
    }

    /// All port ids in use.
    fn ports(&self) -> impl Iterator<Item = PortId> {
        let twins = self.interfaces.iter().filter_map(|i| i.routed?.twin);
        self.interfaces.iter().map(|i| i.id).chain(twins).chain(self.punt).chain(self.brokers.ports())
    }

    /// Whether a port id is in use.
    pub(crate) fn has_port(&self, id: PortId) -> bool {
        self.ports().any(|port| port == id)
    }

    /// Port ids that are free here and in `earlier`, from the lowest up.
    pub(super) fn free_ports<'a>(
        &'a self,
        earlier: Option<&'a Config>,
    ) -> impl DoubleEndedIterator<Item = PortId> + 'a {
        let is_taken = move |id: PortId| self.has_port(id) || earlier.is_some_and(|c| c.has_port(id));
        (0..MAX_PORTS as u16).map(PortId).filter(move |&id| !is_taken(id))
    }

    /// An id for a twin, for [`PUNT`] or for a broker: `keep` if it is free, else the highest free one.
    pub(super) fn hidden_port(&self, keep: Option<PortId>, earlier: Option<&Config>) -> Option<PortId> {
        keep.filter(|&id| !self.has_port(id)).or_else(|| self.free_ports(earlier).next_back())
    }

    /// The devices of the interfaces and of the ports of brokers for which `is_up` holds. The device of an
    /// interface comes before its twin.
    pub(crate) fn devices(&self, is_up: impl Fn(PortId) -> bool) -> Vec<Device> {
        let mut devices = Vec::new();
        let mut needs_punt = false;
        for i in self.interfaces.iter().filter(|i| is_up(i.id)) {
            let device = |id, kind| Device { id, interface: Some(i.id), name: i.name.clone(), kind };
            devices.push(device(i.id, DeviceKind::Port(i.kind.clone())));
            devices.extend(i.routed.and_then(|r| r.twin).map(|twin| device(twin, DeviceKind::Twin)));
            needs_punt |= i.routed.is_some() && i.is_xdp();
        }
        if let Some(id) = self.punt.filter(|_| needs_punt) {
            devices.push(Device { id, interface: None, name: PUNT.to_owned(), kind: DeviceKind::Punt });
        }
        devices.extend(self.brokers.ports().filter(|&id| is_up(id)).map(|id| Device {
            id,
            interface: None,
            name: broker_tap(id),
            kind: DeviceKind::Broker,
        }));
        devices
    }

    /// The configuration of the engine, with the interfaces for which `is_up` holds.
    pub fn forwarding(&self, is_up: impl Fn(PortId) -> bool) -> Forwarding {
        let mut ports = Vec::new();
        let hidden = |id, peer| PortConfig { id, peer, enabled: false, routed: None, reverse_path: None };
        let mut punt = None;
        for i in self.interfaces.iter().filter(|i| is_up(i.id)) {
            let twin = i.routed.and_then(|r| r.twin);
            if i.routed.is_some() && i.is_xdp() {
                punt = self.punt;
            }
            let routed = i
                .routed
                .map(|_| Routed { punt: if i.is_xdp() { self.punt } else { twin }, is_broker: false });
            let (peer, enabled, reverse_path) = (i.peer, i.enabled, i.reverse_path);
            ports.push(PortConfig { id: i.id, peer, enabled, routed, reverse_path });
            // Packets that the kernel sends through a twin leave by its port, unchanged.
            ports.extend(twin.map(|twin| hidden(twin, Some(i.id))));
        }
        ports.extend(punt.map(|punt| hidden(punt, None)));
        ports.extend(self.brokers.ports().filter(|&id| is_up(id)).map(PortConfig::broker));
        Forwarding {
            policy: self.policy.clone(),
            on_error: self.on_error,
            address_checks: self.address_checks,
            nat: self.nat.compiled().clone(),
            settings: self.settings,
            punt_limits: self.punt_limits,
            chains: self.chains.program().clone(),
            fast_path: self.fast_path,
            worker_mode: self.worker_mode,
            keeps_segments: self.keeps_segments,
            ports,
        }
    }

    /// The routed ports for which `is_up` holds, for the mirror of the kernel's routes.
    pub(crate) fn routed_ports(&self, is_up: impl Fn(PortId) -> bool) -> Vec<RoutedPort> {
        let routed = |i: &Interface| {
            let device = match &i.kind {
                PortKind::AfXdp { .. } => mmb_router::Device::Xdp,
                PortKind::AfPacket { ifname } => mmb_router::Device::Twin { real: Some(ifname.clone()) },
                _ => mmb_router::Device::Twin { real: None },
            };
            let ifname = i.kernel_name()?.to_owned();
            Some(RoutedPort { port: i.id.0, name: i.name.clone(), ifname, device })
        };
        self.interfaces.iter().filter(|i| is_up(i.id)).filter_map(routed).collect()
    }
}

#[cfg(test)]
mod tests;
