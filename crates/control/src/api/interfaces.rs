//! Documents about interfaces.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RoutedEntry;

/// `show interfaces`, in the order they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InterfaceList {
    /// The interfaces.
    pub interfaces: Vec<InterfaceEntry>,
}

/// An interface. Numbers are 0 while the interface is down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InterfaceEntry {
    /// Name of the interface.
    pub name: String,
    /// Kind and device, as in `interface add`.
    pub kind: String,
    /// Whether the device is open.
    pub state: InterfaceState,
    /// Why the interface is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the link is up.
    pub link: bool,
    /// The interface at the other end of the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,
    /// Present if the interface is routed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed: Option<RoutedEntry>,
    /// Whether rules apply to packets received here.
    pub enabled: bool,
    /// Driver; empty while the interface is down.
    pub driver: String,
    /// Device that the driver opened.
    pub device: String,
    /// Ethernet address.
    pub mac: String,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that the device dropped because it had no free buffer.
    pub rx_missed: u64,
    /// Packets received with errors.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Packets that left as a part of the large frame of a packet before them: `tx_packets` counts that
    /// frame once.
    #[serde(default)]
    pub tx_merged: u64,
    /// Packets received here and dropped, by reason; only reasons that have occurred.
    #[serde(default)]
    pub drops: IndexMap<String, u64>,
    /// Remarks on the configuration of the device.
    pub notes: Vec<String>,
    /// Capabilities of the device. Only `show interfaces verbose` asks the driver for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<CapabilityEntry>,
}

/// A capability of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapabilityEntry {
    /// Name of the capability.
    pub name: String,
    /// Whether the device supports it.
    pub supported: bool,
    /// The query to the driver and its answer.
    pub detail: String,
}

/// State of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceState {
    /// The device is open.
    Up,
    /// The device could not be opened, or has disappeared. It is opened when the kernel has the interface
    /// again. `interface add` with the same name tries at once.
    #[default]
    Down,
}
