//! Tap ports, which make kernel interfaces. Needs root and is skipped, with a message, without it.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;
#[path = "common/peer.rs"]
mod peer;

use std::process::Command;
use std::time::{Duration, Instant};

use mmb_dpdk::{
    Burst, Device, Error, Mempool, NetDev, Port, PortError, PortSpec, ReceiveLarge, RxQueue, TxQueue, segment,
};
use mmb_packet::LargeFrame;
use mmb_packet::build::{Frame, Ip4, Ip6, Tcp, Transport, Udp};
use net::*;
use peer::Peer;

fn tap() -> Device {
    Device::Tap { interface: Some("mmbtap".into()) }
}

/// A tap whose kernel sends nothing by itself.
fn quiet(pool: &Mempool, queues: u16) -> Port {
    let (rx_queues, tx_queues) = (queues, queues);
    let port = Port::open(&PortSpec { name: "p0", device: tap(), pool, rx_queues, tx_queues, mtu: None });
    sysctl("net/ipv6/conf/mmbtap/disable_ipv6", "1");
    let mut port = port.unwrap();
    port.discard_received();
    port
}

/// Receives until a frame arrives that is this one, as a packet.
fn receive_until(rx: &mut RxQueue, is_it: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let (end, mut seen) = (Instant::now() + Duration::from_secs(5), Vec::<Vec<u8>>::new());
    while !seen.iter().any(|frame| is_it(frame)) {
        assert!(Instant::now() < end, "{} frames", seen.len());
        seen.extend(receive_within(rx, 1, 100));
    }
    seen
}

#[test]
fn a_tap_is_created_used_and_removed() {
    in_namespace(|| {
        let pool = pool();
        for _ in 0..5 {
            let mut port = quiet(&pool, 1);
            let (mut rx, mut tx) = queues(&mut port);
            let fd = rx.rx_fd().unwrap();
            assert_eq!(
                (port.rx_fd(1).is_none(), port.net_dev().map(|device| device.mtu)),
                (true, Some(1500))
            );
            let peer = Raw::new("mmbtap");
            while receive_within(&mut rx, 1, 50).len() == 1 {}
            assert!(!readable(fd, 20));
            peer.send(&frame(60, 1));
            assert!(readable(fd, 300), "a frame wakes");
            assert_eq!(receive(&mut rx, 1), [frame(60, 1)]);
            peer.send(&frame(1514, 2));
            assert_eq!(receive(&mut rx, 1), [frame(1514, 2)]);
            assert!(!readable(fd, 0), "an idle port does not wake");
            send(&mut tx, &pool, &[frame(1514, 3)]);
            let mut seen = std::iter::from_fn(|| peer.receive());
            assert!(seen.any(|seen| seen == frame(1514, 3)));
            let stats = port.stats().unwrap();
            assert_eq!((stats.rx_packets, stats.tx_packets, stats.tx_bytes), (2, 1, 1514), "{stats:?}");
            drop((port, rx, tx));
            assert!(NetDev::lookup("mmbtap").unwrap().is_none());
        }
        assert_eq!(pool.in_use(), 0);
        // The kernel chooses names.
        let (first, second) = (Device::Tap { interface: None }, Device::Tap { interface: None });
        let both = [open(first, &pool).unwrap(), open(second, &pool).unwrap()];
        let names = both.each_ref().map(|port| NetDev::name_of(port.info().if_index.unwrap()).unwrap());
        assert_eq!(names, ["dtap0", "dtap1"]);
    });
}

#[test]
fn errors_name_the_cause() {
    in_namespace(|| {
        let pool = pool();
        let message =
            |name: &str| open(Device::Tap { interface: Some(name.into()) }, &pool).err().unwrap().to_string();
        let long = message("a-name-of-sixteen");
        assert_eq!(long, "port p0: cannot make its interface: 'a-name-of-sixteen' is longer than 15 bytes");
        let taken = message("mmb0");
        assert_eq!(taken, "port p0: cannot make its interface: there is a network interface 'mmb0' already");
        // A thread without privileges: user 65534 cannot make interfaces.
        let error = std::thread::scope(|scope| {
            let unprivileged = scope.spawn(|| {
                // SAFETY: the system call changes this thread only, unlike libc's function.
                assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
                open(tap(), &pool).err()
            });
            unprivileged.join().unwrap()
        });
        assert!(matches!(error, Some(Error::Port(PortError::NotPermitted { .. }))), "{error:?}");
    });
}

