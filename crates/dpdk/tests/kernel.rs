//! Ports on kernel interfaces. Each test runs in a network namespace with a pair of virtual Ethernet
//! interfaces. The tests need root and are skipped, with a message, without it.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;

use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use mmb_dpdk::{Burst, Device, Error, Mempool, NetDev, PoolError, PortError, Steering, TxQueue};
use net::*;

fn packet() -> Device {
    Device::AfPacket { interface: "mmb0".into() }
}

/// Checks waiting, both directions, frame sizes and tags.
fn carries(device: Device, pool: &Mempool) {
    let mut port = open(device, pool).unwrap();
    assert_eq!(
        (port.info().if_index.is_some(), port.mtu(), port.max_frame(), port.is_link_up()),
        (true, 1500, 1522, true)
    );
    // An IP packet of 1,500 bytes behind no, one, two, and three tags; three are too many.
    assert_eq!([14, 18, 22, 26].map(|link| port.max_frame_behind(link)), [1514, 1518, 1522, 1522]);
    let (mut rx, mut tx) = queues(&mut port);
    let fd = rx.rx_fd().unwrap();
    assert_eq!((port.rx_fd(0).unwrap().as_raw_fd(), port.rx_fd(1).is_none()), (fd, true));
    let peer = Raw::new("peer0");
    assert!(receive(&mut rx, 0).is_empty() && !readable(fd, 50), "nothing has arrived");
    for number in 0..50 {
        assert!(!readable(fd, 0));
        let start = Instant::now();
        peer.send(&frame(60, number));
        assert!(readable(fd, 1000) && start.elapsed() < Duration::from_millis(500), "a frame wakes");
        assert_eq!(receive(&mut rx, 1), [frame(60, number)]);
        // A worker polls once more before it sleeps.
        let mut burst = Burst::new();
        assert_eq!(burst.fill(|slots| rx.receive(slots)), 0);
    }
    let tagged =
        |tpid: [u8; 2], len| [&frame(len, 7)[..12], &tpid, &[0x20, 0x05], &frame(len, 7)[12..]].concat();
    let mut odds =
        vec![frame(14, 0), frame(15, 1), frame(1514, 2), tagged([0x81, 0], 60), tagged([0x81, 0], 1514)];
    if port.info().driver == "net_af_xdp" {
        odds.push(tagged([0x88, 0xa8], 100));
    }
    let odds_sent = odds.len() as u64;
    for odd in odds {
        peer.send(&odd);
        assert_eq!(receive(&mut rx, 1), [&odd[..]]);
        send(&mut tx, pool, std::slice::from_ref(&odd));
        let back = peer.receive().unwrap();
        let untagged = [&odd[..12], &odd[16.min(odd.len())..]].concat();
        assert!(
            back == odd || [[0x81, 0], [0x88, 0xa8]].contains(&[odd[12], odd[13]]) && back == untagged,
            "{back:?} {odd:?}"
        );
    }
    let many: Vec<_> = (0..200).map(|number| frame(60 + number as usize * 7, number)).collect();
    for _ in 0..50 {
        many.iter().for_each(|frame| peer.send(frame));
        assert_eq!(receive(&mut rx, many.len()), many);
        send(&mut tx, pool, &many);
        assert!(many.iter().all(|frame| peer.receive().as_ref() == Some(frame)));
    }
    check_segments(&mut tx, pool, &peer);
    let stats = port.stats().unwrap();
    assert_eq!(stats.rx_packets, 50 + odds_sent + 50 * 200, "{stats:?}");
    assert_eq!(rx.clear_errors().map(|error| error.to_string()), None);
}

/// Packets that are too long, and packets of several short segments, which the driver must not misread.
fn check_segments(tx: &mut TxQueue, pool: &Mempool, peer: &Raw) {
    let mut burst = Burst::new();
    burst.push(pool.alloc_from(&frame(1523, 0)).unwrap()).unwrap();
    assert_eq!(tx.send_all(&mut burst).too_big, 1);
    let small = Mempool::create("small", 600, 100, 0).unwrap();
    burst.push(small.alloc_from(&frame(1000, 1)).unwrap()).unwrap();
    burst.push(small.alloc_from(&frame(100, 2)).unwrap()).unwrap();
    let mut parts = pool.alloc_from(&frame(1000, 3)[..300]).unwrap();
    parts.chain(pool.alloc_from(&frame(1000, 3)[300..]).unwrap()).unwrap();
    burst.push(parts).unwrap();
    let count = tx.send_all(&mut burst);
    let expected: &[_] =
        if count.too_big == 0 { &[(1000, 1), (100, 2), (1000, 3)] } else { &[(100, 2), (1000, 3)] };
    assert_eq!(count.sent, expected.len());
    for (len, number) in expected {
        assert_eq!(peer.receive(), Some(frame(*len, *number)));
    }
}

