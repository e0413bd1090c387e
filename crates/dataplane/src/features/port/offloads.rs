//! Receive offloads of kernel interfaces, which are off while a port reads frames from one.
//!
//! Theory of operation. What was on is in a file of the state directory before it is switched off, and the
//! file is removed after it is on again. So the next start can switch it on if the process was killed. A file
//! belongs to a network namespace, by its inode, and to an interface.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mmb_dpdk::{FrameSizeGuard, ReceiveOffload};

/// The directory of the files, inside the state directory.
const DIRECTORY: &str = "offloads";

/// An interface without receive offloads; dropping it switches them on again.
#[derive(Debug)]
pub(super) struct GuardedInterface {
    guard: Option<FrameSizeGuard>,
    file: Option<PathBuf>,
}

impl GuardedInterface {
    /// Switches offloads off. None: the kernel has no such interface.
    pub fn guard(state: Option<&Path>, interface: &str) -> Option<GuardedInterface> {
        let mut file = None;
        let guard = FrameSizeGuard::apply(interface, |on| {
            file = state.and_then(|state| save(state, interface, on));
        })
        .ok()?;
        Some(GuardedInterface { guard: Some(guard), file })
    }

    /// See [`FrameSizeGuard::replaces_service_tags`].
    pub fn replaces_service_tags(&self) -> bool {
        self.guard.as_ref().is_some_and(FrameSizeGuard::replaces_service_tags)
    }

    /// See [`FrameSizeGuard::notes`].
    pub fn notes(&self) -> &[String] {
        self.guard.as_ref().map_or(&[], FrameSizeGuard::notes)
    }
}

impl Drop for GuardedInterface {
    fn drop(&mut self) {
        drop(self.guard.take());
        if let Some(file) = self.file.take() {
            // A file that stays switches on at the next start what is on already.
            let _ = fs::remove_file(file);
        }
    }
}

/// Writes the file of an interface. None: it needs none, or cannot be written; then a killed process leaves
/// the offloads off.
fn save(state: &Path, interface: &str, on: &[ReceiveOffload]) -> Option<PathBuf> {
    if on.is_empty() {
        return None;
    }
    let directory = state.join(DIRECTORY);
    fs::create_dir_all(&directory).ok()?;
    let file = directory.join(format!("{}-{interface}", namespace().ok()?));
    let words: Vec<_> = on.iter().map(|offload| offload.word()).collect();
    // Never through a link that somebody has made in the directory.
    let _ = fs::remove_file(&file);
    let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).ok()?;
    out.write_all(words.join(" ").as_bytes()).ok()?;
    Some(file)
}

/// Switches on what a killed process has left off in the network namespace of the calling thread.
pub(crate) fn restore_offloads(state: Option<&Path>) {
    let (Some(state), Ok(namespace)) = (state, namespace()) else { return };
    for entry in fs::read_dir(state.join(DIRECTORY)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((inode, interface)) = name.to_str().and_then(|name| name.split_once('-')) else { continue };
        if inode != namespace.to_string() {
            continue;
        }
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        for offload in ReceiveOffload::ALL {
            if text.split(' ').any(|word| word == offload.word()) {
                // The interface may be gone meanwhile.
                offload.switch(interface, true);
            }
        }
        let _ = fs::remove_file(entry.path());
    }
}

/// The inode of the network namespace of the calling thread.
fn namespace() -> io::Result<u64> {
    fs::metadata("/proc/thread-self/ns/net").map(|found| found.ino())
}
