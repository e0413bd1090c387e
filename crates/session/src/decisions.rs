//! Decisions that are kept for the directions of sessions: what the rules that do not look at each packet say.
//!
//! Theory of operation. A direction's decision is the list of its session's rules and of the rules that match all of its
//! packets, and what they say together. Directions with the same list share one decision. It is made under one
//! *stamp*: the generation of the rules (they may change) and the input port (a direction's packets may come in by
//! another one); a packet under another stamp has it made anew. What the packet path needs of a decision, and what it
//! counts there, is 16 bytes; the counts are given to the rules later, decision by decision, since a decision stands for
//! many packets, and often for many rules.
//!
//! Number 0 is no decision: it is never up to date.

use std::collections::VecDeque;

use mmb_packet::prefetch;
use mmb_policy::{Decision, Policy};

use crate::Environment;
use crate::lists::{Again, EMPTY, Lists};

/// Numbers of decisions fit in the 24 bits that a direction has for them.
const MOST: u32 = 1 << 24;

/// More decisions than this are out of the near caches; few in builds with assertions, so that tests come by there.
const MANY: usize = if cfg!(debug_assertions) { 4 } else { 4096 };
/// More than this are out of the nearest one.
const SOME: usize = if cfg!(debug_assertions) { 2 } else { 128 };
/// To spare a look at those costs more than it gains where each stands for more sessions than this.
const SHARED: usize = 4;
/// In place of a slot: not one rule.
const SEVERAL: u32 = u32::MAX;
/// How many counts the caches are told of before they are given to the rules.
const AHEAD: usize = 32;

/// What a decision comes down to, in the upper byte of [`Short::bytes`].
pub(crate) mod says {
    /// Edits of rules are to be made.
    pub const EDIT: u64 = 1 << 56;
    /// The packet is dropped.
    pub const DROP: u64 = 1 << 57;
    /// Chance has a say.
    pub const CHANCE: u64 = 1 << 58;
    /// Any of them.
    pub const ANY: u64 = 0xff << 56;
}

/// What the packet path reads and writes of a decision.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Short {
    /// What it was made under; 0: nothing.
    stamp: u32,
    /// Packets since they were last given to the rules.
    packets: u32,
    /// Their bytes in the lower 56 bits, bits of [`says`] above.
    bytes: u64,
}

/// All decisions of a worker.
#[derive(Debug)]
pub(crate) struct Decisions {
    lists: Lists,
    shorts: Vec<Short>,
    full: Vec<Decision>,
    /// The slot of decisions of one rule, which most are, to be counted without a look at the rest; [`SEVERAL`]: others.
    only: Vec<u32>,
    /// Generation of the rules, from [`Decisions::FIRST`].
    epoch: u16,
    /// Decisions that have counted something, in the order of their first packet.
    counted: VecDeque<u32>,
}

impl Decisions {
    /// The first generation.
    pub const FIRST: u16 = 1;

