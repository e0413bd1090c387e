//! `mmb run`: the daemon in the foreground.

mod end;
mod privileges;
mod reload;
mod seccomp;
mod sessions;

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mmb_control::count;
use mmb_control::{
    Config, Control, ControlSocket, DownInterface, Limits, Listeners, NetworkListener, Platform,
    SocketGroups, default_path, serve,
};
use mmb_dataplane::{Engine, EngineConfig};
use mmb_fabric::{Host, Supervisor};
use mmb_nf::Registry;
use mmb_system::{FileAccess, log};
use sd_notify::NotifyState;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use end::{End, Signals};
use privileges::Wanted;
use sessions::SessionStorage;

use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::network::listen;
use crate::offline::load;
use crate::state_dir;

/// Time that requests get to end after the server has stopped.
const REQUESTS: Duration = Duration::from_secs(1);

/// Runs until SIGINT, SIGTERM, or a failure of the engine.
pub fn run(args: &RunArgs, functions: Arc<Registry>, socket: Option<PathBuf>) -> Result<(), Failure> {
    let state = state_dir::open(args.state_dir.as_deref(), rustix::process::geteuid().is_root())?;
    let files = Arc::new(state.files);
    let processes = process_host(args)?;
    let base = base(args, functions, files.clone(), processes.clone());
    // Errors of the file and the socket are found before any device is opened.
    let config = args.config.as_deref().map_or_else(|| Ok(base.clone()), |path| load(path, &base))?;
    // The file of the administrator has named what it needs. Clients may name no other files.
    files.seal();
    let path = socket.map_or_else(default_path, Ok).map_err(Failure::new)?;
    let groups = SocketGroups { operators: args.group.clone(), readers: args.read_group.clone() };
    let mut socket = ControlSocket::bind(&path, &groups).map_err(Failure::new)?;
    let Some(mut listeners) = socket.take_listeners() else { return Ok(()) };
    listeners.metrics = args.metrics.map(|address| listen(address, "metrics")).transpose()?;
    listeners.network = args.network.listen()?;
    let access = listeners.network.first().map(|listener| listener.access.clone());
    let addresses = addresses(&path, &listeners);
    let mut directories: Vec<&Path> = files.directory().into_iter().chain(files.state()).collect();
    // The socket is removed from its directory at the end. The default one is the daemon's own.
    directories.extend(path.parent().filter(|parent| *parent == Path::new("/run/mmb")));
    let namespace = privileges::restrict(&wanted(args, &config, directories))?;
    log::install();
    processes.begin();
    let runtime = runtime()?;
    // From here on, a signal stops the daemon in good order, in a limited time.
    let (signals, hangups) = runtime.block_on(async { (Signals::new(), reload::hangups()) });
    let (signals, hangups) = (signals?, hangups?);
    let signalled = runtime.spawn(signals.wait());
    let storage = files.state().map(|state| SessionStorage::new(state, &path));
    let engine = Engine::start(&engine_size(args, files)).map_err(Failure::new)?;
    let sessions = storage.as_ref().and_then(|storage| storage.take(args.sessions));
    let (control, down, restored) = Control::start_with(engine, config, namespace, sessions);
    let control = Arc::new(control);
    if let Some(file) = &args.config {
        // The directory of the process may change; a name from the root stays valid.
        control.set_file(std::path::absolute(file).unwrap_or_else(|_| file.clone()));
    }
    runtime.spawn(reload::run(control.clone(), access, hangups));
    log_start(&control, &down, state.warning.as_deref());
    if let Some(restored) = restored {
        log::info(format!("{restored}\n"));
    }
    if args.seed.is_some() {
        log::error("warning: the secrets are predictable, because --seed is set; it is for tests only\n");
    }
    log::info(addresses);
    notify(&[NotifyState::Ready]);
    runtime.spawn(keep_watchdog());
    let mut end = None;
    let stop = async { end = Some(stop_reason(&control, signalled).await) };
    let served = runtime.block_on(serve(control.clone(), listeners, Limits::default(), stop));
    end::limit_time();
    if let (Some(storage), Some(End::Signal(_))) = (storage, &end) {
        storage.save(&control);
    }
    // Open requests hold the control. They end before the engine does.
    runtime.shutdown_timeout(REQUESTS);
    drop(control);
    drop(socket);
    log::flush(end::FLUSH);
    served.map_err(|e| Failure::new(format!("cannot serve {}: {e}", path.display())))?;
    end::outcome(end)
}

