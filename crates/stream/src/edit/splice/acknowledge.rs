//! What acknowledgements and windows of the receiver mean to the sender.

use super::super::log::EditPool;
use super::{ACKED, BEGUN, BEHIND, EDGE, Flow, OutputRange, PREACKED, PROBED, Splices, TOLD};
use crate::{is_after, is_before};

/// What the acknowledgement of a segment means to the sender of the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// The acknowledgement number that the sender is told, and the field of the window.
    pub ack: u32,
    /// See `ack`.
    pub window: u16,
    /// Blocks of a selective acknowledgement have other numbers, too.
    pub differs: bool,
    /// Output that the window has room for. It is noted as sent.
    pub pending: OutputRange,
}

impl Splices {
    /// The receiver of a direction has acknowledged bytes. `window`: the field of the header, and its shift
    /// if it is known.
    ///
    /// Returns what the sender is told: acknowledgement number and field.
    pub fn acknowledge(
        &mut self,
        number: u32,
        direction: usize,
        ack: u32,
        (window, shift): (u16, Option<u8>),
    ) -> (u32, u16) {
        let Some((flow, edits)) = self.parts(number, direction) else { return (ack, window) };
        let (told, is_new) = flow.acknowledge(edits, ack, (window, shift));
        if is_new {
            self.output.acknowledge(number, direction, ack);
        }
        told
    }

    /// Does what [`Splices::acknowledge`] does. Also takes the output that the window has room for, and tells
    /// whether other numbers of the segment have to be translated.
    #[inline]
    pub fn translate(
        &mut self,
        number: u32,
        direction: usize,
        ack: u32,
        (window, shift): (u16, Option<u8>),
    ) -> Translated {
        let Some((flow, edits)) = self.parts(number, direction) else {
            return Translated { ack, window, ..Translated::default() };
        };
        let (told, is_new) = flow.acknowledge(edits, ack, (window, shift));
        let differs = !flow.has_same_numbers() || flow.has(PREACKED);
        let pending = flow.take_pending();
        if is_new {
            self.output.acknowledge(number, direction, ack);
        }
        Translated { ack: told.0, window: told.1, differs, pending }
    }

    /// Returns what [`Splices::acknowledge`] would, and changes nothing.
    pub fn told(
        &self,
        number: u32,
        direction: usize,
        ack: u32,
        (window, shift): (u16, Option<u8>),
    ) -> (u32, u16) {
        let flow = self.flow(number, direction).copied().filter(|flow| flow.has(BEGUN));
        let Some(mut flow) = flow else { return (ack, window) };
        if is_after(ack, flow.next().wrapping_add(u32::from(flow.has(PROBED)))) {
            return (ack.wrapping_sub(flow.log.offset), window);
        }
        let acked = flow.told_ack(flow.log.sender_numbers(&self.edits, ack).0);
        (acked, shift.map_or(window, |shift| flow.tell(acked, ack, window, shift)))
    }

    /// Returns the greatest acknowledgement number of the receiver, as the sender is told. None: there was
    /// none.
    pub fn told_acknowledged(&self, number: u32, direction: usize) -> Option<u32> {
        let flow = self.flow(number, direction).filter(|flow| flow.has(BEGUN) && flow.has(ACKED))?;
        Some(flow.told_ack(flow.log.sender_numbers(&self.edits, flow.acked).0))
    }

    /// Returns the sender's numbers of a block of a selective acknowledgement. None: nothing is left.
    pub fn selected(&self, number: u32, direction: usize, block: (u32, u32)) -> Option<(u32, u32)> {
        let flow = self.flow(number, direction).filter(|flow| flow.has(BEGUN))?;
        let mut from = flow.log.sender_numbers(&self.edits, block.0).1;
        let to = flow.log.sender_numbers(&self.edits, block.1).0;
        if is_after(block.1, flow.acked) {
            // In front of the acknowledgement number, a block would tell of a duplicate (RFC 2883).
            from = flow.told_ack(from);
        }
        is_before(from, to).then_some((from, to))
    }

    /// Returns the sender's number of a receiver's number.
    pub fn to_sender(&self, number: u32, direction: usize, seq: u32) -> u32 {
        let flow = self.flow(number, direction).filter(|flow| flow.has(BEGUN));
        flow.map_or(seq, |flow| flow.log.sender_numbers(&self.edits, seq).0)
    }

    /// Returns the receiver's number of a sender's number.
    pub fn to_receiver(&self, number: u32, direction: usize, seq: u32) -> u32 {
        self.flow(number, direction).map_or(seq, |flow| flow.log.receiver_numbers(&self.edits, seq).0)
    }
}

impl Flow {
    /// Notes an acknowledgement and the window with it. Returns what the sender is told, and whether bytes
    /// are acknowledged that were not before.
    #[inline]
    fn acknowledge(
        &mut self,
        edits: &mut EditPool,
        ack: u32,
        (window, shift): (u16, Option<u8>),
    ) -> ((u32, u16), bool) {
        if !self.has(BEGUN) {
            return ((ack, window), false);
        }
        let last = self.next().wrapping_add(u32::from(self.has(PROBED)));
        if is_after(ack, last) {
            return ((ack.wrapping_sub(self.log.offset), window), false);
        }
        let is_new = !self.has(ACKED) || is_after(ack, self.acked);
        if is_new {
            (self.acked, self.bits) = (ack, self.bits | ACKED);
            if self.has(PROBED) && is_after(ack, self.sent) {
                (self.sent, self.bits) = (ack, self.bits & !PROBED);
            }
            self.log.fold(edits, ack);
        }
        let acked = self.log.sender_numbers(edits, ack).0;
        if self.has(PREACKED) && !is_before(acked, self.preacked) {
            self.bits &= !PREACKED;
        }
        if self.has(BEHIND) && !is_before(acked, self.first) {
            self.bits &= !BEHIND;
        }
        let acked = self.told_ack(acked);
        let window = shift.map_or(window, |shift| self.tell(acked, ack, window, shift));
        ((acked, window), is_new)
    }

    /// Returns the field of the window that the sender is told. The right edge never moves back.
    fn tell(&mut self, acked: u32, ack: u32, window: u16, shift: u8) -> u16 {
        let shift = shift.min(14);
        let edge = ack.wrapping_add(u32::from(window) << shift);
        if !self.has(EDGE) || is_after(edge, self.edge) {
            (self.edge, self.bits) = (edge, self.bits | EDGE);
        }
        let own = edge.wrapping_sub(self.log.offset);
        if !self.has(TOLD) || is_after(own, self.told) {
            (self.told, self.bits) = (own, self.bits | TOLD);
        }
        let is_plain = self.has_same_numbers() && acked == ack;
        if is_plain || self.told.wrapping_sub(acked) == u32::from(window) << shift {
            return window;
        }
        self.field(acked, shift)
    }

    /// Returns the field of the window that the sender is told with an acknowledgement number of its own. The
    /// right edge stays.
    pub(super) fn field(&mut self, acked: u32, shift: u8) -> u16 {
        let room = self.told.wrapping_sub(acked);
        if room as i32 <= 0 {
            return 0;
        }
        let field = room.div_ceil(1 << shift).min(u16::MAX.into());
        let told = acked.wrapping_add(field << shift);
        if is_after(told, self.told) {
            self.told = told;
        }
        field as u16
    }
}
