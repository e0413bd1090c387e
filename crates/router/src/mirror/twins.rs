//! TAP twins of ports, and the kernel's interfaces behind ports.
//!
//! Theory of operation. A port that is not an interface of the kernel has a twin in the kernel: a TAP that
//! carries the kernel's packets and has the addresses. The twin has the Ethernet address, the MTU and the
//! carrier of the port; they are compared twice a second. If the port uses a kernel interface through a
//! packet socket, the kernel receives each frame there, too, and must not answer or forward it a second time.
//! Settings of that interface prevent this while the port is routed, and are restored afterwards. (With
//! `disable_ipv6` the kernel removes the interface's IPv6 addresses; restoring the setting brings back only
//! the link-local one.)

use std::collections::hash_map::Entry;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use rustc_hash::FxHashMap;

use super::settings::{SavedSettings, Setting, SettingsStore};
use crate::error::PortFault;
use crate::model::{Model, link_of};
use crate::netlink::{Address, Link, NetlinkSocket};
use crate::plane::{Device, ForwardingPlane, PortNumber, PortState, RoutedPort};

/// Settings that isolate an interface: no forwarding, strict reverse-path filter, no ARP replies, no IPv6.
const ISOLATION: [(&str, &str); 5] = [
    ("ipv4/conf/{}/forwarding", "0"),
    ("ipv4/conf/{}/rp_filter", "1"),
    ("ipv4/conf/{}/arp_ignore", "8"),
    ("ipv6/conf/{}/forwarding", "0"),
    ("ipv6/conf/{}/disable_ipv6", "1"),
];

/// The TAP that carries packets to the kernel for ports that share their interface with it.
const PUNT: &str = "mmb-punt";
/// The IPv4 dummy address (RFC 7600, section 4.8).
const PUNT_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// The changed settings of the kernel.
pub(crate) struct TwinInterfaces {
    /// For each isolated interface, the previous settings.
    isolated: FxHashMap<String, SavedSettings>,
    /// Where previous settings are kept while they are changed.
    store: SettingsStore,
    /// States that the kernel refused. They are not set again until they change.
    refused: FxHashMap<PortNumber, PortState>,
}

impl TwinInterfaces {
    pub fn new(store: SettingsStore) -> TwinInterfaces {
        TwinInterfaces { isolated: FxHashMap::default(), store, refused: FxHashMap::default() }
    }

    /// Isolates the kernel's interfaces behind these ports, and restores all others. Returns what failed.
    pub fn isolate(&mut self, ports: &[RoutedPort]) -> Vec<PortFault> {
        let real = |port: &RoutedPort| match &port.device {
            Device::Twin { real } => real.clone(),
            Device::Xdp => None,
        };
        let wanted: Vec<String> = ports.iter().filter_map(real).collect();
        let stale: Vec<String> =
            self.isolated.keys().filter(|name| !wanted.contains(name)).cloned().collect();
        stale.iter().for_each(|name| self.restore(name));
        self.refused.clear();
        let mut faults = Vec::new();
        for name in wanted {
            if let Entry::Vacant(vacant) = self.isolated.entry(name) {
                match isolate_interface(&self.store, vacant.key()) {
                    Ok(before) => drop(vacant.insert(before)),
                    Err(why) => faults.push(why),
                }
            }
        }
        faults
    }

    fn restore(&mut self, name: &str) {
        if let Some(before) = self.isolated.remove(name) {
            before.restore();
        }
    }

    /// Sets twins to the states of their ports. Returns what failed, and whether anything was changed.
    pub fn update<P: ForwardingPlane>(
        &mut self,
        plane: &P,
        model: &Model,
        ports: &[RoutedPort],
        kernel: &mut NetlinkSocket,
    ) -> (Vec<PortFault>, bool) {
        let (mut faults, mut changed) = (Vec::new(), false);
        for port in ports.iter().filter(|port| matches!(port.device, Device::Twin { .. })) {
            let (Some(link), Some(state)) = (link_of(model, port), plane.port_state(port.port)) else {
                continue;
            };
            // The carrier of a disabled interface is unknown.
            let carrier = if link.up { link.carrier } else { state.up };
            let same = (link.mac, link.mtu, carrier) == (Some(state.mac), u32::from(state.mtu), state.up);
            if same || self.refused.get(&port.port) == Some(&state) {
                continue;
            }
            changed = true;
            if let Err(error) = kernel.set_link(link.index, &state, needs_restart(model, link, &state)) {
                self.refused.insert(port.port, state);
                faults.push(PortFault::Twin { port: port.name.clone(), ifname: port.ifname.clone(), error });
            }
        }
        (faults, changed)
    }
}

/// Whether a twin has another Ethernet address than its port and no address was configured on it yet.
fn needs_restart(model: &Model, link: &Link, state: &PortState) -> bool {
    let given = |address: &Address| address.interface == link.index && address.scope < libc::RT_SCOPE_LINK;
    link.up && link.mac != Some(state.mac) && !model.addresses.values().any(given)
}

/// Gives the TAP for packets to the kernel an IPv4 address. With reverse-path filtering, the kernel would
/// otherwise drop all packets from this interface. Returns what failed.
pub(crate) fn prepare_punt(
    model: &Model,
    ports: &[RoutedPort],
    kernel: &mut NetlinkSocket,
) -> Option<PortFault> {
    let punt = model.paths.links.values().find(|link| link.name == PUNT)?;
    let has_one = |address: &Address| address.interface == punt.index && address.address.is_ipv4();
    if !ports.iter().any(|port| port.device == Device::Xdp) || model.addresses.values().any(has_one) {
        return None;
    }
    let error = kernel.add_address(punt.index, PUNT_ADDRESS).err()?;
    let is_there = error.raw_os_error() == Some(libc::EEXIST);
    (!is_there).then_some(PortFault::PuntAddress { ifname: PUNT, error })
}

impl Drop for TwinInterfaces {
    fn drop(&mut self) {
        let names: Vec<String> = self.isolated.keys().cloned().collect();
        names.iter().for_each(|name| self.restore(name));
    }
}

/// Isolates an interface. Returns its previous settings.
fn isolate_interface(store: &SettingsStore, name: &str) -> Result<SavedSettings, PortFault> {
    let path = |setting: &str| PathBuf::from("/proc/sys/net").join(setting.replace("{}", name));
    let mut changes = Vec::new();
    for (setting, value) in ISOLATION {
        // A kernel without IPv6 has no such settings.
        let Ok(old) = std::fs::read_to_string(path(setting)) else { continue };
        let old = old.trim_end().to_owned();
        if old != value {
            changes.push(Setting { path: path(setting), old, new: value.to_owned() });
        }
    }
    if changes.is_empty() && !PathBuf::from(format!("/proc/sys/net/ipv4/conf/{name}")).exists() {
        return Err(PortFault::NoRealInterface { ifname: name.to_owned() });
    }
    let saved = store.save(name, changes);
    let failed = saved.settings().iter().find_map(|setting| {
        let error = std::fs::write(&setting.path, &setting.new).err()?;
        Some(PortFault::Isolation {
            ifname: name.to_owned(),
            path: setting.path.display().to_string(),
            error,
        })
    });
    match failed {
        None => Ok(saved),
        Some(fault) => {
            saved.restore();
            Err(fault)
        }
    }
}
