//! Bodies with the codings gzip and deflate.
//!
//! Theory of operation. The decoder reads the framing of gzip members (RFC 1952) itself. So its state has a
//! fixed size, and a body of many members costs no more memory than one.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::{DecodeError, PIECE, Tally};

const MAGIC: [u8; 2] = [0x1f, 0x8b];
const DEFLATE: u8 = 8;

/// Flags of a gzip member.
pub(super) const HEADER_CRC: u8 = 1 << 1;
pub(super) const EXTRA: u8 = 1 << 2;
pub(super) const NAME: u8 = 1 << 3;
pub(super) const COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0xe0;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The fixed part of a member's header: 10 bytes.
    Header,
    /// The length of the extra field.
    ExtraLength,
    Extra,
    Name,
    Comment,
    HeaderCrc,
    /// The first two bytes of the coding deflate.
    Format,
    Data,
    /// Checksum and length behind the data of a member.
    Trailer,
    /// Bytes that are ignored.
    Behind,
}

/// A body that is being decoded.
pub(super) struct Inflate {
    inflate: Decompress,
    crc: Crc,
    is_gzip: bool,
    step: Step,
    /// The flags of the member whose fields have not been read.
    flags: u8,
    /// Bytes of a part with a fixed length, and how many there are.
    part: [u8; 10],
    len: usize,
    /// Bytes of the extra field that are missing.
    extra: u16,
    /// A member is complete.
    has_member: bool,
    /// Bytes behind the data were ignored.
    has_garbage: bool,
    tally: Tally,
}

impl Inflate {
    pub fn new() -> Inflate {
        Inflate {
            inflate: Decompress::new(false),
            crc: Crc::new(),
            is_gzip: true,
            step: Step::Header,
            flags: 0,
            part: [0; 10],
            len: 0,
            extra: 0,
            has_member: false,
            has_garbage: false,
            tally: Tally::default(),
        }
    }

    /// Another body begins, with the coding gzip or deflate.
    pub fn begin(&mut self, is_gzip: bool) {
        self.inflate.reset(false);
        self.crc.reset();
        self.is_gzip = is_gzip;
        self.step = if is_gzip { Step::Header } else { Step::Format };
        (self.flags, self.len, self.extra) = (0, 0, 0);
        (self.has_member, self.has_garbage) = (false, false);
        self.tally = Tally::default();
    }

