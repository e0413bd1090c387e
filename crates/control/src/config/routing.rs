//! Routed ports: which they are, and the ports that this takes beside them.
//!
//! Theory of operation. The kernel has a face of every routed port: an interface with its addresses, by which it takes part
//! itself. That of an AF_XDP port is the very interface the port is on; what reaches mmb of the kernel's own goes back through
//! one TAP, [`PUNT`], for all such ports. Every other port gets a TAP twin that has the port's name in the kernel. Twins and
//! the TAP are ports of the engine, with ids of their own that no operator sees: these are given out from the highest down,
//! those of interfaces from the lowest up.

use std::sync::Arc;

use mmb_dataplane::{Forwarding, MAX_PORTS, PortConfig, PortId, Routed};
use mmb_lang::{PortKind, Word};
use mmb_router::RoutedPort;

use super::{Config, Interface, kernel_interface, no_room};
use crate::error::Fault;

/// The kernel's name of the TAP by which routed AF_XDP ports hand packets to it.
pub(crate) const PUNT: &str = "mmb-punt";

/// Bytes of the longest name of a kernel interface (IFNAMSIZ, without the zero at the end).
const LONGEST_NAME: usize = 15;

/// How a port is routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// The port of its TAP twin; none for AF_XDP.
    pub twin: Option<PortId>,
}

/// A device that a configuration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// The engine's port.
    pub id: PortId,
    /// The interface that it is for; none: for several.
    pub interface: Option<PortId>,
    /// The operator's name of that interface, or the kernel's name.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// An interface's own.
    Port(PortKind),
    /// The TAP twin of a routed one.
    Twin,
    /// [`PUNT`].
    Punt,
}

impl Device {
    /// What it is opened as.
    pub fn port_kind(&self) -> PortKind {
        match &self.kind {
            DeviceKind::Port(kind) => kind.clone(),
            DeviceKind::Twin | DeviceKind::Punt => PortKind::Tap { ifname: Some(self.name.clone()) },
        }
    }
}

impl Interface {
    /// Whether the kernel's face of the port, if it is routed, is the interface that the port is on.
    fn is_xdp(&self) -> bool {
        matches!(self.kind, PortKind::AfXdp { .. })
    }

    /// The kernel interface that has the addresses of a routed port.
    pub fn face(&self) -> Option<&str> {
        self.routed?;
        match &self.kind {
            PortKind::AfXdp { ifname } => Some(ifname),
            _ => Some(&self.name),
        }
    }
}

impl Config {
    /// Routes what comes in at these interfaces. Those that are routed already stay so. The ids of twins are those of
    /// `earlier` where it has them.
    pub fn route(&mut self, names: &[Word], earlier: Option<&Config>) -> Result<(), Fault> {
        for name in names {
            let at = self.position(name)?;
            let interface = &self.interfaces[at];
            if let Some(peer) = interface.peer.and_then(|id| self.interface_by_id(id)) {
                let message = format!(
                    "interface `{}` is wired to `{}`, and so cannot be routed",
                    interface.name, peer.name
                );
                let fault = Fault::conflict(message, name.span);
                return Err(fault.help(format!("`wire del {}` first", interface.name)));
            }
            self.settle(at, name, earlier)?;
        }
        Ok(())
    }

    /// Routes an interface no more.
    pub fn unroute(&mut self, name: &Word) -> Result<(), Fault> {
        let at = self.position(name)?;
        if self.interfaces[at].routed.is_none() {
            let message = format!("interface `{}` is not routed", &**name);
            return Err(Fault::conflict(message, name.span));
        }
        Arc::make_mut(&mut self.interfaces)[at].routed = None;
        self.settle_punt(name, None)
    }

    /// Makes the interface at `at` a routed one with the twin that its device asks for.
    pub(super) fn settle(&mut self, at: usize, name: &Word, earlier: Option<&Config>) -> Result<(), Fault> {
        let interface = &self.interfaces[at];
        let twin = match interface.routed.and_then(|routing| routing.twin) {
            _ if interface.is_xdp() => None,
            Some(twin) => Some(twin),
            None => {
                self.check_twin_name(name)?;
                let keep = earlier.and_then(|c| c.interface(name)?.routed?.twin);
                Some(self.own_port(keep, earlier).ok_or_else(|| no_room(name.span))?)
            }
        };
        Arc::make_mut(&mut self.interfaces)[at].routed = Some(Routing { twin });
        self.settle_punt(name, earlier)
    }

