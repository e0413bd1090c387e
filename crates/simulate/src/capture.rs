//! Capture files: reads and writes pcap and pcapng.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Nanoseconds since the epoch.
    pub time_ns: u64,
    /// The captured bytes.
    pub data: Vec<u8>,
    /// Bytes that the frame had on the link and the capture does not contain.
    pub missing: u32,
}

/// Why a capture cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file has another format.
    #[error("{} is neither a pcap nor a pcapng capture", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
}

/// How a capture ends.
#[derive(Debug)]
pub enum End {
    /// The last frame has been read.
    Clean,
    /// The rest is truncated or unreadable; the cause.
    Damaged(String),
}

/// Maximum block length in bytes; a longer block means a corrupt file.
const MAX_BLOCK: usize = 16 << 20;
const FIRST_BUFFER: usize = 1 << 18;
/// Bytes of a pcapng block without content: its type, and its length twice.
const MIN_BLOCK: u32 = 12;

/// An interface of a pcapng file.
struct Interface {
    clock: Clock,
    name: Option<String>,
}

/// Time stamp unit and offset of an interface.
#[derive(Clone, Copy)]
struct Clock {
    units_per_second: u64,
    offset_s: i64,
    ethernet: bool,
}

/// Reads frames one by one with [`Reader::next_frame`].
pub struct Reader {
    inner: Box<dyn PcapReaderIterator + Send>,
    capacity: usize,
    legacy: Option<Clock>,
    interfaces: Vec<Interface>,
    /// Where the last frame was captured.
    place: Place,
    /// Whether the section of a pcapng file is big-endian. None: there was no section.
    big_endian: Option<bool>,
    read: u64,
    /// Number of skipped frames on links that are not Ethernet.
    pub foreign: u64,
}

impl Reader {
    /// Opens the capture at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is not a capture.
    pub fn open(path: &Path) -> Result<Reader, CaptureError> {
        let file = File::open(path).map_err(|error| CaptureError::Read { path: path.to_owned(), error })?;
        Reader::new(file).ok_or_else(|| CaptureError::UnknownFormat { path: path.to_owned() })
    }

    /// Reads a capture from its beginning. `None` if it is neither pcap nor pcapng.
    pub fn new(source: impl Read + Send + 'static) -> Option<Reader> {
        let inner = create_reader(FIRST_BUFFER, source).ok()?;
        Some(Reader {
            inner,
            capacity: FIRST_BUFFER,
            legacy: None,
            interfaces: Vec::new(),
            place: Place::default(),
            big_endian: None,
            read: 0,
            foreign: 0,
        })
    }

    /// The name of the interface where the last frame was captured, if the file tells it, and whether the
    /// frame left by this interface.
    pub fn interface(&self) -> Option<(&str, bool)> {
        let interface = self.interfaces.get(self.place.interface?)?;
        Some((interface.name.as_deref()?, self.place.is_outbound))
    }

    /// Returns the next Ethernet frame, or how the capture ends.
    pub fn next_frame(&mut self) -> Result<Frame, End> {
        loop {
            if self.is_block_too_short() {
                return Err(self.damaged("a block is shorter than its own lengths"));
            }
            let (consumed, step) = match self.inner.next() {
                Ok((consumed, block)) => {
                    if let PcapBlockOwned::NG(Block::SectionHeader(header)) = &block {
                        self.big_endian = Some(header.big_endian());
                    }
                    let is_big = self.big_endian == Some(true);
                    self.place = place(&block, is_big).unwrap_or(self.place);
                    let step = step(block, &mut self.legacy, &mut self.interfaces);
                    (consumed, step)
                }
                Err(PcapError::Eof) => return Err(End::Clean),
                Err(PcapError::Incomplete(_)) => {
                    self.refill()?;
                    continue;
                }
                Err(PcapError::BufferTooSmall) => {
                    self.grow()?;
                    continue;
                }
                Err(PcapError::UnexpectedEof) => return Err(self.damaged("it is truncated")),
                Err(e) => {
                    let why = format!("{e:?}");
                    return Err(self.damaged(&why));
                }
            };
            self.inner.consume(consumed);
            match step {
                Step::Frame(frame) => {
                    self.read += 1;
                    return Ok(frame);
                }
                Step::Foreign => self.foreign += 1,
                Step::Other => {}
            }
        }
    }

