//! What open sessions take of memory.

use serde::Serialize;

use super::source::TrafficIo;
use mmb_dataplane::detached::DetachedWorker;

/// The sessions that were opened before the measurement, and their memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SessionMemory {
    /// Open sessions.
    pub open: u64,
    /// By how many bytes the resident memory grew for each of them: with all their tables, in whole pages.
    pub bytes: f64,
}

impl SessionMemory {
    /// Calls `open`, and compares the memory before and after; `None` if no sessions are open then.
    pub(super) fn of<E>(
        worker: &mut DetachedWorker<TrafficIo>,
        open: impl FnOnce(&mut DetachedWorker<TrafficIo>) -> Result<(), E>,
    ) -> Result<Option<SessionMemory>, E> {
        let before = resident();
        open(worker)?;
        let (grown, open) = (resident().saturating_sub(before), worker.session_count());
        Ok((open > 0).then(|| SessionMemory { open, bytes: grown as f64 / open as f64 }))
    }
}

/// Resident memory of this process in bytes (`proc_pid_status(5)`); 0 if unknown.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}