    /// Sees to it that there is a port for [`PUNT`] if it is needed, and none if not.
    fn settle_punt(&mut self, name: &Word, earlier: Option<&Config>) -> Result<(), Fault> {
        let needed = self.interfaces.iter().any(|i| i.routed.is_some() && i.is_xdp());
        self.punt = match self.punt {
            _ if !needed => None,
            Some(punt) => Some(punt),
            None => {
                if let Some(other) = self.on_kernel_interface(PUNT) {
                    let message = format!(
                        "interface `{}` is on {PUNT}, by which routed AF_XDP ports reach the kernel",
                        other.name
                    );
                    let fault = Fault::conflict(message, name.span);
                    return Err(fault.help(format!("`interface del {}` first", other.name)));
                }
                let keep = earlier.and_then(|c| c.punt);
                Some(self.own_port(keep, earlier).ok_or_else(|| no_room(name.span))?)
            }
        };
        Ok(())
    }

    /// Whether a twin can have the name of its interface in the kernel.
    fn check_twin_name(&self, name: &Word) -> Result<(), Fault> {
        // Names that the kernel keeps for itself: those of directories, and those of settings for all interfaces.
        let kept = matches!(&**name, "." | ".." | "default" | PUNT) || name.len() > LONGEST_NAME;
        let message = if kept {
            format!("the twin of interface `{0}` would be called {0} in the kernel, which cannot be", &**name)
        } else if let Some(other) = self.on_kernel_interface(name) {
            format!(
                "the twin of interface `{0}` would be called {0} in the kernel, as the interface that `{1}` is on",
                &**name, other.name
            )
        } else {
            return Ok(());
        };
        Err(Fault::conflict(message, name.span).help("give the interface another name".to_owned()))
    }

    /// The interface that is on this interface of the kernel.
    fn on_kernel_interface(&self, ifname: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|i| kernel_interface(&i.kind) == Some(ifname))
    }

    /// What the kernel interface of this name is for, if we make it ourselves.
    pub(super) fn ours_in_kernel(&self, ifname: &str) -> Option<String> {
        let twin = |i: &&Interface| i.name == *ifname && i.routed.is_some_and(|r| r.twin.is_some());
        match self.interfaces.iter().find(twin) {
            Some(i) => Some(format!("it is the twin of the routed interface `{}`", i.name)),
            None if self.punt.is_some() && ifname == PUNT => {
                Some("by it routed AF_XDP ports reach the kernel".to_owned())
            }
            None => None,
        }
    }

    /// Every port id in use.
    fn ports(&self) -> impl Iterator<Item = PortId> {
        let twins = self.interfaces.iter().filter_map(|i| i.routed?.twin);
        self.interfaces.iter().map(|i| i.id).chain(twins).chain(self.punt)
    }

    /// Whether a port has this id.
    pub(super) fn has_port(&self, id: PortId) -> bool {
        self.ports().any(|port| port == id)
    }

    /// Ids that no port here and none of `earlier` has, from the lowest up.
    pub(super) fn free_ports<'a>(
        &'a self,
        earlier: Option<&'a Config>,
    ) -> impl DoubleEndedIterator<Item = PortId> + 'a {
        let taken = move |id: PortId| self.has_port(id) || earlier.is_some_and(|c| c.has_port(id));
        (0..MAX_PORTS as u16).map(PortId).filter(move |&id| !taken(id))
    }

    /// An id for a port of our own: `keep` if it is free.
    fn own_port(&self, keep: Option<PortId>, earlier: Option<&Config>) -> Option<PortId> {
        keep.filter(|&id| !self.has_port(id)).or_else(|| self.free_ports(earlier).next_back())
    }

    /// The devices that the interfaces need for which `up` says yes: each interface's own before its twin.
    pub(crate) fn devices(&self, up: impl Fn(PortId) -> bool) -> Vec<Device> {
        let mut devices = Vec::new();
        let mut punts = false;
        for i in self.interfaces.iter().filter(|i| up(i.id)) {
            let device = |id, kind| Device { id, interface: Some(i.id), name: i.name.clone(), kind };
            devices.push(device(i.id, DeviceKind::Port(i.kind.clone())));
            devices.extend(i.routed.and_then(|r| r.twin).map(|twin| device(twin, DeviceKind::Twin)));
            punts |= i.routed.is_some() && i.is_xdp();
        }
        if let Some(id) = self.punt.filter(|_| punts) {
            devices.push(Device { id, interface: None, name: PUNT.to_owned(), kind: DeviceKind::Punt });
        }
        devices
    }

    /// What the engine is to run. Interfaces for which `up` says no take no part.
    pub fn forwarding(&self, up: impl Fn(PortId) -> bool) -> Forwarding {
        let mut ports = Vec::new();
        let own = |id, peer| PortConfig { id, peer, enabled: false, routed: None };
        let mut punt = None;
        for i in self.interfaces.iter().filter(|i| up(i.id)) {
            let twin = i.routed.and_then(|r| r.twin);
            if i.routed.is_some() && i.is_xdp() {
                punt = self.punt;
            }
            let routed = i.routed.map(|_| Routed { punt: if i.is_xdp() { self.punt } else { twin } });
            ports.push(PortConfig { id: i.id, peer: i.peer, enabled: i.enabled, routed });
            // What the kernel sends by a twin goes out as it is.
            ports.extend(twin.map(|twin| own(twin, Some(i.id))));
        }
        ports.extend(punt.map(|punt| own(punt, None)));
        Forwarding {
            policy: self.policy.clone(),
            on_error: self.on_error,
            nat: self.nat.compiled().clone(),
            settings: self.settings,
            chains: self.chains.program().clone(),
            fast_path: self.fast_path,
            ports,
        }
    }

    /// The routed ports for which `up` says yes, for the mirror of the kernel's routes.
    pub(crate) fn routed_ports(&self, up: impl Fn(PortId) -> bool) -> Vec<RoutedPort> {
        let routed = |i: &Interface| {
            let device = match &i.kind {
                PortKind::AfXdp { .. } => mmb_router::Device::Xdp,
                PortKind::AfPacket { ifname } => mmb_router::Device::Twin { real: Some(ifname.clone()) },
                _ => mmb_router::Device::Twin { real: None },
            };
            let ifname = i.face()?.to_owned();
            Some(RoutedPort { port: i.id, name: i.name.clone(), ifname, device })
        };
        self.interfaces.iter().filter(|i| up(i.id)).filter_map(routed).collect()
    }
}

