//! The virtio-net header of frames on packet sockets and taps (linux/virtio_net.h): 10 bytes, in the
//! machine's byte order.

use mmb_packet::{LargeFrame, parse_l2};

/// The checksum is to be computed from `checksum_start` on.
const NEEDS_CHECKSUM: u8 = 1;
/// Kinds of large frames.
const NONE: u8 = 0;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
/// Length of the IPv6 header, and offsets of checksums in those of TCP and UDP.
const IP6: usize = 40;
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
/// Offset of the checksum in the header of GRE.
const GRE_CHECKSUM: usize = 4;
/// Added to TCP's kinds: the first segment has TCP's flag CWR.
const HAS_CWR: u8 = 0x80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VnetHeader {
    flags: u8,
    kind: u8,
    /// Length of the headers of each segment.
    header: u16,
    size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl VnetHeader {
    pub(super) const BYTES: usize = 10;
    /// That of a frame whose checksums are complete.
    pub(super) const ORDINARY: VnetHeader =
        VnetHeader { flags: 0, kind: NONE, header: 0, size: 0, checksum_start: 0, checksum_offset: 0 };

    /// Describes a large frame with segments of `size` bytes.
    pub(super) fn of(frame: &LargeFrame, head: &[u8], size: u16) -> VnetHeader {
        let cwr = if frame.has_cwr(head) { HAS_CWR } else { 0 };
        VnetHeader {
            flags: NEEDS_CHECKSUM,
            kind: kind(frame) | cwr,
            header: frame.header_len() as u16,
            size,
            checksum_start: frame.transport() as u16,
            checksum_offset: frame.checksum_offset() as u16,
        }
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::BYTES]) -> VnetHeader {
        let [flags, kind, words @ ..] = *bytes;
        let [header, size, checksum_start, checksum_offset] =
            bytemuck::cast::<[u8; 8], [[u8; 2]; 4]>(words).map(u16::from_ne_bytes);
        VnetHeader { flags, kind, header, size, checksum_start, checksum_offset }
    }

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let words = [self.header, self.size, self.checksum_start, self.checksum_offset];
        let [a, b, c, d, e, f, g, h]: [u8; 8] = bytemuck::cast(words);
        [self.flags, self.kind, a, b, c, d, e, f, g, h]
    }

    /// Whether it is the header of a large frame.
    pub(super) fn is_large(&self) -> bool {
        self.kind & !HAS_CWR != NONE
    }

    /// Bytes of payload of a segment.
    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Offsets of what a checksum covers and of its field, if it is one that the kernel left incomplete: of
    /// TCP or UDP inside a tunnel, or of a GRE header. The engine completes those of TCP and UDP of the
    /// outermost packet.
    pub(super) fn tunnelled_checksum(&self, frame: &[u8]) -> Option<(usize, usize)> {
        let (start, field) = (usize::from(self.checksum_start), usize::from(self.checksum_offset));
        if self.flags & NEEDS_CHECKSUM == 0 {
            return None;
        }
        let l2 = parse_l2(frame);
        let l3 = usize::from(l2.l3_off);
        let l4 = match l2.ethertype {
            0x0800 => l3 + usize::from(frame.get(l3)? & 0xf) * 4,
            0x86dd => l3 + IP6,
            _ => return None,
        };
        let is_known = match field {
            TCP_CHECKSUM | UDP_CHECKSUM => start > l4,
            GRE_CHECKSUM => start >= l4,
            _ => false,
        };
        is_known.then_some((start, start + field))
    }

    /// The headers of a large frame whose segments are inside a tunnel. `shift`: bytes that were inserted in
    /// front of its network header.
    pub(super) fn tunnel(&self, head: &[u8], length: usize, shift: usize) -> Option<LargeFrame> {
        let has_start = self.flags & NEEDS_CHECKSUM != 0;
        let transport = usize::from(self.checksum_start) + shift;
        has_start.then(|| LargeFrame::parse_tunnel(head, length, transport)).flatten()
    }

    /// Whether a large frame of `length` bytes has the headers that this one describes. It has others if its
    /// segments are those of a packet inside a tunnel.
    pub(super) fn describes(&self, frame: &LargeFrame, length: usize) -> bool {
        let starts = self.flags & NEEDS_CHECKSUM == 0
            || usize::from(self.checksum_start) == frame.transport()
                && usize::from(self.checksum_offset) == frame.checksum_offset();
        starts && self.kind & !HAS_CWR == kind(frame) && frame.header_len() + frame.payload_len() == length
    }
}

/// The kind of a large frame.
fn kind(frame: &LargeFrame) -> u8 {
    match (frame.is_tcp(), frame.is_ip4()) {
        (true, true) => TCP4,
        (true, false) => TCP6,
        (false, _) => UDP,
    }
}

#[cfg(test)]
mod tests {
    use mmb_packet::build::{Frame, Ip4, Tcp};

    use super::*;

    #[test]
    fn headers_survive_bytes() {
        let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp { flags: CWR, ..Tcp::new(1, 2) });
        let frame = frame.payload([0; 3000]).build();
        let large = LargeFrame::parse(&frame, frame.len());
        let Some(large) = large else { panic!("no large frame") };
        let header = VnetHeader::of(&large, &frame, 1448);
        // linux/virtio_net.h: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset.
        let words: Vec<u8> = [54u16, 1448, 34, 16].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(header.to_bytes().to_vec(), [&[1, 0x81], &words[..]].concat());
        assert_eq!(VnetHeader::from_bytes(&header.to_bytes()), header);
        assert!(header.is_large() && header.describes(&large, frame.len()));
        let inner = VnetHeader { checksum_start: 84, ..header };
        assert!(!inner.describes(&large, frame.len()) && !header.describes(&large, frame.len() + 1));
    }

    const CWR: u8 = 0x80;

    #[test]
    fn checksums_inside_a_tunnel_are_found() {
        let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(1, 2)).build();
        let header = |flags, checksum_start, checksum_offset| VnetHeader {
            flags,
            kind: NONE,
            header: 0,
            size: 0,
            checksum_start,
            checksum_offset,
        };
        let inside = |flags, start, offset| header(flags, start, offset).tunnelled_checksum(&frame);
        assert_eq!(inside(NEEDS_CHECKSUM, 84, 16), Some((84, 100)));
        assert_eq!(inside(NEEDS_CHECKSUM, 84, 6), Some((84, 90)));
        assert_eq!(inside(NEEDS_CHECKSUM, 34, 16), None, "the outermost packet's");
        assert_eq!(inside(NEEDS_CHECKSUM, 84, 8), None, "the CRC of SCTP");
        assert_eq!(inside(NEEDS_CHECKSUM, 34, 4), Some((34, 38)), "that of GRE");
        assert_eq!(inside(0, 84, 16), None);
        let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        let inside = |start| header(NEEDS_CHECKSUM, start, 16).tunnelled_checksum(&tagged);
        assert_eq!((inside(88), inside(38)), (Some((88, 104)), None), "behind a tag");
    }
}