    pub fn new() -> Decisions {
        Decisions {
            lists: Lists::new(MOST),
            shorts: vec![Short::default()],
            full: vec![Decision::default()],
            only: vec![SEVERAL],
            epoch: Decisions::FIRST,
            counted: VecDeque::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether they are so many, for so many sessions, that it is better to do without a look at them.
    #[inline]
    pub fn are_far(&self, sessions: usize) -> bool {
        let n = self.shorts.len();
        n > MANY || (n > SOME && sessions <= n * SHARED)
    }

    /// What decisions are made under at present.
    #[inline(always)]
    pub fn stamp(&self, in_port: u16) -> u32 {
        u32::from(self.epoch) << 16 | u32::from(in_port)
    }

    /// The generation of rules that decisions are made under at present.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Makes all decisions out of date.
    pub fn renew(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            // What is left of the first generations must not look like what is made from now on.
            self.epoch = Decisions::FIRST;
            self.shorts.iter_mut().for_each(|short| short.stamp = 0);
        }
    }

    /// Asks for the memory that [`Decisions::count`] looks at.
    #[inline(always)]
    pub fn prefetch(&self, number: u32) {
        if let Some(short) = self.shorts.get(number as usize) {
            prefetch::read(short);
        }
    }

    /// Whether a decision was made under this stamp.
    #[inline(always)]
    pub fn is_current(&self, number: u32, stamp: u32) -> bool {
        self.shorts.get(number as usize).is_some_and(|short| short.stamp == stamp)
    }

    /// Counts a packet of `bytes` bytes and returns bits of [`says`]. None: the decision is not up to date, and nothing
    /// was counted.
    #[inline(always)]
    pub fn count(&mut self, number: u32, stamp: u32, bytes: u32) -> Option<u64> {
        let short = self.shorts.get_mut(number as usize).filter(|short| short.stamp == stamp)?;
        short.packets += 1;
        short.bytes += u64::from(bytes);
        if short.packets == 1 {
            self.counted.push_back(number);
        }
        Some(short.bytes & says::ANY)
    }

    /// Bits of [`says`] of a decision.
    pub fn says(&self, number: u32) -> u64 {
        self.shorts.get(number as usize).map_or(0, |short| short.bytes & says::ANY)
    }

    /// The decision in full.
    pub fn full(&self, number: u32) -> Option<&Decision> {
        self.full.get(number as usize)
    }

    /// The number of the decision that the rules in `slots`, ascending and each once, make; 0 if all are in use. The
    /// caller has it until [`Decisions::give_back`].
    pub fn take(&mut self, policy: &Policy, stamp: u32, slots: &[u32]) -> u32 {
        let Some(taken) = self.lists.take(stamp, slots) else { return EMPTY };
        if taken.new {
            let decision = policy.decision(slots.iter().copied());
            let mut bytes = match decision.verdict() {
                Some(true) => says::DROP,
                Some(false) => 0,
                None => says::CHANCE,
            };
            if !decision.edits().is_empty() {
                bytes |= says::EDIT;
            }
            let at = taken.number as usize;
            if at >= self.shorts.len() {
                self.shorts.resize(at + 1, Short::default());
                self.full.resize_with(at + 1, Decision::default);
                self.only.resize(at + 1, SEVERAL);
            }
            self.only[at] = if let &[slot] = slots { slot } else { SEVERAL };
            self.shorts[at] = Short { stamp, packets: 0, bytes };
            self.full[at] = decision;
        }
        taken.number
    }

    /// What a decision that the caller has can be taken by once more, without a look at its rules: as [`Lists::again`].
    pub fn again(&self, number: u32) -> Again {
        self.lists.again(number)
    }

    /// As [`Lists::take_again`].
    #[inline]
    pub fn take_again(&mut self, again: Again) -> Option<u32> {
        self.lists.take_again(again)
    }

    /// Gives a number back, once for each time that it was taken.
    pub fn give_back(&mut self, number: u32, host: &impl Environment) {
        if number == EMPTY {
            return;
        }
        // The last one to leave counts what is left.
        if self.lists.refs(number) == 1 {
            self.pay(number, host);
        }
        self.lists.give_back(number);
    }

    /// Gives what at most `most` decisions have counted to the rules. True: there is more.
    pub fn flush(&mut self, host: &impl Environment, most: usize) -> bool {
        for &number in self.counted.iter().take(most.min(AHEAD)) {
            self.prefetch(number);
            self.prefetch_only(number);
        }
        for _ in 0..most {
            let Some(number) = self.counted.pop_front() else { return false };
            self.pay(number, host);
        }
        !self.counted.is_empty()
    }

    /// Whether there is anything to give to the rules.
    pub fn owes(&self) -> bool {
        !self.counted.is_empty()
    }

    /// Gives counts to the rules of a decision.
    #[inline]
    pub fn credit(&self, number: u32, packets: u64, bytes: u64, host: &impl Environment) {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        match self.only.get(number as usize) {
            Some(&slot) if slot != SEVERAL => host.count(slot, packets, bytes),
            _ => {
                let slots = self.full.get(number as usize).map_or(&[][..], Decision::slots);
                slots.iter().for_each(|&slot| host.count(slot, packets, bytes));
            }
        }
    }

    /// Asks for the counters that [`Decisions::credit`] gives to, if it is one rule's.
    #[inline]
    pub fn prefetch_credit(&self, number: u32, host: &impl Environment) {
        if let Some(&slot) = self.only.get(number as usize) {
            host.prefetch_count(slot);
        }
    }

    /// Asks for what says which rule's.
    #[inline]
    pub fn prefetch_only(&self, number: u32) {
        if let Some(slot) = self.only.get(number as usize) {
            prefetch::read(slot);
        }
    }

    fn pay(&mut self, number: u32, host: &impl Environment) {
        let Some(short) = self.shorts.get_mut(number as usize) else { return };
        let (packets, bytes) = (std::mem::take(&mut short.packets), short.bytes & !says::ANY);
        short.bytes &= says::ANY;
        if packets == 0 {
            return;
        }
        self.credit(number, packets.into(), bytes, host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    /// Generations are counted in 16 bits; what is left of one that has the same number is not taken for it.
    #[test]
    fn generations_come_round() {
        let (mut decisions, rules) = (Decisions::new(), Rules::default());
        let stamp = decisions.stamp(7);
        let number = decisions.take(&rules.policy, stamp, &[3]);
        assert!(
            decisions.is_current(number, decisions.stamp(7))
                && !decisions.is_current(number, decisions.stamp(8))
        );
        for _ in 0..2 * 65_536 {
            decisions.renew();
            assert!(!decisions.is_current(number, decisions.stamp(7)));
            assert!(!decisions.is_current(EMPTY, decisions.stamp(0)), "no decision");
        }
        decisions.give_back(number, &rules);
        assert_eq!(decisions.len(), 0);
    }

    /// Counts are given to the rules once, by whatever comes first: a flush, or the end of the last session.
    #[test]
    fn counts_arrive_once() {
        let (mut decisions, rules) = (Decisions::new(), Rules::default());
        let stamp = decisions.stamp(0);
        let numbers = [&[3][..], &[3, 5]].map(|slots| decisions.take(&rules.policy, stamp, slots));
        for number in numbers {
            (0..3).for_each(|_| assert_eq!(decisions.count(number, stamp, 100), Some(0)));
        }
        assert!(decisions.owes() && decisions.flush(&rules, 1), "one is left");
        assert_eq!(rules.counts(3), (3, 300));
        decisions.give_back(numbers[1], &rules);
        assert!(!decisions.flush(&rules, 10) && !decisions.owes());
        // The policy has no such rules, and so the second decision, which asks it, stands for none.
        assert_eq!((rules.counts(3), rules.counts(5)), ((3, 300), (0, 0)));
        assert_eq!(decisions.count(numbers[0], stamp + 1, 100), None);
    }
}
