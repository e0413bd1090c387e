//! An environment for unit tests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use mmb_flow::{NatConfig, SessionSettings};
use mmb_policy::Policy;

use crate::Environment;

/// A policy without NAT, whose rule counters are kept in a map.
#[derive(Debug, Default)]
pub(crate) struct CountingRules {
    pub policy: Policy,
    counts: RefCell<HashMap<u32, (u64, u64)>>,
}

impl CountingRules {
    /// Returns packets and bytes counted for the rule in a slot.
    pub fn counts(&self, slot: u32) -> (u64, u64) {
        self.counts.borrow().get(&slot).copied().unwrap_or_default()
    }
}

impl Environment for CountingRules {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn nat(&self) -> &Arc<NatConfig> {
        static NONE: LazyLock<Arc<NatConfig>> = LazyLock::new(Arc::default);
        &NONE
    }

    fn settings(&self) -> SessionSettings {
        SessionSettings::default()
    }

    fn out_port(&self, in_port: u16) -> u16 {
        in_port ^ 1
    }

    fn count(&self, slot: u32, packets: u32, bytes: u64) {
        let mut counts = self.counts.borrow_mut();
        let entry = counts.entry(slot).or_default();
        (entry.0, entry.1) = (entry.0 + u64::from(packets), entry.1 + bytes);
    }
}
