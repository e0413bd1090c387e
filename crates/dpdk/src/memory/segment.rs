//! Segments large frames in software.

use std::ptr::NonNull;

use mmb_dpdk_sys as sys;
use mmb_packet::{LargeFrame, SegmentPlace, TcpSegment, checksum};

use super::mbuf::Mbuf;
use super::mempool::CHAIN;
use super::packet::{Packet, Segments};

/// Most segments of a frame; a frame of 64 KiB has 45 with an MTU of 1500.
pub const MAX_SEGMENTS: usize = 2048;

/// Gives the segments of a large frame to `output`, in order, as ordinary packets with complete checksums.
/// They have the frame's metadata, ingress port and time stamp. Returns whether all were made: not if the
/// frame is no large one or has too many segments, nor if its pool is exhausted.
pub fn segment(packet: &Packet, output: impl FnMut(Mbuf)) -> bool {
    let frame = packet.large_frame().filter(|_| packet.is_large());
    frame.is_some_and(|frame| segment_as(packet, &frame, packet.segment_size(), output))
}

/// As [`segment`], of a frame with these headers, in segments of `size` bytes of payload.
pub(crate) fn segment_as(
    packet: &Packet,
    frame: &LargeFrame,
    size: u16,
    mut output: impl FnMut(Mbuf),
) -> bool {
    let size = usize::from(size);
    if size == 0 || frame.payload_len().div_ceil(size) > MAX_SEGMENTS {
        return false;
    }
    let mut payload = Reader::new(packet, frame.header_len());
    frame.segments(size).all(|place| match make(packet, frame, &mut payload, &place) {
        Some(segment) => {
            output(segment);
            true
        }
        None => false,
    })
}

/// Completes the checksum of a large frame whose payload fits one segment, which makes it an ordinary packet.
/// Returns whether it is one now.
pub(crate) fn complete_single(packet: &mut Packet, frame: &LargeFrame) -> bool {
    if frame.payload_len() > usize::from(packet.segment_size()) {
        return false;
    }
    let place = SegmentPlace { number: 0, payload: 0..frame.payload_len(), is_last: true };
    let is_complete = with_pieces(packet, |head, rest| frame.finish_segment(head, rest, &place));
    packet.clear_large();
    is_complete
}

/// Completes a checksum that covers a packet from `start` to its end ([`checksum::complete_from`]).
pub(crate) fn complete_from(packet: &mut Packet, start: usize, field: usize) {
    with_pieces(packet, |head, rest| checksum::complete_from(head, rest, start, field));
}

/// Whether the TCP checksum of a packet is valid, which has the headers of `segment` and at least its length.
pub(crate) fn is_intact(packet: &Packet, segment: &TcpSegment) -> bool {
    let (pieces, n) = gather(packet.segments().skip(1));
    segment.is_intact(packet.data(), &pieces[..n])
}

/// Makes one segment. `payload` is at the segment's part.
fn make(packet: &Packet, frame: &LargeFrame, payload: &mut Reader<'_>, place: &SegmentPlace) -> Option<Mbuf> {
    let headers = packet.data().get(..frame.header_len())?;
    let mut segment = alloc_like(packet)?;
    segment.append(headers.len())?.copy_from_slice(headers);
    let mut left = place.payload.len();
    left -= fill(&mut segment, payload, left)?;
    while left > 0 {
        let mut more = alloc_like(packet)?;
        left -= fill(&mut more, payload, left)?;
        segment.chain(more).ok()?;
    }
    describe(&mut segment, packet);
    with_pieces(&mut segment, |head, rest| frame.finish_segment(head, rest, place)).then_some(segment)
}

/// Appends payload to a packet's last buffer, up to `most` bytes. Returns the number of bytes; `None` if the
/// buffer has no room at all, or the payload has ended.
fn fill(to: &mut Mbuf, payload: &mut Reader<'_>, most: usize) -> Option<usize> {
    let n = to.tailroom().min(most);
    let room = to.append(n)?;
    (payload.read(room) && (n > 0 || most == 0)).then_some(n)
}

/// Calls `f` with the bytes of a packet's first buffer, and those of the next ones, up to [`CHAIN`]. Those
/// that do not fit are left out; the checksum notices.
fn with_pieces<R>(packet: &mut Packet, f: impl FnOnce(&mut [u8], &[&[u8]]) -> R) -> R {
    let (head, segments) = packet.split_first_segment();
    let (pieces, n) = gather(segments);
    f(head, &pieces[..n])
}

/// Collects the bytes of segments. Returns them, and their number.
fn gather<'a>(segments: impl Iterator<Item = &'a [u8]>) -> ([&'a [u8]; CHAIN], usize) {
    let (mut pieces, mut n) = ([&[][..]; CHAIN], 0);
    for (to, segment) in pieces.iter_mut().zip(segments) {
        *to = segment;
        n += 1;
    }
    (pieces, n)
}

/// An empty packet from the pool of another.
fn alloc_like(packet: &Packet) -> Option<Mbuf> {
    // SAFETY: the header is valid; its pool is never freed and gives away the packet that it returns.
    unsafe { NonNull::new(sys::mmb_pktmbuf_alloc((*packet.raw()).pool)).map(|header| Mbuf::from_raw(header)) }
}

/// Copies what the engine knows of a large frame to a segment.
fn describe(segment: &mut Mbuf, packet: &Packet) {
    let end = u16::try_from(segment.pkt_len()).unwrap_or(u16::MAX);
    segment.set_port(packet.port());
    *segment.meta_mut() = *packet.meta();
    segment.meta_mut().end = end;
    if let Some(nanoseconds) = packet.timestamp() {
        segment.set_timestamp(nanoseconds);
    }
}

/// Reads the bytes of a packet in order.
struct Reader<'a> {
    now: &'a [u8],
    rest: Segments<'a>,
}

impl<'a> Reader<'a> {
    /// Reads from byte `from` on, which lies in the first buffer.
    fn new(packet: &'a Packet, from: usize) -> Reader<'a> {
        let mut rest = packet.segments();
        let first = rest.next().unwrap_or(&[]);
        Reader { now: first.get(from..).unwrap_or(&[]), rest }
    }

    /// Fills `to`. False: the packet has fewer bytes.
    fn read(&mut self, mut to: &mut [u8]) -> bool {
        while !to.is_empty() {
            if self.now.is_empty() {
                match self.rest.next() {
                    Some(next) => self.now = next,
                    None => return false,
                }
                continue;
            }
            let n = self.now.len().min(to.len());
            let (from, rest) = self.now.split_at(n);
            let (filled, left) = to.split_at_mut(n);
            filled.copy_from_slice(from);
            (self.now, to) = (rest, left);
        }
        true
    }
}
