//! The control socket: its path, its permissions, and the lock that allows one daemon only.
//!
//! Theory of operation. A daemon holds an exclusive `flock` on `PATH.lock` while it runs. The kernel releases
//! the lock when the daemon ends, for whatever reason. The holder of the lock may replace a socket on which
//! nobody listens: its daemon is dead. A daemon that does not get the lock knows that another one serves the
//! path. So two daemons that start at the same time cannot take the socket from each other. The lock file is
//! never removed. Otherwise a third daemon could lock a new file of the same name while a second one holds
//! the old file.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, geteuid};

use super::network::NetworkListener;

/// The group that may use the socket, if it exists.
const GROUP: &str = "mmb";
/// Mode of the socket: owner and group read and write.
const MODE: u32 = 0o660;
/// Maximum length of a path in a Unix socket address, without the final zero byte (unix(7)).
const MAX_PATH: usize = 107;

/// Why the control socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon holds the lock.
    #[error("another mmb daemon is already running on {0}; stop it or use --socket")]
    Running(PathBuf),
    /// A program that is not an mmb daemon listens on the path.
    #[error("another program listens on {0}; stop it or use --socket")]
    Taken(PathBuf),
    /// The path is not a socket.
    #[error("{0} exists and is not a socket; remove it or use --socket")]
    NotASocket(PathBuf),
    /// The path does not fit a socket address.
    #[error("the socket path {0} is longer than {MAX_PATH} bytes; use --socket with a shorter one")]
    TooLong(PathBuf),
    /// A group of the socket does not exist.
    #[error("there is no group `{0}`; create it with `groupadd --system {0}`")]
    NoGroup(String),
    /// No runtime directory is known for this user.
    #[error("no runtime directory for the control socket: XDG_RUNTIME_DIR is not set; use --socket PATH")]
    NoDirectory,
    /// The system refused.
    #[error("cannot {what} {path}: {error}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

/// The socket of a daemon without `--socket`: in the runtime directory of a systemd service, else in
/// `/run/mmb` for root, else in the runtime directory of the user.
///
/// # Errors
/// There is no runtime directory.
pub fn default_path() -> Result<PathBuf, SocketError> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    // systemd separates directories by colons; the first is the main one of the service.
    if let Some(dirs) = variable("RUNTIME_DIRECTORY")
        && let Some(first) = dirs.to_string_lossy().split(':').next()
    {
        return Ok(Path::new(first).join("mmb.sock"));
    }
    if geteuid().is_root() {
        return Ok(PathBuf::from("/run/mmb/mmb.sock"));
    }
    let dir = variable("XDG_RUNTIME_DIR").ok_or(SocketError::NoDirectory)?;
    Ok(Path::new(&dir).join("mmb.sock"))
}

/// The socket that a command without `--socket` uses: the one of the user's own daemon if it exists, else the
/// one of the system. A user who may not use that one gets the one for readers.
pub fn client_path() -> PathBuf {
    let mut system = PathBuf::from("/run/mmb/mmb.sock");
    if geteuid().is_root() {
        return system;
    }
    let may_use = |path: &Path| nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_ok();
    if !may_use(&system) && may_use(&readers_path(&system)) {
        system = readers_path(&system);
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("mmb.sock")) {
        Some(own) if own.exists() || !system.exists() => own,
        _ => system,
    }
}

/// The groups that may use the control socket.
#[derive(Clone, Debug, Default)]
pub struct SocketGroups {
    /// Operators; the group `mmb` if it exists and this user may assign it.
    pub operators: Option<String>,
    /// Readers. With a name, there is a second socket, whose path ends in `.read`.
    pub readers: Option<String>,
}

/// What the daemon listens on, in non-blocking mode.
#[derive(Debug)]
pub struct Listeners {
    /// The socket of operators.
    pub operators: UnixListener,
    /// The socket of readers.
    pub readers: Option<UnixListener>,
    /// TCP, for metrics only.
    pub metrics: Option<TcpListener>,
    /// TCP, for the API on the network.
    pub network: Vec<NetworkListener>,
}

/// The path of the readers' socket.
fn readers_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".read");
    name.into()
}

