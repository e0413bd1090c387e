//! Pools of buffers, and the record of those that are in flight.
//!
//! # Theory of operation
//! A pool has buffers of one size. A buffer is free, or belongs to one [`Ledger`]: that of a function and
//! worker. The ledger *issues* it to the function's process, with a generation that grows by one each time. A
//! descriptor that comes back is accepted once, if the ledger has issued its buffer, in this generation, with
//! this length, for this session. So forged descriptors, replayed ones and those of buffers that came back
//! before are told from true ones by private memory alone.
//!
//! Free buffers are in a queue that all ledgers share. Each ledger caches a few and uses the last one
//! first, because its bytes are in the cache.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::descriptor::Descriptor;

/// Bytes at the start of a buffer that describe the packet.
pub const BUFFER_HEADER: usize = 256;

/// Buffers are aligned to cache lines.
const ALIGNMENT: usize = 64;
/// Most free buffers that a ledger caches: a vector, so that those of a vector that comes back stay out of
/// the shared queue.
const MOST_CACHED: usize = 256;

/// The free buffers of a pool.
#[derive(Debug)]
pub struct Pool {
    stride: u32,
    buffers: u32,
    frame: u16,
    free: ArrayQueue<u32>,
}

impl Pool {
    /// Makes a pool of buffers for frames of at most `frame` bytes. None: there are no buffers.
    pub fn new(buffers: u32, frame: u16) -> Option<Pool> {
        let stride = (BUFFER_HEADER + usize::from(frame)).next_multiple_of(ALIGNMENT) as u32;
        if buffers == 0 {
            return None;
        }
        let free = ArrayQueue::new(buffers as usize);
        for buffer in 0..buffers {
            // There is room for all of them.
            let _ = free.push(buffer);
        }
        Some(Pool { stride, buffers, frame, free })
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.stride as usize * self.buffers as usize
    }

    /// Returns the bytes from one buffer to the next.
    pub fn stride(&self) -> usize {
        self.stride as usize
    }

    /// Returns the number of buffers.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Returns the number of free buffers.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the bytes of the longest frame.
    pub fn frame(&self) -> usize {
        self.frame.into()
    }
}

/// Why a descriptor that came back is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// There is no buffer with this number.
    #[error("there is no buffer with this number")]
    Number,
    /// The buffer is not in flight: it came back before, or belongs to others.
    #[error("the buffer is not in flight")]
    Owner,
    /// The descriptor is of an earlier issue.
    #[error("the descriptor is of an earlier issue")]
    Generation,
    /// Length or session are not as they were issued.
    #[error("the length or the session is not as it was issued")]
    Length,
}

