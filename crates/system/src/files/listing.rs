//! The files of a directory.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, MemfdFlags, Mode, OFlags, memfd_create, openat};

use super::{FileError, FromStart};

/// Directories that lie in each other.
const MOST_DEPTH: usize = 16;

/// Returns the regular files in a directory and in those below it, by their paths from there, ordered. Names
/// that begin with a dot or have control characters, and symbolic links, are left out.
///
/// # Errors
/// A directory cannot be read, or there are more than `most` files.
pub(super) fn list(directory: OwnedFd, named: &Path, most: usize) -> Result<Vec<PathBuf>, FileError> {
    let io = |error: io::Error| FileError::Io { what: "read the directory", path: named.to_owned(), error };
    let mut found = Vec::new();
    let mut open = vec![(directory, PathBuf::new(), 0)];
    while let Some((directory, path, depth)) = open.pop() {
        for entry in Dir::read_from(&directory).map_err(|error| io(error.into()))? {
            let entry = entry.map_err(|error| io(error.into()))?;
            let name = entry.file_name().to_bytes();
            if name.starts_with(b".") || name.iter().any(u8::is_ascii_control) {
                continue;
            }
            let below = path.join(std::ffi::OsStr::from_bytes(name));
            // The next open of the file tells again what it is.
            match kind_of(&directory, &entry) {
                Some(FileType::RegularFile) => found.push(below),
                Some(FileType::Directory) if depth < MOST_DEPTH => {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let opened = openat(&directory, entry.file_name(), flags, Mode::empty());
                    open.push((opened.map_err(|error| io(error.into()))?, below, depth + 1));
                }
                _ => {}
            }
            if found.len() > most {
                return Err(FileError::TooMany { path: named.to_owned(), most });
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The kind of an entry, which some file systems do not tell at once.
fn kind_of(directory: impl AsFd, entry: &rustix::fs::DirEntry) -> Option<FileType> {
    match entry.file_type() {
        FileType::Unknown => {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            let found = rustix::fs::statat(directory, entry.file_name(), flags).ok()?;
            Some(FileType::from_raw_mode(found.st_mode))
        }
        kind => Some(kind),
    }
}

/// Returns a file in memory with the paths, for a process that cannot list the directory.
pub(super) fn as_file(paths: &[PathBuf]) -> io::Result<File> {
    let file = File::from(memfd_create("mmb-listing", MemfdFlags::CLOEXEC)?);
    let mut text = Vec::new();
    for path in paths {
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(b'\n');
    }
    file.write_all_at(&text, 0)?;
    Ok(file)
}

/// Reads the paths of [`as_file`].
pub(super) fn read(file: File) -> io::Result<Vec<PathBuf>> {
    let mut text = Vec::new();
    FromStart::of(file).read_to_end(&mut text)?;
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(|line| PathBuf::from(std::ffi::OsStr::from_bytes(line))).collect())
}
