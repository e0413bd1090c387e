//! What a session replaces in its packets besides addresses and ports.

use bytemuck::{Pod, Zeroable};

use crate::Direction;

/// What a session replaces in its packets besides addresses and ports. The default replaces nothing. 20 bytes, in native
/// byte order, for the session's scratchpad.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Mangle {
    /// Added to the sequence numbers of forward TCP segments; taken off the acknowledgment numbers and the edges of SACK
    /// blocks of reverse ones. Wraps.
    pub sequence: u32,
    /// Added to the acknowledgment numbers and the edges of SACK blocks of forward TCP segments; taken off the sequence
    /// numbers of reverse ones. Wraps.
    pub acknowledgment: u32,
    /// IPv6 flow label that the forward packets came in with: 20 bits.
    pub old_label: u32,
    /// The one that forward packets get; in reverse packets that carry it, `old_label` is put back. If they are equal,
    /// labels stay as they are.
    pub new_label: u32,
    /// Added to the identification of forward IPv4 packets (wraps), or their new identification.
    pub ip_id: u16,
    /// 1 if `ip_id` is the new identification, 0 if it is added.
    pub fixed_id: u8,
    /// Always zero.
    pub zero: u8,
}

const _: () = assert!(size_of::<Mangle>() == 20);

/// What happens to an IPv4 identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Add(u16),
    Set(u16),
}

/// What happens to a flow label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// The only label that is replaced, if not all are.
    pub only: Option<u32>,
    /// What by.
    pub new: u32,
}

/// A [`Mangle`] applied to one direction, or undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Added to the sequence number.
    pub sequence: u32,
    /// Added to the acknowledgment number and SACK blocks.
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
    /// What becomes of a packet that travels in `direction`.
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

    /// What becomes of a packet that has been translated and comes back in an ICMP error, which travels in `direction`;
    /// the packet went in the other one. An identification that was replaced is lost.
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
