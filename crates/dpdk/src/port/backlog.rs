//! Frames in the send ring of an AF_XDP or AF_PACKET port that the kernel has not taken yet.
//!
//! Theory of operation. The kernel takes frames as far as the socket's send buffer has room, and there is
//! room when a receiver has taken earlier ones. Waiting for that would stop all ports of the worker, so the
//! drivers do not (shim/tx.c). The port's worker offers the frames again when it looks for packets and there
//! are none, or has looked often, and does not sleep for long while some wait.

use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use mmb_dpdk_sys as sys;

/// In place of a socket: no frames wait.
const NONE: i32 = -1;

/// The socket for which frames may wait.
#[derive(Debug)]
pub(super) struct Backlog(AtomicI32);

impl Backlog {
    pub(super) fn new() -> Backlog {
        Backlog(AtomicI32::new(NONE))
    }

    /// Notes what the kernel may have left. To be called when this thread has given frames to the driver.
    /// `given`: their bytes, if the kernel says how many bytes it takes and no frames waited; otherwise the
    /// largest number.
    #[inline]
    pub(super) fn note(&self, given: usize) {
        // SAFETY: reads and resets thread-local variables of the shim.
        self.0.store(unsafe { sys::mmb_tx_take_left(given) }, Relaxed);
    }

    /// Offers the frames to the kernel again.
    #[inline]
    pub(super) fn offer(&self) {
        let socket = self.0.load(Relaxed);
        // SAFETY: the socket is the driver's, and open as long as the port.
        if socket != NONE && unsafe { sys::mmb_tx_offer(socket) } == 0 {
            self.0.store(NONE, Relaxed);
        }
    }

    /// Whether frames may wait.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.0.load(Relaxed) != NONE
    }
}
