//! `mmb explain`: what happens to single packets of a capture, on the code of a replay.
//!
//! Each packet has a walk of its own, so that what the walk does is about this packet. A packet that a
//! function holds is reported when it goes on, or at the end.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, mpsc};

use mmb_dataplane::detached::DetachedWorker;
use mmb_dataplane::{Engine, PacketTrace, TraceDetail, TraceRequest};

use crate::capture::{End, Reader};
use crate::replay::{CaptureIo, ReplayConfig, ReplayError, finish, start, walk};

/// The number of packets that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainReport {
    /// Packets read.
    pub packets: u64,
    /// Packets skipped as they had left by an interface ([`ReplayConfig::interfaces`]).
    pub outbound: u64,
    /// Why the capture could not be read to its end.
    pub damage: Option<String>,
}

/// Processes the packets of a capture one by one and calls `visit` with each trace; with `only`, the number
/// of a packet from 1, processes the packets before it too, and calls `visit` for it alone. Ends early when
/// `visit` returns false.
///
/// # Errors
/// As [`crate::replay::run`].
pub fn run(
    config: &ReplayConfig,
    input: &Path,
    only: Option<u64>,
    visit: impl FnMut(PacketTrace) -> bool,
) -> Result<ExplainReport, ReplayError> {
    let (_engine, mut workers) = start(config, Reader::open(input)?)?;
    explain(&mut workers, only, visit)
}

/// As [`run`], beside a running engine with the same port ids: packets follow its routes, and those for the
/// machine itself go to the kernel. Nothing of the running engine is changed. One call at a time.
///
/// # Errors
/// As [`run`].
pub fn run_beside(
    running: &Engine,
    config: &ReplayConfig,
    capture: Reader,
    only: Option<u64>,
    visit: impl FnMut(PacketTrace) -> bool,
) -> Result<ExplainReport, ReplayError> {
    let (engine, mut workers) = start(config, capture)?;
    engine.follow(running);
    explain(&mut workers, only, visit)
}

fn explain(
    workers: &mut [DetachedWorker<CaptureIo>],
    only: Option<u64>,
    mut visit: impl FnMut(PacketTrace) -> bool,
) -> Result<ExplainReport, ReplayError> {
    let worker = workers.first_mut().ok_or(ReplayError::NoSource)?;
    worker.io().ok_or(ReplayError::NoSource)?.set_single();
    let (sender, traces) = mpsc::channel::<PacketTrace>();
    let mut request = Some(TraceRequest {
        filter: None,
        detail: TraceDetail::Path,
        missed: Arc::default(),
        sink: Box::new(move |trace| sender.send(trace).is_ok()),
    });
    let first = only.unwrap_or(1);
    // The place in the capture and the time of each traced packet.
    let (mut packets, mut traced, mut places) = (0, 0, HashMap::new());
    let mut report = |places: &mut HashMap<u64, (u64, u64)>| {
        traces.try_iter().all(|trace| {
            let (number, time_ns) = places.remove(&trace.number).unwrap_or_default();
            let is_wanted = only.is_none_or(|only| only == number);
            let goes_on = !is_wanted || visit(PacketTrace { number, time_ns, ..trace });
            goes_on && only != Some(number)
        })
    };
    loop {
        let number = worker.io().ok_or(ReplayError::NoSource)?.next_number();
        if number >= first
            && let Some(request) = request.take()
        {
            worker.trace(request);
        }
        let read = walk(worker)?;
        packets += read;
        let has_more = worker.has_emissions() || worker.has_released();
        let io = worker.io().ok_or(ReplayError::NoSource)?;
        if read > 0 && request.is_none() {
            traced += 1;
            places.insert(traced, (number, io.latest()));
        }
        let outbound = io.outbound();
        let damage = match io.take_end() {
            _ if !report(&mut places) => return Ok(ExplainReport { packets, outbound, damage: None }),
            None => continue,
            Some(_) if has_more => continue,
            Some(End::Clean) => None,
            Some(End::Damaged(cause)) => Some(cause.clone()),
        };
        finish(worker);
        worker.end_trace();
        report(&mut places);
        return Ok(ExplainReport { packets, outbound, damage });
    }
}
