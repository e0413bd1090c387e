//! Workers of a detached engine for the calling thread.

use std::ops::{Deref, DerefMut, Range};

use mmb_dataplane::EngineError;
use mmb_dataplane::detached::{DetachedEngine, DetachedWorker, PacketIo};
use mmb_dpdk::{ThreadGuard, register_thread};

/// Why a simulation cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// The engine lacks memory or a resource.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// DPDK refused the calling thread.
    #[error("cannot register the thread with DPDK: {0}")]
    Thread(#[from] mmb_dpdk::Error),
}

/// Workers of an engine, owned and walked by the calling thread.
///
/// It registers the thread with DPDK for its lifetime, so a thread has one harness at a time.
pub struct Harness<I> {
    // Dropped before the registration.
    workers: Vec<DetachedWorker<I>>,
    _registration: ThreadGuard,
}

impl<I: PacketIo> Harness<I> {
    /// Creates the workers `ids` of `engine`. `io` makes the source and sink of each; `None` for null ports.
    ///
    /// # Errors
    /// DPDK does not register the thread, or memory is not available.
    pub fn new(
        engine: &DetachedEngine,
        ids: Range<usize>,
        mut io: impl FnMut(usize) -> Result<Option<I>, EngineError>,
    ) -> Result<Harness<I>, HarnessError> {
        let registration = register_thread()?;
        let workers = ids.map(|id| engine.worker(id, io(id)?)).collect::<Result<_, _>>()?;
        Ok(Harness { workers, _registration: registration })
    }
}

impl<I> Deref for Harness<I> {
    type Target = [DetachedWorker<I>];

    fn deref(&self) -> &Self::Target {
        &self.workers
    }
}

impl<I> DerefMut for Harness<I> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.workers
    }
}
