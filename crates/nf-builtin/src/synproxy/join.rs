//! The handshake with the server, and the translation of later packets.
//!
//! Everything here is as the client sees it: the engine has translated numbers of reverse packets before they
//! come here, and translates emitted frames to the server after they leave.

use std::sync::atomic::Ordering::Relaxed;

use bytemuck::{Pod, Zeroable};
use mmb_flow::TcpSegment;
use mmb_packet::{DropReason, tcp_options};

use super::cookie::Offer;
use super::handshake::{offered, opening, unscaled};
use super::{Promise, Synproxy};
use mmb_nf::tcp_segment::{
    ACK, ACKNOWLEDGMENT, FIXED, FLAGS, Frame, Options, OutgoingSegment, RST, SEQ, SYN, SegmentTo, WINDOW,
    patch, timestamp,
};
use mmb_nf::{Context, Direction, EmitTarget, Packet, Verdict};

/// A session's scratchpad: 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Pad {
    /// Sequence number of the client's SYN.
    isn: u32,
    /// The cookie that answered it.
    cookie: u32,
    /// Before the server answers: the timestamp of the answer to the client. Then: the server's timestamps
    /// less those that the client sees; wraps.
    stamp: u32,
    /// The client's timestamp.
    value: u32,
    /// The client's window, in the units of its scale.
    window: u16,
    /// The client's maximum segment size, rounded down.
    mss: u16,
    /// One of [`state`].
    state: u8,
    /// Bits of [`has`]: options that the client has offered and was promised.
    has: u8,
    /// Before the server answers: the client's window scale. Then: the shift of the client's windows in bits.
    there: i8,
    /// The left shift of the server's windows in bits.
    back: i8,
}

const _: () = assert!(size_of::<Pad>() == 24);

/// States of a connection.
mod state {
    /// A SYN has been sent to the server. 0: the connection did not begin here.
    pub const WAITING: u8 = 1;
    /// The server has answered.
    pub const JOINED: u8 = 2;
}

/// What a client has offered.
mod has {
    pub const TIMESTAMPS: u8 = 1 << 0;
    pub const SCALE: u8 = 1 << 1;
    pub const SACK: u8 = 1 << 2;
}

/// Drops a packet that the function has consumed.
const TAKEN: Verdict = Verdict::Drop(DropReason::SynCookie);
/// Drops an unexpected packet.
const STRANGE: Verdict = Verdict::Drop(DropReason::SynCookieBad);

/// Shifts a window to the left, or to the right if `bits` is negative.
fn shifted(window: u16, bits: i8) -> u16 {
    match u8::try_from(bits) {
        Ok(bits) => unscaled(window, Some(bits)),
        Err(_) => window.checked_shr(bits.unsigned_abs().into()).unwrap_or(0),
    }
}

impl Pad {
    /// Reads the SYN that [`super::handshake`] has made, and clears the fields that carry its data.
    fn begin(packet: &mut Packet<'_>) -> Option<Pad> {
        let syn = TcpSegment::read(packet.head, packet.meta)?;
        if syn.flags & (SYN | ACK | RST) != SYN || syn.ack == 0 {
            return None;
        }
        let (mss, offer) = offered(packet.head, packet.meta);
        let stamps = timestamp(packet.head, packet.meta);
        let l4 = usize::from(packet.meta.l4_off);
        patch(packet.head, l4, ACKNOWLEDGMENT, &[0; 4]);
        if let Some((at, ..)) = stamps {
            patch(packet.head, l4, at + 6, &[0; 4]);
        }
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let scale = offer.scale.unwrap_or(0);
        Some(Pad {
            isn: syn.seq,
            cookie: syn.ack.wrapping_sub(1),
            stamp: stamps.map_or(0, |(_, _, echo)| echo),
            value: stamps.map_or(0, |(_, value, _)| value),
            window: syn.window >> scale,
            mss: mss.unwrap_or(0),
            state: state::WAITING,
            has: bit(stamps.is_some(), has::TIMESTAMPS)
                | bit(offer.scale.is_some(), has::SCALE)
                | bit(offer.sack, has::SACK),
            there: scale as i8,
            back: 0,
        })
    }

