//! The elements that a change of sets has added or removed.
//!
//! Theory of operation. Rules compare addresses and ports of packets with sets, and nothing else. A session
//! whose addresses and ports are in none of the elements that came or went matches the same rules as before
//! the change. So only the others are judged anew.

use mmb_flow::Key;
use mmb_lang::SetElement;

/// Elements that were added to sets to which rules refer, or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementChange {
    /// Bits of the field, and the first and the last value of each element; of pairs, those of the address.
    /// Behind [`ElementChange::merge`],
    /// in ascending order and without overlap.
    ranges: Vec<(u8, u128, u128)>,
    /// There were more than [`ElementChange::MOST`].
    is_unbounded: bool,
}

impl ElementChange {
    /// Most elements that are noted. A larger change concerns all sessions.
    pub const MOST: usize = 4096;

    pub(super) fn note(&mut self, element: &SetElement) {
        self.is_unbounded |= self.ranges.len() == ElementChange::MOST;
        if !self.is_unbounded {
            let (first, last) = element.bounds();
            self.ranges.push((element.width(), first, last));
        }
    }

    /// Prepares the change for [`ElementChange::concerns`]. None: it concerns all sessions.
    pub(super) fn merge(mut self) -> Option<ElementChange> {
        if self.is_unbounded {
            return None;
        }
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|(width, first, last), (before, _, end)| {
            let overlaps = width == before && *first <= *end;
            *end = if overlaps { (*end).max(*last) } else { *end };
            overlaps
        });
        Some(self)
    }

    fn has(&self, width: u8, value: u128) -> bool {
        let behind = self.ranges.partition_point(|&(bits, first, _)| (bits, first) <= (width, value));
        let before = behind.checked_sub(1).and_then(|at| self.ranges.get(at));
        before.is_some_and(|&(bits, _, last)| bits == width && value <= last)
    }

    /// Whether rules may decide otherwise about packets with this key since the change.
    pub fn concerns(&self, key: &Key) -> bool {
        let ports = [key.source_port, key.destination_port].map(u16::from_be_bytes);
        [key.source, key.destination].iter().any(|address| match key.is_ip4() {
            true => self.has(32, u128::from_be_bytes(*address) >> 96),
            false => self.has(128, u128::from_be_bytes(*address)),
        }) || ports.iter().any(|&port| self.has(16, port.into()))
    }
}
