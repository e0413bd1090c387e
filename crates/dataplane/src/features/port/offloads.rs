//! Receive offloads of kernel interfaces, which are off while a port reads frames from one.
//!
//! Theory of operation. What was on is in a file of the state directory before it is switched off, so that
//! the next start can switch it on if the process was killed ([`InterfaceFiles`]).

use std::fs;
use std::path::{Path, PathBuf};

use mmb_dpdk::{FrameSizeGuard, ReceiveOffload};
use mmb_system::{InterfaceFiles, LeftFile};

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

    /// See [`FrameSizeGuard::relax`].
    pub fn relax(&mut self) {
        self.guard.iter_mut().for_each(FrameSizeGuard::relax);
    }

    /// See [`FrameSizeGuard::enforce`].
    pub fn enforce(&mut self) {
        self.guard.iter_mut().for_each(FrameSizeGuard::enforce);
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
    let words: Vec<_> = on.iter().map(|offload| offload.word()).collect();
    files(state).write(interface, &words.join(" ")).ok()
}

/// Switches on what a killed process has left off in the network namespace of the calling thread.
pub(crate) fn restore_offloads(state: Option<&Path>) {
    for LeftFile { interface, text, path } in state.into_iter().flat_map(|state| files(state).left()) {
        for offload in ReceiveOffload::ALL {
            if text.split(' ').any(|word| word == offload.word()) {
                // The interface may be gone meanwhile.
                offload.switch(&interface, true);
            }
        }
        let _ = fs::remove_file(path);
    }
}

fn files(state: &Path) -> InterfaceFiles {
    InterfaceFiles::new(state.join(DIRECTORY))
}
