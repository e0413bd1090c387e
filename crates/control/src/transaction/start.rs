//! The first configuration after the start of the daemon.

use std::collections::BTreeMap;

use mmb_dataplane::{Engine, FastHook, SessionFile, learns};
use mmb_flow::Key;
use mmb_router::{Namespace, NamespaceError};

use super::control::Control;
use super::mirror::Plan;
use super::sessions::{ChangedSessions, RestoredSessions};
use super::state::{DownInterface, State};
use crate::config::{Config, DeviceKind, Interface};

/// A control whose sessions are restored, and whose devices are not open yet.
pub struct Starting {
    control: Control,
    state: State,
    restored: Option<RestoredSessions>,
    /// The keys of the sessions that were given to it.
    keys: Vec<[Key; 2]>,
}

impl Starting {
    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        self.control.engine()
    }

    /// Makes up for what has changed since the sessions were copied that this has restored.
    pub fn restore_changes(&mut self, changes: ChangedSessions) {
        let ChangedSessions { gone, file } = changes;
        let gone = gone.iter().filter_map(|at| self.keys.get(*at as usize).copied()).collect();
        let before = self.restored.take();
        self.restored = self.control.restore_changes(&mut self.state, (before, gone), file);
    }

    /// Opens the devices and makes the engine run the configuration. Returns the interfaces whose device
    /// cannot be opened, as [`Control::start`] does, and what became of the sessions.
    pub fn open(self) -> (Control, Vec<DownInterface>, Option<RestoredSessions>) {
        let Starting { control, mut state, restored, .. } = self;
        control.engine().restore_offloads();
        control.open_available(&mut state);
        control.engine().close_prepared();
        // If it fails, the hook of `Control::on_failure` tells why.
        let _ = control.publish(&state);
        let reason = |i: &Interface| Some((i.name.clone(), state.down.get(&i.id)?.clone()));
        let down = state.config.interfaces().iter().filter_map(reason);
        let report = down.map(|(name, reason)| DownInterface { name, reason }).collect();
        control.running_brokers().start(&state);
        control.commit(state);
        (control, report, restored)
    }
}

impl Control {
    /// Takes over an engine that runs nothing yet and makes it run `config`. Returns the interfaces whose
    /// device could not be opened; they stay down, and everything else works.
    pub fn start(engine: Engine, config: Config) -> (Control, Vec<DownInterface>) {
        let starting = Control::restore_first(engine, config, Err(NamespaceError::NotPermitted), None);
        let (control, down, _) = starting.open();
        (control, down)
    }

    /// Does what a start with `config` needs and what may be done while another process has its devices: the
    /// first touch of a table with a million sessions takes a tenth of a second, as long as the kernel takes
    /// to verify the program of the fast path of an AF_XDP port.
    pub fn prepare(engine: &Engine, config: &Config) {
        // If it fails, the start fails, too.
        let forwarding = config.forwarding(|_| false);
        let is_fast = learns(&forwarding, FastHook::Xdp);
        let _ = engine.publish(forwarding);
        for device in config.devices(|_| true) {
            if matches!(device.kind, DeviceKind::Port(_)) {
                engine.prepare_port(&device.name, &device.port_kind(), is_fast);
            }
        }
    }

    /// Takes over an engine that runs nothing yet, with a network namespace for transparent brokers, and
    /// gives it the sessions of an earlier process. No device is open yet.
    pub fn restore_first(
        engine: Engine,
        config: Config,
        namespace: Result<Namespace, NamespaceError>,
        sessions: Option<SessionFile>,
    ) -> Starting {
        let control = Control::new(engine, config.platform().files.state(), namespace);
        let mut state = State { config, down: BTreeMap::new() };
        let saved = sessions.iter().flat_map(|file| &file.saved.sessions);
        let keys = saved.map(|session| session.keys()).collect();
        let restored = sessions.and_then(|file| control.restore(&mut state, file));
        Starting { control, state, restored, keys }
    }

    /// Iterates over the brokers that do not listen, with the reasons.
    pub fn brokers_down(&self) -> Vec<(String, String)> {
        self.running_brokers().down()
    }

    /// Opens all devices that can be opened, and marks the interfaces of the others as down. Nothing may be
    /// published yet.
    pub(super) fn open_available(&self, state: &mut State) {
        self.plan_buffers(&state.config);
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
