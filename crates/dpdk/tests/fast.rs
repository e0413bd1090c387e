//! Flows that the kernel sends on, between two real network stacks, each in a namespace of its own, with the test in a third one
//! as a wire between them that learns. Takes root, and is skipped, with a word, without.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;
#[path = "common/peer.rs"]
mod peer;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mmb_dpdk::{
    Burst, Device, FastAction, FastKey, FastPath, FastPort, FastTranslation, Mempool, NetDev, Port, RxQueue,
    SmallFrames, TxQueue,
};
use mmb_packet::Meta;
use mmb_packet::build::{Frame, Ip4, Udp};
use mmb_packet::checksum::complete_partial;
use net::*;
use peer::*;

const ADDRESSES: [[&str; 2]; 2] = [["10.99.0.1", "fd99::1"], ["10.99.0.2", "fd99::2"]];
/// The generation in force.
const NOW: u64 = 1;

/// Runs a test in a namespace of its own, if the kernel tells which interfaces take frames.
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

/// `mmb0` and `mmb1`, and the stacks behind them.
struct Ends([Peer; 2]);

impl Ends {
    /// Peers that know each other's address, so that all frames between them are those of the tests.
    fn new(mtu: u32) -> Ends {
        ip("link add mmb1 type veth peer name peer1");
        let ends = Ends([Peer::new(), Peer::new()]);
        for (at, peer) in ends.0.iter().enumerate() {
            ip(&format!("link set peer{at} netns {}", peer.id()));
            sysctl(&format!("net/ipv6/conf/mmb{at}/disable_ipv6"), "1");
            ip(&format!("link set mmb{at} up mtu {mtu}"));
            peer.within(|| {
                let name = format!("peer{at}");
                sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "0");
                ip("link set lo up");
                ip(&format!("link set {name} up mtu {mtu}"));
                ip(&format!("address add {}/24 dev {name}", ADDRESSES[at][0]));
                ip(&format!("address add {}/64 dev {name} nodad", ADDRESSES[at][1]));
            });
        }
        let macs =
            [0, 1].map(|at| ends.0[at].within(|| NetDev::lookup(&format!("peer{at}")).unwrap().unwrap().mac));
        for (at, peer) in ends.0.iter().enumerate() {
            let mac: Vec<String> = macs[1 - at].iter().map(|byte| format!("{byte:02x}")).collect();
            for address in ADDRESSES[1 - at] {
                let neighbour = format!("neigh replace {address} lladdr {} dev peer{at}", mac.join(":"));
                peer.within(|| ip(&neighbour));
            }
        }
        ends
    }

    /// Switches GRO of both, without which a veth end takes no frames from programs.
    fn gro(&self, value: &str) {
        for (at, peer) in self.0.iter().enumerate() {
            let name = format!("peer{at}");
            peer.within(|| {
                let mut ethtool = Command::new("ethtool");
                assert!(ethtool.args(["-K", &name, "gro", value]).status().unwrap().success());
            });
        }
    }

    fn checksum_errors(&self) -> u64 {
        self.0.iter().map(|peer| peer.within(checksum_errors)).sum()
    }
}

/// A wire between the two ports in user space, which has the kernel take over every flow that it may.
struct Wire {
    path: Arc<FastPath>,
    ports: [FastPort; 2],
    /// Their slots are numbered from 1.
    flows: Mutex<Vec<FastKey>>,
    /// Packets of such flows that came to user space.
    slow: AtomicU64,
    done: AtomicBool,
}

