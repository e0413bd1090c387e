//! Search for many patterns in streams of bytes.
//!
//! Theory of operation. A [`PatternSet`] is compiled once, by a thread that may wait. Each worker gets a
//! [`Scan`] of it, which reads chunks of streams and reports where patterns end. What has to be known of a
//! stream between two chunks has a fixed size, which the compiled patterns determine. It is in a slot of the
//! scanner's memory. That memory is reserved when the scanner is made, so no scan and no new stream
//! allocates.
//!
//! There are two backends. [`Backend::Hyperscan`] is the C library `libhs`, which is loaded at run time where
//! it is installed ([`hyperscan`]). [`Backend::AhoCorasick`] knows literals only, and needs nothing. Both
//! report the same: each position at which a pattern ends, for each pattern.

#![deny(unsafe_code)]

mod automaton;
mod error;
mod hyperscan;
mod literals;
mod pattern;
mod set;

pub use error::{PatternError, SearchError};
pub use literals::Literals;
pub use pattern::{Expression, Pattern, Regex};
pub use set::{Backend, PatternSet};

use std::ops::ControlFlow;

/// The end of an occurrence of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    /// Bytes of the stream from its beginning to the end of the occurrence.
    pub end: u64,
    /// Position of the pattern in its set.
    pub pattern: u32,
}

/// A stream of a scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamNumber(std::num::NonZeroU32);

impl StreamNumber {
    /// Returns the stream with a number from [`StreamNumber::get`]. None: 0.
    pub fn new(number: u32) -> Option<StreamNumber> {
        std::num::NonZeroU32::new(number).map(StreamNumber)
    }

    /// Returns the number, to be kept elsewhere. It is not 0.
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the stream of a slot.
    fn of_slot(slot: usize) -> Option<StreamNumber> {
        Self::new(u32::try_from(slot + 1).ok()?)
    }

    fn slot(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Receives matches. [`ControlFlow::Break`] ends the scan.
pub type OnMatch<'a> = dyn FnMut(Match) -> ControlFlow<()> + 'a;

/// A set of patterns for one thread, with the state of its streams.
///
/// A number of a stream that was closed, or that another scanner has given out, finds another stream or none:
/// the results are wrong then, and nothing else.
pub trait Scan: Send {
    /// Opens a stream. None: there is no room.
    fn open(&mut self) -> Option<StreamNumber>;

    /// Closes a stream without an end.
    fn close(&mut self, stream: StreamNumber);

    /// Reads the next bytes of a stream. Matches that end at the same byte come in any order. After
    /// [`ControlFlow::Break`] the stream is as new.
    fn scan(&mut self, stream: StreamNumber, bytes: &[u8], on_match: &mut OnMatch<'_>) -> ControlFlow<()>;

    /// The stream has ended: patterns that are bound to the end (`/x$/`) are reported. The stream is as new
    /// afterwards.
    fn finish(&mut self, stream: StreamNumber, on_match: &mut OnMatch<'_>) -> ControlFlow<()>;

    /// Returns the number of open streams.
    fn open_streams(&self) -> usize;

    /// Returns the greatest number of open streams.
    fn most_streams(&self) -> usize;
}

/// Free and used slots of a memory. Slots that were never used come last, so that their memory stays with the
/// kernel.
#[derive(Debug)]
struct Slots {
    free: Vec<u32>,
    is_open: Vec<bool>,
    most: usize,
}

impl Slots {
    fn new(most: usize) -> Slots {
        Slots { free: Vec::with_capacity(most), is_open: Vec::with_capacity(most), most }
    }

    /// Takes a slot. Returns its number, and whether it has never been used.
    fn take(&mut self) -> Option<(usize, bool)> {
        if let Some(slot) = self.free.pop() {
            *self.is_open.get_mut(slot as usize)? = true;
            return Some((slot as usize, false));
        }
        (self.is_open.len() < self.most).then(|| {
            self.is_open.push(true);
            (self.is_open.len() - 1, true)
        })
    }

    fn release(&mut self, slot: usize) {
        if self.is_open.get_mut(slot).is_some_and(std::mem::take) {
            self.free.push(slot as u32);
        }
    }

    fn is_open(&self, slot: usize) -> bool {
        self.is_open.get(slot).is_some_and(|&is_open| is_open)
    }

    fn open(&self) -> usize {
        self.is_open.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests;
