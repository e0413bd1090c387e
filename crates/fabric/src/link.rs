//! The end of a worker: packets to a process and back.
//!
//! # Theory of operation
//! A packet is copied into a buffer, and its descriptor is written to the ring. In a `zero-copy` domain, a
//! function that changes no packet gets a buffer with the packet's place only, and reads it there. The
//! beginning and the end of sessions go the same way, so that the function learns of a session before its
//! first packet. If there is no room for them, they wait in a queue of the worker, and packets are dropped
//! meanwhile: they cannot overtake. The process returns them in their order; one that does not is killed. So
//! the worker compares the first one only. Their number is limited, and so is what the worker has to do when
//! the process ends.
//!
//! When the process has ended, all buffers are taken back. Packets come back as lost; beginnings and ends of
//! sessions are sent again to the next process, in order. So the function may see one of them twice.

mod incoming;
mod process_link;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mmb_nf::process::{FilledBuffer, PacketMemory};
use mmb_nf::{Packet, SessionInfo, Verdict};
use mmb_packet::DropReason;

use crate::descriptor::Descriptor;
use crate::doorbell::Waker;
use crate::layout::{PACKET, SessionRecord, buffer_words, write_record};
use crate::memory::{Region, SharedMemory};
use crate::pool::Ledger;
use crate::ring::{Consumer, Producer};
use crate::shared::Shared;
use incoming::Incoming;

/// Beginnings and ends of sessions that wait for room.
const MOST_WAITING: usize = 4096;
/// Beginnings and ends of sessions that the process has not returned. Others wait.
const MOST_SENT: usize = 4096;

/// A session that begins or ends.
#[derive(Clone, Copy)]
struct SessionEvent {
    tag: u16,
    info: SessionInfo,
}

/// The ends of the rings with a process.
struct Ends {
    there: Producer<Region>,
    back: Incoming,
    waker: Waker<Region>,
}

/// Where the bytes of a packet are.
#[derive(Clone, Copy)]
enum Source {
    /// In its only segment.
    Head,
    /// In the scratch memory: its segments.
    Gathered,
    /// In the buffer already.
    Buffer,
}

/// A buffer that is not pinned.
const NOT_PINNED: u32 = u32::MAX;

/// Wakes the thread that looks after the process.
type KeeperWaker = Waker<Arc<[std::sync::atomic::AtomicU64]>>;

/// See [`ProcessLink`](mmb_nf::process::ProcessLink).
pub struct Link {
    shared: Arc<Shared>,
    worker: u16,
    keeper: KeeperWaker,
    /// Descriptors that were sent.
    descriptors: u64,
    /// Packets that stayed where they were.
    packets_in_place: u64,
    /// Descriptors that were accepted, and how often they were looked for.
    accepted: u64,
    polls: u64,
    /// The memory in which the process reads packets. None: they are copied for it.
    packets: Option<Arc<dyn PacketMemory>>,
    /// For each buffer: the pinned buffer of the engine in which its packet is, or [`NOT_PINNED`].
    pinned: Box<[u32]>,
    /// For each buffer: whether its packet stayed where it was, also when the pin has ended.
    is_in_place: Box<[bool]>,
    pool: Arc<SharedMemory>,
    ledger: Ledger,
    /// None: there is no process.
    ends: Option<Ends>,
    /// The state of the process that the link has taken over.
    seen: u64,
    /// Sessions whose beginning was sent or waits, one bit each.
    opened: Vec<u64>,
    waiting: VecDeque<SessionEvent>,
    /// Events that the process has, in their order, with their buffers.
    sent: VecDeque<(u32, SessionEvent)>,
    /// For each buffer: whether it is one of them.
    is_event: Box<[bool]>,
    /// Packets of a process that has ended.
    lost: VecDeque<u32>,
    is_lost: Vec<bool>,
    scratch: Box<[u8]>,
}