#[test]
fn af_xdp_carries() {
    in_namespace(|| carries(xdp(), &pool()));
}

#[test]
fn af_packet_carries() {
    in_namespace(|| carries(packet(), &pool()));
}

/// AF_XDP registers the memory of the buffers that the pool has when a port is opened. It gets no others.
#[test]
fn a_pool_does_not_grow_while_af_xdp_has_its_memory() {
    in_namespace(|| {
        let pool = Mempool::growing("grows", (16_000, 500), 2048, 0).unwrap();
        let first = pool.populated();
        carries(packet(), &pool);
        assert_eq!(pool.populated(), first, "AF_PACKET copies");
        // What is left for AF_XDP are buffers that are added.
        let held: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(held.len(), first);
        pool.grow_to(8000).unwrap();
        let second = pool.populated();
        let port = open(xdp(), &pool).unwrap();
        assert!(pool.is_registered());
        assert!(matches!(pool.grow_to(16_000), Err(PoolError::Registered)));
        pool.grow_to(second).unwrap();
        drop(port);
        carries(xdp(), &pool);
        assert_eq!((pool.populated(), pool.in_use(), pool.is_registered()), (second, first, false));
        pool.grow_to(16_000).unwrap();
        carries(xdp(), &pool);
        assert_eq!((pool.populated(), pool.in_use()), (16_000, first));
    });
}

/// Opening and closing restores the interface and returns all buffers.
fn comes_and_goes(device: fn() -> Device) {
    let (pool, before) = (pool(), link("mmb0"));
    let peer = Raw::new("peer0");
    for number in 0..10 {
        let mut port = open(device(), &pool).unwrap();
        let (mut rx, mut tx) = queues(&mut port);
        assert!(link("mmb0").contains("promiscuity 1"), "{}", link("mmb0"));
        peer.send(&frame(60, number));
        assert_eq!(receive(&mut rx, 1), [frame(60, number)]);
        send(&mut tx, &pool, &[frame(70, number)]);
        assert_eq!(peer.receive(), Some(frame(70, number)));
        // These frames stay unread.
        (0..9).for_each(|number| peer.send(&frame(60, number)));
        drop((port, rx, tx));
        while peer.receive().is_some() {}
        assert!(
            pool.in_use() <= number as usize + 1,
            "{} buffers lost in {} rounds",
            pool.in_use(),
            number + 1
        );
    }
    assert_eq!(pool.in_use(), 0);
    let state = |text: &str| text.lines().map(str::trim).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(state(&link("mmb0")), state(&before));
    ip("link set mmb0 promisc on");
    drop(open(device(), &pool).unwrap());
    assert!(NetDev::lookup("mmb0").unwrap().unwrap().promiscuous, "who set it keeps it");
}

#[test]
fn af_xdp_comes_and_goes() {
    in_namespace(|| comes_and_goes(xdp));
}

#[test]
fn af_packet_comes_and_goes() {
    in_namespace(|| comes_and_goes(packet));
}

#[test]
fn frames_that_the_kernel_sends_are_not_received() {
    in_namespace(|| {
        let pool = pool();
        for device in [xdp(), packet()] {
            let mut port = open(device, &pool).unwrap();
            let (mut rx, _tx) = queues(&mut port);
            Raw::new("mmb0").send(&frame(60, 1));
            Raw::new("peer0").send(&frame(60, 2));
            assert_eq!(receive(&mut rx, 1), [frame(60, 2)]);
        }
    });
}

/// Each further socket that is bound to the interface would be offered a copy of each frame, also of those
/// that the kernel sends.
#[test]
fn the_kernel_gives_frames_to_one_socket_of_an_af_packet_port() {
    in_namespace(|| {
        let pool = pool();
        let mut port = open(packet(), &pool).unwrap();
        let _queues = queues(&mut port);
        let sockets = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
        let protocols: Vec<_> =
            sockets.lines().skip(1).filter_map(|line| line.split_whitespace().nth(3)).collect();
        let receiving = protocols.iter().filter(|protocol| **protocol != "0000").count();
        // One enters the promiscuous mode, one sends, one receives.
        assert_eq!((receiving, protocols.len()), (1, 3), "{sockets}");
    });
}