impl Wire {
    /// Runs `work` while a thread of its own is the wire.
    fn between(ports: &mut [Port; 2], work: impl FnOnce(&Wire)) {
        let wire = Wire {
            path: Arc::clone(ports[0].fast_path().unwrap()),
            ports: [0, 1].map(|at| ports[at].fast_port().unwrap()),
            flows: Mutex::default(),
            slow: AtomicU64::new(0),
            done: AtomicBool::new(false),
        };
        wire.path.set_generation(NOW);
        let [(mut rx0, mut tx0), (mut rx1, mut tx1)] = ports.each_mut().map(queues);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !wire.done.load(Ordering::Relaxed) {
                    wire.forward(0, &mut rx0, &mut tx1);
                    wire.forward(1, &mut rx1, &mut tx0);
                    std::thread::yield_now();
                }
            });
            // A test that fails ends the wire as well.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&wire)));
            wire.done.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        wire.path.set_generation(0);
    }

    fn forward(&self, from: usize, rx: &mut RxQueue, tx: &mut TxQueue) {
        let mut burst = Burst::new();
        if burst.fill(|slots| rx.receive(slots)) == 0 {
            return;
        }
        for packet in burst.iter_mut() {
            let mut meta = Meta::default();
            if mmb_packet::parse(packet.data(), packet.pkt_len(), &mut meta).is_ok() {
                complete_partial(packet.data_mut(), &[], &meta);
                self.learn(from, packet.data());
            }
        }
        tx.send_all(&mut burst);
    }

    fn learn(&self, from: usize, frame: &[u8]) {
        // The stacks have more to say, which nobody asks them to.
        let Some(key) = self.key(from, frame) else { return };
        self.slow.fetch_add(1, Ordering::Relaxed);
        let mut flows = self.flows.lock().unwrap();
        let (slot, action) = (flows.len() as u32 + 1, self.action(1 - from));
        self.path.install(slot, NOW, &key, &action).unwrap();
        flows.push(key);
    }

    fn action(&self, to: usize) -> FastAction {
        let out = self.ports[to];
        FastAction { out, macs: None, decrement_ttl: false, max_len: 9000, translation: None, track: true }
    }

    /// The flow of a frame of the tests' stacks.
    fn key(&self, from: usize, frame: &[u8]) -> Option<FastKey> {
        let address = |at, len| -> Option<IpAddr> {
            let bytes = &frame[at..at + len];
            Some(match len {
                4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
                _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
            })
        };
        let (proto, source, destination, l4) = match frame[12..14] {
            [8, 0] => (frame[23], address(26, 4)?, address(30, 4)?, 34),
            [0x86, 0xdd] => (frame[20], address(22, 16)?, address(38, 16)?, 54),
            _ => return None,
        };
        let word = |at| u16::from_be_bytes([frame[l4 + at], frame[l4 + at + 1]]);
        let (source_port, destination_port) = match proto {
            6 | 17 => (word(0), word(2)),
            1 | 58 if matches!(frame[l4], 0 | 8 | 128 | 129) => (word(4), frame[l4].into()),
            _ => return None,
        };
        let port = self.ports[from];
        Some(FastKey { port, proto, source, destination, source_port, destination_port })
    }

    /// Packets and bytes that the kernel has sent on.
    fn fast(&self) -> (u64, u64) {
        let slots = 1..=self.flows.lock().unwrap().len() as u32;
        let tallies = slots.map(|slot| self.path.tally(slot));
        tallies.fold((0, 0), |sum, tally| (sum.0 + tally.packets, sum.1 + tally.bytes))
    }

    fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }
}

fn ports(pool: &Mempool) -> [Port; 2] {
    [0, 1].map(|at| open(Device::AfXdp { interface: format!("mmb{at}") }, pool).unwrap())
}

