//! Builders of frames with valid lengths and checksums, for tests and the traffic generator.
//!
//! ```
//! use mmb_packet::build::{Frame, Ip4, Tcp};
//!
//! let ip = Ip4 { ttl: 3, ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) };
//! let frame = Frame::new(ip, Tcp::new(40_000, 80)).vlan(5).payload(b"GET /").build();
//! assert_eq!(frame.len(), 14 + 4 + 20 + 20 + 5);
//! ```

mod ip;
mod transport;

pub use ip::{Extension, Ip4, Ip6, Net};
pub use transport::{Icmp, Tcp, Transport, Udp};

use crate::checksum::{fold, sum};

/// Description of a frame: Ethernet, VLAN tags, network header, transport header, payload, padding.
#[derive(Clone, Debug)]
pub struct Frame {
    destination: [u8; 6],
    source: [u8; 6],
    tags: Vec<[u16; 2]>,
    net: Net,
    transport: Transport,
    payload: Vec<u8>,
    min_len: usize,
    partial: bool,
}

impl Frame {
    /// An untagged frame between two locally administered addresses, without payload.
    pub fn new(net: impl Into<Net>, transport: impl Into<Transport>) -> Self {
        Frame {
            destination: [2, 0, 0, 0, 0, 2],
            source: [2, 0, 0, 0, 0, 1],
            tags: Vec::new(),
            net: net.into(),
            transport: transport.into(),
            payload: Vec::new(),
            min_len: 0,
            partial: false,
        }
    }

    /// A frame of any ethertype (or IEEE 802.3 length); [`Frame::payload`] follows it directly.
    pub fn ethernet(ethertype: u16) -> Self {
        Self::new(Net::Other { ethertype }, Transport::Raw(0))
    }

    /// Sets both Ethernet addresses.
    pub fn macs(mut self, source: [u8; 6], destination: [u8; 6]) -> Self {
        (self.source, self.destination) = (source, destination);
        self
    }

    /// Adds an 802.1Q tag (0x8100) inside the present tags.
    pub fn vlan(self, id: u16) -> Self {
        self.tag(0x8100, id)
    }

    /// Adds a tag with this protocol identifier and control information inside the present tags.
    pub fn tag(mut self, tpid: u16, tci: u16) -> Self {
        self.tags.push([tpid, tci]);
        self
    }

    /// Sets the bytes behind the transport header. Bytes beyond the maximum IP length are left out of the
    /// frame.
    pub fn payload(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.payload = bytes.into();
        self
    }

    /// Pads the frame with zeros to `len` bytes (Ethernet's minimum is 60 without the frame check
    /// sequence).
    pub fn pad_to(mut self, len: usize) -> Self {
        self.min_len = len;
        self
    }

    /// Sets the TCP or UDP checksum to the folded sum of the pseudo header, as Linux does for checksum
    /// offload.
    pub fn partial_checksum(mut self) -> Self {
        self.partial = true;
        self
    }

    /// Returns the bytes of the frame.
    pub fn build(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.min_len.max(128 + self.payload.len()));
        frame.extend(self.destination);
        frame.extend(self.source);
        for [tpid, tci] in &self.tags {
            frame.extend(tpid.to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        frame.extend(self.net.ethertype().to_be_bytes());
        let segment = self.segment();
        frame.extend(self.net.header(self.proto(), segment.len()));
        frame.extend(segment);
        frame.resize(frame.len().max(self.min_len), 0);
        frame
    }

    fn proto(&self) -> u8 {
        self.transport.number(matches!(self.net, Net::Ip6(_)))
    }

    /// Transport header and payload, with the checksum.
    fn segment(&self) -> Vec<u8> {
        let mut segment = self.transport.header();
        let room = self.net.max_payload().saturating_sub(segment.len());
        segment.extend(&self.payload[..self.payload.len().min(room)]);
        self.transport.set_length(&mut segment);
        if let Some(at) = self.transport.checksum_at() {
            let csum = self.transport.as_sent(self.checksum(&segment));
            segment[at..at + 2].copy_from_slice(&csum.to_be_bytes());
        }
        segment
    }

    /// Computes the transport checksum of a segment whose checksum field is 0.
    fn checksum(&self, segment: &[u8]) -> u16 {
        let is_icmp = matches!(self.transport, Transport::Icmp(_));
        let pseudo = match self.net {
            Net::Ip4(_) if is_icmp => 0,
            _ => self.net.pseudo_sum(self.proto(), segment.len()),
        };
        if self.partial && !is_icmp { fold(pseudo) } else { !fold(sum(segment, pseudo)) }
    }
}
