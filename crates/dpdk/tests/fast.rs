//! The fast path between two network stacks in namespaces of their own. The test is a learning wire between
//! them. Needs root and is skipped, with a message, without it.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;
#[path = "common/peer.rs"]
mod peer;
#[path = "common/wire.rs"]
mod wire;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mmb_dpdk::{
    Burst, Device, FastAction, FastGranularity, FastKey, FastPort, FastTranslation, Mempool, NetDev, Port,
    RxQueue, redirect_reports,
};
use mmb_packet::build::{Frame, Ip4, Udp};
use mmb_router::LinkWatch;
use net::*;
use peer::*;
use wire::*;

/// Runs a test in a namespace, if the kernel reports which interfaces take redirected frames.
fn in_namespace_that_tells(test: impl FnOnce()) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<u32> =
        release.split(['.', '-']).map_while(|number| number.parse().ok()).take(2).collect();
    if version < vec![6, 3] {
        println!("skipped: the kernel is older than 6.3");
        return;
    }
    in_namespace(test);
}

/// An AF_XDP port that is on the fast path.
fn fast_port(interface: &str, pool: &Mempool) -> Port {
    let port = open(Device::AfXdp { interface: interface.into() }, pool).unwrap();
    assert!(port.fast_path().is_none() && !port.is_fast());
    assert!(port.engage_fast_path(true), "{:?}", port.fast_path_error());
    port
}

fn ports(pool: &Mempool) -> [Port; 2] {
    [0, 1].map(|at| fast_port(&format!("mmb{at}"), pool))
}

/// All traffic between the two stacks is intact, and nearly all of it is forwarded in the kernel.
fn all_but_the_first_packets(mtu: u32) {
    in_namespace_that_tells(|| {
        let (ends, pool) = (Ends::new(mtu), pool());
        ends.gro("on");
        let mut ports = ports(&pool);
        assert!(ports.iter().all(Port::can_receive_redirects));
        Wire::between(&mut ports, |wire| {
            for address in ADDRESSES[1] {
                assert!(ends.0[0].pings(address), "{address}");
            }
            // Of each echo flow, one or two packets arrive here; no other packet does, and none is lost.
            assert!(wire.fast().0 >= 6, "{:?}", wire.fast());
            assert_eq!(wire.fast().0 + wire.slow(), 12);
            // The longest frames of the interface.
            let largest = (mtu - 28).to_string();
            ends.0[0].within(|| {
                let mut ping = Command::new("ping");
                ping.args(["-n", "-q", "-c", "3", "-i", "0.05", "-W", "1", "-M", "do", "-s", &largest]);
                assert!(ping.arg(ADDRESSES[1][0]).stdout(Stdio::null()).status().unwrap().success());
            });
            assert_eq!(wire.fast().0 + wire.slow(), 18);
            for address in ADDRESSES[1] {
                let before = (wire.slow(), wire.fast());
                ends.0[1].within(|| transfer(&ends.0[0], address, std::thread::yield_now));
                let (slow, bytes) = (wire.slow() - before.0, wire.fast().1 - before.1.1);
                assert!(slow < 1000 && bytes > 16 << 20, "{slow} packets came here, {bytes} bytes not");
            }
            assert_eq!(ends.checksum_errors(), 0);
        });
    });
}

#[test]
fn the_kernel_forwards_all_but_the_first_packets() {
    all_but_the_first_packets(1500);
}

#[test]
fn frames_as_long_as_xdp_takes() {
    all_but_the_first_packets(1770);
}

/// With entries of destinations or pairs, no packet arrives in user space, not even those that open and close
/// connections.
#[test]
fn the_kernel_forwards_everything_to_a_destination() {
    everything_goes_on(FastGranularity::Destination);
}

#[test]
fn the_kernel_forwards_everything_of_a_pair() {
    everything_goes_on(FastGranularity::Pair);
}