#[cfg(test)]
mod tests {
    use mmb_router::Device as Stands;

    use super::*;
    use crate::file;

    fn loaded(text: &str) -> Config {
        file::load(text.as_bytes(), &Config::new()).unwrap()
    }

    fn refused(text: &str) -> String {
        let refusal = file::load(text.as_bytes(), &Config::new()).err().unwrap();
        format!("{} ({:?})", refusal.message, refusal.diagnostics[0].help)
    }

    const TWO: &str = "interface add a af-xdp eth0\ninterface add b af-packet eth1\n";

    #[test]
    fn xdp_ports_share_one_tap_and_others_have_twins() {
        let text = format!("{TWO}interface add c af-xdp eth2\ninterface add d null\nroute a b c d\n");
        let config = loaded(&text);
        let up = |_| true;
        let names: Vec<_> =
            config.devices(up).into_iter().map(|d| (d.name.clone(), d.port_kind().to_string())).collect();
        let expected = [
            ("a", "af-xdp eth0"),
            ("b", "af-packet eth1"),
            ("b", "tap b"),
            ("c", "af-xdp eth2"),
            ("d", "null"),
            ("d", "tap d"),
            (PUNT, "tap mmb-punt"),
        ];
        assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
        // Every id once, and what is an operator's counts from 0.
        let mut ids: Vec<_> = config.ports().collect();
        assert_eq!(ids[..4], [0, 1, 2, 3].map(PortId));
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 7);
        let forwarding = config.forwarding(up);
        let of = |id: u16| *forwarding.ports.iter().find(|p| p.id == PortId(id)).unwrap();
        let punt = config.punt;
        assert_eq!((of(0).routed, of(2).routed), (Some(Routed { punt }), Some(Routed { punt })));
        let twin = of(1).routed.unwrap().punt.unwrap();
        assert_eq!(of(twin.0), PortConfig { id: twin, peer: Some(PortId(1)), enabled: false, routed: None });
        assert_eq!(of(punt.unwrap().0).peer, None);
        let routed: Vec<_> = config.routed_ports(up).into_iter().map(|p| (p.ifname, p.device)).collect();
        let real = |real: Option<&str>| Stands::Twin { real: real.map(str::to_owned) };
        let faces =
            [("eth0", Stands::Xdp), ("b", real(Some("eth1"))), ("eth2", Stands::Xdp), ("d", real(None))];
        assert_eq!(routed, faces.map(|(name, device)| (name.to_owned(), device)));
        // What is down takes no part, and the TAP goes with the last port that needs it.
        let some = |id: PortId| id == PortId(1);
        assert_eq!(config.devices(some).len(), 2);
        assert_eq!(config.forwarding(some).ports.len(), 2);
        assert_eq!(config.routed_ports(some).len(), 1);
    }

    #[test]
    fn routed_ports_are_lines_of_a_file_and_keep_their_ids() {
        let text = format!("{TWO}interface add c null\nroute c\nroute a\n");
        let first = loaded(&text);
        let again = file::text(&first);
        assert_eq!(again, format!("{TWO}interface add c null\nroute a\nroute c\n"));
        // An interface before, one that is routed now, too: nobody's id changes.
        let more = format!("interface add z null\n{}route b z\n", again);
        let next = file::load(more.as_bytes(), &first).unwrap();
        let id = |config: &Config, name: &str| config.interface(name).map(|i| (i.id, i.routed));
        assert_eq!(
            (id(&first, "a"), id(&first, "c"), first.punt),
            (id(&next, "a"), id(&next, "c"), next.punt)
        );
        let diff = file::diff(&first, &next);
        assert_eq!(
            (diff.removed.len(), &diff.added[..]),
            (0, &["interface add z null", "route z", "route b"].map(str::to_owned)[..])
        );
        // A file without interfaces leaves them as they are, and may route more.
        let kept = file::load(b"route b\n", &first).unwrap();
        assert!(kept.interface("b").unwrap().routed.is_some() && id(&kept, "c") == id(&first, "c"));
    }

    #[test]
    fn routing_and_wires_exclude_each_other() {
        let text = refused(&format!("{TWO}wire a b\nroute a\n"));
        assert!(text.contains("wired to `b`") && text.contains("`wire del a` first"), "{text}");
        let text = refused(&format!("{TWO}route a\nwire b a\n"));
        assert!(text.contains("`a` is routed") && text.contains("`route del a` first"), "{text}");
        let mut config = loaded(&format!("{TWO}route a b\nroute b\n"));
        let (a, b) = (Word::from("a"), Word::from("b"));
        let text = format!("{:?}", config.delete_interface(&b).unwrap_err().diagnostic);
        assert!(text.contains("`route del b` first"), "{text}");
        config.unroute(&a).unwrap();
        config.unroute(&b).unwrap();
        assert!(config.unroute(&b).is_err() && config.punt.is_none());
        config.wire(&a, &b).unwrap();
        assert_eq!(config.devices(|_| true).len(), 2);
    }

    #[test]
    fn twins_have_names_that_the_kernel_can_give() {
        for (line, word) in [
            ("interface add eth1 af-packet eth1\nroute eth1\n", "`eth1` is on"),
            ("interface add default null\nroute default\n", "cannot be"),
            ("interface add mmb-punt null\nroute mmb-punt\n", "cannot be"),
            ("interface add lan null\ninterface add b af-packet lan\nroute lan\n", "`b` is on"),
            ("interface add t tap mmb-punt\ninterface add x af-xdp eth0\nroute x\n", "`t` is on mmb-punt"),
        ] {
            let text = refused(line);
            assert!(text.contains(word), "{text}");
        }
        // The names are taken while the twins are there.
        let mut config = loaded(&format!("{TWO}route a b\n"));
        for ifname in ["b", PUNT] {
            let kind = PortKind::AfPacket { ifname: ifname.to_owned() };
            let fault = config.add_interface(&Word::from("t"), &kind, None).unwrap_err();
            assert!(fault.diagnostic.message.contains("is in use already"), "{fault:?}");
        }
    }

    #[test]
    fn there_are_so_many_ports_twins_included() {
        let mut config = Config::new();
        for n in 0..MAX_PORTS / 2 {
            let name = Word::from(format!("p{n}").as_str());
            config.add_interface(&name, &PortKind::Null, None).unwrap();
            config.route(&[name], None).unwrap();
        }
        let fault = config.add_interface(&Word::from("more"), &PortKind::Null, None).unwrap_err();
        assert!(fault.diagnostic.message.contains("twins"), "{fault:?}");
        config.unroute(&Word::from("p0")).unwrap();
        config.add_interface(&Word::from("more"), &PortKind::Null, None).unwrap();
        assert!(config.route(&[Word::from("p0")], None).is_err());
    }
}
