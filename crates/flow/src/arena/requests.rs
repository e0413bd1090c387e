//! Requests for memory that arrays will need.
//!
//! # Theory of operation
//!
//! The arrays of sessions fill from the front. The first write to a huge page makes the kernel clear it,
//! which takes 0.2 ms. A virtual machine gets the page from its host first, which takes 5 ms. A worker that
//! writes first handles no packets meanwhile. So an array requests the memory of its next elements while
//! there is room, and a thread of the engine allocates it. The requests of all arrays go through one queue,
//! which the first caller of [`memory_requests`] reads.
//!
//! If nobody reads the queue, or if it is full, the first write allocates the memory. So it does with a
//! request that is late.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Maximum number of requests that wait. An array makes one for each huge page.
const QUEUE_LEN: usize = 256;

static QUEUE: OnceLock<SyncSender<Range<usize>>> = OnceLock::new();

/// Returns the requests for memory from now on, as ranges of addresses. `None` if they have a reader already.
///
/// An array may be gone before its request is read.
pub fn memory_requests() -> Option<Receiver<Range<usize>>> {
    let (sender, receiver) = sync_channel(QUEUE_LEN);
    QUEUE.set(sender).ok().map(|()| receiver)
}

/// Requests the memory of these addresses. False if nobody reads requests, or if too many wait.
pub(super) fn request(addresses: Range<usize>) -> bool {
    QUEUE.get().is_some_and(|queue| queue.try_send(addresses).is_ok())
}