fn everything_goes_on(granularity: FastGranularity) {
    in_namespace_that_tells(|| {
        let (ends, pool) = (Ends::new(1500), pool());
        ends.gro("on");
        let mut ports = ports(&pool);
        Wire::between(&mut ports, |wire| {
            wire.path.set_generation(NOW, granularity);
            for (slot, (to, family)) in (1000..).zip([(0, 0), (0, 1), (1, 0), (1, 1)]) {
                let action =
                    FastAction { pass_control: true, ..FastAction::forward_unchanged(wire.ports[to], 1500) };
                let [source, destination] =
                    [1 - to, to].map(|end| (ADDRESSES[end][family].parse().unwrap(), 0));
                let key = udp(wire.ports[1 - to], source, destination);
                if granularity == FastGranularity::Pair {
                    let keys = [6, [1, 58][family]].map(|proto| FastKey { proto, ..key.without_ports() });
                    wire.path.install(slot, NOW, &keys[0], &action).unwrap();
                    wire.path.install(slot + 1000, NOW, &keys[1], &action).unwrap();
                } else {
                    wire.path
                        .install(slot, NOW, &FastKey::for_destination(key.port, key.destination), &action)
                        .unwrap();
                }
            }
            for address in ADDRESSES[1] {
                assert!(ends.0[0].pings(address), "{address}");
                for _ in 0..3 {
                    ends.0[1].within(|| transfer(&ends.0[0], address, std::thread::yield_now));
                }
            }
            assert_eq!((wire.slow(), ends.checksum_errors()), (0, 0));
            assert!((1000..1004).all(|slot| wire.path.flow_stats(slot).bytes > 16 << 20));
        });
    });
}

/// Address and port.
type End = (IpAddr, u16);

fn udp(port: FastPort, source: End, destination: End) -> FastKey {
    FastKey {
        granularity: FastGranularity::Flow,
        port,
        proto: 17,
        source: source.0,
        destination: destination.0,
        source_port: source.1,
        destination_port: destination.1,
    }
}

/// A datagram between raw sockets of the two stacks, and the open ports with their queues.
struct Datagram {
    frame: Vec<u8>,
    key: FastKey,
    raws: [Raw; 2],
}

impl Datagram {
    fn between(ends: &Ends, from: FastPort) -> Datagram {
        let [source, destination] = ADDRESSES.map(|of| of[0].parse::<Ipv4Addr>().unwrap());
        let frame = Frame::new(Ip4::new(source, destination), Udp::new(1000, 2000)).payload([7; 100]).build();
        let raws = [0, 1].map(|at| ends.0[at].within(|| Raw::new(&format!("peer{at}"))));
        let key = udp(from, (source.into(), 1000), (destination.into(), 2000));
        Datagram { frame, key, raws }
    }

    /// Shows the destination address as the source of a frame that takes the slow way.
    fn show_destination(&self) {
        let mut frame = self.frame.clone();
        frame.copy_within(..6, 6);
        frame[..6].fill(0xff);
        self.raws[1].send(&frame);
    }

    /// Verifies that the datagram has arrived once.
    fn has_arrived_at(&self, raw: &Raw) {
        // The stack may reply.
        let frames = std::iter::from_fn(|| raw.receive()).filter(|frame| *frame == self.frame);
        assert_eq!(frames.count(), 1);
    }

    /// Sends the datagram. Returns whether the port and the other end receive it.
    fn send(&self, rx: &mut RxQueue) -> (bool, bool) {
        self.raws[0].send(&self.frame);
        let sent_on = std::iter::from_fn(|| self.raws[1].receive()).any(|frame| frame == self.frame);
        let mut received = Vec::new();
        let mut burst = Burst::new();
        while burst.fill(|slots| rx.receive(slots)) > 0 {
            burst.drain(|packet| received.push(packet.to_vec()));
        }
        (received.contains(&self.frame), sent_on)
    }
}

const TO_PORT: (bool, bool) = (true, false);
const SENT_ON: (bool, bool) = (false, true);
const LOST: (bool, bool) = (false, false);

