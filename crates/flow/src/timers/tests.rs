//! Tests of the parent module.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const TIMERS: u32 = 12;
/// The sessions: some in one group, some in one region, some elsewhere.
const SESSIONS: [u32; TIMERS as usize] =
    [0, 1, 63, 64, 4_095, 4_096, 4_097, 8_191, 262_143, 262_144, 262_145, 299_999];

fn session(timer: u32) -> SessionId {
    SessionId(SESSIONS[timer as usize])
}

/// Timers and a map from timers to deadlines. The time of the model does not wrap.
struct Both {
    timers: Timers,
    deadlines: BTreeMap<u32, u64>,
    now: u64,
}

impl Both {
    fn new(now: u64) -> Both {
        Both { timers: Timers::new(300_000).unwrap(), deadlines: BTreeMap::new(), now }
    }

    fn arm(&mut self, id: u32, ahead: u64) {
        self.arm_for(id, self.now + ahead);
    }

    fn arm_for(&mut self, id: u32, deadline: u64) {
        self.timers.arm(session(id), deadline as u32);
        self.deadlines.insert(id, deadline);
    }

    fn disarm(&mut self, id: u32) {
        self.timers.disarm(session(id));
        self.deadlines.remove(&id);
    }

    /// Takes the expired timers with this budget. Returns whether those are all.
    fn take(&mut self, mut budget: u32) -> bool {
        while let Some(id) = self.timers.due(self.now as u32, &mut budget) {
            let timer = SESSIONS.iter().position(|&session| session == id.0).expect("a timer") as u32;
            let deadline = self.deadlines.remove(&timer).expect("armed");
            assert!(deadline <= self.now, "{} ms early", deadline - self.now);
        }
        assert_eq!(self.timers.armed() as usize, self.deadlines.len());
        budget > 0
    }

    fn none_is_late(&self) {
        assert!(self.deadlines.values().all(|deadline| deadline + 64 > self.now), "{:?}", self.deadlines);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arm(u32, u64),
    Disarm(u32),
    Wait(u64),
    Take(u32),
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![0..200u64, 0..100_000u64, 0..20_000_000u64, 0..(1u64 << 30)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..TIMERS, span()).prop_map(|(id, ahead)| Step::Arm(id, ahead)),
        1 => (0..TIMERS).prop_map(Step::Disarm),
        2 => span().prop_map(Step::Wait),
        1 => (1..4u32).prop_map(Step::Take),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_map(steps in prop::collection::vec(step(), 1..80), start: u32) {
        let mut both = Both::new(u64::from(start));
        for step in steps {
            match step {
                Step::Arm(id, ahead) => both.arm(id, ahead),
                Step::Disarm(id) => both.disarm(id),
                Step::Take(budget) => drop(both.take(budget)),
                Step::Wait(span) => {
                    both.now += span;
                    prop_assert!(both.take(1000), "twelve timers, and at most as many groups and regions");
                    both.none_is_late();
                }
            }
        }
    }

    /// A small budget delays timers. None is lost, and none expires early.
    #[test]
    fn small_budgets_make_progress(spans in prop::collection::vec(span(), TIMERS as usize), start: u32) {
        let mut both = Both::new(u64::from(start));
        for (id, &ahead) in spans.iter().enumerate() {
            both.arm(id as u32, ahead);
        }
        both.now += 1 << 30;
        let calls = (0..).take_while(|_| !both.take(1)).count();
        prop_assert!(calls <= 3 * TIMERS as usize);
        both.none_is_late();
    }
}

#[test]
fn past_deadlines_expire_next() {
    let mut both = Both::new(5_000_000);
    both.arm(1, 3_000_000);
    both.arm_for(0, 4_000_000);
    both.now += 64;
    assert!(both.take(100));
    assert_eq!(both.deadlines.keys().copied().collect::<Vec<_>>(), [1]);
}

/// An idle worker continues after more than half of the clock's range.
#[test]
fn timers_survive_long_idle_times() {
    let mut both = Both::new(0);
    both.arm(0, 10);
    both.now = 1_000;
    assert!(both.take(10));
    both.now = 3 << 30;
    assert!(both.take(10));
    both.arm(0, 10);
    both.now += 200;
    assert!(both.take(10) && both.deadlines.is_empty());
}
