//! A thread that adds buffers to a pool of packets while few are free.
//!
//! Theory of operation. Packets that pass need few buffers. Those that wait need more. No worker counts
//! buffers or adds any, since the kernel takes milliseconds for the memory. The thread looks at the pool from
//! time to time, and ends when the pool has all its buffers. [`super::pools`] has the numbers.

use std::io;
use std::time::Duration;

use mmb_dpdk::Mempool;

use super::periodic::{PeriodicThread, leave_cpus};
use super::pools::{PoolError, Supply, supply};

/// Pause while buffers are in use, and pause while hardly any are. In the longer one, packets that wait take
/// what the pool has at first if 250,000 a second arrive and none of them leaves.
const PAUSE: Duration = Duration::from_millis(10);
const CALM_PAUSE: Duration = Duration::from_millis(50);
/// Pause after a check that found no memory, and while the pool cannot grow.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// Starts the thread, which stays away from the CPUs of the workers.
pub(crate) fn start_growth(
    name: &str,
    pool: Mempool,
    cpus: Vec<Option<usize>>,
) -> io::Result<PeriodicThread> {
    let mut cpus = Some(cpus);
    PeriodicThread::start(name, move || {
        if let Some(cpus) = cpus.take() {
            leave_cpus(cpus.into_iter().flatten());
        }
        pause(supply(&pool))
    })
}

/// The pause until the next check. None: the pool has all its buffers.
fn pause(supply: Result<Supply, PoolError>) -> Option<Duration> {
    match supply {
        Ok(Supply::Complete) => None,
        Ok(Supply::Used) => Some(PAUSE),
        Ok(Supply::Ample) => Some(CALM_PAUSE),
        Ok(Supply::Registered) | Err(_) => Some(LONG_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;
    use std::time::Instant;

    use mmb_dpdk::{HugePages, Mbuf};

    use super::*;
    use crate::engine::detached::PacketMemory;
    use crate::engine::pools::Pools;
    use crate::lab::TURN;

    /// Waits until a condition holds, at most ten seconds.
    fn wait_until(what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(10), "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes packets until the pool has `left`.
    fn take(pool: &Mempool, held: &mut Vec<Mbuf>, left: usize) {
        while pool.available() > left {
            held.extend((0..64).filter_map(|_| pool.alloc()));
        }
    }

    #[test]
    fn a_pool_grows_while_few_buffers_are_free_and_then_the_thread_ends() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let _memory = PacketMemory::create(16, HugePages::Never).expect("memory");
        let pools = Pools::create_growing(190, false, vec![None]).expect("memory");
        let pool = pools.ordinary();
        let first = pool.populated();
        assert!((16_384..18_000).contains(&first) && pools.buffers() > 30_000, "{first}");
        assert_eq!(supply(&pool).expect("memory"), Supply::Ample);
        let growth = start_growth("mmb-buffers", pool.clone(), vec![None]).expect("a thread");
        let mut held = Vec::new();
        take(&pool, &mut held, 9000);
        std::thread::sleep(4 * CALM_PAUSE);
        assert_eq!(pool.populated(), first, "enough are free");
        // Whatever waits, buffers come before it has taken the last one.
        while pool.populated() < pool.size() {
            take(&pool, &mut held, 4096);
            wait_until("more buffers", || pool.available() >= 8192 || pool.populated() == pool.size());
        }
        wait_until("the end of the thread", || growth.is_finished());
        assert_eq!((held.len() + pool.available(), pool.in_use()), (pools.buffers(), held.len()));
    }

    #[test]
    fn the_pool_of_jumbo_frames_begins_with_a_part_and_grows() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let _memory = PacketMemory::create(16, HugePages::Never).expect("memory");
        let pools = Pools::create_growing(192, false, vec![None]).expect("memory");
        let (pool, ordinary) = (pools.jumbo().expect("memory"), pools.ordinary().populated());
        let first = pool.populated();
        assert!((2048..2400).contains(&first) && pool.size() == 4096, "{first}");
        assert_eq!(supply(&pool).expect("memory"), Supply::Ample);
        let mut held = Vec::new();
        take(&pool, &mut held, 1100);
        std::thread::sleep(4 * CALM_PAUSE);
        assert_eq!(pool.populated(), first, "enough are free");
        take(&pool, &mut held, 900);
        wait_until("more buffers", || pool.populated() > first);
        take(&pool, &mut held, 900);
        wait_until("all buffers", || pool.populated() == pool.size());
        assert_eq!(pools.ordinary().populated(), ordinary, "it has its own");
        // Detached engines have no thread that could add some.
        let detached = Pools::create(16).expect("memory").jumbo().expect("memory");
        assert_eq!(detached.populated(), detached.size());
    }

    #[test]
    fn packets_that_functions_may_hold_and_ports_get_buffers_before() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let _memory = PacketMemory::create(16, HugePages::Never).expect("memory");
        let pools = Pools::create_growing(223, false, vec![None]).expect("memory");
        let (pool, first) = (pools.ordinary(), pools.ordinary().populated());
        pools.provide_for_held(4096);
        assert_eq!(pool.populated(), first, "the default");
        pools.provide_for_held(8000);
        let second = pool.populated();
        assert!((first + 3000..first + 6000).contains(&second), "{second}");
        // For the rings of four ports that register the memory, and for what functions may hold.
        pools.plan(1, 8000);
        pools.provide_for_xdp().expect("memory");
        assert!((second + 23_500..second + 25_700).contains(&pool.populated()), "{}", pool.populated());
        assert!(!pools.is_short_of(4) && pools.is_short_of(5));
        pools.plan(20, 8000);
        pools.provide_for_xdp().expect("memory");
        assert_eq!(pool.populated(), pools.buffers());
        assert_eq!(supply(&pool).expect("memory"), Supply::Complete);
    }
}
