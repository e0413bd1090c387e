//! A function that attacks what its process can reach: memory, rings, doorbell, socket and system calls.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mmb_fabric::ring_words;
use mmb_nf::{ChainVerdict, DropReason};

use super::world::{PATIENCE, World, frame, payload};

/// Descriptors of a process that may be files of shared memory.
const FILES: std::ops::Range<i32> = 3..16;
/// Words of the doorbell in front of the rings, and slots of a ring for 256 buffers.
const DOORBELL: usize = 32;
const SLOTS: usize = 256;
/// Bytes from one buffer to the next: of the header, and of the longest frame, in whole cache lines.
const STRIDE: usize = 256 + (1 << 16);
/// Words of the memory files: of 256 buffers, of scratchpads for 4096 sessions, and of two rings.
const WORDS: [usize; 3] = [256 * STRIDE / 8, 4096, DOORBELL + 2 * ring_words(SLOTS)];
/// How long bytes are changed after their packets have gone back.
const CHANGES: Duration = Duration::from_millis(20);

/// The memory files of this process, in the order in which it got them: pool, scratchpads,
/// rings.
fn mapped() -> Vec<&'static [AtomicU64]> {
    let mut all: Vec<&'static [AtomicU64]> = Vec::new();
    for file in FILES {
        let Some(&words) = WORDS.get(all.len()) else { break };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which is never unmapped.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), words * 8, access, libc::MAP_SHARED, file, 0) };
        if start != libc::MAP_FAILED {
            // SAFETY: the mapping has so many words, the memory file is at least as long, and all accesses to
            // them are atomic.
            all.push(unsafe { std::slice::from_raw_parts(start.cast(), words) });
        }
    }
    all
}

/// Shows the ring to the worker up to a position, and waits until the worker has taken that, or has this
/// process killed.
fn show(back: &[AtomicU64], position: u64) {
    back[0].store(position, Relaxed);
    let begin = Instant::now();
    while back[16].load(Relaxed) < position && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes descriptors that were never sent into the ring to the worker, and shows them to the worker.
pub fn forge() {
    let Some(rings) = mapped().into_iter().nth(2) else { return };
    let Some(back) = rings.get(DOORBELL + ring_words(SLOTS)..) else { return };
    let (written, forged) = (back[0].load(Relaxed), 8);
    for n in 0..forged {
        let at = 32 + 2 * ((written + n) as usize % SLOTS);
        if let Some([first, second]) = back.get(at..at + 2) {
            // Offsets of buffers, of other buffers, between buffers and outside of the pool.
            first.store((n * 0x1357) | (60 << 32), Relaxed);
            second.store(1 | n << 32, Relaxed);
        }
    }
    show(back, written + forged);
}

/// Says that it has read all descriptors and that the worker takes none of them, and returns none.
pub fn swallow() {
    let Some(there) = mapped().into_iter().nth(2).and_then(|rings| rings.get(DOORBELL..)) else { return };
    let Some(back) = there.get(ring_words(SLOTS)..) else { return };
    loop {
        there[16].store(there[0].load(Relaxed), Relaxed);
        back[16].store(back[0].load(Relaxed).wrapping_sub(1), Relaxed);
        std::hint::spin_loop();
    }
}

/// Returns the last descriptors once more that were returned before.
pub fn replay() {
    let Some(rings) = mapped().into_iter().nth(2) else { return };
    let Some(back) = rings.get(DOORBELL + ring_words(SLOTS)..) else { return };
    let (written, again) = (back[0].load(Relaxed), 4);
    for n in 0..again {
        let from = 32 + 2 * (written.wrapping_sub(again - n) as usize % SLOTS);
        let to = 32 + 2 * ((written + n) as usize % SLOTS);
        for word in 0..2 {
            back[to + word].store(back[from + word].load(Relaxed), Relaxed);
        }
    }
    show(back, written + again);
}

/// Says again and again that the process sleeps.
pub fn flood() {
    if let Some(rings) = mapped().into_iter().nth(2) {
        for _ in 0..1000 {
            rings[0].store(1, Relaxed);
            std::hint::spin_loop();
        }
    }
}

/// Changes buffers of the domain for a while, also those that have gone back.
pub fn change() {
    let pool = mapped().into_iter().next();
    let begin = Instant::now();
    while begin.elapsed() < CHANGES {
        for word in pool.iter().flat_map(|pool| pool.iter()) {
            word.store(word.load(Relaxed) ^ u64::MAX, Relaxed);
        }
    }
}

/// Whether the bytes are in memory that this process can map.
pub fn finds(secret: u64) -> bool {
    mapped().iter().flat_map(|memory| memory.iter()).any(|word| word.load(Relaxed) == secret)
}

/// Sends a message to the engine that it has not asked for.
pub fn shout() {
    let _ = rustix::io::write(std::io::stdin(), b"\"Ready\"");
}

const LINES: &str = "domain add d private buffers 256\nnf add p probe process d\n\
                     domain add e private buffers 256\nnf add q probe process e\n\
                     chain add c p\nchain add other q";

/// The other domain works, and has lost nothing.
fn check_other(world: &mut World) {
    let mut sent = world.harness.send("other", &[frame(900, "N.")]);
    sent.retain(|one| one.verdict != ChainVerdict::Hold);
    let begin = Instant::now();
    while sent.is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        sent.extend(world.harness.released());
    }
    assert_eq!(sent[0].verdict, ChainVerdict::Pass);
    assert_ne!(payload(&sent[0].frame), "N.");
    assert_eq!((world.value("q", "rejected"), world.value("q", "restarts")), (0, 0));
}

