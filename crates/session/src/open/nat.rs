//! The keys and rules of NAT mappings.

use mmb_flow::{Key, MappingId};

use crate::rules::attached::SessionRule;

/// How long a redirect is kept after its last packet, in milliseconds.
pub(crate) const REDIRECT_TIMEOUT: u32 = 120_000;

/// The rule that caused each mapping, by number of the mapping.
#[derive(Debug, Default)]
pub(crate) struct MappingRules(Vec<Option<SessionRule>>);

impl MappingRules {
    /// Returns the rule that caused a mapping.
    pub fn get(&self, id: MappingId) -> Option<SessionRule> {
        self.0.get(id.0 as usize).copied().flatten()
    }

    /// Stores the rule that caused a mapping.
    pub fn set(&mut self, id: MappingId, rule: Option<SessionRule>) {
        let at = id.0 as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, None);
        }
        self.0[at] = rule;
    }
}

/// Returns the key by which a pool knows a session: with the destination after translation, which filtering
/// compares.
pub(crate) fn nat_key(key: &Key, to: &Key) -> Key {
    Key { destination: to.destination, destination_port: to.destination_port, ..*key }
}
