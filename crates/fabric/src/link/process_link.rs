//! What chains ask of the end of a worker.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mmb_nf::process::{EditRights, FilledBuffer, LinkState, ProcessLink, ProcessVerdict, View};
use mmb_nf::{Meta, Packet, SessionId, SessionInfo, Verdict};
use mmb_packet::DropReason;

use super::{Ends, Link, Source};
use crate::layout::{self, MOVED, OPEN, PacketHeader, RELEASE, buffer_words, verdict_of, write_record};
use crate::pool::BUFFER_HEADER;
use crate::shared::Shared;
use crate::words::{read_bytes, write_bytes};

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
            if !self.is_event[buffer as usize] {
                self.unpin(buffer);
                return Some((buffer, verdict_of(descriptor.tag)));
            }
            if self.sent.front().is_none_or(|(first, _)| *first != buffer) {
                // It comes before an earlier one. All of them are sent again to the next process.
                counters.refused.fetch_add(1, Relaxed);
                self.shared.request_kill();
                return None;
            }
            self.sent.pop_front();
            self.is_event[buffer as usize] = false;
            self.ledger.free(buffer);
            counters.buffers.store(self.ledger.in_use().into(), Relaxed);
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
