//! Messages between the daemon and the process of a broker.

use std::net::SocketAddr;
use std::path::PathBuf;

use mmb_nf::process::{FunctionCopies, HostedSpec};
use mmb_nf::{Instance, ServerState};
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// The first message. Descriptors: the socket for connections and files, the page, the bell, the socket for
/// lines of logs, and the listening socket if there is one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub functions: Vec<Function>,
    pub settings: Settings,
    pub is_transparent: bool,
    pub has_listener: bool,
    /// The processor on which the process runs.
    pub cpu: Option<u16>,
    /// The priority of the engine.
    pub priority: i32,
}

/// A function that the process makes a copy of.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Function {
    pub id: u64,
    name: String,
    kind: String,
    args: Vec<String>,
    ports: Vec<(String, u16)>,
    seed: u64,
    /// Settings since the function was made.
    pub settings: Vec<Vec<String>>,
    servers: Servers,
}

/// States of servers: down, draining, passed checks, failed checks.
pub(super) type Servers = Vec<(bool, bool, u64, u64)>;

impl Function {
    pub fn of(instance: &Instance, copies: &FunctionCopies) -> Function {
        let HostedSpec { name, kind, args, ports, seed, .. } = copies.spec().clone();
        let settings = copies.settings();
        Function { id: copies.id(), name, kind, args, ports, seed, settings, servers: states_of(instance) }
    }

    pub fn spec(&self) -> HostedSpec {
        let Function { name, kind, args, ports, seed, .. } = self;
        HostedSpec {
            name: name.clone(),
            kind: kind.clone(),
            args: args.clone(),
            ports: ports.clone(),
            workers: 0,
            seed: *seed,
        }
    }

    /// Sets the states of a copy's servers.
    pub fn set_states(&self, copy: &Instance) {
        set_states(copy, &self.servers);
    }
}

/// Returns the states of the servers that a function knows.
pub(super) fn states_of(instance: &Instance) -> Servers {
    let states = instance.l7().and_then(|function| function.servers()).map(|servers| servers.states());
    let one = |state: ServerState| (state.is_down, state.is_draining, state.passed, state.failed);
    states.into_iter().flatten().map(one).collect()
}

/// Sets the states of the servers that a copy knows.
pub(super) fn set_states(copy: &Instance, states: &Servers) {
    if let Some(servers) = copy.l7().and_then(|function| function.servers()) {
        let one = |&(is_down, is_draining, passed, failed): &(bool, bool, u64, u64)| ServerState {
            is_down,
            is_draining,
            passed,
            failed,
        };
        servers.set_states(&states.iter().map(one).collect::<Vec<_>>());
    }
}

/// From the daemon to a process that runs. The process replies to each in its turn.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Make copies.
    Make(Vec<Function>),
    /// Use copies, in this order. All others are dropped when no request passes them any more.
    Update(Vec<u64>, Settings),
    /// Accept no connections.
    Pause,
    /// Accept connections from the descriptor.
    Resume,
    /// Finish all exchanges, and end.
    Drain,
    /// Change a setting of a function.
    Set(u64, Vec<String>),
    /// Report on a function.
    Report(u64),
    /// The states of a function's servers.
    Servers(u64, Servers),
}

/// From a process to the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The broker runs.
    Ready,
    /// The request was executed, or was not.
    Done(Result<(), String>),
    Report(Vec<(String, String)>),
    /// The broker does not run. [`mmb_fabric::run_function`] sends it.
    Failed(String),
}

/// What a process needs the daemon for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Need {
    /// A connection to a server. Descriptor, if the broker is transparent: the connection of the client for
    /// which it is.
    Connection(SocketAddr),
    /// A file that a function reads.
    File(PathBuf),
    /// A reset of the connection that is the descriptor. There is no reply.
    Reset,
}

/// The descriptor is a socket that is being connected, or the file. Otherwise: the error of the operating
/// system.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NeedReply(pub Result<(), i32>);
