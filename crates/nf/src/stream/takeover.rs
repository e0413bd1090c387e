//! Answering the client of a TCP connection in the place of its server.
//!
//! Theory of operation. A function that does not let a request reach the server drops its packet, sends the
//! client an answer that ends with a FIN, and resets the server. From then on it drops all packets of the
//! session, and gives each to [`TakenOver::packet`].
//!
//! There is no timer. The answer does not acknowledge the request until the client has acknowledged the whole
//! answer. So if a part of the answer is lost, the client repeats its request, and gets again what it lacks.
//!
//! A function in a process names its answer by a number, and the worker does all this
//! ([`super::answers`]).
//!
//! Only functions that edit can answer: they hold the request back before they decide. The answer follows
//! what the client was sent, in the numbers that the client counts with. Later packets are not translated.

use bytemuck::{Pod, Zeroable};
use mmb_flow::{Direction, TcpSegment};
use mmb_stream::{is_after, is_before};

use crate::tcp_segment::{ACK, FIN, Options, OutgoingSegment, PSH, RST, SYN, SegmentTo, reset, timestamp};
use crate::{Context, Packet};

/// Payload of a segment: what each host accepts without options that tell otherwise (RFC 9293, 3.7.1), less
/// timestamps.
const PIECE: usize = 536 - 12;
/// The window in answers. Nothing more is read.
const WINDOW: u16 = 1024;

/// A connection whose client gets an answer. Plain data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct TakenOver {
    /// Number of the first byte of the answer.
    start: u32,
    /// The acknowledgement number of the answer.
    held_back: u32,
    /// The next number that the client will send.
    received: u32,
    /// 1: the client has sent a FIN.
    has_fin: u32,
}

/// The numbers of a connection that a function may answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerNumbers {
    /// The acknowledgement number that the client was told last.
    pub client: u32,
    /// The number that the client expects next, and the server.
    pub to_client: u32,
    pub to_server: u32,
    /// The client has acknowledged all that has gone on, and no FIN has.
    pub is_settled: bool,
    /// The function is in a process: the worker answers, with numbers that it knows.
    pub is_apart: bool,
}

impl AnswerNumbers {
    /// For a function in a process.
    pub const APART: AnswerNumbers =
        AnswerNumbers { client: 0, to_client: 0, to_server: 0, is_settled: true, is_apart: true };
}

impl TakenOver {
    /// Whether an answer can follow now. False while the client may lack bytes that have gone on to it, since
    /// the server that would repeat them is reset.
    pub fn can_begin<L>(cx: &Context<'_, L>) -> bool {
        cx.holding.answer.is_some_and(|numbers| numbers.is_settled)
    }

    /// Answers the client of a packet. `number`: see [`crate::StreamFunction::answer`]. What the function
    /// holds back does not go on. The packet is to be dropped. None: an answer cannot follow, the packet is
    /// not TCP, or there is no room to note it.
    pub fn begin<L>(
        packet: &Packet<'_>,
        (number, answer): (u32, &[u8]),
        cx: &mut Context<'_, L>,
    ) -> Option<TakenOver> {
        let segment = TcpSegment::read(packet.head, packet.meta)?;
        let numbers = cx.holding.answer.filter(|numbers| numbers.is_settled)?;
        if numbers.is_apart {
            cx.holding.answered = Some(number);
            return Some(TakenOver::default());
        }
        if !cx.holding.held.take_over(packet.session.0) {
            return None;
        }
        let is_forward = packet.direction == Direction::Forward;
        let (start, held_back) = (numbers.to_client, if is_forward { numbers.client } else { segment.ack });
        let mut taken = TakenOver { start, held_back, received: held_back, has_fin: 0 };
        if is_forward {
            // All bytes in front of it were seen.
            taken.received = segment.seq;
            taken.receive(&segment);
        }
        let (to, ack) =
            if is_forward { (SegmentTo::Receiver, segment.ack) } else { (SegmentTo::Sender, end(&segment)) };
        let reset =
            OutgoingSegment { seq: numbers.to_server, ack, flags: RST | ACK, ..OutgoingSegment::default() };
        if let Some(frame) = reset.frame(packet.head, packet.meta, to) {
            cx.emit(to.target(), frame.bytes());
        }
        taken.send(packet, start, answer, cx);
        Some(taken)
    }

