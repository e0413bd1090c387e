//! Chains with functions in processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mmb_fabric::{Host, Supervisor};
use mmb_nf::harness::{Harness, Sent};
use mmb_nf::process::PacketMemory;
use mmb_nf::{ChainVerdict, Instance, Registry};
use mmb_packet::build::{Frame, Ip4, Udp};

use super::probe::Probe;

/// How long a test waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Most sessions of the harness.
const SESSIONS: u32 = 4096;

pub fn registry() -> Registry {
    let mut registry = mmb_nf_builtin::registry();
    registry.add::<Probe>();
    registry.add_stream::<super::streams::Shouter>();
    registry
}

/// A frame of the session with this client port.
pub fn frame(port: u16, payload: &str) -> Vec<u8> {
    let udp = Udp::new(1000 + port, 53);
    Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), udp).payload(payload.as_bytes().to_vec()).build()
}

pub fn payload(frame: &[u8]) -> String {
    String::from_utf8_lossy(&frame[42..]).into_owned()
}

pub fn port(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]]) - 1000
}

/// Whether the UDP checksum is that of RFC 768, computed from the whole pseudo header.
pub fn has_checksums(frame: &[u8]) -> bool {
    let udp = &frame[34..];
    let mut bytes = frame[26..34].to_vec();
    bytes.extend([0, 17]);
    bytes.extend((udp.len() as u16).to_be_bytes());
    bytes.extend(udp);
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    let sum: u32 = bytes.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16) == 0xffff
}

pub struct World {
    pub harness: Harness,
    _host: Arc<Host>,
}

fn host(packets: Option<Arc<dyn PacketMemory>>) -> Arc<Host> {
    let host = Arc::new(Host::new(Supervisor::start().unwrap(), SESSIONS));
    host.begin(packets);
    host
}

impl World {
    pub fn new(lines: &str) -> World {
        World::with_packets(lines, None)
    }

    /// With the packet memory of an engine, for zero-copy domains.
    pub fn with_packets(lines: &str, packets: Option<Arc<dyn PacketMemory>>) -> World {
        let host = host(packets);
        let harness = Harness::with_processes(registry(), lines, host.clone()).unwrap();
        World { harness, _host: host }
    }

    /// The error for lines that are refused.
    pub fn refused(lines: &str) -> String {
        Harness::with_processes(registry(), lines, host(None)).err().unwrap().to_string()
    }

    pub fn load(&mut self, lines: &str) {
        self.harness.load(lines).unwrap();
    }

    /// Sends frames, and waits until all of them have gone on or are dropped. Returns them in that order.
    pub fn send(&mut self, frames: &[Vec<u8>]) -> Vec<Sent> {
        self.harness.runner().poll_processes();
        let mut sent = self.harness.send("c", frames);
        sent.retain(|one| one.verdict != ChainVerdict::Hold);
        let begin = Instant::now();
        while sent.len() < frames.len() {
            assert!(begin.elapsed() < PATIENCE, "{} of {} packets", sent.len(), frames.len());
            sent.extend(self.harness.released());
            std::thread::yield_now();
        }
        sent
    }

    pub fn until(&mut self, what: &str, condition: impl Fn(&World) -> bool) {
        let begin = Instant::now();
        while !condition(self) {
            assert!(begin.elapsed() < PATIENCE, "{what}");
            self.harness.released();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn instance(&self, name: &str) -> Arc<Instance> {
        self.harness.program().instance(name).unwrap().clone()
    }

    /// A value that an instance reports; empty if there is none.
    pub fn text(&self, instance: &str, name: &str) -> String {
        let report = self.instance(instance).report();
        report.into_iter().rev().find(|(known, _)| known == name).map(|(_, value)| value).unwrap_or_default()
    }

    pub fn value(&self, instance: &str, name: &str) -> u64 {
        self.text(instance, name).parse().unwrap_or_default()
    }

    /// Free buffers, with those that the worker caches.
    pub fn free_buffers(&self, instance: &str) -> u64 {
        let text = self.text(instance, "free buffers");
        let words: Vec<&str> = text.split(' ').collect();
        let (free, of): (u64, u64) = (words[0].parse().unwrap(), words[2].parse().unwrap());
        free + (of / 16).min(64).min(of - free)
    }
}