/// Forged descriptors are refused and counted, or the ring is broken and the process ends. No buffer is lost.
pub fn forged_descriptors() {
    let mut world = World::new(LINES);
    world.send(&[frame(1, "N.")]);
    for _ in 0..3 {
        world.send(&[frame(1, "N."), frame(2, "F"), frame(3, "N.")]);
        check_other(&mut world);
    }
    let status = world.instance("p").process().unwrap().status();
    assert!(status.refused > 0, "{status:?}");
    world.until("no buffer is in use", |world| world.value("p", "buffers") == 0);
    world.until("all buffers are free", |world| world.free_buffers("p") == 256);
}

/// Each packet goes on once, whatever is returned twice.
pub fn replayed_descriptors() {
    let mut world = World::new(LINES);
    let status = |world: &World| world.instance("p").process().unwrap().status();
    for _ in 0..3 {
        world.until("a process", |world| status(world).process.is_some());
        let before = status(&world);
        assert_eq!(world.send(&[frame(1, "N."), frame(2, "N."), frame(3, "N."), frame(4, "N.")]).len(), 4);
        let sent = world.send(&[frame(1, "N."), frame(2, "P"), frame(3, "N.")]);
        assert_eq!(sent.len(), 3);
        world.until("replayed descriptors are counted", |world| {
            let now = status(world);
            now.refused >= before.refused + 4 || now.restarts > before.restarts
        });
        assert!(world.harness.released().is_empty());
        check_other(&mut world);
    }
    world.until("no buffer is in use", |world| world.value("p", "buffers") == 0);
    world.until("all buffers are free", |world| world.free_buffers("p") == 256);
}

/// A process that keeps what it gets, and hides it, is replaced; its buffers come back, and its credits.
pub fn exhausted_credits() {
    let mut world = World::new(LINES);
    world.send(&[frame(1, "N.")]);
    let frames: Vec<_> = std::iter::once(frame(1, "K")).chain((0..300).map(|n| frame(n % 5, "."))).collect();
    let sent = world.send(&frames);
    assert_eq!(sent.len(), frames.len());
    world.until("another process", |world| {
        let status = world.instance("p").process().unwrap().status();
        status.restarts == 1 && status.process.is_some()
    });
    let failure = world.instance("p").process().unwrap().status().last_failure;
    assert_eq!(failure.as_deref(), Some("hangs, and was killed"));
    check_other(&mut world);
    world.until("no buffer is in use", |world| world.value("p", "buffers") == 0);
    world.until("all buffers are free", |world| world.free_buffers("p") == 256);
    assert_eq!(world.send(&[frame(9, ".")])[0].verdict, ChainVerdict::Pass);
}

