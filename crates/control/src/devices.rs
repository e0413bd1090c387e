//! Changes that open and close devices.
//!
//! Theory of operation. A device is opened before the configuration with its interface is published and closed after
//! one without is. Where a new interface needs the device of an old one, or its id, the old one goes first, and comes
//! back if the change fails. Twins of routed ports are devices like others.
//!
//! Routes are there before the port that they are for is published as a routed one, and until after it is not any more.

use mmb_dataplane::PortId;
use mmb_lang::{PortKind, Word};
use mmb_policy::Policy;
use nix::net::if_::if_nametoindex;

use crate::api::{ApplyReply, CheckReply, DiffReply, Done};
use crate::config::{Device, DeviceKind, PUNT, same_device};
use crate::control::{Control, State, done};
use crate::error::{Fault, Refusal, RefusalKind};
use crate::file;
use crate::mirror::Plan;
use crate::render::count;

/// A change that devices or routes did not allow.
#[derive(Debug)]
pub(crate) struct Failed {
    /// The interface, if it is about one.
    pub interface: Option<String>,
    /// Why: a sentence.
    pub reason: String,
}

impl Failed {
    /// The sentence with the interface that it is about.
    fn sentence(&self) -> String {
        match &self.interface {
            Some(name) => format!("interface `{name}`: {}", self.reason),
            None => self.reason.clone(),
        }
    }
}

impl Control {
    pub(crate) fn add_interface(&self, name: &Word, kind: &PortKind) -> Result<Done, Fault> {
        let (_turn, state) = self.begin();
        let mut next = state.clone();
        let retry = state.config.interface(name).map(|i| i.id).filter(|&id| !state.is_up(id));
        let id = match retry {
            Some(id) => next.config.set_kind(name, kind).map(|()| id),
            None => next.config.add_interface(name, kind, None),
        }?;
        next.down.remove(&id);
        if let Err(failed) = self.go(state, &next) {
            if retry.is_some() {
                let mut state = self.present();
                state.down.insert(id, failed.reason.clone());
                self.commit(state);
            }
            return Err(Fault::new(RefusalKind::Failed, failed.reason, name.span));
        }
        self.commit(next);
        Ok(done(format!("interface {} added: {kind}", &**name)))
    }

    pub(crate) fn delete_interface(&self, name: &Word) -> Result<Done, Fault> {
        let (_turn, state) = self.begin();
        let mut next = state.clone();
        let id = next.config.delete_interface(name)?;
        next.down.remove(&id);
        self.go(state, &next).map_err(|failed| Fault::new(RefusalKind::Failed, failed.reason, name.span))?;
        self.commit(next);
        Ok(done(format!("interface {} deleted", &**name)))
    }

    /// Makes `text` the configuration: all of it or nothing.
    pub fn apply(&self, text: &[u8]) -> Result<ApplyReply, Refusal> {
        let (_turn, old) = self.begin();
        let config = file::load(text, &old.config)?;
        let mut new = State { config, ..State::default() };
        let before = old.config.policy().clone();
        self.go(old, &new).map_err(|failed| Refusal::failed(failed.sentence()))?;
        let freed = freed_slots(&before, new.config.policy());
        let removed = freed.len() as u64;
        self.release(&mut new.config, freed);
        let kept = before.len() as u64 - removed;
        let rules = new.config.policy().len() as u64;
        let interfaces = new.config.interfaces().len() as u64;
        self.commit(new);
        let added = rules - kept;
        let (r, i) = (count(rules, "rule"), count(interfaces, "interface"));
        let done = format!("{r} ({added} added, {removed} removed, {kept} kept), {i}");
        Ok(ApplyReply { done, rules, added, removed, kept, interfaces })
    }

    /// Whether `text` is right as a configuration of its own, here.
    pub fn check(&self, text: &[u8]) -> Result<CheckReply, Refusal> {
        file::check(text, &self.present().config)
    }

