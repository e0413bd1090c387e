//! Handshakes in the place of an end of a TCP connection: SYN cookies for the client, the SYN to the server.
//!
//! Theory of operation. A SYN is answered with a sequence number that is a cookie ([`cookie`]), and no state
//! is kept. A segment that acknowledges the cookie is turned into the SYN that its sender has sent before. It
//! opens the session. Fields that a SYN does not use carry the cookie's data to the [`Splice`] of the
//! session, which translates what was promised to the client before the server was known.

mod cookie;
mod frames;
mod promise;
mod splice;

use mmb_flow::TcpSegment;
use mmb_nf::tcp_segment::{ACK, Frame, Options, OutgoingSegment, RST, SYN, SegmentTo, timestamp};
use mmb_nf::{Admission, Context, OpeningPacket, Packet, Verdict};
use mmb_packet::{DropReason, Kind, Meta, PacketFlags, shift_window, tcp_options};

use cookie::{Cookies, Offer};
use frames::become_segment;

pub(crate) use frames::replace;
pub(crate) use promise::{MOST_SCALE, Promise};
pub(crate) use splice::{Splice, state};

/// Maximum segment sizes for IPv4 and IPv6: over Ethernet, and without the option (RFC 9293, 3.7.1).
const ETHERNET: [u16; 2] = [1460, 1440];
const UNSAID: [u16; 2] = [536, 1220];

