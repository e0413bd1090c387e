//! The sessions of one worker.

use std::io;
use std::sync::Arc;

use mmb_flow::{ScratchpadFile, Table};
use mmb_policy::ElementChange;

use crate::lookup::vector::VectorLookup;
use crate::shared::SharedSessions;
use crate::slow_path::{FRAGMENTS, SlowPath};
use crate::store::SessionStore;
use crate::{Environment, SessionConfig};

/// The sessions of one worker. See the crate's theory of operation.
#[derive(Debug)]
pub struct Sessions {
    pub(crate) store: SessionStore,
    pub(crate) lookup: VectorLookup,
    pub(crate) slow_path: SlowPath,
}

impl Sessions {
    /// Tickets of [`crate::Next::Hold`] are below this number.
    pub const TICKETS: usize = FRAGMENTS.waiting as usize;

    /// Creates the sessions of a single worker, without rules.
    ///
    /// # Errors
    /// The error of the system if there is not enough address space.
    pub fn new(config: SessionConfig) -> io::Result<Sessions> {
        let shared = SharedSessions::new(config.sessions, config.workers, config.seed);
        Sessions::with_shared(config, Arc::new(shared))
    }

    /// Creates the sessions of one of several workers, which have the same `shared`.
    ///
    /// # Errors
    /// As [`Sessions::new`].
    pub fn with_shared(config: SessionConfig, shared: Arc<SharedSessions>) -> io::Result<Sessions> {
        Sessions::with_table(config, shared, Table::new)
    }

    /// Creates the sessions of a worker like [`Sessions::with_shared`], with scratchpads in a file. `create`
    /// makes the file and maps it; its argument is the number of bytes.
    ///
    /// # Errors
    /// The error of `create`, or as [`Sessions::new`].
    pub fn with_scratchpad_file(
        config: SessionConfig,
        shared: Arc<SharedSessions>,
        create: impl FnOnce(usize) -> io::Result<ScratchpadFile>,
    ) -> io::Result<Sessions> {
        Sessions::with_table(config, shared, |capacity, bytes, secret| {
            Table::with_scratchpad_file(capacity, bytes, secret, create)
        })
    }

    /// `table` creates the table; its arguments are those of [`Table::new`].
    fn with_table(
        config: SessionConfig,
        shared: Arc<SharedSessions>,
        table: impl FnOnce(u32, usize, u64) -> io::Result<Table>,
    ) -> io::Result<Sessions> {
        Ok(Sessions {
            store: SessionStore::new(config, shared, table)?,
            lookup: VectorLookup::new(),
            slow_path: SlowPath::new(&config)?,
        })
    }

    /// Adopts new rules, pools, chains or settings. Must be called before the first packet under them, and
    /// once before the first packet at all. `old` is the previous environment, whose rules get the packets
    /// counted so far.
    pub fn adopt(&mut self, old: &impl Environment, new: &impl Environment) {
        self.store.adopt(old, new);
        self.slow_path.opener.adopt(!self.store.pools.is_empty());
    }

    /// Adopts rules that differ from those of `old`, the previous environment, by this change of elements of
    /// sets and nothing else. Sessions that it does not concern keep their decisions.
    pub fn adopt_elements(&mut self, change: &Arc<ElementChange>, old: &impl Environment) {
        self.store.adopt_elements(change, old);
        self.slow_path.opener.adopt(!self.store.pools.is_empty());
    }
}
