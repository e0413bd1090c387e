//! Resolves paths: beneath a directory without symbolic links, or as the administrator wrote them.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::FileError;

/// Attempts after which a path counts as unstable: `openat2` fails with EAGAIN while directories are renamed.
const ATTEMPTS: usize = 16;

/// A directory for the files of clients.
#[derive(Debug)]
pub(super) struct Directory {
    pub path: PathBuf,
    fd: OwnedFd,
}

impl Directory {
    /// Opens a directory.
    pub fn open(path: &Path) -> Result<Directory, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty()).map_err(io_error("open the directory", path))?;
        Ok(Directory { path: path.to_owned(), fd })
    }

    /// The place of a path in the directory, if it is inside by its text. A relative path is inside.
    pub fn inner<'a>(&'a self, path: &'a Path) -> Option<Base<'a>> {
        let inner = if path.is_absolute() { path.strip_prefix(&self.path).ok()? } else { path };
        let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        inner.components().all(is_inside).then_some(Base::Beneath(&self.fd, inner))
    }
}

/// Where a path is resolved.
#[derive(Clone, Copy)]
pub(super) enum Base<'a> {
    /// Beneath a directory, by this path.
    Beneath(&'a OwnedFd, &'a Path),
    /// By the path that the administrator wrote.
    Anywhere(&'a Path),
}

impl Base<'_> {
    /// Opens a file without waiting for anything. `named` is the path in messages.
    pub fn open(&self, named: &Path, flags: OFlags, mode: Mode) -> Result<File, FileError> {
        let what = if flags.contains(OFlags::CREATE) { "create" } else { "open" };
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.open_at(self.relative(), flags, mode).map(File::from).map_err(io_error(what, named))
    }

    /// Opens the directory of a file. Returns it with the name of the file.
    pub fn parent(&self, named: &Path) -> Result<(OwnedFd, OsString), FileError> {
        let path = self.relative();
        let name = path.file_name().ok_or_else(|| FileError::Invalid { path: named.to_owned() })?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = self.open_at(parent, flags, Mode::empty());
        Ok((opened.map_err(io_error("open the directory of", named))?, name.to_owned()))
    }

    fn relative(&self) -> &Path {
        match self {
            Base::Beneath(_, inner) => inner,
            Base::Anywhere(path) => path,
        }
    }

    fn open_at(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let Base::Beneath(directory, _) = self else { return openat(CWD, path, flags, mode) };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let mut last = Errno::AGAIN;
        for _ in 0..ATTEMPTS {
            match openat2(directory, path, flags, mode, resolve) {
                Err(error @ (Errno::AGAIN | Errno::INTR)) => last = error,
                other => return other,
            }
        }
        Err(last)
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> FileError {
    let path = path.to_owned();
    move |error| FileError::Io { what, path, error: error.into() }
}
