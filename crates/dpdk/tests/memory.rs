//! Packets, pools and rings, in an environment without privileges.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

use mmb_dpdk::{Burst, Error, Mbuf, Mempool, ReadablePool, SharedMemory, VECTOR_MAX, ring};
use proptest::prelude::*;

fn pool(n: usize, room: usize) -> Mempool {
    Mempool::create("test", n, room, 0).unwrap()
}

/// Bytes of which adjacent ones differ.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn a_packet_lies_in_the_pool_s_file_where_the_pool_says() {
    let _alone = common::alone();
    let pool = pool(600, 200);
    let file = pool.file().unwrap();
    assert_eq!(file.offset() % 4096, 0);
    let bytes = pattern(500);
    let mut packet = pool.alloc_from(&bytes).unwrap();
    let view = SharedMemory::map(file.fd(), file.offset(), file.bytes()).unwrap();
    let at = |segment: &[u8]| (file.offset_of(segment).unwrap() - file.offset()) as usize;
    let mut seen = Vec::new();
    for segment in packet.segments() {
        seen.extend(view[at(segment)..][..segment.len()].iter().map(|byte| byte.load(Relaxed)));
    }
    assert_eq!((packet.nb_segs(), seen), (3, bytes));
    view[at(packet.data())].store(0xee, Relaxed);
    assert_eq!(packet.data_mut()[0], 0xee);
    assert_eq!(file.offset_of(&[1, 2, 3]), None, "these are not a packet's");
}

#[test]
fn a_pool_whose_file_was_given_away_is_not_reused() {
    let _alone = common::alone();
    let create = || Mempool::create("shared", 78, 334, 0).unwrap();
    let addresses = |pool: &Mempool| -> BTreeSet<usize> {
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        all.iter().map(|packet| packet.data().as_ptr().addr()).collect()
    };
    let (first, other) = (create(), create());
    let (reused, kept) = (addresses(&first), addresses(&other));
    assert!(other.file().is_some());
    drop((first, other));
    let (one, two) = (create(), create());
    assert_eq!(addresses(&one), reused, "nobody else has seen this pool's memory");
    assert!(kept.is_disjoint(&addresses(&two)));
}

/// A pinned buffer is in nobody else's packet before it is unpinned, whether its packet is there or not.
#[test]
fn a_pinned_buffer_is_not_used_again() {
    let _alone = common::alone();
    let pool = pool(64, 200);
    let readable = ReadablePool::new(pool.clone()).unwrap();
    let mut packets: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc_from(&pattern(100))).collect();
    assert_eq!(packets.len(), 64);
    let pins: Vec<_> = packets.iter().map(|packet| readable.pin(&packet.data()[10..]).unwrap()).collect();
    let buffers: BTreeSet<u32> = pins.iter().map(|pin| pin.buffer).collect();
    assert_eq!((buffers.len(), *buffers.last().unwrap()), (64, 63));
    assert_eq!(readable.pin(packets[0].data()), None, "it is pinned already");
    assert_eq!(readable.pin(&[1, 2, 3]), None, "these are not a packet's");
    // Half of the packets are dropped before their pins end, and half behind them.
    let later = packets.split_off(32);
    drop(packets);
    assert_eq!(pool.in_use(), 64);
    assert!(pool.alloc().is_none());
    for pin in &pins {
        readable.unpin(pin.buffer);
        readable.unpin(pin.buffer);
    }
    assert_eq!(pool.in_use(), 32);
    drop(later);
    assert_eq!(pool.in_use(), 0);
    let all: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), 64, "each buffer is there once");
}

/// The descriptor for another process shows the frame where the pin says, and nobody can write by it.
#[test]
fn a_readable_pool_is_read_and_not_written() {
    let _alone = common::alone();
    let pool = pool(64, 200);
    let readable = ReadablePool::new(pool.clone()).unwrap();
    let packet = pool.alloc_from(&pattern(150)).unwrap();
    let pin = readable.pin(packet.data()).unwrap();
    let file = std::fs::File::from(readable.fd().try_clone_to_owned().unwrap());
    let mut bytes = vec![0; 150];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, readable.offset() + pin.offset).unwrap();
    assert_eq!(bytes, pattern(150));
    assert!(std::os::unix::fs::FileExt::write_at(&file, b"x", readable.offset()).is_err());
    assert!(SharedMemory::map(readable.fd(), readable.offset(), readable.bytes()).is_err());
    readable.unpin(pin.buffer);
}

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

/// All packets that a pool has.
fn drain(pool: &Mempool) -> Vec<Mbuf> {
    std::iter::from_fn(|| pool.alloc()).collect()
}

