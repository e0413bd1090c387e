use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use super::*;

fn memory() -> Arc<[AtomicU64]> {
    [AtomicU64::new(0)].into_iter().collect()
}

#[test]
fn nobody_rings_for_a_consumer_that_is_awake() {
    let (memory, bell) = (memory(), EventBell::new().unwrap());
    Waker::new(memory.clone()).wake(&bell);
    assert_eq!(rustix::io::read(&bell, &mut [0; 8]), Err(rustix::io::Errno::AGAIN));
    // It found work before it slept.
    Sleeper::new(memory.clone()).sleep(&bell, || true);
    Waker::new(memory).wake(&bell);
    assert_eq!(rustix::io::read(&bell, &mut [0; 8]), Err(rustix::io::Errno::AGAIN));
}

#[test]
fn a_ring_between_the_look_and_the_wait_is_not_lost() {
    let (memory, bell) = (memory(), EventBell::new().unwrap());
    let waker = Waker::new(memory.clone());
    // The producer comes exactly between: the test ends only if the wait does.
    Sleeper::new(memory).sleep(&bell, || {
        waker.wake(&bell);
        false
    });
}

#[test]
fn all_work_of_another_thread_is_done() {
    const N: u64 = 20_000;
    let (memory, bell, work) = (memory(), Arc::new(EventBell::new().unwrap()), Arc::new(AtomicU64::new(0)));
    let (waker, sleeper) = (Waker::new(memory.clone()), Sleeper::new(memory));
    let (there, theirs) = (work.clone(), bell.clone());
    let producer = std::thread::spawn(move || {
        for n in 1..=N {
            there.store(n, Release);
            waker.wake(&*theirs);
        }
    });
    let (mut seen, begin) = (0, Instant::now());
    while seen < N {
        assert!(begin.elapsed() < Duration::from_secs(60));
        let last = seen;
        sleeper.sleep(&*bell, || work.load(Acquire) != last);
        seen = work.load(Acquire);
    }
    producer.join().unwrap();
}
