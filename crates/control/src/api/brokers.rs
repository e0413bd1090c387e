//! Documents about brokers.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `show brokers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrokerList {
    /// The brokers, in the order in which they were added.
    pub brokers: Vec<BrokerEntry>,
}

/// A broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrokerEntry {
    /// Its name.
    pub name: String,
    /// The address and port on which it listens; absent if it is transparent only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Whether it gets the connections that rules with the target `broker` select.
    #[serde(default)]
    pub transparent: bool,
    /// The chain that requests pass.
    pub chain: String,
    /// Whether its process is being started; clients wait meanwhile.
    #[serde(default)]
    pub starting: bool,
    /// Why it does not listen; absent if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
    /// Limits and times in seconds that are not the defaults, by their keywords.
    pub options: IndexMap<String, u64>,
    /// Counters since the broker was added, by name; `clients` and `servers` are the connections now.
    pub counters: IndexMap<String, u64>,
}
