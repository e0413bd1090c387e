//! The end of a worker: packets to a process and back.
//!
//! # Theory of operation
//! A packet is copied into a buffer, and its descriptor is written to the ring. In a `zero-copy` domain, a
//! function that changes no packet gets a buffer with the packet's place only, and reads it there. The
//! beginning and the end of sessions go the same way, so that the function learns of a session before its
//! first packet. If there is no room for them, they wait in a queue of the worker, and packets are dropped
//! meanwhile: they cannot overtake.
//!
//! When the process has ended, all buffers are taken back. Packets come back as lost; beginnings and ends of
//! sessions are sent again to the next process, in order. So the function may see one of them twice.

mod incoming;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mmb_nf::process::{EditRights, FilledBuffer, LinkState, PacketMemory, ProcessLink, ProcessVerdict, View};
use mmb_nf::{Meta, Packet, SessionId, SessionInfo, Verdict};
use mmb_packet::DropReason;

use crate::descriptor::Descriptor;
use crate::doorbell::Waker;
use crate::layout::{
    self, MOVED, OPEN, PACKET, PacketHeader, RELEASE, SessionRecord, buffer_words, verdict_of, write_record,
};
use crate::memory::{Region, SharedMemory};
use crate::pool::{BUFFER_HEADER, Ledger};
use crate::ring::{Consumer, Producer};
use crate::shared::Shared;
use crate::words::{read_bytes, write_bytes};
use incoming::Incoming;

/// Beginnings and ends of sessions that wait for room.
const MOST_WAITING: usize = 4096;

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

