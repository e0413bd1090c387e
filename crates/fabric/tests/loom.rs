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
    Descriptor { buffer: n, len: n as u16, tag: n as u16, session: n, generation: n }
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

/// A vector holds whole descriptors, in order, and none that is written while it is read.
#[test]
fn vectors() {
    loom::model(|| {
        let memory = Memory::new(ring_words(2));
        let mut producer = Producer::new(memory.clone()).unwrap();
        let mut consumer = Consumer::new(memory).unwrap();
        let writer = loom::thread::spawn(move || {
            (1..=3).take_while(|n| producer.push(numbered(*n)).unwrap() && producer.publish()).count()
        });
        let (mut read, mut vector) = (0, [Descriptor::default(); 2]);
        let mut check = |consumer: &mut Consumer<Memory>| {
            let n = consumer.pop_vector(&mut vector).unwrap();
            for descriptor in &vector[..n] {
                read += 1;
                assert_eq!(*descriptor, numbered(read));
            }
            consumer.publish();
            read
        };
        check(&mut consumer);
        let written = writer.join().unwrap();
        // What was known to wait, and what was not.
        check(&mut consumer);
        assert_eq!(check(&mut consumer) as usize, written);
    });
}

/// Runs a model in all orders with at most three preemptions.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// Two producers wake one consumer, which sleeps whenever it finds nothing in both rings: the process of a
/// function with two workers, in the mode `event`.
#[test]
fn two_producers() {
    model(|| {
        let (rings, state) = ([Memory::new(ring_words(1)), Memory::new(ring_words(1))], Memory::new(1));
        let bell = Arc::new(ModelBell(Notify::new()));
        let writers = rings.clone().map(|ring| {
            let (waker, bell) = (Waker::new(state.clone()), bell.clone());
            loom::thread::spawn(move || {
                let mut producer = Producer::new(ring).unwrap();
                assert!(producer.push(numbered(1)).unwrap());
                producer.publish();
                waker.wake(&*bell);
            })
        });
        let mut consumers = rings.map(|ring| Consumer::new(ring).unwrap());
        let (sleeper, mut read) = (Sleeper::new(state), 0);
        while read < 2 {
            let before = read;
            for consumer in &mut consumers {
                read += u32::from(consumer.pop().unwrap().is_some());
                consumer.publish();
            }
            if read == before {
                let has_work = || consumers.iter_mut().any(|consumer| consumer.ready().unwrap() != 0);
                sleeper.sleep(&*bell, has_work);
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

/// The thread that looks after a process sleeps without a limit while nothing waits, and learns of the next
/// descriptor, whose sender wakes the process and the thread.
#[test]
fn keeper() {
    model(|| {
        let (ring, process, keeper) = (Memory::new(ring_words(1)), Memory::new(1), Memory::new(1));
        let bells = [(); 2].map(|()| Arc::new(ModelBell(Notify::new())));
        let wakers = [process, keeper.clone()].map(Waker::new);
        let mut producer = Producer::new(ring.clone()).unwrap();
        let theirs = bells.clone();
        let writer = loom::thread::spawn(move || {
            assert!(producer.push(numbered(1)).unwrap());
            producer.publish();
            for (waker, bell) in wakers.iter().zip(&theirs) {
                waker.wake(&**bell);
            }
        });
        let (sleeper, mut reader) = (Sleeper::new(keeper), Consumer::new(ring).unwrap());
        while reader.ready().unwrap() == 0 {
            sleeper.sleep(&*bells[1], || reader.ready().unwrap() != 0);
        }
        writer.join().unwrap();
    });
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
