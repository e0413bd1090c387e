//! Pools, the threads that use them, and the environment.

use mmb_dpdk::{Burst, Error, Mbuf, Mempool, ring};

use crate::{common, pool};

/// KiB in huge pages of the mapping that begins at this address.
fn huge_kib(start: usize) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let from = maps.find(&format!("\n{start:x}-")).unwrap();
    let line = maps[from..].lines().find(|line| line.starts_with("ShmemPmdMapped:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_kernel_backs_pools_by_huge_pages() {
    let _alone = common::alone();
    if std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").is_err() {
        println!("skipped: the kernel has no transparent huge pages");
        return;
    }
    // The kernel may be out of huge pages for a moment.
    let is_huge = |n| {
        let pool = pool(n, 2048);
        let (file, packet) = (pool.file().unwrap(), pool.alloc().unwrap());
        let start = packet.data().as_ptr().addr() - file.offset_of(packet.data()).unwrap() as usize;
        huge_kib(start) >= 4096
    };
    assert!((4000..4010).any(is_huge));
}

#[test]
fn the_environment_starts_once_and_leaves_threads_alone() {
    let _alone = common::alone();
    assert_eq!(mmb_dpdk::Eal::init(&mmb_dpdk::EalConfig::default()).err(), Some(Error::StartedAlready));
    let eal = mmb_dpdk::Eal::get().unwrap();
    assert!(!eal.huge_pages() && eal.tsc_hz() > 100_000_000, "{eal:?}");
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let init = std::fs::read_to_string("/proc/1/status").unwrap_or_default();
    let allowed = |text: &str| text.lines().find(|line| line.starts_with("Cpus_allowed:")).map(str::to_owned);
    if let Some(all) = allowed(&init) {
        assert_eq!(allowed(&status), Some(all), "this thread may still run everywhere");
    }
    assert!(!std::path::Path::new(&format!("/var/run/dpdk/mmb-{}", std::process::id())).exists());
}

#[test]
fn a_pool_allocates_all_its_buffers_and_recovers_them() {
    let _alone = common::alone();
    let pool = Mempool::create("exact", 600, 2048, 64).unwrap();
    assert_eq!((pool.size(), pool.in_use(), pool.data_room()), (600, 0, 2048));
    let all: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!((all.len(), pool.available()), (600, 0));
    assert!(pool.alloc_from(b"no room").is_none());
    assert!(
        all.iter()
            .all(|packet| packet.pkt_len() == 0 && packet.headroom() == 128 && packet.tailroom() == 2048)
    );
    drop(all);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn buffers_do_not_overlap() {
    let _alone = common::alone();
    let pool = pool(3000, 1000);
    let mut all: Vec<Mbuf> = (0..3000u32)
        .map(|number| {
            let mut packet = pool.alloc().unwrap();
            packet
                .append(1000)
                .unwrap()
                .chunks_mut(4)
                .for_each(|to| to.copy_from_slice(&number.to_le_bytes()));
            packet.prepend(128).unwrap().fill(number as u8);
            packet.set_timestamp(u64::from(number));
            packet.meta_mut().flow_hash = number;
            packet
        })
        .collect();
    for (number, packet) in (0..3000u32).zip(&mut all) {
        assert_eq!((packet.meta().flow_hash, packet.timestamp()), (number, Some(u64::from(number))));
        assert!(packet.data()[..128].iter().all(|byte| *byte == number as u8));
        assert!(packet.data()[128..].chunks(4).all(|bytes| bytes == number.to_le_bytes()));
    }
}

#[test]
fn bulk_is_all_or_nothing() {
    let _alone = common::alone();
    let pool = pool(100, 100);
    let mut burst = Burst::new();
    assert_eq!(burst.fill(|slots| pool.alloc_bulk(101, slots)), 0);
    assert_eq!(burst.fill(|slots| pool.alloc_bulk(100, slots)), 100);
    assert_eq!(burst.fill(|slots| pool.alloc_bulk(1, slots)), 0);
    assert_eq!(pool.in_use(), 100);
    assert!(burst.pop().is_some());
    assert_eq!((burst.len(), pool.in_use()), (99, 99));
    drop(burst);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn invalid_pools_are_refused() {
    let _alone = common::alone();
    let error = |n, room| Mempool::create("odd", n, room, 0).unwrap_err().to_string();
    assert_eq!(error(0, 2048), "cannot make the packet pool 'odd': 0 is not a valid number of buffers");
    assert!(error(10, 70_000).contains("over the limit of 65407"), "{}", error(10, 70_000));
    let large = error(200_000_000, 60_000);
    assert!(large.starts_with("cannot make the packet pool 'odd': it needs 114"), "{large}");
    assert!(large.ends_with("MiB are available"), "{large}");
    let many = error(20_000_000, 0);
    assert!(
        many == "cannot make the packet pool 'odd': RING: Cannot reserve memory"
            || many.ends_with("available")
    );
    let ring = ring("long", 10_000_000).err().map(|error| error.to_string());
    assert_eq!(ring.as_deref(), Some("cannot make the ring 'long': RING: Cannot reserve memory"));
    assert!(mmb_dpdk::ring("longer", usize::MAX / 2).is_err());
}

#[test]
fn a_pool_is_reused_after_its_last_packet_returns() {
    let _alone = common::alone();
    let shape = || Mempool::create("again", 77, 333, 0).unwrap();
    let late = shape().alloc_from(b"still here").unwrap();
    assert_eq!(late.data(), b"still here");
    let second = shape();
    let place = |packet: &Mbuf| packet.data().as_ptr() as usize;
    let places = |pool: &Mempool| -> Vec<usize> {
        let all: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc_from(b"x")).collect();
        all.iter().map(place).collect()
    };
    assert!(!places(&second).contains(&place(&late)), "a pool with a packet out is not given away");
    let where_it_was = place(&late);
    drop(late);
    let third = shape();
    assert!(places(&third).contains(&where_it_was), "a complete one is");
}

#[test]
fn registered_threads_have_caches_and_return_everything() {
    let _alone = common::alone();
    let pool = Mempool::create("cached", 2000, 100, 256).unwrap();
    let held: Vec<Mbuf> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let _worker = mmb_dpdk::register_thread().unwrap();
                    assert!(
                        mmb_dpdk::register_thread()
                            .unwrap_err()
                            .to_string()
                            .contains("it is registered already")
                    );
                    for _ in 0..1000 {
                        let some: Vec<_> = (0..50).filter_map(|_| pool.alloc()).collect();
                        drop(some);
                    }
                    pool.alloc_from(b"kept").unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(pool.in_use(), held.len());
    drop(held);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn too_many_threads_are_refused() {
    let _alone = common::alone();
    let barrier = std::sync::Barrier::new(140);
    let errors = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..140)
            .map(|_| {
                scope.spawn(|| {
                    let worker = mmb_dpdk::register_thread();
                    barrier.wait();
                    worker.err()
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(errors.len(), 140 - 127);
    assert!(errors[0].to_string().contains("at most 127 threads can"), "{}", errors[0]);
}
