//! The layout of shared memory: buffers, rings, scratchpads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytemuck::{Pod, Zeroable};
use mmb_nf::process::{ChangedBytes, EditRights, MOST_RESULT, ProcessVerdict, View};
use mmb_nf::{Direction, Key, Meta, Packet, SessionId, SessionInfo, StreamVerdict, Verdict};
use mmb_packet::DropReason;
use serde::{Deserialize, Serialize};

use crate::descriptor::Descriptor;
use crate::memory::{Region, SharedMemory};
use crate::pool::BUFFER_HEADER;
use crate::ring;
use crate::words::{Word, Words, read_bytes, write_bytes};

/// The longest frame that fits into a buffer: the longest one that a port receives whole.
pub const FRAME: u16 = u16::MAX;

/// What a buffer holds on its way to the process.
pub const PACKET: u16 = 0;
pub const OPEN: u16 = 1;
pub const RELEASE: u16 = 2;
/// A session begins, with the scratchpad that it has had elsewhere.
pub const MOVED: u16 = 3;

/// Words of the doorbell, in front of the rings.
const DOORBELL: usize = 32;
/// Bytes in front of a scratchpad, which keep the next one aligned.
const PAD_ALIGNMENT: usize = 8;

/// Sizes that both sides have to know.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Geometry {
    /// Number of workers.
    pub workers: u16,
    /// Slots of a ring.
    pub slots: u32,
    /// Scratchpads of a worker.
    pub sessions: u32,
    /// Bytes from one scratchpad to the next.
    pub stride: u32,
}

/// The two rings of a worker.
pub struct RingPair {
    /// To the process.
    pub there: Region,
    /// To the worker.
    pub back: Region,
}

impl Geometry {
    /// Returns the geometry for scratchpads of so many bytes.
    pub fn new(workers: u16, buffers: u32, sessions: u32, bytes: usize) -> Geometry {
        let slots = buffers.next_power_of_two().clamp(64, 4096);
        let stride = bytes.next_multiple_of(PAD_ALIGNMENT) as u32;
        Geometry { workers, slots, sessions, stride }
    }

    /// Returns the words of the rings of all workers.
    pub fn ring_words(&self) -> usize {
        DOORBELL + 2 * usize::from(self.workers) * ring::words(self.slots as usize)
    }

    /// Returns the words of the scratchpads of all workers; at least one.
    pub fn pad_words(&self) -> usize {
        (usize::from(self.workers) * self.worker_pad_words()).max(1)
    }

    fn worker_pad_words(&self) -> usize {
        self.sessions as usize * self.stride as usize / 8
    }

    /// Returns the word of the doorbell.
    pub fn doorbell(&self, rings: &Arc<SharedMemory>) -> Option<Region> {
        Region::new(rings, 0, 1)
    }

    /// Returns the rings of a worker.
    pub fn rings(&self, rings: &Arc<SharedMemory>, worker: u16) -> Option<RingPair> {
        let len = ring::words(self.slots as usize);
        let first = DOORBELL + 2 * usize::from(worker) * len;
        Some(RingPair { there: Region::new(rings, first, len)?, back: Region::new(rings, first + len, len)? })
    }

    /// Returns the scratchpads of a worker.
    pub fn pads(&self, pads: &Arc<SharedMemory>, worker: u16) -> Option<Region> {
        let words = self.worker_pad_words();
        Region::new(pads, usize::from(worker) * words, words)
    }

    /// Returns the scratchpad of a session.
    pub fn pad(&self, pads: &Arc<SharedMemory>, worker: u16, session: u32) -> Option<Region> {
        let (words, first) = (self.stride as usize / 8, usize::from(worker) * self.worker_pad_words());
        let has_pad = session < self.sessions;
        has_pad.then(|| Region::new(pads, first + session as usize * words, words))?
    }
}

/// The frame is in the buffer.
const IN_BUFFER: u64 = u64::MAX;

/// The facts about a packet in front of its frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PacketHeader {
    /// Offset of the frame in the engine's packet memory, in two halves. [`IN_BUFFER`]: it is behind the
    /// header.
    at: [u32; 2],
    /// Bytes of the first segment.
    pub head: u32,
    pub now: u32,
    pub in_port: u16,
    /// See [`Packet::segment_size`].
    pub segment_size: u16,
    /// Bytes that are left out, and those that are new ([`View`]).
    skip: u16,
    new: u16,
    /// [`IS_END`] and the bits behind it.
    events: u16,
    /// See [`EditRights::most`].
    most: u16,
    /// See [`ChangedBytes`].
    changed: [u32; 2],
    pub meta: Meta,
}