    /// Whether the next block of a pcapng file says that it is shorter than any block. The parser subtracts
    /// from this length without a check.
    fn is_block_too_short(&self) -> bool {
        let length = self.inner.data().get(4..8).and_then(|bytes| bytes.first_chunk().copied());
        let (Some(is_big), Some(length)) = (self.big_endian, length) else { return false };
        let length = if is_big { u32::from_be_bytes(length) } else { u32::from_le_bytes(length) };
        length < MIN_BLOCK
    }

    fn refill(&mut self) -> Result<(), End> {
        let before = self.inner.data().len();
        let result = self.inner.refill().map_err(|e| match e {
            PcapError::BufferTooSmall => None,
            other => Some(format!("{other:?}")),
        });
        match result {
            Ok(()) if self.inner.data().len() == before && self.inner.reader_exhausted() => {
                Err(if before == 0 { End::Clean } else { self.damaged("it is truncated") })
            }
            Ok(()) => Ok(()),
            Err(None) => self.grow(),
            Err(Some(why)) => Err(self.damaged(&why)),
        }
    }

    fn grow(&mut self) -> Result<(), End> {
        self.capacity *= 2;
        if self.capacity > MAX_BLOCK || !self.inner.grow(self.capacity) {
            return Err(self.damaged("a block is larger than any packet"));
        }
        self.refill()
    }

    fn damaged(&self, why: &str) -> End {
        End::Damaged(format!("the capture is not readable behind packet {}: {why}", self.read))
    }
}

/// Where a frame was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    /// The number of the interface, if the file has interfaces.
    interface: Option<usize>,
    /// Whether the frame left by it.
    is_outbound: bool,
}

/// The option `epb_flags` of a packet, whose two lowest bits are 2 if the packet left.
const PACKET_FLAGS: u16 = 2;
const DIRECTION: u8 = 3;
const OUTBOUND: u8 = 2;

enum Step {
    Frame(Frame),
    Foreign,
    Other,
}

/// Where the packet of a block was captured; `None` for blocks without a packet.
fn place(block: &PcapBlockOwned<'_>, is_big: bool) -> Option<Place> {
    match block {
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let flags = packet.options.iter().find(|option| option.code.0 == PACKET_FLAGS);
            let lowest = flags.and_then(|option| option.value.get(if is_big { 3 } else { 0 }));
            let is_outbound = lowest.is_some_and(|byte| byte & DIRECTION == OUTBOUND);
            Some(Place { interface: Some(packet.if_id as usize), is_outbound })
        }
        PcapBlockOwned::NG(Block::SimplePacket(_)) => Some(Place { interface: Some(0), is_outbound: false }),
        PcapBlockOwned::Legacy(_) => Some(Place::default()),
        _ => None,
    }
}

fn step(block: PcapBlockOwned<'_>, legacy: &mut Option<Clock>, interfaces: &mut Vec<Interface>) -> Step {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let units_per_second = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            let ethernet = header.network == Linktype::ETHERNET;
            *legacy = Some(Clock { units_per_second, offset_s: 0, ethernet });
            Step::Other
        }
        PcapBlockOwned::Legacy(packet) => {
            let Some(clock) = *legacy else { return Step::Other };
            let units = u64::from(packet.ts_sec) * clock.units_per_second + u64::from(packet.ts_usec);
            frame(clock, units, packet.data, packet.caplen, packet.origlen)
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            Step::Other
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            let clock = Clock {
                units_per_second: interface.ts_resolution().unwrap_or(1_000_000),
                offset_s: interface.if_tsoffset,
                ethernet: interface.linktype == Linktype::ETHERNET,
            };
            let name = interface.if_name().and_then(Result::ok).map(str::to_owned);
            interfaces.push(Interface { clock, name });
            Step::Other
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let Some(interface) = interfaces.get(packet.if_id as usize) else { return Step::Foreign };
            let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            frame(interface.clock, units, packet.data, packet.caplen, packet.origlen)
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            let Some(interface) = interfaces.first() else { return Step::Foreign };
            frame(Clock { offset_s: 0, ..interface.clock }, 0, packet.data, packet.origlen, packet.origlen)
        }
        PcapBlockOwned::NG(_) => Step::Other,
    }
}

