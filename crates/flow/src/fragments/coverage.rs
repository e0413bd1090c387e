//! Which parts of a datagram have come, in bounded memory.
//!
//! Theory of operation. The parts are disjoint, so the datagram is complete when their lengths sum up to its
//! own. Adjacent parts are merged when there is no room for another one. Until then, an exact duplicate can
//! be told from an overlap. A merged part is no fragment that has come: a fragment of the same extent is an
//! overlap, since its bytes may differ from those of the fragments that were merged. A datagram whose parts
//! come in so wild an order that merging makes no room is treated as one with an overlap.

use super::datagram::Extent;

/// Maximum number of parts.
const PARTS: usize = 16;

/// What a fragment adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addition {
    /// A part that was missing.
    Part,
    /// The last part that was missing.
    Complete,
    /// Nothing: an exact duplicate.
    Duplicate,
    /// Nothing: it overlaps another part, or contradicts the length of the datagram.
    Overlap,
}

/// Blocks that have come, of one fragment or of several adjacent ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    start: u16,
    end: u16,
    is_merged: bool,
}

/// The parts of a datagram that have come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coverage {
    /// In no order.
    parts: [Part; PARTS],
    len: u8,
    /// Sum of the parts' lengths.
    covered: u16,
    /// End of the datagram, once it is known; otherwise 0.
    total: u16,
}

impl Coverage {
    /// Adds the part of a fragment. Anything but a part that was missing changes nothing.
    pub fn add(&mut self, Extent { start, end, is_last }: Extent) -> Addition {
        let known_total = self.total;
        let parts = &self.parts[..usize::from(self.len)];
        let part = Part { start, end, is_merged: false };
        if parts.contains(&part) {
            let is_same = is_last == (known_total == end);
            return if is_same { Addition::Duplicate } else { Addition::Overlap };
        }
        let overlaps = parts.iter().any(|part| start < part.end && part.start < end);
        let exceeds = known_total != 0 && (is_last || end > known_total);
        let falls_short = is_last && parts.iter().any(|part| part.end > end);
        if overlaps || exceeds || falls_short || !self.make_room() {
            return Addition::Overlap;
        }
        self.parts[usize::from(self.len)] = part;
        self.len += 1;
        self.covered += end - start;
        if is_last {
            self.total = end;
        }
        if self.covered == self.total { Addition::Complete } else { Addition::Part }
    }

    /// Merges adjacent parts if there is no room. Returns whether there is room.
    fn make_room(&mut self) -> bool {
        if usize::from(self.len) < PARTS {
            return true;
        }
        self.parts.sort_unstable();
        let mut last = 0;
        for at in 1..PARTS {
            let part = self.parts[at];
            if self.parts[last].end == part.start {
                self.parts[last].end = part.end;
                self.parts[last].is_merged = true;
            } else {
                last += 1;
                self.parts[last] = part;
            }
        }
        self.len = last as u8 + 1;
        usize::from(self.len) < PARTS
    }
}

#[cfg(test)]
mod tests;
