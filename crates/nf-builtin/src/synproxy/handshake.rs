//! The stateless handshake with the client.

use mmb_flow::{Key, TcpSegment};
use mmb_packet::checksum::{fold, pseudo4, pseudo6, sum, update16};
use mmb_packet::{DropReason, Kind, Meta, PacketBuf, PacketFlags, parse, tcp_options};

use super::cookie::Offer;
use super::{MOST_SCALE, Promise, Synproxy};
use mmb_nf::tcp_segment::{ACK, FIXED, Frame, Options, OutgoingSegment, SYN, SegmentTo, timestamp};
use mmb_nf::{Admission, OpeningPacket};

/// Maximum segment sizes for IPv4 and IPv6: over Ethernet, and without the option (RFC 9293, 3.7.1).
const ETHERNET: [u16; 2] = [1460, 1440];
const UNSAID: [u16; 2] = [536, 1220];

/// Returns the options of a SYN.
pub(super) fn opening(mss: u16, offer: Offer, stamps: Option<[u32; 2]>) -> Options {
    let mut options = Options::default();
    let [high, low] = mss.to_be_bytes();
    options.push(&[2, 4, high, low]);
    if let Some([value, echo]) = stamps {
        // Aligned, in the order of Linux.
        options.push(if offer.sack { &[4, 2] } else { &[1, 1] });
        options.push(&[8, 10]);
        options.push(&value.to_be_bytes());
        options.push(&echo.to_be_bytes());
        if let Some(scale) = offer.scale {
            options.push(&[1, 3, 3, scale]);
        }
    }
    options
}

/// Reads maximum segment size, window scale and SACK of a SYN.
pub(super) fn offered(head: &[u8], meta: &Meta) -> (Option<u16>, Offer) {
    let (mut mss, mut offer) = (None, Offer::default());
    for option in tcp_options(head, meta) {
        match (option.kind, option.data) {
            (2, &[high, low]) => mss = Some(u16::from_be_bytes([high, low])),
            (3, &[scale]) => offer.scale = Some(scale.min(MOST_SCALE)),
            (4, []) => offer.sack = true,
            _ => {}
        }
    }
    (mss, offer)
}

/// Returns a window without its scale.
pub(super) fn unscaled(window: u16, scale: Option<u8>) -> u16 {
    let wide = u32::from(window) << scale.unwrap_or(0).min(MOST_SCALE);
    u16::try_from(wide).unwrap_or(u16::MAX)
}

impl Promise {
    fn mss(&self, is_ip4: bool) -> u16 {
        self.mss.unwrap_or(ETHERNET[usize::from(!is_ip4)])
    }
}

impl Synproxy {
    /// Answers a SYN. A SYN that another worker has made from an acknowledgment carries the cookie in its
    /// acknowledgment number, and opens the session.
    pub(super) fn syn(&self, first: &mut OpeningPacket<'_>, syn: &TcpSegment) -> Admission {
        let cookie = syn.ack.wrapping_sub(1);
        if syn.ack != 0 && self.cookies.check(first.key, syn.seq, cookie, first.now).is_some() {
            first.translation.proxied_isn = Some(cookie);
            return Admission::Open;
        }
        let Some(answer) = self.answer(first, syn) else { return Admission::Drop(DropReason::NoBuffer) };
        match replace(first.packet, first.meta, answer.bytes()) {
            Some(()) => Admission::Answer,
            None => Admission::Drop(DropReason::NoBuffer),
        }
    }

    fn answer(&self, first: &OpeningPacket<'_>, syn: &TcpSegment) -> Option<Frame> {
        let (head, is_ip4) = (first.packet.head(), first.key.is_ip4());
        let (mss, offer) = offered(head, first.meta);
        let mss = mss.unwrap_or(UNSAID[usize::from(!is_ip4)]);
        let stamp = timestamp(head, first.meta).filter(|_| self.promise.timestamps);
        // Without timestamps the offer cannot be recovered later, so no option is accepted.
        let kept = Offer { sack: offer.sack && self.promise.sack, ..offer };
        let promised = Offer { scale: offer.scale.map(|_| self.promise.scale), ..kept };
        let stamps = stamp.map(|(_, value, _)| [kept.stamp(first.now), value]);
        let answer = OutgoingSegment {
            seq: self.cookies.make(first.key, syn.seq, mss, first.now),
            ack: syn.seq.wrapping_add(1),
            flags: SYN | ACK,
            window: 0,
            options: opening(self.promise.mss(is_ip4), promised, stamps),
        };
        answer.frame(head, first.meta, SegmentTo::Sender)
    }

