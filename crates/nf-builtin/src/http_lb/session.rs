//! Sessions: the handshake with the server, the request that it gets, and the translation of later packets.
//!
//! Everything here is as the client sees it: the engine has translated numbers of reverse packets before they
//! come here, and translates emitted frames to the server after they leave.

use std::sync::atomic::Ordering::Relaxed;

use bytemuck::{Pod, Zeroable};
use mmb_flow::TcpSegment;
use mmb_packet::PacketFlags;

use super::heads::{Head, HeadPlace, Phase};
use super::{Counter, HttpLb, Local};
use crate::lb::backends::end_of_backend;
use crate::lb::choice::Method;
use crate::shared::handshake::{Splice, end_of_connection, mss_of, state};
use mmb_nf::tcp_segment::{
    ACK, ACKNOWLEDGMENT, FIN, Options, OutgoingSegment, PSH, RST, SYN, SegmentTo, WINDOW, patch, timestamp,
};
use mmb_nf::{ConstantRewrite, Context, Direction, DropReason, Packet, SessionInfo, Verdict};

/// Milliseconds for which a server may leave its SYNs without an answer, and the least number of these SYNs.
/// A host tries as long until its third SYN (after 1 s and 3 s: RFC 6298, 2.1 and 5.5).
pub(super) const PATIENCE: u32 = 3_000;
pub(super) const LEAST_SYNS: u8 = 3;

/// Milliseconds behind a SYN in which no other one leaves. A client repeats its request after 0.2 to 1 s, and
/// then after twice the time. What comes sooner is another segment of the same repetition, or a duplicate.
const SYN_GAP: u32 = 100;

/// Connections for a request that servers may have forgotten. Each further one makes its server one that has
/// failed.
const MOST_RECONNECTS: u8 = 3;

/// Drops an unexpected packet.
const STRANGE: Verdict = Verdict::Drop(DropReason::SynCookieBad);

/// A session's scratchpad: 48 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Pad {
    pub splice: Splice,
    /// The head: see [`HeadPlace`].
    serial: u32,
    place: u16,
    /// Bytes of the request that are kept. 0: the server has all of them.
    len: u16,
    /// Those that the client knows to be received, and those that the server has acknowledged.
    acked: u16,
    at_server: u16,
    /// Most bytes of a segment to the server.
    piece: u16,
    /// Number of the back end in its group.
    pub backend: u16,
    /// See [`crate::lb::backends::Backend::track`]. Bit 0: there is a back end.
    pub ends: u16,
    pub group: u8,
    /// Times at which a SYN was due again.
    repetitions: u8,
}

const _: () = assert!(size_of::<Pad>() == 48);

/// In [`Pad::ends`]: the session has a back end.
const HAS_BACKEND: u16 = 1;

impl Pad {
    pub fn has_backend(&self) -> bool {
        self.ends & HAS_BACKEND != 0
    }

    fn head(&self) -> HeadPlace {
        HeadPlace { number: self.place, serial: self.serial }
    }

    /// Returns the position of a number of the client in the bytes of its request.
    fn position(&self, number: u32) -> i32 {
        number.wrapping_sub(self.splice.isn).wrapping_sub(1) as i32
    }
}

impl HttpLb {
    /// A session opens: its request was read.
    pub(super) fn begin(&self, pad: &mut Pad, session: &SessionInfo) {
        let key = &session.ingress_key;
        let begun = self.heads.with(key, |set| {
            let way = set.find(key)?;
            let (head, _) =
                set.get(way).filter(|(head, _)| head.phase == Phase::Chosen && !head.has_session)?;
            (head.has_session, head.since, head.last_syn) = (true, session.now, session.now);
            let HeadPlace { number: place, serial } = self.heads.place(key, way, head.serial);
            let (len, acked, backend) = (head.len, head.acked, head.backend);
            let group = head.group.unwrap_or(0);
            Some(Pad { serial, place, len, acked, backend, group, ends: HAS_BACKEND, ..Pad::default() })
        });
        if let Some(begun) = begun.flatten() {
            *pad = begun;
            if let Some(backend) = self.backend(pad.group, pad.backend) {
                backend.counts.sessions.fetch_add(1, Relaxed);
                backend.counts.opened.fetch_add(1, Relaxed);
            }
        }
    }