/// Frames of a test in which a pool is empty.
const SENT: u32 = 6000;

/// Frames that arrive while the pool is empty may be lost, and are counted. Later ones arrive.
#[test]
fn a_port_goes_on_after_its_pool_was_empty() {
    in_namespace(|| {
        let pool = pool();
        for device in [xdp(), packet()] {
            let mut port = open(device, &pool).unwrap();
            let (mut rx, _tx) = queues(&mut port);
            let peer = Raw::new("peer0");
            let held: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
            // More than the rings of the drivers have room for.
            (0..SENT).for_each(|number| peer.send(&frame(60, number)));
            let early = receive_within(&mut rx, SENT as usize, 300).len();
            drop(held);
            let late = receive_within(&mut rx, SENT as usize, 300).len();
            let stats = port.stats().unwrap();
            let lost = u64::from(SENT) - (early + late) as u64;
            assert!(lost > 0 && stats.rx_missed + stats.rx_no_buffer == lost, "{lost}: {stats:?}");
            peer.send(&frame(60, SENT));
            assert_eq!(receive(&mut rx, 1), [frame(60, SENT)]);
        }
    });
}

/// Frames of an AF_PACKET port wait only if the kernel has left some, as a token bucket holds earlier ones.
#[test]
fn frames_wait_only_if_the_kernel_has_left_them() {
    in_namespace(|| {
        let pool = pool();
        let mut port = open(packet(), &pool).unwrap();
        let (mut rx, mut tx) = queues(&mut port);
        let peer = Raw::new("peer0");
        for n in [1, 2, 100] {
            let frames: Vec<_> = (0..n).map(|number| frame(60 + number as usize, number)).collect();
            send(&mut tx, &pool, &frames);
            assert!(!port.has_backlog(), "the kernel has taken {n} frames");
            assert!(frames.iter().all(|frame| peer.receive().as_ref() == Some(frame)));
        }
        ip("link add slow0 up type veth peer name slow1");
        ip("link set slow1 up");
        tc("qdisc add dev slow0 root tbf rate 8kbit burst 1600 limit 10000000");
        tc("qdisc add dev peer0 ingress");
        tc(
            "filter add dev peer0 ingress protocol all u32 match u32 0 0 action mirred egress redirect dev slow0",
        );
        let frames: Vec<_> = (0..200).map(|number| frame(1500, number)).collect();
        send(&mut tx, &pool, &frames);
        assert!(port.has_backlog(), "frames wait behind the token bucket");
        send(&mut tx, &pool, &[frame(60, 200)]);
        assert!(port.has_backlog(), "and one behind them");
        // What the token bucket holds is lost with it; the rest goes.
        ip("link delete slow0");
        receive_within(&mut rx, 1, 10);
        assert!(!port.has_backlog());
        let last = std::iter::from_fn(|| peer.receive()).find(|received| *received == frame(60, 200));
        assert_eq!(last, Some(frame(60, 200)));
    });
}

