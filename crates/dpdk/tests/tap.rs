//! Tap ports, which make kernel interfaces. Needs root and is skipped, with a message, without it.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;

use std::time::{Duration, Instant};

use mmb_dpdk::{Burst, Device, Mempool, NetDev, RxQueue, TxQueue};
use net::*;

#[test]
fn a_tap_is_created_used_and_removed() {
    in_namespace(|| {
        let pool = pool();
        for _ in 0..5 {
            let mut port = open(Device::Tap { interface: Some("mmbtap".into()) }, &pool).unwrap();
            sysctl("net/ipv6/conf/mmbtap/disable_ipv6", "1");
            let (mut rx, mut tx) = queues(&mut port);
            let fds = port.rx_fds().to_vec();
            assert_eq!((fds.is_empty(), port.net_dev().map(|device| device.mtu)), (false, Some(1500)));
            let peer = Raw::new("mmbtap");
            while receive_within(&mut rx, 1, 50).len() == 1 {}
            assert!(fds.iter().all(|fd| !readable(*fd, 20)));
            peer.send(&frame(60, 1));
            assert!(fds.iter().any(|fd| readable(*fd, 300)), "a frame wakes");
            assert_eq!(receive(&mut rx, 1), [frame(60, 1)]);
            peer.send(&frame(1514, 2));
            assert_eq!(receive(&mut rx, 1), [frame(1514, 2)]);
            send(&mut tx, &pool, &[frame(1514, 3)]);
            let mut seen = std::iter::from_fn(|| peer.receive());
            assert!(seen.any(|seen| seen == frame(1514, 3)));
            drop((port, rx, tx));
            assert!(NetDev::lookup("mmbtap").unwrap().is_none());
        }
        assert_eq!(pool.in_use(), 0);
        let message =
            |name: &str| open(Device::Tap { interface: Some(name.into()) }, &pool).err().unwrap().to_string();
        let long = message("a-name-of-sixteen");
        assert_eq!(long, "port p0: cannot make its interface: 'a-name-of-sixteen' is longer than 15 bytes");
        let taken = message("mmb0");
        assert_eq!(taken, "port p0: cannot make its interface: there is a network interface 'mmb0' already");
    });
}

/// A tap whose interface changes: MTU, address, carrier, down and up; with long frames in short buffers.
#[test]
fn a_tap_follows_its_interface() {
    in_namespace(|| {
        let (pool, small) = (pool(), Mempool::create("small", 8192, 512, 0).unwrap());
        let mut port = open(Device::Tap { interface: Some("mmbtap".into()) }, &small).unwrap();
        sysctl("net/ipv6/conf/mmbtap/disable_ipv6", "1");
        assert!(small.in_use() <= 41, "{}", small.in_use());
        let (mut rx, mut tx) = queues(&mut port);
        let device = || NetDev::lookup("mmbtap").unwrap().unwrap();
        assert_eq!((device().up, device().promiscuous, device().mac), (true, true, port.info().mac));
        assert!(
            !device().offloads.tso && !device().offloads.tx_checksum,
            "the kernel hands over whole frames"
        );
        let raw = Raw::new("mmbtap");
        let both_ways = |rx: &mut RxQueue, tx: &mut TxQueue, len| {
            raw.send(&frame(len, 1));
            // Frames that the kernel sends when an interface comes up are skipped.
            let end = Instant::now() + Duration::from_secs(5);
            while !receive(rx, 1).contains(&frame(len, 1)) {
                assert!(Instant::now() < end);
            }
            let mut parts = small.alloc_from(&frame(len, 2)[..60]).unwrap();
            parts.chain(pool.alloc_from(&frame(len, 2)[60..]).unwrap()).unwrap();
            let mut burst = Burst::new();
            burst.push(parts).unwrap();
            assert_eq!(tx.send_all(&mut burst).sent, 1, "{len} bytes in segments");
            while raw.receive() != Some(frame(len, 2)) {
                assert!(Instant::now() < end);
            }
        };
        both_ways(&mut rx, &mut tx, 1514);
        ip("link set mmbtap mtu 9000");
        assert_eq!((port.mtu(), port.max_frame()), (9000, 9022));
        both_ways(&mut rx, &mut tx, 9014);
        ip("link set mmbtap mtu 65521");
        assert_eq!(port.mtu(), 65521);
        ip("link set mmbtap address 02:01:02:03:04:05");
        assert_eq!(port.net_dev().unwrap().mac, [2, 1, 2, 3, 4, 5]);
        ip("link set mmbtap mtu 1500");
        assert_eq!((port.mtu(), port.max_frame()), (1500, 1522));
        for (carrier, up) in [("off", false), ("on", true)] {
            ip(&format!("link set mmbtap carrier {carrier}"));
            let end = Instant::now() + Duration::from_secs(5);
            while port.is_link_up() != up {
                assert!(Instant::now() < end, "the kernel says so a moment later");
            }
        }
        ip("link set mmbtap down");
        let mut burst = Burst::new();
        burst.push(pool.alloc_from(&frame(60, 1)).unwrap()).unwrap();
        assert_eq!(tx.send_all(&mut burst).no_room, 1);
        ip("link set mmbtap up");
        rx.clear_errors();
        // The test's socket sees the error, too.
        let raw = Raw::new("mmbtap");
        raw.send(&frame(60, 3));
        let end = Instant::now() + Duration::from_secs(5);
        while !receive(&mut rx, 1).contains(&frame(60, 3)) {
            assert!(Instant::now() < end);
        }
        drop((port, rx, tx));
        assert_eq!(small.in_use() + pool.in_use(), 0);
    });
}

/// An overflow of the signal queue does not end the process.
#[test]
fn a_signal_queue_overflow_does_not_end_the_process() {
    in_namespace(|| {
        let pool = pool();
        let mut port = open(Device::Tap { interface: Some("mmbtap".into()) }, &pool).unwrap();
        let (mut rx, _tx) = queues(&mut port);
        let raw = Raw::new("mmbtap");
        let limit = |signals: &libc::rlimit| {
            // SAFETY: a live structure.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, signals) }, 0);
        };
        let mut usual = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a live structure.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_SIGPENDING, &mut usual) }, 0);
        limit(&libc::rlimit { rlim_cur: 0, ..usual });
        (0..10).for_each(|number| raw.send(&frame(60, number)));
        limit(&usual);
        raw.send(&frame(60, 10));
        let end = Instant::now() + Duration::from_secs(5);
        let mut seen = Vec::new();
        while !seen.contains(&frame(60, 10)) {
            assert!(Instant::now() < end);
            seen.extend(receive(&mut rx, 1));
        }
        assert!(seen.contains(&frame(60, 9)), "none is lost");
    });
}