    /// Processes a packet of a session.
    #[inline]
    pub(super) fn process(
        &self,
        packet: &mut Packet<'_>,
        pad: &mut Pad,
        cx: &mut Context<'_, Local>,
    ) -> Verdict {
        if !pad.has_backend() {
            return self.process_other(packet);
        }
        let flags = packet.tcp_flags();
        if self.method == Method::LeastConnections
            && flags & (FIN | RST | SYN) != 0
            && let Some(backend) = self.backend(pad.group, pad.backend)
        {
            backend.track(&mut pad.ends, flags, packet.direction);
        }
        let group = self.groups.get(usize::from(pad.group));
        if group.is_some_and(|group| !group.backends.all_up() && group.backends.is_down(pad.backend)) {
            return if pad.splice.state == state::JOINED {
                end_of_backend(packet, cx)
            } else {
                self.fail(pad)
            };
        }
        match (pad.splice.state, packet.direction) {
            (state::JOINED, Direction::Reverse) if flags & (SYN | ACK) == SYN | ACK => {
                self.server_repeats(packet, pad, cx)
            }
            // Bytes of the request.
            (state::JOINED, Direction::Forward) if packet.meta.flags.contains(PacketFlags::OURS) => {
                Verdict::Pass
            }
            (state::JOINED, _) if pad.len != 0 => self.hand_over(packet, pad, cx),
            (state::JOINED, Direction::Forward) if flags & SYN != 0 => {
                pad.splice.client_begins_again(packet);
                pad.splice.translate(packet);
                Verdict::Pass
            }
            (state::JOINED, _) => {
                pad.splice.translate(packet);
                Verdict::Pass
            }
            (state::WAITING, Direction::Forward) => self.client_waits(packet, pad, cx),
            (state::WAITING, Direction::Reverse) => self.server_speaks(packet, pad, cx),
            (_, Direction::Forward) if let Some(splice) = Splice::begin(packet) => {
                pad.splice = splice;
                Verdict::Pass
            }
            _ => STRANGE,
        }
    }

    /// See [`mmb_nf::Function::constant_rewrite`]. Only the splice is left once the server has the whole
    /// request. The next packet of a session whose back end is down ends it.
    pub(super) fn constant_rewrite_of(&self, pad: &Pad) -> Option<ConstantRewrite> {
        if !pad.has_backend() {
            return Some(ConstantRewrite::default());
        }
        let group = self.groups.get(usize::from(pad.group))?;
        let is_spliced = pad.splice.state == state::JOINED && pad.len == 0;
        (is_spliced && !group.backends.is_down(pad.backend)).then(|| pad.splice.constant_rewrite())
    }

    /// A packet of a session whose request was not read: it is older than the function in its chain. A SYN
    /// that was made here means that the head could not be found; the client repeats its request.
    #[cold]
    fn process_other(&self, packet: &Packet<'_>) -> Verdict {
        let is_made = packet.direction == Direction::Forward
            && TcpSegment::read(packet.head, packet.meta)
                .is_some_and(|segment| segment.flags & (SYN | ACK | RST) == SYN && segment.ack != 0);
        if is_made { Verdict::End(self.read) } else { Verdict::Pass }
    }

    /// The server does not answer, or refuses. The client's next repetition opens a session with another one.
    fn fail(&self, pad: &mut Pad) -> Verdict {
        let backend = pad.backend;
        self.count(Counter::Failed);
        self.keep_head(pad, |head| head.set_tried(backend));
        Verdict::End(DropReason::BackendDown)
    }

    /// The server does not know the connection. The client's next repetition opens a session with any server
    /// of the group.
    #[cold]
    fn reconnect(&self, pad: &mut Pad) -> Verdict {
        let backend = pad.backend;
        self.count(Counter::Reconnected);
        self.keep_head(pad, |head| {
            head.reconnects = head.reconnects.saturating_add(1);
            if head.reconnects > MOST_RECONNECTS {
                head.set_tried(backend);
            }
        });
        Verdict::End(self.read)
    }

    /// Keeps the head for another session. Calls a closure with it.
    fn keep_head(&self, pad: &mut Pad, change: impl FnOnce(&mut Head)) {
        let kept = self.heads.at(pad.head(), |head, _| {
            change(head);
            (head.phase, head.has_session) = (Phase::Complete, false);
        });
        if kept.is_some() {
            // The end of this session does not free the head: another worker may open the next one before.
            pad.len = 0;
        }
    }

    /// The server has the request, or the session has ended.
    pub(super) fn free_head(&self, pad: &mut Pad) {
        if pad.len != 0 {
            self.heads.at(pad.head(), |head, _| {
                if head.phase == Phase::Chosen {
                    head.free();
                }
            });
            pad.len = 0;
        }
    }

