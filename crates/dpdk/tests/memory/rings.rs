//! Rings between threads.

use mmb_dpdk::{Burst, VECTOR_MAX, ring};

use crate::{common, pool};

#[test]
fn rings_keep_order_count_and_free_packets() {
    let _alone = common::alone();
    let pool = pool(1000, 100);
    let (sender, mut receiver) = ring("test", 300).unwrap();
    let mut burst = Burst::new();
    for number in 0..VECTOR_MAX as u32 {
        burst.push(pool.alloc_from(&number.to_le_bytes()).unwrap()).unwrap();
    }
    assert!(burst.is_full() && burst.push(pool.alloc().unwrap()).is_err());
    assert_eq!((sender.send_burst(&mut burst), burst.len()), (256, 0));
    for number in 256..511u32 {
        sender.send(pool.alloc_from(&number.to_le_bytes()).unwrap()).unwrap();
    }
    let refused = sender.send(pool.alloc_from(b"full").unwrap()).unwrap_err();
    assert_eq!((refused.data(), receiver.len(), pool.in_use()), (&b"full"[..], 511, 512));
    let mut seen = Vec::new();
    while burst.fill(|slots| receiver.receive(slots)) > 0 {
        seen.extend(burst.iter().map(|packet| u32::from_le_bytes(packet.data().try_into().unwrap())));
        burst.iter_mut().for_each(|packet| packet.data_mut().fill(0));
        burst.clear();
    }
    assert_eq!(seen, (0..511).collect::<Vec<_>>());
    sender.send(refused).unwrap();
    drop(receiver);
    assert_eq!((sender.len(), pool.in_use()), (1, 1));
    drop(sender);
    assert_eq!(pool.in_use(), 0, "a ring that goes frees what is in it");
}

#[test]
fn many_threads_send_to_one() {
    let _alone = common::alone();
    let pool = pool(4000, 16);
    let (sender, mut receiver) = ring("many", 512).unwrap();
    const EACH: u32 = 5_000;
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let (sender, pool) = (sender.clone(), &pool);
            scope.spawn(move || {
                for number in 0..EACH {
                    let mut packet = loop {
                        match pool.alloc_from(&[thread.to_le_bytes(), number.to_le_bytes()].concat()) {
                            Some(packet) => break packet,
                            None => std::thread::yield_now(),
                        }
                    };
                    while let Err(back) = sender.send(packet) {
                        packet = back;
                        std::thread::yield_now();
                    }
                }
            });
        }
        let (mut next, mut burst) = ([0u32; 3], Burst::new());
        while next != [EACH; 3] {
            if burst.fill(|slots| receiver.receive(slots)) == 0 {
                std::thread::yield_now();
            }
            burst.drain(|packet| {
                let word = |at: usize| u32::from_le_bytes(packet.data()[at..at + 4].try_into().unwrap());
                assert_eq!(next[word(0) as usize], word(4), "in order from each sender");
                next[word(0) as usize] += 1;
            });
        }
    });
    assert_eq!(pool.in_use(), 0);
}
