//! Two network stacks, and a learning wire in user space between them.

use std::net::IpAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mmb_dpdk::{
    Burst, FastAction, FastGranularity, FastKey, FastPath, FastPort, NetDev, Port, RxQueue, TxQueue,
};
use mmb_packet::Meta;
use mmb_packet::checksum::complete_partial;

use crate::net::*;
use crate::peer::*;

/// Of both ends.
pub const ADDRESSES: [[&str; 2]; 2] = [["10.99.0.1", "fd99::1"], ["10.99.0.2", "fd99::2"]];
/// The generation in force.
pub const NOW: u64 = 1;

/// The interfaces `mmb0` and `mmb1`, and the stacks behind them.
pub struct Ends(pub [Peer; 2]);

impl Ends {
    /// Makes peers with static neighbour entries, so that only the tests' frames pass.
    pub fn new(mtu: u32) -> Ends {
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

    /// Switches GRO of both peers, which veth ends need to take redirected frames.
    pub fn gro(&self, value: &str) {
        for (at, peer) in self.0.iter().enumerate() {
            let name = format!("peer{at}");
            peer.within(|| {
                let mut ethtool = Command::new("ethtool");
                assert!(ethtool.args(["-K", &name, "gro", value]).status().unwrap().success());
            });
        }
    }

    pub fn checksum_errors(&self) -> u64 {
        self.0.iter().map(|peer| peer.within(checksum_errors)).sum()
    }
}

/// A wire between the two ports, which installs every eligible flow.
pub struct Wire {
    pub path: Arc<FastPath>,
    pub ports: [FastPort; 2],
    /// Installed flows; slots are numbered from 1.
    flows: Mutex<Vec<FastKey>>,
    /// Packets of eligible flows that arrived in user space.
    slow: AtomicU64,
    done: AtomicBool,
}

impl Wire {
    /// Runs `work` while another thread is the wire.
    pub fn between(ports: &mut [Port; 2], work: impl FnOnce(&Wire)) {
        let wire = Wire {
            path: Arc::clone(ports[0].fast_path().unwrap()),
            ports: [0, 1].map(|at| ports[at].fast_port().unwrap()),
            flows: Mutex::default(),
            slow: AtomicU64::new(0),
            done: AtomicBool::new(false),
        };
        wire.path.set_generation(NOW, FastGranularity::Flow);
        let [(mut rx0, mut tx0), (mut rx1, mut tx1)] = ports.each_mut().map(queues);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !wire.done.load(Ordering::Relaxed) {
                    wire.forward(0, &mut rx0, &mut tx1);
                    wire.forward(1, &mut rx1, &mut tx0);
                    std::thread::yield_now();
                }
            });
            // A failing test ends the wire, too.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&wire)));
            wire.done.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        wire.path.set_generation(0, FastGranularity::Flow);
    }

    fn forward(&self, from: usize, rx: &mut RxQueue, tx: &mut TxQueue) {
        let mut burst = Burst::new();
        if burst.fill(|slots| rx.receive(slots)) == 0 {
            return;
        }
        for packet in burst.iter_mut() {
            let mut meta = Meta::default();
            if mmb_packet::parse(packet.data(), packet.pkt_len(), &mut meta).is_ok() {
                complete_partial(packet.data_mut(), [], &meta);
                self.learn(from, packet.data());
            }
        }
        tx.send_all(&mut burst);
    }

    fn learn(&self, from: usize, frame: &[u8]) {
        // The stacks also send frames that no test asked for.
        let Some(key) = self.key(from, frame) else { return };
        self.slow.fetch_add(1, Ordering::Relaxed);
        let mut flows = self.flows.lock().unwrap();
        if flows.contains(&key) {
            return;
        }
        let (slot, action) = (flows.len() as u32 + 1, self.action(1 - from));
        self.path.install(slot, NOW, &key, &action).unwrap();
        flows.push(key);
    }

    fn action(&self, to: usize) -> FastAction {
        let out = self.ports[to];
        FastAction { track_tcp: true, ..FastAction::forward_unchanged(out, 9000) }
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
        let granularity = FastGranularity::Flow;
        Some(FastKey { granularity, port, proto, source, destination, source_port, destination_port })
    }

    /// Packets and bytes that the kernel has forwarded.
    pub fn fast(&self) -> (u64, u64) {
        let slots = 1..=self.flows.lock().unwrap().len() as u32;
        let tallies = slots.map(|slot| self.path.flow_stats(slot));
        tallies.fold((0, 0), |sum, stats| (sum.0 + stats.packets, sum.1 + stats.bytes))
    }

    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }
}
