//! Time of packets in chains whose functions run in processes, beside the same chains in the worker.
//!
//! Vectors of 64 packets of 64 bytes go through chains of one to four functions `monitor`, the next vector
//! when the last packet has come back. Then single packets, 1 ms apart: the time until each has come back,
//! and the processor time of the process. The harness, which copies frames, is a part of all times; the line
//! `local` has nothing else. Processes are this program, executed again.

#![allow(clippy::unwrap_used)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mmb_fabric::{Host, Supervisor};
use mmb_nf::ChainVerdict;
use mmb_nf::harness::Harness;
use mmb_packet::build::{Frame, Ip4, Udp};

const VECTOR: usize = 64;
const ROUNDS: usize = 2000;
const SINGLE: usize = 300;
const SESSIONS: u32 = 4096;

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some(mmb_fabric::SUPERVISOR) => mmb_fabric::run_supervisor(),
        Some(mmb_fabric::FUNCTION) => mmb_fabric::run_function(&mmb_nf_builtin::registry(), |_, _| {
            Err("there are no brokers here".into())
        }),
        _ => {
            measure_all();
            Ok(())
        }
    };
    done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn measure_all() {
    println!(
        "mode      functions  ns a packet  ns, fastest 10 %  us alone  us, 99 %  CPU of a process, us a packet"
    );
    for functions in 1..=4 {
        for mode in ["local", "poll", "adaptive", "event"] {
            measure(mode, functions);
        }
    }
}

fn measure(mode: &str, functions: usize) {
    let place = if mode == "local" { String::new() } else { format!(" process d {mode}") };
    let mut lines = vec!["domain add d private".to_owned()];
    lines.extend((0..functions).map(|n| format!("nf add f{n} monitor{place}")));
    let chain: Vec<String> = (0..functions).map(|n| format!("f{n}")).collect();
    lines.push(format!("chain add c {}", chain.join(" | ")));
    let host = Arc::new(Host::new(Supervisor::start().unwrap(), SESSIONS));
    host.begin(None);
    let harness = Harness::with_processes(mmb_nf_builtin::registry(), &lines.join("\n"), host.clone());
    let mut harness = harness.unwrap();
    let frames: Vec<Vec<u8>> = (0..VECTOR).map(|n| frame(n as u16 % 16)).collect();
    for _ in 0..100 {
        pass(&mut harness, &frames);
    }
    let vectors = sorted((0..ROUNDS).map(|_| pass(&mut harness, &frames)));
    let of_packet = |time: Duration| time.as_nanos() as f64 / VECTOR as f64;
    let before = cpu(&harness);
    let alone = sorted((0..SINGLE).map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        pass(&mut harness, &frames[..1])
    }));
    let used = (cpu(&harness) - before) as f64 / 1e3 / SINGLE as f64;
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    println!(
        "{mode:<8}  {functions:>9}  {:>11.0}  {:>16.0}  {:>8.1}  {:>8.1}  {used:>29.1}",
        of_packet(vectors[ROUNDS / 2]),
        of_packet(vectors[ROUNDS / 10]),
        micros(alone[SINGLE / 2]),
        micros(alone[SINGLE * 99 / 100]),
    );
}

fn frame(port: u16) -> Vec<u8> {
    let udp = Udp::new(1000 + port, 53);
    Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), udp).payload(vec![0; 22]).build()
}

/// Takes frames through the chain. Returns the time until all have passed.
fn pass(harness: &mut Harness, frames: &[Vec<u8>]) -> Duration {
    let begin = Instant::now();
    harness.runner().poll_processes();
    let sent = harness.send("c", frames);
    let mut passed = sent.iter().filter(|one| one.verdict != ChainVerdict::Hold).count();
    while passed < frames.len() {
        passed += harness.released().len();
        std::thread::yield_now();
    }
    begin.elapsed()
}

fn sorted(times: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times
}

/// Processor time of the process of the first function, in nanoseconds. 0: it has none.
fn cpu(harness: &Harness) -> u64 {
    let instance = harness.program().instance("f0").unwrap();
    let process = instance.process().and_then(|process| process.status().process);
    let text = process.map(|number| std::fs::read_to_string(format!("/proc/{number}/schedstat")).unwrap());
    text.and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0)
}
