//! Files that are written as a whole: a reader finds the old bytes or the new ones, never a part.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Creates or replaces a file with what `fill` writes. The directory is made if it does not exist.
///
/// # Errors
/// The system's error. The file is then as before.
pub fn replace_file(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let part = directory.join(format!(".{}", std::process::id()));
    // Never through a link that somebody has made in the directory.
    let _ = fs::remove_file(&part);
    let mut out = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&part)?;
    let written = fill(&mut out).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// Reads a file of at most `limit` bytes, and removes it. None: it does not exist. A link is not followed.
///
/// # Errors
/// The file is no regular one or too large, or the system's error. It is removed nevertheless, if possible.
pub fn take_file(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    if opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let removed = fs::remove_file(path);
    let mut file = opened?;
    removed?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if found.len() > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_replaced_and_taken_as_a_whole() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("new/file");
        for text in ["one", "two"] {
            replace_file(&path, |out| out.write_all(text.as_bytes())).unwrap();
        }
        let failed = replace_file(&path, |out| {
            out.write_all(b"thr")?;
            Err(io::Error::other("no"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no part is left");
        assert_eq!(take_file(&path, 3).unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(take_file(&path, 3).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_taken_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let (path, victim) = (root.path().join("file"), root.path().join("victim"));
        fs::write(&victim, "text").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(take_file(&path, 9).is_err() && !path.exists() && victim.exists());
        fs::write(&path, "text").unwrap();
        assert_eq!(take_file(&path, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(!path.exists());
    }
}
