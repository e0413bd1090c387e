//! Writes pcapng (draft-ietf-opsawg-pcapng): a section with one Ethernet interface for each port, packets
//! with comments, and the number of packets that are missing.

use std::io::{self, Write};

use mmb_dataplane::PortId;

/// Block types.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Options of all blocks, of interfaces, of packets, and of statistics.
const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const DROPPED: u16 = 5;
/// Link type of Ethernet.
const ETHERNET: u32 = 1;

/// The direction of a packet at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In = 1,
    Out = 2,
}

/// A file with these interfaces. Its last one stands for ports without a name.
pub(super) struct PcapngWriter {
    interfaces: Vec<(PortId, String)>,
}

impl PcapngWriter {
    pub fn new(mut interfaces: Vec<(PortId, String)>) -> PcapngWriter {
        interfaces.push((PortId::NONE, "other".to_owned()));
        PcapngWriter { interfaces }
    }

    /// Writes the section and its interfaces.
    pub fn begin(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut section = Block::new(SECTION);
        // Byte order, version 1.0, unknown length.
        section.words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]);
        section.write(out)?;
        for (_, name) in &self.interfaces {
            let mut interface = Block::new(INTERFACE);
            interface.words(&[ETHERNET, 0]);
            interface.option(IF_NAME, name.as_bytes());
            // Nanoseconds.
            interface.option(IF_TSRESOL, &[9]);
            interface.write(out)?;
        }
        Ok(())
    }

    /// Writes a packet: its bytes as far as they are known, and its length.
    pub fn packet(
        &self,
        out: &mut dyn Write,
        (port, direction): (PortId, Direction),
        time_ns: u64,
        (bytes, len): (&[u8], usize),
        comment: &str,
    ) -> io::Result<()> {
        let mut block = Block::new(PACKET);
        block.words(&[
            self.number(port),
            (time_ns >> 32) as u32,
            time_ns as u32,
            bytes.len() as u32,
            len.max(bytes.len()) as u32,
        ]);
        block.bytes(bytes);
        if !comment.is_empty() {
            block.option(COMMENT, comment.as_bytes());
        }
        block.option(PACKET_FLAGS, &(direction as u32).to_le_bytes());
        block.write(out)
    }

    /// Writes how many packets are missing, with a comment unless it is empty.
    pub fn end(&self, out: &mut dyn Write, missed: u64, comment: &str) -> io::Result<()> {
        let mut block = Block::new(STATISTICS);
        block.words(&[self.number(PortId::NONE), 0, 0]);
        if !comment.is_empty() {
            block.option(COMMENT, comment.as_bytes());
        }
        block.option(DROPPED, &missed.to_le_bytes());
        block.write(out)
    }

    fn number(&self, port: PortId) -> u32 {
        let last = self.interfaces.len() - 1;
        self.interfaces.iter().position(|(id, _)| *id == port).unwrap_or(last) as u32
    }
}

/// A block that is being written.
struct Block {
    kind: u32,
    body: Vec<u8>,
    has_options: bool,
}

impl Block {
    fn new(kind: u32) -> Block {
        Block { kind, body: Vec::new(), has_options: false }
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.body.extend_from_slice(&word.to_le_bytes()));
    }

    /// Bytes, padded to a multiple of 4.
    fn bytes(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
        self.has_options = true;
        self.body.extend_from_slice(&code.to_le_bytes());
        self.body.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.bytes(value);
    }

    fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.has_options {
            // The end of the options.
            self.words(&[0]);
        }
        let length = (self.body.len() as u32 + 12).to_le_bytes();
        out.write_all(&self.kind.to_le_bytes())?;
        out.write_all(&length)?;
        out.write_all(&self.body)?;
        out.write_all(&length)
    }
}

#[cfg(test)]
mod tests;
