//! One environment per test process, used by one test at a time: pool counts are exact only without
//! concurrent use.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use mmb_dpdk::{Eal, EalConfig, HugePages};

static EAL: OnceLock<Eal> = OnceLock::new();
static ALONE: Mutex<()> = Mutex::new(());

/// Starts the environment without privileges or huge pages, and locks it for this test.
pub fn alone() -> MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    EAL.get_or_init(|| {
        let config = EalConfig { huge: HugePages::Never, privileged: false, ..EalConfig::default() };
        Eal::init(&config).expect("the environment starts")
    });
    guard
}
