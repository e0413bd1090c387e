//! Helpers for tests of replays.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mmb_dataplane::{DEFAULT_SCRATCHPAD, DEFAULT_SESSIONS, Forwarding, Policy, PortConfig, PortId};
use mmb_lang::Rule;
use mmb_oracle::generate;
use mmb_simulate::capture::{End, Frame, Reader, Writer};
use mmb_simulate::replay::{ReplayConfig, ReplayReport, run};

pub const LEFT: u16 = 0;
pub const RIGHT: u16 = 1;

/// A configuration with these rules between the ends of a wire.
pub fn forwarding(rules: &[Rule]) -> Forwarding {
    let mut policy = Policy::new();
    for rule in rules {
        policy.add(rule, &generate::port).expect("sound rules");
    }
    let wire = |id, peer| PortConfig::wire(PortId(id), PortId(peer));
    Forwarding { policy, ports: vec![wire(LEFT, RIGHT), wire(RIGHT, LEFT)], ..Forwarding::default() }
}

/// DPDK runs once per process, and the tests of a file are threads of one process.
static ALONE: Mutex<()> = Mutex::new(());

/// Locks DPDK for one test.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replays frames, each with its time in nanoseconds, that arrive at the left port.
pub fn replay(forwarding: Forwarding, frames: &[(u64, Vec<u8>)]) -> (ReplayReport, Vec<Frame>) {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let (input, output) = (dir.path().join("in.pcap"), dir.path().join("out.pcap"));
    let mut writer = Writer::create(&input).expect("create");
    for (time_ns, data) in frames {
        writer.write(&Frame { time_ns: *time_ns, data: data.clone(), missing: 0 }).expect("write");
    }
    writer.finish().expect("finish");
    let config = ReplayConfig {
        forwarding,
        in_port: PortId(LEFT),
        interfaces: Vec::new(),
        sessions: DEFAULT_SESSIONS,
        scratchpad: DEFAULT_SCRATCHPAD,
    };
    let report = run(&config, &input, Some(&output)).expect("replay");
    (report, read(&output))
}

fn read(path: &Path) -> Vec<Frame> {
    let mut reader = Reader::open(path).expect("open");
    let mut frames = Vec::new();
    loop {
        match reader.next_frame() {
            Ok(frame) => frames.push(frame),
            Err(End::Clean) => return frames,
            Err(End::Damaged(why)) => panic!("{why}"),
        }
    }
}
