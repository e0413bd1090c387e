//! Content codings of HTTP bodies that are decoded: gzip, deflate, br and zstd (RFC 9110, 8.4.1).
//!
//! Theory of operation. A [`Decoder`] gets the bytes of a body in pieces that may end anywhere, and appends
//! what they mean to a buffer. Decoders are from a pool of the worker ([`Decoders`]). One is made when more
//! bodies than ever before are decoded at the same time, and is used again from then on. With gzip and
//! deflate its size is fixed. With br and zstd the body says how much memory its window needs. What all
//! bodies of a worker need has a limit.
//!
//! Decoded bytes leave before the body has ended. An error is noticed at the checksum at the latest. br has
//! none.

mod brotli;
mod inflate;
mod zstd;

use brotli::Brotli;
use inflate::Inflate;
use zstd::Zstd;

/// Most bodies of a worker that are decoded at the same time. A decoder has some 44 KiB, and what the windows
/// of br and zstd need.
pub(crate) const MOST_DECODERS: usize = if cfg!(test) { 8 } else { 1024 };
/// Most decoded bytes of one call.
pub(crate) const MOST_DECODED: usize = 1 << 20;
/// Room that is made for decoded bytes.
const PIECE: usize = 16 << 10;
/// Most decoded bytes for each byte of a body, if the body has more than [`MOST_DECODED`].
const MOST_RATIO: u64 = 200;
/// Most memory for br and zstd of a worker, in bytes. With half of it, no other body is begun. A body has at
/// most some 20 MiB.
const MOST_MEMORY: usize = if cfg!(test) { 24 << 20 } else { 128 << 20 };

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    /// Data of zlib (RFC 1950), or bare deflate data (RFC 1951), which some servers send.
    Deflate,
    /// Brotli (RFC 7932).
    Br,
    /// RFC 8878 and 9659.
    Zstd,
}

impl Coding {
    /// All of them, in the order of their numbers.
    pub const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Br, Coding::Zstd];

    /// Returns the coding with a name, if it is decoded.
    pub fn of(name: &[u8]) -> Option<Coding> {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match () {
            () if is(b"gzip") || is(b"x-gzip") => Some(Coding::Gzip),
            () if is(b"deflate") => Some(Coding::Deflate),
            () if is(b"br") => Some(Coding::Br),
            () if is(b"zstd") => Some(Coding::Zstd),
            () => None,
        }
    }
}

/// Why a body cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The data is not of the coding, or a checksum is wrong.
    Corrupt,
    /// The data ends too early.
    Truncated,
    /// There are too many decoded bytes at a time, or for the bytes of the body.
    TooLarge,
    /// The bodies that are being decoded need too much memory.
    Memory,
}

/// Bytes of a body, and decoded bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    read: u64,
    decoded: u64,
}

impl Tally {
    /// Counts bytes that were read, and those that were appended to `out` for them.
    ///
    /// # Errors
    /// They are too many. `out` has `most` bytes then.
    fn add(&mut self, read: u64, made: usize, out: &mut Vec<u8>, most: usize) -> Result<(), DecodeError> {
        (self.read, self.decoded) = (self.read + read, self.decoded + made as u64);
        let is_large = self.decoded > MOST_DECODED as u64 && self.decoded / MOST_RATIO > self.read;
        if out.len() > most || is_large {
            out.truncate(most);
            return Err(DecodeError::TooLarge);
        }
        Ok(())
    }
}

/// A body that is being decoded.
pub(crate) struct Decoder {
    coding: Coding,
    inflate: Inflate,
    /// The body that has the coding br.
    brotli: Option<Brotli>,
    /// Made for the first body with the coding zstd.
    zstd: Option<Zstd>,
    /// Memory for br and zstd, and that of all decoders of the pool before this body was read further.
    memory: usize,
    others: usize,
    /// Decoded bytes that the owner keeps.
    pub kept: Vec<u8>,
}

impl Decoder {
    fn new(keeps: usize) -> Decoder {
        Decoder {
            coding: Coding::Gzip,
            inflate: Inflate::new(),
            brotli: None,
            zstd: None,
            memory: 0,
            others: 0,
            kept: Vec::with_capacity(keeps),
        }
    }

    /// Begins a body. Returns whether there is memory for it.
    fn begin(&mut self, coding: Coding) -> bool {
        self.coding = coding;
        self.kept.clear();
        match coding {
            Coding::Gzip | Coding::Deflate => self.inflate.begin(coding == Coding::Gzip),
            Coding::Br => self.brotli = Some(Brotli::new()),
            Coding::Zstd => {
                self.zstd = self.zstd.take().or_else(Zstd::new);
                let Some(zstd) = &mut self.zstd else { return false };
                zstd.begin();
            }
        }
        true
    }