/// Addresses of the buffers of packets.
fn places(packets: &[Mbuf]) -> BTreeSet<usize> {
    packets.iter().map(|packet| packet.data().as_ptr().addr()).collect()
}

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
        while !is_over.load(Relaxed) {
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
        most
    };
    let most: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|number| scope.spawn(move || work(number))).collect();
        for buffers in (2000..=40_000).step_by(500) {
            pool.grow_to(buffers).unwrap();
        }
        is_over.store(true, Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((pool.populated(), pool.in_use()), (40_000, 0));
    assert!(most > 2000, "{most}");
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
fn a_devices_hints_belong_to_one_packet() {
    let _alone = common::alone();
    let pool = pool(2, 100);
    let mut packet = pool.alloc_from(b"frame").unwrap();
    assert_eq!((packet.rss_hash(), packet.mark()), (None, None));
    packet.set_rss_hash(0xdead_beef);
    assert_eq!((packet.rss_hash(), packet.mark()), (Some(0xdead_beef), None));
    packet.set_mark(7);
    assert_eq!((packet.rss_hash(), packet.mark()), (Some(0xdead_beef), Some(7)));
    drop(packet);
    let both = [pool.alloc().unwrap(), pool.alloc().unwrap()];
    assert!(both.iter().all(|packet| packet.rss_hash().is_none() && packet.mark().is_none()));
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

#[test]
fn bytes_are_added_and_removed_at_both_ends() {
    let _alone = common::alone();
    let pool = pool(16, 100);
    let mut packet = pool.alloc_from(&pattern(40)).unwrap();
    packet.prepend(4).unwrap().copy_from_slice(b"head");
    packet.append(4).unwrap().copy_from_slice(b"tail");
    let expected: Vec<u8> = [b"head", &pattern(40)[..], b"tail"].concat();
    assert_eq!((packet.data(), packet.pkt_len(), packet.nb_segs()), (&expected[..], 48, 1));
    assert!(packet.adj(4) && packet.trim(4));
    assert_eq!(packet.data(), pattern(40));
    assert!(
        !packet.adj(41) && !packet.trim(41) && packet.prepend(129).is_none() && packet.append(61).is_none()
    );
    assert_eq!(packet.data(), pattern(40), "what is refused changes nothing");
    assert!(packet.adj(40) && packet.data().is_empty() && packet.trim(0));
}

#[test]
fn long_packets_are_chains() {
    let _alone = common::alone();
    let pool = pool(64, 100);
    let mut packet = pool.alloc_from(&pattern(550)).unwrap();
    assert_eq!((packet.nb_segs(), packet.pkt_len(), packet.data().len(), pool.in_use()), (6, 550, 100, 6));
    assert_eq!(packet.to_vec(), pattern(550));
    assert_eq!(packet.append(50).map(|new| new.len()), Some(50));
    assert!(packet.trim(50) && packet.trim(60), "cuts through segments");
    assert_eq!((packet.nb_segs(), packet.to_vec()), (5, pattern(490)));
    let (head, rest) = packet.split_first_segment();
    head[0] = 0xff;
    assert_eq!(rest.map(<[u8]>::len).collect::<Vec<_>>(), [100, 100, 100, 90]);
    assert_eq!(packet.data()[0], 0xff);
    assert!(packet.trim(490) && packet.nb_segs() == 1 && pool.in_use() == 1);
    assert!(pool.alloc_from(&pattern(100 * 65)).is_none(), "more than there are buffers");
    assert_eq!(pool.in_use(), 1, "and nothing is lost");
}

#[test]
fn chains_have_a_longest_length() {
    let _alone = common::alone();
    let pool = pool(300, 1);
    assert!(pool.alloc_from(&pattern(65)).is_none());
    let mut packet = pool.alloc_from(&pattern(64)).unwrap();
    for len in [64, 64, 63] {
        packet.chain(pool.alloc_from(&pattern(len)).unwrap()).unwrap();
    }
    let more = packet.chain(pool.alloc_from(&[1]).unwrap()).unwrap_err();
    assert_eq!((more.to_vec(), packet.pkt_len(), packet.nb_segs()), (vec![1], 255, 255));
    drop((packet, more));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn pull_up_uses_tail_room_then_head_room_and_then_gives_up() {
    let _alone = common::alone();
    let pool = pool(16, 100);
    let mut packet = pool.alloc_from(&pattern(250)).unwrap();
    assert!(packet.pull_up(100), "has them already");
    assert!(!packet.pull_up(251), "longer than the packet");
    assert!(!packet.pull_up(229), "longer than a buffer");
    assert_eq!((packet.nb_segs(), packet.to_vec()), (3, pattern(250)));
    assert!(packet.pull_up(228), "head room, data and tail room are the buffer");
    assert_eq!((packet.data(), packet.headroom(), packet.nb_segs()), (&pattern(250)[..228], 0, 2));
    assert_eq!(packet.to_vec(), pattern(250));
    let mut short = pool.alloc_from(&pattern(150)).unwrap();
    assert!(short.adj(60) && short.pull_up(60), "there is no tail room, so head room shrinks");
    assert_eq!((short.to_vec(), short.headroom()), (pattern(150)[60..].to_vec(), 168));
    assert!(short.linearize() && short.nb_segs() == 1);
    assert_eq!(short.data(), &pattern(150)[60..]);
}

#[test]
fn stripped_tags_come_back() {
    let _alone = common::alone();
    let pool = pool(16, 100);
    let mut packet = pool.alloc_from(&pattern(60)).unwrap();
    assert!(!packet.has_stripped_vlan() && packet.restore_vlan());
    assert_eq!(packet.data(), pattern(60), "nothing to put back");
    packet.set_stripped_vlan(0x6123);
    assert!(packet.has_stripped_vlan() && packet.restore_vlan() && !packet.has_stripped_vlan());
    let tagged = [&pattern(60)[..12], &[0x81, 0x00, 0x61, 0x23], &pattern(60)[12..]].concat();
    assert_eq!((packet.data(), packet.pkt_len()), (&tagged[..], 64));
    assert!(packet.restore_vlan() && packet.data() == tagged, "once");
    packet.prepend(124).unwrap();
    packet.set_stripped_vlan(1);
    assert!(!packet.restore_vlan() && packet.has_stripped_vlan(), "no room");
    let mut split = pool.alloc_from(&pattern(6)).unwrap();
    split.chain(pool.alloc_from(&pattern(60)[6..]).unwrap()).unwrap();
    split.set_stripped_vlan(0x6123);
    assert!(split.restore_vlan());
    assert_eq!(split.to_vec(), tagged, "addresses in two segments");
    let mut runt = pool.alloc_from(&pattern(11)).unwrap();
    runt.set_stripped_vlan(1);
    assert!(!runt.restore_vlan());
}

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

/// An operation on a packet, with a naive counterpart on a vector of bytes.
#[derive(Clone, Debug)]
enum Change {
    Prepend(usize),
    Append(usize),
    Adj(usize),
    Trim(usize),
    PullUp(usize),
    Chain(usize),
    Restore,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..160usize).prop_map(Change::Prepend),
        (0..120usize).prop_map(Change::Append),
        (0..120usize).prop_map(Change::Adj),
        (0..200usize).prop_map(Change::Trim),
        (0..300usize).prop_map(Change::PullUp),
        (0..250usize).prop_map(Change::Chain),
        Just(Change::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_packet_is_its_bytes(len in 0..400usize, changes in prop::collection::vec(change(), 0..20)) {
        let _alone = common::alone();
        let pool = pool(256, 100);
        let (mut bytes, mut packet) = (pattern(len), pool.alloc_from(&pattern(len)).unwrap());
        for change in changes {
            match change {
                Change::Prepend(n) => if let Some(new) = packet.prepend(n) {
                    new.copy_from_slice(&pattern(n));
                    bytes.splice(0..0, pattern(n));
                },
                Change::Append(n) => if let Some(new) = packet.append(n) {
                    new.copy_from_slice(&pattern(n));
                    bytes.extend(pattern(n));
                },
                Change::Adj(n) => if packet.adj(n) { bytes.drain(..n); },
                Change::Trim(n) => {
                    prop_assert_eq!(packet.trim(n), n <= bytes.len());
                    bytes.truncate(bytes.len().saturating_sub(if n <= bytes.len() { n } else { 0 }));
                }
                Change::PullUp(n) => {
                    prop_assert_eq!(packet.pull_up(n), n <= bytes.len() && n <= 228 || n <= packet.data().len());
                    prop_assert!(n > bytes.len() || n > 228 || packet.data().len() >= n);
                }
                Change::Chain(n) => {
                    packet.chain(pool.alloc_from(&pattern(n)).unwrap()).unwrap();
                    bytes.extend(pattern(n));
                }
                Change::Restore => {
                    packet.set_stripped_vlan(7);
                    if packet.restore_vlan() { bytes.splice(12..12, [0x81, 0, 0, 7]); } else {
                        prop_assert!(bytes.len() < 12 || packet.headroom() < 4);
                    }
                }
            }
            prop_assert_eq!(packet.to_vec(), &bytes[..]);
            prop_assert_eq!(packet.pkt_len(), bytes.len());
            prop_assert_eq!(usize::from(packet.nb_segs()), packet.segments().count());
        }
        drop(packet);
        prop_assert_eq!(pool.in_use(), 0);
    }
}
