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

/// Waits for another process. A signal takes effect after `kill` has returned, so the old one may still take
/// packets until then.
pub fn until_replaced(world: &mut World, restarts: u64) {
    until_replaced_of(world, "p", restarts);
}

/// Waits for another process of a function.
pub fn until_replaced_of(world: &mut World, name: &str, restarts: u64) {
    world.until("another process", |world| {
        let status = world.instance(name).process().unwrap().status();
        u64::from(status.restarts) == restarts && status.process.is_some()
    });
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
    until_replaced(&mut world, 1);
    // The beginning of the session was done, so it is not told again.
    assert_eq!(payload(&world.send(&[frame(1, "N.")])[0].frame), "N3");
}

/// A process that reads nothing is replaced, whether it was stopped or loops.
pub fn stopped_and_looping_processes_are_replaced() {
    let mut world = World::new(&lines("drop"));
    world.send(&[frame(1, ".")]);
    kill_process(pid(&world), Signal::STOP).unwrap();
    // The packet may come before the signal has stopped the process, or after another one has started.
    let sent = world.send(&[frame(1, "N.")]);
    assert!(matches!(sent[0].verdict, ChainVerdict::Pass | ChainVerdict::Drop(DropReason::ProcessFailed)));
    until_it_runs(&mut world, 1);
    let sent = world.send(&[frame(1, "H"), frame(1, "N."), frame(2, ".")]);
    assert!(sent.iter().all(|one| one.verdict == ChainVerdict::Drop(DropReason::ProcessFailed)), "{sent:?}");
    until_it_runs(&mut world, 2);
    let sent = world.send(&[frame(1, "C")]);
    assert_eq!(sent[0].verdict, ChainVerdict::Drop(DropReason::ProcessFailed));
    until_it_runs(&mut world, 3);
}

/// A process that a signal has stopped is replaced, also if no packet waits for it.
pub fn a_stopped_process_is_replaced_at_once() {
    let mut world = World::new(&lines("drop"));
    world.send(&[frame(1, "N.")]);
    world.until("nothing is under way", |world| world.value("p", "buffers") == 0);
    kill_process(pid(&world), Signal::STOP).unwrap();
    until_replaced(&mut world, 1);
    let status = |world: &World| world.instance("p").process().unwrap().status();
    assert_eq!(status(&world).last_failure.as_deref(), Some("was stopped, and was killed"));
    assert_eq!(payload(&world.send(&[frame(1, "N.")])[0].frame), "N2");
}

/// There are as many spare processes as functions, so all functions can end at the same time.
pub fn spare_processes_follow_the_functions() {
    const FUNCTIONS: usize = 5;
    let names: Vec<String> = (0..FUNCTIONS).map(|n| format!("f{n}")).collect();
    let lines: String = names.iter().map(|name| format!("nf add {name} probe process d\n")).collect();
    let chain = format!("chain add c {}", names.join(" | "));
    let mut world = World::new(&format!("domain add d private buffers 256\n{lines}{chain}"));
    let status = |world: &World, name: &str| world.instance(name).process().unwrap().status();
    let supervisor = parent(status(&world, "f0").process.unwrap());
    for round in 1..=2 {
        world.until("spare processes", |_| children(supervisor) == 2 * FUNCTIONS);
        for name in &names {
            kill_process(Pid::from_raw(status(&world, name).process.unwrap() as i32).unwrap(), Signal::KILL)
                .unwrap();
        }
        world.until("other processes", |world| {
            let all = names.iter().map(|name| status(world, name));
            all.into_iter().all(|status| status.restarts == round && status.process.is_some())
        });
        assert_eq!(world.send(&[frame(1, "N.")])[0].verdict, ChainVerdict::Pass);
    }
}

/// The parent of a process (proc_pid_stat(5)). 0: the process has ended.
fn parent(process: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
    fields.and_then(|mut fields| fields.nth(1)?.parse().ok()).unwrap_or(0)
}

fn children(of: u32) -> usize {
    let all =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    all.filter_map(|name| name.parse().ok()).filter(|process: &u32| parent(*process) == of).count()
}