/// The action that forwards it unchanged to this port.
fn to_port(out: FastPort) -> FastAction {
    FastAction::forward_unchanged(out, 1500)
}

#[test]
fn ports_are_opened_and_closed_repeatedly() {
    in_namespace_that_tells(|| {
        let (ends, pool) = (Ends::new(1500), pool());
        ends.gro("on");
        let [mut first, second] = ports(&pool);
        let path = Arc::clone(first.fast_path().unwrap());
        let ids = [&first, &second].map(|port| port.fast_port().unwrap());
        let (mut rx, tx) = queues(&mut first);
        let mut datagram = Datagram::between(&ends, ids[0]);
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        path.install(1, NOW, &datagram.key, &to_port(ids[1])).unwrap();
        assert_eq!(datagram.send(&mut rx), TO_PORT, "it is off");
        path.set_generation(NOW, FastGranularity::Flow);
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        path.revoke(1);
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        path.install(1, NOW, &datagram.key, &to_port(ids[1])).unwrap();
        path.set_generation(NOW + 1, FastGranularity::Flow);
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        path.set_generation(NOW, FastGranularity::Flow);
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        // The egress port is closed; then the interface gets a new port.
        drop(second);
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        let second = fast_port("mmb1", &pool);
        let id = second.fast_port().unwrap();
        assert!(!ids.contains(&id));
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        path.install(1, NOW, &datagram.key, &to_port(id)).unwrap();
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        // The ingress port is closed; then the interface gets a new port.
        drop((first, rx, tx));
        let mut first = fast_port("mmb0", &pool);
        let (mut rx, _tx) = queues(&mut first);
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        datagram.key.port = first.fast_port().unwrap();
        path.install(2, NOW, &datagram.key, &to_port(id)).unwrap();
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        // The interface is removed under the port.
        ip("link del mmb1");
        assert!(!second.can_receive_redirects());
        datagram.raws[0].send(&datagram.frame);
        let end = Instant::now() + Duration::from_secs(5);
        while !receive_within(&mut rx, 1, 50).contains(&datagram.frame) {
            assert!(Instant::now() < end);
        }
    });
}

#[test]
fn a_port_that_accepts_no_redirected_frames_is_reported() {
    in_namespace_that_tells(|| {
        let (ends, pool) = (Ends::new(1500), pool());
        let [mut first, second] = ports(&pool);
        let path = Arc::clone(first.fast_path().unwrap());
        let ids = [&first, &second].map(|port| port.fast_port().unwrap());
        let (mut rx, _tx) = queues(&mut first);
        let datagram = Datagram::between(&ends, ids[0]);
        path.set_generation(NOW, FastGranularity::Flow);
        path.install(1, NOW, &datagram.key, &to_port(ids[1])).unwrap();
        assert!(!second.can_receive_redirects(), "GRO is off");
        assert_eq!(datagram.send(&mut rx), LOST);
        assert_eq!(path.flow_stats(1).packets, 1);
        ends.gro("on");
        assert!(second.can_receive_redirects());
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        ends.gro("off");
        assert!(!second.can_receive_redirects());
        // A program suffices, with or without GRO.
        let peer = Device::AfXdp { interface: "peer1".into() };
        let kept = ends.0[1].within(|| open(peer, &pool).unwrap());
        assert!(second.can_receive_redirects());
        ends.0[1].within(|| drop(kept));
        assert!(!second.can_receive_redirects());
        // An interface takes no frames while it or its other end is down, which the kernel reports with a
        // delay.
        ends.gro("on");
        let eventually = |expected| {
            let end = Instant::now() + Duration::from_secs(5);
            while second.can_receive_redirects() != expected {
                assert!(Instant::now() < end);
                std::thread::yield_now();
            }
        };
        for (state, expected) in [("down", false), ("up", true)] {
            ends.0[1].within(|| ip(&format!("link set peer1 {state}")));
            eventually(expected);
        }
        ip("link set mmb1 down");
        assert!(!second.can_receive_redirects());
    });
}

