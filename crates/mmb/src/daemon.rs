//! `mmb run`: the daemon in the foreground.

mod end;
mod handover;
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
    AuditFile, Config, Control, ControlSocket, DownInterface, Limits, Listeners, NetworkAccess,
    NetworkListener, Platform, RestoredSessions, SocketGroups, Starting, default_path, file, serve,
};
use mmb_dataplane::{Engine, EngineConfig};
use mmb_fabric::{Host, Supervisor};
use mmb_nf::Registry;
use mmb_system::{FileAccess, log};
use sd_notify::NotifyState;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use end::{End, Signals};
use handover::Predecessor;
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
    let base = Config::with_platform(platform(args, functions, files.clone(), processes.clone()));
    let path = socket.map_or_else(default_path, Ok).map_err(Failure::new)?;
    let predecessor = args.takeover.then(|| Predecessor::connect(&path)).transpose()?;
    // Errors of the file and the socket are found before any device is opened.
    let config = first_config(args, predecessor.as_ref(), &base)?;
    // The file of the administrator has named what it needs. Clients may name no other files.
    files.seal();
    let access = args.network.access()?;
    let audit = args.audit.as_deref().map(open_audit).transpose()?;
    let origin = match predecessor {
        Some(predecessor) => Origin::Predecessor(predecessor),
        None => Origin::Bound(bind(args, access.as_ref(), &path)?),
    };
    let mut directories: Vec<&Path> = files.directory().into_iter().chain(files.state()).collect();
    // The socket is removed from its directory at the end. The default one is the daemon's own.
    directories.extend(args.audit.as_deref());
    directories.extend(path.parent().filter(|parent| *parent == Path::new("/run/mmb")));
    let namespace = privileges::restrict(&wanted(args, &config, directories))?;
    log::install();
    let runtime = runtime()?;
    // From here on, a signal stops the daemon in good order, in a limited time.
    let (signals, hangups) = runtime.block_on(async { (Signals::new(), reload::hangups()) });
    let (signals, hangups) = (signals?, hangups?);
    let signalled = runtime.spawn(signals.wait());
    let storage = files.state().map(|state| SessionStorage::new(state, &path));
    let engine = Engine::start(&engine_size(args, files)).map_err(Failure::new)?;
    processes.begin(engine.packet_memory());
    let (mut socket, starting, mut predecessor) = match origin {
        Origin::Bound(socket) => {
            let sessions = storage.as_ref().and_then(|storage| storage.take(args.sessions));
            (socket, Control::restore_first(engine, config, namespace, sessions), None)
        }
        Origin::Predecessor(mut predecessor) => {
            Control::prepare(&engine, &config);
            let copies = predecessor.copy_sessions()?;
            let mut starting = Control::restore_first(engine, config, namespace, Some(copies));
            let socket = take_over(args, &mut starting, access.as_ref(), &mut predecessor)?;
            (socket, starting, Some(predecessor))
        }
    };
    let Some(listeners) = socket.take_listeners() else { return Ok(()) };
    predecessor.as_mut().map_or(Ok(()), Predecessor::wait_for_ports)?;
    let (control, down, restored) = starting.open();
    let control = Arc::new(control);
    if let Some(file) = args.config.as_ref().or_else(|| predecessor.as_ref()?.file.as_ref()) {
        set_file(&control, file);
    }
    control.set_syslog_socket(args.syslog_socket.clone());
    if let Some(predecessor) = predecessor {
        predecessor.finish()?;
        socket.set_removed(true);
    }
    if let Some(audit) = audit.clone() {
        control.set_audit(audit);
    }
    runtime.spawn(reload::run(control.clone(), access, audit, hangups));
    log_start(&control, &down, restored, state.warning.as_deref());
    if args.seed.is_some() {
        log::error("warning: the secrets are predictable, because --seed is set; it is for tests only\n");
    }
    log::info(addresses(&path, &listeners));
    notify(&[NotifyState::Ready]);
    runtime.spawn(keep_watchdog());
    Running { control, runtime, socket, path, storage }.serve(listeners, signalled)
}

