//! Threads that add buffers to the pools of packets when few are free.
//!
//! Theory of operation. Packets that pass need few buffers. Those that wait need more. No worker adds any,
//! since the kernel takes milliseconds for the memory. Behind a walk, a worker looks how many buffers the
//! ring of a pool has. If they are few, it wakes the pool's thread. The thread sleeps otherwise, and ends
//! when the pool has all its buffers. [`super::pools`] has the numbers.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mmb_dpdk::Mempool;

use super::periodic::{PeriodicThread, UNTIL_WOKEN, leave_cpus};
use super::pools::{PoolError, Supply, few_buffers, supply};

/// Pause after a check that found no memory, and while the pool cannot grow.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// The threads of an engine's pools. Pools that have all their buffers from the start have none.
#[derive(Default)]
pub(crate) struct PoolGrowths {
    pub ordinary: OnceLock<PoolGrowth>,
    pub jumbo: OnceLock<PoolGrowth>,
}

impl PoolGrowths {
    /// Wakes the threads of the pools that have few buffers.
    #[inline]
    pub fn check(&self) {
        [&self.ordinary, &self.jumbo].into_iter().filter_map(OnceLock::get).for_each(PoolGrowth::check);
    }
}

/// The thread that adds buffers to a pool.
pub(crate) struct PoolGrowth {
    pool: Mempool,
    few: usize,
    /// The thread was woken, has ended, or cannot add any for now.
    is_asked: Arc<AtomicBool>,
    thread: PeriodicThread,
}

impl PoolGrowth {
    /// Starts the thread, which stays away from the CPUs of the workers.
    ///
    /// # Errors
    /// The operating system's error if it cannot start a thread.
    pub fn start(name: &str, pool: Mempool, cpus: Vec<Option<usize>>) -> io::Result<PoolGrowth> {
        let is_asked = Arc::new(AtomicBool::new(false));
        let (growing, asked) = (pool.clone(), is_asked.clone());
        let mut cpus = Some(cpus);
        let thread = PeriodicThread::start(name, move || {
            if let Some(cpus) = cpus.take() {
                leave_cpus(cpus.into_iter().flatten());
            }
            // Whoever finds few buffers from here on wakes the thread again.
            asked.store(false, Ordering::SeqCst);
            let pause = pause(supply(&growing));
            asked.store(pause != Some(UNTIL_WOKEN), Ordering::SeqCst);
            pause
        })?;
        Ok(PoolGrowth { few: few_buffers(&pool), pool, is_asked, thread })
    }

    #[inline]
    fn check(&self) {
        if self.pool.in_ring() < self.few && !self.is_asked.load(Ordering::Relaxed) {
            self.ask();
        }
    }

    #[cold]
    fn ask(&self) {
        if !self.is_asked.swap(true, Ordering::SeqCst) {
            self.thread.wake();
        }
    }
}

/// The pause until the next check. None: the pool has all its buffers.
fn pause(supply: Result<Supply, PoolError>) -> Option<Duration> {
    match supply {
        Ok(Supply::Complete) => None,
        Ok(Supply::Grown) => Some(Duration::ZERO),
        Ok(Supply::Ample) => Some(UNTIL_WOKEN),
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

    /// Looks after the pools as a worker does until a condition holds, at most ten seconds.
    fn wait_until(what: &str, pools: &Pools, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(10), "{what}");
            pools.growths().check();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether a worker has woken the thread of a pool.
    fn is_woken(growth: &OnceLock<PoolGrowth>) -> bool {
        growth.get().is_some_and(|growth| growth.is_asked.load(Ordering::SeqCst))
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
        pools.start_growth().expect("a thread");
        let (growths, mut held) = (pools.growths(), Vec::new());
        take(&pool, &mut held, 9000);
        growths.check();
        assert_eq!((pool.populated(), is_woken(&growths.ordinary)), (first, false), "enough are free");
        // Whatever waits, buffers come before it has taken the last one.
        while pool.populated() < pool.size() {
            take(&pool, &mut held, 4096);
            wait_until("more buffers", &pools, || {
                pool.available() >= 8192 || pool.populated() == pool.size()
            });
        }
        let thread = || growths.ordinary.get().is_some_and(|growth| growth.thread.is_finished());
        wait_until("the end of the thread", &pools, thread);
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
        let (growths, mut held) = (pools.growths(), Vec::new());
        take(&pool, &mut held, 1100);
        growths.check();
        assert_eq!((pool.populated(), is_woken(&growths.jumbo)), (first, false), "enough are free");
        take(&pool, &mut held, 900);
        wait_until("more buffers", &pools, || pool.populated() > first);
        take(&pool, &mut held, 900);
        wait_until("all buffers", &pools, || pool.populated() == pool.size());
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