/// A process that keeps packets does not take all that a worker may hold: those of other domains pass.
pub fn kept_packets_and_other_domains() {
    let mut world = World::new(&LINES.replacen("buffers 256", "buffers 8192", 1));
    // Fewer packets of a session than may wait for a process.
    let mut frames: Vec<_> = (0..6000).map(|n| frame(n % 20, ".")).collect();
    frames.insert(0, frame(1, "K"));
    let sent = world.harness.send("c", &frames);
    let dropped = |reason| sent.iter().filter(|one| one.verdict == ChainVerdict::Drop(reason)).count();
    assert!(dropped(DropReason::HeldFull) > 1000);
    check_other(&mut world);
}

/// A process that says that it sleeps while it runs costs one system call for a vector.
pub fn floods_of_the_doorbell() {
    let mut world = World::new(LINES);
    world.send(&[frame(1, ".")]);
    let before = world.value("p", "wakeups");
    for _ in 0..50 {
        world.send(&(0..20).map(|_| frame(1, "W")).collect::<Vec<_>>());
    }
    let wakeups = world.value("p", "wakeups") - before;
    assert!(wakeups <= 50, "{wakeups}");
    check_other(&mut world);
}

/// Bytes that change after the descriptor has come back do no harm: what leaves the function has the headers
/// that it had before, or is dropped.
pub fn changes_after_validation() {
    let mut world = World::new(
        "domain add d private buffers 256\nnf add p probe process d\nnf add q probe process d\nchain add c p | q",
    );
    for _ in 0..5 {
        let mut frames: Vec<_> = (0..40).map(|n| frame(n % 5, "N.")).collect();
        frames.push(frame(6, "V."));
        frames.extend((0..40).map(|n| frame(n % 5, "N.")));
        for one in world.send(&frames) {
            match one.verdict {
                ChainVerdict::Pass => assert_eq!(one.frame[12..24], frame(1, "N.")[12..24]),
                ChainVerdict::End(DropReason::ProcessFull) => {}
                ChainVerdict::Drop(reason) => assert!(
                    matches!(
                        reason,
                        DropReason::ProcessInvalid | DropReason::ProcessFull | DropReason::ProcessFailed
                    ),
                    "{reason:?}"
                ),
                other => panic!("{other:?}"),
            }
        }
    }
    world
        .until("no buffer is in use", |world| world.value("p", "buffers") + world.value("q", "buffers") == 0);
}

/// A process does not see packets of another domain.
pub fn memory_of_other_domains() {
    let mut world = World::new(LINES);
    // The first word of the payload behind the header of a buffer and 42 bytes is not aligned: the secret is
    // repeated, so some word has it in any case.
    let secret = "sssssssssssssssssssssssss";
    let mut sent = world.harness.send("other", &[frame(900, secret)]);
    sent.retain(|one| one.verdict != ChainVerdict::Hold);
    while sent.is_empty() {
        sent.extend(world.harness.released());
    }
    world.send(&[frame(1, "Q")]);
    assert_eq!(world.text("p", "found"), "no");
    // It does find its own packets, so the search works.
    world.send(&[frame(1, secret), frame(1, "Q")]);
    assert_eq!(world.text("p", "found"), "yes");
}

/// A message that nobody has asked for ends the process.
pub fn unasked_messages() {
    let mut world = World::new(LINES);
    world.send(&[frame(1, "N."), frame(1, "M")]);
    world.until("another process", |world| {
        world.instance("p").process().is_some_and(|process| process.status().restarts == 1)
    });
    check_other(&mut world);
}

/// A process that sends lines, and never the answer, is replaced when the time of the answer is over.
pub fn lines_instead_of_answers() {
    let mut world = World::new("domain add d private\nnf add p shouter silent process d\nchain add c p");
    let begin = Instant::now();
    assert_eq!(world.text("p", "process"), "does not answer");
    world.until("another process", |world| {
        world.instance("p").process().is_some_and(|process| process.status().restarts == 1)
    });
    // An answer may take 5 s.
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    let failure = world.instance("p").process().unwrap().status().last_failure;
    assert_eq!(failure.as_deref(), Some("hangs, and was killed"));
    drop(world);
}
