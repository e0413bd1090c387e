//! A network namespace with a pair of interfaces, raw sockets, and ports.

// No test uses all of it.
#![allow(dead_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::Command;
use std::time::{Duration, Instant};

use mmb_dpdk::{Burst, Device, Error, Mempool, NetDev, Port, PortSpec, RxQueue, TxQueue};

/// Runs a test with `mmb0` and its peer `peer0` up and IPv6 off; or prints why it is skipped.
pub fn in_namespace(test: impl FnOnce()) {
    let _alone = crate::common::alone();
    // SAFETY: system calls without pointers. The namespace belongs to this thread and its children.
    let refused = unsafe {
        if libc::geteuid() != 0 {
            Some("it takes root".to_owned())
        } else if libc::unshare(libc::CLONE_NEWNET) != 0 {
            Some(io::Error::last_os_error().to_string())
        } else {
            None
        }
    };
    if let Some(reason) = refused {
        println!("skipped: no network namespace ({reason})");
        return;
    }
    ip("link add mmb0 type veth peer name peer0");
    for name in ["mmb0", "peer0"] {
        // With IPv6, the kernel would send frames of its own.
        sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1");
        ip(&format!("link set {name} up"));
    }
    // The kernel reports the state with a delay.
    let end = Instant::now() + Duration::from_secs(5);
    while ["mmb0", "peer0"].iter().any(|name| !NetDev::lookup(name).unwrap().unwrap().running) {
        assert!(Instant::now() < end, "no carrier");
        std::thread::yield_now();
    }
    test();
}

pub fn sysctl(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/{path}"), value).unwrap();
}

pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}

pub fn tc(arguments: &str) {
    let status = Command::new("tc").args(arguments.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "tc {arguments}");
}

pub fn link(name: &str) -> String {
    let output = Command::new("ip").args(["-d", "link", "show", name]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

pub fn pool() -> Mempool {
    Mempool::create("kernel", 8192, 2048, 0).unwrap()
}

pub fn xdp() -> Device {
    Device::AfXdp { interface: "mmb0".into() }
}

pub fn open(device: Device, pool: &Mempool) -> Result<Port, Error> {
    Port::open(&PortSpec { name: "p0", device, pool, rx_queues: 1, tx_queues: 1, mtu: None })
}

/// A raw socket on an interface.
pub struct Raw(OwnedFd);

impl Raw {
    pub fn new(interface: &str) -> Raw {
        Raw::of_protocol(interface, libc::ETH_P_ALL)
    }

    /// As [`Raw::new`], for frames of one protocol.
    pub fn of_protocol(interface: &str, protocol: libc::c_int) -> Raw {
        let index = NetDev::lookup(interface).unwrap().unwrap().index;
        // SAFETY: system calls on live structures.
        unsafe {
            let protocol = (protocol as u16).to_be();
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0);
            assert!(fd >= 0);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = index.cast_signed();
            assert_eq!(libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32), 0);
            let bytes: libc::c_int = 64 << 20;
            let size = size_of::<libc::c_int>() as u32;
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const bytes).cast(), size);
            Raw(OwnedFd::from_raw_fd(fd))
        }
    }

    /// As [`Raw::new`], with the virtio-net header in front of each frame.
    pub fn with_headers(interface: &str) -> Raw {
        let raw = Raw::new(interface);
        let on: libc::c_int = 1;
        // SAFETY: a live value of that size.
        let status = unsafe {
            let value = (&raw const on).cast();
            libc::setsockopt(raw.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, value, 4)
        };
        assert_eq!(status, 0, "{}", io::Error::last_os_error());
        raw
    }

    pub fn send(&self, frame: &[u8]) {
        // SAFETY: a live buffer.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    /// A frame that arrives within a quarter of a second, with the tag that the kernel stripped.
    pub fn receive(&self) -> Option<Vec<u8>> {
        if !readable(self.0.as_raw_fd(), 250) {
            return None;
        }
        let mut frame = vec![0u8; 70_000];
        // SAFETY: a live buffer.
        let len = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        frame.truncate(usize::try_from(len).ok()?);
        Some(frame)
    }
}

pub fn readable(fd: RawFd, milliseconds: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live structure.
    unsafe { libc::poll(&mut poll, 1, milliseconds) == 1 && poll.revents & libc::POLLIN != 0 }
}

pub fn frame(len: usize, number: u32) -> Vec<u8> {
    let mut frame = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x88\xb5".to_vec();
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..len).map(|at| (at as u32 * 31 + number) as u8));
    frame
}

pub fn queues(port: &mut Port) -> (RxQueue, TxQueue) {
    (port.take_rx(0).unwrap(), port.take_tx(0).unwrap())
}

/// Receives `n` frames, or those that arrive within two seconds.
pub fn receive(rx: &mut RxQueue, n: usize) -> Vec<Vec<u8>> {
    receive_within(rx, n, 2000)
}

pub fn receive_within(rx: &mut RxQueue, n: usize, milliseconds: u64) -> Vec<Vec<u8>> {
    let (mut frames, mut burst) = (Vec::new(), Burst::new());
    let end = Instant::now() + Duration::from_millis(milliseconds);
    while frames.len() < n && Instant::now() < end {
        burst.fill(|slots| rx.receive(slots));
        burst.drain(|packet| frames.push(packet.to_vec()));
    }
    frames
}

pub fn send(tx: &mut TxQueue, pool: &Mempool, frames: &[Vec<u8>]) {
    let mut burst = Burst::new();
    for frame in frames {
        burst.push(pool.alloc_from(frame).unwrap()).unwrap();
    }
    let count = tx.send_all(&mut burst);
    assert_eq!(count.sent, frames.len(), "{count:?}");
}