#[test]
fn a_watch_ends_when_a_port_begins_or_ceases_to_take_frames() {
    in_namespace_that_tells(|| {
        let (ends, pool) = (Ends::new(1500), pool());
        let [_first, second] = ports(&pool);
        let mut watch = LinkWatch::new().unwrap();
        watch.listen_to(redirect_reports().unwrap());
        let changes: [(&dyn Fn(), bool); 4] = [
            (&|| ends.gro("on"), true),
            (&|| ends.gro("off"), false),
            (&|| ends.gro("on"), true),
            (&|| ip("link set mmb1 down"), false),
        ];
        for (change, expected) in changes {
            watch.wait(Duration::ZERO);
            let start = Instant::now();
            change();
            loop {
                watch.wait(Duration::from_secs(20));
                assert!(start.elapsed() < Duration::from_secs(10), "the kernel has reported nothing");
                if second.can_receive_redirects() == expected {
                    break;
                }
            }
        }
        watch.waker().wake();
        watch.sleep();
    });
}

/// Sockets of both stacks communicate through a translation, with checksums that their kernels leave to
/// hardware.
#[test]
fn translated_both_ways() {
    in_namespace_that_tells(|| {
        let (ends, pool) = (Ends::new(1500), pool());
        ends.gro("on");
        let ports = ports(&pool);
        let path = ports[0].fast_path().unwrap();
        let ids = [0, 1].map(|at| ports[at].fast_port().unwrap());
        path.set_generation(NOW, FastGranularity::Flow);
        for (slots, at, stand_in) in [([1, 2], 0, "10.99.0.77"), ([3, 4], 1, "fd99::77")] {
            // The second stack reaches the translated address at the first stack.
            let mac = ends.0[0].within(|| link("peer0"));
            let mac = mac.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap();
            ends.0[1].within(|| ip(&format!("neigh replace {stand_in} lladdr {mac} dev peer1")));
            let [one, two] = ADDRESSES.map(|of| of[at].parse::<IpAddr>().unwrap());
            let there = [(one, 1000), (two, 2000)];
            let shown = [(stand_in.parse::<IpAddr>().unwrap(), 5000), (two, 7000)];
            let install = |slot, from: usize, [source, destination]: [End; 2], to: [End; 2]| {
                let key = udp(ids[from], source, destination);
                let translation = Some(FastTranslation {
                    source: to[0].0,
                    destination: to[1].0,
                    source_port: to[0].1,
                    destination_port: to[1].1,
                });
                let action = FastAction { decrement_ttl: true, translation, ..to_port(ids[1 - from]) };
                path.install(slot, NOW, &key, &action).unwrap();
            };
            install(slots[0], 0, there, shown);
            install(slots[1], 1, [shown[1], shown[0]], [there[1], there[0]]);
            let socket = |peer: usize, end: End| {
                let socket = ends.0[peer].within(|| UdpSocket::bind(end).unwrap());
                socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                socket
            };
            let (asking, answering) = (socket(0, there[0]), socket(1, shown[1]));
            for len in [0usize, 1, 2, 3, 100, 511, 1000, 1451] {
                let (question, mut got) = (vec![len as u8; len], vec![0; 2000]);
                asking.send_to(&question, there[1]).unwrap();
                let (n, from) = answering.recv_from(&mut got).unwrap();
                assert_eq!((&got[..n], from), (&question[..], shown[0].into()));
                answering.send_to(&question, from).unwrap();
                let (n, from) = asking.recv_from(&mut got).unwrap();
                assert_eq!((&got[..n], from), (&question[..], there[1].into()));
            }
            assert_eq!(slots.map(|slot| path.flow_stats(slot).packets), [8, 8]);
        }
        assert_eq!(ends.checksum_errors(), 0);
    });
}

