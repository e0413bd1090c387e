//! From one state to the next: opening and closing devices, mirroring routes.
//!
//! Theory of operation. A device is opened before the state that uses it is published, and closed after a
//! state that does not use it is published. Sometimes a new interface needs the device or the port id of an
//! old one. Then the old device is closed first, and opened again if the change fails. TAP twins of routed
//! ports are devices too.
//!
//! Routes are mirrored before their port is published as a routed one, and dropped after it is published as
//! not routed.

use mmb_dataplane::{PortError, PortId, WorkerFailure};
use mmb_lang::PortKind;
use mmb_router::RouterError;
use nix::net::if_::if_nametoindex;

use super::brokers::BrokerError;
use super::control::Control;
use super::mirror::Plan;
use super::state::State;
use crate::config::{Config, Device, DeviceKind, PUNT, same_device};

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeviceError {
    /// The TAP for routed AF_XDP ports exists already.
    #[error(
        "there is an interface {name} in the kernel already, by which packets of routed AF_XDP ports reach the kernel; \
         is another mmb daemon running in this network namespace?"
    )]
    PuntExists {
        /// Name of the TAP.
        name: String,
    },
    /// The kernel has an interface with the name of a twin.
    #[error(
        "there is an interface {name} in the kernel already, so the twin of the routed port cannot have this name; \
         give the port another name, or delete the other one with `ip link del {name}`"
    )]
    TwinExists {
        /// Name of the interface.
        name: String,
    },
    /// The engine could not open the device of an interface.
    #[error("{0}")]
    Port(PortError),
    /// The engine could not open the TAP twin of an interface.
    #[error("its twin in the kernel: {0}")]
    Twin(PortError),
    /// The TAP of a transparent broker could not be opened.
    #[error("the port of a transparent broker: {0}")]
    Broker(String),
    /// The engine could not open the TAP for routed AF_XDP ports.
    #[error("{name}, by which routed AF_XDP ports reach the kernel: {reason}")]
    Punt {
        /// Name of the TAP.
        name: String,
        /// The reason.
        reason: PortError,
    },
}

/// Why the engine could not go to the next state.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransitionError {
    /// A device could not be opened.
    #[error("{}{error}{lost}", .interface.as_ref().map_or_else(String::new, |name| format!("interface `{name}`: ")))]
    Device {
        /// The interface of the device; none for a device that several interfaces share.
        interface: Option<String>,
        /// The reason.
        error: DeviceError,
        /// The devices that could not be opened again.
        lost: LostDevices,
    },
    /// A broker cannot listen.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The engine works no longer.
    #[error(transparent)]
    Worker(#[from] WorkerFailure),
    /// Open sessions use too many earlier versions of the chains.
    #[error(
        "open sessions use 65,535 earlier versions of the chains, which is the maximum; end some by `clear \
         connections`"
    )]
    Programs,
    /// The routes of the kernel could not be mirrored.
    #[error("{error}{lost}")]
    Routes {
        /// The reason.
        error: RouterError,
        /// The devices that could not be opened again.
        lost: LostDevices,
    },
}

impl TransitionError {
    /// The reason without the name of the interface.
    pub(super) fn reason(&self) -> String {
        match self {
            TransitionError::Device { error, lost, .. } => format!("{error}{lost}"),
            TransitionError::Routes { error, lost } => format!("{error}{lost}"),
            TransitionError::Worker(failure) => failure.to_string(),
            TransitionError::Broker(_) | TransitionError::Programs => self.to_string(),
        }
    }
}

/// Devices that were closed for a failed change and could not be opened again, with the reasons.
#[derive(Debug, Default)]
pub(super) struct LostDevices(Vec<(String, DeviceError)>);

impl std::fmt::Display for LostDevices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(name, error)| {
            write!(f, "; interface `{name}` could not be opened again: {error}")
        })
    }
}