/// The path of the socket by which another daemon takes over.
fn takeover_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// A socket that this process listens on, with its lock. Dropping it removes the socket.
#[derive(Debug)]
pub struct ControlSocket {
    paths: Vec<PathBuf>,
    /// Whether dropping it removes the paths.
    is_removed: bool,
    listeners: Option<Listeners>,
    descriptors: SocketDescriptors,
}

/// Copies of the descriptors of a [`ControlSocket`]. A process that gets them serves the paths as the one
/// that has opened them, and holds the lock with it.
#[derive(Debug)]
pub struct SocketDescriptors {
    /// The file with the lock.
    pub lock: OwnedFd,
    /// The socket by which another daemon takes over.
    pub takeover: OwnedFd,
    /// The socket of operators.
    pub operators: OwnedFd,
    /// The socket of readers.
    pub readers: Option<OwnedFd>,
    /// The sockets for metrics and for the API on the network.
    pub services: Vec<OwnedFd>,
}

impl SocketDescriptors {
    /// Copies of all descriptors.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn copy(&self) -> io::Result<SocketDescriptors> {
        Ok(SocketDescriptors {
            lock: self.lock.try_clone()?,
            takeover: self.takeover.try_clone()?,
            operators: self.operators.try_clone()?,
            readers: self.readers.as_ref().map(OwnedFd::try_clone).transpose()?,
            services: self.services.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?,
        })
    }
}

impl ControlSocket {
    /// Takes the lock, replaces the socket of a dead daemon, and listens. A file at `path` that is not a
    /// socket is kept.
    ///
    /// Changes the umask of the process for a moment. Call it before other threads create files.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn bind(path: &Path, groups: &SocketGroups) -> Result<ControlSocket, SocketError> {
        let operators_group = groups.operators.as_deref().map(group).transpose()?.or_else(default_group);
        let readers_group = groups.readers.as_deref().map(group).transpose()?;
        let mut paths = vec![path.to_owned()];
        paths.extend(readers_group.map(|_| readers_path(path)));
        paths.push(takeover_path(path));
        if let Some(path) = paths.iter().find(|path| path.as_os_str().len() > MAX_PATH) {
            return Err(SocketError::TooLong(path.clone()));
        }
        make_directory(path)?;
        paths.iter().try_for_each(|path| refuse_other_files(path))?;
        let lock = lock(path)?;
        for path in &paths {
            refuse_other_files(path)?;
            remove_stale(path)?;
        }
        let operators = listen(path, MODE, operators_group)?;
        let readers =
            readers_group.map(|group| listen(&readers_path(path), MODE, Some(group))).transpose()?;
        // Only root, and the user of the daemon, may take over.
        let takeover = listen(&takeover_path(path), MODE & 0o600, None)?;
        let descriptors = SocketDescriptors {
            lock: lock.into(),
            takeover: takeover.into(),
            operators: operators.into(),
            readers: readers.map(OwnedFd::from),
            services: Vec::new(),
        };
        let mut socket = ControlSocket::from_descriptors(path, descriptors)?;
        socket.set_removed(true);
        Ok(socket)
    }

    /// The socket of another daemon on this path, which has handed it over. Dropping it does not remove it.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn from_descriptors(
        path: &Path,
        descriptors: SocketDescriptors,
    ) -> Result<ControlSocket, SocketError> {
        let copy = |fd: &OwnedFd| fd.try_clone().map(UnixListener::from).map_err(io_error("listen on", path));
        let operators = copy(&descriptors.operators)?;
        let readers = descriptors.readers.as_ref().map(copy).transpose()?;
        let mut paths = vec![path.to_owned(), takeover_path(path)];
        paths.extend(readers.as_ref().map(|_| readers_path(path)));
        let listeners = Some(Listeners { operators, readers, metrics: None, network: Vec::new() });
        Ok(ControlSocket { paths, is_removed: false, listeners, descriptors })
    }

    /// Listens by TCP, in non-blocking mode: with the socket of the daemon that has handed this over, if it
    /// has one at this address.
    ///
    /// # Errors
    /// The system refused.
    pub fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        for service in &self.descriptors.services {
            let listener = TcpListener::from(service.try_clone()?);
            if listener.local_addr()? == address {
                return Ok(listener);
            }
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Sets what listens by TCP. To be called before [`ControlSocket::take_listeners`].
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn set_services(
        &mut self,
        metrics: Option<TcpListener>,
        network: Vec<NetworkListener>,
    ) -> io::Result<()> {
        let sockets = metrics.iter().chain(network.iter().map(|listener| &listener.socket));
        self.descriptors.services =
            sockets.map(|socket| socket.as_fd().try_clone_to_owned()).collect::<io::Result<_>>()?;
        if let Some(listeners) = &mut self.listeners {
            (listeners.metrics, listeners.network) = (metrics, network);
        }
        Ok(())
    }

    /// Sets whether the sockets are removed when this is dropped, and not left to another daemon.
    pub fn set_removed(&mut self, is_removed: bool) {
        self.is_removed = is_removed;
    }

    /// The descriptors, for another daemon. The socket by which it takes over is in non-blocking mode.
    pub fn descriptors(&self) -> &SocketDescriptors {
        &self.descriptors
    }

    /// Connects to the socket by which the daemon on this path is taken over.
    ///
    /// # Errors
    /// No daemon listens, or this user may not.
    pub fn connect_takeover(path: &Path) -> Result<UnixStream, SocketError> {
        let path = takeover_path(path);
        UnixStream::connect(&path).map_err(io_error("take over the daemon at", &path))
    }

    /// The listeners, once.
    pub fn take_listeners(&mut self) -> Option<Listeners> {
        self.listeners.take()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if self.is_removed {
            // The lock is still held, so no other daemon has a socket here.
            self.paths.iter().for_each(|path| drop(fs::remove_file(path)));
        }
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |error| SocketError::Io { what, path, error }
}

/// Creates the directory of the socket, but not its parents: a missing parent is most likely a typing error.
fn make_directory(path: &Path) -> Result<(), SocketError> {
    let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) else { return Ok(()) };
    match fs::DirBuilder::new().mode(0o755).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(io_error("create the directory", dir)),
    }
}