impl Link {
    pub fn new(shared: Arc<Shared>, worker: u16, sessions: u32) -> Link {
        let pool = shared.domain.memory.clone();
        let ledger = Ledger::new(shared.domain.pool.clone());
        let (buffers, frame) = (ledger.pool().buffers() as usize, ledger.pool().frame());
        Link {
            worker,
            keeper: Waker::new(shared.keeper.clone()),
            descriptors: 0,
            packets_in_place: 0,
            accepted: 0,
            polls: 0,
            packets: shared.packets().cloned(),
            pinned: vec![NOT_PINNED; buffers].into(),
            is_in_place: vec![false; buffers].into(),
            pool,
            ledger,
            ends: None,
            seen: 0,
            opened: vec![0; (sessions as usize).div_ceil(64)],
            waiting: VecDeque::with_capacity(MOST_WAITING),
            sent: VecDeque::with_capacity(buffers.min(MOST_SENT)),
            is_event: vec![false; buffers].into(),
            lost: VecDeque::with_capacity(buffers),
            is_lost: vec![false; buffers],
            scratch: vec![0; frame].into(),
            shared,
        }
    }

    /// The process has ended: takes all buffers back.
    fn reclaim(&mut self) {
        self.ends = None;
        self.unpin_all();
        let Link { ledger, lost, is_lost, sent, is_event, waiting, .. } = self;
        for buffer in ledger.reclaim() {
            if !is_event[buffer as usize] {
                lost.push_back(buffer);
                is_lost[buffer as usize] = true;
            }
        }
        for (buffer, event) in sent.drain(..).rev() {
            is_event[buffer as usize] = false;
            ledger.free(buffer);
            waiting.push_front(event);
        }
        let counters = &self.shared.counters[usize::from(self.worker)];
        counters.lost.fetch_add(self.lost.len() as u64, Relaxed);
        counters.in_flight.store(0, Relaxed);
    }

    /// Takes over the process that runs now, if there is one.
    fn attach(&mut self) -> Option<Ends> {
        let rings = self.shared.rings()?;
        let pair = self.shared.geometry.rings(&rings, self.worker)?;
        Some(Ends {
            there: Producer::new(pair.there)?,
            back: Incoming::new(Consumer::new(pair.back)?),
            waker: Waker::new(self.shared.geometry.doorbell(&rings)?),
        })
    }

    /// Sends events that wait, as far as there is room.
    fn send_waiting(&mut self) {
        let Link { ends: Some(Ends { there, .. }), waiting, sent, is_event, ledger, pool, .. } = self else {
            return;
        };
        while let Some(&event) = waiting.front() {
            if sent.len() >= MOST_SENT || !matches!(there.room(), Ok(1..)) {
                break;
            }
            let Some((buffer, descriptor)) = ledger.issue(0, event.info.id.0, event.tag) else { break };
            let words = buffer_words(&**pool, &descriptor, ledger.pool().stride());
            write_record(words, &SessionRecord::from(&event.info));
            // There is room.
            let _ = there.push(descriptor);
            self.descriptors += 1;
            sent.push_back((buffer, event));
            is_event[buffer as usize] = true;
            waiting.pop_front();
        }
    }

    fn notify(&mut self, tag: u16, info: &SessionInfo) -> bool {
        let has_room = self.waiting.len() < MOST_WAITING;
        if has_room {
            self.waiting.push_back(SessionEvent { tag, info: *info });
            self.send_waiting();
        }
        has_room
    }

    fn set_opened(&mut self, session: u32, is_open: bool) {
        if let Some(word) = self.opened.get_mut(session as usize / 64) {
            let bit = 1 << (session % 64);
            *word = if is_open { *word | bit } else { *word & !bit };
        }
    }

    fn is_opened(&self, session: u32) -> bool {
        self.opened.get(session as usize / 64).is_some_and(|word| word >> (session % 64) & 1 != 0)
    }

    /// Returns the words of a session's scratchpad.
    fn scratchpad(&self, session: u32) -> Option<Region> {
        self.shared.geometry.pad(&self.shared.pads, self.worker, session)
    }