/// An IPv4 fragment arrives although the rest of its packet is missing.
#[test]
fn fragments_stay_fragments() {
    in_namespace(|| {
        let pool = pool();
        let header = [0x45, 0, 0, 36, 0, 1, 0x20, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let frame = [&frame(14, 0)[..12], &[8, 0], &header, &[7; 26]].concat();
        for device in [xdp(), packet()] {
            let mut port = open(device, &pool).unwrap();
            let (mut rx, _tx) = queues(&mut port);
            Raw::new("peer0").send(&frame);
            assert_eq!(receive(&mut rx, 1), [&frame[..]]);
        }
    });
}

#[test]
fn open_errors_name_the_cause() {
    in_namespace(|| {
        let pool = pool();
        let message = |device, pool: &Mempool| open(device, pool).err().unwrap().to_string();
        ip("link set mmb0 mtu 3300");
        assert_eq!(
            message(xdp(), &pool),
            "port p0: frames of MTU 3300 do not fit, 1770 is the maximum with AF_XDP here (lower the interface's MTU, or \
             use af-packet)"
        );
        assert!(
            message(packet(), &pool)
                .contains("frames of MTU 3300 do not fit, 1930 is the maximum with these packet")
        );
        ip("link set mmb0 mtu 1500");
        let first = open(xdp(), &pool).unwrap();
        let busy = message(xdp(), &pool);
        assert!(busy.contains("another program uses XDP on mmb0"), "{busy}");
        drop(first);
        ip("link set mmb0 down");
        for device in [xdp(), packet()] {
            let down = message(device, &pool);
            assert_eq!(down, "port p0: interface mmb0 is down (try: ip link set mmb0 up)");
        }
        ip("link set mmb0 up");
        let scarce = Mempool::create("scarce", 100, 2048, 0).unwrap();
        assert_eq!(
            message(xdp(), &scarce),
            "port p0: its packet pool has 100 free buffers, and AF_XDP wants 4096 (start with more memory)"
        );
        let large = Mempool::create("large", 100, 9216, 0).unwrap();
        assert!(message(xdp(), &large).contains("bytes with their headers, and AF_XDP takes 4096 at most"));
        let before = pool.in_use();
        // A thread without privileges: user 65534 cannot open raw sockets.
        std::thread::scope(|scope| {
            let unprivileged = scope.spawn(|| {
                // SAFETY: the system call changes this thread only, unlike libc's function.
                assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
                [xdp(), packet()].map(|device| open(device, &pool).err())
            });
            for error in unprivileged.join().unwrap() {
                assert!(matches!(error, Some(Error::Port(PortError::NotPermitted { .. }))), "{error:?}");
            }
        });
        assert_eq!(pool.in_use(), before);
    });
}

#[test]
fn several_queues_are_refused() {
    in_namespace(|| {
        ip("link add wide0 numrxqueues 4 numtxqueues 4 type veth peer name wide1");
        ip("link set wide0 up");
        let status = Command::new("ethtool").args(["-L", "wide0", "rx", "4", "tx", "4"]).status();
        if !status.is_ok_and(|status| status.success()) {
            println!("skipped: no ethtool, or it cannot set channels");
            return;
        }
        let error = open(Device::AfXdp { interface: "wide0".into() }, &pool()).err().unwrap().to_string();
        assert!(error.contains("wide0 spreads its traffic over 4 queues"), "{error}");
    });
}

/// A system call for each look into an empty ring finds nothing: frames come by the sender's interrupt.
#[test]
fn af_xdp_does_not_poll_busily_in_copy_mode() {
    in_namespace(|| {
        let port = open(xdp(), &pool()).unwrap();
        let (mut microseconds, mut size): (libc::c_int, _) = (-1, size_of::<libc::c_int>() as u32);
        // SAFETY: live values of that size.
        let status = unsafe {
            let value = (&raw mut microseconds).cast();
            libc::getsockopt(
                port.rx_fd(0).unwrap().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_BUSY_POLL,
                value,
                &mut size,
            )
        };
        assert_eq!((status, microseconds), (0, 0));
    });
}

#[test]
fn af_packet_takes_jumbo_frames() {
    in_namespace(|| {
        ip("link set mmb0 mtu 9000");
        ip("link set peer0 mtu 9000");
        let pool = Mempool::create("jumbo", 2048, 9216, 0).unwrap();
        let mut port = open(packet(), &pool).unwrap();
        let (mut rx, mut tx) = queues(&mut port);
        assert_eq!((port.mtu(), tx.max_frame()), (9000, 9022));
        let peer = Raw::new("peer0");
        for len in [9014, 60, 8000, 9014] {
            peer.send(&frame(len, 1));
            assert_eq!(receive(&mut rx, 1), [frame(len, 1)]);
            send(&mut tx, &pool, &[frame(len, 2)]);
            assert_eq!(peer.receive(), Some(frame(len, 2)));
        }
        let short = Mempool::create("short", 2048, 2048, 0).unwrap();
        let mut burst = Burst::new();
        burst.push(short.alloc_from(&frame(9014, 3)).unwrap()).unwrap();
        assert_eq!(tx.send_all(&mut burst).sent, 1, "in five segments");
        assert_eq!(peer.receive(), Some(frame(9014, 3)));
        ip("link set mmb0 mtu 1500");
        assert_eq!((port.mtu(), tx.max_frame()), (1500, 1522));
    });
}

#[test]
fn an_interface_that_goes_down_or_away_is_survived() {
    in_namespace(|| {
        let pool = pool();
        for device in [packet(), xdp()] {
            let mut port = open(device, &pool).unwrap();
            let (mut rx, mut tx) = queues(&mut port);
            ip("link set mmb0 down");
            assert!(!port.is_link_up());
            let mut burst = Burst::new();
            burst.push(pool.alloc_from(&frame(60, 1)).unwrap()).unwrap();
            tx.send_all(&mut burst);
            rx.clear_errors();
            assert!(!readable(rx.rx_fd().unwrap(), 0), "no error stays to keep a worker awake");
            ip("link set mmb0 up");
            std::thread::sleep(Duration::from_millis(100));
            rx.clear_errors();
            let peer = Raw::new("peer0");
            peer.send(&frame(60, 2));
            assert_eq!(receive(&mut rx, 1), [frame(60, 2)], "it works again");
        }
        let devices = [packet(), xdp()];
        for device in devices {
            let mut port = open(device, &pool).unwrap();
            let (mut rx, mut tx) = queues(&mut port);
            ip("link del mmb0");
            let mut burst = Burst::new();
            burst.push(pool.alloc_from(&frame(60, 1)).unwrap()).unwrap();
            tx.send_all(&mut burst);
            rx.clear_errors();
            assert!(port.net_dev().is_none() && receive_within(&mut rx, 1, 50).is_empty());
            drop((port, rx, tx));
            ip("link add mmb0 type veth peer name peer0");
            ip("link set mmb0 up");
        }
    });
}

#[test]
fn memif_connects_two_ports() {
    in_namespace(|| {
        let pool = pool();
        let socket = std::env::temp_dir().join(format!("mmb-memif-{}", std::process::id()));
        let path = socket.to_str().unwrap().to_owned();
        let mut server = open(Device::Memif { socket: path.clone(), client: false }, &pool).unwrap();
        let mut client = open(Device::Memif { socket: path, client: true }, &pool).unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        while !(server.is_link_up() && client.is_link_up()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(server.is_link_up() && client.is_link_up());
        let ((mut server_rx, mut server_tx), (mut client_rx, mut client_tx)) =
            (queues(&mut server), queues(&mut client));
        let frames: Vec<_> = (0..100).map(|number| frame(60 + number as usize, number)).collect();
        send(&mut client_tx, &pool, &frames);
        assert_eq!(receive(&mut server_rx, frames.len()), frames);
        // The client offers buffers to the server when it polls.
        assert!(receive_within(&mut client_rx, 1, 20).is_empty());
        send(&mut server_tx, &pool, &frames);
        assert_eq!(receive(&mut client_rx, frames.len()), frames);
        drop((server, client, server_rx, server_tx, client_rx, client_tx));
        assert_eq!(pool.in_use(), 0);
        assert!(!socket.exists(), "the socket goes with the server");
    });
}

/// The file by which the child of the next test reports that its port is open.
const CHILD: &str = "MMB_TEST_OPEN_AND_WAIT";

#[test]
fn a_killed_process_leaves_usable_interfaces() {
    if std::env::var_os(CHILD).is_some() {
        let _alone = common::alone();
        let pool = pool();
        let device = if std::env::var(CHILD).unwrap() == "xdp" { xdp() } else { packet() };
        let port = open(device, &pool).unwrap();
        port.steer(Some(&Steering { mac: port.info().mac, local: Vec::new() })).unwrap();
        println!("open");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    in_namespace(|| {
        let (pool, peer) = (pool(), Raw::new("peer0"));
        for (kind, device) in [("xdp", xdp()), ("packet", packet())] {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "a_killed_process_leaves_usable_interfaces", "--nocapture"])
                .env(CHILD, kind)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap()));
            assert!(lines.any(|line| line.unwrap().ends_with("open")));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(!NetDev::lookup("mmb0").unwrap().unwrap().promiscuous && !link("mmb0").contains("xdp"));
            let raw = Raw::new("mmb0");
            peer.send(&frame(60, 1));
            assert_eq!(raw.receive(), Some(frame(60, 1)), "the kernel has its interface back");
            drop(raw);
            let mut port = open(device, &pool).unwrap();
            let (mut rx, _tx) = queues(&mut port);
            peer.send(&frame(60, 2));
            assert_eq!(receive(&mut rx, 1), [frame(60, 2)], "and it can be opened again");
        }
    });
}