    /// A packet of the client before the server has answered.
    fn client_waits(&self, packet: &Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, Local>) -> Verdict {
        let Some(segment) = TcpSegment::read(packet.head, packet.meta) else { return STRANGE };
        if segment.flags & RST != 0 {
            self.free_head(pad);
            return Verdict::Pass;
        }
        if segment.flags & SYN != 0 {
            // The SYN of this connection comes late. With another one the client begins again; its next SYN
            // gets a cookie.
            let is_late = segment.seq == pad.splice.isn;
            return if is_late { Verdict::Consume } else { Verdict::End(DropReason::SynCookie) };
        }
        if segment.len == 0 && segment.flags & FIN == 0 {
            return Verdict::Consume;
        }
        if pad.position(segment.seq) >= i32::from(pad.len) {
            return cx.hold_at(segment.seq);
        }
        let now = cx.now;
        let waited = self.heads.at(pad.head(), |head, _| {
            let is_due = now.wrapping_sub(head.last_syn) >= SYN_GAP;
            head.last_syn = if is_due { now } else { head.last_syn };
            is_due.then(|| now.wrapping_sub(head.since))
        });
        let Some(waited) = waited.flatten() else { return Verdict::Consume };
        pad.repetitions = pad.repetitions.saturating_add(1);
        if waited >= PATIENCE && pad.repetitions >= LEAST_SYNS {
            return self.fail(pad);
        }
        if let Some(syn) = pad.splice.syn(packet, SegmentTo::Receiver) {
            cx.emit(SegmentTo::Receiver.target(), syn.bytes());
            self.count(Counter::Repeated);
        }
        Verdict::Consume
    }

    /// A packet of the server before it has answered the SYN.
    fn server_speaks(&self, packet: &Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, Local>) -> Verdict {
        let Some(segment) = TcpSegment::read(packet.head, packet.meta) else { return STRANGE };
        let answers = segment.flags & ACK != 0 && segment.ack == pad.splice.isn.wrapping_add(1);
        if segment.flags & RST != 0 {
            return if answers { self.fail(pad) } else { STRANGE };
        }
        if answers && segment.flags & SYN != 0 {
            if !pad.splice.join(&self.handshake.promise, packet) {
                self.count(Counter::Lacking);
            }
            let options = if timestamp(packet.head, packet.meta).is_some() { 12 } else { 0 };
            pad.piece = mss_of(packet.head, packet.meta).saturating_sub(options).max(64);
            self.send_request(packet, pad, &segment, cx);
            return Verdict::Consume;
        }
        if segment.flags & ACK != 0 && !answers {
            for frame in pad.splice.begin_anew(packet, &segment) {
                cx.emit(SegmentTo::Sender.target(), frame.bytes());
            }
        }
        STRANGE
    }

    /// Answers the server's SYN, and sends the beginning of the request: no more before the server has
    /// acknowledged something ([`HttpLb::server_begins`]). A server with SYN cookies knows a connection by
    /// the numbers of its first segment. It answers segments further behind by resets, which may arrive when
    /// segments at the beginning have opened the connection.
    ///
    /// The acknowledgment goes first, as that of a host does. Behind bytes with others to follow it goes
    /// again: it is old then, and so it is answered at once (RFC 9293, 3.10.7.4), not after the time of a
    /// delayed acknowledgment.
    fn send_request(&self, packet: &Packet<'_>, pad: &Pad, syn: &TcpSegment, cx: &mut Context<'_, Local>) {
        let acknowledgment = pad.splice.acknowledgment(packet, syn);
        let to = SegmentTo::Sender;
        let Some(frame) = acknowledgment.frame(packet.head, packet.meta, to) else { return };
        cx.emit(to.target(), frame.bytes());
        self.send_bytes(packet, pad, (acknowledgment, to), pad.piece, cx);
        if pad.len > pad.piece || !cx.held(packet).opposite().is_empty() {
            cx.reinject(packet, to, &[frame.bytes()]);
        }
    }

    /// The server repeats its SYN: it has nothing of what was sent. Or it answers another SYN of the client.
    #[cold]
    fn server_repeats(&self, packet: &Packet<'_>, pad: &Pad, cx: &mut Context<'_, Local>) -> Verdict {
        let Some(segment) = TcpSegment::read(packet.head, packet.meta) else { return STRANGE };
        if pad.splice.is_over(&segment) {
            return end_of_connection(packet, &segment, cx);
        }
        if segment.ack != pad.splice.isn.wrapping_add(1) {
            return STRANGE;
        }
        self.send_request(packet, pad, &segment, cx);
        Verdict::Consume
    }

    /// Sends the bytes of the request that the server has not acknowledged, up to a position.
    fn send_bytes(
        &self,
        packet: &Packet<'_>,
        pad: &Pad,
        (like, to): (OutgoingSegment, SegmentTo),
        end: u16,
        cx: &mut Context<'_, Local>,
    ) {
        let (from, end) = (usize::from(pad.at_server), usize::from(end.min(pad.len)));
        self.heads.at(pad.head(), |_, bytes| {
            let all = bytes.get(from..end).unwrap_or(&[]);
            let mut seq = pad.splice.isn.wrapping_add(1).wrapping_add(from as u32);
            let mut pieces = all.chunks(usize::from(pad.piece.max(1))).peekable();
            while let Some(piece) = pieces.next() {
                let flags = if pieces.peek().is_none() { ACK | PSH } else { ACK };
                let segment = OutgoingSegment { seq, flags, ..like };
                if let Some(frame) = segment.frame_with(packet.head, packet.meta, to, piece) {
                    cx.reinject(packet, to, &[frame.bytes(), piece]);
                }
                seq = seq.wrapping_add(piece.len() as u32);
            }
        });
    }

