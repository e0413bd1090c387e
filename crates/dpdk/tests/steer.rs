//! AF_XDP ports that share their interface with the kernel, between real network stacks: the test's, in a namespace of
//! its thread, and a peer's in a second one. Takes root, and is skipped, with a word, without.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mmb_dpdk::{Burst, Device, NetDev, RxQueue, Steering};
use net::*;

const OWN: [&str; 2] = ["10.99.0.1", "fd99::1"];
const PEER: [&str; 2] = ["10.99.0.2", "fd99::2"];
const FAR: [&str; 2] = ["198.51.100.7", "2001:db8::7"];

/// The peer's network namespace, which lives as long as a process in it.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        // The process ends when its standard input does; nothing is left to do about one that has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    /// Takes `peer0` into a namespace of its own, and gives it and `interface` addresses. What is for others, the peer
    /// sends to `interface`.
    fn of(interface: &str) -> Peer {
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let peer = Peer(child);
        ip(&format!("link set peer0 netns {}", peer.0.id()));
        let set_up = |name: &str, addresses: [&str; 2]| {
            sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "0");
            sysctl(&format!("net/ipv6/conf/{name}/accept_dad"), "0");
            ip("link set lo up");
            ip(&format!("link set {name} up"));
            ip(&format!("address add {}/24 dev {name}", addresses[0]));
            ip(&format!("address add {}/64 dev {name} nodad", addresses[1]));
        };
        set_up(interface, OWN);
        peer.within(|| set_up("peer0", PEER));
        for (own, far) in OWN.iter().zip(FAR) {
            peer.within(|| ip(&format!("route add {far} via {own} dev peer0")));
        }
        peer
    }

    /// Whether the peer gets all answers to its pings.
    fn pings(&self, to: &str) -> bool {
        self.within(|| pings(to))
    }

    /// Runs a closure in the peer's namespace.
    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/proc/{}/ns/net", self.0.id())).unwrap();
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                // SAFETY: plain system call, for this thread only.
                assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
                work()
            });
            there.join().unwrap()
        })
    }
}

/// Whether this thread's namespace gets all answers to its pings.
fn pings(to: &str) -> bool {
    let mut ping = Command::new("ping");
    ping.args(["-n", "-c", "3", "-i", "0.05", "-W", "1", to]).stdout(Stdio::null());
    ping.status().unwrap().success()
}

/// What leaves the kernel its own on an interface, with these addresses.
fn steering(interface: &str, local: &[&str]) -> Steering {
    let mac = NetDev::lookup(interface).unwrap().unwrap().mac;
    Steering { mac, local: local.iter().map(|address| address.parse().unwrap()).collect() }
}

/// Everything that the port has received.
fn received(rx: &mut RxQueue) -> Vec<Vec<u8>> {
    let (mut frames, mut burst) = (Vec::new(), Burst::new());
    while burst.fill(|slots| rx.receive(slots)) > 0 {
        burst.drain(|packet| frames.push(packet.to_vec()));
    }
    frames
}

