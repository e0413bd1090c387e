//! Descriptors that a hostile process sends back. The fuzz target `descriptor` runs this on the fuzzer's
//! input; a test of the crate runs it on the corpus and on random bytes.
//!
//! The bytes are steps: issue a buffer, send a true descriptor back, send one with changed fields, send an
//! old one again, write words of the ring, take all back. What is accepted is exactly what was issued and has
//! not come back, and no buffer is lost.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mmb_fabric::{Consumer, Descriptor, Ledger, Pool, Producer, Words, ring_words};

const BUFFERS: u32 = 32;
const SLOTS: usize = 8;

type Memory = Arc<[AtomicU64]>;

struct World {
    pool: Arc<Pool>,
    ledger: Ledger,
    ring: Memory,
    /// The process's end, which writes what it likes.
    process: Producer<Memory>,
    engine: Consumer<Memory>,
    /// Descriptors of buffers that the process has.
    in_flight: Vec<(u32, Descriptor)>,
    /// Buffers that came back.
    back: Vec<u32>,
    /// All descriptors that ever were.
    old: Vec<Descriptor>,
}

impl World {
    fn new() -> World {
        let pool = Arc::new(Pool::new(BUFFERS, 200).expect("a small pool"));
        let ring: Memory = (0..ring_words(SLOTS)).map(|_| AtomicU64::new(0)).collect();
        World {
            ledger: Ledger::new(pool.clone()),
            pool,
            process: Producer::new(ring.clone()).expect("a ring"),
            engine: Consumer::new(ring.clone()).expect("a ring"),
            ring,
            in_flight: Vec::new(),
            back: Vec::new(),
            old: Vec::new(),
        }
    }

    /// Sends a descriptor over the ring, and checks what the ledger makes of it.
    fn send(&mut self, descriptor: Descriptor) {
        if self.process.push(descriptor) != Ok(true) {
            return;
        }
        self.process.publish();
        let mut vector = [Descriptor::default(); SLOTS];
        while let Ok(n @ 1..) = self.engine.pop_vector(&mut vector) {
            vector[..n].iter().for_each(|got| self.check(*got));
        }
        self.engine.publish();
    }

    fn check(&mut self, got: Descriptor) {
        let is_true = |in_flight: &Descriptor| Descriptor { tag: got.tag, ..*in_flight } == got;
        let expected = self.in_flight.iter().position(|(_, in_flight)| is_true(in_flight));
        match (self.ledger.accept(&got), expected) {
            (Ok(buffer), Some(at)) => {
                assert_eq!(self.in_flight.swap_remove(at).0, buffer);
                self.back.push(buffer);
            }
            (Err(_), None) => {}
            (result, expected) => panic!("{got:?}: {result:?}, and expected is {expected:?}"),
        }
    }

    fn step(&mut self, [kind, at, value]: [u8; 3]) {
        let pick = |len: usize| usize::from(at) % len.max(1);
        match kind % 7 {
            0 => {
                let before = self.pool.free() + self.ledger.cached();
                match self.ledger.issue(usize::from(at), value.into(), kind.into()) {
                    Some((buffer, descriptor)) => {
                        self.in_flight.push((buffer, descriptor));
                        self.old.push(descriptor);
                    }
                    None => assert!(before == 0 || usize::from(at) > self.pool.frame()),
                }
            }
            1 => {
                if let Some(&(_, descriptor)) = self.in_flight.get(pick(self.in_flight.len())) {
                    self.send(Descriptor { tag: value.into(), ..descriptor });
                }
            }
            2 => {
                if let Some(&(_, descriptor)) = self.in_flight.get(pick(self.in_flight.len())) {
                    let [mut first, mut second] = descriptor.to_words();
                    match value < 128 {
                        true => first ^= 1 << (value % 64),
                        false => second ^= 1 << (value % 64),
                    }
                    self.send(Descriptor::from_words([first, second]));
                }
            }
            3 => {
                if let Some(&descriptor) = self.old.get(pick(self.old.len())) {
                    self.send(descriptor);
                }
            }
            4 => {
                if !self.back.is_empty() {
                    let buffer = self.back.swap_remove(pick(self.back.len()));
                    self.ledger.free(buffer);
                    self.ledger.free(buffer);
                }
            }
            5 => {
                // Words of the ring change at any time: what is read is a descriptor like any other.
                let word = &self.ring.words()[usize::from(at) % ring_words(SLOTS)];
                word.store(u64::from(value).wrapping_mul(0x0101_0101_0101_0101), Relaxed);
                for _ in 0..2 * SLOTS {
                    match self.engine.pop() {
                        Ok(Some(got)) => self.check(got),
                        Ok(None) | Err(_) => break,
                    }
                }
            }
            _ => {
                self.back.extend(self.ledger.reclaim());
                self.in_flight.clear();
            }
        }
        assert_eq!(self.ledger.in_flight() as usize, self.in_flight.len());
        let owned = self.in_flight.len() + self.back.len();
        assert_eq!(self.pool.free() + self.ledger.cached() + owned, BUFFERS as usize);
    }
}

/// Panics if a promise does not hold.
pub fn check(bytes: &[u8]) {
    let mut world = World::new();
    for step in bytes.as_chunks::<3>().0.iter().take(2000) {
        world.step(*step);
    }
    let World { pool, ledger, .. } = world;
    drop(ledger);
    assert_eq!(pool.free(), BUFFERS as usize);
}
