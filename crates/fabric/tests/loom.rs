//! Models of the ring and of the doorbell: loom runs them in all orders that the memory model allows.

use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Notify};
use mmb_fabric::{Bell, Consumer, Descriptor, Producer, Sleeper, Waker, Word, Words, ring_words};

struct Cell(AtomicU64);

impl Word for Cell {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

#[derive(Clone)]
struct Memory(Arc<Vec<Cell>>);

impl Memory {
    fn new(words: usize) -> Memory {
        Memory(Arc::new((0..words).map(|_| Cell(AtomicU64::new(0))).collect()))
    }
}

impl Words for Memory {
    type Word = Cell;

    fn words(&self) -> &[Cell] {
        &self.0
    }
}

/// A bell that remembers a ring until the next wait, as an eventfd does.
struct ModelBell(Notify);

impl Bell for ModelBell {
    fn ring(&self) {
        self.0.notify();
    }

    fn wait(&self) {
        self.0.wait();
    }
}

fn numbered(n: u32) -> Descriptor {
    Descriptor { offset: n, len: n as u16, tag: n as u16, session: n, generation: n }
}

/// A slot is read as it was written, in order, and is not written again before it was read.
#[test]
fn ring() {
    loom::model(|| {
        let memory = Memory::new(ring_words(2));
        let mut producer = Producer::new(memory.clone()).unwrap();
        let mut consumer = Consumer::new(memory).unwrap();
        let writer = loom::thread::spawn(move || {
            let mut written = 0;
            for n in 1..=3 {
                if !producer.push(numbered(n)).unwrap() {
                    break;
                }
                producer.publish();
                written = n;
            }
            written
        });
        let mut read = 0;
        for _ in 0..2 {
            if let Some(descriptor) = consumer.pop().unwrap() {
                read += 1;
                assert_eq!(descriptor, numbered(read));
                consumer.publish();
            }
        }
        let written = writer.join().unwrap();
        while let Some(descriptor) = consumer.pop().unwrap() {
            read += 1;
            assert_eq!(descriptor, numbered(read));
        }
        assert_eq!(read, written);
    });
}

/// Runs a model in all orders with at most three preemptions.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// A consumer that sleeps whenever it finds nothing gets all descriptors: loom reports a lost ring as a
/// deadlock.
#[test]
fn doorbell() {
    model(|| {
        let (ring, state) = (Memory::new(ring_words(2)), Memory::new(1));
        let bell = Arc::new(ModelBell(Notify::new()));
        let mut producer = Producer::new(ring.clone()).unwrap();
        let mut consumer = Consumer::new(ring).unwrap();
        let (waker, sleeper, theirs) = (Waker::new(state.clone()), Sleeper::new(state), bell.clone());
        let writer = loom::thread::spawn(move || {
            for n in 1..=2 {
                assert!(producer.push(numbered(n)).unwrap());
                producer.publish();
                waker.wake(&*theirs);
            }
        });
        let mut read = 0;
        while read < 2 {
            match consumer.pop().unwrap() {
                Some(descriptor) => {
                    read += 1;
                    assert_eq!(descriptor, numbered(read));
                }
                None => sleeper.sleep(&*bell, || consumer.ready().unwrap() != 0),
            }
        }
        writer.join().unwrap();
    });
}
