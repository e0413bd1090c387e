//! The sampled packets of one walk, as they were received.

use std::ops::Range;

use mmb_dpdk::{FastKey, Packet};
use mmb_packet::SegmentPlace;

/// Sampled packets of a walk, at most.
const PACKETS_MAX: usize = 32;
/// Bytes of them, at most, unless there is only one: they are copied.
const BYTES_MAX: usize = 8192;

/// A flow as samples distinguish it.
///
/// Packets that another worker has received count as another flow. A packet that is handed off to the worker
/// of its addresses, and by that one to the worker of its session, is sampled in vain the first time and with
/// success the second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SampledFlow {
    pub key: FastKey,
    /// Another worker has received the packet.
    pub handed_off: bool,
}

/// A sampled packet.
pub(crate) struct SampledPacket {
    /// Address of its buffer.
    address: usize,
    pub flow: SampledFlow,
    pub port: u16,
    /// There were several packets of its flow.
    pub is_frequent: bool,
    /// The budget for its flow is spent.
    pub is_paid: bool,
    /// Its bytes in the common buffer.
    bytes: Range<usize>,
}

/// The sampled packets of one walk.
#[derive(Default)]
pub(crate) struct SampledPackets {
    list: Vec<SampledPacket>,
    bytes: Vec<u8>,
    /// A Bloom filter of their addresses, by which most other packets are dismissed.
    filter: u64,
}

/// Returns the frame that a packet stands for. Of a large frame, this is its first segment, as far as the
/// first buffer has it, in `scratch`: what is done to one segment is done to all. None: another packet of
/// several buffers.
pub(crate) fn frame_of<'a>(packet: &'a Packet, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let data = packet.data();
    if !packet.is_large() {
        return (packet.nb_segs() == 1).then_some(data);
    }
    let large = packet.large_frame()?;
    let payload = data.len().checked_sub(large.header_len())?.min(packet.segment_size().into());
    let payload = payload.min(large.payload_len());
    scratch.clear();
    scratch.extend_from_slice(data.get(..large.header_len() + payload)?);
    // With all flags of the large frame.
    let place = SegmentPlace { number: 0, payload: 0..payload, is_last: true };
    large.finish_segment(scratch, &[], &place).then_some(scratch)
}

/// The address of a packet's buffer.
fn address_of(packet: &Packet) -> usize {
    std::ptr::from_ref(packet).addr()
}

/// The filter's bit of an address.
fn filter_bit(address: usize) -> u64 {
    1 << ((address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

impl SampledPackets {
    /// Whether there is none, or none left.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether a packet of so many bytes can be added.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.list.len() < PACKETS_MAX && (self.bytes.is_empty() || self.bytes.len() + bytes <= BYTES_MAX)
    }

    /// Adds a packet. `frame`: see [`frame_of`].
    pub fn insert(
        &mut self,
        (packet, frame): (&Packet, &[u8]),
        flow: SampledFlow,
        is_frequent: bool,
        is_paid: bool,
    ) {
        let (address, first) = (address_of(packet), self.bytes.len());
        self.bytes.extend_from_slice(frame);
        self.filter |= filter_bit(address);
        let bytes = first..self.bytes.len();
        self.list.push(SampledPacket { address, flow, port: packet.port(), is_frequent, is_paid, bytes });
    }

    /// Removes and returns the sample of a packet, if there is one.
    #[inline]
    pub fn take(&mut self, packet: &Packet) -> Option<SampledPacket> {
        let address = address_of(packet);
        if self.filter & filter_bit(address) == 0 {
            return None;
        }
        let found = self.list.iter().position(|sample| sample.address == address)?;
        Some(self.list.swap_remove(found))
    }

    /// A packet as it was received.
    pub fn received(&self, sample: &SampledPacket) -> &[u8] {
        self.bytes.get(sample.bytes.clone()).unwrap_or_default()
    }

    /// Removes and returns the flow of a packet that was not sent. To be called until there is none, when the
    /// next walk begins.
    pub fn pop_unsent(&mut self) -> Option<SampledFlow> {
        let unsent = self.list.pop();
        if unsent.is_none() {
            self.bytes.clear();
            self.filter = 0;
        }
        unsent.map(|sample| sample.flow)
    }
}