/// Bits of [`PacketHeader`]: what a [`View`] tells besides bytes, [`EditRights`], and the direction.
const IS_END: u16 = 1;
const IS_RESTART: u16 = 2;
const IS_RELEASE: u16 = 4;
const CAN_EDIT: u16 = 8;
const IS_ONE_WAY: u16 = 16;
const IS_CHANGED: u16 = 32;
const MAY_ANSWER: u16 = 64;
/// The direction of the packet.
const IS_REVERSE: u16 = 128;

impl PacketHeader {
    /// `at`: the offset of the frame in the engine's packet memory. None: the frame is in the buffer.
    pub fn of(
        packet: &Packet<'_>,
        (view, rights): (View, EditRights),
        now: u32,
        at: Option<u64>,
    ) -> PacketHeader {
        let at = at.unwrap_or(IN_BUFFER);
        let bit = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        let ChangedBytes { from, input } = rights.changed.unwrap_or_default();
        PacketHeader {
            at: [at as u32, (at >> 32) as u32],
            head: packet.head.len() as u32,
            now,
            in_port: packet.in_port,
            segment_size: packet.segment_size,
            skip: view.skip,
            new: view.len,
            events: bit(view.is_end, IS_END)
                | bit(view.is_restart, IS_RESTART)
                | bit(view.is_release, IS_RELEASE)
                | bit(rights.can_edit, CAN_EDIT)
                | bit(rights.is_one_way, IS_ONE_WAY)
                | bit(rights.changed.is_some(), IS_CHANGED)
                | bit(rights.may_answer, MAY_ANSWER)
                | bit(packet.direction == Direction::Reverse, IS_REVERSE),
            most: rights.most,
            changed: [from, input],
            meta: *packet.meta,
        }
    }

    /// Returns the offset of the frame in the engine's packet memory. None: the frame is in the buffer.
    pub fn place(&self) -> Option<u64> {
        let at = u64::from(self.at[0]) | u64::from(self.at[1]) << 32;
        (at != IN_BUFFER).then_some(at)
    }

    /// Returns what a stream function gets of the packet, and may do with it.
    pub fn input(&self) -> (View, EditRights) {
        let view = View {
            skip: self.skip,
            len: self.new,
            is_end: self.events & IS_END != 0,
            is_restart: self.events & IS_RESTART != 0,
            is_release: self.events & IS_RELEASE != 0,
            detached: 0,
        };
        let has = |bit: u16| self.events & bit != 0;
        let [from, input] = self.changed;
        let rights = EditRights {
            can_edit: has(CAN_EDIT),
            is_one_way: has(IS_ONE_WAY),
            most: self.most,
            may_answer: has(MAY_ANSWER),
            changed: has(IS_CHANGED).then_some(ChangedBytes { from, input }),
        };
        (view, rights)
    }

    pub fn direction(&self) -> Direction {
        if self.events & IS_REVERSE == 0 { Direction::Forward } else { Direction::Reverse }
    }
}

/// A session, for a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SessionRecord {
    packets: [u64; 2],
    bytes: [u64; 2],
    keys: [Key; 3],
    id: u32,
    created: u32,
    now: u32,
    uid: u32,
    in_port: u16,
    unused: [u16; 3],
}

const _: () = assert!(MOST_RESULT <= FRAME as usize);
const _: () =
    assert!(size_of::<SessionRecord>() <= BUFFER_HEADER && size_of::<PacketHeader>() <= BUFFER_HEADER);

impl From<&SessionInfo> for SessionRecord {
    fn from(info: &SessionInfo) -> SessionRecord {
        let SessionInfo { id, key, ingress_key, egress_key, created, now, in_port, uid, packets, bytes } =
            *info;
        let keys = [key, ingress_key, egress_key];
        SessionRecord { packets, bytes, keys, id: id.0, created, now, uid, in_port, unused: [0; 3] }
    }
}

impl From<SessionRecord> for SessionInfo {
    fn from(record: SessionRecord) -> SessionInfo {
        let SessionRecord { packets, bytes, keys, id, created, now, uid, in_port, .. } = record;
        let [key, ingress_key, egress_key] = keys;
        SessionInfo {
            id: SessionId(id),
            key,
            ingress_key,
            egress_key,
            created,
            now,
            in_port,
            uid,
            packets,
            bytes,
        }
    }
}

