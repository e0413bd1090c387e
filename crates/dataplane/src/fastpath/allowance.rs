//! How many flows a worker may watch and give to the kernel.
//!
//! Theory of operation. Each costs about what two packets cost, and saves as much for each packet that the kernel then sends on. So
//! there is a little for everybody, every millisecond; and flows that were worth it earn what the next ones may cost. Where flows are
//! short and many, as of web browsers, each is watched from its first packet on. Where most have one packet and no more (floods,
//! scans), little is earned, and what is left costs next to nothing. Of what is for everybody, a part is kept for flows of which more than
//! one packet has been seen, so that long ones get their turn whatever else comes. And nothing is given for a connection that is
//! in its middle, unless there is much of it: it may be over soon, and then it was for nothing.
//!
//! What opens connections is paid for out of a purse of its own, which fills with those that are answered: a flood
//! of what nobody answers empties that, and costs other connections only that their next packets are watched instead.

/// Flows in a second for which nothing has to be earned.
const PER_SECOND: u32 = 1000;
/// … and at once.
const AT_ONCE: u32 = 32;
/// Of these, what is left for flows with several packets.
const RESERVE: u32 = 16;
/// What can be saved up: what a second of short connections takes, or a few milliseconds of one processor.
const MOST: u32 = 8192;
/// What each connection that is answered gives for the next ones to be watched as they are opened.
const FOR_AN_ANSWER: u32 = 2;
/// What a flow earns at most, however long it is.
const MOST_OF_ONE: u64 = 8;

pub(super) struct Allowance {
    base: u32,
    earned: u32,
    opening: u32,
    since: u32,
}

impl Allowance {
    pub fn new() -> Allowance {
        Allowance { base: 0, earned: 0, opening: 0, since: 0 }
    }

    /// Time goes by.
    pub fn refill(&mut self, now: u32) {
        let more = now.wrapping_sub(self.since).min(1000) * PER_SECOND / 1000;
        if more > 0 {
            (self.base, self.since) = ((self.base + more).min(AT_ONCE), now);
            self.opening = self.opening.max((self.opening + more).min(AT_ONCE));
        }
    }

    /// What a flow has earned of which the kernel has sent on so many packets.
    pub fn worth(packets: u64) -> u32 {
        if packets < 2 { 0 } else { packets.min(MOST_OF_ONE) as u32 }
    }

    pub fn earn(&mut self, more: u32) {
        self.earned = (self.earned + more).min(MOST);
    }

    /// Whether flows may be watched of which nothing is known.
    #[inline]
    pub fn is_ample(&self) -> bool {
        self.earned > 0 || self.base > RESERVE
    }

    /// A connection was answered that had been watched from its opening on.
    pub fn answered(&mut self) {
        self.opening = (self.opening + FOR_AN_ANSWER).min(MOST);
    }

    /// Takes what it costs to watch what opens a connection.
    pub fn spend_opening(&mut self) -> bool {
        let may = self.opening > 0;
        self.opening -= u32::from(may);
        may
    }

    /// Whether there is anything left.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.earned > 0 || self.base > 0
    }

    /// Takes what a flow costs; `often`: there have been several packets of it.
    pub fn spend(&mut self, often: bool) -> bool {
        let may = if often { self.is_some() } else { self.is_ample() };
        if may {
            let from = if self.earned > 0 { &mut self.earned } else { &mut self.base };
            *from -= 1;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(allowance: &mut Allowance, often: bool) -> usize {
        (0..100_000).take_while(|_| allowance.spend(often)).count()
    }

    #[test]
    fn there_is_a_little_for_everybody() {
        let mut allowance = Allowance::new();
        assert!(!allowance.is_ample() && !allowance.spend(true));
        allowance.refill(5000);
        assert_eq!(spent(&mut allowance, false), (AT_ONCE - RESERVE) as usize);
        assert!(!allowance.is_ample());
        assert_eq!(spent(&mut allowance, true), RESERVE as usize);
        // Whoever comes with one packet does not get what the others are to have.
        let (mut one, mut several) = (0, 0);
        for now in 5001..6001 {
            allowance.refill(now);
            several += spent(&mut allowance, true);
            one += spent(&mut allowance, false);
        }
        assert_eq!((one, several), (0, PER_SECOND as usize));
    }

    #[test]
    fn what_is_answered_pays_for_what_opens() {
        let mut allowance = Allowance::new();
        let opened =
            |allowance: &mut Allowance| (0..100_000).take_while(|_| allowance.spend_opening()).count();
        assert_eq!(opened(&mut allowance), 0);
        allowance.refill(5000);
        assert_eq!(opened(&mut allowance), AT_ONCE as usize);
        assert!(allowance.is_ample(), "it costs nobody else");
        (0..10).for_each(|_| allowance.answered());
        assert_eq!(opened(&mut allowance), 10 * FOR_AN_ANSWER as usize);
        (0..10_000).for_each(|_| allowance.answered());
        allowance.refill(6000);
        assert_eq!(opened(&mut allowance), MOST as usize, "time takes nothing away");
    }

    #[test]
    fn flows_earn_what_the_next_ones_cost() {
        let mut allowance = Allowance::new();
        assert_eq!([0, 1, 2, 5, 8, 1 << 40].map(Allowance::worth), [0, 0, 2, 5, 8, 8]);
        allowance.earn(Allowance::worth(5));
        assert!(allowance.is_ample());
        assert_eq!(spent(&mut allowance, false), 5);
        (0..10_000).for_each(|_| allowance.earn(8));
        assert_eq!(spent(&mut allowance, false), MOST as usize);
    }
}