/// Tells which file SIGHUP reads. The directory of the process may change; a name from the root stays valid.
fn set_file(control: &Control, file: &Path) {
    control.set_file(std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
}

/// Opens the audit file, which clients cannot name.
fn open_audit(path: &Path) -> Result<Arc<AuditFile>, Failure> {
    // The directory of the process may change, and the file is opened again.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let failed = |e| Failure::new(format!("cannot open the audit file {}: {e}", path.display()));
    AuditFile::open(&path).map(Arc::new).map_err(failed)
}

/// Where the control socket comes from.
enum Origin {
    /// It is new.
    Bound(ControlSocket),
    /// A running daemon has it, and will hand it over.
    Predecessor(Predecessor),
}

/// A daemon that has started.
struct Running {
    control: Arc<Control>,
    runtime: Runtime,
    socket: ControlSocket,
    path: PathBuf,
    storage: Option<SessionStorage>,
}

impl Running {
    /// Serves until something stops the daemon, and ends everything in good order.
    fn serve(self, listeners: Listeners, signalled: JoinHandle<End>) -> Result<(), Failure> {
        let Running { control, runtime, mut socket, path, storage } = self;
        let mut end = None;
        let taken_over = handover::serve(control.clone(), socket.descriptors(), &path);
        let stop = async { end = Some(stop_reason(&control, signalled, taken_over).await) };
        let served = runtime.block_on(serve(control.clone(), listeners, Limits::default(), stop));
        end::limit_time();
        if let (Some(storage), Some(End::Signal(_))) = (storage, &end) {
            storage.save(&control);
        }
        socket.set_removed(!matches!(end, Some(End::TakenOver(_))));
        // Open requests hold the control. They end before the engine does.
        runtime.shutdown_timeout(REQUESTS);
        drop(control);
        drop(socket);
        log::flush(end::FLUSH);
        served.map_err(|e| Failure::new(format!("cannot serve {}: {e}", path.display())))?;
        end::outcome(end)
    }
}

/// Waits for something that stops the daemon.
async fn stop_reason(
    control: &Control,
    signalled: JoinHandle<End>,
    taken_over: impl Future<Output = u32>,
) -> End {
    let failed = end::failure_of(control);
    let reason = tokio::select! {
        signal = signalled => signal.unwrap_or(End::Signal("a panic")),
        failure = failed => failure,
        process = taken_over => End::TakenOver(process),
    };
    match reason {
        End::TakenOver(process) => {
            end::limit_time();
            notify(&[NotifyState::MainPid(process)]);
            log::info(format!("process {process} has taken over: stopping\n"));
        }
        End::Signal(name) => {
            notify(&[NotifyState::Stopping]);
            log::info(format!("{name}: stopping\n"));
        }
        End::Failure(_) => notify(&[NotifyState::Stopping]),
    }
    reason
}

/// The platform of functions.
fn platform(
    args: &RunArgs,
    functions: Arc<Registry>,
    files: Arc<FileAccess>,
    processes: Arc<Host>,
) -> Platform {
    Platform {
        functions,
        workers: u16::try_from(args.workers).unwrap_or(u16::MAX),
        // An unpredictable number: the standard library seeds its hash tables from the system.
        seed: args.seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
        scratchpad: args.scratchpad,
        files,
        supervisor: Some(processes.supervisor().clone()),
        processes: Some(processes),
    }
}

/// The configuration to start with: that of a file, of the daemon that is taken over, or an empty one.
fn first_config(args: &RunArgs, predecessor: Option<&Predecessor>, base: &Config) -> Result<Config, Failure> {
    match (&args.config, predecessor) {
        (Some(path), _) => load(path, base),
        (None, Some(Predecessor { text, .. })) => file::load_transferred(text.as_bytes(), base)
            .map_err(|refusal| Failure::of_file("the running configuration", text.as_bytes(), &refusal)),
        (None, None) => Ok(base.clone()),
    }
}

/// Listens on the control socket, and by TCP.
fn bind(args: &RunArgs, access: Option<&Arc<NetworkAccess>>, path: &Path) -> Result<ControlSocket, Failure> {
    let groups = SocketGroups { operators: args.group.clone(), readers: args.read_group.clone() };
    let mut socket = ControlSocket::bind(path, &groups).map_err(Failure::new)?;
    open_services(args, access, &mut socket)?;
    Ok(socket)
}

/// Listens by TCP.
fn open_services(
    args: &RunArgs,
    access: Option<&Arc<NetworkAccess>>,
    socket: &mut ControlSocket,
) -> Result<(), Failure> {
    let metrics = args.metrics.map(|address| listen(socket, address, "metrics")).transpose()?;
    let network = access.map(|access| args.network.listen(access, socket)).transpose()?;
    socket.set_services(metrics, network.unwrap_or_default()).map_err(Failure::new)
}

/// Takes the control socket of the daemon that is taken over, and the sessions that have changed.
fn take_over(
    args: &RunArgs,
    starting: &mut Starting,
    access: Option<&Arc<NetworkAccess>>,
    predecessor: &mut Predecessor,
) -> Result<ControlSocket, Failure> {
    let (mut socket, changes) = predecessor.take(|| starting.engine().discard_received())?;
    starting.restore_changes(changes);
    open_services(args, access, &mut socket)?;
    Ok(socket)
}

/// The size of the engine.
fn engine_size(args: &RunArgs, files: Arc<FileAccess>) -> EngineConfig {
    let default = EngineConfig::default();
    EngineConfig {
        workers: args.workers,
        memory_mb: args.memory.unwrap_or(default.memory_mb),
        registers_all: args.memory.is_some(),
        sessions: args.sessions,
        scratchpad: args.scratchpad,
        files,
        seed: args.seed,
        ..default
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
fn log_start(
    control: &Control,
    down: &[DownInterface],
    restored: Option<RestoredSessions>,
    warning: Option<&str>,
) {
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
    if let Some(restored) = restored {
        log::info(format!("{restored}\n"));
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
