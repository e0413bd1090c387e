//! Receive offloads of kernel interfaces that are off while a port reads frames from one.
//!
//! Theory of operation. What was on is in a file of the state directory before it is switched off, so that
//! the next start can switch it on if the process was killed ([`InterfaceFiles`]).

use std::fs;
use std::path::{Path, PathBuf};

use mmb_dpdk::{LroGuard, ReceiveOffload};
use mmb_system::{InterfaceFiles, LeftFile};

/// The directory of the files, inside the state directory.
const DIRECTORY: &str = "offloads";

/// An interface without LRO; dropping it switches LRO on again.
#[derive(Debug)]
pub(super) struct GuardedInterface {
    guard: Option<LroGuard>,
    file: Option<PathBuf>,
}

impl GuardedInterface {
    /// Switches LRO off. None: the kernel has no such interface.
    pub fn guard(state: Option<&Path>, interface: &str) -> Option<GuardedInterface> {
        let mut file = None;
        let guard = LroGuard::apply(interface, || {
            file = state.and_then(|state| files(state).write(interface, ReceiveOffload::Lro.word()).ok());
        })
        .ok()?;
        Some(GuardedInterface { guard: Some(guard), file })
    }

    /// See [`LroGuard::notes`].
    pub fn notes(&self) -> &[String] {
        self.guard.as_ref().map_or(&[], LroGuard::notes)
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