    /// What [`Control::apply`] would change.
    pub fn diff(&self, text: &[u8]) -> Result<DiffReply, Refusal> {
        let present = self.present().config;
        let next = file::load(text, &present)?;
        Ok(file::diff(&present, &next))
    }

    /// Makes the engine go from `old`, which it runs, to `new`: devices, routes, and what is published. On failure all is as
    /// before, except for a device that was closed and cannot be opened again: its interface is down then.
    pub(crate) fn go(&self, mut old: State, new: &State) -> Result<(), Failed> {
        let exchange = Exchange::between(&old, new);
        self.exchange(&mut old, &exchange)?;
        let (before, after) = (Plan::of(&old), Plan::of(new));
        if let Err(failed) = self.mirror().set(self.engine(), before.and(&after)) {
            exchange.opened.iter().for_each(|opened| self.engine().close_port(opened.id));
            let lost = self.reopen(&mut old, &exchange.closed_first);
            self.mirror().set_if_possible(self.engine(), Plan::of(&old));
            return Err(Failed { interface: None, reason: format!("{failed}{lost}") });
        }
        self.publish(new);
        self.mirror().set_if_possible(self.engine(), after);
        exchange.closed_last.into_iter().for_each(|id| self.engine().close_port(id));
        Ok(())
    }

    /// Opens the devices that a new configuration adds, if all of them can be.
    fn exchange(&self, state: &mut State, exchange: &Exchange) -> Result<(), Failed> {
        if !exchange.closed_first.is_empty() {
            let mut without = state.clone();
            exchange.closed_first.iter().for_each(|device| put_down(&mut without, device, ""));
            self.publish(&without);
            exchange.closed_first.iter().for_each(|old| self.engine().close_port(old.id));
        }
        for (n, device) in exchange.opened.iter().enumerate() {
            if let Err(reason) = self.open(device) {
                exchange.opened[..n].iter().for_each(|opened| self.engine().close_port(opened.id));
                let lost = self.reopen(state, &exchange.closed_first);
                let interface = device.interface.map(|_| device.name.clone());
                return Err(Failed { interface, reason: format!("{reason}{lost}") });
            }
        }
        Ok(())
    }

    /// Opens devices again that were closed for a change that failed; says which of them are lost.
    fn reopen(&self, state: &mut State, closed: &[Device]) -> String {
        let mut lost = String::new();
        let open = state.config.devices(|id| state.is_up(id));
        for old in closed {
            if let Err(reason) = self.open(old) {
                lost.push_str(&format!("; interface `{}` could not be opened again: {reason}", old.name));
                put_down(state, old, &reason);
            }
        }
        if !closed.is_empty() {
            self.publish(state);
            self.close_idle(state, &open);
            self.commit(state.clone());
        }
        lost
    }

    /// Opens whatever can be opened of a configuration that nothing runs of yet; the rest is down.
    pub(crate) fn open_what_opens(&self, state: &mut State) {
        for device in state.config.devices(|_| true) {
            if device.interface.is_none_or(|id| state.is_up(id))
                && let Err(reason) = self.open(&device)
            {
                put_down(state, &device, &reason);
            }
        }
        if let Err(failed) = self.mirror().set(self.engine(), Plan::of(state)) {
            let reason = failed.to_string();
            for id in state.config.interfaces().iter().filter(|i| i.routed.is_some()).map(|i| i.id) {
                state.down.entry(id).or_insert_with(|| reason.clone());
            }
            self.mirror().set_if_possible(self.engine(), Plan::of(state));
        }
        self.close_idle(state, &state.config.devices(|_| true));
    }

    /// Closes those of `devices` that no interface needs that is up.
    fn close_idle(&self, state: &State, devices: &[Device]) {
        let needed = state.config.devices(|id| state.is_up(id));
        let idle = devices.iter().filter(|device| !needed.contains(device));
        idle.for_each(|device| self.engine().close_port(device.id));
    }