impl Control {
    /// Takes the engine from `old`, which it runs, to `new`: devices, routes and publication.
    ///
    /// # Errors
    /// A device or routes that the engine cannot get. Then everything is as before, except that a device that
    /// was closed and cannot be opened again is down.
    pub(super) fn transition(&self, mut old: State, new: &State) -> Result<(), TransitionError> {
        if !self.engine().has_room_for(new.config.chains().program()) {
            return Err(TransitionError::Programs);
        }
        let listeners = self.running_brokers().prepare(&old, new)?;
        if let Err(error) = self.change_devices(&mut old, new) {
            self.running_brokers().give_up(listeners);
            return Err(error);
        }
        self.running_brokers().switch(new, listeners);
        Ok(())
    }

    /// Opens and closes devices, and publishes the new state.
    fn change_devices(&self, old: &mut State, new: &State) -> Result<(), TransitionError> {
        let change = DeviceChange::between(old, new);
        self.plan_buffers(&new.config);
        self.open_devices(old, &change)?;
        let (before, after) = (Plan::of(old), Plan::of(new));
        if let Err(error) = self.mirror().set(self.engine(), before.union(&after)) {
            change.opened.iter().for_each(|opened| self.engine().close_port(opened.id));
            let lost = self.reopen(old, &change.closed_first);
            self.mirror().set_or_log(self.engine(), Plan::of(old));
            return Err(TransitionError::Routes { error, lost });
        }
        if self.running_brokers().end_transparent(new) {
            self.engine().settle();
        }
        self.publish(new)?;
        self.mirror().set_or_log(self.engine(), after);
        change.closed_last.into_iter().for_each(|id| self.engine().close_port(id));
        Ok(())
    }

    /// Tells the engine for what packets will need buffers.
    pub(super) fn plan_buffers(&self, config: &Config) {
        let xdp_ports = config.interfaces().iter().filter(|interface| interface.is_xdp()).count();
        self.engine().plan_buffers(xdp_ports, config.settings().held.worker);
    }

    /// Opens the devices that a new state adds: all of them, or none.
    fn open_devices(&self, state: &mut State, change: &DeviceChange) -> Result<(), TransitionError> {
        if !change.closed_first.is_empty() {
            let mut without = state.clone();
            change.closed_first.iter().for_each(|device| without.mark_down(device, ""));
            self.publish(&without)?;
            change.closed_first.iter().for_each(|old| self.engine().close_port(old.id));
        }
        for (n, device) in change.opened.iter().enumerate() {
            if let Err(error) = self.open(device) {
                change.opened[..n].iter().for_each(|opened| self.engine().close_port(opened.id));
                let lost = self.reopen(state, &change.closed_first);
                let interface = device.interface.map(|_| device.name.clone());
                return Err(TransitionError::Device { interface, error, lost });
            }
        }
        Ok(())
    }

    /// Opens devices again that were closed for a change that failed. Returns those that cannot be opened.
    fn reopen(&self, state: &mut State, closed: &[Device]) -> LostDevices {
        let mut lost = LostDevices::default();
        let open = state.config.devices(|id| state.is_up(id));
        for old in closed {
            if let Err(error) = self.open(old) {
                state.mark_down(old, &error.to_string());
                lost.0.push((old.name.clone(), error));
            }
        }
        if !closed.is_empty() {
            // If it fails, the hook of `Control::on_failure` tells why.
            let _ = self.publish(state);
            self.close_unused(state, &open);
            self.commit(state.clone());
        }
        lost
    }

    /// Closes those of `devices` that no interface needs that is up.
    pub(super) fn close_unused(&self, state: &State, devices: &[Device]) {
        let needed = state.config.devices(|id| state.is_up(id));
        let unused = devices.iter().filter(|device| !needed.contains(device));
        unused.for_each(|device| self.engine().close_port(device.id));
    }

