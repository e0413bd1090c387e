//! What received frames become: ordinary packets, large ones, or the segments of large ones.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use mmb_packet::LargeFrame;

use super::VnetPort;
use super::header::VnetHeader;
use crate::memory::{MAX_SEGMENTS, Mbuf, Packet, Slots, complete_from, segment, segment_as};

/// Length of a VLAN tag.
const TAG: usize = 4;

/// A received frame, as it was on the wire.
#[derive(Debug)]
pub(super) struct Arrival {
    packet: Mbuf,
    /// If the segments are inside a tunnel, their headers and bytes of payload: the engine knows large frames
    /// of the outermost packet only.
    tunnel: Option<(LargeFrame, u16)>,
}

impl Arrival {
    /// A frame with its virtio-net header, and the VLAN tag that the kernel has taken out of it.
    #[inline]
    pub(super) fn new(mut packet: Mbuf, header: &VnetHeader, tag: Option<[u16; 2]>) -> Arrival {
        if header.is_large() {
            let size = packet.large_frame().filter(|frame| header.describes(frame, packet.pkt_len()));
            packet.set_large(size.map_or(0, |_| header.size()));
        } else if let Some((start, field)) = header.tunnelled_checksum(packet.data()) {
            complete_from(&mut packet, start, field);
        }
        if let Some(tag) = tag {
            insert_tag(&mut packet, tag);
        }
        let is_tunnelled = packet.is_large() && packet.segment_size() == 0;
        let shift = if tag.is_some() { TAG } else { 0 };
        let tunnel = is_tunnelled.then(|| header.tunnel(packet.data(), packet.pkt_len(), shift)).flatten();
        Arrival { packet, tunnel: tunnel.map(|frame| (frame, header.size())) }
    }
}

/// Inserts a VLAN tag behind the Ethernet addresses. The headroom of a received packet has room for it.
fn insert_tag(packet: &mut Packet, tag: [u16; 2]) {
    const ADDRESSES: usize = 12;
    let [[a, b], [c, d]] = tag.map(u16::to_be_bytes);
    if packet.data().len() >= ADDRESSES && packet.prepend(TAG).is_some() {
        let frame = packet.data_mut();
        frame.copy_within(TAG..TAG + ADDRESSES, 0);
        frame[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&[a, b, c, d]);
    }
}

/// What the kernel has.
#[derive(Debug)]
pub(super) enum Next {
    Frame(Arrival),
    /// A frame that is lost, and counted.
    Lost,
    Nothing,
}

/// Segments of a received large frame for which there was no room.
#[derive(Debug)]
pub(super) struct PendingSegments(VecDeque<Mbuf>);

impl PendingSegments {
    pub(super) fn new() -> PendingSegments {
        PendingSegments(VecDeque::with_capacity(MAX_SEGMENTS))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Receives these segments, and then the frames that `next` returns, as far as there is room. Returns the
    /// number of packets, and whether the kernel has nothing more.
    #[inline]
    pub(super) fn receive(
        &mut self,
        port: &VnetPort,
        slots: &mut Slots<'_>,
        mut next: impl FnMut() -> Next,
    ) -> (usize, bool) {
        let (before, mut bytes) = (slots.len(), 0);
        let is_drained = loop {
            bytes += self.move_to(slots);
            if slots.room() == 0 {
                break false;
            }
            match next() {
                Next::Frame(arrival) => bytes += self.accept(port, arrival, slots),
                Next::Lost => {}
                Next::Nothing => break true,
            }
        };
        let received = slots.len() - before;
        if received > 0 {
            port.counters.rx_packets.fetch_add(received as u64, Relaxed);
            port.counters.rx_bytes.fetch_add(bytes as u64, Relaxed);
        }
        (received, is_drained)
    }

    /// Moves segments to `slots`, as far as there is room. Returns their bytes.
    #[inline]
    fn move_to(&mut self, slots: &mut Slots<'_>) -> usize {
        let mut bytes = 0;
        while slots.room() > 0
            && let Some(packet) = self.0.pop_front()
        {
            bytes += packet.pkt_len();
            // There is room.
            drop(slots.push(packet));
        }
        bytes
    }

    /// Puts a frame into `slots`, which have room; if it is to be segmented, keeps its segments. Returns the
    /// bytes that were put.
    #[inline]
    fn accept(&mut self, port: &VnetPort, arrival: Arrival, slots: &mut Slots<'_>) -> usize {
        let Arrival { packet, tunnel } = arrival;
        let output = |segment| self.0.push_back(segment);
        let is_done = match tunnel {
            Some((frame, size)) => segment_as(&packet, &frame, size, output),
            None if packet.is_large() && packet.segment_size() > 0 && !port.receives_whole(&packet) => {
                segment(&packet, output)
            }
            None => {
                let bytes = packet.pkt_len();
                // There is room.
                drop(slots.push(packet));
                return bytes;
            }
        };
        if !is_done {
            port.counters.rx_no_buffer.fetch_add(1, Relaxed);
        }
        0
    }
}
