//! What halves note down of themselves: that their decision needs no look, and the next hop of their packets.
//!
//! Theory of operation. A direction's packets have one source and one destination, in whatever way it translates them, so that routing
//! says the same of each of them until routes change. An IPv4 half therefore keeps the number of its next hop ([`Flow::next_hop`]), and
//! its packets need not be looked up again. A half's notes ([`Flow::opaque4`]) are stamped with their generation and the port that its
//! packets came in by: another generation begins when rules, routes or the machine's addresses change, and what was noted under an older
//! one is worth nothing. The stamp says whether the decision was noted as well, as one that does nothing but to accept ([`crate::owed`]).
//!
//! Whoever routes packets says what the next hop is, and whether it may be kept ([`Sessions::set_next_hop`]); a packet whose half knows it is
//! sent on as soon as it is counted and translated, while it is at hand ([`crate::Packets::forward`]).

use mmb_flow::Flow;

use crate::decisions::Decisions;
use crate::engine::Sessions;
use crate::gist::Gist;

/// In the place of a next hop: there is none that could be kept.
const NO_HOP: u16 = u16::MAX;

/// Which notes are worth something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notes {
    /// Never 0, as what was never noted has it; below 2^23.
    generation: u32,
}

impl Notes {
    /// The first generation.
    const FIRST: u32 = 1;
    /// Bits of a generation, between those of a port and one more.
    const BITS: u32 = 23;
    /// The decision is to be looked at and counted with, whatever else was noted.
    const UNDECIDED: u32 = 1 << 31;

    pub fn new() -> Notes {
        Notes { generation: Notes::FIRST }
    }

    /// What is noted at present of packets that come in by a port, of which there are less than 256.
    #[inline(always)]
    pub fn stamp(self, in_port: u16) -> u32 {
        self.generation << 8 | u32::from(in_port as u8)
    }

    /// Whether a note is of the present generation.
    #[inline(always)]
    pub fn are_current(self, note: u32) -> bool {
        note >> 8 & ((1 << Notes::BITS) - 1) == self.generation
    }

    /// Begins another generation. True: they begin anew, so that old notes have to be forgotten.
    #[must_use]
    fn renew(&mut self) -> bool {
        self.generation += 1;
        let over = self.generation >> Notes::BITS != 0;
        if over {
            self.generation = Notes::FIRST;
        }
        over
    }
}

/// Whether two stamps say the same but for the decision.
#[inline(always)]
fn are_alike(one: u32, other: u32) -> bool {
    (one ^ other) & !Notes::UNDECIDED == 0
}

/// Counts a packet of a settled half whose notes do not say all, and brings them up to date. `stamp`: what decisions are made under;
/// `note`: what is noted at present; `keeps`: whether decisions are worth a note. Answers what the decision says; `None`: it is not
/// up to date, and nothing was counted.
#[inline(always)]
pub(crate) fn look(
    half: &mut Flow,
    decisions: &mut Decisions,
    gist: &Gist,
    (stamp, note, keeps): (u32, u32, bool),
) -> Option<u64> {
    let number = half.decision();
    if !half.is_ip4() {
        return decisions.count(number, stamp, gist.bytes);
    }
    let [old, place] = half.opaque4();
    let says = if place == 0 {
        decisions.count(number, stamp, gist.bytes)?
    } else if decisions.is_current(number, stamp) {
        // It owes what it counts, and goes on with that.
        0
    } else {
        return None;
    };
    let new = if says != 0 || !(keeps || place != 0) { note | Notes::UNDECIDED } else { note };
    if old != new {
        if !are_alike(old, new) {
            half.set_next_hop(0);
        }
        half.set_opaque4([new, place]);
    }
    Some(says)
}

/// Whether that is the number of a next hop.
#[inline(always)]
pub(crate) fn is_hop(hop: u16) -> bool {
    hop.wrapping_add(1) > 1
}

impl Sessions {
    /// Routes are others now, or the machine's addresses.
    pub fn routes_changed(&mut self) {
        if self.notes.renew() {
            self.forget_notes();
        }
    }

    /// Notes of an older generation must not look like what will be current.
    #[cold]
    fn forget_notes(&mut self) {
        let mut next = 0;
        while let Some(id) = self.table.next_session(next) {
            for half in self.table.parts_mut(id).0 {
                let [_, place] = half.opaque4();
                half.set_opaque4([0, place]);
            }
            next = id.0 + 1;
        }
    }

    /// The positions of those packets of the vector that was looked up last whose halves could keep a next hop and have none: of each
    /// [`Sessions::set_next_hop`] is to be told. Only where packets can be sent on.
    pub fn next_hop_misses(&self) -> &[u8] {
        self.next_hop_misses.get()
    }

