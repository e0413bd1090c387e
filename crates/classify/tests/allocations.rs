//! Classifying allocates no memory after the buffers of a batch have grown.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use mmb_classify::{Batch, Classifier, Entry, Hit, MaskedKey, Pattern, Structure, TruePredicates, VECTOR};
use mmb_lang::{Command, parse_line};
use mmb_packet::{Kind, Window};

/// The system allocator with a count of allocations for each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // An error means that the thread is ending.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is forwarded to the system allocator; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantees are those of the forwarded call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantees are those of the forwarded call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantees are those of the forwarded call; the block came from the same
        // allocator.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are those of the forwarded call; the block came from the same
        // allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn rule(matches: &str) -> Pattern {
    let Ok(Some(Command::Add(rule))) = parse_line(&format!("add {matches} drop")) else {
        panic!("{matches}")
    };
    Pattern::compile(&rule, &|_| None).expect("can match")
}

/// Segments to some hosts, half of them to one.
fn windows() -> Vec<Window> {
    let window = |i: u32| {
        let mut window = Window::default();
        let bytes = window.bytes_mut();
        bytes[..4].copy_from_slice(&i.wrapping_mul(0x9e37_79b9).to_be_bytes());
        bytes[4..8].copy_from_slice(&[10, 0, 0, (i % 32).min(15) as u8]);
        bytes[8..12].copy_from_slice(&i.wrapping_mul(0x85eb_ca6b).to_be_bytes());
        bytes[12..14].copy_from_slice(&[Kind::IP4 | Kind::TCP, 6]);
        bytes[58..60].copy_from_slice(&(i as u16).wrapping_mul(251).to_be_bytes());
        window
    };
    (0..VECTOR as u32).map(window).collect()
}

/// The number of allocations for each of several equal vectors, and the hits, which are checked.
fn allocations(rules: Vec<Pattern>) -> (Classifier, [usize; 4], usize) {
    let mut classifier = Classifier::with_seed(1);
    classifier.extend((0..).zip(rules.iter().cloned()));
    let (mut batch, windows) = (Batch::new(), windows());
    let counts = [(); 4].map(|()| {
        batch.len = windows.len();
        batch.windows.copy_from_slice(&windows);
        let before = ALLOCATIONS.get();
        classifier.classify(&mut batch);
        ALLOCATIONS.get() - before
    });
    batch.hits.sort();
    let matches =
        |rule: &Pattern, window| rule.entries().iter().any(|entry| entry.holds(window, TruePredicates::NONE));
    let mut hits = batch.hits.iter();
    for (pkt, window) in (0..).zip(&windows) {
        for (slot, _) in (0..).zip(&rules).filter(|(_, rule)| matches(rule, window)) {
            assert_eq!(hits.next(), Some(&Hit::new(pkt, slot)));
        }
    }
    assert_eq!(hits.next(), None);
    (classifier, counts, batch.hits.len())
}

#[test]
fn a_second_vector_allocates_nothing() {
    // Bit vectors in the root, and in nodes below it that several packets visit.
    let ports = |i: u32| format!("tcp-sport {}-{}", i * 100 + 1, i * 100 + 3000);
    let root = (0..200).map(|i| rule(&format!("{} tcp-win >= {}", ports(i), i * 100 + 7)));
    let below = (0..6400).map(|i| {
        rule(&format!("ip-daddr 10.0.0.{} {} tcp-win > {}", i % 16, ports(i / 16), i % 400 * 50 + 9))
    });
    let (classifier, counts, hits) = allocations(root.chain(below).collect());
    let mut bits = classifier.tables().filter(|info| info.structure == Structure::Bits);
    assert!(bits.any(|info| info.depth == 0) && bits.any(|info| info.depth > 0));
    assert!(hits > VECTOR);
    assert!(counts[0] > 0, "the first vector lets the batch grow");
    assert_eq!(counts[1..], [0; 3]);

    // Packets that are in the match cache from the second vector on.
    let exact = |i: u32| {
        let bits = MaskedKey::bits(32, 32, (0x0a00_0000 | i).into()).expect("inside");
        let more = MaskedKey::bits(80, 1 + i as usize % 16, 0).expect("inside");
        let entry = Entry::new(&bits.and(&more).expect("others"), None).expect("about IP");
        Pattern::new(vec![entry], Vec::new()).expect("one entry")
    };
    let rules = (0..600).map(exact).chain((0..200).map(|i| rule(&ports(i))));
    let (_, counts, hits) = allocations(rules.collect());
    assert!(hits > VECTOR);
    assert_eq!(counts[2..], [0; 2]);
}
