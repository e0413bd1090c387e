//! Further network stacks, and traffic between them.

// No test uses all of it.
#![allow(dead_code)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A network namespace, held by a process.
pub struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        // The process ends with its standard input; errors mean that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    pub fn new() -> Peer {
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Peer(child)
    }

    /// The id of the process that holds the namespace, for `ip`.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether all pings of the peer are answered.
    pub fn pings(&self, to: &str) -> bool {
        self.within(|| pings(to))
    }

    /// Runs a closure in the namespace.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/proc/{}/ns/net", self.0.id())).unwrap();
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                // SAFETY: a system call that changes this thread only.
                assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
                work()
            });
            there.join().unwrap()
        })
    }
}

/// Whether all pings of this thread's namespace are answered.
pub fn pings(to: &str) -> bool {
    let mut ping = Command::new("ping");
    ping.args(["-n", "-c", "3", "-i", "0.05", "-W", "1", to]).stdout(Stdio::null());
    ping.status().unwrap().success()
}

/// Transfers 8 MB in each direction between the peer's kernel and this one's over one connection, while
/// `meanwhile` runs.
pub fn transfer(peer: &Peer, own: &str, meanwhile: impl Fn() + Sync) {
    const BYTES: usize = 8 << 20;
    let listener = TcpListener::bind(SocketAddr::new(own.parse::<IpAddr>().unwrap(), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let data: Vec<u8> = (0..BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let exchange = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut back = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| stream.write_all(&data).unwrap());
            let mut got = vec![0; BYTES];
            back.read_exact(&mut got).unwrap();
            assert!(got == data, "what arrives is what was sent");
        });
    };
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                meanwhile();
            }
        });
        scope.spawn(|| exchange(listener.accept().unwrap().0));
        peer.within(|| exchange(TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap()));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Number of packets that this thread's kernel has received with wrong checksums.
pub fn checksum_errors() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap()
        + &std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
    let mut errors = 0;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for pair in lines.windows(2) {
        for (name, value) in pair[0].iter().zip(&pair[1]) {
            errors += if name.contains("CsumErrors") { value.parse().unwrap_or(0) } else { 0 };
        }
    }
    errors
        + lines
            .iter()
            .filter(|line| line[0].ends_with("CsumErrors"))
            .map(|line| line[1].parse::<u64>().unwrap())
            .sum::<u64>()
}
