use super::super::fake::{Fake, key};
use super::*;
use mmb_dpdk::FastGranularity;

const GENERATION: u64 = 5;

fn action() -> FastAction {
    FastAction::forward_unchanged(FastPort(2), 1500)
}

fn credit() -> Credit {
    Credit { from: (0, FastPort(1)), to: (1, FastPort(2)), rules: Box::new([]), session: None }
}

struct World {
    kernel: Fake,
    entries: Entries,
    paid: (u64, u64),
}

impl World {
    fn new(slots: u32) -> World {
        let kernel = Fake::default();
        kernel.set_generation(GENERATION, FastGranularity::Flow);
        World { kernel, entries: Entries::new(10..10 + slots), paid: (0, 0) }
    }

    fn install(&mut self, n: u16, now: u32) -> Result<(), NoPlace> {
        self.entries.install(&self.kernel, (&key(n), &action()), GENERATION, credit(), now).map(|_| ())
    }

    /// Looks at all slots at this time.
    fn sweep(&mut self, in_force: u64, now: u32) {
        loop {
            self.entries.sweep(&self.kernel, in_force, now, |due| {
                self.paid.0 += due.packets;
                self.paid.1 += due.bytes;
            });
            if !self.entries.is_sweeping() {
                return;
            }
        }
    }

    fn works(&self, n: u16) -> bool {
        self.kernel.action(&key(n)).is_some()
    }
}

#[test]
fn each_packet_is_credited_once() {
    let mut world = World::new(4);
    world.install(1, 0).unwrap();
    world.kernel.count(&key(1), 3, 300);
    world.sweep(GENERATION, 100);
    world.sweep(GENERATION, 200);
    assert_eq!(world.paid, (3, 300));
    world.kernel.count(&key(1), 1, 60);
    // Too early for another look.
    world.sweep(GENERATION, 210);
    assert_eq!(world.paid, (3, 300));
    world.sweep(GENERATION, 300);
    assert_eq!(world.paid, (4, 360));
}

#[test]
fn packets_that_come_after_the_end_are_credited_too() {
    let mut world = World::new(4);
    world.install(1, 0).unwrap();
    world.sweep(GENERATION + 1, 100);
    assert!(!world.works(1) && world.entries.len() == 1);
    world.kernel.count(&key(1), 2, 200);
    world.sweep(GENERATION + 1, 100 + GRACE);
    assert_eq!((world.paid, world.entries.len()), ((2, 200), 0));
    assert!(world.kernel.keys().is_empty());
}

#[test]
fn a_slot_is_not_given_away_at_once() {
    let mut world = World::new(1);
    world.install(1, 0).unwrap();
    assert_eq!(world.install(2, 0), Err(NoPlace::Full));
    world.sweep(GENERATION + 1, 100);
    assert_eq!(world.install(2, 101), Err(NoPlace::Full));
    world.sweep(GENERATION + 1, 99 + GRACE);
    assert_eq!(world.install(2, 99 + GRACE), Err(NoPlace::Full));
    world.sweep(GENERATION + 1, 200 + GRACE);
    world.install(2, 200 + GRACE).unwrap();
    assert!(world.works(2));
}

#[test]
fn idle_flows_go_and_busy_ones_stay() {
    let mut world = World::new(4);
    world.install(1, 0).unwrap();
    world.install(2, 0).unwrap();
    for now in (100..IDLE + 500).step_by(100) {
        world.kernel.count(&key(2), 1, 100);
        world.sweep(GENERATION, now);
    }
    assert!(!world.works(1) && world.works(2));
    assert!(world.entries.has(&key(2), GENERATION) && !world.entries.has(&key(1), GENERATION));
}

/// A flow that is learnt anew has another slot; when the old one is given up, the new one stays.
#[test]
fn a_flow_that_comes_again_keeps_its_place() {
    let mut world = World::new(4);
    world.install(1, 0).unwrap();
    world.kernel.count(&key(1), 2, 200);
    world.install(1, 10).unwrap();
    world.sweep(GENERATION, 10 + GRACE);
    assert_eq!(world.entries.len(), 1);
    assert!(world.works(1) && world.entries.has(&key(1), GENERATION));
    assert_eq!(world.paid, (2, 200));
}

#[test]
fn what_the_kernel_refuses_has_no_slot() {
    let mut world = World::new(1);
    world.kernel.set_full(true);
    assert_eq!(world.install(1, 0), Err(NoPlace::Refused));
    world.kernel.set_full(false);
    world.install(1, 0).unwrap();
}

/// More flows than are looked at between two walks.
#[test]
fn all_are_looked_at() {
    let mut world = World::new(1000);
    for n in 0..1000 {
        world.install(n, 0).unwrap();
        world.kernel.count(&key(n), 1, 1);
    }
    world.entries.sweep(&world.kernel, GENERATION, 100, |_| {});
    assert!(world.entries.is_sweeping());
    world.sweep(GENERATION, 100);
    world.sweep(GENERATION, 200);
    world.sweep(GENERATION + 1, 300);
    world.sweep(GENERATION + 1, 300 + GRACE);
    assert_eq!((world.entries.len(), world.kernel.keys().len()), (0, 0));
}