/// See [`ProcessLink`].
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
    /// Events that the process has, with their buffers.
    sent: VecDeque<(u32, SessionEvent)>,
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
            sent: VecDeque::with_capacity(buffers),
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
        let Link { ledger, lost, is_lost, sent, waiting, .. } = self;
        for buffer in ledger.reclaim() {
            if sent.iter().all(|(of_event, _)| *of_event != buffer) {
                lost.push_back(buffer);
                is_lost[buffer as usize] = true;
            }
        }
        for (buffer, event) in sent.drain(..).rev() {
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
        let Link { ends: Some(Ends { there, .. }), waiting, sent, ledger, pool, .. } = self else { return };
        while let Some(&event) = waiting.front() {
            if !matches!(there.room(), Ok(1..)) {
                break;
            }
            let Some((buffer, descriptor)) = ledger.issue(0, event.info.id.0, event.tag) else { break };
            let words = buffer_words(&**pool, &descriptor, ledger.pool().stride());
            write_record(words, &SessionRecord::from(&event.info));
            // There is room.
            let _ = there.push(descriptor);
            self.descriptors += 1;
            sent.push_back((buffer, event));
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

impl ProcessLink for Link {
    fn poll(&mut self) -> LinkState {
        self.polls += 1;
        let now = self.shared.state.load(Acquire);
        if now != self.seen {
            self.reclaim();
            self.seen = now;
            self.shared.counters[usize::from(self.worker)].attached.store(now, Release);
            self.ends = if Shared::is_up(now) { self.attach() } else { None };
        }
        self.send_waiting();
        match &self.ends {
            Some(_) => LinkState::Up,
            None => LinkState::Down(self.shared.domain.on_failure),
        }
    }

    fn buffers(&self) -> u32 {
        self.ledger.pool().buffers()
    }

    fn in_flight(&self) -> u32 {
        self.ledger.in_flight() + self.lost.len() as u32
    }

    fn room(&mut self) -> u32 {
        let Some(Ends { there, .. }) = self.ends.as_mut().filter(|_| self.waiting.is_empty()) else {
            return 0;
        };
        let slots = there.room().unwrap_or(0);
        let buffers = self.ledger.cached() + self.ledger.pool().free();
        slots.min(buffers as u64) as u32
    }

    fn send(
        &mut self,
        packet: &Packet<'_>,
        input: (View, EditRights),
        now: u32,
        filled: Option<FilledBuffer>,
    ) -> Result<u32, Verdict> {
        let issued = match self.check_room(packet.session.0) {
            Ok(()) => self.issue(packet, filled),
            Err(verdict) => Err(verdict),
        };
        let (buffer, descriptor, source) = issued.inspect_err(|_| {
            if let Some(filled) = filled {
                self.ledger.free_detached(filled.buffer);
            }
        })?;
        let at = self.pin(buffer, packet, source);
        let Link { ends: Some(Ends { there, .. }), ledger, pool, scratch, .. } = self else {
            return Err(Verdict::Drop(DropReason::ProcessFailed));
        };
        let words = buffer_words(&**pool, &descriptor, ledger.pool().stride());
        write_record(words, &PacketHeader::of(packet, input, now, at));
        let bytes = match source {
            Source::Head if at.is_none() => &*packet.head,
            Source::Gathered => scratch.get(..descriptor.len.into()).unwrap_or_default(),
            Source::Head | Source::Buffer => &[],
        };
        write_bytes(words.get(BUFFER_HEADER / 8..).unwrap_or_default(), bytes);
        // There is room.
        let _ = there.push(descriptor);
        self.descriptors += 1;
        Ok(buffer)
    }

    fn pool_id(&self) -> usize {
        Arc::as_ptr(self.ledger.pool()) as usize
    }

    fn detach_buffer(&mut self, buffer: u32) -> Option<FilledBuffer> {
        if self.is_lost.get(buffer as usize).is_none_or(|is_lost| *is_lost) {
            return None;
        }
        let len = self.ledger.detach(buffer)?;
        self.note_buffers();
        let is_in_place = self.is_in_place.get(buffer as usize).is_some_and(|is_in_place| *is_in_place);
        Some(FilledBuffer { buffer, len, is_in_place })
    }

    fn free_detached(&mut self, filled: FilledBuffer) {
        self.ledger.free_detached(filled.buffer);
    }

    fn open(&mut self, session: &SessionInfo, moved: Option<&[u8]>) {
        let words = self.scratchpad(session.id.0);
        let tag = match (moved, &words) {
            (Some(bytes), Some(pad)) => {
                // The process learns of the session later, and has no packet of it.
                write_bytes(crate::words::Words::words(pad), bytes);
                MOVED
            }
            _ => OPEN,
        };
        let is_sent = self.notify(tag, session);
        self.set_opened(session.id.0, is_sent);
    }

    fn read_scratchpad(&self, session: SessionId, bytes: &mut [u8]) -> bool {
        let pad = self.scratchpad(session.0).filter(|_| self.is_opened(session.0));
        if let Some(pad) = &pad {
            read_bytes(crate::words::Words::words(pad), bytes);
        }
        pad.is_some()
    }

    fn release(&mut self, session: &SessionInfo) {
        if self.is_opened(session.id.0) {
            self.set_opened(session.id.0, false);
            // Without room, the function does not learn of the end. The next session gets zeros anyway.
            self.notify(RELEASE, session);
        }
    }

    fn flush(&mut self) {
        // The thread that looks after the process reads it when it is woken up.
        let counters = &self.shared.counters[usize::from(self.worker)];
        counters.in_flight.store(self.ledger.in_flight().into(), Relaxed);
        counters.accepted.store(self.accepted, Relaxed);
        counters.polls.store(self.polls, Relaxed);
        if let Some(Ends { there, waker, .. }) = &mut self.ends
            && there.publish()
        {
            counters.sent.store(self.descriptors, Relaxed);
            counters.in_place.store(self.packets_in_place, Relaxed);
            counters.buffers.store(self.ledger.in_use().into(), Relaxed);
            if waker.wake(&self.shared.bell) {
                counters.wakeups.fetch_add(1, Relaxed);
            }
            self.keeper.wake(&self.shared.attention);
        }
    }

    fn receive(&mut self) -> Option<(u32, ProcessVerdict)> {
        if let Some(buffer) = self.lost.pop_front() {
            return Some((buffer, ProcessVerdict::Lost));
        }
        let counters = &self.shared.counters[usize::from(self.worker)];
        let Ends { back, .. } = self.ends.as_mut()?;
        loop {
            let descriptor = match back.next() {
                Ok(descriptor) => descriptor?,
                Err(_) => {
                    counters.refused.fetch_add(1, Relaxed);
                    self.shared.request_kill();
                    return None;
                }
            };
            let Ok(buffer) = self.ledger.accept(&descriptor) else {
                counters.refused.fetch_add(1, Relaxed);
                continue;
            };
            self.accepted += 1;
            match self.sent.iter().position(|(of_event, _)| *of_event == buffer) {
                Some(at) => {
                    self.sent.remove(at);
                    self.ledger.free(buffer);
                    counters.buffers.store(self.ledger.in_use().into(), Relaxed);
                }
                None => {
                    self.unpin(buffer);
                    return Some((buffer, verdict_of(descriptor.tag)));
                }
            }
        }
    }

    fn copy_back(&mut self, buffer: u32, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        if self.is_lost.get(buffer as usize).is_none_or(|is_lost| *is_lost) {
            // What an ended process has left is not looked at: the packet passes as it was.
            return Ok(());
        }
        if self.is_in_place.get(buffer as usize).is_some_and(|is_in_place| *is_in_place) {
            // The process could only read.
            return Ok(());
        }
        let stride = self.ledger.pool().stride();
        let first = (buffer as usize * stride + BUFFER_HEADER) / 8;
        let len = packet.head.len().min(self.ledger.len_of(buffer));
        let words = crate::words::Words::words(&*self.pool).get(first..).unwrap_or_default();
        let (Some(bytes), Some(head)) = (self.scratch.get_mut(..len), packet.head.get_mut(..len)) else {
            return Err(DropReason::ProcessInvalid);
        };
        read_bytes(words, bytes);
        if bytes == head {
            return Ok(());
        }
        head.copy_from_slice(bytes);
        let mut meta = Meta::default();
        let is_parsed = mmb_packet::parse(packet.head, packet.len as usize, &mut meta).is_ok();
        let shape = |meta: &Meta| (meta.kind, meta.proto, meta.ethertype, meta.l3_off, meta.l4_off, meta.end);
        match is_parsed && shape(&meta) == shape(packet.meta) {
            true => Ok(()),
            false => Err(DropReason::ProcessInvalid),
        }
    }

    fn read_result(&mut self, buffer: u32, result: &mut Vec<u8>) {
        let first = buffer as usize * self.ledger.pool().stride() / 8;
        let words = crate::words::Words::words(&*self.pool).get(first..).unwrap_or_default();
        layout::read_result(words, result);
    }

    fn free(&mut self, buffer: u32) {
        if let Some(is_lost) = self.is_lost.get_mut(buffer as usize)
            && !self.lost.contains(&buffer)
        {
            *is_lost = false;
            self.ledger.free(buffer);
            self.note_buffers();
        }
    }
}
