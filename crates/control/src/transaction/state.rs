//! The configuration together with what of it does not work.

use std::collections::BTreeMap;

use mmb_dataplane::PortId;

use crate::config::Config;

/// The configuration and the interfaces that are down.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub config: Config,
    /// Interfaces, and ports of brokers, whose device could not be opened, each with the reason.
    pub down: BTreeMap<PortId, String>,
}

impl State {
    /// Whether the device of an interface or of a broker is open.
    pub fn is_up(&self, id: PortId) -> bool {
        !self.down.contains_key(&id)
    }

    /// Forgets why ports were down that the configuration does not have any more: their ids are free.
    pub(super) fn forget_deleted_ports(&mut self) {
        let State { config, down } = self;
        down.retain(|id, _| config.has_port(*id));
    }
}

/// An interface that is down after [`Control::start`](super::Control::start).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownInterface {
    /// Name of the interface.
    pub name: String,
    /// Why its device could not be opened, as a sentence.
    pub reason: String,
}