    /// Has the half of such a packet keep its next hop: that of all packets of its flow that come in by that port, as long as routes do not
    /// change; or, if each has to be looked up anew, none.
    pub fn set_next_hop(&mut self, at: usize, hop: Option<u32>) {
        let Some(&found) = self.lookups.results().get(at) else { return };
        let hop = hop.and_then(|hop| u16::try_from(hop).ok()).filter(|hop| is_hop(*hop));
        if found.is_some() {
            self.table.flow_mut(found).set_next_hop(hop.unwrap_or(NO_HOP));
        }
    }
}

#[cfg(test)]
mod tests {
    use mmb_flow::{Direction, FlowRef, Key, Table};
    use mmb_packet::Kind;

    use super::*;
    use crate::Rules;

    const GIST: Gist = Gist { ack: 0, bytes: 100, in_port: 3, says: 0, l4: 0 };

    #[test]
    fn a_stamp_is_a_generation_and_a_port() {
        let mut notes = Notes::new();
        let old = notes.stamp(3);
        assert!(notes.are_current(old) && notes.are_current(old | Notes::UNDECIDED));
        assert!(!notes.are_current(0), "nothing was noted");
        assert!(are_alike(old, old | Notes::UNDECIDED) && !are_alike(old, notes.stamp(4)));
        assert!(!notes.renew());
        assert!(!notes.are_current(old) && !are_alike(old, notes.stamp(3)));
        notes.generation = (1 << Notes::BITS) - 1;
        assert!(notes.are_current(notes.stamp(255)));
        assert!(notes.renew(), "those that are left have to be forgotten");
        assert_eq!(notes.stamp(3), old);
    }

    /// A half of a session with one rule's decision, of that version of IP.
    fn scene(kind: u8) -> (Table, Decisions, Rules, FlowRef) {
        let mut table = Table::new(8, 0, 1).expect("memory");
        let (mut decisions, rules) = (Decisions::new(), Rules::default());
        let key = Key { source_port: [1, 1], destination_port: [2, 2], kind, proto: 6, ..Key::default() };
        let id = table.insert(&key, &key.reversed(), 0).expect("room");
        let found = FlowRef::new(id, Direction::Forward);
        table.flow_mut(found).set_decision(decisions.take(&rules.policy, decisions.stamp(3), &[0]));
        (table, decisions, rules, found)
    }

    #[test]
    fn a_next_hop_lasts_as_long_as_its_stamp() {
        let (mut table, mut decisions, _, found) = scene(Kind::IP4 | Kind::TCP);
        let (half, stamp) = (table.flow_mut(found), decisions.stamp(3));
        for keeps in [false, true] {
            half.set_opaque4([0, 0]);
            for (note, hop) in [(0x103, 0), (0x103, 7), (0x103, 7), (0x203, 0), (0x203, 7), (0x204, 0)] {
                assert_eq!(look(half, &mut decisions, &GIST, (stamp, note, keeps)), Some(0));
                assert_eq!(half.next_hop(), hop);
                half.set_next_hop(7);
            }
        }
        assert_eq!(look(half, &mut decisions, &GIST, (stamp + 1, 0x303, true)), None, "no decision");
    }

    /// Whoever owes goes on to owe under other routes, and nothing is counted twice.
    #[test]
    fn what_is_owed_is_owed_whatever_routes_say() {
        let (mut table, mut decisions, rules, found) = scene(Kind::IP4 | Kind::TCP);
        let (mut owed, stamp) = (crate::owed::Owed::new(), decisions.stamp(3));
        let half = table.flow_mut(found);
        assert_eq!(look(half, &mut decisions, &GIST, (stamp, 0x103, true)), Some(0));
        half.count(1, 100);
        owed.owe(found, half);
        half.count(1, 100);
        for note in [0x203, 0x303] {
            assert_eq!(look(half, &mut decisions, &GIST, (stamp, note, false)), Some(0));
            half.count(1, 100);
            assert_eq!(half.opaque4()[0], note, "which is worth a note still");
        }
        owed.settle(half, &decisions, &rules);
        decisions.flush(&rules, 9);
        assert_eq!(rules.counts(0), (4, 400));
    }

    #[test]
    fn ip6_has_no_room_for_notes() {
        let (mut table, mut decisions, _, found) = scene(Kind::IP6 | Kind::TCP);
        let (half, stamp) = (table.flow_mut(found), decisions.stamp(3));
        let key = half.key();
        assert_eq!(look(half, &mut decisions, &GIST, (stamp, 0x103, true)), Some(0));
        assert_eq!((half.key(), half.next_hop()), (key, 0));
    }
}
