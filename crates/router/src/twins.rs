//! TAP twins of ports, and the interfaces of the kernel that stand behind ports.
//!
//! Theory of operation. A port that is no interface of the kernel's has a twin there, a TAP, which carries what is the
//! kernel's and has the addresses. It shows the port's Ethernet address, MTU and carrier; they are compared twice a second,
//! and set when they differ. Where the port is on an interface of the kernel's nevertheless, by a packet socket, the kernel
//! gets each frame there as well and must not answer or forward it a second time: settings of that interface see to it while
//! the port is routed, and are put back afterwards. (With `disable_ipv6` the kernel takes the interface's IPv6 addresses away;
//! putting it back brings back the link-local one only.)

use std::collections::hash_map::Entry;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use mmb_dataplane::PortId;
use rustc_hash::FxHashMap;

use crate::event::{Address, Link};
use crate::faces;
use crate::model::Model;
use crate::netlink::Channel;
use crate::plane::{ForwardingPlane, PortState};
use crate::router::{Device, RoutedPort};

/// What keeps the kernel from taking part: neither forward nor accept by other ways, answer no ARP, have no IPv6.
const QUIET: [(&str, &str); 5] = [
    ("ipv4/conf/{}/forwarding", "0"),
    ("ipv4/conf/{}/rp_filter", "1"),
    ("ipv4/conf/{}/arp_ignore", "8"),
    ("ipv6/conf/{}/forwarding", "0"),
    ("ipv6/conf/{}/disable_ipv6", "1"),
];

/// The TAP by which the kernel gets what is its of ports that share their interface with it.
const PUNT: &str = "mmb-punt";
/// The IPv4 dummy address (RFC 7600, section 4.8).
const PUNT_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// What was set in the kernel.
#[derive(Default)]
pub(crate) struct Twins {
    /// For each quiet interface, the settings before.
    quiet: FxHashMap<String, Vec<(PathBuf, String)>>,
    /// States that could not be set, which are not tried again until they change.
    refused: FxHashMap<PortId, PortState>,
}

impl Twins {
    /// Makes the kernel leave the interfaces behind these ports alone, and takes others back. What could not be done.
    pub fn hush(&mut self, ports: &[RoutedPort]) -> Vec<String> {
        let real = |port: &RoutedPort| match &port.device {
            Device::Twin { real } => real.clone(),
            Device::Xdp => None,
        };
        let wanted: Vec<String> = ports.iter().filter_map(real).collect();
        let over: Vec<String> = self.quiet.keys().filter(|name| !wanted.contains(name)).cloned().collect();
        over.iter().for_each(|name| self.put_back(name));
        self.refused.clear();
        let mut failed = Vec::new();
        for name in wanted {
            if let Entry::Vacant(place) = self.quiet.entry(name) {
                match quiet(place.key()) {
                    Ok(before) => drop(place.insert(before)),
                    Err(why) => failed.push(why),
                }
            }
        }
        failed
    }

    fn put_back(&mut self, name: &str) {
        for (path, value) in self.quiet.remove(name).unwrap_or_default() {
            // The interface may be gone, and its settings with it.
            let _ = std::fs::write(path, value);
        }
    }

    /// Gives twins the state of their ports. What could not be done, and whether anything was: then the kernel tells of it.
    pub fn follow<P: ForwardingPlane>(
        &mut self,
        plane: &P,
        model: &Model,
        ports: &[RoutedPort],
        kernel: &mut Channel,
    ) -> (Vec<String>, bool) {
        let (mut failed, mut changed) = (Vec::new(), false);
        for port in ports.iter().filter(|port| matches!(port.device, Device::Twin { .. })) {
            let (Some(link), Some(state)) = (faces::link_of(model, port), plane.port_state(port.port)) else {
                continue;
            };
            // Of an interface that is switched off the carrier is not known.
            let carrier = if link.up { link.carrier } else { state.up };
            let same = (link.mac, link.mtu, carrier) == (Some(state.mac), u32::from(state.mtu), state.up);
            if same || self.refused.get(&port.port) == Some(&state) {
                continue;
            }
            changed = true;
            if let Err(e) = kernel.set_link(link.index, &state, is_fresh(model, link, &state)) {
                self.refused.insert(port.port, state);
                failed.push(format!(
                    "{}: its twin {} does not take the port's MAC address, MTU or carrier: {e}",
                    port.name, port.ifname
                ));
            }
        }
        (failed, changed)
    }
}

/// Whether a twin shows another Ethernet address than its port has, and nobody has given it an address yet.
fn is_fresh(model: &Model, link: &Link, state: &PortState) -> bool {
    let given = |address: &Address| address.interface == link.index && address.scope < libc::RT_SCOPE_LINK;
    link.up && link.mac != Some(state.mac) && !model.addresses.values().any(given)
}

/// Sees to it that the kernel takes packets from the TAP by which it gets what is its of ports that share their interface with
/// it: it drops all that comes in by an interface without an IPv4 address where it filters by reverse paths. What could not
/// be done.
pub(crate) fn prepare_punt(model: &Model, ports: &[RoutedPort], kernel: &mut Channel) -> Option<String> {
    let punt = model.ways.links.values().find(|link| link.name == PUNT)?;
    let has_one = |address: &Address| address.interface == punt.index && address.address.is_ipv4();
    if !ports.iter().any(|port| port.device == Device::Xdp) || model.addresses.values().any(has_one) {
        return None;
    }
    let refused = kernel.add_address(punt.index, PUNT_ADDRESS).err()?;
    (refused.raw_os_error() != Some(libc::EEXIST))
        .then(|| format!("{PUNT} gets no address, so that the kernel may drop what comes from it: {refused}"))
}

impl Drop for Twins {
    fn drop(&mut self) {
        let names: Vec<String> = self.quiet.keys().cloned().collect();
        names.iter().for_each(|name| self.put_back(name));
    }
}

/// Sets what keeps the kernel quiet on an interface; what was there before.
fn quiet(name: &str) -> Result<Vec<(PathBuf, String)>, String> {
    let mut before = Vec::new();
    for (path, value) in QUIET {
        let path = PathBuf::from("/proc/sys/net").join(path.replace("{}", name));
        // A kernel without IPv6 has no settings of it.
        let Ok(old) = std::fs::read_to_string(&path) else { continue };
        let old = old.trim_end().to_owned();
        if old == value {
            continue;
        }
        if let Err(e) = std::fs::write(&path, value) {
            let done: Vec<(PathBuf, String)> = before;
            done.into_iter().for_each(|(path, old)| drop(std::fs::write(path, old)));
            return Err(format!(
                "the kernel goes on forwarding on {name} by itself, since {} cannot be set: {e}",
                path.display()
            ));
        }
        before.push((path, old));
    }
    if before.is_empty() && !PathBuf::from(format!("/proc/sys/net/ipv4/conf/{name}")).exists() {
        return Err(format!("the kernel has no interface {name}"));
    }
    // The last one set is the first to be put back.
    before.reverse();
    Ok(before)
}
