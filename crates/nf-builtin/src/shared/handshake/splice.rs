//! The translation of a connection that was promised options before its server was known.
//!
//! Everything here is as the client sees it: the engine has translated numbers of reverse packets before they
//! come here, and translates emitted frames to the server after they leave.

use bytemuck::{Pod, Zeroable};
use mmb_flow::TcpSegment;
use mmb_packet::{Meta, shift_window, tcp_options};

use super::cookie::Offer;
use super::{Promise, offered, opening, unscaled};
use mmb_nf::tcp_segment::{
    ACK, ACKNOWLEDGMENT, FIXED, FLAGS, Frame, Options, OutgoingSegment, RST, SEQ, SYN, SegmentTo, WINDOW,
    patch, timestamp, timestamp_value,
};
use mmb_nf::{ConstantRewrite, Direction, Packet};

/// The state of a session. Zeros: its connection did not begin here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Splice {
    /// Sequence number of the client's SYN.
    pub isn: u32,
    /// The cookie that answered it.
    pub cookie: u32,
    /// Before the server answers: the timestamp of the answer to the client. Then: the server's timestamps
    /// less those that the client sees; wraps.
    stamp: u32,
    /// Before the server answers: the client's timestamp. Then, with [`has::NEW_SYN`]: the number of the
    /// client's latest SYN.
    value: u32,
    /// Added to the client's timestamps for the server; wraps ([`Splice::begin_anew`]).
    raise: u32,
    /// The client's window, in the units of its scale.
    pub window: u16,
    /// The client's maximum segment size, rounded down.
    pub mss: u16,
    /// One of [`state`].
    pub state: u8,
    /// Bits of [`has`]: options that the client has offered and was promised, and whether it begins again.
    has: u8,
    /// Before the server answers: the client's window scale. Then: the shift of the client's windows in bits.
    pub there: i8,
    /// The left shift of the server's windows in bits.
    back: i8,
}

const _: () = assert!(size_of::<Splice>() == 28);

/// States of a connection.
pub(crate) mod state {
    /// A SYN has been sent to the server. 0: the connection did not begin here.
    pub const WAITING: u8 = 1;
    /// The server has answered.
    pub const JOINED: u8 = 2;
}

/// What a client has offered, and what it has done since.
mod has {
    pub const TIMESTAMPS: u8 = 1 << 0;
    pub const SCALE: u8 = 1 << 1;
    pub const SACK: u8 = 1 << 2;
    /// The client has sent a SYN on the open connection.
    pub const NEW_SYN: u8 = 1 << 3;
}