/// What a function says when it panics is the reason of the failure.
pub fn last_words_are_shown() {
    let mut world = World::new(&lines("drop"));
    let sent = world.send(&[frame(1, "X")]);
    assert_eq!(sent[0].verdict, ChainVerdict::Drop(DropReason::ProcessFailed));
    until_it_runs(&mut world, 1);
    let failure = world.instance("p").process().unwrap().status().last_failure;
    let said = "has ended (exit status 1): the function panicked: a packet too many";
    assert_eq!(failure.as_deref(), Some(said));
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

/// Rounds of random faults, unless `MMB_FAULTS` says another number.
const ROUNDS: usize = 20;
/// Faults that one engine gets. More of them in a second are answered with pauses.
const FAULTS: usize = 7;

/// The client port of a session without load.
const QUIET: u16 = 100;

/// kill -9 and SIGSTOP under load, at random moments. Prints how long functions were away: from the signal to
/// the first vector that has passed the function in another process.
pub fn random_faults() {
    let rounds = std::env::var("MMB_FAULTS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    println!("random faults: {rounds} rounds, seed {seed}");
    let mut random = u64::from(seed) | 1;
    let mut away: [Vec<Duration>; 2] = Default::default();
    let mut left = rounds;
    while left > 0 {
        let faults = left.min(FAULTS);
        left -= faults;
        let on_failure = if left.is_multiple_of(2) { "pass" } else { "drop" };
        let mut world = World::new(&two_functions(on_failure));
        // The session of the first packet, and one that has packets between faults only.
        assert_eq!(payload(&world.send(&[frame(1, "N."), frame(QUIET, "N.")])[1].frame), "N1");
        let mut restarts = [0; 2];
        for seen in 2..faults + 2 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = if random >> 60 < 4 { Signal::STOP } else { Signal::KILL };
            let pause = Duration::from_micros(random >> 33 & 0x7ff);
            let which = usize::from(random >> 45 & 1 != 0);
            restarts[which] += 1;
            let time = fault(&mut world, (number, pause), on_failure, (["p", "q"][which], restarts[which]));
            away[usize::from(number == Signal::STOP)].push(time);
            // The scratchpad has counted every packet of the session.
            assert_eq!(payload(&world.send(&[frame(QUIET, "N.")])[0].frame), format!("N{}", seen % 10));
        }
        for name in ["p", "q"] {
            world.until("no buffer is in use", |world| world.value(name, "buffers") == 0);
            assert_eq!(world.value(name, "rejected"), 0);
        }
        // Each of the two ledgers caches at most a sixteenth.
        let free: u64 = world.text("p", "free buffers").split(' ').next().unwrap().parse().unwrap();
        assert!(free >= 256 - 32, "{free}");
    }
    for (what, mut times) in ["killed", "stopped"].into_iter().zip(away) {
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        let longest = times.last().copied().unwrap_or_default();
        println!(
            "{what}: {} times; away for {:.1?} (median), {:.1?} (90 %), {:.1?} (99 %), {longest:.1?} (longest)",
            times.len(),
            at(50),
            at(90),
            at(99)
        );
    }
}

/// A chain with two processes of a domain, which hands buffers on between them.
fn two_functions(on_failure: &str) -> String {
    lines(on_failure).replace("chain add c p", "nf add q monitor process d\nchain add c p | q")
}

/// One fault under load. Returns the time until packets pass the function again.
fn fault(
    world: &mut World,
    (number, pause): (Signal, Duration),
    on_failure: &str,
    (function, restarts): (&str, u32),
) -> Duration {
    let status = |world: &World| world.instance(function).process().unwrap().status();
    let process = Pid::from_raw(status(world).process.unwrap() as i32).unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(pause);
        kill_process(process, number).unwrap();
        Instant::now()
    });
    let frames: Vec<_> = (0..50).map(|n| frame(n % 7, "N.")).collect();
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < Duration::from_secs(60));
        let sent = world.send(&frames);
        // Each packet has one fate, and it is the one that the domain wants.
        assert_eq!(sent.len(), frames.len());
        let odd = sent.iter().find(|one| match one.verdict {
            ChainVerdict::Pass | ChainVerdict::End(DropReason::ProcessFull) => false,
            ChainVerdict::Drop(reason) => {
                reason != DropReason::ProcessFull
                    && (reason != DropReason::ProcessFailed || on_failure == "pass")
            }
            _ => true,
        });
        assert!(odd.is_none(), "{odd:?}");
        let other = world.harness.send("other", &[frame(500, "N."), frame(501, "N.")]);
        assert!(other.iter().all(|one| one.verdict == ChainVerdict::Pass), "{other:?}");
        let is_back = sent.iter().all(|one| payload(&one.frame) != "N.");
        // The state is looked at without asking the process, which may be stopped.
        let status = status(world);
        if is_back && killer.is_finished() && status.process.is_some() && status.restarts >= restarts {
            return killer.join().unwrap().elapsed();
        }
    }
}
