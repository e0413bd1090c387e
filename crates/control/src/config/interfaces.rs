//! Interfaces and wires.

use std::path::Path;
use std::sync::Arc;

use mmb_dataplane::{MAX_PORTS, PortId};
use mmb_lang::{PortKind, ReversePathMode, SourceSpan, Word};

use super::Config;
use super::devices::{device_text, kernel_interface, named_files, same_device};
use super::references::uses_interface;
use crate::error::CommandError;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name in the language.
    pub name: String,
    /// Port id in compiled rules and in the engine.
    pub id: PortId,
    /// Kind and device.
    pub kind: PortKind,
    /// The interface at the other end of its wire.
    pub peer: Option<PortId>,
    /// Whether rules apply to packets received here.
    pub enabled: bool,
    /// Present if the interface is routed.
    pub routed: Option<Routing>,
    /// How routes confirm sources of packets received here; none: as on other interfaces.
    pub reverse_path: Option<ReversePathMode>,
}

/// The routing of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// The port of its TAP twin; none for AF_XDP.
    pub twin: Option<PortId>,
}

/// The port id of the interface with this name.
pub(super) fn port_of(interfaces: &[Interface], name: &str) -> Option<u16> {
    interfaces.iter().find(|i| i.name == name).map(|i| i.id.0)
}

/// The error if no port id is free.
pub(super) fn no_free_port(at: SourceSpan) -> CommandError {
    let message =
        format!("there are {MAX_PORTS} ports already, which is the maximum; twins of routed ports count too");
    CommandError::conflict(message, at)
}

impl Config {
    /// Adds an interface. It gets the port id that its name has in `earlier`, or else the lowest that is free
    /// here and in `earlier`.
    ///
    /// # Errors
    /// The name or the device is in use, or no port id is free.
    pub fn add_interface(
        &mut self,
        name: &Word,
        kind: &PortKind,
        earlier: Option<&Config>,
    ) -> Result<PortId, CommandError> {
        if self.interface(name).is_some() {
            let message = format!("there is an interface `{}` already", &**name);
            return Err(CommandError::conflict(message, name.span));
        }
        self.check_device(name, kind)?;
        let keep = earlier.and_then(|earlier| earlier.interface(name)).map(|i| i.id);
        let id = keep
            .filter(|&id| !self.has_port(id))
            .or_else(|| self.free_ports(earlier).next())
            .ok_or_else(|| no_free_port(name.span))?;
        let kind = kind.clone();
        let interface = Interface {
            name: name.to_string(),
            id,
            kind,
            peer: None,
            enabled: true,
            routed: None,
            reverse_path: None,
        };
        Arc::make_mut(&mut self.interfaces).push(interface);
        Ok(id)
    }

    /// Gives an interface another device.
    ///
    /// # Errors
    /// There is no such interface, or the device is in use.
    pub fn set_kind(&mut self, name: &Word, kind: &PortKind) -> Result<(), CommandError> {
        let at = self.position(name)?;
        self.check_device(name, kind)?;
        Arc::make_mut(&mut self.interfaces)[at].kind = kind.clone();
        if self.interfaces[at].routed.is_some() { self.set_routed(at, name, None) } else { Ok(()) }
    }

    /// Checks that files of a device may be named, and that no other interface uses it.
    fn check_device(&self, name: &Word, kind: &PortKind) -> Result<(), CommandError> {
        for path in named_files(kind) {
            let checked = self.platform.files.check(Path::new(path));
            checked.map_err(|error| CommandError::forbidden(error.to_string(), name.span))?;
        }
        let others = || self.interfaces.iter().filter(|i| i.name != **name);
        if let Some(other) = others().find(|i| same_device(&i.kind, kind)) {
            let message = format!("{} is in use already, by interface `{}`", device_text(kind), other.name);
            return Err(CommandError::conflict(message, name.span));
        }
        match kernel_interface(kind).and_then(|ifname| self.own_kernel_interface(ifname)) {
            Some(purpose) => {
                let message = format!("{} is in use already: {purpose}", device_text(kind));
                Err(CommandError::conflict(message, name.span))
            }
            None => Ok(()),
        }
    }

