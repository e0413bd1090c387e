//! Configuration and errors of a bench.

use std::path::PathBuf;

use mmb_dataplane::{EngineError, Forwarding, MAX_WORKERS};

use super::prefixes::Prefixes;
use super::traffic::{Generated, MAX_FRAME};
use crate::capture::CaptureError;
use crate::harness::HarnessError;

/// Where the packets of a bench come from.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// Computed flows.
    Generated(Generated),
    /// The frames of a capture, repeated.
    Pcap(PathBuf),
    /// These frames, repeated.
    Frames(Vec<Vec<u8>>),
    /// DPDK's null ports with frames of this many zero bytes; receive and transmit are part of the cost.
    NullPorts(usize),
}

/// What to measure.
pub struct BenchConfig {
    /// Policy and wires. Packets arrive at the first wired port, or at one end of a generated wire. With
    /// routes, they arrive at the first routed port, or at the first wired one, which is then routed.
    pub forwarding: Forwarding,
    /// Routes instead of wires.
    pub routes: Option<Prefixes>,
    /// The packets.
    pub traffic: Traffic,
    /// Duration of the measurement.
    pub seconds: f64,
    /// Number of workers, each with its own traffic.
    pub workers: usize,
    /// Maximum number of sessions of each worker.
    pub sessions: usize,
    /// Bytes of each session for functions of chains.
    pub scratchpad: usize,
    /// Whether to measure what counting costs, too ([`super::CountingCost`]).
    pub counting: bool,
    /// Stateless rules with which to compare those of `forwarding` ([`super::Comparison`]).
    pub against: Option<Forwarding>,
}

/// Why a bench failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The number of workers is out of range.
    #[error("{0} workers are not possible; ask for 1 to {MAX_WORKERS}")]
    Workers(usize),
    /// The duration is out of range.
    #[error("{0} seconds are not possible; ask for 0.1 to 3600")]
    Seconds(f64),
    /// Traffic without flows.
    #[error("0 flows are not possible; ask for 1 or more")]
    NoFlows,
    /// A frame is too long.
    #[error("frames of {0} bytes are not possible; the maximum is {MAX_FRAME}")]
    FrameTooLong(usize),
    /// An empty list of frames.
    #[error("there is no frame to send")]
    NoFrames,
    /// Null ports in routed mode.
    #[error("frames of zeros cannot be routed; null ports need wires")]
    RoutedNullPorts,
    /// Turns of two workers with null ports.
    #[error("--counting and --against measure traffic in memory; leave out --null-ports")]
    TurnsOfNullPorts,
    /// Turns of two workers with packets that open sessions.
    #[error("--counting and --against measure open sessions; use another case")]
    TurnsOfNewSessions,
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The capture is damaged before its first frame.
    #[error("{0}")]
    DamagedCapture(String),
    /// The capture has no usable frame.
    #[error("{} contains no Ethernet frame of up to {MAX_FRAME} bytes", path.display())]
    EmptyCapture {
        /// The file.
        path: PathBuf,
    },
    /// Flows could not be opened.
    #[error("{lost} of {flows} flows were not opened; are there enough --sessions?")]
    FlowsLost {
        /// Number of flows that were not opened.
        lost: usize,
        /// Number of all flows.
        flows: u32,
    },
    /// A worker's thread panicked.
    #[error("a worker of the bench ended early")]
    WorkerEnded,
    /// The simulation cannot start.
    #[error(transparent)]
    Harness(#[from] HarnessError),
}

impl From<EngineError> for BenchError {
    fn from(error: EngineError) -> Self {
        BenchError::Harness(error.into())
    }
}