/// 8 MB each way between the peer's kernel and this one's, over one connection; while it lasts, `meanwhile` runs.
fn transfer(peer: &Peer, own: &str, meanwhile: impl Fn() + Sync) {
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

/// Sends a datagram from the peer.
fn datagram(peer: &Peer, to: &str) {
    let to = SocketAddr::new(to.parse().unwrap(), 9);
    peer.within(|| {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        assert_eq!(UdpSocket::bind(any).unwrap().send_to(b"mmb-datagram", to).unwrap(), 12);
    });
}

/// How many packets this thread's kernel found to have wrong checksums.
fn checksum_errors() -> u64 {
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

/// ARP, ND, pings and TCP between the kernels, with the offloads that they choose, and what is for others.
fn shared_with_the_kernel(interface: &str, generic: bool) {
    let (peer, pool) = (Peer::of(interface), pool());
    let mut port = open(Device::AfXdp { interface: interface.into() }, &pool).unwrap();
    let (mut rx, mut tx) = queues(&mut port);
    assert_eq!(port.is_generic_xdp(), generic);
    port.steer(Some(&steering(interface, &OWN))).unwrap();
    received(&mut rx);
    for own in OWN {
        assert!(peer.pings(own), "{own}");
    }
    assert!(peer.pings("ff02::1%peer0"));
    for to in PEER {
        assert!(pings(to), "{to}");
    }
    // Checksums are left to the device; so are long segments, but not to an interface with XDP in its driver.
    let peers = peer.within(|| NetDev::lookup("peer0").unwrap().unwrap().offloads);
    assert_eq!((peers.tx_checksum, peers.tso), (true, generic));
    for own in OWN {
        transfer(&peer, own, || std::thread::sleep(Duration::from_millis(1)));
    }
    assert_eq!(checksum_errors(), 0);
    assert_eq!(received(&mut rx), Vec::<Vec<u8>>::new());
    for far in FAR {
        datagram(&peer, far);
        let frames = receive(&mut rx, 1);
        assert!(frames[0].ends_with(b"mmb-datagram"), "{frames:?}");
    }
    // What the port sends is on the wire beside what the kernel sends.
    let raw = peer.within(|| Raw::new("peer0"));
    send(&mut tx, &pool, &[frame(100, 1)]);
    let end = Instant::now() + Duration::from_secs(5);
    while raw.receive() != Some(frame(100, 1)) {
        assert!(Instant::now() < end);
    }
}

#[test]
fn the_kernel_keeps_its_own() {
    in_namespace(|| shared_with_the_kernel("mmb0", false));
}

#[test]
fn the_kernel_keeps_its_own_before_its_stack() {
    in_namespace(|| {
        bridge();
        shared_with_the_kernel("mmbbr0", true);
    });
}

/// Off and on, and other addresses, while the kernel talks: no frame goes astray.
#[test]
fn steering_changes_live() {
    in_namespace(|| {
        let (peer, pool) = (Peer::of("mmb0"), pool());
        let mut port = open(xdp(), &pool).unwrap();
        let (mut rx, _tx) = queues(&mut port);
        for _ in 0..3 {
            port.steer(Some(&steering("mmb0", &OWN))).unwrap();
            // What came before, the port still has.
            received(&mut rx);
            assert!(peer.pings(OWN[0]) && peer.pings(OWN[1]));
            assert_eq!(received(&mut rx), Vec::<Vec<u8>>::new());
            port.steer(None).unwrap();
            assert!(!peer.pings(OWN[0]), "wire mode: the port has every frame");
            let frames = received(&mut rx);
            assert!(
                frames.iter().filter(|frame| frame[12..14] == [8, 0] && frame[23] == 1).count() >= 3,
                "{frames:?}"
            );
        }
        let others: Vec<Steering> = (0..50u8)
            .map(|n| steering("mmb0", &[OWN[0], OWN[1], &format!("10.99.1.{n}"), &format!("fd99::1:{n}")]))
            .collect();
        port.steer(Some(&others[0])).unwrap();
        for own in OWN {
            transfer(&peer, own, || others.iter().for_each(|other| port.steer(Some(other)).unwrap()));
        }
        assert_eq!(received(&mut rx), Vec::<Vec<u8>>::new());
    });
}

/// Somebody else's program is not replaced, and still there after we were refused; nor is ours replaced.
#[test]
fn programs_of_others_stay() {
    in_namespace(|| {
        let pool = pool();
        let object = std::env::temp_dir().join(format!("mmb-steer-{}.o", std::process::id()));
        std::fs::write(&object, mmb_dpdk_sys::STEER).unwrap();
        let attach = |mode: &str| {
            let mut command = Command::new("ip");
            command.args(["link", "set", "mmb0", mode, "object"]).arg(&object).args(["section", "xdp"]);
            command.stderr(Stdio::null()).status().unwrap().success()
        };
        for mode in ["xdpdrv", "xdpgeneric"] {
            assert!(attach(mode), "{mode}");
            let refused = open(xdp(), &pool).err().unwrap().to_string();
            assert!(
                refused.contains("another program uses XDP on mmb0 (see: ip link show mmb0"),
                "{refused}"
            );
            assert!(link("mmb0").contains("prog/xdp"), "{}", link("mmb0"));
            ip(&format!("link set mmb0 {mode} off"));
            let port = open(xdp(), &pool).unwrap();
            let ours = link("mmb0");
            assert!(!attach(mode) && ours.contains("prog/xdp"));
            assert_eq!(link("mmb0"), ours);
            drop(port);
            assert!(!link("mmb0").contains("prog/xdp"));
        }
        std::fs::remove_file(&object).unwrap();
        assert_eq!(pool.in_use(), 0);
    });
}

/// An interface whose driver has no XDP, over `mmb0`.
fn bridge() {
    ip("link add mmbbr0 type bridge");
    ip("link set mmb0 master mmbbr0");
    sysctl("net/ipv6/conf/mmbbr0/disable_ipv6", "1");
    ip("link set mmbbr0 up");
}

/// An interface whose driver has no XDP: the kernel runs the program in its place.
#[test]
fn generic_where_the_driver_cannot() {
    in_namespace(|| {
        bridge();
        let pool = pool();
        let mut port = open(Device::AfXdp { interface: "mmbbr0".into() }, &pool).unwrap();
        assert!(port.is_generic_xdp());
        let (mut rx, mut tx) = queues(&mut port);
        let peer = Raw::new("peer0");
        let end = Instant::now() + Duration::from_secs(5);
        // The bridge takes a moment until its port forwards.
        while {
            peer.send(&frame(60, 1));
            receive_within(&mut rx, 1, 50).is_empty()
        } {
            assert!(Instant::now() < end);
        }
        received(&mut rx);
        let frames: Vec<_> = (0..100).map(|number| frame(60 + number as usize * 14, number)).collect();
        for round in 0..20 {
            frames.iter().for_each(|frame| peer.send(frame));
            assert_eq!(receive(&mut rx, frames.len()), frames, "{round}");
            send(&mut tx, &pool, &frames);
            // The bridge sends on in its own time, which may be long where others use the machine.
            let arrived = || (0..20).find_map(|_| peer.receive());
            frames.iter().for_each(|frame| assert_eq!(arrived().as_ref(), Some(frame), "{round}"));
        }
        drop((port, rx, tx));
        assert!(!link("mmbbr0").contains("xdp"));
        assert!(pool.in_use() <= 1);
    });
}