/// A tap whose interface changes: MTU, address, carrier, down and up; with long frames in short buffers.
#[test]
fn a_tap_follows_its_interface() {
    in_namespace(|| {
        let (pool, small) = (pool(), Mempool::create("small", 8192, 512, 0).unwrap());
        let mut port = quiet(&small, 1);
        let (mut rx, mut tx) = queues(&mut port);
        let device = || NetDev::lookup("mmbtap").unwrap().unwrap();
        assert_eq!((device().up, device().promiscuous, device().mac), (true, true, port.info().mac));
        assert!(device().offloads.tso && device().offloads.tx_checksum, "the kernel hands over large frames");
        let raw = Raw::new("mmbtap");
        let both_ways = |rx: &mut RxQueue, tx: &mut TxQueue, len| {
            raw.send(&frame(len, 1));
            // Frames that the kernel sends when an interface comes up are skipped.
            receive_until(rx, |seen| seen == frame(len, 1));
            let mut parts = small.alloc_from(&frame(len, 2)[..60]).unwrap();
            parts.chain(pool.alloc_from(&frame(len, 2)[60..]).unwrap()).unwrap();
            let mut burst = Burst::new();
            burst.push(parts).unwrap();
            assert_eq!(tx.send_all(&mut burst).sent, 1, "{len} bytes in segments");
            while raw.receive().unwrap() != frame(len, 2) {}
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
        send(&mut tx, &pool, &[frame(60, 1)]);
        assert_eq!(port.stats().unwrap().tx_errors, 1, "the kernel refuses it");
        ip("link set mmbtap up");
        // The test's socket sees the error, too.
        let raw = Raw::new("mmbtap");
        raw.send(&frame(60, 3));
        receive_until(&mut rx, |seen| seen == frame(60, 3));
        ip("link set mmbtap name other0");
        assert!(port.net_dev().is_some_and(|device| device.up) || !port.is_link_up(), "under its new name");
        drop((port, rx, tx));
        assert_eq!(small.in_use() + pool.in_use(), 0);
    });
}

/// An interface that was moved to a container, or deleted.
#[test]
fn a_tap_may_leave() {
    in_namespace(|| {
        let (pool, container) = (pool(), Peer::new());
        let mut port = quiet(&pool, 1);
        let (mut rx, mut tx) = queues(&mut port);
        ip(&format!("link set mmbtap netns {}", container.id()));
        assert_eq!((port.net_dev(), port.is_link_up(), port.is_attached()), (None, true, true));
        container.within(|| {
            ip("link set mmbtap up");
            Raw::new("mmbtap").send(&frame(60, 1));
        });
        receive_until(&mut rx, |seen| seen == frame(60, 1));
        container.within(|| ip("link del mmbtap"));
        assert_eq!((port.net_dev(), port.is_link_up(), port.is_attached()), (None, false, false));
        send(&mut tx, &pool, &[frame(60, 2)]);
        assert_eq!((receive_within(&mut rx, 1, 20).len(), port.stats().unwrap().tx_errors), (0, 1));
    });
}

/// Frames for which there are no buffers are lost and counted. Later ones arrive.
#[test]
fn a_tap_goes_on_after_its_pool_was_empty() {
    in_namespace(|| {
        let pool = Mempool::create("few", 200, 2048, 0).unwrap();
        let mut port = quiet(&pool, 1);
        let (mut rx, _tx) = queues(&mut port);
        let raw = Raw::new("mmbtap");
        let held: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        (0..100).for_each(|number| raw.send(&frame(60, number)));
        let early = receive_within(&mut rx, 100, 100).len() as u64;
        drop(held);
        raw.send(&frame(60, 100));
        receive_until(&mut rx, |seen| seen == frame(60, 100));
        let stats = port.stats().unwrap();
        assert!(stats.rx_no_buffer >= 90 && stats.rx_no_buffer + early >= 100, "{early} {stats:?}");
    });
}

#[test]
fn several_queues_share_the_frames() {
    in_namespace(|| {
        let pool = pool();
        let mut port = quiet(&pool, 2);
        assert_eq!((port.info().rx_queues, port.info().tx_queues), (2, 2));
        let mut queues = [0, 1].map(|queue| (port.take_rx(queue).unwrap(), port.take_tx(queue).unwrap()));
        let raw = Raw::new("mmbtap");
        let datagram = |flow: u16| {
            Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(flow, 53)).payload([0; 40]).build()
        };
        (0..64).for_each(|flow| raw.send(&datagram(flow)));
        let received = queues.each_mut().map(|(rx, _)| receive_within(rx, 64, 200).len());
        assert_eq!(received[0] + received[1], 64);
        assert!(received.iter().all(|n| *n > 0), "{received:?}");
        for (number, (_, tx)) in queues.iter_mut().enumerate() {
            send(tx, &pool, &[frame(80, number as u32)]);
            while raw.receive().unwrap() != frame(80, number as u32) {}
        }
        let fds = queues.each_ref().map(|(rx, _)| rx.rx_fd().unwrap());
        assert!(fds[0] != fds[1] && port.rx_fd(2).is_none());
    });
}

