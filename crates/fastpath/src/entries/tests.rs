use super::*;
use crate::testing::{FakeKernel, key};

const GENERATION: u64 = 5;

fn action() -> FastAction {
    FastAction::forward_unchanged(FastPort(2), 1500)
}

fn credit() -> CreditTargets {
    let (ingress, egress) = (PortRef { id: 0, number: FastPort(1) }, PortRef { id: 1, number: FastPort(2) });
    CreditTargets { ingress, egress, rules: Box::new([]), session: None }
}

struct World {
    kernel: FakeKernel,
    entries: Entries,
    credited: (u64, u64),
}

impl World {
    fn new(slots: u32) -> World {
        let kernel = FakeKernel::default();
        kernel.set_generation(GENERATION, FastGranularity::Flow);
        World { kernel, entries: Entries::new(10..10 + slots), credited: (0, 0) }
    }

    fn install(&mut self, n: u16, now: u32) -> Result<(), InstallError> {
        self.entries.install(&self.kernel, (&key(n), &action()), GENERATION, credit(), now).map(|_| ())
    }

    /// Checks all slots at this time.
    fn sweep(&mut self, in_force: u64, now: u32) {
        loop {
            self.entries.sweep(&self.kernel, in_force, now, |delta| {
                self.credited.0 += delta.packets;
                self.credited.1 += delta.bytes;
            });
            if !self.entries.is_sweeping() {
                return;
            }
        }
    }

    fn is_active(&self, n: u16) -> bool {
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
    assert_eq!(world.credited, (3, 300));
    world.kernel.count(&key(1), 1, 60);
    // Too early for another sweep.
    world.sweep(GENERATION, 210);
    assert_eq!(world.credited, (3, 300));
    world.sweep(GENERATION, 300);
    assert_eq!(world.credited, (4, 360));
}

#[test]
fn packets_counted_after_the_revocation_are_credited() {
    let mut world = World::new(4);
    world.install(1, 0).unwrap();
    world.sweep(GENERATION + 1, 100);
    assert!(!world.is_active(1) && world.entries.len() == 1);
    world.kernel.count(&key(1), 2, 200);
    world.sweep(GENERATION + 1, 100 + REUSE_DELAY);
    assert_eq!((world.credited, world.entries.len()), ((2, 200), 0));
    assert!(world.kernel.keys().is_empty());
}

#[test]
fn a_slot_is_reused_after_a_delay() {
    let mut world = World::new(1);
    world.install(1, 0).unwrap();
    assert_eq!(world.install(2, 0), Err(InstallError::Full));
    world.sweep(GENERATION + 1, 100);
    assert_eq!(world.install(2, 101), Err(InstallError::Full));
    world.sweep(GENERATION + 1, 99 + REUSE_DELAY);
    assert_eq!(world.install(2, 99 + REUSE_DELAY), Err(InstallError::Full));
    world.sweep(GENERATION + 1, 200 + REUSE_DELAY);
    world.install(2, 200 + REUSE_DELAY).unwrap();
    assert!(world.is_active(2));
}

#[test]
fn idle_flows_are_revoked_and_busy_ones_stay() {
    let mut world = World::new(4);
    world.install(1, 0).unwrap();
    world.install(2, 0).unwrap();
    for now in (100..IDLE_TIMEOUT + 500).step_by(100) {
        world.kernel.count(&key(2), 1, 100);
        world.sweep(GENERATION, now);
    }
    assert!(!world.is_active(1) && world.is_active(2));
    assert!(world.entries.contains(&key(2), GENERATION) && !world.entries.contains(&key(1), GENERATION));
}

/// A flow that is installed again has another slot; when the old slot ends, the new one stays.
#[test]
fn a_reinstalled_flow_outlives_its_old_slot() {
    let mut world = World::new(4);
    world.install(1, 0).unwrap();
    world.kernel.count(&key(1), 2, 200);
    world.install(1, 10).unwrap();
    world.sweep(GENERATION, 10 + REUSE_DELAY);
    assert_eq!(world.entries.len(), 1);
    assert!(world.is_active(1) && world.entries.contains(&key(1), GENERATION));
    assert_eq!(world.credited, (2, 200));
}

#[test]
fn a_refused_flow_takes_no_slot() {
    let mut world = World::new(1);
    world.kernel.set_full(true);
    assert_eq!(world.install(1, 0), Err(InstallError::Kernel(7)));
    world.kernel.set_full(false);
    world.install(1, 0).unwrap();
}

/// There are more flows than one call checks.
#[test]
fn a_sweep_checks_all_flows() {
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
    world.sweep(GENERATION + 1, 300 + REUSE_DELAY);
    assert_eq!((world.entries.len(), world.kernel.keys().len()), (0, 0));
}