fn refuse_other_files(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => Err(SocketError::NotASocket(path.to_owned())),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(io_error("inspect", path)(e)),
    }
}

fn lock(path: &Path) -> Result<File, SocketError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let flags = nix::fcntl::OFlag::O_NOFOLLOW.bits();
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(&name)
        .map_err(io_error("open", &name))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SocketError::Running(path.to_owned())),
        Err(TryLockError::Error(e)) => Err(io_error("lock", &name)(e)),
    }
}

/// Removes a socket on which nobody listens. A listener without the lock is another program and keeps its
/// socket.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::Taken(path.to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(io_error("remove the stale socket", path))
        }
        Err(e) => Err(io_error("connect to", path)(e)),
    }
}

fn listen(path: &Path, mode: u32, group: Option<Gid>) -> Result<UnixListener, SocketError> {
    use nix::sys::stat::{Mode, umask};
    // The umask sets the mode at once. A chmod after bind would leave a gap.
    let before = umask(Mode::from_bits_truncate(0o777 & !mode));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(io_error("listen on", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(io_error("set the mode of", path))?;
    if let Some(group) = group {
        nix::unistd::chown(path, None, Some(group))
            .map_err(|e| io_error("set the group of", path)(e.into()))?;
    }
    listener.set_nonblocking(true).map_err(io_error("listen on", path))?;
    Ok(listener)
}

/// A group by its name.
fn group(name: &str) -> Result<Gid, SocketError> {
    let found = Group::from_name(name).ok().flatten();
    found.map(|group| group.gid).ok_or_else(|| SocketError::NoGroup(name.to_owned()))
}

/// The group `mmb` if it exists and this user may assign it.
fn default_group() -> Option<Gid> {
    let group = Group::from_name(GROUP).ok().flatten()?.gid;
    let member = || nix::unistd::getgroups().is_ok_and(|groups| groups.contains(&group));
    (geteuid().is_root() || member()).then_some(group)
}

#[cfg(test)]
mod tests;
