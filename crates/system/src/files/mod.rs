//! Files that commands and configuration files name.
//!
//! Theory of operation. The daemon has more rights than the clients of its socket. So a client may name only
//! files inside one directory, to which no client can write. A path is resolved there by openat2(2): beneath
//! the directory and without symbolic links. The administrator's own configuration file may name any file:
//! [`FileAccess::check`] grants the paths that it sees until [`FileAccess::seal`], and refuses all others
//! afterwards. A granted path stays granted, so that a client can apply the same file again.
//!
//! A function in another process reads its files there. The daemon keeps those that its own instance has read
//! ([`FileAccess::keeping`]), and passes their descriptors ([`FileAccess::from_opener`]). What it has found
//! in a directory is kept as a file in memory.
//!
//! Nothing is overwritten. A capture is created new; a log is appended to a regular file. No open blocks:
//! a FIFO or a device is refused.

mod from_start;
mod listing;
mod resolve;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags};

pub use from_start::FromStart;
use resolve::{Base, Directory};

/// Mode of files that are created: the owner reads and writes, the group reads.
const FILE_MODE: Mode = Mode::from_raw_mode(0o640);

/// Why a file is not opened.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A client named a path outside its directory.
    #[error(
        "{path} is outside {directory}, the only directory in which a command may name files; use a path inside it, or \
         name the file in the configuration of `mmb run -c`",
        path = .path.display(), directory = .directory.display()
    )]
    Outside {
        /// The path.
        path: PathBuf,
        /// The directory for clients.
        directory: PathBuf,
    },
    /// A client named a path, and the daemon has no directory for clients.
    #[error("the daemon has no directory for {path}; start it with --state-dir", path = .path.display())]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The path is empty or has control characters.
    #[error("invalid path {path:?}: it is empty or has control characters")]
    Invalid {
        /// The path.
        path: PathBuf,
    },
    /// The path is a directory, a device, a FIFO or a socket.
    #[error("{path} is not a regular file", path = .path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// A directory has too many files.
    #[error("{path} has more than {most} files", path = .path.display())]
    TooMany {
        /// The path.
        path: PathBuf,
        /// The limit.
        most: usize,
    },
    /// A file that would be overwritten.
    #[error("{path} exists already; remove it, or name another file", path = .path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {what} {path}: {error}", path = .path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

/// A directory and the name of a socket in it. The path `/proc/self/fd/N/NAME` cannot be redirected while
/// [`SocketPlace::directory`] is open.
#[derive(Debug)]
pub struct SocketPlace {
    /// The directory.
    pub directory: OwnedFd,
    /// The name of the socket.
    pub name: OsString,
}

/// The files that this process may open for its clients.
#[derive(Debug)]
pub struct FileAccess {
    directory: Option<Arc<Directory>>,
    grants: Arc<Mutex<Grants>>,
    inputs: Inputs,
}

/// What becomes of files that are opened to read.
#[derive(Debug, Default)]
enum Inputs {
    /// Whoever opened them has them.
    #[default]
    Passed,
    /// The last file of each path is kept as well.
    Kept(Mutex<HashMap<PathBuf, File>>),
    /// Somebody else opens them.
    Opened(Opener),
}

type Open = dyn Fn(&Path) -> io::Result<File> + Send + Sync;

/// Opens a file for a process that cannot.
struct Opener(Box<Open>);

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
    }
}

#[derive(Debug, Default)]
struct Grants {
    /// Whether paths are granted no longer.
    sealed: bool,
    paths: HashSet<PathBuf>,
    /// Device and inode of captures that this process created.
    created: HashSet<(u64, u64)>,
}

impl Default for FileAccess {
    fn default() -> FileAccess {
        FileAccess::unrestricted()
    }
}

impl FileAccess {
    /// Any file, for programs without clients.
    pub fn unrestricted() -> FileAccess {
        FileAccess { directory: None, grants: Arc::default(), inputs: Inputs::Passed }
    }

    /// Files that `opener` opens, all of them regular ones to read.
    pub fn from_opener(opener: impl Fn(&Path) -> io::Result<File> + Send + Sync + 'static) -> FileAccess {
        FileAccess { inputs: Inputs::Opened(Opener(Box::new(opener))), ..FileAccess::unrestricted() }
    }

    /// Returns access to the same files which keeps those that it has opened to read.
    #[must_use]
    pub fn keeping(&self) -> FileAccess {
        let inputs = Inputs::Kept(Mutex::default());
        FileAccess { directory: self.directory.clone(), grants: self.grants.clone(), inputs }
    }

    /// Returns the file that was opened last by this path. None: none was, or files are not kept.
    pub fn kept_input(&self, path: &Path) -> Option<File> {
        let Inputs::Kept(files) = &self.inputs else { return None };
        files.lock().unwrap_or_else(PoisonError::into_inner).get(path)?.try_clone().ok()
    }

    /// Returns the files that were opened last by their paths. Empty if files are not kept.
    pub fn kept_inputs(&self) -> Vec<(PathBuf, File)> {
        let Inputs::Kept(files) = &self.inputs else { return Vec::new() };
        let files = files.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter().filter_map(|(path, file)| Some((path.clone(), file.try_clone().ok()?))).collect()
    }

    /// Files in `directory`, which must exist, and all that are granted before [`FileAccess::seal`].
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn within(directory: &Path) -> Result<FileAccess, FileError> {
        let directory = Directory::open(directory)?;
        Ok(FileAccess { directory: Some(Arc::new(directory)), ..FileAccess::unrestricted() })
    }