    fn has(&self, bit: u8) -> bool {
        self.has & bit != 0
    }

    /// Returns the SYN again, before the server has answered.
    fn syn(&self, packet: &Packet<'_>, way: SegmentTo) -> Option<Frame> {
        let scale = self.has(has::SCALE).then_some(self.there as u8);
        let offer = Offer { scale, sack: self.has(has::SACK) };
        let stamps = self.has(has::TIMESTAMPS).then_some([self.value, 0]);
        let syn = OutgoingSegment {
            seq: self.isn,
            ack: 0,
            flags: SYN,
            window: unscaled(self.window, scale),
            options: opening(self.mss, offer, stamps),
        };
        syn.frame(packet.head, packet.meta, way)
    }

    /// The server has answered with these options. Returns whether it supports what was promised.
    fn join(&mut self, promise: &Promise, offer: Offer, stamp: Option<u32>) -> bool {
        let kept = (stamp.is_some() || !self.has(has::TIMESTAMPS)) && (offer.sack || !self.has(has::SACK));
        (self.there, self.back) = match (self.has(has::SCALE), offer.scale) {
            (true, Some(scale)) => (0, scale as i8 - promise.scale as i8),
            (true, None) => (self.there, -(promise.scale as i8)),
            (false, _) => (0, 0),
        };
        self.stamp =
            stamp.filter(|_| self.has(has::TIMESTAMPS)).map_or(0, |stamp| stamp.wrapping_sub(self.stamp));
        self.state = state::JOINED;
        kept
    }

    /// Translates timestamps, and windows if the scales differ.
    #[inline]
    fn translate(&self, packet: &mut Packet<'_>) {
        let forward = packet.direction == Direction::Forward;
        let l4 = usize::from(packet.meta.l4_off);
        if self.stamp != 0
            && let Some((at, value, echo)) = timestamp(packet.head, packet.meta)
        {
            let (at, new) = match forward {
                true => (at + 6, echo.wrapping_add(self.stamp)),
                false => (at + 2, value.wrapping_sub(self.stamp)),
            };
            patch(packet.head, l4, at, &new.to_be_bytes());
        }
        let bits = if forward { self.there } else { self.back };
        if bits != 0
            && let Some(segment) = TcpSegment::read(packet.head, packet.meta)
        {
            patch(packet.head, l4, WINDOW, &shifted(segment.window, bits).to_be_bytes());
        }
    }
}

impl Synproxy {
    /// Processes a packet of a session.
    #[inline]
    pub(super) fn joined(&self, packet: &mut Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, ()>) -> Verdict {
        match (pad.state, packet.direction) {
            (state::JOINED, Direction::Reverse) if packet.tcp_flags() & (SYN | ACK) == SYN | ACK => {
                self.server_answers(packet, pad, cx)
            }
            (state::JOINED, _) => {
                pad.translate(packet);
                Verdict::Pass
            }
            (state::WAITING, Direction::Forward) => self.client_waits(packet, pad, cx),
            (state::WAITING, Direction::Reverse) => self.server_speaks(packet, pad, cx),
            (_, Direction::Forward) => {
                if let Some(begun) = Pad::begin(packet) {
                    *pad = begun;
                }
                Verdict::Pass
            }
            _ => Verdict::Pass,
        }
    }

    /// A packet of the client before the server has answered.
    fn client_waits(&self, packet: &Packet<'_>, pad: &Pad, cx: &mut Context<'_, ()>) -> Verdict {
        let flags = packet.tcp_flags();
        if flags & RST != 0 {
            return Verdict::Pass;
        }
        if flags & SYN != 0 {
            // The client begins again; its next SYN gets a cookie.
            return Verdict::End(DropReason::SynCookie);
        }
        if let Some(syn) = pad.syn(packet, SegmentTo::Receiver) {
            cx.emit(EmitTarget::Egress, syn.bytes());
            self.counts.again.fetch_add(1, Relaxed);
        }
        TAKEN
    }