/// What the owner knows of a buffer: the words of the descriptor with which it was issued last. In the place
/// of the tag, which the process changes, is the [`State`]. So one comparison of 16 bytes tells a true
/// descriptor, and no slot lies in two cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
struct Slot([u64; 2]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum State {
    /// The buffer is free, or another ledger has it.
    Foreign,
    /// The process has the buffer.
    InFlight,
    /// The buffer came back, and its bytes are still needed.
    Returned,
}

impl Slot {
    #[inline(always)]
    fn new(descriptor: &Descriptor, state: State) -> Slot {
        Slot(Descriptor { tag: state as u16, ..*descriptor }.to_words())
    }

    #[inline(always)]
    fn issued(&self) -> Descriptor {
        Descriptor::from_words(self.0)
    }

    #[inline(always)]
    fn is(&self, state: State) -> bool {
        self.issued().tag == state as u16
    }

    #[inline(always)]
    fn set(&mut self, state: State) {
        *self = Slot::new(&self.issued(), state);
    }

    /// Returns why a descriptor of this buffer is refused.
    #[cold]
    fn reject(&self, descriptor: &Descriptor) -> Rejected {
        match self.issued() {
            _ if !self.is(State::InFlight) => Rejected::Owner,
            issued if issued.generation != descriptor.generation => Rejected::Generation,
            _ => Rejected::Length,
        }
    }
}

/// The buffers of a pool that one owner has.
#[derive(Debug)]
pub struct Ledger {
    pool: Arc<Pool>,
    slots: Vec<Slot>,
    /// Free buffers of this owner, at most `most_cached`.
    cached: Vec<u32>,
    most_cached: usize,
    /// Buffers that the process has.
    in_flight: u32,
    /// Buffers that are not free: those that the process has, and those that came back.
    in_use: u32,
}

impl Ledger {
    /// Makes the books of an owner.
    pub fn new(pool: Arc<Pool>) -> Ledger {
        let slots = vec![Slot::default(); pool.buffers as usize];
        let most_cached = (pool.buffers as usize / 16).min(MOST_CACHED);
        Ledger { pool, slots, cached: Vec::with_capacity(most_cached), most_cached, in_flight: 0, in_use: 0 }
    }

    /// Takes a free buffer and issues it. Returns its number and the descriptor. None: no buffer is free, or
    /// the frame is too long.
    #[inline]
    pub fn issue(&mut self, len: usize, session: u32, tag: u16) -> Option<(u32, Descriptor)> {
        if len > self.pool.frame() {
            return None;
        }
        let buffer = self.cached.pop().or_else(|| self.pool.free.pop())?;
        let slot = self.slots.get_mut(buffer as usize)?;
        let generation = slot.issued().generation.wrapping_add(1);
        let descriptor = Descriptor { buffer, len: len as u16, tag, session, generation };
        *slot = Slot::new(&descriptor, State::InFlight);
        self.in_flight += 1;
        self.in_use += 1;
        Some((buffer, descriptor))
    }

    /// Takes a descriptor that came back. Returns the number of its buffer, which stays with the owner until
    /// [`Ledger::free`].
    ///
    /// # Errors
    /// The descriptor is not one that the owner has issued, or it came back before. Nothing is changed.
    #[inline]
    pub fn accept(&mut self, descriptor: &Descriptor) -> Result<u32, Rejected> {
        let buffer = descriptor.buffer;
        let slot = self.slots.get_mut(buffer as usize).ok_or(Rejected::Number)?;
        if *slot != Slot::new(descriptor, State::InFlight) {
            return Err(slot.reject(descriptor));
        }
        slot.set(State::Returned);
        self.in_flight -= 1;
        Ok(buffer)
    }

    /// Makes a buffer free that came back. Other buffers stay as they are.
    #[inline]
    pub fn free(&mut self, buffer: u32) {
        if let Some(slot) = self.slots.get_mut(buffer as usize).filter(|slot| slot.is(State::Returned)) {
            slot.set(State::Foreign);
            self.in_use -= 1;
            if self.cached.len() < self.most_cached {
                self.cached.push(buffer);
            } else {
                // There is room for all buffers.
                let _ = self.pool.free.push(buffer);
            }
        }
    }

    /// Gives up a buffer that came back, for another owner of the same pool. Returns the bytes of its frame.
    /// None: it has not come back.
    pub fn detach(&mut self, buffer: u32) -> Option<usize> {
        let slot = self.slots.get_mut(buffer as usize).filter(|slot| slot.is(State::Returned))?;
        slot.set(State::Foreign);
        self.in_use -= 1;
        Some(slot.issued().len.into())
    }

    /// Takes over a buffer that another owner of the pool has detached, and issues it.
    pub fn attach(&mut self, buffer: u32, len: usize, session: u32, tag: u16) -> Option<Descriptor> {
        let len = u16::try_from(len).ok()?;
        let slot = self.slots.get_mut(buffer as usize).filter(|slot| slot.is(State::Foreign))?;
        let generation = slot.issued().generation.wrapping_add(1);
        let descriptor = Descriptor { buffer, len, tag, session, generation };
        *slot = Slot::new(&descriptor, State::InFlight);
        self.in_flight += 1;
        self.in_use += 1;
        Some(descriptor)
    }

    /// Makes a buffer free that another owner has given up and nobody takes over.
    pub fn free_detached(&mut self, buffer: u32) {
        // There is room for all buffers.
        let _ = self.pool.free.push(buffer);
    }

    /// Takes back all buffers of a process that is gone, in the order of their numbers. They stay with the
    /// owner until [`Ledger::free`].
    pub fn reclaim(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.in_flight = 0;
        let in_flight = self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.is(State::InFlight));
        in_flight.map(|(buffer, slot)| {
            slot.set(State::Returned);
            buffer as u32
        })
    }

    /// Returns the number of buffers that the process has.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of buffers of this owner that are not free.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Returns the number of free buffers that are cached here, which other owners cannot use.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    /// Returns the bytes of the frame in a buffer, as they were issued.
    pub fn len_of(&self, buffer: u32) -> usize {
        self.slots.get(buffer as usize).map_or(0, |slot| slot.issued().len.into())
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for Ledger {
    /// Frees all buffers. The process must be gone.
    fn drop(&mut self) {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| !slot.is(State::Foreign));
        for buffer in slots.map(|(buffer, _)| buffer as u32).chain(self.cached.drain(..)) {
            // There is room for all buffers.
            let _ = self.pool.free.push(buffer);
        }
    }
}
