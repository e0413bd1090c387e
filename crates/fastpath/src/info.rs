//! The state of the fast path for `show fast-path` and the metrics.

use mmb_dpdk::{FastGranularity, FastHook};
use serde::Serialize;

use crate::generation::{FastPathState, granularity};
use crate::refusal::{FastCounters, RefusalReason};

/// The fast path of an engine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FastPathInfo {
    /// Whether flows are learned.
    pub learns: bool,
    /// While they are: the granularity of entries ([`FastGranularity`]), in one word.
    pub key: Option<&'static str>,
    /// Entries in the kernel, including revoked ones.
    pub entries: u64,
    /// Flows installed so far.
    pub installed: u64,
    /// Packets that the kernel has forwarded.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Flows that were not installed, by reason.
    pub refused: Vec<(&'static str, u64)>,
}

impl FastPathInfo {
    /// Sums the counters of all workers.
    pub fn collect<'a>(
        state: &FastPathState,
        counters: impl Iterator<Item = &'a FastCounters> + Clone,
    ) -> FastPathInfo {
        let sum = |count: &dyn Fn(&FastCounters) -> u64| counters.clone().map(count).sum();
        let in_force = state.in_force();
        FastPathInfo {
            learns: in_force != 0,
            key: (in_force != 0).then(|| match granularity(in_force) {
                FastGranularity::Flow => "flow",
                FastGranularity::Pair => "pair",
                FastGranularity::Destination => "destination",
            }),
            entries: sum(&|counters| counters.entries.get()),
            installed: sum(&|counters| counters.installed.get()),
            packets: sum(&|counters| counters.packets.get()),
            bytes: sum(&|counters| counters.bytes.get()),
            refused: RefusalReason::ALL
                .map(|reason| (reason.name(), sum(&|counters| counters.refused(reason))))
                .to_vec(),
        }
    }
}

/// A port on the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastPortInfo {
    /// The program of its kind; None: there is none.
    pub hook: Option<FastHook>,
    /// Its role.
    pub role: FastPortRole,
}

/// A port's role on the fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastPortRole {
    /// Flows may enter and leave by it.
    Both,
    /// Flows may enter by it, but its interface takes no redirected frames.
    InOnly,
    /// Flows may enter and leave by it, but none is learned: its program is not attached.
    Unused,
    /// Neither, for this reason.
    None(String),
}
