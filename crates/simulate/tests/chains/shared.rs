//! Packets and scratchpads in memory that other processes map.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use mmb_dataplane::DEFAULT_SCRATCHPAD;
use mmb_dataplane::detached::{DetachedConfig, DetachedEngine, PacketIo, PacketMemory};
use mmb_dpdk::{HugePages, Mempool, Packet, SharedMemory, Slots, register_thread};

use super::common::alone;
use super::functions::ID;
use super::world::*;

/// Tells the test that runs as a process of its own what to do.
const JOB: &str = "MMB_TEST_SHARED_MEMORY";

/// Frames on their way in, and what other owners of a mapping saw of those that left.
struct ObservedFrames {
    pool: Mempool,
    incoming: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    seen_here: Vec<Vec<u8>>,
    seen_by_child: Vec<Vec<u8>>,
}

impl PacketIo for ObservedFrames {
    fn receive(&mut self, slots: &mut Slots<'_>) {
        if let Some(frame) = self.incoming.pop_front() {
            let mut packet = self.pool.alloc_from(&frame).unwrap();
            packet.set_port(LEFT.0);
            slots.push(packet).unwrap();
        }
    }

    fn transmit(&mut self, packets: &[&mut Packet]) {
        let file = self.pool.file().unwrap();
        for packet in packets {
            let (at, bytes) = (file.offset_of(packet.data()).unwrap(), packet.data().len());
            let view = SharedMemory::map(file.fd(), file.offset(), file.bytes()).unwrap();
            let from = (at - file.offset()) as usize;
            self.seen_here.push(view[from..from + bytes].iter().map(|byte| byte.load(Relaxed)).collect());
            self.seen_by_child.push(unhex(&child(file.fd(), &format!("read {at} {bytes}"))));
            self.sent.push(packet.to_vec());
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
    digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
}

/// Starts this program as a process that gets nothing but the file, as its standard input, and returns what
/// it answers.
fn child(file: BorrowedFd<'_>, job: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shared::as_another_process", "--nocapture", "--test-threads=1"])
        .env(JOB, job)
        .stdin(Stdio::from(file.try_clone_to_owned().unwrap()))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = text.lines().find_map(|line| line.split_once("answer: "));
    answer.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr))).1.to_owned()
}

#[test]
fn as_another_process() {
    let Ok(job) = std::env::var(JOB) else { return };
    let words: Vec<_> = job.split(' ').collect();
    let number = |at: usize| words[at].parse::<usize>().unwrap();
    let (stdin, end) = (std::io::stdin(), number(1) + if words[0] == "read" { number(2) } else { 1 });
    let memory = SharedMemory::map(stdin.as_fd(), 0, end).unwrap();
    match words[0] {
        "read" => {
            let bytes = &memory[number(1)..];
            let text: String = bytes.iter().map(|byte| format!("{:02x}", byte.load(Relaxed))).collect();
            println!("answer: {text}");
        }
        _ => println!("answer: {}", memory[number(1)].swap(number(2) as u8, Relaxed)),
    }
}

#[test]
fn another_process_reads_packets_and_writes_scratchpads() {
    let _alone = alone();
    let rules = ["nf add numbers number", "chain add c numbers", "add-stateful ip-proto udp chain c"];
    let forwarding = forwarding(&rules, None);
    let [place] = forwarding.chains.scratchpads()[..] else { panic!("one function has a scratchpad") };
    let memory = PacketMemory::create(64, HugePages::Never).unwrap();
    let config = DetachedConfig {
        nodes: ["shared-rx", "shared-tx"],
        workers: 1,
        is_connected: true,
        sessions: 1000,
        scratchpad: DEFAULT_SCRATCHPAD,
        share_scratchpads: true,
        null_port_frame: None,
    };
    let engine = DetachedEngine::new(&memory, config, forwarding, None).unwrap();
    let _registration = register_thread().unwrap();
    let pool = memory.pool(0).unwrap();
    let empty = VecDeque::new();
    let io = ObservedFrames { pool, incoming: empty, sent: vec![], seen_here: vec![], seen_by_child: vec![] };
    let mut worker = engine.worker(0, Some(io)).unwrap();
    let mut send = |frame: Vec<u8>| {
        worker.io().unwrap().incoming.push_back(frame);
        worker.maintain();
        worker.walk();
        let io = worker.io().unwrap();
        assert_eq!(io.seen_here, io.sent);
        assert_eq!(io.seen_by_child, io.sent);
        u16::from_be_bytes(io.sent.last().unwrap()[ID].try_into().unwrap())
    };
    let frame = || there(80, b"shared");
    assert_eq!((send(frame()), send(frame())), (1, 2));
    let scratchpads = worker.scratchpads().unwrap().unwrap();
    // The first session has number 0, and its scratchpad is the first.
    let at = place.offset;
    assert!(at + place.bytes <= scratchpads.distance);
    assert_eq!(child(scratchpads.file.as_fd(), &format!("swap {at} 40")), "2");
    let mut send = |frame: Vec<u8>| {
        worker.io().unwrap().incoming.push_back(frame);
        worker.walk();
        u16::from_be_bytes(worker.io().unwrap().sent.last().unwrap()[ID].try_into().unwrap())
    };
    assert_eq!(send(frame()), 41, "the function goes on from what the other process wrote");
}