/// Returns the words of a buffer.
pub fn buffer_words<'a, M: Words>(pool: &'a M, descriptor: &Descriptor, stride: usize) -> &'a [M::Word] {
    let first = (descriptor.buffer as usize).saturating_mul(stride) / 8;
    pool.words().get(first..first.saturating_add(stride / 8)).unwrap_or(&[])
}

/// Writes a record into the header of a buffer.
pub fn write_record<W: Word>(buffer: &[W], record: &impl Pod) {
    write_bytes(buffer, bytemuck::bytes_of(record));
}

/// Reads a record from the header of a buffer. Each word is read once.
pub fn read_record<W: Word, T: Pod>(buffer: &[W]) -> T {
    let mut record = T::zeroed();
    read_bytes(buffer, bytemuck::bytes_of_mut(&mut record));
    record
}

/// Writes the result of a function that edits into the buffer of its packet, in the place of the frame. Does
/// nothing if it does not fit.
pub fn write_result<W: Word>(buffer: &[W], result: &[u8]) {
    let (Some(len), Some(place)) = (buffer.first(), buffer.get(BUFFER_HEADER / 8..)) else { return };
    if result.len() <= place.len() * 8 {
        len.store(result.len() as u64, Relaxed);
        write_bytes(place, result);
    }
}

/// Reads the result of a function that edits from a buffer: at most [`MOST_RESULT`] bytes. Each word is read
/// once.
pub fn read_result<W: Word>(buffer: &[W], result: &mut Vec<u8>) {
    let (Some(len), Some(place)) = (buffer.first(), buffer.get(BUFFER_HEADER / 8..)) else { return };
    let len = usize::try_from(len.load(Relaxed)).unwrap_or(usize::MAX);
    result.resize(len.min(MOST_RESULT), 0);
    read_bytes(place, result);
}

/// Verdicts on streams have tags from here on, and those on packets before.
const FIRST_STREAM: u16 = 16;
/// The packet was not read.
const LOST: u16 = 32;

/// Returns the bytes of a descriptor that stand for a verdict.
pub fn tag_of(verdict: ProcessVerdict) -> u16 {
    let (kind, value): (u16, u8) = match verdict {
        ProcessVerdict::Packet(verdict) => match verdict {
            Verdict::Pass => (0, 0),
            Verdict::Branch(output) => (1, output),
            Verdict::Drop(reason) => (2, reason as u8),
            Verdict::Consume => (3, 0),
            Verdict::Refuse(reason) => (4, reason as u8),
            Verdict::End(reason) => (5, reason as u8),
            Verdict::Hold => (2, DropReason::ChainError as u8),
        },
        ProcessVerdict::Stream(verdict) => match verdict {
            StreamVerdict::Pass => (FIRST_STREAM, 0),
            StreamVerdict::Detach => (FIRST_STREAM + 1, 0),
            StreamVerdict::NoRoom => (FIRST_STREAM + 2, 0),
            StreamVerdict::Block(reason) => (FIRST_STREAM + 3, reason as u8),
            StreamVerdict::Reset(reason) => (FIRST_STREAM + 4, reason as u8),
            StreamVerdict::Close(reason) => (FIRST_STREAM + 5, reason as u8),
            StreamVerdict::Drop(reason) => (FIRST_STREAM + 6, reason as u8),
            StreamVerdict::End(reason) => (FIRST_STREAM + 7, reason as u8),
        },
        ProcessVerdict::Lost => (LOST, 0),
    };
    kind << 8 | u16::from(value)
}