    /// Takes a packet of the session, which is to be dropped. Returns whether the connection has ended.
    pub fn packet<L>(&mut self, packet: &Packet<'_>, answer: &[u8], cx: &mut Context<'_, L>) -> bool {
        let Some(segment) = TcpSegment::read(packet.head, packet.meta) else { return false };
        if packet.direction == Direction::Reverse {
            Self::reset_server(packet, cx);
            return false;
        }
        if segment.flags & RST != 0 {
            return true;
        }
        let is_repeated = takes(&segment) != 0 && !is_after(end(&segment), self.received);
        self.receive(&segment);
        let whole = self.start.wrapping_add(answer.len() as u32 + 1);
        if !is_before(segment.ack, whole) {
            let all = OutgoingSegment { seq: whole, ack: self.received, flags: ACK, ..Self::plain(packet) };
            Self::emit(packet, &all, b"", cx);
            return self.has_fin != 0;
        }
        if is_repeated {
            let from = if is_before(segment.ack, self.start) { self.start } else { segment.ack };
            self.send(packet, from, answer, cx);
        }
        false
    }

    fn receive(&mut self, segment: &TcpSegment) {
        let (begin, end) = (segment.seq, end(segment));
        if !is_after(begin, self.received) && !is_before(end, self.received) {
            self.received = end;
            self.has_fin |= u32::from(segment.flags & FIN != 0);
        }
    }

    /// Sends the answer from a sequence number on. A FIN is on its last segment.
    fn send<L>(&self, packet: &Packet<'_>, from: u32, answer: &[u8], cx: &mut Context<'_, L>) {
        let mut at = (from.wrapping_sub(self.start) as usize).min(answer.len());
        loop {
            let piece = answer.get(at..answer.len().min(at + PIECE)).unwrap_or(&[]);
            let is_last = at + piece.len() == answer.len();
            let seq = self.start.wrapping_add(at as u32);
            let flags = if is_last { ACK | PSH | FIN } else { ACK };
            let segment = OutgoingSegment { seq, ack: self.held_back, flags, ..Self::plain(packet) };
            Self::emit(packet, &segment, piece, cx);
            at += piece.len();
            if is_last {
                return;
            }
        }
    }

    /// A segment to the client, with timestamps if the packet has them (RFC 7323, 3.2).
    fn plain(packet: &Packet<'_>) -> OutgoingSegment {
        let mut options = Options::default();
        if let Some((_, value, echo)) = timestamp(packet.head, packet.meta) {
            let [value, echo] = match packet.direction {
                Direction::Forward => [echo, value],
                Direction::Reverse => [value, echo],
            };
            options.push_timestamp(value, echo);
        }
        OutgoingSegment { window: WINDOW, options, ..OutgoingSegment::default() }
    }

    fn emit<L>(packet: &Packet<'_>, segment: &OutgoingSegment, payload: &[u8], cx: &mut Context<'_, L>) {
        let to = match packet.direction {
            Direction::Forward => SegmentTo::Sender,
            Direction::Reverse => SegmentTo::Receiver,
        };
        if let Some(frame) = segment.frame_with(packet.head, packet.meta, to, payload) {
            cx.emit_segments(to.target(), &[frame.bytes(), payload]);
        }
    }

    /// Resets the server, which has sent a packet.
    fn reset_server<L>(packet: &Packet<'_>, cx: &mut Context<'_, L>) {
        if let Some(frame) = reset(packet.head, packet.meta, SegmentTo::Sender) {
            cx.emit(SegmentTo::Sender.target(), frame.bytes());
        }
    }
}

/// Returns how many numbers a segment takes.
fn takes(segment: &TcpSegment) -> u32 {
    segment.len + u32::from(segment.flags & SYN != 0) + u32::from(segment.flags & FIN != 0)
}

/// Returns the number behind a segment.
fn end(segment: &TcpSegment) -> u32 {
    segment.seq.wrapping_add(takes(segment))
}
