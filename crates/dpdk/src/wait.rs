//! Waiting for packets without polling.

use std::os::fd::BorrowedFd;

use crate::port::Port;

impl Port {
    /// As [`Port::rx_fds`], borrowed from the port.
    pub fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        // SAFETY: the descriptors are the driver's and stay open as long as the port, which the result borrows.
        self.rx_fds().iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) }).collect()
    }
}