    /// A packet while the server lacks bytes of the request.
    #[cold]
    fn hand_over(&self, packet: &mut Packet<'_>, pad: &mut Pad, cx: &mut Context<'_, Local>) -> Verdict {
        let Some(came) = TcpSegment::read(packet.head, packet.meta) else { return STRANGE };
        if packet.direction == Direction::Reverse {
            if is_unknown_to_server(&came, pad) {
                return self.reconnect(pad);
            }
            let begins = came.flags & (ACK | RST) == ACK && pad.at_server == 0 && pad.position(came.ack) > 0;
            if begins {
                self.server_begins(packet, pad, came.ack, cx);
            }
            pad.splice.translate(packet);
            if came.flags & ACK != 0 {
                self.server_acknowledges(packet, pad, came.ack);
            }
            return Verdict::Pass;
        }
        let position = pad.position(came.seq);
        if pad.at_server == 0 && came.flags & RST == 0 && position != 0 {
            if came.len == 0 && came.flags & FIN == 0 {
                return Verdict::Consume;
            }
            if position >= i32::from(pad.len) {
                return cx.hold_at(came.seq);
            }
        }
        pad.splice.translate(packet);
        let is_repeated = came.flags & RST == 0 && came.len != 0 && position < i32::from(pad.len);
        if is_repeated && let Some(sent) = TcpSegment::read(packet.head, packet.meta) {
            let mut options = Options::default();
            if let Some((_, value, echo)) = timestamp(packet.head, packet.meta) {
                options.push_timestamp(value, echo);
            }
            let like = OutgoingSegment { seq: 0, ack: sent.ack, flags: ACK, window: sent.window, options };
            let end = u16::try_from(position).unwrap_or(0);
            if pad.at_server == 0 && position > 0 {
                self.send_bytes(packet, pad, (like, SegmentTo::Receiver), end.min(pad.piece), cx);
                return Verdict::Consume;
            }
            self.send_bytes(packet, pad, (like, SegmentTo::Receiver), end, cx);
        }
        Verdict::Pass
    }

    /// The server has something of the request: it gets the rest, and what the client has sent behind it.
    fn server_begins(&self, packet: &Packet<'_>, pad: &mut Pad, ack: u32, cx: &mut Context<'_, Local>) {
        pad.at_server = u16::try_from(pad.position(ack)).unwrap_or(pad.len).min(pad.len);
        let mut options = Options::default();
        if let Some((_, value, echo)) = timestamp(packet.head, packet.meta) {
            options.push_timestamp(echo, value);
        }
        let like = OutgoingSegment {
            seq: 0,
            ack: pad.splice.cookie.wrapping_add(1),
            flags: ACK,
            window: pad.splice.translated_window(),
            options,
        };
        self.send_bytes(packet, pad, (like, SegmentTo::Sender), pad.len, cx);
        cx.held(packet).opposite().release();
    }

    /// Notes what the server has acknowledged. The client is never told less than it was.
    fn server_acknowledges(&self, packet: &mut Packet<'_>, pad: &mut Pad, ack: u32) {
        let position = pad.position(ack);
        if position >= i32::from(pad.len) {
            return self.free_head(pad);
        }
        let position = u16::try_from(position).unwrap_or(0);
        pad.at_server = pad.at_server.max(position);
        if position < pad.acked {
            let told = pad.splice.isn.wrapping_add(1).wrapping_add(pad.acked.into());
            let l4 = usize::from(packet.meta.l4_off);
            patch(packet.head, l4, ACKNOWLEDGMENT, &told.to_be_bytes());
            let scale = pad.splice.promised_scale(&self.handshake.promise);
            let less = (pad.acked - position).div_ceil(1 << scale.min(15));
            if let Some(segment) = TcpSegment::read(packet.head, packet.meta) {
                let window = segment.window.saturating_sub(less);
                patch(packet.head, l4, WINDOW, &window.to_be_bytes());
            }
        }
    }
}

/// Whether a segment of a server is the reset of one without state for the connection: that has no ACK, and
/// the number that was acknowledged in front of it (RFC 9293, 3.10.7.1). A server with state has acknowledged
/// something, or does so in its reset.
fn is_unknown_to_server(came: &TcpSegment, pad: &Pad) -> bool {
    came.flags & (RST | ACK) == RST && came.seq == pad.splice.cookie.wrapping_add(1) && pad.at_server == 0
}