    /// Opens a device.
    pub(super) fn open(&self, device: &Device) -> Result<(), DeviceError> {
        let name = device.name.clone();
        if device.kind == DeviceKind::Broker {
            return self.open_for_broker(device.id, name).map_err(DeviceError::Broker);
        }
        // Here the error names the remedy.
        if device.kind != DeviceKind::Port(device.port_kind()) && if_nametoindex(name.as_str()).is_ok() {
            return Err(match device.kind {
                DeviceKind::Punt => DeviceError::PuntExists { name },
                _ => DeviceError::TwinExists { name },
            });
        }
        let opened = self.engine().open_port(device.id, &name, &device.port_kind());
        if opened.is_ok() && device.kind == DeviceKind::Punt {
            configure_punt();
        }
        opened.map_err(|error| match device.kind {
            DeviceKind::Port(_) => DeviceError::Port(error),
            DeviceKind::Twin => DeviceError::Twin(error),
            DeviceKind::Punt => DeviceError::Punt { name, reason: error },
            DeviceKind::Broker => DeviceError::Broker(error.to_string()),
        })
    }

    /// Opens the TAP of a transparent broker, in the network namespace of brokers.
    fn open_for_broker(&self, port: PortId, tap: String) -> Result<(), String> {
        let namespace = self.running_brokers().namespace()?;
        let (engine, name) = (self.engine().clone(), tap.clone());
        let kind = PortKind::Tap { ifname: Some(tap.clone()) };
        let opened = namespace.run(move || engine.open_port(port, &name, &kind));
        opened.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        namespace.connect(&tap).map(drop).map_err(|error| {
            self.engine().close_port(port);
            format!("{tap}: {error}")
        })
    }
}

/// Configures [`PUNT`] in the kernel: it accepts packets although routes to their senders use other
/// interfaces, and it sends no IPv6 of its own. Errors are ignored, since the kernel's defaults mostly work.
fn configure_punt() {
    let path =
        |family: &str, name: &str, setting: &str| format!("/proc/sys/net/{family}/conf/{name}/{setting}");
    let set = |family, setting, value| drop(std::fs::write(path(family, PUNT, setting), value));
    // The kernel uses the larger of the values for `all` and for the interface, and 2 (loose) is larger than
    // 1 (strict).
    let all = std::fs::read_to_string(path("ipv4", "all", "rp_filter"));
    set("ipv4", "rp_filter", if all.is_ok_and(|value| value.trim() != "0") { "2" } else { "0" });
    set("ipv6", "addr_gen_mode", "1");
    set("ipv6", "accept_ra", "0");
}

impl State {
    /// Marks the interfaces that need a device, or the port of a broker, as down.
    pub(super) fn mark_down(&mut self, device: &Device, reason: &str) {
        if device.kind == DeviceKind::Broker {
            self.down.insert(device.id, reason.to_owned());
            return;
        }
        let needs = |id: PortId| match device.interface {
            Some(interface) => id == interface,
            None => self.config.devices(|other| other == id).contains(device),
        };
        let ids: Vec<PortId> =
            self.config.interfaces().iter().map(|i| i.id).filter(|&id| needs(id)).collect();
        for id in ids {
            self.down.entry(id).or_insert_with(|| reason.to_owned());
        }
    }
}

/// The devices that a change opens and closes.
struct DeviceChange {
    /// Devices to open.
    opened: Vec<Device>,
    /// Devices to close before any is opened, since their device or their port id is used again.
    closed_first: Vec<Device>,
    /// Ports to close after the publication.
    closed_last: Vec<PortId>,
}

impl DeviceChange {
    fn between(old: &State, new: &State) -> DeviceChange {
        let current = old.config.devices(|id| old.is_up(id));
        let next = new.config.devices(|id| new.is_up(id));
        let opened: Vec<Device> = next.iter().filter(|device| !current.contains(device)).cloned().collect();
        let is_reused = |old: &Device| {
            opened.iter().any(|new| new.id == old.id || same_device(&new.port_kind(), &old.port_kind()))
        };
        let closed = current.into_iter().filter(|device| !next.contains(device));
        let (closed_first, closed_last): (Vec<_>, Vec<_>) = closed.partition(is_reused);
        DeviceChange {
            opened,
            closed_first,
            closed_last: closed_last.iter().map(|device| device.id).collect(),
        }
    }
}
