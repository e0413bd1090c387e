//! The part that opens sessions.

use std::io;

use mmb_flow::PoolId;

use super::nat::MappingRules;
use super::ports::PortSearch;
use super::values::ValueChooser;
use crate::SessionConfig;
use crate::rules::opening::LastOpening;

/// Opens sessions, and keeps what only their opening needs.
#[derive(Debug)]
pub(crate) struct Opener {
    pub last_opening: LastOpening,
    /// The pool that translated last, which is likely to be asked next.
    pub last_pool: Option<PoolId>,
    pub mapping_rules: MappingRules,
    pub(super) values: ValueChooser,
    pub(super) ports: PortSearch,
}

impl Opener {
    /// # Errors
    /// The error of the system if there is not enough address space.
    pub fn new(config: &SessionConfig) -> io::Result<Opener> {
        Ok(Opener {
            last_opening: LastOpening::default(),
            last_pool: None,
            mapping_rules: MappingRules::new(config.sessions)?,
            values: ValueChooser::new(config),
            ports: PortSearch::default(),
        })
    }

    /// Forgets what followed from former rules and pools. `has_mappings`: there are mappings of NAT.
    pub fn adopt(&mut self, has_mappings: bool) {
        if !has_mappings {
            self.mapping_rules.forget();
        }
        self.last_opening = LastOpening::default();
        self.last_pool = None;
        self.ports = PortSearch::default();
    }
}
