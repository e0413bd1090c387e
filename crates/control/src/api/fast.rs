//! Documents about the fast path.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `show fast-path`: flows that the kernel sends on by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastPathReply {
    /// What `set xdp-fast-path` says.
    pub on: bool,
    /// Whether flows are given to the kernel: it is on, some interface has a fast path, and the rules allow it.
    pub active: bool,
    /// Why no flow would be given to the kernel under these rules: a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// While it is active, what one entry is for: `flow`, a flow; `pair`, all packets of a protocol between two addresses, unless a
    /// rule may look at ports there; `destination`, all packets to an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Flows that have a place in the kernel, or what goes for several of them.
    pub entries: u64,
    /// Flows that got one, so far.
    pub installed: u64,
    /// Packets that the kernel has sent on.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Flows that got none, for every reason there is.
    pub refused: IndexMap<String, u64>,
    /// The interfaces, in the order they were added.
    pub interfaces: Vec<FastInterfaceEntry>,
}

/// What an interface is to the fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FastInterfaceEntry {
    /// Its name.
    pub name: String,
    /// Whether the kernel can take care of flows that come in there.
    pub from: bool,
    /// Whether it can send to it.
    pub to: bool,
    /// Why not both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
