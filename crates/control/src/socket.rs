//! The control socket: where it is, who may use it, and that one daemon only listens on it.
//!
//! Theory of operation. A daemon holds an exclusive `flock` on `PATH.lock` for as long as it lives; the kernel lets go
//! of it however the daemon ends. Whoever has the lock may replace a socket that nobody answers on (its daemon is
//! dead); whoever does not get it knows that a living daemon serves the path. So two daemons that start at the same
//! moment cannot take the socket from each other. The lock file stays behind: removing it would let a third daemon lock
//! a new file of the same name while a second still holds the old one.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, geteuid};

/// The group that may use the socket, if the machine has it.
const GROUP: &str = "mmb";
/// Owner and group read and write, others nothing.
const MODE: u32 = 0o660;
/// Longest path a Unix socket address holds, without the final zero byte (unix(7)).
const MAX_PATH: usize = 107;

/// Why the control socket cannot be served; the text is the sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A living daemon holds the lock.
    #[error("another mmb daemon is already running on {0}; stop it or use --socket")]
    Running(PathBuf),
    /// A living program that is not an mmb daemon answers there.
    #[error("another program listens on {0}; stop it or use --socket")]
    Taken(PathBuf),
    /// Something that is not a socket has the name.
    #[error("{0} exists and is not a socket; remove it or use --socket")]
    NotASocket(PathBuf),
    /// The address family has room for short paths only.
    #[error("the socket path {0} is longer than {MAX_PATH} bytes; use --socket with a shorter one")]
    TooLong(PathBuf),
    /// No runtime directory is known for this user.
    #[error("no runtime directory for the control socket: XDG_RUNTIME_DIR is not set; use --socket PATH")]
    NoDirectory,
    /// The system refused.
    #[error("cannot {what} {path}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

/// Where a daemon started without `--socket` listens: the runtime directory that systemd gives a service, else
/// `/run/mmb` for root, else the user's own runtime directory.
pub fn default_path() -> Result<PathBuf, SocketError> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    // systemd separates several directories by colons; the first is the service's main one.
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

/// Where a command given without `--socket` looks for the daemon: the user's own one if its socket is there, else the
/// machine's.
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

/// A socket that this process listens on, and the lock that makes it the only one. Dropping it removes the socket.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    listener: Option<UnixListener>,
    _lock: File,
}

impl ControlSocket {
    /// Takes the lock, replaces a dead daemon's socket and listens. What exists at `path` and is no socket is left
    /// alone.
    ///
    /// Sets the process's umask for a moment, so call it before other threads make files.
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
        // The lock is still held: nobody else can have put a socket of their own here.
        let _ = fs::remove_file(&self.path);
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |error| SocketError::Io { what, path, error }
}

/// Makes the socket's directory (one level: a missing parent of it is the user's typing error).
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
        Err(e) => Err(io_error("look at", path)(e)),
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

/// Removes a socket that nobody listens on. A listener that is no mmb daemon (it does not hold the lock) is respected.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::Taken(path.to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(io_error("remove the stale socket", path))
        }
        Err(e) => Err(io_error("look for a daemon on", path)(e)),
    }
}

fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    use nix::sys::stat::{Mode, umask};
    // The mode must be right from the first moment: a chmod after bind would leave a gap.
    let before = umask(Mode::from_bits_truncate(0o777 & !MODE));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(io_error("listen on", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(io_error("set the mode of", path))?;
    if let Some(group) = group_to_give() {
        nix::unistd::chown(path, None, Some(group))
            .map_err(|e| io_error("give to the group mmb", path)(e.into()))?;
    }
    listener.set_nonblocking(true).map_err(io_error("listen on", path))?;
    Ok(listener)
}

/// The group of the socket: `mmb` if there is one and this user may give a file to it.
fn group_to_give() -> Option<Gid> {
    let group = Group::from_name(GROUP).ok().flatten()?.gid;
    let member = || nix::unistd::getgroups().is_ok_and(|groups| groups.contains(&group));
    (geteuid().is_root() || member()).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn binds_with_mode_0660_and_removes_the_socket_at_the_end() {
        let dir = dir();
        let path = dir.path().join("sub/mmb.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o660);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_second_daemon_is_refused_and_the_first_goes_on() {
        let dir = dir();
        let path = dir.path().join("s");
        let first = ControlSocket::bind(&path).unwrap();
        let error = ControlSocket::bind(&path).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("another mmb daemon is already running on {}; stop it or use --socket", path.display())
        );
        assert!(UnixStream::connect(&path).is_ok());
        drop(first);
        assert!(ControlSocket::bind(&path).is_ok());
    }

    #[test]
    fn a_dead_daemons_socket_is_replaced() {
        let dir = dir();
        let path = dir.path().join("s");
        // A listener dropped without unlinking is what SIGKILL leaves.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let _socket = ControlSocket::bind(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn another_programs_listener_is_respected() {
        let dir = dir();
        let path = dir.path().join("s");
        let _other = UnixListener::bind(&path).unwrap();
        let error = ControlSocket::bind(&path).unwrap_err();
        assert!(matches!(error, SocketError::Taken(_)), "{error}");
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_file_of_another_kind_is_left_alone() {
        let dir = dir();
        let path = dir.path().join("s");
        fs::write(&path, "precious").unwrap();
        let error = ControlSocket::bind(&path).unwrap_err();
        assert!(matches!(error, SocketError::NotASocket(_)), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert!(!dir.path().join("s.lock").exists());
    }

    #[test]
    fn a_path_too_long_for_a_socket_address_is_refused() {
        let path = dir().path().join("x".repeat(120));
        assert!(matches!(ControlSocket::bind(&path).unwrap_err(), SocketError::TooLong(_)));
    }

    #[test]
    fn of_many_that_start_at_once_one_wins() {
        let dir = dir();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let results: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| ControlSocket::bind(&path))).collect();
            starts.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
        assert!(results.iter().all(|r| r.is_ok() || matches!(r, Err(SocketError::Running(_)))));
    }
}