    /// Checks a segment without a session that acknowledges something. If that is a cookie, it is turned into
    /// the SYN that its sender has sent before. Fields that a SYN does not use carry the cookie's data to
    /// [`super::join`].
    pub(super) fn acknowledged(&self, first: &mut OpeningPacket<'_>, segment: &TcpSegment) -> Admission {
        let cookie = segment.ack.wrapping_sub(1);
        // One below: a probe of the closed window, after the first acknowledgment was lost (RFC 9293,
        // 3.8.6.1).
        let numbers = [segment.seq.wrapping_sub(1), segment.seq];
        let good = numbers.into_iter().find_map(|isn| {
            let mss = self.cookies.check(first.key, isn, cookie, first.now)?;
            Some((isn, mss))
        });
        let Some((isn, mss)) = good else { return Admission::Drop(DropReason::SynCookieBad) };
        let stamp = timestamp(first.packet.head(), first.meta).filter(|_| self.promise.timestamps);
        let offer = stamp.map_or(Offer::default(), |(_, _, echo)| Offer::of(echo));
        let stamps = stamp.map(|(_, value, echo)| [value, echo]);
        let syn = OutgoingSegment {
            seq: isn,
            ack: segment.ack,
            flags: SYN,
            window: unscaled(segment.window, offer.scale),
            options: opening(mss, offer, stamps),
        };
        if become_segment(first.packet, first.meta, first.key, &syn).is_none() {
            return Admission::Drop(DropReason::NoBuffer);
        }
        first.translation.proxied_isn = Some(cookie);
        Admission::Open
    }
}

/// Changes the length of a frame.
fn resize(packet: &mut dyn PacketBuf, len: usize) -> bool {
    match packet.len().checked_sub(len) {
        Some(excess) => packet.shrink_back(excess),
        None => packet.grow_back(len - packet.len()),
    }
}

/// Parses a packet again. Metadata that the parser does not set stays.
fn look_again(packet: &dyn PacketBuf, meta: &mut Meta) -> Option<()> {
    const PARSED: PacketFlags =
        PacketFlags::FRAGMENT.union(PacketFlags::LATER_FRAGMENT).union(PacketFlags::ROUTED);
    let kept = meta.flags & !PARSED;
    let parsed = parse(packet.head(), packet.len(), meta).is_ok();
    meta.flags = (meta.flags & PARSED) | kept;
    parsed.then_some(())
}

/// Replaces a packet by a frame. None: there is no room.
fn replace(packet: &mut dyn PacketBuf, meta: &mut Meta, frame: &[u8]) -> Option<()> {
    if !resize(packet, frame.len()) {
        return None;
    }
    packet.head_mut().get_mut(..frame.len())?.copy_from_slice(frame);
    look_again(packet, meta)
}

/// Replaces a packet's TCP header and everything behind it by a segment. The length in the network header is
/// updated. None: there is no room.
fn become_segment(
    packet: &mut dyn PacketBuf,
    meta: &mut Meta,
    key: &Key,
    segment: &OutgoingSegment,
) -> Option<()> {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let options = segment.options.bytes();
    let len = FIXED + options.len();
    if !resize(packet, l4 + len) {
        return None;
    }
    let head = packet.head_mut();
    let tcp = head.get_mut(l4..l4 + len)?;
    tcp[4..8].copy_from_slice(&segment.seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&segment.ack.to_be_bytes());
    tcp[12..14].copy_from_slice(&[(len as u8 / 4) << 4, segment.flags]);
    tcp[14..16].copy_from_slice(&segment.window.to_be_bytes());
    tcp[16..20].fill(0);
    tcp[20..].copy_from_slice(options);
    let four = |address: [u8; 16]| -> [u8; 4] { std::array::from_fn(|byte| address[byte]) };
    let pseudo = match meta.kind.l3() {
        Kind::IP4 => pseudo4(four(key.source), four(key.destination), 6, len as u16),
        _ => pseudo6(&key.source, &key.destination, 6, len as u32),
    };
    let checksum = !fold(sum(tcp, pseudo));
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    set_length(head.get_mut(l3..)?, meta.kind.l3() == Kind::IP4, l4 + len - l3)?;
    look_again(packet, meta)
}

/// Writes the length of an IP packet, and updates the IPv4 checksum.
fn set_length(ip: &mut [u8], is_ip4: bool, len: usize) -> Option<()> {
    if !is_ip4 {
        let len = u16::try_from(len.checked_sub(40)?).ok()?;
        ip.get_mut(4..6)?.copy_from_slice(&len.to_be_bytes());
        return Some(());
    }
    let len = u16::try_from(len).ok()?;
    let header = ip.first_chunk_mut::<20>()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let checksum = update16(word(10), word(2), len);
    header[2..4].copy_from_slice(&len.to_be_bytes());
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}
