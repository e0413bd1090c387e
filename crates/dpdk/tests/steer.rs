//! AF_XDP ports that share their interface with the kernel, between the test's network stack and a peer's in
//! another namespace. Needs root and is skipped, with a message, without it.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;
#[path = "common/peer.rs"]
mod peer;

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mmb_dpdk::{Burst, Device, NetDev, RxQueue, Steering};
use net::*;
use peer::*;

const OWN: [&str; 2] = ["10.99.0.1", "fd99::1"];
const PEER: [&str; 2] = ["10.99.0.2", "fd99::2"];
const FAR: [&str; 2] = ["198.51.100.7", "2001:db8::7"];

/// Moves `peer0` to a namespace and assigns addresses to it and to `interface`, which is the peer's default
/// route.
fn peer_of(interface: &str) -> Peer {
    let peer = Peer::new();
    ip(&format!("link set peer0 netns {}", peer.id()));
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

/// The steering of an interface with these addresses.
fn steering(interface: &str, local: &[&str]) -> Steering {
    let mac = NetDev::lookup(interface).unwrap().unwrap().mac;
    Steering { mac, local: local.iter().map(|address| address.parse().unwrap()).collect() }
}

/// All frames that the port has received.
fn received(rx: &mut RxQueue) -> Vec<Vec<u8>> {
    let (mut frames, mut burst) = (Vec::new(), Burst::new());
    while burst.fill(|slots| rx.receive(slots)) > 0 {
        burst.drain(|packet| frames.push(packet.to_vec()));
    }
    frames
}

/// Sends a datagram from the peer.
fn datagram(peer: &Peer, to: &str) {
    let to = SocketAddr::new(to.parse().unwrap(), 9);
    peer.within(|| {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        assert_eq!(UdpSocket::bind(any).unwrap().send_to(b"mmb-datagram", to).unwrap(), 12);
    });
}

/// ARP, ND, pings and TCP between the kernels with their default offloads, and packets to other addresses.
fn shared_with_the_kernel(interface: &str, generic: bool) {
    let (peer, pool) = (peer_of(interface), pool());
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
    // Checksums are left to the device; long segments too, except with XDP in the driver.
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
    // The port and the kernel send on the same wire.
    let raw = peer.within(|| Raw::new("peer0"));
    send(&mut tx, &pool, &[frame(100, 1)]);
    let end = Instant::now() + Duration::from_secs(5);
    while raw.receive() != Some(frame(100, 1)) {
        assert!(Instant::now() < end);
    }
}

#[test]
fn the_kernel_keeps_its_frames() {
    in_namespace(|| shared_with_the_kernel("mmb0", false));
}

#[test]
fn the_kernel_keeps_its_frames_in_generic_mode() {
    in_namespace(|| {
        bridge();
        shared_with_the_kernel("mmbbr0", true);
    });
}

/// The program with the fast path takes the other one's place during traffic.
#[test]
fn no_frame_is_lost_while_a_port_joins_the_fast_path() {
    in_namespace(|| {
        let (peer, pool) = (peer_of("mmb0"), pool());
        let mut port = open(xdp(), &pool).unwrap();
        let (mut rx, _tx) = queues(&mut port);
        let raw = peer.within(|| Raw::new("peer0"));
        let mut check = |n| {
            raw.send(&frame(100, n));
            let end = Instant::now() + Duration::from_secs(5);
            while !receive_within(&mut rx, 1, 50).contains(&frame(100, n)) {
                assert!(Instant::now() < end, "frame {n}");
            }
        };
        let has_joined = std::thread::scope(|scope| {
            let joining = scope.spawn(|| port.engage_fast_path(true));
            (0..).take_while(|_| !joining.is_finished()).for_each(&mut check);
            joining.join().unwrap()
        });
        assert!(has_joined, "{:?}", port.fast_path_error());
        (0..100).for_each(check);
    });
}

/// Steering is switched and addresses change during traffic, without a misdirected frame.
#[test]
fn steering_changes_during_traffic() {
    in_namespace(|| {
        let (peer, pool) = (peer_of("mmb0"), pool());
        let mut port = open(xdp(), &pool).unwrap();
        let (mut rx, _tx) = queues(&mut port);
        for _ in 0..3 {
            port.steer(Some(&steering("mmb0", &OWN))).unwrap();
            // The port still holds earlier frames.
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

/// Another process's program is neither replaced nor removed, and it cannot replace the port's.
#[test]
fn foreign_programs_are_not_replaced() {
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

/// A bridge over `mmb0`: an interface whose driver has no XDP.
fn bridge() {
    // Multicast snooping would send frames of its own.
    ip("link add mmbbr0 type bridge mcast_snooping 0");
    ip("link set mmb0 master mmbbr0");
    sysctl("net/ipv6/conf/mmbbr0/disable_ipv6", "1");
    ip("link set mmbbr0 up");
}

/// On an interface whose driver has no XDP, the kernel runs the program in its stack.
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
        // A bridge port forwards only after a while.
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
            // The bridge forwards asynchronously, slowly on a busy machine.
            let arrived = || (0..20).find_map(|_| peer.receive());
            frames.iter().for_each(|frame| assert_eq!(arrived().as_ref(), Some(frame), "{round}"));
        }
        drop((port, rx, tx));
        assert!(!link("mmbbr0").contains("xdp"));
        assert!(pool.in_use() <= 1);
    });
}

/// An IPv4 packet for a host behind the interface with this Ethernet address.
fn packet_to(mac: [u8; 6]) -> Vec<u8> {
    [&mac[..], &[2; 6], &[8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 99, 0, 2, 198, 51, 100, 7]]
        .concat()
}

/// The kernel's stack gets no packets of a routed AF_PACKET port, except those that are not for it.
#[test]
fn a_routed_packet_port_spares_the_kernels_stack_its_packets() {
    in_namespace(|| {
        let (pool, peer) = (pool(), Raw::new("peer0"));
        let mut port = open(Device::AfPacket { interface: "mmb0".into() }, &pool).unwrap();
        let (mut rx, _tx) = queues(&mut port);
        // A socket of one protocol receives behind tc.
        let stack = Raw::of_protocol("mmb0", libc::ETH_P_IP);
        let own = NetDev::lookup("mmb0").unwrap().unwrap().mac;
        let frames = [packet_to(own), packet_to([0xff; 6])];
        let routed = steering("mmb0", &[]);
        for (steering, reaches) in
            [(None, [true, true]), (Some(&routed), [false, true]), (None, [true, true])]
        {
            port.steer(steering).unwrap();
            for (frame, reaches) in frames.iter().zip(reaches) {
                peer.send(frame);
                assert_eq!(receive(&mut rx, 1), std::slice::from_ref(frame));
                assert_eq!(stack.receive().is_some(), reaches, "{steering:?}");
            }
        }
    });
}
