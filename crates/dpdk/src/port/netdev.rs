//! Properties of the kernel's network interfaces, read with ioctl and ethtool.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A kernel interface at the time of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetDev {
    /// Its index.
    pub index: u32,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has a carrier.
    pub running: bool,
    /// Whether it was set promiscuous.
    pub promiscuous: bool,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Receive queues in use, if the driver reports them.
    pub queues: Option<u32>,
    /// Which offloads are on.
    pub offloads: Offloads,
}

/// Offloads that matter to a reader of raw frames; false: off, or not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Sent packets leave their checksum to the device (`ethtool -K IF tx off`).
    pub tx_checksum: bool,
    /// TCP segments longer than the MTU are sent to the device (`tso off`).
    pub tso: bool,
    /// Segments longer than the MTU are cut before the device (`gso off`).
    pub gso: bool,
    /// Received packets are merged (`gro off`).
    pub gro: bool,
    /// Received packets are merged by the device (`lro off`).
    pub lro: bool,
    /// VLAN tags of received frames are stripped by the device (`rxvlan off`).
    pub rx_vlan: bool,
    /// VLAN tags of sent frames are inserted by the device (`txvlan off`).
    pub tx_vlan: bool,
}

// linux/ethtool.h
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_FLAG_TXVLAN: u32 = 1 << 7;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const ETH_FLAG_LRO: u32 = 1 << 15;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

impl NetDev {
    /// Queries the interface `name` in the network namespace of the calling thread. None: there is no such
    /// interface.
    ///
    /// # Errors
    /// When the kernel refuses the query.
    pub fn lookup(name: &str) -> io::Result<Option<NetDev>> {
        match InterfaceQuery::new(name)? {
            Some(query) => NetDev::query(query),
            None => Ok(None),
        }
    }

    /// Queries the interface of a query, in the network namespace of its socket. None: there is no such
    /// interface.
    pub(super) fn query(mut query: InterfaceQuery) -> io::Result<Option<NetDev>> {
        match query.ioctl(libc::SIOCGIFINDEX) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            answer => answer?,
        }
        // SAFETY: SIOCGIFINDEX filled it.
        let index = unsafe { query.request.ifr_ifru.ifru_ifindex };
        query.ioctl(libc::SIOCGIFMTU)?;
        // SAFETY: SIOCGIFMTU filled it.
        let mtu = unsafe { query.request.ifr_ifru.ifru_mtu };
        query.ioctl(libc::SIOCGIFFLAGS)?;
        // SAFETY: SIOCGIFFLAGS filled it.
        let flags = i32::from(unsafe { query.request.ifr_ifru.ifru_flags });
        query.ioctl(libc::SIOCGIFHWADDR)?;
        let mac = query.mac();
        Ok(Some(NetDev {
            index: index.unsigned_abs(),
            mtu: mtu.unsigned_abs(),
            up: flags & libc::IFF_UP != 0,
            running: flags & libc::IFF_RUNNING != 0,
            promiscuous: flags & libc::IFF_PROMISC != 0,
            mac,
            queues: query.queues(),
            offloads: query.offloads(),
        }))
    }

    /// The name of an interface, given its index.
    pub fn name_of(index: u32) -> Option<String> {
        let mut name = [0u8; libc::IF_NAMESIZE];
        // SAFETY: the buffer has the size that the function asks for.
        let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
        let end = name.iter().position(|byte| *byte == 0)?;
        (!found.is_null()).then(|| String::from_utf8_lossy(&name[..end]).into_owned())
    }
}

/// Keeps an interface promiscuous. The kernel undoes it when the process ends.
#[derive(Debug)]
pub(super) struct Promiscuous {
    index: u32,
    /// None only while this is dropped.
    socket: Option<OwnedFd>,
}

impl Promiscuous {
    /// Makes the interface promiscuous as long as the result lives.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW.
    pub(super) fn new(index: u32) -> io::Result<Promiscuous> {
        // Without a protocol, the socket itself receives nothing.
        let socket = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        set_promiscuous(&socket, libc::PACKET_ADD_MEMBERSHIP, index)?;
        Ok(Promiscuous { index, socket: Some(socket) })
    }
}

impl Drop for Promiscuous {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        // Fails if the interface is gone, and the membership with it.
        let _ = set_promiscuous(&socket, libc::PACKET_DROP_MEMBERSHIP, self.index);
        // The kernel waits for all processors, some 10 ms, when a packet socket is closed. If there is no
        // thread, it is closed here.
        let _ = std::thread::Builder::new().name("mmb-close".into()).spawn(move || drop(socket));
    }
}

/// Adds a promiscuous membership to a socket, or takes it away.
fn set_promiscuous(socket: &OwnedFd, option: libc::c_int, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket.as_raw_fd(), libc::SOL_PACKET, option, &request)
}

/// Sets a socket option, whose value has the type that the option wants.
pub(crate) fn set_option<T>(
    socket: RawFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: passes a live value and its size.
    let status = unsafe { libc::setsockopt(socket, level, option, std::ptr::from_ref(value).cast(), size) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads and clears a socket's pending error. None: no error, or not a socket.
pub(super) fn take_socket_error(fd: RawFd) -> Option<io::Error> {
    let mut error: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: passes a live integer and its size; a descriptor that is no socket gives an error.
    let status =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &mut len) };
    (status == 0 && error != 0).then(|| io::Error::from_raw_os_error(error))
}

