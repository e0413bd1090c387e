use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use super::*;

type Memory = Arc<[AtomicU64]>;

fn memory(capacity: usize) -> Memory {
    (0..words(capacity)).map(|_| AtomicU64::new(0)).collect()
}

fn ends(capacity: usize) -> (Producer<Memory>, Consumer<Memory>, Memory) {
    let memory = memory(capacity);
    (Producer::new(memory.clone()).unwrap(), Consumer::new(memory.clone()).unwrap(), memory)
}

fn numbered(session: u32) -> Descriptor {
    Descriptor { buffer: session, len: 60, tag: 1, session, generation: !session }
}

#[test]
fn sizes_that_are_no_ring() {
    for len in [0, 31, words(0), words(3), words(4) + 1] {
        let memory: Memory = (0..len).map(|_| AtomicU64::new(0)).collect();
        assert!(Producer::new(memory.clone()).is_none() && Consumer::new(memory).is_none(), "{len}");
    }
}

#[test]
fn nothing_is_read_before_it_is_published() {
    let (mut producer, mut consumer, _) = ends(4);
    assert_eq!(producer.push(numbered(1)), Ok(true));
    assert_eq!(consumer.pop(), Ok(None));
    assert!(producer.publish());
    assert!(!producer.publish(), "there is nothing new");
    assert_eq!(consumer.pop(), Ok(Some(numbered(1))));
    assert_eq!(consumer.pop(), Ok(None));
}

#[test]
fn a_full_ring_takes_no_more_until_slots_are_published() {
    let (mut producer, mut consumer, _) = ends(2);
    assert_eq!([1, 2, 3].map(|n| producer.push(numbered(n)).unwrap()), [true, true, false]);
    producer.publish();
    assert_eq!(consumer.pop(), Ok(Some(numbered(1))));
    assert_eq!(producer.push(numbered(3)), Ok(false));
    consumer.publish();
    assert_eq!(producer.push(numbered(3)), Ok(true));
}

#[test]
fn a_vector_is_read_past_the_last_slot() {
    let (mut producer, mut consumer, memory) = ends(4);
    let mut vector = [Descriptor::default(); 3];
    assert_eq!(consumer.pop_vector(&mut vector), Ok(0));
    (0..3).for_each(|n| assert!(producer.push(numbered(n)).unwrap()));
    producer.publish();
    assert_eq!(consumer.pop_vector(&mut vector[..2]), Ok(2));
    assert_eq!(vector, [numbered(0), numbered(1), Descriptor::default()]);
    consumer.publish();
    (3..6).for_each(|n| assert!(producer.push(numbered(n)).unwrap()));
    producer.publish();
    assert_eq!(consumer.pop_vector(&mut vector), Ok(1), "those that are known to wait");
    assert_eq!(consumer.pop_vector(&mut vector), Ok(3));
    assert_eq!(vector, [3, 4, 5].map(numbered));
    memory[TAIL].store(7 + 4, Relaxed);
    assert_eq!(consumer.pop_vector(&mut vector), Err(Broken));
}

#[test]
fn impossible_counters_break_the_ring() {
    let (mut producer, mut consumer, memory) = ends(4);
    producer.push(numbered(1)).unwrap();
    producer.publish();
    // More is read than was written.
    memory[HEAD].store(2, Relaxed);
    assert_eq!(producer.room(), Err(Broken));
    // More is written than there are slots.
    for tail in [5, u64::MAX, 1 << 63] {
        memory[TAIL].store(tail, Relaxed);
        assert_eq!(consumer.ready(), Err(Broken), "{tail}");
    }
    memory[TAIL].store(4, Relaxed);
    assert_eq!(consumer.ready(), Ok(4));
    // The counter goes back.
    memory[TAIL].store(3, Relaxed);
    assert_eq!(consumer.ready(), Err(Broken));
}

#[test]
fn a_counter_that_goes_back_is_impossible_for_the_producer() {
    let (mut producer, _, memory) = ends(4);
    (0..3).for_each(|n| assert!(producer.push(numbered(n)).unwrap()));
    producer.publish();
    memory[HEAD].store(2, Relaxed);
    assert_eq!(producer.room(), Ok(3));
    memory[HEAD].store(1, Relaxed);
    assert_eq!(producer.room(), Err(Broken));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push,
    Publish,
    Pop,
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![Just(Step::Push), Just(Step::Publish), Just(Step::Pop), Just(Step::Release)]
}

proptest! {
    /// The oracle is a queue with the published part in front, and a number of slots in use.
    #[test]
    fn as_a_queue(steps in prop::collection::vec(step(), 0..400), order in 0_u32..4) {
        let capacity = 1 << order;
        let (mut producer, mut consumer, _) = ends(capacity);
        let (mut staged, mut queue, mut slots, mut unreleased, mut n) =
            (VecDeque::new(), VecDeque::new(), 0, 0, 0);
        for step in steps {
            match step {
                Step::Push => {
                    n += 1;
                    prop_assert_eq!(producer.push(numbered(n)), Ok(slots < capacity));
                    if slots < capacity {
                        staged.push_back(numbered(n));
                        slots += 1;
                    }
                }
                Step::Publish => {
                    prop_assert_eq!(producer.publish(), !staged.is_empty());
                    queue.append(&mut staged);
                }
                Step::Pop => {
                    let next = queue.pop_front();
                    prop_assert_eq!(consumer.pop(), Ok(next));
                    unreleased += usize::from(next.is_some());
                }
                Step::Release => {
                    consumer.publish();
                    slots -= unreleased;
                    unreleased = 0;
                }
            }
        }
    }
}

#[test]
fn two_threads_in_order() {
    const N: u32 = if cfg!(miri) { 200 } else { 200_000 };
    let (mut producer, mut consumer, _) = ends(16);
    let writer = std::thread::spawn(move || {
        for n in 0..N {
            while !producer.push(numbered(n)).unwrap() {
                producer.publish();
                std::thread::yield_now();
            }
        }
        producer.publish();
    });
    for n in 0..N {
        loop {
            match consumer.pop().unwrap() {
                Some(descriptor) => break assert_eq!(descriptor, numbered(n)),
                None => {
                    consumer.publish();
                    std::thread::yield_now();
                }
            }
        }
    }
    writer.join().unwrap();
}