/// What waits have shown moves the times of reads. No frame stays in the tap.
#[test]
fn frames_arrive_whatever_waits_have_shown() {
    in_namespace(|| {
        let pool = pool();
        let mut port = quiet(&pool, 1);
        let (mut rx, _tx) = queues(&mut port);
        let raw = Raw::new("mmbtap");
        for number in 0..40 {
            let (is_readable, waits_again, together) = (number & 1 > 0, number & 2 > 0, 1 + number % 3);
            rx.note_wait(is_readable, waits_again);
            (0..together).for_each(|_| raw.send(&frame(80, number)));
            assert_eq!(receive_within(&mut rx, together as usize, 200).len(), together as usize, "{number}");
        }
        // Frames that come alone, until the next one is expected alone, and then two.
        for number in 0..10 {
            raw.send(&frame(80, number));
            rx.note_wait(true, true);
            assert_eq!(receive_within(&mut rx, 1, 200).len(), 1);
        }
        (0..2).for_each(|number| raw.send(&frame(80, number)));
        rx.note_wait(true, true);
        assert_eq!(receive_within(&mut rx, 2, 200).len(), 2);
    });
}

/// Large frames of all kinds: two addresses, two protocols, without and with a VLAN tag.
fn large_frames() -> Vec<(Vec<u8>, u16)> {
    let networks = |transport: Transport| {
        [
            Frame::new(Ip4 { id: 7, flags: 2, ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) }, transport.clone()),
            Frame::new(Ip6::new([0xfd00, 0, 0, 0, 0, 0, 0, 1], [0xfd00, 0, 0, 0, 0, 0, 0, 2]), transport),
        ]
    };
    let tcp = Tcp { seq: 1000, ack: 7, flags: 0x18, options: vec![1; 12], ..Tcp::new(1000, 2000) };
    let bytes: Vec<u8> = (0..40_000u32).map(|at| (at * 31) as u8).collect();
    [(Transport::from(tcp), 1400), (Udp::new(1000, 2000).into(), 1200)]
        .into_iter()
        .flat_map(|(transport, size)| networks(transport).map(|frame| (frame, size)))
        .flat_map(|(frame, size)| [(frame.clone(), size), (frame.vlan(5), size)])
        .map(|(frame, size)| (frame.payload(bytes.clone()).build(), size))
        .collect()
}

/// The virtio-net header of a large frame (linux/virtio_net.h), and the frame with the checksum of its pseudo
/// header.
fn as_sent(frame: &[u8], size: u16) -> Vec<u8> {
    let (large, mut frame) = (LargeFrame::parse(frame, frame.len()).unwrap(), frame.to_vec());
    let kind = match (large.is_tcp(), large.is_ip4()) {
        (true, true) => 1,
        (true, false) => 4,
        (false, _) => 5,
    };
    large.write_partial_checksum(&mut frame);
    let words = [large.header_len(), size.into(), large.transport(), large.checksum_offset()];
    let words = words.into_iter().flat_map(|word| (word as u16).to_ne_bytes());
    [1, kind].into_iter().chain(words).chain(frame).collect()
}

/// What arrives within a moment: bytes, and the segments' payload of large frames.
fn arriving(rx: &mut RxQueue) -> Burst {
    let (mut burst, end) = (Burst::new(), Instant::now() + Duration::from_millis(100));
    while Instant::now() < end {
        burst.fill(|slots| rx.receive(slots));
    }
    burst
}

