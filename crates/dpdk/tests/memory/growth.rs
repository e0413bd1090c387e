//! Pools that get memory for their buffers when they need it.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

use mmb_dpdk::{Mempool, ReadablePool, SharedMemory};

use crate::{common, drain, places};

#[test]
fn a_growing_pool_has_the_buffers_that_have_memory() {
    let _alone = common::alone();
    let pool = Mempool::growing("grows", (20_000, 3000), 2048, 0).unwrap();
    let numbers = || (pool.size(), pool.populated(), pool.available(), pool.in_use());
    let first = pool.populated();
    assert!((3000..5000).contains(&first), "{first}");
    assert_eq!(numbers(), (20_000, first, first, 0));
    let mut all = drain(&pool);
    assert_eq!((all.len(), numbers()), (first, (20_000, first, 0, first)));
    pool.grow_to(first).unwrap();
    assert_eq!(pool.populated(), first, "it has that many");
    pool.grow_to(10_000).unwrap();
    let second = pool.populated();
    assert!((10_000..12_000).contains(&second), "{second}");
    assert_eq!(numbers(), (20_000, second, second - first, first));
    all.extend(drain(&pool));
    pool.grow_to(usize::MAX).unwrap();
    all.extend(drain(&pool));
    assert_eq!((all.len(), numbers()), (20_000, (20_000, 20_000, 0, 20_000)));
    pool.grow_to(usize::MAX).unwrap();
    assert!(pool.alloc().is_none(), "it never exceeds its size");
    // They fill the memory without gaps, and each is an empty packet.
    let places: Vec<usize> = places(&all).into_iter().collect();
    assert_eq!(places.len(), 20_000);
    assert!(places.windows(2).all(|two| two[1] - two[0] == pool.buffer_bytes()));
    assert!(
        all.iter().all(|packet| (packet.pkt_len(), packet.headroom(), packet.tailroom()) == (0, 128, 2048))
    );
    drop(all);
    assert_eq!(numbers(), (20_000, 20_000, 20_000, 0));
}

#[test]
fn buffers_without_memory_take_none() {
    let _alone = common::alone();
    let pool = Mempool::growing("lazy", (20_001, 1000), 2048, 0).unwrap();
    // Of the file, the kernel has allocated so many bytes.
    let allocated = || {
        let file = pool.file().unwrap().fd().try_clone_to_owned().unwrap();
        std::fs::File::from(file).metadata().unwrap().blocks() as usize * 512
    };
    for buffers in [1000, 1001, 9000, 20_000] {
        pool.grow_to(buffers).unwrap();
        drop(drain(&pool));
        let needed = buffers * pool.buffer_bytes();
        assert!((needed..=needed + (4 << 20)).contains(&allocated()), "{buffers} {needed} {}", allocated());
    }
}

#[test]
fn others_see_packets_in_buffers_that_were_added() {
    let _alone = common::alone();
    let pool = Mempool::growing("seen", (9000, 900), 2048, 0).unwrap();
    let file = pool.file().unwrap();
    let view = SharedMemory::map(file.fd(), file.offset(), file.bytes()).unwrap();
    let readable = ReadablePool::new(pool.clone()).unwrap();
    let before = drain(&pool);
    pool.grow_to(9000).unwrap();
    let mut added = 0_i32;
    while let Some(packet) = pool.alloc_from(&added.to_ne_bytes()) {
        let at = (file.offset_of(packet.data()).unwrap() - file.offset()) as usize;
        let seen: Vec<u8> = view[at..at + 4].iter().map(|byte| byte.load(Relaxed)).collect();
        assert_eq!(seen, i32::to_ne_bytes(added));
        let pinned = readable.pin(packet.data()).unwrap();
        assert_eq!(pinned.offset, at as u64);
        drop(packet);
        readable.unpin(pinned.buffer);
        added += 1;
        if added as usize == pool.size() {
            break;
        }
    }
    assert_eq!((added, pool.in_use()), (9000, before.len()));
}

/// Other threads take buffers while the pool adds more. None of them is in two hands, and each is a packet.
#[test]
fn a_pool_grows_beside_threads_that_use_it() {
    let _alone = common::alone();
    let pool = Mempool::growing("busy", (40_000, 1000), 200, 128).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let work = |number: u32| {
        let _worker = mmb_dpdk::register_thread().unwrap();
        let (mut held, mut most) = (std::collections::VecDeque::new(), 0);
        // A thread may get no time before the pool has grown.
        while !is_over.load(Relaxed) || most <= 1000 {
            while held.len() < 10_000
                && let Some(mut packet) = pool.alloc()
            {
                assert_eq!((packet.pkt_len(), packet.nb_segs(), packet.tailroom()), (0, 1, 200));
                let bytes = packet.append(200).unwrap();
                bytes.chunks_exact_mut(4).for_each(|at| at.copy_from_slice(&number.to_ne_bytes()));
                held.push_back(packet);
            }
            most = most.max(held.len());
            for packet in held.drain(..held.len() / 2) {
                assert!(packet.data().chunks_exact(4).all(|at| at == number.to_ne_bytes()));
            }
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|number| drop(scope.spawn(move || work(number))));
        for buffers in (2000..=40_000).step_by(500) {
            pool.grow_to(buffers).unwrap();
        }
        is_over.store(true, Relaxed);
    });
    assert_eq!((pool.populated(), pool.in_use()), (40_000, 0));
}

#[test]
fn a_retired_pool_grows_to_what_is_asked() {
    let _alone = common::alone();
    let small = Mempool::growing("small", (7001, 1), 2048, 0).unwrap();
    let before = places(&drain(&small));
    assert!(before.len() < 2000);
    drop(small);
    let complete = Mempool::create("complete", 7001, 2048, 0).unwrap();
    let all = drain(&complete);
    assert_eq!((all.len(), complete.in_use()), (7001, 7001));
    assert!(places(&all).is_superset(&before), "it is the same pool");
}
