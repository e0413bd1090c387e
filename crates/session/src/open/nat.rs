//! NAT state of a worker.

use std::io;
use std::sync::Arc;

use mmb_flow::{ErrorBudget, Key, MappingId, Nat, NatConfig, PoolId, PortOwners};

use super::exhausted::ExhaustedTargets;
use crate::SessionConfig;
use crate::rules::attached::SessionRule;

/// How long a redirect is kept after its last packet, in milliseconds.
pub(crate) const REDIRECT_TIMEOUT: u32 = 120_000;

/// NAT mappings, and what choosing translations needs.
#[derive(Debug)]
pub(crate) struct NatState {
    /// Pools and their mappings.
    pub pools: Nat,
    /// The pool that translated last, which is likely to be asked next.
    pub last_pool: Option<PoolId>,
    /// Targets without a free port.
    pub exhausted: ExhaustedTargets,
    /// Limit of ICMP errors.
    pub error_budget: ErrorBudget,
    /// The rule that caused each mapping, by number of the mapping.
    mapping_rules: Vec<Option<SessionRule>>,
}

impl NatState {
    /// Creates the state, without pools.
    ///
    /// # Errors
    /// As [`Nat::new`].
    pub fn new(config: &SessionConfig, ports: &Arc<PortOwners>) -> io::Result<NatState> {
        let place = (usize::from(config.worker), usize::from(config.workers));
        Ok(NatState {
            pools: Nat::of_worker(Arc::default(), config.sessions, place, config.seed, ports.clone())?,
            last_pool: None,
            exhausted: ExhaustedTargets::default(),
            error_budget: ErrorBudget::new(0),
            mapping_rules: Vec::new(),
        })
    }

    /// Adopts new pools and forwards.
    pub fn adopt(&mut self, config: &Arc<NatConfig>) {
        self.pools.adopt(config.clone());
        self.exhausted = ExhaustedTargets::default();
        self.last_pool = None;
    }

    /// Returns the rule that caused a mapping.
    pub fn mapping_rule(&self, id: MappingId) -> Option<SessionRule> {
        self.mapping_rules.get(id.0 as usize).copied().flatten()
    }

    /// Stores the rule that caused a mapping.
    pub fn set_mapping_rule(&mut self, id: MappingId, rule: Option<SessionRule>) {
        let at = id.0 as usize;
        if at >= self.mapping_rules.len() {
            self.mapping_rules.resize(at + 1, None);
        }
        self.mapping_rules[at] = rule;
    }
}

/// Returns the key by which a pool knows a session: with the destination after translation, which filtering
/// compares.
pub(crate) fn nat_key(key: &Key, to: &Key) -> Key {
    Key { destination: to.destination, destination_port: to.destination_port, ..*key }
}
