//! Packets that other processes read: where they lie in the pool's file, and pinned buffers.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use mmb_dpdk::{Mbuf, Mempool, ReadablePool, SharedMemory};

use crate::{common, pattern, pool};

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
