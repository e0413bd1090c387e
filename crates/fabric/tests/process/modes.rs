//! What processes do while there are no packets.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::faults::until_replaced;
use super::world::{World, frame, payload};

/// How long a process is watched without packets.
const IDLE: Duration = Duration::from_millis(300);

fn world(mode: &str) -> World {
    let mut world = World::new(&format!(
        "domain add d private buffers 256\nnf add p probe process d {mode}\nchain add c p"
    ));
    world.send(&[frame(1, ".")]);
    world
}

/// Time on a processor in nanoseconds, and the times that a task has slept, by its folder in `/proc`.
fn activity(task: &str) -> (u64, u64) {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{task}/{file}")).unwrap();
    let time = read("schedstat").split(' ').next().unwrap().parse().unwrap();
    let status = read("status");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    (time, line.unwrap().trim().parse().unwrap())
}

/// The thread of the engine that looks after a process.
fn keeper() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_it = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "nf-p")
    };
    let path = tasks.filter(is_it).last().unwrap();
    format!("self/task/{}", path.file_name().unwrap().to_str().unwrap())
}

/// Neither the process nor the thread that looks after it runs while there is nothing to do.
pub fn idle_processes_sleep() {
    for mode in ["event", "adaptive"] {
        let mut world = world(mode);
        let process = world.value("p", "pid").to_string();
        // Both have fallen asleep once they have slept twice as long as they look for packets.
        world.until("sleep", |_| {
            let before = activity(&process);
            std::thread::sleep(Duration::from_millis(2));
            activity(&process) == before
        });
        let keeper = keeper();
        world.until("sleep of the thread", |_| {
            let before = activity(&keeper);
            std::thread::sleep(Duration::from_millis(120));
            activity(&keeper) == before
        });
        let before = (activity(&process), activity(&keeper));
        std::thread::sleep(IDLE);
        assert_eq!((activity(&process), activity(&keeper)), before, "{mode}");
        assert_eq!(payload(&world.send(&[frame(1, "N.")])[0].frame), "N2");
    }
}

/// A polling process is never woken up, since it does not sleep.
pub fn a_polling_process_does_not_sleep() {
    let mut world = world("poll");
    let process = world.value("p", "pid").to_string();
    let before = activity(&process).0;
    world.until("it runs", |_| activity(&process).0 - before > 20_000_000);
    for _ in 0..20 {
        world.send(&[frame(1, ".")]);
    }
    assert_eq!(world.value("p", "wakeups"), 0);
    assert_eq!(world.text("p", "mode"), "poll");
}

/// The processors on which a task may run, as the kernel writes them.
fn processors(task: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{task}/status")).unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap().trim().to_owned()
}

/// A process runs on the processor of its line, and so does the one that replaces it.
pub fn a_process_runs_on_its_processor() {
    let all = processors("self");
    let last = all.rsplit(['-', ',']).next().unwrap();
    let lines = |words: &str| {
        format!("domain add d private buffers 256\nnf add p probe process d {words}\nchain add c p")
    };
    let mut world = World::new(&lines(&format!("event cpu {last}")));
    assert_eq!(payload(&world.send(&[frame(1, "N.")])[0].frame), "N1");
    assert_eq!(world.text("p", "mode"), format!("event cpu {last}"));
    let first = world.value("p", "pid");
    assert_eq!(processors(&first.to_string()), last);
    kill_process(Pid::from_raw(first as i32).unwrap(), Signal::KILL).unwrap();
    until_replaced(&mut world, 1);
    assert_eq!(payload(&world.send(&[frame(1, "N.")])[0].frame), "N2");
    assert_eq!(processors(&world.value("p", "pid").to_string()), last);
    // It moves to any processor, with the scratchpads of its sessions.
    world.load(&lines("event"));
    assert_eq!(payload(&world.send(&[frame(1, "N.")])[0].frame), "N3");
    assert_eq!(processors(&world.value("p", "pid").to_string()), all);
    let refused = World::refused(&lines("cpu 1023"));
    let reason = "the process of `p` has not started: the machine has no processor 1023; it has ";
    assert!(refused.starts_with(reason), "{refused}");
}

/// Processes that never sleep yield the processor to each other and to the worker.
pub fn more_processes_than_processors() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let functions = (2 * processors + 1).min(9);
    let add = |n: usize| format!("nf add f{n} monitor process d poll\n");
    let chain: Vec<String> = (0..functions).map(|n| format!("f{n}")).collect();
    let lines: String = (0..functions).map(add).collect();
    let mut world =
        World::new(&format!("domain add d private buffers 1024\n{lines}chain add c {}", chain.join(" | ")));
    for round in 0..20 {
        let sent = world.send(&(0..20).map(|n| frame(n % 5, &format!("{round}"))).collect::<Vec<_>>());
        assert!(sent.iter().all(|one| one.verdict == mmb_nf::ChainVerdict::Pass));
    }
    for name in chain {
        assert_eq!((world.value(&name, "lost"), world.value(&name, "no room")), (0, 0));
    }
}

/// A process is woken for a vector and not for a packet, and all packets come back in any mode.
pub fn a_vector_wakes_a_process_once() {
    for mode in ["event", "adaptive", "poll"] {
        let mut world = world(mode);
        let before = world.value("p", "wakeups");
        let rounds = 100;
        for round in 0..rounds {
            let sent = world.send(&(0..60).map(|n| frame(n, &format!("N.{round}"))).collect::<Vec<_>>());
            assert_eq!(sent.len(), 60);
        }
        let wakeups = world.value("p", "wakeups") - before;
        // The sessions of the first round are opened one by one.
        assert!(wakeups <= rounds + 60, "{mode}: {wakeups}");
        assert!((wakeups > 0) == (mode != "poll") || mode == "adaptive", "{mode}: {wakeups}");
        assert_eq!(world.value("p", "descriptors"), 1 + 1 + 60 * rounds + 59);
    }
}

/// What waits in the rings, and the room that is left, are shown while a process works.
pub fn a_working_process_is_shown() {
    let mut world = world("event");
    let status = |world: &World| world.instance("p").process().unwrap().status();
    world.until("nothing is under way", |world| status(world).buffers == 0);
    let before = status(&world);
    assert_eq!((before.ring_levels, before.restarts, before.slots), ((0, 0), 0, 256));
    // The function loops in the first of three packets, and gives back none of them until it is killed.
    world.harness.send("c", &[frame(1, "H"), frame(1, "."), frame(1, ".")]);
    let now = status(&world);
    assert_eq!((now.ring_levels, now.buffers), ((3, 0), 3));
    // A ring has 256 slots.
    assert!(now.credits <= 253 && now.descriptors - before.descriptors == 3, "{now:?}");
    world.until("another process", |world| {
        let now = status(world);
        now.restarts == 1 && now.process.is_some() && now.buffers == 0
    });
    let after = status(&world);
    assert_eq!((after.ring_levels, after.lost), ((0, 0), 3));
}