    /// See [`super::Decoder::decode`].
    pub fn decode(&mut self, mut bytes: &[u8], out: &mut Vec<u8>, most: usize) -> Result<(), DecodeError> {
        while !bytes.is_empty() {
            let used = match self.step {
                Step::Header => self.header(bytes)?,
                Step::ExtraLength | Step::HeaderCrc => self.fixed(bytes)?,
                Step::Extra => self.extra(bytes),
                Step::Name | Step::Comment => self.text(bytes),
                Step::Format => self.format(bytes, out, most)?,
                Step::Data => self.data(bytes, out, most)?,
                Step::Trailer => self.trailer(bytes)?,
                Step::Behind => {
                    self.has_garbage = true;
                    bytes.len()
                }
            };
            bytes = bytes.get(used..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// See [`super::Decoder::end`].
    pub fn end(&self) -> Result<(), DecodeError> {
        match self.step {
            Step::Behind => Ok(()),
            // One byte behind a member is not the beginning of another one.
            Step::Header if self.has_member && self.len < MAGIC.len() => Ok(()),
            Step::Header | Step::Format if self.tally.read == 0 => Ok(()),
            _ => Err(DecodeError::Truncated),
        }
    }

    /// Whether bytes were found behind the data.
    pub fn has_garbage(&self) -> bool {
        self.has_garbage || self.step == Step::Header && self.has_member && self.len != 0
    }

    /// Takes bytes of a part with a fixed length. Returns how many, and whether the part is complete.
    fn take(&mut self, bytes: &[u8], of: usize) -> (usize, bool) {
        let used = of.saturating_sub(self.len).min(bytes.len());
        if let (Some(place), Some(bytes)) = (self.part.get_mut(self.len..self.len + used), bytes.get(..used))
        {
            place.copy_from_slice(bytes);
        }
        self.len += used;
        self.tally.read += used as u64;
        (used, self.len >= of)
    }

    /// Notes bytes of a header for its checksum.
    fn note(&mut self, bytes: &[u8]) {
        self.tally.read += bytes.len() as u64;
        self.crc.update(bytes);
    }

    /// The part that follows begins.
    fn go(&mut self, step: Step) {
        (self.step, self.len) = (step, 0);
    }

    fn header(&mut self, bytes: &[u8]) -> Result<usize, DecodeError> {
        let (used, is_complete) = self.take(bytes, 10);
        let len = self.len.min(MAGIC.len());
        if self.part[..len] != MAGIC[..len] {
            // What stands behind a member and is no other one is ignored, as gzip does.
            if !self.has_member {
                return Err(DecodeError::Corrupt);
            }
            (self.step, self.has_garbage) = (Step::Behind, true);
            return Ok(used);
        }
        let [_, _, method, flags, ..] = self.part;
        if self.len > 2 && method != DEFLATE || self.len > 3 && flags & RESERVED != 0 {
            return Err(DecodeError::Corrupt);
        }
        if is_complete {
            self.crc.reset();
            self.crc.update(&self.part);
            self.flags = flags;
            self.next_field();
        }
        Ok(used)
    }

    /// Goes on to the next field of a header, or to the data.
    fn next_field(&mut self) {
        let fields = [
            (EXTRA, Step::ExtraLength),
            (NAME, Step::Name),
            (COMMENT, Step::Comment),
            (HEADER_CRC, Step::HeaderCrc),
        ];
        match fields.into_iter().find(|(flag, _)| self.flags & flag != 0) {
            Some((flag, step)) => {
                self.flags &= !flag;
                self.go(step);
            }
            None => {
                self.crc.reset();
                self.inflate.reset(false);
                self.go(Step::Data);
            }
        }
    }

    /// A field of two bytes.
    fn fixed(&mut self, bytes: &[u8]) -> Result<usize, DecodeError> {
        let (used, is_complete) = self.take(bytes, 2);
        if is_complete {
            let number = u16::from_le_bytes([self.part[0], self.part[1]]);
            if self.step == Step::HeaderCrc {
                if number != self.crc.sum() as u16 {
                    return Err(DecodeError::Corrupt);
                }
                self.next_field();
            } else {
                self.crc.update(&number.to_le_bytes());
                self.extra = number;
                self.go(Step::Extra);
                if number == 0 {
                    self.next_field();
                }
            }
        }
        Ok(used)
    }

    fn extra(&mut self, bytes: &[u8]) -> usize {
        let used = bytes.len().min(self.extra.into());
        self.note(bytes.get(..used).unwrap_or(&[]));
        self.extra -= used as u16;
        if self.extra == 0 {
            self.next_field();
        }
        used
    }

    /// A text that ends with 0.
    fn text(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|&byte| byte == 0);
        let used = end.map_or(bytes.len(), |end| end + 1);
        self.note(bytes.get(..used).unwrap_or(&[]));
        if end.is_some() {
            self.next_field();
        }
        used
    }

    /// The first bytes of deflate tell whether they are the header of zlib (RFC 1950, 2.2).
    fn format(&mut self, bytes: &[u8], out: &mut Vec<u8>, most: usize) -> Result<usize, DecodeError> {
        let (used, is_complete) = self.take(bytes, 2);
        if is_complete {
            let [method, check, ..] = self.part;
            let is_zlib = method & 0xf == DEFLATE && u16::from_be_bytes([method, check]) % 31 == 0;
            self.inflate.reset(is_zlib);
            self.go(Step::Data);
            self.tally.read -= 2;
            self.data(&[method, check], out, most)?;
        }
        Ok(used)
    }

    fn data(&mut self, bytes: &[u8], out: &mut Vec<u8>, most: usize) -> Result<usize, DecodeError> {
        let mut used = 0;
        while self.step == Step::Data {
            let rest = bytes.get(used..).unwrap_or(&[]);
            let (read, from) = (self.inflate.total_in(), out.len());
            out.reserve(PIECE);
            let status = self.inflate.decompress_vec(rest, out, FlushDecompress::None);
            let (taken, made) = (self.inflate.total_in() - read, out.len() - from);
            used += taken as usize;
            if self.is_gzip {
                self.crc.update(out.get(from..).unwrap_or(&[]));
            }
            self.tally.add(taken, made, out, most)?;
            match status {
                Ok(Status::StreamEnd) => {
                    self.go(if self.is_gzip { Step::Trailer } else { Step::Behind });
                }
                Ok(_) if taken == 0 && made == 0 => break,
                Ok(_) => {}
                Err(_) => return Err(DecodeError::Corrupt),
            }
        }
        // Without progress, bytes that are left would come again and again.
        if used < bytes.len() && self.step == Step::Data { Err(DecodeError::Corrupt) } else { Ok(used) }
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<usize, DecodeError> {
        let (used, is_complete) = self.take(bytes, 8);
        if is_complete {
            let [crc, len] = [self.crc.sum(), self.crc.amount()].map(u32::to_le_bytes);
            if !self.part.starts_with(&crc) || self.part.get(4..8) != Some(&len) {
                return Err(DecodeError::Corrupt);
            }
            self.has_member = true;
            self.go(Step::Header);
        }
        Ok(used)
    }
}