/// Waits for something that stops the daemon.
async fn stop_reason(control: &Control, signalled: JoinHandle<End>) -> End {
    let failed = end::failure_of(control);
    let reason = tokio::select! {
        signal = signalled => signal.unwrap_or(End::Signal("a panic")),
        failure = failed => failure,
    };
    notify(&[NotifyState::Stopping]);
    if let End::Signal(name) = reason {
        log::info(format!("{name}: stopping\n"));
    }
    reason
}

/// The configuration before any file.
fn base(args: &RunArgs, functions: Arc<Registry>, files: Arc<FileAccess>, processes: Arc<Host>) -> Config {
    Config::with_platform(Platform {
        functions,
        workers: u16::try_from(args.workers).unwrap_or(u16::MAX),
        // An unpredictable number: the standard library seeds its hash tables from the system.
        seed: args.seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
        scratchpad: args.scratchpad,
        files,
        processes: Some(processes),
    })
}

/// The size of the engine.
fn engine_size(args: &RunArgs, files: Arc<FileAccess>) -> EngineConfig {
    EngineConfig {
        workers: args.workers,
        memory_mb: args.memory,
        sessions: args.sessions,
        scratchpad: args.scratchpad,
        files,
        seed: args.seed,
        ..EngineConfig::default()
    }
}

/// The rights that the daemon keeps.
fn wanted<'a>(args: &'a RunArgs, config: &Config, directories: Vec<&'a Path>) -> Wanted<'a> {
    let low_ports = args.low_ports || config.brokers().has_low_ports();
    Wanted { user: args.user.as_deref(), any_system_call: args.no_seccomp, low_ports, directories }
}

/// Starts the supervisor of functions in processes: the daemon itself may start none later.
fn process_host(args: &RunArgs) -> Result<Arc<Host>, Failure> {
    let failed = |e| Failure::new(format!("cannot start the supervisor of functions: {e}"));
    let sessions = u32::try_from(args.sessions).unwrap_or(u32::MAX);
    Supervisor::start().map(|supervisor| Arc::new(Host::new(supervisor, sessions))).map_err(failed)
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("mmb-control")
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| Failure::new(format!("cannot start the control threads: {e}")))
}

/// Logs what runs, and what does not.
fn log_start(control: &Control, down: &[DownInterface], warning: Option<&str>) {
    log::info(report(control, down));
    if let Some(warning) = warning {
        log::error(format!("error: {warning}\n"));
    }
    for (name, reason) in control.brokers_down() {
        log::error(format!("error: broker `{name}` is down: {reason}\n"));
    }
    for interface in down {
        log::error(format!("error: interface `{}` is down: {}\n", interface.name, interface.reason));
    }
}

/// Lines that tell where the daemon listens.
fn addresses(socket: &Path, listeners: &Listeners) -> String {
    let mut text = format!("listening on {}\n", socket.display());
    if let Some(Ok(address)) = listeners.metrics.as_ref().map(TcpListener::local_addr) {
        text.push_str(&format!("metrics on http://{address}/metrics\n"));
    }
    for NetworkListener { socket, access, has_page } in &listeners.network {
        if let Ok(address) = socket.local_addr() {
            let service = if *has_page { "web page" } else { "API" };
            let scheme = if access.has_tls() { "https" } else { "http" };
            text.push_str(&format!("{service} on {scheme}://{address}\n"));
        }
    }
    text
}

/// Notifies the service manager, if there is one.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        log::error(format!("error: cannot notify the service manager: {e}\n"));
    }
}

/// Tells the service manager that the control threads work, if it wants to know (`WatchdogSec=`). A worker
/// that hangs ends the daemon by itself.
async fn keep_watchdog() {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = tokio::time::interval(period / 2);
    loop {
        ticks.tick().await;
        notify(&[NotifyState::Watchdog]);
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