/// Everything between the two stacks is right, and nearly nothing of it comes to user space.
fn all_but_the_first_packets(mtu: u32) {
    in_namespace_that_tells(|| {
        let (ends, pool) = (Ends::new(mtu), pool());
        ends.gro("on");
        let mut ports = ports(&pool);
        assert!(ports.iter().all(Port::takes_redirects));
        Wire::between(&mut ports, |wire| {
            for address in ADDRESSES[1] {
                assert!(ends.0[0].pings(address), "{address}");
            }
            // Of each echo flow the first packet comes here, sometimes one more; nothing else does, or is lost.
            assert!(wire.fast().0 >= 6, "{:?}", wire.fast());
            assert_eq!(wire.fast().0 + wire.slow(), 12);
            // As long as the interface allows: nothing of the program's room in a buffer is lost on the way.
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
fn the_kernel_sends_on_all_but_the_first_packets() {
    all_but_the_first_packets(1500);
}

#[test]
fn frames_as_long_as_xdp_takes() {
    all_but_the_first_packets(1770);
}

/// An end of a flow.
type End = (IpAddr, u16);

fn udp(port: FastPort, source: End, destination: End) -> FastKey {
    FastKey {
        port,
        proto: 17,
        source: source.0,
        destination: destination.0,
        source_port: source.1,
        destination_port: destination.1,
    }
}

/// One datagram between the two stacks, on raw sockets of theirs; and one port or both, with their queues.
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

    /// Sends it; whether it comes to the port, and whether it comes to the other end.
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

/// What sends it to this port as it is.
fn to_port(out: FastPort) -> FastAction {
    FastAction { out, macs: None, decrement_ttl: false, max_len: 1500, translation: None, track: false }
}

#[test]
fn ports_come_and_go() {
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
        path.set_generation(NOW);
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        path.revoke(1);
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        path.install(1, NOW, &datagram.key, &to_port(ids[1])).unwrap();
        path.set_generation(NOW + 1);
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        path.set_generation(NOW);
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        // Where it goes to is closed; then the interface has a port again, which is another one.
        drop(second);
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        let second = open(Device::AfXdp { interface: "mmb1".into() }, &pool).unwrap();
        let id = second.fast_port().unwrap();
        assert!(!ids.contains(&id));
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        path.install(1, NOW, &datagram.key, &to_port(id)).unwrap();
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        // Where it comes in is closed, and there is a port again.
        drop((first, rx, tx));
        let mut first = open(xdp(), &pool).unwrap();
        let (mut rx, _tx) = queues(&mut first);
        assert_eq!(datagram.send(&mut rx), TO_PORT);
        datagram.key.port = first.fast_port().unwrap();
        path.install(2, NOW, &datagram.key, &to_port(id)).unwrap();
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        // The interface goes, under the port.
        ip("link del mmb1");
        assert!(!second.takes_redirects());
        datagram.raws[0].send(&datagram.frame);
        let end = Instant::now() + Duration::from_secs(5);
        while !receive_within(&mut rx, 1, 50).contains(&datagram.frame) {
            assert!(Instant::now() < end);
        }
    });
}

#[test]
fn who_takes_no_frames_says_so() {
    in_namespace_that_tells(|| {
        let (ends, pool) = (Ends::new(1500), pool());
        let [mut first, second] = ports(&pool);
        let path = Arc::clone(first.fast_path().unwrap());
        let ids = [&first, &second].map(|port| port.fast_port().unwrap());
        let (mut rx, _tx) = queues(&mut first);
        let datagram = Datagram::between(&ends, ids[0]);
        path.set_generation(NOW);
        path.install(1, NOW, &datagram.key, &to_port(ids[1])).unwrap();
        assert!(!second.takes_redirects(), "GRO is off");
        assert_eq!(datagram.send(&mut rx), LOST);
        assert_eq!(path.tally(1).packets, 1);
        ends.gro("on");
        assert!(second.takes_redirects());
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        ends.gro("off");
        assert!(!second.takes_redirects());
        // A program does as well, with GRO or without.
        let kept = ends.0[1].within(|| SmallFrames::keep("peer1").unwrap());
        assert!(second.takes_redirects());
        assert_eq!(datagram.send(&mut rx), SENT_ON);
        ends.0[1].within(|| drop(kept));
        assert!(!second.takes_redirects());
        // Nor does an interface take any that is down, or whose other end is, which the kernel says a moment later.
        ends.gro("on");
        let eventually = |expected| {
            let end = Instant::now() + Duration::from_secs(5);
            while second.takes_redirects() != expected {
                assert!(Instant::now() < end);
                std::thread::yield_now();
            }
        };
        for (state, expected) in [("down", false), ("up", true)] {
            ends.0[1].within(|| ip(&format!("link set peer1 {state}")));
            eventually(expected);
        }
        ip("link set mmb1 down");
        assert!(!second.takes_redirects());
    });
}

/// Sockets of both stacks talk through a translation, with checksums that their kernels leave to hardware.
#[test]
fn translated_both_ways() {
    in_namespace_that_tells(|| {
        let (ends, pool) = (Ends::new(1500), pool());
        ends.gro("on");
        let ports = ports(&pool);
        let path = ports[0].fast_path().unwrap();
        let ids = [0, 1].map(|at| ports[at].fast_port().unwrap());
        path.set_generation(NOW);
        for (slots, at, stand_in) in [([1, 2], 0, "10.99.0.77"), ([3, 4], 1, "fd99::77")] {
            // The second stack finds the stand-in where the first one is.
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
            assert_eq!(slots.map(|slot| path.tally(slot).packets), [8, 8]);
        }
        assert_eq!(ends.checksum_errors(), 0);
    });
}

/// Ports that cannot be on the fast path are ports all the same.
#[test]
fn ports_without_it() {
    in_namespace(|| {
        let pool = pool();
        let packets = open(Device::AfPacket { interface: "peer0".into() }, &pool).unwrap();
        assert!(packets.fast_path().is_none() && packets.fast_port().is_none() && !packets.takes_redirects());
        assert_eq!(packets.fast_refusal(), None);
        ip("link add mmbbr0 type bridge");
        ip("link set mmbbr0 up");
        let generic = open(Device::AfXdp { interface: "mmbbr0".into() }, &pool).unwrap();
        assert!(generic.is_generic_xdp());
        assert!(generic.fast_path().is_none() && generic.fast_port().is_none() && !generic.takes_redirects());
        let why = generic.fast_refusal().unwrap();
        assert!(why.starts_with("cannot use XDP in its driver: "), "{why}");
    });
}
