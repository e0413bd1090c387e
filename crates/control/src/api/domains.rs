//! Documents about domains and the processes of functions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `show domains`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DomainList {
    /// The domains, in the order in which they were added.
    pub domains: Vec<DomainStatus>,
}

/// A domain: memory that functions in processes share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DomainStatus {
    /// Its name.
    pub name: String,
    /// `private`: packets are copied into the memory of the domain; `zero-copy`: functions that change no
    /// packet read packets where they are.
    pub kind: String,
    /// Buffers for packets.
    pub buffers: u64,
    /// Buffers that are in use.
    pub used: u64,
    /// What becomes of packets while the process of a function is not there: `drop` or `pass`.
    pub on_failure: String,
    /// The functions of the domain.
    pub functions: Vec<ProcessEntry>,
}

/// The process of a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessEntry {
    /// Name of the function.
    pub function: String,
    /// What the process does while there are no packets: `poll`, `event` or `adaptive`.
    pub mode: String,
    /// The processor on which it runs; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<u16>,
    /// Number of the process; absent: it does not run now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// How often another process was started.
    pub restarts: u64,
    /// Processor time of the process, in seconds.
    pub cpu_seconds: f64,
    /// Descriptors that were sent to the function.
    pub descriptors: u64,
    /// Packets that the function has read where they were, without a copy.
    pub in_place: u64,
    /// How often a sleeping process was woken up.
    pub wakeups: u64,
    /// Descriptors that wait for the process.
    pub waiting: u64,
    /// Descriptors that wait for the workers.
    pub returned: u64,
    /// Slots of the rings in one direction, of all workers.
    pub slots: u64,
    /// Descriptors that can be sent now.
    pub credits: u64,
    /// Buffers in use for the function.
    pub buffers: u64,
    /// Packets for which there was no room.
    pub full: u64,
    /// Packets that were in a process when it ended.
    pub lost: u64,
    /// Descriptors from the process that were refused.
    pub refused: u64,
    /// Why the last process ended, or has not started; absent: nothing has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
}