fn frame(clock: Clock, units: u64, data: &[u8], captured: u32, original: u32) -> Step {
    if !clock.ethernet {
        return Step::Foreign;
    }
    // pcapng pads packet data to four bytes.
    let data = &data[..data.len().min(captured as usize)];
    let per_second = clock.units_per_second.max(1);
    let seconds = ((units / per_second) as i64).saturating_add(clock.offset_s);
    let nanos = u128::from(units % per_second) * 1_000_000_000 / u128::from(per_second);
    Step::Frame(Frame {
        time_ns: (seconds.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(nanos as u64),
        data: data.to_vec(),
        missing: original.saturating_sub(data.len() as u32),
    })
}

/// Writes a file of Ethernet frames with nanosecond time stamps: pcapng if its name ends with `.pcapng`,
/// otherwise pcap.
pub struct Writer {
    out: BufWriter<File>,
    is_pcapng: bool,
}

impl Writer {
    /// Creates the file at `path`.
    pub fn create(path: &Path) -> io::Result<Writer> {
        let mut out = BufWriter::new(File::create(path)?);
        let is_pcapng = path.extension().is_some_and(|extension| extension == "pcapng");
        if is_pcapng {
            // A section header of unknown length, version 1.0; an Ethernet interface with the option
            // if_tsresol of 9, nanoseconds.
            for word in [0x0a0d_0d0a_u32, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28] {
                out.write_all(&word.to_le_bytes())?;
            }
            for word in [1_u32, 32, 1, 262_144, 9 | 1 << 16, 9, 0, 32] {
                out.write_all(&word.to_le_bytes())?;
            }
            return Ok(Writer { out, is_pcapng });
        }
        // Magic of nanosecond time stamps, version 2.4, zone, accuracy, snap length, Ethernet.
        for word in [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 262_144, 1] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(Writer { out, is_pcapng })
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// Those of the file; and a time after February 2106, for which pcap has no room.
    pub fn write(&mut self, frame: &Frame) -> io::Result<()> {
        if self.is_pcapng {
            return self.write_block(frame);
        }
        let captured = frame.data.len() as u32;
        let seconds = u32::try_from(frame.time_ns / 1_000_000_000).map_err(|_| {
            io::Error::other(
                "a frame's time is after 2106, for which pcap has no room: name the file *.pcapng",
            )
        })?;
        let nanos = (frame.time_ns % 1_000_000_000) as u32;
        for word in [seconds, nanos, captured, captured.saturating_add(frame.missing)] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(&frame.data)
    }

    /// Appends an enhanced packet block of pcapng.
    fn write_block(&mut self, frame: &Frame) -> io::Result<()> {
        let captured = frame.data.len() as u32;
        let padding = frame.data.len().next_multiple_of(4) - frame.data.len();
        let length = captured + padding as u32 + 32;
        let (high, low) = ((frame.time_ns >> 32) as u32, frame.time_ns as u32);
        for word in [6, length, 0, high, low, captured, captured.saturating_add(frame.missing)] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(&frame.data)?;
        self.out.write_all(&[0; 4][..padding])?;
        self.out.write_all(&length.to_le_bytes())
    }

    /// Writes out buffered data.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
