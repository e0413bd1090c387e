//! Documents about the fast path.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `show fast-path`: flows that the kernel forwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastPathReply {
    /// Whether `set fast-path` is not `off`.
    pub enabled: bool,
    /// Value of `set fast-path`: `off`, `auto`, `xdp` or `tc`.
    pub mode: String,
    /// Whether flows are offloaded: the fast path is enabled, an interface supports it, and the rules allow
    /// it.
    pub active: bool,
    /// Why the configuration does not allow to offload flows, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// Key of an entry while the fast path is active. `flow`: addresses and ports. `pair`: two addresses and
    /// a protocol; also ports where a rule may match ports. `destination`: the destination address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Entries in the kernel.
    pub entries: u64,
    /// Flows offloaded since the start.
    pub installed: u64,
    /// Packets that the kernel forwarded; each segment of a large buffer is one.
    pub packets: u64,
    /// Bytes of the frames of these packets.
    pub bytes: u64,
    /// Flows that were not offloaded, by reason; all reasons.
    pub refused: IndexMap<String, u64>,
    /// The interfaces, in the order they were added.
    pub interfaces: Vec<FastInterfaceEntry>,
}

/// Use of an interface by the fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastInterfaceEntry {
    /// Name of the interface.
    pub name: String,
    /// The program that forwards its flows: `xdp` or `tc`. None: its kind has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Whether flows received on it can be offloaded.
    pub ingress: bool,
    /// Whether offloaded flows can be sent on it.
    pub egress: bool,
    /// Why one of them is not possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
