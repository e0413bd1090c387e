//! Opens the flows of a bench before the measurement: a handshake for TCP, a request and its response for
//! UDP.
//!
//! Theory of operation. The frame that leaves the graph, translated or not, determines the answer: its
//! addresses and ports are swapped, and it arrives at the port where the frame left.

use mmb_dataplane::detached::DetachedWorker;
use mmb_packet::{Kind, Meta, checksum, parse};

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
    let lost = n - answers.len();
    let answered = send_all(worker, arriving(answers, out_port)).len();
    let acknowledged = send_all(worker, arriving(frames, in_port)).len();
    lost.max(n - answered).max(n - acknowledged)
}

/// The frame of the other direction: swaps addresses, ports and TCP's two numbers. Checksums stay valid.
fn reversed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let Some(meta) = read(&frame) else { return frame };
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let (addresses, length) = if meta.kind.l3() == Kind::IP4 { (l3 + 12, 4) } else { (l3 + 8, 16) };
    swap(&mut frame, 0, 6);
    swap(&mut frame, addresses, length);
    swap(&mut frame, l4, 2);
    if meta.kind.l4() == Kind::TCP {
        swap(&mut frame, l4 + 4, 4);
    }
    frame
}

/// Swaps the `n` bytes at `at` with the `n` behind them.
fn swap(frame: &mut [u8], at: usize, n: usize) {
    let (left, right) = frame[at..at + 2 * n].split_at_mut(n);
    left.swap_with_slice(right);
}

/// Turns a segment of an established connection into the SYN or SYN-ACK before it, with the preceding
/// sequence number.
///
/// A SYN keeps its acknowledgment number, which is unused, so that the answer can start with it. A SYN-ACK
/// acknowledges the number behind the SYN. Other frames are unchanged.
fn with_flags(frame: &[u8], flags: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let Some(meta) = read(&frame).filter(|meta| meta.kind.l4() == Kind::TCP) else { return frame };
    let l4 = usize::from(meta.l4_off);
    let end = usize::from(meta.end);
    let number = |frame: &[u8], at: usize| {
        u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
    };
    let sequence = number(&frame, l4 + 4).wrapping_sub(1);
    let acknowledgment = number(&frame, l4 + 8).wrapping_add(u32::from(flags & ACK != 0));
    frame[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
    frame[l4 + 8..l4 + 12].copy_from_slice(&acknowledgment.to_be_bytes());
    frame[l4 + 13] = flags;
    frame[l4 + 16..l4 + 18].fill(0);
    let l3 = usize::from(meta.l3_off);
    let addresses = if meta.kind.l3() == Kind::IP4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let pseudo = checksum::sum(&frame[addresses], 6 + (end - l4) as u32);
    let sum = !checksum::fold(checksum::sum(&frame[l4..end], pseudo));
    frame[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn read(frame: &[u8]) -> Option<Meta> {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).is_ok().then_some(meta)
}
