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
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, geteuid};

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
/// one of the system.
pub fn client_path() -> PathBuf {
    let system = PathBuf::from("/run/mmb/mmb.sock");
    if geteuid().is_root() {
        return system;
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("mmb.sock")) {
        Some(own) if own.exists() || !system.exists() => own,
        _ => system,
    }
}

/// A socket that this process listens on, with its lock. Dropping it removes the socket.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    listener: Option<UnixListener>,
    _lock: File,
}

impl ControlSocket {
    /// Takes the lock, replaces the socket of a dead daemon, and listens. A file at `path` that is not a
    /// socket is kept.
    ///
    /// Changes the umask of the process for a moment. Call it before other threads create files.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn bind(path: &Path) -> Result<ControlSocket, SocketError> {
        if path.as_os_str().len() > MAX_PATH {
            return Err(SocketError::TooLong(path.to_owned()));
        }
        make_directory(path)?;
        refuse_other_files(path)?;
        let lock = lock(path)?;
        refuse_other_files(path)?;
        remove_stale(path)?;
        let listener = listen(path)?;
        Ok(ControlSocket { path: path.to_owned(), listener: Some(listener), _lock: lock })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listener, once; it is in non-blocking mode.
    pub fn take_listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The lock is still held, so no other daemon has a socket here.
        let _ = fs::remove_file(&self.path);
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

fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    use nix::sys::stat::{Mode, umask};
    // The umask sets the mode at once. A chmod after bind would leave a gap.
    let before = umask(Mode::from_bits_truncate(0o777 & !MODE));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(io_error("listen on", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(io_error("set the mode of", path))?;
    if let Some(group) = socket_group() {
        nix::unistd::chown(path, None, Some(group))
            .map_err(|e| io_error("set the group of", path)(e.into()))?;
    }
    listener.set_nonblocking(true).map_err(io_error("listen on", path))?;
    Ok(listener)
}

/// The group of the socket: `mmb` if it exists and this user may assign it.
fn socket_group() -> Option<Gid> {
    let group = Group::from_name(GROUP).ok().flatten()?.gid;
    let member = || nix::unistd::getgroups().is_ok_and(|groups| groups.contains(&group));
    (geteuid().is_root() || member()).then_some(group)
}

#[cfg(test)]
mod tests;
