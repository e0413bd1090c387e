//! Opens the flows of a bench before it begins: a handshake for TCP, a question and its answer for UDP.
//!
//! Theory of operation. What the graph sends says where the answer has to go, translated or not: its addresses and ports,
//! turned round, are those of the answer, which comes in by the port that the question left by.

use mmb_dpdk::Graph;
use mmb_packet::{Kind, Meta, checksum, parse};

use super::BenchError;
use super::ends::{perform, source};
use super::traffic::{ACK, Generator, SYN};
use crate::engine::worker::Worker;

/// Flows that are opened at a time.
const TOGETHER: u32 = 4_096;

/// Opens the flows below `flows` of the worker's generator.
///
/// # Errors
/// How many flows did not come through.
pub(super) fn open(graph: &mut Graph<Worker>, flows: u32) -> Result<(), BenchError> {
    let mut lost = 0;
    for first in (0..flows).step_by(TOGETHER as usize) {
        let some = first..flows.min(first.saturating_add(TOGETHER));
        lost += open_some(graph, some);
    }
    match lost {
        0 => Ok(()),
        n => Err(BenchError(format!(
            "{n} of {flows} flows did not come through; are there enough --sessions?"
        ))),
    }
}

/// Opens some flows; how many did not come through.
fn open_some(graph: &mut Graph<Worker>, flows: std::ops::Range<u32>) -> usize {
    let frames = |generator: &Generator| flows.clone().map(|flow| generator.flow(flow)).collect::<Vec<_>>();
    let Some(source) = source(graph.state_mut()) else { return 0 };
    let Some(frames) = source.generator().map(frames) else { return 0 };
    let (in_port, out_port) = (source.in_port(), source.out_port());
    let n = frames.len();
    let come = |frames: Vec<Vec<u8>>, port| frames.into_iter().map(|frame| (port, frame)).collect();
    let first = frames.iter().map(|frame| with_flags(frame, SYN)).collect();
    let went = perform(graph, come(first, in_port));
    let answers: Vec<_> = went.iter().map(|frame| with_flags(&turned(frame), SYN | ACK)).collect();
    let lost = n - answers.len();
    let answered = perform(graph, come(answers, out_port)).len();
    let acknowledged = perform(graph, come(frames, in_port)).len();
    lost.max(n - answered).max(n - acknowledged)
}

/// The frame of the other direction: addresses and ports of network and transport change places, which no checksum minds, and
/// so do TCP's two numbers.
fn turned(frame: &[u8]) -> Vec<u8> {
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

/// A segment of an established connection as the SYN that its sender began with, one number before it. Its acknowledgment,
/// which nobody reads, stays, so that an answer can begin with it: that one acknowledges the SYN, one behind its number.
/// Other frames as they are.
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