/// Returns the verdict that came back. What is none drops the packet.
pub fn verdict_of(tag: u16) -> ProcessVerdict {
    let (kind, value) = (tag >> 8, tag as u8);
    match (kind, DropReason::from_number(value)) {
        (0, _) => ProcessVerdict::Packet(Verdict::Pass),
        (1, _) => ProcessVerdict::Packet(Verdict::Branch(value)),
        (2, Some(reason)) => ProcessVerdict::Packet(Verdict::Drop(reason)),
        (3, _) => ProcessVerdict::Packet(Verdict::Consume),
        (4, Some(reason)) => ProcessVerdict::Packet(Verdict::Refuse(reason)),
        (5, Some(reason)) => ProcessVerdict::Packet(Verdict::End(reason)),
        (LOST, _) => ProcessVerdict::Lost,
        (kind, reason) => match (kind.wrapping_sub(FIRST_STREAM), reason) {
            (0, _) => ProcessVerdict::Stream(StreamVerdict::Pass),
            (1, _) => ProcessVerdict::Stream(StreamVerdict::Detach),
            (2, _) => ProcessVerdict::Stream(StreamVerdict::NoRoom),
            (3, Some(reason)) => ProcessVerdict::Stream(StreamVerdict::Block(reason)),
            (4, Some(reason)) => ProcessVerdict::Stream(StreamVerdict::Reset(reason)),
            (5, Some(reason)) => ProcessVerdict::Stream(StreamVerdict::Close(reason)),
            (6, Some(reason)) => ProcessVerdict::Stream(StreamVerdict::Drop(reason)),
            (7, Some(reason)) => ProcessVerdict::Stream(StreamVerdict::End(reason)),
            _ => ProcessVerdict::Packet(Verdict::Drop(DropReason::ProcessInvalid)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn verdicts_come_back_as_they_were() {
        let reason = DropReason::Acl;
        let of_packets = [
            Verdict::Pass,
            Verdict::Branch(63),
            Verdict::Drop(reason),
            Verdict::Consume,
            Verdict::Refuse(reason),
            Verdict::End(reason),
        ];
        let of_streams = [
            StreamVerdict::Pass,
            StreamVerdict::Detach,
            StreamVerdict::NoRoom,
            StreamVerdict::Block(reason),
            StreamVerdict::Reset(reason),
            StreamVerdict::Close(reason),
            StreamVerdict::Drop(reason),
            StreamVerdict::End(reason),
        ];
        let all = of_packets.map(ProcessVerdict::Packet).into_iter().chain([ProcessVerdict::Lost]);
        for verdict in all.chain(of_streams.map(ProcessVerdict::Stream)) {
            assert_eq!(verdict_of(tag_of(verdict)), verdict);
        }
        let held = tag_of(ProcessVerdict::Packet(Verdict::Hold));
        assert_eq!(verdict_of(held), ProcessVerdict::Packet(Verdict::Drop(DropReason::ChainError)));
    }

    #[test]
    fn any_tag_is_a_verdict_that_the_engine_has() {
        let invalid = ProcessVerdict::Packet(Verdict::Drop(DropReason::ProcessInvalid));
        for tag in 0..=u16::MAX {
            assert_ne!(verdict_of(tag), ProcessVerdict::Packet(Verdict::Hold));
        }
        assert_eq!((verdict_of(0x0600), verdict_of(0x02ff), verdict_of(0x1800)), (invalid, invalid, invalid));
    }

    #[test]
    fn results_come_back_and_forged_ones_are_short() {
        let words = (BUFFER_HEADER + usize::from(FRAME)) / 8;
        let buffer: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let (result, mut back) = (vec![7; MOST_RESULT], Vec::new());
        for len in [0, 1, 1000, MOST_RESULT] {
            write_result(&buffer, &result[..len]);
            read_result(&buffer, &mut back);
            assert_eq!(back, result[..len]);
        }
        for forged in [MOST_RESULT as u64 + 1, u64::MAX] {
            buffer[0].store(forged, Relaxed);
            read_result(&buffer, &mut back);
            assert_eq!(back.len(), MOST_RESULT);
        }
        read_result::<AtomicU64>(&[], &mut back);
    }

    #[test]
    fn nothing_overlaps() {
        let geometry = Geometry::new(2, 100, 10, 12);
        assert_eq!((geometry.slots, geometry.stride), (128, 16));
        let rings = Arc::new(SharedMemory::create("test", geometry.ring_words()).unwrap());
        let pads = Arc::new(SharedMemory::create("test", geometry.pad_words()).unwrap());
        let mut places: Vec<(usize, usize)> = Vec::new();
        let mut note = |region: &Region| {
            let start = region.as_mut_ptr() as usize;
            places.push((start, start + region.words().len() * 8));
        };
        note(&geometry.doorbell(&rings).unwrap());
        for worker in 0..2 {
            let pair = geometry.rings(&rings, worker).unwrap();
            [pair.there, pair.back, geometry.pads(&pads, worker).unwrap()].iter().for_each(&mut note);
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[0].1 <= two[1].0), "{places:?}");
        assert!(geometry.rings(&rings, 2).is_none() && geometry.pads(&pads, 2).is_none());
    }
}
