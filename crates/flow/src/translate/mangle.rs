//! Header fields that a session replaces, besides addresses and ports.

use bytemuck::{Pod, Zeroable};

use crate::{Direction, EditOffsets};

/// Header fields that a session replaces, besides addresses and ports. The default replaces nothing. 20 bytes
/// in native byte order, for the session's scratchpad.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Mangle {
    /// Added to the sequence numbers of forward TCP segments. Subtracted from the acknowledgment numbers and
    /// SACK edges of reverse segments. Wraps.
    pub sequence: u32,
    /// Added to the acknowledgment numbers and SACK edges of forward TCP segments. Subtracted from the
    /// sequence numbers of reverse segments. Wraps.
    pub acknowledgment: u32,
    /// IPv6 flow label of forward packets as received: 20 bits.
    pub old_label: u32,
    /// New flow label of forward packets. In reverse packets with this label, `old_label` is restored. If
    /// both are equal, labels do not change.
    pub new_label: u32,
    /// Added to the identification of forward IPv4 packets (wraps), or their new identification.
    pub ip_id: u16,
    /// 1 if `ip_id` is the new identification, 0 if it is added.
    pub fixed_id: u8,
    /// Always zero.
    pub zero: u8,
}

const _: () = assert!(size_of::<Mangle>() == 20);

/// Edit of an IPv4 identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Add(u16),
    Set(u16),
}

/// Edit of a flow label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// The only label that is replaced. None: all labels are.
    pub only: Option<u32>,
    /// The new label.
    pub new: u32,
}

/// A [`Mangle`] for one direction, applied or undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Added to the sequence number.
    pub sequence: u32,
    /// Added to the acknowledgment number and SACK edges.
    pub acknowledgment: u32,
    pub id: Id,
    pub label: Option<Label>,
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers { sequence: 0, acknowledgment: 0, id: Id::Add(0), label: None }
    }
}

impl Mangle {
    /// Adds the offsets of edits behind the translation.
    pub fn add_edits(&mut self, EditOffsets([forward, reverse]): EditOffsets) {
        self.sequence = self.sequence.wrapping_add(forward);
        self.acknowledgment = self.acknowledgment.wrapping_sub(reverse);
    }

    /// Undoes [`Mangle::add_edits`].
    pub fn remove_edits(&mut self, EditOffsets([forward, reverse]): EditOffsets) {
        self.sequence = self.sequence.wrapping_sub(forward);
        self.acknowledgment = self.acknowledgment.wrapping_add(reverse);
    }

    /// The edits of a packet in `direction`.
    pub(super) fn along(&self, direction: Direction) -> Numbers {
        match direction {
            Direction::Forward => Numbers {
                sequence: self.sequence,
                acknowledgment: self.acknowledgment,
                id: if self.fixed_id != 0 { Id::Set(self.ip_id) } else { Id::Add(self.ip_id) },
                label: self.label(None, self.new_label),
            },
            Direction::Reverse => Numbers {
                sequence: self.acknowledgment.wrapping_neg(),
                acknowledgment: self.sequence.wrapping_neg(),
                id: Id::Add(0),
                label: self.label(Some(self.new_label), self.old_label),
            },
        }
    }

    /// The edits that undo the translation of a packet quoted by an ICMP error. The error travels in
    /// `direction`, the packet in the opposite one. A replaced identification is lost.
    pub(super) fn undo(&self, direction: Direction) -> Numbers {
        match direction {
            Direction::Reverse => Numbers {
                sequence: self.sequence.wrapping_neg(),
                acknowledgment: self.acknowledgment.wrapping_neg(),
                id: Id::Add(if self.fixed_id != 0 { 0 } else { self.ip_id.wrapping_neg() }),
                label: self.label(Some(self.new_label), self.old_label),
            },
            Direction::Forward => Numbers {
                sequence: self.acknowledgment,
                acknowledgment: self.sequence,
                id: Id::Add(0),
                label: self.label(Some(self.old_label), self.new_label),
            },
        }
    }

    fn label(&self, only: Option<u32>, new: u32) -> Option<Label> {
        (self.old_label != self.new_label).then_some(Label { only, new })
    }
}
