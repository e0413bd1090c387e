//! Devices: what a configuration needs opened, and which kinds of ports mean the same device.

use mmb_dataplane::PortId;
use mmb_lang::PortKind;

/// The kernel's name of the TAP by which routed AF_XDP ports pass packets to the kernel.
pub(crate) const PUNT: &str = "mmb-punt";

/// The name of the TAP that leads to a transparent broker, in the namespace of brokers.
pub(crate) fn broker_tap(port: PortId) -> String {
    format!("mmb-broker{}", port.0)
}

/// A device that a configuration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Port of the engine.
    pub id: PortId,
    /// The interface that needs it; none for a device that several interfaces share.
    pub interface: Option<PortId>,
    /// Name of that interface, or of the device in the kernel.
    pub name: String,
    /// What the device is for.
    pub kind: DeviceKind,
}

/// What a device is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// The port of an interface.
    Port(PortKind),
    /// The TAP twin of a routed interface.
    Twin,
    /// [`PUNT`].
    Punt,
    /// The TAP by which a transparent broker gets its connections, in a network namespace of its own.
    Broker,
}

impl Device {
    /// The kind of port that is opened.
    pub fn port_kind(&self) -> PortKind {
        match &self.kind {
            DeviceKind::Port(kind) => kind.clone(),
            DeviceKind::Twin | DeviceKind::Punt | DeviceKind::Broker => {
                PortKind::Tap { ifname: Some(self.name.clone()) }
            }
        }
    }
}

/// Whether two kinds of ports use the same device, which can be open only once.
pub fn same_device(a: &PortKind, b: &PortKind) -> bool {
    matches!((device(a), device(b)), (Some(a), Some(b)) if a == b)
}

/// The word for kernel interfaces in messages on devices.
const INTERFACE: &str = "interface";

/// The device of a kind of port: a word for its class, and its name.
fn device(kind: &PortKind) -> Option<(&'static str, &str)> {
    match kind {
        PortKind::AfXdp { ifname } | PortKind::AfPacket { ifname } => Some((INTERFACE, ifname)),
        PortKind::Tap { ifname } => ifname.as_deref().map(|name| (INTERFACE, name)),
        PortKind::Pci { address } => Some(("card", address)),
        PortKind::Memif { socket } => Some(("memif socket", socket)),
        PortKind::Pcap { tx, .. } => Some(("capture file", tx)),
        PortKind::Null => None,
    }
}

/// The files and sockets that a kind of port names.
pub(super) fn named_files(kind: &PortKind) -> Vec<&str> {
    match kind {
        PortKind::Memif { socket } => vec![socket],
        PortKind::Pcap { rx, tx } => vec![rx, tx],
        _ => Vec::new(),
    }
}

/// The kernel interface that a port uses.
pub(super) fn kernel_interface(kind: &PortKind) -> Option<&str> {
    device(kind).filter(|(what, _)| *what == INTERFACE).map(|(_, name)| name)
}

/// The device of a port in a message.
pub(super) fn device_text(kind: &PortKind) -> String {
    device(kind).map_or_else(|| kind.to_string(), |(what, name)| format!("{what} {name}"))
}