/// Frames that the kernel has dropped since the last call because the ring of a packet socket was full
/// (packet(7)).
pub(super) fn take_packet_drops(fd: RawFd) -> u64 {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: passes a live structure and its size; a descriptor that is no packet socket gives an error.
    let status = unsafe {
        libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, (&raw mut stats).cast(), &mut len)
    };
    if status == 0 { stats.tp_drops.into() } else { 0 }
}

/// Opens a socket.
pub(super) fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: plain system call; the descriptor, if any, is new and owned.
    unsafe {
        let fd = libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// A socket for ioctls, and a request with the interface's name.
pub(super) struct InterfaceQuery {
    socket: OwnedFd,
    pub(super) request: libc::ifreq,
}

impl InterfaceQuery {
    /// A query of the interface `name`. None: no interface can have this name.
    pub(super) fn new(name: &str) -> io::Result<Option<InterfaceQuery>> {
        Ok(InterfaceQuery::by(name, socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?))
    }

    /// A query of the interface `name` by a socket. None: no interface can have this name.
    pub(super) fn by(name: &str, socket: OwnedFd) -> Option<InterfaceQuery> {
        if name.is_empty()
            || name.len() >= libc::IF_NAMESIZE
            || name.bytes().any(|byte| byte == 0 || byte == b'/')
        {
            return None;
        }
        // SAFETY: all zeros is a valid ifreq.
        let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        Some(InterfaceQuery { socket, request })
    }

    /// The socket.
    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    pub(super) fn ioctl(&mut self, number: libc::c_ulong) -> io::Result<()> {
        request_by(self.socket.as_raw_fd(), number, &mut self.request)
    }

    /// Makes a call on another descriptor.
    pub(super) fn ioctl_on(&mut self, fd: &OwnedFd, number: libc::c_ulong) -> io::Result<()> {
        request_by(fd.as_raw_fd(), number, &mut self.request)
    }

    /// The Ethernet address, which SIOCGIFHWADDR has filled in.
    pub(super) fn mac(&self) -> [u8; 6] {
        // SAFETY: any bytes are an address.
        let address = unsafe { self.request.ifr_ifru.ifru_hwaddr.sa_data };
        std::array::from_fn(|at| address[at].cast_unsigned())
    }

    /// Sets the MTU.
    pub(super) fn set_mtu(&mut self, mtu: u16) -> io::Result<()> {
        self.request.ifr_ifru.ifru_mtu = mtu.into();
        self.ioctl(libc::SIOCSIFMTU)
    }

    /// Adds flags (`IFF_UP`, …).
    pub(super) fn add_flags(&mut self, flags: libc::c_int) -> io::Result<()> {
        self.ioctl(libc::SIOCGIFFLAGS)?;
        // SAFETY: SIOCGIFFLAGS filled it.
        let before = unsafe { self.request.ifr_ifru.ifru_flags };
        self.request.ifr_ifru.ifru_flags = before | flags as libc::c_short;
        self.ioctl(libc::SIOCSIFFLAGS)
    }

    /// Makes an ethtool call. `words` starts with the command and has the length of the command's structure.
    pub(super) fn ethtool(&mut self, words: &mut [u32]) -> Option<()> {
        self.request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        self.ioctl(SIOCETHTOOL).ok()
    }

    fn queues(&mut self) -> Option<u32> {
        // struct ethtool_channels: command; most rx, tx, other, combined; rx, tx, other, combined in use.
        let mut channels = [0u32; 9];
        channels[0] = ETHTOOL_GCHANNELS;
        self.ethtool(&mut channels)?;
        Some(channels[5].max(channels[8]))
    }

    fn value(&mut self, command: u32) -> u32 {
        let mut value = [command, 0];
        self.ethtool(&mut value).map_or(0, |()| value[1])
    }

    fn offloads(&mut self) -> Offloads {
        let flags = self.value(ETHTOOL_GFLAGS);
        Offloads {
            tx_checksum: self.value(ETHTOOL_GTXCSUM) != 0,
            tso: self.value(ETHTOOL_GTSO) != 0,
            gso: self.value(ETHTOOL_GGSO) != 0,
            gro: self.value(ETHTOOL_GGRO) != 0,
            lro: flags & ETH_FLAG_LRO != 0,
            rx_vlan: flags & ETH_FLAG_RXVLAN != 0,
            tx_vlan: flags & ETH_FLAG_TXVLAN != 0,
        }
    }
}

/// Makes a call about an interface.
fn request_by(fd: RawFd, number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all requests used here take an ifreq; its pointer member, if used, is valid during the call.
    let status = unsafe { libc::ioctl(fd, number as _, std::ptr::from_mut(request)) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found() {
        let lo = NetDev::lookup("lo").ok().flatten();
        assert_eq!(lo.as_ref().map(|lo| lo.mac), Some([0; 6]));
        assert_eq!(lo.and_then(|lo| NetDev::name_of(lo.index)).as_deref(), Some("lo"));
    }

    #[test]
    fn impossible_names_are_not_found() {
        for name in ["", "no-such-if", "a-name-of-sixteen", "a/b", "a\0b"] {
            assert_eq!(NetDev::lookup(name).ok(), Some(None), "{name:?}");
        }
    }
}
