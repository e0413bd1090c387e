//! Documents about named sets.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `show sets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetList {
    /// The sets, in the order in which they were added.
    pub sets: Vec<SetEntry>,
}

/// A named set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetEntry {
    /// Its name.
    pub name: String,
    /// What its elements are: `address`, `prefix` or `port`.
    pub kind: String,
    /// Number of elements.
    pub elements: u64,
    /// Number of elements that expire.
    pub expiring: u64,
    /// Seconds that elements stay that are added without a time; absent if they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
    /// The file with elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What the set is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Indexes of the rules that refer to the set.
    pub rules: Vec<u32>,
    /// Packets that these rules matched.
    pub packets: u64,
}

/// `show set NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetElementList {
    /// The set.
    pub set: String,
    /// Its elements in ascending order.
    pub elements: Vec<ElementEntry>,
}

/// An element of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ElementEntry {
    /// The address, prefix, port or range of ports, or address with ports.
    pub element: String,
    /// Seconds until it is removed; absent if it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Why it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether the set's file lists it.
    pub from_file: bool,
}

/// Elements to add or to remove.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ElementRequest {
    /// Addresses, prefixes, ports or ranges of ports; at least one.
    pub elements: Vec<String>,
    /// Seconds that they stay; the time of the set if absent.
    #[serde(default)]
    pub timeout: Option<u32>,
    /// Why they are there.
    #[serde(default)]
    pub comment: Option<String>,
}
