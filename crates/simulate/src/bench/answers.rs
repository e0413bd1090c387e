//! What the other end of a bench's flows answers.
//!
//! Theory of operation. The frame that leaves the graph, translated or edited or not, determines the answer:
//! addresses and ports are swapped, and it arrives at the port where the frame left. [`Answers`] acknowledges
//! every second TCP segment with data (RFC 9293, 3.8.6.3). An acknowledgment is for all bytes before it, so a
//! flow whose segments all have odd places gets its acknowledgment later. With a delay, it waits until so
//! many further segments have left, as on a long path.

use std::collections::VecDeque;

use mmb_packet::{Kind, Meta, checksum, parse};

use super::traffic::ACK;

/// Bytes of the longest acknowledgment: Ethernet, IPv6 and TCP with all options.
const MAX_ANSWER: usize = 14 + 40 + 60;

/// An acknowledgment.
struct Answer {
    bytes: [u8; MAX_ANSWER],
    len: usize,
    /// The segments with data that have left when it is sent.
    due: u64,
}

/// Acknowledgments that wait to be sent.
#[derive(Default)]
pub(super) struct Answers {
    waiting: VecDeque<Answer>,
    segments: u64,
    delay: u64,
}

impl Answers {
    /// Acknowledgments that wait until `delay` further segments, of all flows, have left.
    pub fn new(delay: u64) -> Answers {
        Answers { delay, ..Answers::default() }
    }

    /// Adds an acknowledgment if the frame is a segment with data that gets one.
    pub fn add(&mut self, frame: &[u8]) {
        let Some(meta) = read(frame).filter(|meta| meta.kind.l4() == Kind::TCP) else { return };
        let (l4, end) = (usize::from(meta.l4_off), usize::from(meta.end));
        let len = headers(frame, &meta);
        if len >= end || len > MAX_ANSWER {
            return;
        }
        self.segments += 1;
        if self.segments % 2 == 1 {
            return;
        }
        let mut answer = Answer { bytes: [0; MAX_ANSWER], len, due: self.segments + self.delay };
        let bytes = &mut answer.bytes[..len];
        bytes.copy_from_slice(&frame[..len]);
        reverse(bytes, &meta);
        let next = number(bytes, l4 + 8).wrapping_add((end - len) as u32);
        bytes[l4 + 8..l4 + 12].copy_from_slice(&next.to_be_bytes());
        bytes[l4 + 13] = ACK;
        put_lengths(bytes, &meta);
        put_checksum(bytes, &meta);
        self.waiting.push_back(answer);
    }

    /// Writes one that is due to the start of `out` and returns its length; 0 if none is due.
    pub fn write_next(&mut self, out: &mut [u8]) -> usize {
        let now = self.segments;
        let Some(answer) = self.waiting.pop_front_if(|answer| answer.due <= now) else { return 0 };
        out[..answer.len].copy_from_slice(&answer.bytes[..answer.len]);
        answer.len
    }
}

/// The frame of the other direction: swaps addresses, ports and TCP's two numbers. Checksums stay valid.
pub(super) fn reversed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if let Some(meta) = read(&frame) {
        reverse(&mut frame, &meta);
    }
    frame
}

fn reverse(frame: &mut [u8], meta: &Meta) {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let (addresses, length) = if meta.kind.l3() == Kind::IP4 { (l3 + 12, 4) } else { (l3 + 8, 16) };
    swap(frame, 0, 6);
    swap(frame, addresses, length);
    swap(frame, l4, 2);
    if meta.kind.l4() == Kind::TCP {
        swap(frame, l4 + 4, 4);
    }
}

/// Swaps the `n` bytes at `at` with the `n` behind them.
fn swap(frame: &mut [u8], at: usize, n: usize) {
    let (left, right) = frame[at..at + 2 * n].split_at_mut(n);
    left.swap_with_slice(right);
}

/// Turns a segment of an established connection into the SYN or SYN-ACK before it, without data and with the
/// preceding sequence number.
///
/// A SYN keeps its acknowledgment number, which is unused, so that the answer can start with it. A SYN-ACK
/// acknowledges the number behind the SYN. Other frames are unchanged.
pub(super) fn with_flags(frame: &[u8], flags: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let Some(meta) = read(&frame).filter(|meta| meta.kind.l4() == Kind::TCP) else { return frame };
    let l4 = usize::from(meta.l4_off);
    frame.truncate(headers(&frame, &meta));
    let sequence = number(&frame, l4 + 4).wrapping_sub(1);
    let acknowledgment = number(&frame, l4 + 8).wrapping_add(u32::from(flags & ACK != 0));
    frame[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
    frame[l4 + 8..l4 + 12].copy_from_slice(&acknowledgment.to_be_bytes());
    frame[l4 + 13] = flags;
    put_lengths(&mut frame, &meta);
    put_checksum(&mut frame, &meta);
    frame
}

/// Bytes of the headers of a frame with a TCP segment.
fn headers(frame: &[u8], meta: &Meta) -> usize {
    let l4 = usize::from(meta.l4_off);
    l4 + usize::from(frame[l4 + 12] >> 4) * 4
}

/// Writes the length of an IP packet that ends with its frame, and the checksum of an IPv4 header.
fn put_lengths(frame: &mut [u8], meta: &Meta) {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    if meta.kind.l3() == Kind::IP4 {
        let len = (frame.len() - l3) as u16;
        frame[l3 + 2..l3 + 4].copy_from_slice(&len.to_be_bytes());
        frame[l3 + 10..l3 + 12].fill(0);
        let sum = !checksum::fold(checksum::sum(&frame[l3..l4], 0));
        frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    } else {
        let len = (frame.len() - l3 - 40) as u16;
        frame[l3 + 4..l3 + 6].copy_from_slice(&len.to_be_bytes());
    }
}

/// Writes the TCP checksum (RFC 9293, 3.1) of a frame that ends with its segment.
fn put_checksum(frame: &mut [u8], meta: &Meta) {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    frame[l4 + 16..l4 + 18].fill(0);
    let addresses = if meta.kind.l3() == Kind::IP4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let pseudo = checksum::sum(&frame[addresses], 6 + (frame.len() - l4) as u32);
    let sum = !checksum::fold(checksum::sum(&frame[l4..], pseudo));
    frame[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
}

fn number(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
}

fn read(frame: &[u8]) -> Option<Meta> {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).is_ok().then_some(meta)
}

#[cfg(test)]
mod tests;
