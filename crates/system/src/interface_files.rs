//! Files that tell the next start what to restore on interfaces.
//!
//! Theory of operation. Before a process changes an interface, it writes down what was there. It removes the
//! file after that is restored. So the next start can restore it if the process was killed. A file belongs
//! to a network namespace, by its inode, and to an interface. The number of an inode can be used again after
//! a namespace was deleted.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::whole_file::replace_file;

/// The files in a directory.
#[derive(Clone, Debug)]
pub struct InterfaceFiles {
    directory: PathBuf,
}

/// A file that was not removed.
#[derive(Debug)]
pub struct LeftFile {
    /// The interface's name.
    pub interface: String,
    /// The text that was written; empty if it cannot be read.
    pub text: String,
    /// The file, which the caller removes.
    pub path: PathBuf,
}

impl InterfaceFiles {
    /// The files in this directory, which is made with the first one.
    pub fn new(directory: PathBuf) -> InterfaceFiles {
        InterfaceFiles { directory }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes the file of an interface as a whole, and returns it. The interface is in the network namespace
    /// of the calling thread.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, interface: &str, text: &str) -> io::Result<PathBuf> {
        let file = self.directory.join(format!("{}-{interface}", namespace()?));
        replace_file(&file, |out| {
            out.write_all(text.as_bytes())?;
            out.sync_all()
        })?;
        Ok(file)
    }

    /// The files of interfaces in the network namespace of the calling thread. Empty if they cannot be read.
    pub fn left(&self) -> Vec<LeftFile> {
        let Ok(namespace) = namespace() else { return Vec::new() };
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let left = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (inode, interface) = name.split_once('-')?;
            (inode == namespace.to_string()).then(|| LeftFile {
                interface: interface.to_owned(),
                text: fs::read_to_string(entry.path()).unwrap_or_default(),
                path: entry.path(),
            })
        });
        left.collect()
    }
}

/// The inode of the network namespace of the calling thread.
fn namespace() -> io::Result<u64> {
    fs::metadata("/proc/thread-self/ns/net").map(|found| found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_written_through_a_link() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        fs::write(&victim, "text").unwrap();
        let part = root.path().join(format!(".{}", std::process::id()));
        std::os::unix::fs::symlink(&victim, part).unwrap();
        let file = InterfaceFiles::new(root.path().to_owned()).write("eth0", "x 0 1\n").unwrap();
        assert_eq!(fs::read_to_string(victim).unwrap(), "text");
        assert!(fs::symlink_metadata(file).unwrap().is_file());
    }

    #[test]
    fn files_of_other_namespaces_stay() {
        let root = tempfile::tempdir().unwrap();
        let files = InterfaceFiles::new(root.path().join("new"));
        assert!(files.left().is_empty());
        let path = files.write("eth-0", "gro").unwrap();
        fs::write(files.directory().join("1-eth1"), "lro").unwrap();
        let left = files.left();
        let [LeftFile { interface, text, path: found }] = &left[..] else { panic!("{left:?}") };
        assert_eq!((interface.as_str(), text.as_str(), found), ("eth-0", "gro", &path));
    }
}
