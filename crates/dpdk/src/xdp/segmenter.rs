//! Cuts packets of many segments into segments that an AF_PACKET port takes.
//!
//! # Theory of operation
//! The tc program of a port sends such a packet to a TAP of the port's own. A TAP takes no segmentation and
//! no checksum offload, so the kernel cuts the packet and completes the checksums of its segments. A thread
//! reads the segments and writes them back to the TAP. There, a program has the port's interface receive
//! them. The TAP ends with the process.
//!
//! The thread handles frames with a service tag, too: it replaces the tag's ethertype by a placeholder, as
//! bpf/pass.c does.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::JoinHandle;

use crate::port::{SERVICE_TAG, SERVICE_TAG_PLACEHOLDER, Tap};

/// The kernel chooses the number.
const NAME: &str = "mmb-seg%d";
/// Bytes of the longest frame: an IP packet, and the Ethernet header with two VLAN tags.
const LONGEST: usize = 65_535 + 22;

/// The TAP and its thread.
#[derive(Debug)]
pub(super) struct Segmenter {
    /// The index of the interface.
    pub(super) index: u32,
    /// Readable when the thread has to end.
    stop: File,
    thread: Option<JoinHandle<()>>,
}

impl Segmenter {
    /// Makes the TAP in the network namespace of the calling thread, and starts its thread.
    pub(super) fn start() -> io::Result<Segmenter> {
        let Tap { file, index } = Tap::create(NAME)?;
        // SAFETY: a system call without pointers; the descriptor, if any, is new and owned.
        let stop = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from(OwnedFd::from_raw_fd(fd))
        };
        let stopped = stop.try_clone()?;
        let thread = std::thread::Builder::new()
            .name("mmb-segmenter".to_owned())
            .spawn(move || while wait(&file, &stopped) && write_back(&file).is_ok() {})?;
        Ok(Segmenter { index, stop, thread: Some(thread) })
    }
}

impl Drop for Segmenter {
    fn drop(&mut self) {
        // A counter of 0 takes any number, so this does not fail.
        let _ = self.stop.write_all(&1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

/// Waits for a frame. False: the thread has to end.
fn wait(tap: &File, stop: &File) -> bool {
    let mut polled =
        [tap, stop].map(|file| libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    loop {
        // SAFETY: live structures and their number.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) };
        let is_interrupted = ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if !is_interrupted {
            return ready > 0 && polled[1].revents == 0;
        }
    }
}

/// Writes the frames of the TAP back to it. An error: the TAP is gone.
fn write_back(mut tap: &File) -> io::Result<()> {
    let mut frame = [0; LONGEST];
    loop {
        let len = match tap.read(&mut frame) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Some(kind) = frame[..len].get_mut(12..14)
            && kind == SERVICE_TAG
        {
            kind.copy_from_slice(&SERVICE_TAG_PLACEHOLDER);
        }
        // One that the kernel refuses is lost, as on a link.
        let _ = tap.write(&frame[..len]);
    }
}
