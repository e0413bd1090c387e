//! Which functions can run in processes, and for whom.

use crate::instance::DynFunction;
use crate::{Properties, SessionKey};

/// What no function in a process can do.
const FILES_OR_SOCKETS: &str = "works with files or sockets of its own";

/// Who can use a function in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessUse {
    /// Chains of rules: workers send packets to it.
    pub packets: bool,
    /// Brokers, which pass it the bytes of their connections, or messages.
    pub brokers: bool,
}

/// Returns who can use a function in a process.
///
/// # Errors
/// Nobody: why, for a sentence that begins with its name.
pub(crate) fn process_use(
    function: &dyn DynFunction,
    properties: &Properties,
) -> Result<ProcessUse, &'static str> {
    let has_thread = function.background().is_some();
    if !function.is_l7_only() && !function.is_stream() {
        let obstacle = obstacle(function, properties, has_thread).or(properties.needs_worker);
        return obstacle.map_or(Ok(ProcessUse { packets: true, brokers: false }), Err);
    }
    if function.is_l7_only() {
        // Checks of servers stay in the daemon, and no packet comes.
        let alone = ProcessUse { packets: false, brokers: true };
        return properties.needs_worker.map_or(Ok(alone), Err);
    }
    if has_thread && function.lines().is_none() {
        return Err(FILES_OR_SOCKETS);
    }
    Ok(ProcessUse { packets: true, brokers: function.l7().is_some() || function.reads_bytes() })
}

/// Returns why a function of packets cannot run in a process.
fn obstacle(function: &dyn DynFunction, properties: &Properties, has_thread: bool) -> Option<&'static str> {
    if function.kind() == "flow" {
        Some("opens sessions of its own")
    } else if has_thread {
        Some(FILES_OR_SOCKETS)
    } else if function.holds() {
        Some("holds packets")
    } else if properties.translates.any() {
        Some("translates sessions in the tables of the workers")
    } else if properties.routes {
        Some("routes sessions before they are opened")
    } else if properties.key != SessionKey::Session {
        Some("shares state between sessions")
    } else {
        None
    }
}