impl Splice {
    /// Reads the SYN that [`super::Handshake`] has made, and clears the fields that carry its data.
    pub fn begin(packet: &mut Packet<'_>) -> Option<Splice> {
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
        Some(Splice {
            isn: syn.seq,
            cookie: syn.ack.wrapping_sub(1),
            stamp: stamps.map_or(0, |(_, _, echo)| echo),
            value: stamps.map_or(0, |(_, value, _)| value),
            raise: 0,
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

    /// Returns the scale of the windows that the client gets.
    pub fn promised_scale(&self, promise: &Promise) -> u8 {
        if self.has(has::SCALE) { promise.scale } else { 0 }
    }

    /// Returns the SYN again, before the server has answered.
    pub fn syn(&self, packet: &Packet<'_>, way: SegmentTo) -> Option<Frame> {
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

    /// The server acknowledges something else than the SYN: it has an old connection with this key. Returns
    /// the reset with which a host in SYN-SENT answers (RFC 9293, 3.10.7.3), and the SYN again.
    ///
    /// In TIME-WAIT, Linux looks the connection of the SYN up before it processes the reset, if both arrive
    /// together, or it ignores the reset (`tcp_rfc1337`). So the SYN gets a newer timestamp than the old
    /// connection's last one, with which the server accepts it at once (RFC 6191, section 2). All later
    /// timestamps of the client are raised by as much.
    #[cold]
    pub fn begin_anew(
        &mut self,
        packet: &Packet<'_>,
        old: &TcpSegment,
    ) -> impl Iterator<Item = Frame> + use<> {
        if self.has(has::TIMESTAMPS)
            && let Some((_, _, last)) = timestamp(packet.head, packet.meta)
        {
            let behind = last.wrapping_add(1).wrapping_sub(self.value);
            if behind.cast_signed() > 0 {
                self.raise = self.raise.wrapping_add(behind);
                self.value = self.value.wrapping_add(behind);
            }
        }
        let reset = OutgoingSegment { seq: old.ack, flags: RST, ..OutgoingSegment::default() };
        let reset = reset.frame(packet.head, packet.meta, SegmentTo::Sender);
        [reset, self.syn(packet, SegmentTo::Sender)].into_iter().flatten()
    }

    /// The server has answered with this SYN. Returns whether it supports what was promised.
    pub fn join(&mut self, promise: &Promise, packet: &Packet<'_>) -> bool {
        let (_, offer) = offered(packet.head, packet.meta);
        let stamp = timestamp_value(packet.head, packet.meta);
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

    /// A SYN of the client on the open connection. It goes to the server, which answers it with an
    /// acknowledgment if it still has the connection (RFC 9293, 3.10.7.4).
    #[cold]
    pub fn client_begins_again(&mut self, packet: &Packet<'_>) {
        if let Some(syn) = TcpSegment::read(packet.head, packet.meta).filter(|syn| syn.seq != self.isn) {
            self.value = syn.seq;
            self.has |= has::NEW_SYN;
        }
    }

    /// Whether a SYN and ACK of the server answers such a SYN: the server does not have the connection any
    /// more (RFC 9293, 3.6.1: TIME-WAIT), and the client does not either.
    pub fn is_over(&self, answer: &TcpSegment) -> bool {
        self.has(has::NEW_SYN) && answer.ack == self.value.wrapping_add(1)
    }

    /// Returns the acknowledgment of the server's SYN.
    pub fn acknowledgment(&self, packet: &Packet<'_>, syn: &TcpSegment) -> OutgoingSegment {
        let mut options = Options::default();
        if let Some((_, value, echo)) = timestamp(packet.head, packet.meta) {
            options.push_timestamp(echo, value);
        }
        let window = self.translated_window();
        OutgoingSegment { seq: syn.ack, ack: syn.seq.wrapping_add(1), flags: ACK, window, options }
    }

    /// Returns the window of the client's SYN as the server reads windows.
    pub fn translated_window(&self) -> u16 {
        shift_window(self.window, self.there)
    }

    /// Returns what [`Splice::translate`] does to every segment, once the server has answered.
    pub fn constant_rewrite(&self) -> ConstantRewrite {
        ConstantRewrite {
            timestamps: [self.raise, self.stamp.wrapping_neg()],
            window_shifts: [self.there, self.back],
        }
    }

    /// Translates timestamps, and windows if the scales differ.
    #[inline]
    pub fn translate(&self, packet: &mut Packet<'_>) {
        self.translate_segment(packet.head, packet.meta, packet.direction);
    }

    /// As [`Splice::translate`], for a frame that a function behind this one sends to the client.
    #[cold]
    pub fn translate_sent(&self, head: &mut [u8], meta: &Meta) {
        if self.state == state::JOINED {
            self.translate_segment(head, meta, Direction::Reverse);
        }
    }

    #[inline]
    fn translate_segment(&self, head: &mut [u8], meta: &Meta, direction: Direction) {
        let forward = direction == Direction::Forward;
        let l4 = usize::from(meta.l4_off);
        if self.stamp != 0
            && let Some((at, value, echo)) = timestamp(head, meta)
        {
            let (at, new) = match forward {
                true => (at + 6, echo.wrapping_add(self.stamp)),
                false => (at + 2, value.wrapping_sub(self.stamp)),
            };
            patch(head, l4, at, &new.to_be_bytes());
        }
        if self.raise != 0 {
            self.raise_timestamps(head, meta, forward);
        }
        let bits = if forward { self.there } else { self.back };
        if bits != 0
            && let Some(segment) = TcpSegment::read(head, meta)
        {
            patch(head, l4, WINDOW, &shift_window(segment.window, bits).to_be_bytes());
        }
    }

    /// Translates the timestamps of the client, which the server gets or echoes.
    #[cold]
    fn raise_timestamps(&self, head: &mut [u8], meta: &Meta, forward: bool) {
        let Some((at, value, echo)) = timestamp(head, meta) else { return };
        let (at, new) = match forward {
            true => (at + 2, value.wrapping_add(self.raise)),
            false => (at + 6, echo.wrapping_sub(self.raise)),
        };
        patch(head, usize::from(meta.l4_off), at, &new.to_be_bytes());
    }

    /// Turns the server's SYN into the acknowledgment that opens the client's window.
    pub fn open_window(&self, promise: &Promise, packet: &mut Packet<'_>, segment: &TcpSegment) {
        let l4 = usize::from(packet.meta.l4_off);
        // Windows of SYNs are not scaled (RFC 7323, 2.2).
        let scale = self.promised_scale(promise);
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
        if self.stamp != 0
            && let Some((at, value, _)) = timestamp(packet.head, packet.meta)
        {
            patch(packet.head, l4, at + 2, &value.wrapping_sub(self.stamp).to_be_bytes());
        }
        if self.raise != 0 {
            self.raise_timestamps(packet.head, packet.meta, false);
        }
    }
}
