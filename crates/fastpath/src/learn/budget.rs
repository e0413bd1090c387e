//! How many flows a worker may sample and install.
//!
//! # Theory of operation
//! A flow must be learned, installed, counted and removed, which takes about as long as the engine needs for
//! a packet. A packet in the kernel saves less than that: the engine receives and sends many at once, while
//! the kernel wakes their receiver for each. So a flow is worth its cost when the kernel has forwarded
//! [`COST`] packets of it. This was measured with short connections over veth: with 3.4 packets a flow on
//! average, they are slower than in the engine; with 5.9, as fast or faster.
//!
//! Every millisecond adds a small base budget, and each packet beyond the cost of its flow earns budget for
//! another flow. Where flows are many and of some packets each, as with web browsers, each is sampled from
//! its first packet on. Where most are shorter, down to one packet (floods, scans), little is earned, and
//! learning costs next to nothing. A part of the base budget is reserved for flows of which several packets
//! were seen, so that long flows get their turn whatever else arrives. A connection that was first seen in
//! its middle is sampled only if it has many packets: it may end soon.
//!
//! Packets that open connections have a budget of their own, which grows with the connections that are
//! answered. A flood of unanswered packets empties only this budget. Then the next packets of other
//! connections are sampled instead of their first ones.

/// Base budget of a second, in flows.
const PER_SECOND: u32 = 1000;
/// Highest base budget.
const BASE_MAX: u32 = 32;
/// Part of the base budget that is reserved for flows with several packets.
const RESERVE: u32 = 16;
/// Highest earned budget: what a second of short connections takes, or some milliseconds of one processor.
const EARNED_MAX: u32 = 8192;
/// What an answered connection adds to the budget for opening packets.
const PER_ANSWER: u32 = 2;
/// Packets that the kernel must forward for a flow to be worth its cost.
const COST: u64 = 4;
/// What one flow earns at most.
const FLOW_MAX: u64 = 8;

/// The budget of a worker, in flows.
#[derive(Default)]
pub(crate) struct LearningBudget {
    base: u32,
    earned: u32,
    opening: u32,
    refilled: u32,
}

impl LearningBudget {
    /// Adds the base budget of the time that has passed. `now` is in milliseconds.
    pub fn refill(&mut self, now: u32) {
        let more = now.wrapping_sub(self.refilled).min(1000) * PER_SECOND / 1000;
        if more > 0 {
            (self.base, self.refilled) = ((self.base + more).min(BASE_MAX), now);
            self.opening = self.opening.max((self.opening + more).min(BASE_MAX));
        }
    }

    /// What a flow has earned in total after the kernel has forwarded so many packets.
    pub fn earnings(packets: u64) -> u32 {
        packets.saturating_sub(COST).min(FLOW_MAX) as u32
    }

    /// Adds earned budget.
    pub fn earn(&mut self, more: u32) {
        self.earned = (self.earned + more).min(EARNED_MAX);
    }

    /// Whether flows without a history may be sampled.
    #[inline]
    pub fn is_ample(&self) -> bool {
        self.earned > 0 || self.base > RESERVE
    }

    /// Adds budget for opening packets: a connection was answered that was sampled when it opened.
    pub fn count_answer(&mut self) {
        self.opening = (self.opening + PER_ANSWER).min(EARNED_MAX);
    }

    /// Takes the cost of sampling an opening packet, if it is available.
    pub fn try_spend_opening(&mut self) -> bool {
        let is_available = self.opening > 0;
        self.opening -= u32::from(is_available);
        is_available
    }

    /// Whether any budget is left.
    #[inline]
    pub fn is_available(&self) -> bool {
        self.earned > 0 || self.base > 0
    }

    /// Takes the cost of a flow, if it is available. `is_frequent`: the flow has several packets.
    pub fn try_spend(&mut self, is_frequent: bool) -> bool {
        let may_spend = if is_frequent { self.is_available() } else { self.is_ample() };
        if may_spend {
            let source = if self.earned > 0 { &mut self.earned } else { &mut self.base };
            *source -= 1;
        }
        may_spend
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(budget: &mut LearningBudget, is_frequent: bool) -> usize {
        (0..100_000).take_while(|_| budget.try_spend(is_frequent)).count()
    }

    #[test]
    fn the_base_budget_reserves_a_part_for_frequent_flows() {
        let mut budget = LearningBudget::default();
        assert!(!budget.is_ample() && !budget.try_spend(true));
        budget.refill(5000);
        assert_eq!(spent(&mut budget, false), (BASE_MAX - RESERVE) as usize);
        assert!(!budget.is_ample());
        assert_eq!(spent(&mut budget, true), RESERVE as usize);
        // Flows with one packet do not get what is reserved for the others.
        let (mut one, mut several) = (0, 0);
        for now in 5001..6001 {
            budget.refill(now);
            several += spent(&mut budget, true);
            one += spent(&mut budget, false);
        }
        assert_eq!((one, several), (0, PER_SECOND as usize));
    }

    #[test]
    fn answered_connections_add_budget_for_opening_packets() {
        let mut budget = LearningBudget::default();
        let opened =
            |budget: &mut LearningBudget| (0..100_000).take_while(|_| budget.try_spend_opening()).count();
        assert_eq!(opened(&mut budget), 0);
        budget.refill(5000);
        assert_eq!(opened(&mut budget), BASE_MAX as usize);
        assert!(budget.is_ample(), "the other budget is untouched");
        (0..10).for_each(|_| budget.count_answer());
        assert_eq!(opened(&mut budget), 10 * PER_ANSWER as usize);
        (0..10_000).for_each(|_| budget.count_answer());
        budget.refill(6000);
        assert_eq!(opened(&mut budget), EARNED_MAX as usize, "a refill takes nothing away");
    }

    #[test]
    fn forwarded_packets_pay_for_further_learning() {
        let mut budget = LearningBudget::default();
        assert_eq!([0, 1, 4, 5, 12, 1 << 40].map(LearningBudget::earnings), [0, 0, 0, 1, 8, 8]);
        budget.earn(LearningBudget::earnings(9));
        assert!(budget.is_ample());
        assert_eq!(spent(&mut budget, false), 5);
        (0..10_000).for_each(|_| budget.earn(8));
        assert_eq!(spent(&mut budget, false), EARNED_MAX as usize);
    }
}
