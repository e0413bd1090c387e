//! Opens the flows of a bench before the measurement: a handshake for TCP, a request and its response for
//! UDP.
//!
//! Theory of operation. The frame that leaves the graph, translated or not, determines the answer
//! ([`answers`](super::answers)).

use mmb_dataplane::detached::DetachedWorker;

use super::answers::{reversed, with_flags};
use super::config::BenchError;
use super::source::{TrafficIo, send_all};
use super::traffic::{ACK, Generator, SYN};

/// Number of flows that are opened together.
const BATCH: u32 = 4_096;

/// Opens the flows below `flows` of the worker's generator.
///
/// # Errors
/// [`BenchError::FlowsLost`]: some flows were not opened.
pub(super) fn open(worker: &mut DetachedWorker<TrafficIo>, flows: u32) -> Result<(), BenchError> {
    let mut lost = 0;
    for first in (0..flows).step_by(BATCH as usize) {
        let some = first..flows.min(first.saturating_add(BATCH));
        lost += open_batch(worker, some);
    }
    match lost {
        0 => Ok(()),
        lost => Err(BenchError::FlowsLost { lost, flows }),
    }
}

/// Opens some flows and returns the number of those that were not opened.
fn open_batch(worker: &mut DetachedWorker<TrafficIo>, flows: std::ops::Range<u32>) -> usize {
    let frames = |generator: &Generator| flows.clone().map(|flow| generator.flow(flow)).collect::<Vec<_>>();
    let Some(source) = worker.io() else { return 0 };
    let Some(frames) = source.generator().map(frames) else { return 0 };
    let (in_port, out_port) = (source.in_port(), source.out_port());
    let n = frames.len();
    let arriving = |frames: Vec<Vec<u8>>, port| frames.into_iter().map(|frame| (port, frame)).collect();
    let first = frames.iter().map(|frame| with_flags(frame, SYN)).collect();
    let left = send_all(worker, arriving(first, in_port));
    let answers: Vec<_> = left.iter().map(|frame| with_flags(&reversed(frame), SYN | ACK)).collect();
    // A function that edits streams may make two segments of one.
    let lost = n.saturating_sub(answers.len());
    let answered = send_all(worker, arriving(answers, out_port)).len();
    let acknowledged = send_all(worker, arriving(frames, in_port)).len();
    lost.max(n.saturating_sub(answered)).max(n.saturating_sub(acknowledged))
}
