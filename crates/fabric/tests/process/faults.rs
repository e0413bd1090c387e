//! Processes that end, stop, and loop.

use std::time::{Duration, Instant};

use mmb_nf::{ChainVerdict, DropReason};
use rustix::process::{Pid, Signal, kill_process};

use super::world::{World, frame, payload};

fn pid(world: &World) -> Pid {
    Pid::from_raw(world.value("p", "pid") as i32).unwrap()
}

fn lines(on_failure: &str) -> String {
    format!(
        "domain add d private buffers 256 on-failure {on_failure}\nnf add p probe process d\n\
         nf add m monitor\nchain add c p\nchain add other m"
    )
}

/// Sends packets until one has passed the function, in a process that was started again.
fn until_it_runs(world: &mut World, restarts: u64) -> String {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < Duration::from_secs(60));
        let sent = world.send(&[frame(1, "N.")]);
        let is_numbered = payload(&sent[0].frame) != "N.";
        if is_numbered && world.value("p", "restarts") >= restarts {
            return payload(&sent[0].frame);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// kill -9 at any moment: each packet comes back once, other chains lose nothing, and scratchpads stay.
pub fn killed_processes_lose_no_buffer() {
    for on_failure in ["pass", "drop"] {
        let mut world = World::new(&lines(on_failure));
        let mut restarts = 0;
        for round in 0..8 {
            world.send(&[frame(1, "N.")]);
            let (process, frames) = (pid(&world), (0..100).map(|n| frame(n % 7, "N.")).collect::<Vec<_>>());
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(round * 40));
                kill_process(process, Signal::KILL).unwrap();
            });
            let sent = world.send(&frames);
            killer.join().unwrap();
            assert_eq!(sent.len(), frames.len());
            let is_fine = |verdict| match verdict {
                ChainVerdict::Pass => true,
                ChainVerdict::Drop(DropReason::ProcessFailed) => on_failure == "drop",
                // A session of which the function could not be told ends.
                ChainVerdict::End(DropReason::ProcessFull) | ChainVerdict::Drop(DropReason::ProcessFull) => {
                    true
                }
                _ => false,
            };
            let odd = sent.iter().find(|one| !is_fine(one.verdict));
            assert!(odd.is_none(), "{odd:?}");
            let other = world.harness.send("other", &[frame(500, "N.")]);
            assert_eq!(other[0].verdict, ChainVerdict::Pass);
            restarts += 1;
            until_it_runs(&mut world, restarts);
        }
        world.until("all buffers are free", |world| world.free_buffers("p") == 256);
        assert_eq!(world.value("p", "rejected"), 0);
    }
    // The scratchpad has counted all packets of the session that the functions have seen.
    let mut world = World::new(&lines("drop"));
    assert_eq!(payload(&world.send(&[frame(1, "N."), frame(1, "N.")])[1].frame), "N2");
    kill_process(pid(&world), Signal::KILL).unwrap();
    // The beginning of the session was done, so it is not told again.
    assert_eq!(until_it_runs(&mut world, 1), "N3");
}

/// A process that reads nothing is replaced, whether it was stopped or loops.
pub fn stopped_and_looping_processes_are_replaced() {
    let mut world = World::new(&lines("drop"));
    world.send(&[frame(1, ".")]);
    kill_process(pid(&world), Signal::STOP).unwrap();
    let sent = world.send(&[frame(1, "N.")]);
    assert_eq!(sent[0].verdict, ChainVerdict::Drop(DropReason::ProcessFailed));
    until_it_runs(&mut world, 1);
    let sent = world.send(&[frame(1, "H"), frame(1, "N."), frame(2, ".")]);
    assert!(sent.iter().all(|one| one.verdict == ChainVerdict::Drop(DropReason::ProcessFailed)), "{sent:?}");
    until_it_runs(&mut world, 2);
    let sent = world.send(&[frame(1, "C")]);
    assert_eq!(sent[0].verdict, ChainVerdict::Drop(DropReason::ProcessFailed));
    until_it_runs(&mut world, 3);
}

/// Processes end with their functions, and with the engine.
pub fn nothing_is_left() {
    let is_there = |pid: Pid| std::path::Path::new(&format!("/proc/{}/fd/0", pid.as_raw_nonzero())).exists();
    let mut world = World::new(&lines("drop"));
    let first = pid(&world);
    assert!(is_there(first));
    world.load("nf add m monitor\nchain add c m");
    world.send(&[frame(1, ".")]);
    world.until("the process of a deleted function has ended", |_| !is_there(first));
    let world = World::new(&lines("drop"));
    let second = pid(&world);
    drop(world);
    let begin = Instant::now();
    while is_there(second) {
        assert!(begin.elapsed() < Duration::from_secs(60), "the process has not ended with the engine");
        std::thread::sleep(Duration::from_millis(1));
    }
}