    /// Whether a packet of a session can be sent now.
    fn check_room(&mut self, session: u32) -> Result<(), Verdict> {
        if !self.is_opened(session) {
            // The next packet opens a session, and the function learns of it.
            return Err(Verdict::End(DropReason::ProcessFull));
        }
        let Some(Ends { there, .. }) = &mut self.ends else {
            return Err(Verdict::Drop(DropReason::ProcessFailed));
        };
        match self.waiting.is_empty() && matches!(there.room(), Ok(1..)) {
            true => Ok(()),
            false => Err(self.drop_for(DropReason::ProcessFull)),
        }
    }

    /// Gets a buffer for a packet, or takes over the one that it has.
    fn issue(
        &mut self,
        packet: &Packet<'_>,
        filled: Option<FilledBuffer>,
    ) -> Result<(u32, Descriptor, Source), Verdict> {
        let session = packet.session.0;
        let sized = match filled {
            Some(filled) if !filled.is_in_place => Some((filled.len, Source::Buffer)),
            _ if packet.tail.is_none() => Some((packet.head.len(), Source::Head)),
            _ => self.gather(packet).map(|len| (len, Source::Gathered)),
        };
        let issued = sized.and_then(|(len, source)| {
            let (buffer, descriptor) = match filled {
                Some(FilledBuffer { buffer, .. }) => {
                    (buffer, self.ledger.attach(buffer, len, session, PACKET)?)
                }
                None => self.ledger.issue(len, session, PACKET)?,
            };
            Some((buffer, descriptor, source))
        });
        issued.ok_or_else(|| self.drop_for(DropReason::ProcessFull))
    }

    /// Pins a packet that the process reads where it is. Returns its offset in the packet memory. None: it is
    /// to be copied into its buffer.
    #[inline]
    fn pin(&mut self, buffer: u32, packet: &Packet<'_>, source: Source) -> Option<u64> {
        let at = match (&self.packets, source) {
            (Some(packets), Source::Head) => packets.pin(packet.head),
            _ => None,
        };
        if let Some(is_in_place) = self.is_in_place.get_mut(buffer as usize) {
            *is_in_place = at.is_some();
        }
        let (offset, pinned) = at?;
        if let Some(of_buffer) = self.pinned.get_mut(buffer as usize) {
            *of_buffer = pinned;
        }
        self.packets_in_place += 1;
        Some(offset)
    }

    /// The process has a packet no longer.
    #[inline]
    fn unpin(&mut self, buffer: u32) {
        if let (Some(packets), Some(pinned)) = (&self.packets, self.pinned.get_mut(buffer as usize))
            && *pinned != NOT_PINNED
        {
            packets.unpin(std::mem::replace(pinned, NOT_PINNED));
        }
    }

    fn unpin_all(&mut self) {
        if self.packets.is_some() {
            (0..self.pinned.len() as u32).for_each(|buffer| self.unpin(buffer));
        }
    }

    fn drop_for(&self, reason: DropReason) -> Verdict {
        if reason == DropReason::ProcessFull {
            self.shared.counters[usize::from(self.worker)].full.fetch_add(1, Relaxed);
        }
        Verdict::Drop(reason)
    }

    /// Shows others how many buffers are in use.
    fn note_buffers(&self) {
        self.shared.counters[usize::from(self.worker)].buffers.store(self.ledger.in_use().into(), Relaxed);
    }

    /// Puts the segments of a packet into the scratch memory. Returns their bytes. None: they do not fit.
    fn gather(&mut self, packet: &Packet<'_>) -> Option<usize> {
        let mut len = 0;
        for segment in packet.segments() {
            self.scratch.get_mut(len..len + segment.len())?.copy_from_slice(segment);
            len += segment.len();
        }
        Some(len)
    }
}

impl Drop for Link {
    /// The ledger frees all buffers. The process is gone.
    fn drop(&mut self) {
        self.unpin_all();
        let counters = &self.shared.counters[usize::from(self.worker)];
        counters.buffers.store(0, Relaxed);
        counters.in_flight.store(0, Relaxed);
    }
}
