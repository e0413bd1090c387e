//! `mmb run`: the daemon in the foreground.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;

use mmb_control::count;
use mmb_control::{Config, Control, ControlSocket, DownInterface, Platform, default_path, serve};
use mmb_dataplane::{Engine, EngineConfig};
use mmb_nf::Registry;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::RunArgs;
use crate::failure::{Failure, print};
use crate::offline::load;
use crate::state_dir;

/// Runs until SIGINT or SIGTERM.
pub fn run(args: &RunArgs, functions: Arc<Registry>, socket: Option<PathBuf>) -> Result<(), Failure> {
    let state = state_dir::open(args.state_dir.as_deref(), nix::unistd::geteuid().is_root())?;
    let files = Arc::new(state.files);
    let base = Config::with_platform(Platform {
        functions,
        workers: u16::try_from(args.workers).unwrap_or(u16::MAX),
        // An unpredictable number: the standard library seeds its hash tables from the system.
        seed: RandomState::new().hash_one(0),
        scratchpad: args.scratchpad,
        files: files.clone(),
    });
    // Errors of the file and the socket are found before any device is opened.
    let config = args.config.as_deref().map_or_else(|| Ok(base.clone()), |path| load(path, &base))?;
    // The file of the administrator has named what it needs. Clients may name no other files.
    files.seal();
    let path = socket.map_or_else(default_path, Ok).map_err(Failure::new)?;
    let mut socket = ControlSocket::bind(&path).map_err(Failure::new)?;
    let Some(listener) = socket.take_listener() else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("mmb-control")
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| Failure::new(format!("cannot start the control threads: {e}")))?;
    // From here on, a signal stops the daemon in good order.
    let signals = runtime.block_on(async { Signals::new() })?;
    let size = EngineConfig {
        workers: args.workers,
        memory_mb: args.memory,
        sessions: args.sessions,
        scratchpad: args.scratchpad,
        files,
        ..EngineConfig::default()
    };
    let engine = Engine::start(&size).map_err(Failure::new)?;
    let (control, down) = Control::start(engine, config);
    let control = Arc::new(control);
    print(&report(&control, &down))?;
    if let Some(warning) = &state.warning {
        eprintln!("error: {warning}");
    }
    for interface in &down {
        eprintln!("error: interface `{}` is down: {}", interface.name, interface.reason);
    }
    print(&format!("listening on {}\n", path.display()))?;
    notify(&[NotifyState::Ready]);
    let stop = async {
        let name = signals.wait().await;
        notify(&[NotifyState::Stopping]);
        // A closed standard output does not keep the daemon from stopping.
        let _ = print(&format!("{name}: stopping\n"));
    };
    let served = runtime.block_on(serve(control.clone(), listener, stop));
    // Open requests hold the control. They end before the engine does.
    drop(runtime);
    drop(control);
    drop(socket);
    served.map_err(|e| Failure::new(format!("cannot serve {}: {e}", path.display())))
}

/// Notifies the service manager, if there is one.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        eprintln!("error: cannot notify the service manager: {e}");
    }
}

/// The start message: interfaces, wires, routed interfaces and rules.
fn report(control: &Control, down: &[DownInterface]) -> String {
    let version = control.version();
    let mut text = format!("mmb {}: {}\n", version.version, version.engine);
    let interfaces = control.interfaces().interfaces;
    for i in interfaces.iter().filter(|i| !down.iter().any(|d| d.name == i.name)) {
        let link = if i.link { "" } else { ", no link" };
        text.push_str(&format!(
            "interface {}: {} ({}, mac {}, mtu {}{link})\n",
            i.name, i.kind, i.driver, i.mac, i.mtu
        ));
        for note in &i.notes {
            text.push_str(&format!("interface {}: {note}\n", i.name));
        }
    }
    for (n, i) in interfaces.iter().enumerate() {
        if let Some(peer) = i.wire.as_ref().filter(|peer| interfaces[n..].iter().any(|j| j.name == **peer)) {
            text.push_str(&format!("wire {} {peer}\n", i.name));
        }
    }
    for i in &interfaces {
        if let Some(routed) = &i.routed {
            text.push_str(&format!("route {}, with the addresses of {}\n", i.name, routed.interface));
        }
    }
    text.push_str(&format!("{}\n", count(version.rules, "rule")));
    text
}

/// The signals that stop the daemon.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Signals, Failure> {
        let listen = |kind| signal(kind).map_err(|e| Failure::new(format!("cannot listen for signals: {e}")));
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn wait(mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