/// Returns the options of a SYN.
fn opening(mss: u16, offer: Offer, stamps: Option<[u32; 2]>) -> Options {
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
fn offered(head: &[u8], meta: &Meta) -> (Option<u16>, Offer) {
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

/// Returns the maximum segment size of a SYN.
pub(crate) fn mss_of(head: &[u8], meta: &Meta) -> u16 {
    let is_ip4 = meta.kind.l3() == Kind::IP4;
    let (most, unsaid) = (ETHERNET[usize::from(!is_ip4)], UNSAID[usize::from(!is_ip4)]);
    offered(head, meta).0.map_or(unsaid, |mss| mss.min(most))
}

/// Returns a window without its scale.
fn unscaled(window: u16, scale: Option<u8>) -> u16 {
    shift_window(window, scale.unwrap_or(0).min(MOST_SCALE) as i8)
}

/// Ends a session whose client begins again, with the server's answer to its SYN ([`Splice::is_over`]). The
/// server gets a reset: the client's next SYN is answered with a cookie.
#[cold]
pub(crate) fn end_of_connection<L>(
    packet: &Packet<'_>,
    answer: &TcpSegment,
    cx: &mut Context<'_, L>,
) -> Verdict {
    let reset = OutgoingSegment { seq: answer.ack, flags: RST, ..OutgoingSegment::default() };
    if let Some(frame) = reset.frame(packet.head, packet.meta, SegmentTo::Sender) {
        cx.emit(SegmentTo::Sender.target(), frame.bytes());
    }
    Verdict::End(DropReason::SynCookie)
}

/// Answers SYNs, and makes the SYNs to servers.
pub(crate) struct Handshake {
    cookies: Cookies,
    pub promise: Promise,
}

/// What a client that acknowledges a cookie has sent in its SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proven {
    pub isn: u32,
    pub cookie: u32,
    /// Maximum segment size, rounded down.
    pub mss: u16,
}

/// Returns the segment of a packet that may take part in a handshake. Fragments cannot, nor packets with
/// routing headers, whose checksum covers another destination.
pub(crate) fn segment_of(first: &OpeningPacket<'_>) -> Option<TcpSegment> {
    let plain = !first.meta.flags.intersects(PacketFlags::FRAGMENT | PacketFlags::ROUTED);
    TcpSegment::read(first.packet.head(), first.meta).filter(|_| plain)
}

impl Handshake {
    /// Derives secrets from `seed`.
    pub fn new(seed: u64, promise: Promise) -> Handshake {
        Handshake { cookies: Cookies::new(seed), promise }
    }

    /// Returns the cookie of a SYN that was made of a segment ([`Handshake::become_syn`]), perhaps by another
    /// worker. None: it is the SYN of a client.
    pub fn cookie_of_syn(&self, first: &OpeningPacket<'_>, syn: &TcpSegment) -> Option<u32> {
        let cookie = syn.ack.wrapping_sub(1);
        let is_made = syn.ack != 0 && self.cookies.check(first.key, syn.seq, cookie, first.now).is_some();
        is_made.then_some(cookie)
    }

    /// Turns a SYN into its answer, with a window.
    pub fn answer(&self, first: &mut OpeningPacket<'_>, syn: &TcpSegment, window: u16) -> Admission {
        let answered = self.answer_frame(first, syn, window);
        match answered.and_then(|frame| replace(first.packet, first.meta, &[frame.bytes()])) {
            Some(()) => Admission::Answer,
            None => Admission::Drop(DropReason::NoBuffer),
        }
    }

    fn answer_frame(&self, first: &OpeningPacket<'_>, syn: &TcpSegment, window: u16) -> Option<Frame> {
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
            window,
            options: opening(self.promise.mss.unwrap_or(ETHERNET[usize::from(!is_ip4)]), promised, stamps),
        };
        answer.frame(head, first.meta, SegmentTo::Sender)
    }

    /// Returns what the sender of a segment without a session has proven. None: it acknowledges no cookie.
    pub fn proven(&self, first: &OpeningPacket<'_>, segment: &TcpSegment) -> Option<Proven> {
        let cookie = segment.ack.wrapping_sub(1);
        // One below: a probe of a closed window, after the first acknowledgment was lost (RFC 9293, 3.8.6.1).
        let numbers = [segment.seq.wrapping_sub(1), segment.seq];
        numbers.into_iter().find_map(|isn| {
            let mss = self.cookies.check(first.key, isn, cookie, first.now)?;
            Some(Proven { isn, cookie, mss })
        })
    }

    /// Returns what a segment of the client says about the options of its SYN, and its timestamps.
    fn offer_of(&self, first: &OpeningPacket<'_>) -> (Offer, Option<[u32; 2]>) {
        let stamp = timestamp(first.packet.head(), first.meta).filter(|_| self.promise.timestamps);
        let offer = stamp.map_or(Offer::default(), |(_, _, echo)| Offer::of(echo));
        (offer, stamp.map(|(_, value, echo)| [value, echo]))
    }

    /// Turns a segment of a client into the SYN that the client has sent before. The session's sequence
    /// numbers will follow the cookie. Returns whether there was room.
    pub fn become_syn(&self, first: &mut OpeningPacket<'_>, segment: &TcpSegment, proven: Proven) -> bool {
        let (offer, stamps) = self.offer_of(first);
        let syn = OutgoingSegment {
            seq: proven.isn,
            ack: proven.cookie.wrapping_add(1),
            flags: SYN,
            window: unscaled(segment.window, offer.scale),
            options: opening(proven.mss, offer, stamps),
        };
        if become_segment(first.packet, first.meta, first.key, &syn).is_none() {
            return false;
        }
        first.translation.proxied_isn = Some(proven.cookie);
        true
    }

    /// Returns an acknowledgment to the client of a segment before there is a session. `window` is in bytes.
    pub fn acknowledgment(
        &self,
        first: &OpeningPacket<'_>,
        [seq, ack]: [u32; 2],
        window: u32,
    ) -> OutgoingSegment {
        let (offer, stamps) = self.offer_of(first);
        let mut options = Options::default();
        if let Some([value, echo]) = stamps {
            // The clock of the answer to the SYN stands still, so that the server's can follow it.
            options.push_timestamp(echo, value);
        }
        // Rounded up, so that the right edge of the window does not move back.
        let scale = if offer.scale.is_some() { self.promise.scale } else { 0 };
        let window = u16::try_from(window.div_ceil(1 << scale)).unwrap_or(u16::MAX);
        OutgoingSegment { seq, ack, flags: ACK, window, options }
    }
}