    /// The directory in which clients name files.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(|directory| directory.path.as_path())
    }

    /// The directory of what the process keeps, which has the one of clients in it.
    pub fn state(&self) -> Option<&Path> {
        self.directory()?.parent()
    }

    /// Grants no more paths.
    pub fn seal(&self) {
        self.lock().sealed = true;
    }

    fn lock(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that a path may be named, without opening it. Grants it before [`FileAccess::seal`].
    ///
    /// # Errors
    /// The path is outside the directory for clients, or invalid.
    pub fn check(&self, path: &Path) -> Result<(), FileError> {
        let bytes = path.as_os_str().as_encoded_bytes();
        if bytes.is_empty() || bytes.iter().any(u8::is_ascii_control) {
            return Err(FileError::Invalid { path: path.to_owned() });
        }
        let mut grants = self.lock();
        if !grants.sealed {
            grants.paths.insert(path.to_owned());
        }
        drop(grants);
        self.base(path).map(drop)
    }

    /// Where a path is resolved.
    fn base<'a>(&'a self, path: &'a Path) -> Result<Base<'a>, FileError> {
        let grants = self.lock();
        let is_granted = !grants.sealed || grants.paths.contains(path);
        drop(grants);
        let inside = self.directory.as_ref().and_then(|directory| directory.inner(path));
        match (inside, &self.directory) {
            // A relative path of the administrator's file is relative to the working directory.
            (Some(inside), _) if path.is_absolute() || !is_granted => Ok(inside),
            _ if is_granted => Ok(Base::Anywhere(path)),
            (_, Some(directory)) => {
                Err(FileError::Outside { path: path.to_owned(), directory: directory.path.clone() })
            }
            (_, None) => Err(FileError::NoDirectory { path: path.to_owned() }),
        }
    }

    /// Opens a regular file to read.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn open_input(&self, path: &Path) -> Result<File, FileError> {
        let io = |error| FileError::Io { what: "open", path: path.to_owned(), error };
        if let Inputs::Opened(opener) = &self.inputs {
            return (opener.0)(path).map_err(io);
        }
        let file = self.base(path)?.open(path, OFlags::RDONLY, Mode::empty())?;
        let (file, _) = regular(file, path)?;
        if let Inputs::Kept(files) = &self.inputs {
            let kept = file.try_clone().map_err(io)?;
            files.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), kept);
        }
        Ok(file)
    }

    /// Returns the regular files in a directory and in those below it, by their paths from there, ordered.
    /// Names that begin with a dot or have control characters, and symbolic links, are left out.
    ///
    /// # Errors
    /// There are more than `most`, or see [`FileError`].
    pub fn list_directory(&self, path: &Path, most: usize) -> Result<Vec<PathBuf>, FileError> {
        let io = |error| FileError::Io { what: "read the directory", path: path.to_owned(), error };
        if let Inputs::Opened(opener) = &self.inputs {
            return (opener.0)(path).and_then(listing::read).map_err(io);
        }
        let directory = self.base(path)?.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let found = listing::list(directory.into(), path, most)?;
        if let Inputs::Kept(files) = &self.inputs {
            let kept = listing::as_file(&found).map_err(io)?;
            files.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), kept);
        }
        Ok(found)
    }

    /// Creates a file to write. A file that exists is kept, unless this process created it.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn create_output(&self, path: &Path) -> Result<File, FileError> {
        let base = self.base(path)?;
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match base.open(path, create, FILE_MODE) {
            Ok(file) => {
                let (file, inode) = regular(file, path)?;
                self.lock().created.insert(inode);
                Ok(file)
            }
            Err(FileError::Io { error, .. }) if error.kind() == io::ErrorKind::AlreadyExists => {
                let exists = || FileError::Exists { path: path.to_owned() };
                let old = base.open(path, OFlags::WRONLY | OFlags::NOFOLLOW, Mode::empty());
                let (file, inode) = regular(old.map_err(|_| exists())?, path).map_err(|_| exists())?;
                if self.lock().created.contains(&inode) { Ok(file) } else { Err(exists()) }
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file to append to, and creates it if it does not exist.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn open_log(&self, path: &Path) -> Result<File, FileError> {
        let append = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW;
        let file = self.base(path)?.open(path, append, FILE_MODE)?;
        regular(file, path).map(|(file, _)| file)
    }

    /// The place of a Unix socket, which may not exist yet. Another kind of file is refused.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn socket(&self, path: &Path) -> Result<SocketPlace, FileError> {
        let (directory, name) = self.base(path)?.parent(path)?;
        let found = rustix::fs::statat(&directory, &name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        match found {
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => {
                return Err(FileError::Io { what: "inspect", path: path.to_owned(), error: error.into() });
            }
            Ok(found) if rustix::fs::FileType::from_raw_mode(found.st_mode).is_socket() => {}
            Ok(_) => return Err(FileError::Exists { path: path.to_owned() }),
        }
        Ok(SocketPlace { directory, name })
    }
}

/// Checks that a file is a regular one with one name. Returns it with its device and inode.
fn regular(file: File, path: &Path) -> Result<(File, (u64, u64)), FileError> {
    let io = |error| FileError::Io { what: "inspect", path: path.to_owned(), error };
    let found = file.metadata().map_err(io)?;
    if !found.is_file() {
        return Err(FileError::NotRegular { path: path.to_owned() });
    }
    Ok((file, (found.dev(), found.ino())))
}

#[cfg(test)]
mod tests;
