//! Notes of flows: that the decision need not be read, and the next hop of the flow's packets.
//!
//! Theory of operation. All packets of a flow have the same source and destination, so that they have the
//! same next hop until routes change. A flow of IPv4 stores the number of its next hop ([`Flow::next_hop`]),
//! a flow of IPv6 a number that stands for it ([`super::hop_numbers`]). Its packets need no route lookup.
//!
//! The note of a flow ([`Flow::opaque4`]) has a stamp: a generation and the input port. A new generation
//! begins when rules, routes or local addresses change; notes of older generations are invalid. The highest
//! bit of the stamp is clear if the note also says that the decision does nothing but accept
//! ([`super::deferred`]).
//!
//! The router determines the next hop of a flow and whether it may be cached
//! ([`DecisionCache::set_next_hop`]). A packet whose flow has a cached next hop is sent as soon as it is
//! counted and translated ([`crate::Packets::forward`]).

use mmb_flow::{Flow, FlowRef, Table};

use super::DecisionCache;
use super::decisions::{DecisionFlags, Decisions};

/// In place of a next hop: no next hop can be cached.
pub(crate) const NO_HOP: u16 = u16::MAX;

/// The current generation of notes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoteStamps {
    /// Never 0, the value of flows without note; below 2^23.
    generation: u32,
}

impl NoteStamps {
    /// The first generation.
    const FIRST: u32 = 1;
    /// Bits of a generation. It is followed by the port in the lower bits, and preceded by
    /// [`NoteStamps::READ_DECISION`].
    const BITS: u32 = 23;
    /// The decision must be read, although the rest of the note is valid.
    const READ_DECISION: u32 = 1 << 31;

    pub fn new() -> NoteStamps {
        NoteStamps { generation: NoteStamps::FIRST }
    }

    /// Returns the current stamp of packets that come in by a port, of which there are at most 256.
    #[inline(always)]
    pub fn stamp(self, in_port: u16) -> u32 {
        self.generation << 8 | u32::from(in_port as u8)
    }

    /// Whether a stamp is of the current generation.
    #[inline(always)]
    pub fn is_current(self, stamp: u32) -> bool {
        stamp >> 8 & ((1 << NoteStamps::BITS) - 1) == self.generation
    }

    /// Begins a new generation. Returns `true` if generations start again from the first, so that old notes
    /// must be cleared.
    #[must_use]
    fn renew(&mut self) -> bool {
        self.generation += 1;
        let wraps = self.generation >> NoteStamps::BITS != 0;
        if wraps {
            self.generation = NoteStamps::FIRST;
        }
        wraps
    }
}

/// Whether two stamps have the same generation and port.
#[inline(always)]
fn have_same_origin(one: u32, other: u32) -> bool {
    (one ^ other) & !NoteStamps::READ_DECISION == 0
}

/// The stamps under which a packet is processed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketStamps {
    /// Stamp of decisions.
    pub decision: u32,
    /// Stamp of notes.
    pub note: u32,
    /// Notes replace reading the decision ([`Decisions::exceeds_cache`]).
    pub note_decision: bool,
}

/// Counts packets of a settled flow and their bytes by the flow's decision, and updates the flow's note.
/// Returns the decision's flags. `None`: the decision is not valid, and nothing was counted.
#[inline(always)]
pub(crate) fn count_by_decision(
    flow: &mut Flow,
    decisions: &mut Decisions,
    counts: (u32, u32),
    stamps: PacketStamps,
) -> Option<DecisionFlags> {
    let number = flow.decision();
    if !flow.is_ip4() {
        return decisions.count(number, stamps.decision, counts);
    }
    let [old, position] = flow.opaque4();
    let flags = if position == 0 {
        decisions.count(number, stamps.decision, counts)?
    } else if decisions.is_current(number, stamps.decision) {
        // The flow has deferred counters already and goes on counting alone.
        DecisionFlags::empty()
    } else {
        return None;
    };
    let is_noted = flags.is_empty() && (stamps.note_decision || position != 0);
    let new = if is_noted { stamps.note } else { stamps.note | NoteStamps::READ_DECISION };
    if old != new {
        if !have_same_origin(old, new) {
            flow.set_next_hop(0);
        }
        flow.set_opaque4([new, position]);
    }
    Some(flags)
}

/// Whether the value is the number of a next hop.
#[inline(always)]
pub(crate) fn is_next_hop(hop: u16) -> bool {
    hop.wrapping_add(1) > 1
}

impl DecisionCache {
    /// Invalidates all cached next hops, after routes or local addresses have changed.
    pub fn invalidate_next_hops(&mut self, table: &mut Table) {
        self.hop_numbers.renew();
        if self.stamps.renew() {
            clear_stamps(table);
        }
    }

    /// Caches the next hop of a flow: that of all its packets that come in by the same port, until routes
    /// change. `None`: each packet needs a lookup.
    pub fn set_next_hop(&mut self, table: &mut Table, flow: FlowRef, hop: Option<u32>) {
        if !flow.is_some() {
            return;
        }
        let hop = hop.and_then(|hop| u16::try_from(hop).ok()).filter(|hop| is_next_hop(*hop));
        let (flow, hop) = (table.flow_mut(flow), hop.unwrap_or(NO_HOP));
        let number = if flow.is_ip4() { hop } else { self.hop_numbers.number_of(hop).unwrap_or(0) };
        flow.set_next_hop(number);
    }

    /// Returns the cached next hop of a flow whose decision is current; 0 if it has none. `IP6`: the flow may
    /// be IPv6.
    #[inline(always)]
    pub fn next_hop<const IP6: bool>(&self, flow: &Flow) -> u16 {
        if !IP6 || flow.is_ip4() { flow.next_hop() } else { self.hop_numbers.get(flow.next_hop()) }
    }

    /// Notes the position of a packet if its flow has no next hop (`hop` is 0) and can get one. `IP6`: the
    /// flow may be IPv6.
    #[inline(always)]
    pub fn note_miss<const IP6: bool>(&mut self, (at, hop): (usize, u16), flow: &Flow) {
        if hop == 0 && (!IP6 || flow.is_ip4() || self.hop_numbers.has_room()) {
            self.next_hop_misses.push(at);
        }
    }
}

/// Clears the stamps of all flows: an old stamp must not become current again.
#[cold]
fn clear_stamps(table: &mut Table) {
    let mut next = 0;
    while let Some(id) = table.next_session(next) {
        for flow in table.parts_mut(id).0 {
            let [_, position] = flow.opaque4();
            flow.set_opaque4([0, position]);
        }
        next = id.0 + 1;
    }
}

#[cfg(test)]
mod tests;