    /// A packet of the server before it has answered the SYN.
    fn server_speaks(&self, packet: &mut Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, ()>) -> Verdict {
        let Some(segment) = TcpSegment::read(packet.head, packet.meta) else { return STRANGE };
        let answers = segment.flags & ACK != 0 && segment.ack == pad.isn.wrapping_add(1);
        if segment.flags & RST != 0 {
            if !answers {
                return STRANGE;
            }
            // The client accepts a RST only with the next sequence number (RFC 5961, section 3).
            let next = pad.cookie.wrapping_add(1).to_be_bytes();
            patch(packet.head, usize::from(packet.meta.l4_off), SEQ, &next);
            self.counts.refused.fetch_add(1, Relaxed);
            return Verdict::Pass;
        }
        if answers && segment.flags & SYN != 0 {
            return self.server_answers(packet, pad, cx);
        }
        if segment.flags & ACK != 0 && !answers {
            // The server has an old connection with this key: answered as in SYN-SENT (RFC 9293, 3.10.7.3).
            let reset = OutgoingSegment { seq: segment.ack, flags: RST, ..OutgoingSegment::default() };
            let reset = reset.frame(packet.head, packet.meta, SegmentTo::Sender);
            for frame in [reset, pad.syn(packet, SegmentTo::Sender)].into_iter().flatten() {
                cx.emit(EmitTarget::Ingress, frame.bytes());
            }
        }
        STRANGE
    }

    /// The server's SYN, perhaps repeated: acknowledges it, and opens the client's window.
    fn server_answers(&self, packet: &mut Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, ()>) -> Verdict {
        let Some(segment) = TcpSegment::read(packet.head, packet.meta) else { return STRANGE };
        if segment.ack != pad.isn.wrapping_add(1) {
            return STRANGE;
        }
        let (_, offer) = offered(packet.head, packet.meta);
        let stamps = timestamp(packet.head, packet.meta);
        if pad.state == state::WAITING {
            let kept = pad.join(&self.promise, offer, stamps.map(|(_, value, _)| value));
            self.counts.joined.fetch_add(1, Relaxed);
            self.counts.lacking.fetch_add(u64::from(!kept), Relaxed);
        }
        let mut options = Options::default();
        if let Some((_, value, echo)) = stamps {
            options.push(&[1, 1, 8, 10]);
            options.push(&echo.to_be_bytes());
            options.push(&value.to_be_bytes());
        }
        let acknowledgment = OutgoingSegment {
            seq: segment.ack,
            ack: segment.seq.wrapping_add(1),
            flags: ACK,
            window: shifted(pad.window, pad.there),
            options,
        };
        if let Some(frame) = acknowledgment.frame(packet.head, packet.meta, SegmentTo::Sender) {
            cx.emit(EmitTarget::Ingress, frame.bytes());
        }
        self.open_window(packet, pad, &segment);
        Verdict::Pass
    }

    /// Turns the server's SYN into the acknowledgment that opens the client's window.
    fn open_window(&self, packet: &mut Packet<'_>, pad: &Pad, segment: &TcpSegment) {
        let l4 = usize::from(packet.meta.l4_off);
        // Windows of SYNs are not scaled (RFC 7323, 2.2).
        let scale = if pad.has(has::SCALE) { self.promise.scale } else { 0 };
        let mut area = [1; 40];
        for option in tcp_options(packet.head, packet.meta).filter(|option| option.kind == 8) {
            if let Some(place) = area.get_mut(option.at..option.at + 2 + option.data.len()) {
                place[..2].copy_from_slice(&[8, option.data.len() as u8 + 2]);
                place[2..].copy_from_slice(option.data);
            }
        }
        let len = tcp_options(packet.head, packet.meta).area().len().min(area.len());
        patch(packet.head, l4, FIXED, &area[..len]);
        patch(packet.head, l4, SEQ, &segment.seq.wrapping_add(1).to_be_bytes());
        patch(packet.head, l4, FLAGS, &[ACK]);
        patch(packet.head, l4, WINDOW, &(segment.window >> scale).to_be_bytes());
        if pad.stamp != 0
            && let Some((at, value, _)) = timestamp(packet.head, packet.meta)
        {
            patch(packet.head, l4, at + 2, &value.wrapping_sub(pad.stamp).to_be_bytes());
        }
    }
}
