//! The first configuration after the start of the daemon.

use std::collections::BTreeMap;

use mmb_dataplane::{Engine, SessionFile};
use mmb_router::{Namespace, NamespaceError};

use super::control::Control;
use super::mirror::Plan;
use super::sessions::RestoredSessions;
use super::state::{DownInterface, State};
use crate::config::{Config, Interface};

impl Control {
    /// Takes over an engine that runs nothing yet and makes it run `config`. Returns the interfaces whose
    /// device could not be opened; they stay down, and everything else works.
    pub fn start(engine: Engine, config: Config) -> (Control, Vec<DownInterface>) {
        let (control, down, _) = Control::start_with(engine, config, Err(NamespaceError::NotPermitted), None);
        (control, down)
    }

    /// Makes the workers of an engine allocate what a configuration needs, before [`Control::start_with`]:
    /// the first touch of a table with a million sessions takes a tenth of a second.
    pub fn prepare(engine: &Engine, config: &Config) {
        // If it fails, the start fails, too.
        let _ = engine.publish(config.forwarding(|_| false));
    }

    /// Takes over an engine as [`Control::start`] does, with a network namespace for transparent brokers and
    /// the sessions of an earlier process. The third value tells what became of them.
    pub fn start_with(
        engine: Engine,
        config: Config,
        namespace: Result<Namespace, NamespaceError>,
        sessions: Option<SessionFile>,
    ) -> (Control, Vec<DownInterface>, Option<RestoredSessions>) {
        engine.restore_offloads();
        let control = Control::new(engine, config.platform().files.state(), namespace);
        let mut state = State { config, down: BTreeMap::new() };
        let restored = sessions.and_then(|file| control.restore(&mut state, file));
        control.open_available(&mut state);
        // If it fails, the hook of `Control::on_failure` tells why.
        let _ = control.publish(&state);
        let reason = |i: &Interface| Some((i.name.clone(), state.down.get(&i.id)?.clone()));
        let down = state.config.interfaces().iter().filter_map(reason);
        let report = down.map(|(name, reason)| DownInterface { name, reason }).collect();
        control.running_brokers().start(&state);
        control.commit(state);
        (control, report, restored)
    }

    /// Iterates over the brokers that do not listen, with the reasons.
    pub fn brokers_down(&self) -> Vec<(String, String)> {
        self.running_brokers().down()
    }

    /// Opens all devices that can be opened, and marks the interfaces of the others as down. Nothing may be
    /// published yet.
    pub(super) fn open_available(&self, state: &mut State) {
        for device in state.config.devices(|_| true) {
            if device.interface.is_none_or(|id| state.is_up(id))
                && let Err(error) = self.open(&device)
            {
                state.mark_down(&device, &error.to_string());
            }
        }
        if let Err(error) = self.mirror().set(self.engine(), Plan::of(state)) {
            let reason = error.to_string();
            for id in state.config.interfaces().iter().filter(|i| i.routed.is_some()).map(|i| i.id) {
                state.down.entry(id).or_insert_with(|| reason.clone());
            }
            self.mirror().set_or_log(self.engine(), Plan::of(state));
        }
        self.close_unused(state, &state.config.devices(|_| true));
    }
}