/// Packets that the kernel has sent out of an interface.
fn sent_by(interface: &str) -> u64 {
    let shown = Command::new("ip").args(["-s", "link", "show", interface]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let values = text.lines().skip_while(|line| !line.contains("TX:")).nth(1).unwrap();
    values.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Packets go to the other end of a veth pair past the interface, as long as that end would treat them alike.
/// They always arrive, and once.
#[test]
fn packets_go_past_the_interface_to_a_plain_peer() {
    in_namespace_that_tells(|| {
        let (ends, pool) = (Ends::new(1500), pool());
        let [first, second] = [0, 1].map(|at| {
            let port = open(Device::AfPacket { interface: format!("mmb{at}") }, &pool).unwrap();
            assert!(port.engage_fast_path(true), "{:?}", port.fast_path_error());
            port
        });
        let path = Arc::clone(first.fast_path().unwrap());
        let ids = [&first, &second].map(|port| port.fast_port().unwrap());
        let mut datagram = Datagram::between(&ends, ids[0]);
        path.set_generation(NOW, FastGranularity::Flow);
        let action = to_port(ids[1]);
        // How many packets of one go through the interface.
        let through_interface = |datagram: &Datagram| {
            second.update_delivery();
            path.install(1, NOW, &datagram.key, &action).unwrap();
            let before = sent_by("mmb1");
            datagram.raws[0].send(&datagram.frame);
            let end = Instant::now() + Duration::from_secs(5);
            while path.flow_stats(1).packets == 0 {
                assert!(Instant::now() < end);
            }
            path.revoke(1);
            path.remove(&datagram.key, 1);
            sent_by("mmb1") - before
        };
        assert_eq!(through_interface(&datagram), 1, "it is for another host behind the peer");
        datagram.has_arrived_at(&datagram.raws[1]);
        let mac = ends.0[1].within(|| NetDev::lookup("peer1").unwrap().unwrap().mac);
        datagram.frame[..6].copy_from_slice(&mac);
        for (gro, expected) in [("off", 0), ("on", 1), ("off", 0)] {
            ends.gro(gro);
            second.update_delivery();
            // The kernel delivers the frame a little later.
            let end = Instant::now() + Duration::from_secs(5);
            loop {
                datagram.show_destination();
                let through = through_interface(&datagram);
                datagram.has_arrived_at(&datagram.raws[1]);
                if through == expected {
                    break;
                }
                assert!(Instant::now() < end, "GRO {gro}: {through}");
            }
        }
        // The peer's XDP program must get the packets.
        let peer = Device::AfXdp { interface: "peer1".into() };
        let kept = ends.0[1].within(|| open(peer, &pool).unwrap());
        assert_eq!(through_interface(&datagram), 1);
        ends.0[1].within(|| drop(kept));
        // The kernel would lose what is given to an end in the same namespace.
        // SAFETY: a plain system call.
        let here = unsafe { libc::gettid() };
        ends.0[1].within(|| ip(&format!("link set peer1 netns {here}")));
        ip("link set peer1 up");
        let raw = Raw::new("peer1");
        assert_eq!(through_interface(&datagram), 1);
        datagram.has_arrived_at(&raw);
    });
}

/// Ports that cannot use the fast path work without it.
#[test]
fn ports_without_the_fast_path_still_work() {
    in_namespace(|| {
        let pool = pool();
        let packets = open(Device::AfPacket { interface: "peer0".into() }, &pool).unwrap();
        assert!(
            packets.fast_path().is_none()
                && packets.fast_port().is_none()
                && !packets.can_receive_redirects()
        );
        assert_eq!(packets.fast_path_error(), None);
        ip("link add mmbbr0 type bridge");
        ip("link set mmbbr0 up");
        let generic = open(Device::AfXdp { interface: "mmbbr0".into() }, &pool).unwrap();
        assert!(generic.is_generic_xdp());
        assert!(
            generic.fast_path().is_none()
                && generic.fast_port().is_none()
                && !generic.can_receive_redirects()
        );
        assert!(!generic.engage_fast_path(true));
        let why = generic.fast_path_error().unwrap();
        assert!(why.starts_with("cannot use XDP in its driver: "), "{why}");
    });
}