/// The kernel's large frames are received whole. Their segments are those that the kernel makes if it is to
/// leave neither segmentation nor checksums to the interface.
#[test]
fn large_frames_arrive_whole_and_their_segments_are_those_of_the_kernel() {
    in_namespace(|| {
        let pool = pool();
        let mut port = quiet(&pool, 1);
        let (mut rx, _tx) = queues(&mut port);
        let raw = Raw::with_headers("mmbtap");
        let switch = |value| {
            let words = ["-K", "mmbtap", "tx", value, "tso", value, "tx-udp-segmentation", value];
            assert!(Command::new("ethtool").args(words).output().unwrap().status.success());
        };
        for (frame, size) in large_frames() {
            let sent = as_sent(&frame, size);
            switch("on");
            raw.send(&sent);
            let mut burst = arriving(&mut rx);
            let shape: Vec<_> =
                burst.iter().map(|packet| (packet.is_large(), packet.segment_size())).collect();
            assert_eq!(shape, [(true, size)]);
            let large = burst.pop().unwrap();
            assert!(large.to_vec() == sent[10..]);
            let mut own = Vec::new();
            assert!(segment(&large, |segment| own.push(segment.to_vec())));
            let is_tcp = large.large_frame().unwrap().is_tcp();
            for (what, is_whole) in
                [(ReceiveLarge::Segmented, false), (ReceiveLarge::Tcp, is_tcp), (ReceiveLarge::Whole, true)]
            {
                port.receive_large(what);
                raw.send(&sent);
                let burst = arriving(&mut rx);
                let got: Vec<_> = burst.iter().map(|packet| packet.to_vec()).collect();
                assert!(got == if is_whole { vec![large.to_vec()] } else { own.clone() }, "{what:?}");
            }
            switch("off");
            raw.send(&sent);
            let burst = arriving(&mut rx);
            let of_kernel: Vec<_> = burst.iter().map(|packet| packet.to_vec()).collect();
            assert_eq!((of_kernel.len(), of_kernel == own), (own.len(), true));
        }
    });
}

#[test]
fn large_frames_are_sent_whole() {
    in_namespace(|| {
        let pool = pool();
        let mut port = quiet(&pool, 1);
        let (_rx, mut tx) = queues(&mut port);
        let raw = Raw::with_headers("mmbtap");
        let mut burst = Burst::new();
        for (frame, size) in large_frames() {
            let mut packet = pool.alloc_from(&frame).unwrap();
            packet.set_large(size);
            burst.push(pool.alloc_from(&net::frame(60, 1)).unwrap()).unwrap();
            burst.push(packet).unwrap();
            burst.push(pool.alloc_from(&net::frame(60, 2)).unwrap()).unwrap();
            assert_eq!((tx.send_all(&mut burst).sent, burst.len()), (3, 0));
            let received = [0; 3].map(|_| raw.receive().unwrap());
            // The packet socket gets the tag beside the frame, and offsets without it.
            if frame[12..14] != [0x81, 0] {
                assert!(received[1] == as_sent(&frame, size), "{size}");
            }
            assert!(received[1].len() > 40_000);
            assert_eq!([&received[0][10..], &received[2][10..]], [net::frame(60, 1), net::frame(60, 2)]);
        }
        drop((port, tx, _rx));
        assert_eq!(pool.in_use(), 0);
    });
}

/// Segments of TCP leave as the large frame of which they were cut, those of UDP one by one.
#[test]
fn segments_leave_as_large_frames() {
    in_namespace(|| {
        let pool = pool();
        let mut port = quiet(&pool, 1);
        let (_rx, mut tx) = queues(&mut port);
        let raw = Raw::with_headers("mmbtap");
        let mut burst = Burst::new();
        let (mut packets, mut merged) = (0, 0);
        for (frame, size) in large_frames() {
            let is_tcp = LargeFrame::parse(&frame, frame.len()).unwrap().is_tcp();
            for merges in [true, false] {
                port.merge_segments(merges);
                let mut large = pool.alloc_from(&frame).unwrap();
                large.set_large(size);
                assert!(segment(&large, |segment| burst.push(segment).unwrap()));
                let n = burst.len();
                let count = tx.send_all(&mut burst);
                let expected = if is_tcp && merges { 1 } else { n };
                assert_eq!((count.sent, count.merged, burst.len()), (expected, n - expected, 0));
                (packets, merged) = (packets + expected as u64, merged + (n - expected) as u64);
                let received: Vec<_> = (0..expected).map(|_| raw.receive().unwrap()).collect();
                // The packet socket gets the tag beside the frame, and offsets without it.
                if expected == 1 && frame[12..14] != [0x81, 0] {
                    assert!(received[0] == as_sent(&frame, size), "{size}");
                }
            }
        }
        let stats = port.stats().unwrap();
        assert_eq!((stats.tx_packets, stats.tx_merged), (packets, merged));
        drop((port, tx, _rx));
        assert_eq!(pool.in_use(), 0);
    });
}