    /// Deletes an interface and returns its port id.
    ///
    /// # Errors
    /// There is no such interface, or a wire, a rule or a function uses it, or it is routed.
    pub fn delete_interface(&mut self, name: &Word) -> Result<PortId, CommandError> {
        let at = self.position(name)?;
        let interface = &self.interfaces[at];
        let conflict = |message, help| Err(CommandError::conflict(message, name.span).help(help));
        if let Some(peer) = interface.peer.and_then(|id| self.interface_by_id(id)) {
            let message = format!("interface `{}` is wired to `{}`", interface.name, peer.name);
            return conflict(message, format!("`wire del {}` first", interface.name));
        }
        if interface.routed.is_some() {
            let message = format!("interface `{}` is routed", interface.name);
            return conflict(message, format!("`route del {}` first", interface.name));
        }
        if let Some(view) = self.policy.rules().find(|view| uses_interface(view, &interface.name)) {
            let message =
                format!("interface `{}` is used by rule {} (`{}`)", interface.name, view.index, view.text);
            return conflict(message, format!("`del {}` first", view.index));
        }
        if let Some(pool) = self.nat().followers(&interface.name).next() {
            let message = format!("NAT pool `{}` follows interface `{}`", &*pool.name, interface.name);
            return conflict(message, format!("`nat pool del {}` first", &*pool.name));
        }
        self.check_interface_unused(name)?;
        let id = self.interfaces[at].id;
        Arc::make_mut(&mut self.interfaces).remove(at);
        Ok(id)
    }

    /// Wires two interfaces. It is no error if they are wired to each other already.
    ///
    /// # Errors
    /// One of the interfaces does not exist, is routed, or is wired to another one.
    pub fn wire(&mut self, a: &Word, b: &Word) -> Result<(), CommandError> {
        let (i, j) = (self.position(a)?, self.position(b)?);
        if i == j {
            let message = format!("interface `{}` cannot be wired to itself", &**a);
            return Err(CommandError::invalid(message, b.span));
        }
        let (first, second) = (self.interfaces[i].id, self.interfaces[j].id);
        for (word, at, other) in [(a, i, second), (b, j, first)] {
            let Some(peer) = self.interfaces[at].peer.filter(|&p| p != other) else { continue };
            let peer = self.interface_by_id(peer).map_or("?", |p| &p.name);
            let message = format!("interface `{}` is wired to `{peer}` already", &**word);
            let error = CommandError::conflict(message, word.span);
            return Err(error.help(format!("`wire del {}` first", &**word)));
        }
        for (word, at) in [(a, i), (b, j)] {
            if self.interfaces[at].routed.is_some() {
                let message = format!("interface `{}` is routed, and so cannot be wired", &**word);
                let error = CommandError::conflict(message, word.span);
                return Err(error.help(format!("`route del {}` first", &**word)));
            }
        }
        let interfaces = Arc::make_mut(&mut self.interfaces);
        interfaces[i].peer = Some(second);
        interfaces[j].peer = Some(first);
        Ok(())
    }

    /// Deletes the wire of `a` and returns the name of the interface at its other end.
    ///
    /// # Errors
    /// There is no such interface, or it is not wired.
    pub fn unwire(&mut self, a: &Word) -> Result<String, CommandError> {
        let i = self.position(a)?;
        let Some(peer) = self.interfaces[i].peer else {
            let message = format!("interface `{}` is not wired", &**a);
            return Err(CommandError::conflict(message, a.span));
        };
        let interfaces = Arc::make_mut(&mut self.interfaces);
        interfaces[i].peer = None;
        let mut name = String::new();
        for other in interfaces.iter_mut().filter(|o| o.id == peer) {
            other.peer = None;
            name.clone_from(&other.name);
        }
        Ok(name)
    }

    /// Sets whether rules apply to packets received on these interfaces.
    ///
    /// # Errors
    /// One of the interfaces does not exist.
    pub fn set_enabled(&mut self, names: &[Word], enabled: bool) -> Result<(), CommandError> {
        let positions = names.iter().map(|n| self.position(n)).collect::<Result<Vec<_>, _>>()?;
        let interfaces = Arc::make_mut(&mut self.interfaces);
        for at in positions {
            interfaces[at].enabled = enabled;
        }
        Ok(())
    }

    /// Sets how routes confirm sources of packets that interfaces receive. None: as on other interfaces.
    ///
    /// # Errors
    /// One of the interfaces does not exist.
    pub fn set_reverse_path(
        &mut self,
        names: &[Word],
        mode: Option<ReversePathMode>,
    ) -> Result<(), CommandError> {
        let positions = names.iter().map(|n| self.position(n)).collect::<Result<Vec<_>, _>>()?;
        let interfaces = Arc::make_mut(&mut self.interfaces);
        for at in positions {
            interfaces[at].reverse_path = mode;
        }
        Ok(())
    }

    /// The position of an interface in the list.
    pub(super) fn position(&self, name: &Word) -> Result<usize, CommandError> {
        self.interfaces.iter().position(|i| i.name == **name).ok_or_else(|| self.unknown_interface(name))
    }

    /// The error for an interface that does not exist.
    pub(super) fn unknown_interface(&self, name: &Word) -> CommandError {
        let error = CommandError::not_found(format!("there is no interface `{}`", &**name), name.span);
        let known: Vec<_> = self.interfaces.iter().map(|i| i.name.as_str()).collect();
        match known.as_slice() {
            [] => error.help("add it first: `interface add NAME KIND …`".to_owned()),
            known => error.help(format!("there are: {}", known.join(", "))),
        }
    }
}
