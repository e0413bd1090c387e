//! Changes that open and close devices.
//!
//! Theory of operation. A device is opened before the configuration with its interface is published and closed after
//! one without is. Where a new interface needs the device of an old one, or its id, the old one goes first, and comes
//! back if the change fails.

use mmb_dataplane::PortId;
use mmb_lang::{PortKind, Word};
use mmb_policy::Policy;

use crate::api::{ApplyReply, DiffReply, Done};
use crate::config::{Config, Interface, same_device};
use crate::control::{Control, State, done};
use crate::error::{Fault, Refusal, RefusalKind};
use crate::file;
use crate::render::count;

impl Control {
    pub(crate) fn add_interface(&self, name: &Word, kind: &PortKind) -> Result<Done, Fault> {
        let (_turn, mut state) = self.begin();
        let retry = state.config.interface(name).map(|i| i.id).filter(|id| state.down.contains_key(id));
        let before = state.clone();
        let id = match retry {
            Some(id) => state.config.set_kind(name, kind).map(|()| id),
            None => state.config.add_interface(name, kind, None, &[]),
        }?;
        if let Err(error) = self.engine().open_port(id, name, kind) {
            let reason = error.to_string();
            if retry.is_some() {
                let mut state = before;
                state.down.insert(id, reason.clone());
                self.commit(state);
            }
            return Err(Fault::new(RefusalKind::Failed, reason, name.span));
        }
        state.down.remove(&id);
        self.publish(&state);
        self.commit(state);
        Ok(done(format!("interface {} added: {kind}", &**name)))
    }

    pub(crate) fn delete_interface(&self, name: &Word) -> Result<Done, Fault> {
        let (_turn, mut state) = self.begin();
        let id = state.config.delete_interface(name)?;
        state.down.remove(&id);
        self.publish(&state);
        self.engine().close_port(id);
        self.commit(state);
        Ok(done(format!("interface {} deleted", &**name)))
    }

    /// Makes `text` the configuration: all of it or nothing.
    pub fn apply(&self, text: &[u8]) -> Result<ApplyReply, Refusal> {
        let (_turn, mut old) = self.begin();
        let config = file::load(text, &old.config)?;
        let exchange = Exchange::between(&old, &config);
        self.exchange(&mut old, &exchange).map_err(Refusal::failed)?;
        let mut new = State { config, ..State::default() };
        self.publish(&new);
        for id in exchange.closed_last {
            self.engine().close_port(id);
        }
        let freed = freed_slots(old.config.policy(), new.config.policy());
        let removed = freed.len() as u64;
        self.release(&mut new.config, freed);
        let kept = old.config.policy().len() as u64 - removed;
        let rules = new.config.policy().len() as u64;
        let interfaces = new.config.interfaces().len() as u64;
        self.commit(new);
        let added = rules - kept;
        let (r, i) = (count(rules, "rule"), count(interfaces, "interface"));
        let done = format!("{r} ({added} added, {removed} removed, {kept} kept), {i}");
        Ok(ApplyReply { done, rules, added, removed, kept, interfaces })
    }

    /// What [`Control::apply`] would change.
    pub fn diff(&self, text: &[u8]) -> Result<DiffReply, Refusal> {
        let present = self.present().config;
        let next = file::load(text, &present)?;
        Ok(file::diff(&present, &next))
    }

    /// Opens the devices that a new configuration adds. On failure all is as before, except for a device that was
    /// closed and cannot be opened again: its interface is down then.
    fn exchange(&self, state: &mut State, exchange: &Exchange) -> Result<(), String> {
        if !exchange.closed_first.is_empty() {
            let mut without = state.clone();
            without.down.extend(exchange.closed_first.iter().map(|old| (old.id, String::new())));
            self.publish(&without);
            exchange.closed_first.iter().for_each(|old| self.engine().close_port(old.id));
        }
        for (n, new) in exchange.opened.iter().enumerate() {
            if let Err(error) = self.engine().open_port(new.id, &new.name, &new.kind) {
                exchange.opened[..n].iter().for_each(|opened| self.engine().close_port(opened.id));
                let lost = self.reopen(state, &exchange.closed_first);
                return Err(format!("interface `{}`: {error}{lost}", new.name));
            }
        }
        Ok(())
    }

    /// Opens devices again that were closed for a change that failed; says which of them are lost.
    fn reopen(&self, state: &mut State, closed: &[Interface]) -> String {
        let mut lost = String::new();
        for old in closed {
            if let Err(error) = self.engine().open_port(old.id, &old.name, &old.kind) {
                lost.push_str(&format!("; interface `{}` could not be opened again: {error}", old.name));
                state.down.insert(old.id, error.to_string());
            }
        }
        if !closed.is_empty() {
            self.publish(state);
            self.commit(state.clone());
        }
        lost
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

/// Which devices a new configuration opens and closes.
struct Exchange {
    /// To open.
    opened: Vec<Interface>,
    /// To close before anything is opened: their device or their id is used again.
    closed_first: Vec<Interface>,
    /// To close when nobody uses them any more.
    closed_last: Vec<PortId>,
}

impl Exchange {
    fn between(state: &State, next: &Config) -> Exchange {
        let open = |i: &&Interface| !state.down.contains_key(&i.id);
        let same = |old: &Interface, new: &Interface| old.name == new.name && old.kind == new.kind;
        let present: Vec<&Interface> = state.config.interfaces().iter().filter(open).collect();
        let is_new = |new: &&Interface| !present.iter().any(|old| same(old, new));
        let opened: Vec<Interface> = next.interfaces().iter().filter(is_new).cloned().collect();
        let again =
            |old: &Interface| opened.iter().any(|new| new.id == old.id || same_device(&new.kind, &old.kind));
        let closed = present.iter().filter(|old| !next.interfaces().iter().any(|new| same(old, new)));
        let (closed_first, closed_last): (Vec<_>, Vec<_>) = closed.map(|&old| old.clone()).partition(again);
        Exchange { opened, closed_first, closed_last: closed_last.iter().map(|i| i.id).collect() }
    }
}
