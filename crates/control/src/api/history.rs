//! Documents about the history of the configuration.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `history`: the changes that are kept, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryList {
    /// The revisions. The first one is in force.
    pub revisions: Vec<RevisionEntry>,
    /// The change that waits for its confirmation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingEntry>,
}

/// A configuration that was in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevisionEntry {
    /// Its number. The configuration at the start has 1.
    pub revision: u64,
    /// When it came into force, in UTC (RFC 3339).
    pub time: String,
    /// Id of the local user who made the change; absent if the daemon or a user on the network did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Id of the user's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<i32>,
    /// Name of the user on the network who made the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address of that user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The command.
    pub change: String,
}

/// A change that is taken back unless it is confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingEntry {
    /// Seconds until then.
    pub seconds: u64,
    /// The revision that comes back.
    pub revision: u64,
}
