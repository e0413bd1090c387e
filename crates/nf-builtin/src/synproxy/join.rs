//! The handshake with the server.

use std::sync::atomic::Ordering::Relaxed;

use mmb_flow::TcpSegment;
use mmb_packet::DropReason;

use super::Synproxy;
use crate::shared::handshake::{Splice, end_of_connection, state};
use mmb_nf::tcp_segment::{ACK, RST, SEQ, SYN, SegmentTo, patch};
use mmb_nf::{Context, Direction, EmitTarget, Packet, Verdict};

/// Drops a packet that the function has consumed.
const TAKEN: Verdict = Verdict::Drop(DropReason::SynCookie);
/// Drops an unexpected packet.
const STRANGE: Verdict = Verdict::Drop(DropReason::SynCookieBad);

impl Synproxy {
    /// Processes a packet of a session.
    #[inline]
    pub(super) fn joined(
        &self,
        packet: &mut Packet<'_>,
        pad: &mut Splice,
        cx: &mut Context<'_, ()>,
    ) -> Verdict {
        match (pad.state, packet.direction) {
            (state::JOINED, Direction::Reverse) if packet.tcp_flags() & (SYN | ACK) == SYN | ACK => {
                self.server_answers(packet, pad, cx)
            }
            (state::JOINED, direction) => {
                if direction == Direction::Forward && packet.tcp_flags() & SYN != 0 {
                    pad.client_begins_again(packet);
                }
                pad.translate(packet);
                Verdict::Pass
            }
            (state::WAITING, Direction::Forward) => self.client_waits(packet, pad, cx),
            (state::WAITING, Direction::Reverse) => self.server_speaks(packet, pad, cx),
            (_, Direction::Forward) => {
                if let Some(begun) = Splice::begin(packet) {
                    *pad = begun;
                }
                Verdict::Pass
            }
            _ => Verdict::Pass,
        }
    }

    /// A packet of the client before the server has answered.
    fn client_waits(&self, packet: &Packet<'_>, pad: &Splice, cx: &mut Context<'_, ()>) -> Verdict {
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
    fn server_speaks(&self, packet: &mut Packet<'_>, pad: &mut Splice, cx: &mut Context<'_, ()>) -> Verdict {
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
            for frame in pad.begin_anew(packet, &segment) {
                cx.emit(EmitTarget::Ingress, frame.bytes());
            }
        }
        STRANGE
    }

    /// The server's SYN, perhaps repeated: acknowledges it, and opens the client's window. Or the answer to
    /// another SYN of the client.
    fn server_answers(&self, packet: &mut Packet<'_>, pad: &mut Splice, cx: &mut Context<'_, ()>) -> Verdict {
        let Some(segment) = TcpSegment::read(packet.head, packet.meta) else { return STRANGE };
        if pad.state == state::JOINED && pad.is_over(&segment) {
            return end_of_connection(packet, &segment, cx);
        }
        if segment.ack != pad.isn.wrapping_add(1) {
            return STRANGE;
        }
        if pad.state == state::WAITING {
            let kept = pad.join(&self.handshake.promise, packet);
            self.counts.joined.fetch_add(1, Relaxed);
            self.counts.lacking.fetch_add(u64::from(!kept), Relaxed);
        }
        let acknowledgment = pad.acknowledgment(packet, &segment);
        if let Some(frame) = acknowledgment.frame(packet.head, packet.meta, SegmentTo::Sender) {
            cx.emit(EmitTarget::Ingress, frame.bytes());
        }
        pad.open_window(&self.handshake.promise, packet, &segment);
        Verdict::Pass
    }
}
