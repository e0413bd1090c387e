//! The sessions of one worker.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use mmb_flow::{FragmentLimits, FragmentTable, Nat, ScratchpadFile, SessionSettings, Table};

use crate::chains::ChainState;
use crate::established::{DecisionCache, EstablishedPath};
use crate::hash::{generator, mix};
use crate::lifetime::Lifetime;
use crate::lookup::vector::VectorLookup;
use crate::offload::flows::OffloadedFlows;
use crate::open::nat::NatState;
use crate::rules::RuleState;
use crate::shared::{Admission, SharedSessions};
use crate::slow_path::packet::FragmentTarget;
use crate::{Environment, ReleasedFragment, SessionConfig, SessionCounters};

/// Limits of the fragment table.
const FRAGMENTS: FragmentLimits = FragmentLimits { datagrams: 4096, waiting: 512, per_datagram: 64 };

/// The sessions of one worker. See the crate's theory of operation.
#[derive(Debug)]
pub struct Sessions {
    pub(crate) config: SessionConfig,
    pub(crate) settings: SessionSettings,
    pub(crate) table: Table,
    pub(crate) lookup: VectorLookup,
    pub(crate) cache: DecisionCache,
    pub(crate) rules: RuleState,
    pub(crate) chains: ChainState,
    pub(crate) nat: NatState,
    pub(crate) fragments: FragmentTable<FragmentTarget>,
    pub(crate) offloaded: OffloadedFlows,
    pub(crate) lifetime: Lifetime,
    pub(crate) counters: SessionCounters,
    pub(crate) admission: Admission,
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
        // With several workers, as many redirects have room.
        let parts = if config.workers > 1 { 2 } else { 1 };
        let capacity = shared.capacity().saturating_mul(parts);
        let secret = mix(config.seed, u64::from(config.worker) + 1);
        let chains = ChainState::new(&config);
        Ok(Sessions {
            settings: SessionSettings::default(),
            table: table(capacity, chains.layout.bytes, secret)?,
            lookup: VectorLookup::new(),
            cache: DecisionCache::new(),
            rules: RuleState::new(secret, generator(config.seed, config.worker)),
            chains,
            nat: NatState::new(&config, &shared.ports)?,
            fragments: FragmentTable::new(FRAGMENTS),
            offloaded: OffloadedFlows::default(),
            lifetime: Lifetime::default(),
            counters: SessionCounters::default(),
            admission: Admission::new(shared),
            config,
        })
    }

    /// Adopts new rules, pools, chains or settings. Must be called before the first packet under them, and
    /// once before the first packet at all. `old` is the previous environment, whose rules get the packets
    /// counted so far.
    pub fn adopt(&mut self, old: &impl Environment, new: &impl Environment) {
        self.detach_offloaded(old);
        self.flush(old);
        self.cache.decisions.renew();
        self.routes_changed();
        self.rules.opening = None;
        self.settings = new.settings();
        self.admission.adopt(&self.settings);
        self.cache.has_per_packet_rules = new.policy().per_packet().is_some();
        self.nat.adopt(new.nat());
        self.chains.adopt(new.chains(), &self.settings);
    }

    /// Invalidates cached next hops: routes or local addresses have changed.
    pub fn routes_changed(&mut self) {
        self.cache.invalidate_next_hops(&mut self.table);
    }

    /// Adds all counted packets to the counters of the rules.
    pub fn flush(&mut self, env: &impl Environment) {
        self.cache.flush(&mut self.table, env, usize::MAX);
    }

    /// Removes and returns the next fragment that is no longer held. Must be called after
    /// [`Sessions::process_slow_path`] and [`Sessions::tick`] until it returns `None`.
    pub fn next_released_fragment(&mut self) -> Option<ReleasedFragment> {
        let released = self.fragments.pop_released()?;
        Some(match released.target {
            Some(_) => ReleasedFragment::Retry(released.ticket.0),
            None => ReleasedFragment::TimedOut(released.ticket.0),
        })
    }

    /// Returns the number of sessions of this worker.
    #[inline]
    pub(crate) fn open_sessions(&self) -> u32 {
        self.table.len() - self.counters.redirects as u32
    }

    /// Returns counters and gauges.
    pub fn counters(&self) -> SessionCounters {
        let occupancy = self.table.occupancy();
        SessionCounters {
            sessions: self.open_sessions().into(),
            half_open: occupancy.embryonic.into(),
            // The room belongs to all workers; one of them reports it.
            capacity: if self.config.worker == 0 { self.admission.capacity().into() } else { 0 },
            decisions: self.cache.decisions.len() as u64,
            chain_held: self.chains.runner.held().0 as u64,
            ..self.counters
        }
    }

    /// Returns the file with the scratchpads, if they lie in one, and the distance of two scratchpads in
    /// bytes. The scratchpad of session `n` begins at `n` times the distance.
    pub fn scratchpad_file(&self) -> Option<(BorrowedFd<'_>, usize)> {
        Some((self.table.scratchpad_file()?, self.table.scratchpads().1))
    }

    /// Returns the NAT mappings, with usage and events.
    pub fn nat(&self) -> &Nat {
        &self.nat.pools
    }

    /// Returns the NAT mappings, to take events out.
    pub fn nat_mut(&mut self) -> &mut Nat {
        &mut self.nat.pools
    }

    /// Borrows the parts that the established path uses.
    #[inline(always)]
    pub(crate) fn established_path(&mut self) -> EstablishedPath<'_> {
        let Sessions { table, cache, rules, chains, counters, .. } = self;
        EstablishedPath { table, cache, random: &mut rules.random, layout: &chains.layout, counters }
    }
}