    /// Opens a device.
    fn open(&self, device: &Device) -> Result<(), String> {
        let name = &device.name;
        // The TAP driver would join an interface that is there.
        if device.kind != DeviceKind::Port(device.port_kind()) && if_nametoindex(name.as_str()).is_ok() {
            return Err(match device.kind {
                DeviceKind::Punt => format!(
                    "there is an interface {name} in the kernel already, by which packets of routed AF_XDP ports are to reach \
                     the kernel; is another mmb daemon running in this network namespace?"
                ),
                _ => format!(
                    "there is an interface {name} in the kernel already, so the twin of the routed port cannot be called that; \
                     give the port another name, or delete the other one with `ip link del {name}`"
                ),
            });
        }
        let opened = self.engine().open_port(device.id, name, &device.port_kind());
        if opened.is_ok() && device.kind == DeviceKind::Punt {
            prepare_punt();
        }
        opened.map_err(|error| match device.kind {
            DeviceKind::Port(_) => error.to_string(),
            DeviceKind::Twin => format!("its twin in the kernel: {error}"),
            DeviceKind::Punt => format!("{name}, by which routed AF_XDP ports reach the kernel: {error}"),
        })
    }
}

/// Makes the kernel take packets from [`PUNT`] though routes to their senders lead by other interfaces, and speak no IPv6
/// of its own there. Where it cannot, what it does by itself is mostly right.
fn prepare_punt() {
    let path =
        |family: &str, name: &str, setting: &str| format!("/proc/sys/net/{family}/conf/{name}/{setting}");
    let set = |family, setting, value| drop(std::fs::write(path(family, PUNT, setting), value));
    // The stricter of what is set for all and for the interface counts, except that loose (2) wins over strict (1).
    let all = std::fs::read_to_string(path("ipv4", "all", "rp_filter"));
    set("ipv4", "rp_filter", if all.is_ok_and(|value| value.trim() != "0") { "2" } else { "0" });
    set("ipv6", "addr_gen_mode", "1");
    set("ipv6", "accept_ra", "0");
}

/// Notes that the interfaces that cannot do without a device are down.
fn put_down(state: &mut State, device: &Device, reason: &str) {
    let needs = |id: PortId| match device.interface {
        Some(interface) => id == interface,
        None => state.config.devices(|other| other == id).contains(device),
    };
    let ids: Vec<PortId> = state.config.interfaces().iter().map(|i| i.id).filter(|&id| needs(id)).collect();
    for id in ids {
        state.down.entry(id).or_insert_with(|| reason.to_owned());
    }
}

/// Slots of rules that `old` has and `new` has not.
fn freed_slots(old: &Policy, new: &Policy) -> Vec<u32> {
    let mut used = vec![false; old.slots().max(new.slots())];
    for view in new.rules() {
        used[view.slot as usize] = true;
    }
    old.rules().map(|view| view.slot).filter(|&slot| !used[slot as usize]).collect()
}

/// Which devices a change opens and closes.
struct Exchange {
    /// To open.
    opened: Vec<Device>,
    /// To close before anything is opened: their device or their id is used again.
    closed_first: Vec<Device>,
    /// To close when nobody uses them any more.
    closed_last: Vec<PortId>,
}

impl Exchange {
    fn between(old: &State, new: &State) -> Exchange {
        let present = old.config.devices(|id| old.is_up(id));
        let next = new.config.devices(|id| new.is_up(id));
        let opened: Vec<Device> = next.iter().filter(|device| !present.contains(device)).cloned().collect();
        let again = |old: &Device| {
            opened.iter().any(|new| new.id == old.id || same_device(&new.port_kind(), &old.port_kind()))
        };
        let closed = present.into_iter().filter(|device| !next.contains(device));
        let (closed_first, closed_last): (Vec<_>, Vec<_>) = closed.partition(again);
        Exchange { opened, closed_first, closed_last: closed_last.iter().map(|device| device.id).collect() }
    }
}
