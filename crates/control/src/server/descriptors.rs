//! Descriptors for clients when the process has no others left.
//!
//! Theory of operation. The reserve holds some descriptors that lead nowhere. When the process has no free
//! one to accept a connection, the reserve gives one up. When a connection has ended, the reserve takes its
//! descriptor back, if no other part of the process was faster.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The reserve.
pub(super) struct DescriptorReserve {
    held: Mutex<Vec<OwnedFd>>,
    most: usize,
}

impl DescriptorReserve {
    /// A reserve of this many descriptors, or as many as there are.
    pub fn new(most: usize) -> DescriptorReserve {
        let reserve = DescriptorReserve { held: Mutex::default(), most };
        reserve.refill();
        reserve
    }

    /// Frees a descriptor. False: none is left.
    pub fn release(&self) -> bool {
        self.held().pop().is_some()
    }

    /// Takes descriptors until the reserve is full or the process has no free one.
    pub fn refill(&self) {
        let mut held = self.held();
        while held.len() < self.most {
            let Ok(file) = File::open("/dev/null") else { return };
            held.push(file.into());
        }
    }

    fn held(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        // A panic leaves a list of descriptors, which is as good as another one.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_gives_and_takes_back() {
        let reserve = DescriptorReserve::new(2);
        assert!(reserve.release() && reserve.release() && !reserve.release());
        reserve.refill();
        assert_eq!(reserve.held().len(), 2);
    }
}