    /// The body is over. `keeps`: memory is kept for the next one.
    fn finish(&mut self, keeps: bool) {
        self.brotli = None;
        self.zstd = self.zstd.take().filter(|_| keeps);
        self.count_memory();
    }

    fn count_memory(&mut self) {
        let brotli = self.brotli.as_ref().map_or(0, Brotli::memory);
        self.memory = brotli + self.zstd.as_ref().map_or(0, Zstd::memory);
    }

    /// Decodes bytes of the body. Appends what they mean to `out`, which has then at most `most` bytes.
    ///
    /// # Errors
    /// The body cannot be decoded. `out` has what is in front of the error.
    pub fn decode(&mut self, bytes: &[u8], out: &mut Vec<u8>, most: usize) -> Result<(), DecodeError> {
        let result = match (self.coding, &mut self.brotli, &mut self.zstd) {
            (Coding::Gzip | Coding::Deflate, ..) => return self.inflate.decode(bytes, out, most),
            (Coding::Br, Some(brotli), _) => brotli.decode(bytes, out, most),
            (Coding::Zstd, _, Some(zstd)) => zstd.decode(bytes, out, most),
            _ => Err(DecodeError::Memory),
        };
        self.count_memory();
        if self.others + self.memory > MOST_MEMORY { Err(DecodeError::Memory) } else { result }
    }

    /// The body has ended.
    ///
    /// # Errors
    /// The data has not. A body without a byte is accepted.
    pub fn end(&self) -> Result<(), DecodeError> {
        match (self.coding, &self.brotli, &self.zstd) {
            (Coding::Gzip | Coding::Deflate, ..) => self.inflate.end(),
            (Coding::Br, Some(brotli), _) => brotli.end(),
            (Coding::Zstd, _, Some(zstd)) => zstd.end(),
            _ => Err(DecodeError::Memory),
        }
    }

    /// Whether bytes were found behind the data.
    pub fn has_garbage(&self) -> bool {
        match self.coding {
            Coding::Gzip | Coding::Deflate => self.inflate.has_garbage(),
            Coding::Br => self.brotli.as_ref().is_some_and(Brotli::has_garbage),
            Coding::Zstd => self.zstd.as_ref().is_some_and(Zstd::has_garbage),
        }
    }
}

/// The decoders of a worker. They are numbered from 1.
pub(crate) struct Decoders {
    all: Vec<Decoder>,
    free: Vec<u16>,
    /// Room in [`Decoder::kept`].
    keeps: usize,
    /// Memory for br and zstd of all decoders but the one that was returned last.
    memory: usize,
    last: u16,
}

impl Decoders {
    /// `keeps`: bytes that owners keep in a decoder.
    pub fn new(keeps: usize) -> Decoders {
        let (all, free) = (Vec::with_capacity(MOST_DECODERS), Vec::with_capacity(MOST_DECODERS));
        Decoders { all, free, keeps, memory: 0, last: 0 }
    }

    /// Takes a decoder for a body. Returns its number. None: all are in use, or their memory is.
    pub fn open(&mut self, coding: Coding) -> Option<u16> {
        self.settle_last();
        if matches!(coding, Coding::Br | Coding::Zstd) && self.memory > MOST_MEMORY / 2 {
            return None;
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.all.len() < MOST_DECODERS => {
                self.all.push(Decoder::new(self.keeps));
                self.all.len() as u16
            }
            None => return None,
        };
        if !self.get(number)?.begin(coding) {
            self.free.push(number);
            return None;
        }
        Some(number)
    }

    pub fn get(&mut self, number: u16) -> Option<&mut Decoder> {
        self.settle_last();
        let decoder = self.all.get_mut(usize::from(number).checked_sub(1)?)?;
        self.memory -= decoder.memory;
        (decoder.others, self.last) = (self.memory, number);
        Some(decoder)
    }

    /// Counts the memory of the decoder that was used last.
    fn settle_last(&mut self) {
        let last = usize::from(std::mem::take(&mut self.last)).checked_sub(1);
        self.memory += last.and_then(|last| self.all.get(last)).map_or(0, |decoder| decoder.memory);
    }

    /// Gives a decoder back. 0: there is none.
    pub fn close(&mut self, number: u16) {
        if let Some(decoder) = self.get(number) {
            decoder.finish(decoder.others + decoder.memory <= MOST_MEMORY / 4);
            self.free.push(number);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
