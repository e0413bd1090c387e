//! Documents about the classifier.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `show tables`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableList {
    /// The parts of the classifier.
    pub tables: Vec<TableEntry>,
    /// Whether many rules were added or deleted one by one, so that the classifier will be rebuilt.
    #[serde(default)]
    pub stale: bool,
}

/// One part of the classifier's tree. A part comes before the parts below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableEntry {
    /// The bits that a hash table compares, as chunks `NUMBER:HEX` of 16 bytes of the header window. Chunks
    /// that are zero are left out.
    pub mask: String,
    /// Distinct keys of a hash table.
    pub keys: u64,
    /// Rules in this part and below. A rule with several entries counts several times.
    pub rules: u64,
    /// Memory, in bytes, without the parts below.
    pub bytes: u64,
    /// Number of parts above this one.
    #[serde(default)]
    pub depth: u64,
    /// Data structure: `hash` (hash table over the fields of the mask), `leaf` (rules compared one by one),
    /// `bits` (bit vectors over the values of fields), `always` (every packet that gets here matches),
    /// `predicate` (tests of the packet's bytes).
    #[serde(default)]
    pub structure: String,
    /// The mask as fields of the language. Fields of TCP also stand for those of UDP and ICMP at the same
    /// offset.
    #[serde(default)]
    pub fields: String,
    /// Maximum number of keys.
    #[serde(default)]
    pub capacity: u64,
    /// Number of keys that lead to parts below.
    #[serde(default)]
    pub nodes: u64,
    /// Maximum number of rules that are compared one by one with a packet.
    #[serde(default)]
    pub longest: u64,
}
