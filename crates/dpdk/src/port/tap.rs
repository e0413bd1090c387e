//! TAP interfaces that DPDK does not know.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::netdev::{InterfaceQuery, NetDev};

// linux/if_tun.h
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const IFF_TAP: i16 = 0x2;
const IFF_NO_PI: i16 = 0x1000;

/// A TAP interface, which the kernel removes when the file is closed.
#[derive(Debug)]
pub(crate) struct Tap {
    /// Gives the frames that the kernel sends, and takes those that it receives; does not block.
    pub(crate) file: File,
    /// The index of the interface.
    pub(crate) index: u32,
}

impl Tap {
    /// Makes an interface that is up, in the network namespace of the calling thread. The kernel replaces
    /// `%d` in the name by a number.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN; ENOENT without /dev/net/tun.
    pub(crate) fn create(name: &str) -> io::Result<Tap> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let mut query = InterfaceQuery::new(name)?.ok_or(io::ErrorKind::InvalidInput)?;
        query.request.ifr_ifru.ifru_flags = IFF_TAP | IFF_NO_PI;
        // SAFETY: the request takes an ifreq, to which it writes the interface's name.
        if unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut query.request) } != 0 {
            return Err(io::Error::last_os_error());
        }
        query.ioctl(libc::SIOCGIFFLAGS)?;
        // SAFETY: SIOCGIFFLAGS filled it.
        let flags = unsafe { query.request.ifr_ifru.ifru_flags };
        query.request.ifr_ifru.ifru_flags = flags | (libc::IFF_UP | libc::IFF_NOARP) as i16;
        query.ioctl(libc::SIOCSIFFLAGS)?;
        let name = query.request.ifr_name.map(libc::c_char::cast_unsigned);
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let device = NetDev::lookup(&String::from_utf8_lossy(name))?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Tap { file, index: device.index })
    }
}
