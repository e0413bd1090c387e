//! Fields that few sessions have.

use std::io;

use bytemuck::Pod;

use crate::arena::Arena;
use crate::fcb::SessionId;

/// A field of each session that is zero for most of them. It takes memory only where some value is not zero.
/// While all values have been zero, no memory is read either.
#[derive(Debug)]
pub(super) struct RareField<T> {
    values: Arena<T>,
    is_used: bool,
}

impl<T: Pod + PartialEq> RareField<T> {
    /// Reserves the memory of `capacity` sessions.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
    pub fn new(capacity: usize) -> io::Result<RareField<T>> {
        Ok(RareField { values: Arena::new(capacity)?, is_used: false })
    }

    /// Bytes of memory when all sessions have a value.
    pub fn bytes(&self) -> usize {
        size_of_val(self.values.get())
    }

    /// The value of a session.
    #[inline]
    pub fn get(&self, SessionId(session): SessionId) -> T {
        if self.is_used { *self.values.at(session as usize) } else { T::zeroed() }
    }

    /// Stores the value of a session.
    #[inline]
    pub fn set(&mut self, SessionId(session): SessionId, value: T) {
        let is_zero = value == T::zeroed();
        if is_zero && !self.is_used {
            return;
        }
        self.is_used = true;
        let place = self.values.at_mut(session as usize);
        // A write of zeros would take memory.
        if *place != value {
            *place = value;
        }
    }

    /// Requests memory for the next sessions, if the field is used: `sessions` have been in use.
    pub fn request_next(&mut self, sessions: usize) {
        if self.is_used {
            self.values.request_next(sessions);
        }
    }

    /// Prefetches the value of a session.
    #[inline]
    pub fn prefetch(&self, SessionId(session): SessionId) {
        if self.is_used {
            mmb_packet::prefetch::read(self.values.at(session as usize));
        }
    }
}
