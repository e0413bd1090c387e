//! One test for each rule of the program and of its tables.

use std::os::fd::FromRawFd;
use std::sync::atomic::AtomicBool;

use super::super::super::fast_flow::FastNumbers;
use super::*;

#[test]
fn unusual_packets_go_to_the_socket() {
    let Some(rig) = rig() else { return };
    let mut slot = 0;
    let mut check = |packet: &Sent, action: &FastAction, what: &str, unusual: &dyn Fn(&mut Vec<u8>)| {
        slot += 1;
        let key = rig.key(packet.proto, packet.ends[0], packet.ends[1]);
        rig.path.install(slot, NOW, &key, action).unwrap();
        let mut frame = packet.build();
        assert!(rig.send(&frame).is_some(), "{what}: without it");
        unusual(&mut frame);
        if frame[12..14] == [8, 0] && what != "a wrong header checksum" {
            frame[24..26].fill(0);
            let sum = !checksum::fold(checksum::sum(&frame[14..34], 0));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        assert_eq!(rig.send(&frame), None, "{what}");
        assert_eq!(rig.path.flow_stats(slot).packets, 1, "{what}");
        rig.path.remove(&key, slot);
    };
    let (wire, tcp, udp, icmp) = (rig.wire(), packet(6), packet(17), packet(1));
    let (tcp6, udp6, icmp6) = (packet6(6), packet6(17), packet6(58));
    check(&tcp, &wire, "a tag", &|frame| drop(frame.splice(12..12, [0x81, 0, 0, 5])));
    check(&tcp, &wire, "an ethertype", &|frame| frame[13] = 6);
    check(&tcp, &wire, "a version", &|frame| frame[14] = 0x55);
    check(&tcp, &wire, "options", &|frame| frame[14] = 0x46);
    check(&tcp, &wire, "a first fragment", &|frame| frame[20] = 0x20);
    check(&tcp, &wire, "a later fragment", &|frame| frame[21] = 1);
    check(&tcp, &wire, "the reserved bit", &|frame| frame[20] |= 0x80);
    check(&tcp, &wire, "a wrong header checksum", &|frame| frame[24] ^= 1);
    check(&tcp, &wire, "less than a header", &|frame| frame[17] = 19);
    check(&tcp, &wire, "more than the frame", &|frame| frame[16] = 1);
    check(&tcp, &wire, "another protocol", &|frame| frame[23] = 132);
    for (name, flag) in [("FIN", 1), ("SYN", 2), ("RST", 4)] {
        check(&tcp, &wire, name, &|frame| frame[47] |= flag);
        check(&tcp6, &wire, name, &|frame| frame[67] |= flag);
    }
    check(&tcp, &wire, "no ACK", &|frame| frame[47] &= !0x10);
    check(&tcp, &wire, "a short TCP header", &|frame| frame[46] = 0x40);
    check(&tcp, &wire, "a long TCP header", &|frame| frame[46] = 0xf0);
    check(&udp, &wire, "a short UDP length", &|frame| frame[39] -= 1);
    check(&udp6, &wire, "a long UDP length", &|frame| frame[59] += 1);
    check(&udp6, &wire, "no checksum over IPv6", &|frame| frame[60..62].fill(0));
    check(&icmp, &wire, "an error", &|frame| frame[34] = 3);
    check(&icmp, &wire, "a code", &|frame| frame[35] = 1);
    check(&icmp6, &wire, "a neighbour's message", &|frame| frame[54] = 135);
    check(&icmp6, &wire, "ICMP over IPv6", &|frame| frame[20] = 1);
    check(&tcp6, &wire, "an extension header", &|frame| frame[20] = 60);
    check(&tcp6, &wire, "a jumbogram", &|frame| frame[18..20].fill(0));
    check(&tcp6, &wire, "cut", &|frame| frame.truncate(70));
    let route = FastAction { decrement_ttl: true, ..wire };
    check(&tcp, &route, "TTL 1", &|frame| frame[22] = 1);
    check(&tcp6, &route, "hop limit 0", &|frame| frame[21] = 0);
    let small = FastAction { max_len: (tcp.build().len() - 14) as u16, ..wire };
    check(&tcp, &small, "a byte too many", &|frame| frame.push(0));
    check(&tcp, &wire, "another flow", &|frame| frame[35] ^= 1);
    // Extension headers that contain bytes like those of the flow.
    let hidden = Ip6::new([0; 16], [0; 16]).with([Extension::Plain { number: 0, body: vec![] }]);
    assert_eq!(rig.send(&Frame::new(hidden, Tcp::new(1, 2)).build()), None);
}

/// A UDP checksum of 0 is sent as 0xffff, since 0 means no checksum.
#[test]
fn a_checksum_of_zero() {
    let Some(rig) = rig() else { return };
    for sent in [packet(17), packet6(17)] {
        let check = if sent.ends[0].0.is_ipv4() { 40 } else { 60 };
        let after = (0..=u16::MAX).find_map(|port| {
            let [(source, _), destination] = sent.ends;
            let after = Sent { ends: [(source, port), destination], ..sent.clone() };
            let frame = after.build();
            (frame[check..check + 2] == [0xff; 2]).then_some((after, frame))
        });
        let (after, expected) = after.unwrap();
        let action =
            FastAction { translation: rig.nat(after.ends[0], after.ends[1]).translation, ..rig.wire() };
        rig.path.install(1, NOW, &rig.key(17, sent.ends[0], sent.ends[1]), &action).unwrap();
        assert_eq!(rig.send(&sent.build()), Some(expected));
    }
}

/// A correct checksum that looks like a partial one.
#[test]
fn a_right_checksum_that_looks_unfinished() {
    let Some(rig) = rig() else { return };
    for sent in [packet(6), packet(17), packet6(6), packet6(17)] {
        let mut sent = Sent { partial: true, payload: vec![0; 30], ..sent };
        let l4 = if sent.ends[0].0.is_ipv4() { 34 } else { 54 };
        let check = l4 + if sent.proto == 6 { 16 } else { 6 };
        // The field is the sum of the pseudo header; a receiver adds everything from the transport header on.
        let unfinished = sent.build();
        let pseudo = u16::from_be_bytes([unfinished[check], unfinished[check + 1]]);
        let all = checksum::fold(checksum::sum(&unfinished[l4..], u32::from(pseudo)));
        sent.payload[..2].copy_from_slice(&(!all).to_be_bytes());
        let frame = sent.build();
        assert_eq!(
            frame,
            Sent { partial: false, ..sent.clone() }.build(),
            "correct, and equal to the pseudo header's sum"
        );
        rig.path.install(1, NOW, &rig.key(sent.proto, sent.ends[0], sent.ends[1]), &rig.wire()).unwrap();
        assert_eq!(rig.send(&frame), Some(frame));
    }
}

#[test]
fn revoked_entries_do_not_apply() {
    let Some(rig) = rig() else { return };
    let (sent, path) = (packet(17), &rig.path);
    let (frame, key) = (sent.build(), rig.key(17, sent.ends[0], sent.ends[1]));
    let hits = || rig.send(&frame).is_some();
    assert!(!hits());
    path.install(1, NOW, &key, &rig.wire()).unwrap();
    assert!(hits() && hits());
    assert_eq!((path.flow_stats(1).packets, path.flow_stats(1).bytes), (2, 2 * frame.len() as u64));
    for other in [0, NOW + 1, NOW - 1, u64::MAX] {
        path.set_generation(other, FastGranularity::Flow);
        assert!(!hits(), "{other}");
    }
    path.set_generation(NOW, FastGranularity::Flow);
    assert!(hits());
    path.revoke(1);
    assert!(!hits());
    assert_eq!(path.flow_stats(1).packets, 3, "the counters stay readable");
    path.install(1, NOW, &key, &rig.wire()).unwrap();
    assert_eq!(path.flow_stats(1), FastFlowStats::default());
    assert!(hits());
    // The slot gets another flow while the old key still leads to it; then only the new key does.
    let other = FastKey { source_port: 7, ..key };
    path.install(1, NOW, &other, &rig.nat(([1, 1, 1, 1].into(), 1), ([2, 2, 2, 2].into(), 2))).unwrap();
    assert!(!hits());
    path.remove(&key, 1);
    assert!(!hits());
    let mut moved = sent.clone();
    moved.ends[0].1 = 7;
    assert!(rig.send(&moved.build()).is_some());
    // The flow gets another slot; removing other pairs of key and slot has no effect.
    path.install(2, NOW, &key, &rig.wire()).unwrap();
    path.remove(&key, 1);
    path.remove(&other, 2);
    assert!(hits());
    path.remove(&key, 2);
    path.remove(&key, 2);
    assert!(!hits());
    assert_eq!(path.flow_stats(2).packets, 1);
    // It has two slots and is counted in either of them; then only in the one that is not revoked.
    path.install(2, NOW, &key, &rig.wire()).unwrap();
    path.install(3, NOW, &key, &rig.wire()).unwrap();
    assert!(hits());
    assert_eq!(path.flow_stats(2).packets + path.flow_stats(3).packets, 1);
    for (gone, left) in [(2, 3), (3, 2)] {
        path.install(left, NOW, &key, &rig.wire()).unwrap();
        path.revoke(gone);
        assert!(hits());
        assert_eq!(path.flow_stats(left).packets, 1);
    }
    path.remove(&key, 2);
    path.remove(&key, 3);
    assert!(!hits());
    // From another port, it is a different flow.
    path.install(3, NOW, &FastKey { port: rig.out.port, ..key }, &rig.wire()).unwrap();
    assert!(!hits());
}

/// If a slot's key differs in any bit from the packet's, its action is not applied although the index leads
/// there.
#[test]
fn a_slot_is_for_its_whole_key() {
    let Some(rig) = rig() else { return };
    let flows = [packet(6), packet6(6)].map(|sent| (rig.key(6, sent.ends[0], sent.ends[1]), sent));
    for (key, sent) in flows.clone().into_iter().chain(flows.map(|(key, sent)| (key.without_ports(), sent))) {
        rig.path.set_generation(NOW, key.granularity);
        let (raw, words) = (format::key(&key).unwrap(), format::action(&key, &rig.wire()).unwrap());
        let (stamp, frame) = (stamp(NOW, key.granularity).unwrap(), sent.build());
        assert!(rig.path.index.insert(&raw, 1));
        let slot = rig.path.slot(1).unwrap();
        for bit in 0..32 * raw.len() {
            let mut other = raw;
            other[bit / 32] ^= 1 << (bit % 32);
            slot.write(stamp, &other, &words);
            assert_eq!(rig.send(&frame), None, "{bit}");
        }
        slot.write(stamp, &raw, &words);
        assert!(rig.send(&frame).is_some());
    }
}

#[test]
fn invalid_entries_are_refused() {
    let Some(rig) = rig() else { return };
    let [v4, v6] = [packet(6), packet6(6)].map(|sent| rig.key(6, sent.ends[0], sent.ends[1]));
    let install = |slot, generation, key: &FastKey, action: &FastAction| {
        rig.path.install(slot, generation, key, action)
    };
    let bad = Err(libc::EINVAL);
    for slot in [0, FAST_SLOTS, u32::MAX] {
        assert_eq!(install(slot, NOW, &v4, &rig.wire()), bad);
        rig.path.revoke(slot);
        assert_eq!(rig.path.flow_stats(slot), FastFlowStats::default());
    }
    assert_eq!(install(1, 0, &v4, &rig.wire()), bad);
    for key in [
        FastKey { source: v6.source, ..v4 },
        FastKey { proto: 132, ..v4 },
        FastKey { proto: 58, ..v4 },
        FastKey { proto: 1, ..v6 },
    ] {
        assert_eq!(install(1, NOW, &key, &rig.wire()), bad, "{key:?}");
        rig.path.remove(&key, 1);
    }
    assert_eq!(install(1, NOW, &v4, &rig.nat((v6.source, 1), (v6.destination, 2))), bad);
    assert_eq!(install(1, NOW, &v4, &rig.nat((v6.source, 1), (v4.destination, 2))), bad);
    // An unknown egress port: packets go to the socket unchanged.
    let sent = packet(6);
    install(1, NOW, &v4, &FastAction { out: FastPort(u32::MAX), ..rig.nat(sent.ends[1], sent.ends[0]) })
        .unwrap();
    assert_eq!(rig.send(&sent.build()), None);
    assert_eq!(rig.path.flow_stats(1).packets, 0);
    // Contradictory options, and invalid generations.
    assert_eq!(install(1, NOW, &v4, &FastAction { track_tcp: true, pass_control: true, ..rig.wire() }), bad);
    assert_eq!(install(1, NOW, &v4, &FastAction { pass_fin: true, ..rig.wire() }), bad);
    let numbers = Some(FastNumbers { sequence: 1, ..FastNumbers::default() });
    let action = FastAction { track_tcp: true, pass_fin: true, numbers, ..rig.wire() };
    assert_eq!(install(1, NOW, &v4, &action), bad);
    assert_eq!(install(1, NOW, &v4, &FastAction { awaited_ack: Some(1), ..rig.wire() }), bad);
    for generation in [1 << 62, 1 << 63, u64::MAX] {
        assert_eq!(install(1, generation, &v4, &rig.wire()), bad);
        rig.path.set_generation(generation, FastGranularity::Flow);
        install(1, NOW, &v4, &rig.wire()).unwrap();
        assert_eq!(rig.send(&sent.build()), None);
    }
    for pair in [v4.without_ports(), v6.without_ports()] {
        install(1, NOW, &pair, &FastAction { pass_control: true, ..rig.wire() }).unwrap();
        assert_eq!(install(1, NOW, &pair, &FastAction { track_tcp: true, ..rig.wire() }), bad);
        assert_eq!(install(1, NOW, &pair, &rig.nat((pair.source, 0), (pair.destination, 0))), bad);
        assert_eq!(install(1, NOW, &FastKey { source_port: 1, ..pair }, &rig.wire()), bad);
        assert_eq!(install(1, NOW, &FastKey { destination_port: 1, ..pair }, &rig.wire()), bad);
        assert_eq!(install(1, NOW, &FastKey { proto: 0, ..pair }, &rig.wire()), bad);
    }
    let port = v4.port;
    for to in [v4.destination, v6.destination] {
        let key = FastKey::for_destination(port, to);
        install(1, NOW, &key, &rig.wire()).unwrap();
        assert_eq!(install(1, NOW, &key, &FastAction { track_tcp: true, ..rig.wire() }), bad);
        assert_eq!(install(1, NOW, &key, &rig.nat((to, 1), (to, 2))), bad);
        assert_eq!(install(1, NOW, &FastKey { source_port: 1, ..key }, &rig.wire()), bad);
        assert_eq!(install(1, NOW, &FastKey { source: to, ..key }, &rig.wire()), bad);
    }
}

#[test]
fn tcp_state_is_tracked() {
    let Some(rig) = rig() else { return };
    let ([source, destination], slot) = (packet(6).ends, 1);
    let ends = [source, destination].map(|(address, _)| match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => unreachable!(),
    });
    let key = rig.key(6, source, destination);
    let send = |ack: u32| {
        let tcp = Tcp { ack, options: vec![1; 12], ..Tcp::new(source.1, destination.1) };
        let frame = Frame::new(Ip4::new(ends[0], ends[1]), tcp).payload(vec![0; 9]).pad_to(90).build();
        assert!(rig.send(&frame).is_some());
        rig.path.flow_stats(slot).ack
    };
    rig.path.install(slot, NOW, &key, &rig.wire()).unwrap();
    assert_eq!(send(6), None, "tracking is off");
    rig.path.install(slot, NOW, &key, &FastAction { track_tcp: true, ..rig.wire() }).unwrap();
    assert_eq!(rig.path.flow_stats(slot).ack, None);
    // The first segment counts; then numbers that are higher, or far lower, across the wrap.
    assert_eq!(send(0xffff_ff00), Some(0xffff_ff00));
    assert_eq!(send(0xffff_ff00), Some(0xffff_ff00));
    assert_eq!(send(0xffff_fe00), Some(0xffff_ff00));
    assert_eq!(send(0x10), Some(0x10));
    assert_eq!(send(0xffff_ff00), Some(0x10));
    assert_eq!(send(0x4000_0000), Some(0x4000_0000), "forged");
    assert_eq!(send(0x20), Some(0x20));
    let before = rig.path.flow_stats(slot);
    assert_eq!(before.packets, 7);
    // The time of the last packet, on the same clock.
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    assert!(before.last <= now && now - before.last < 1_000_000_000, "{before:?}, {now}");
}

/// Before the awaited acknowledgement, segments go to the socket.
#[test]
fn the_awaited_acknowledgement_comes_first() {
    let Some(rig) = rig() else { return };
    let action = FastAction { track_tcp: true, awaited_ack: Some(0x0102_0304), ..rig.wire() };
    for sent in [packet(6), packet6(6)] {
        let [source, destination] = sent.ends;
        let key = rig.key(6, source, destination);
        let passes = |ack: u32, flags: u8| {
            let tcp = Tcp { ack, flags, ..Tcp::new(source.1, destination.1) };
            let net: Net = match (source.0, destination.0) {
                (IpAddr::V4(from), IpAddr::V4(to)) => Ip4::new(from, to).into(),
                (IpAddr::V6(from), IpAddr::V6(to)) => Ip6::new(from, to).into(),
                _ => unreachable!(),
            };
            rig.send(&Frame::new(net, tcp).pad_to(60).build()).is_some()
        };
        for (slot, first) in [(1, 0x10), (2, 0x18)] {
            rig.path.install(slot, NOW, &key, &action).unwrap();
            for ack in [0, 0x0102_0303, 0x0102_0305, 0x0403_0201, u32::MAX] {
                assert!(!passes(ack, 0x10) && !passes(ack, 0x18), "{ack:x}");
            }
            assert!(!passes(0x0102_0304, 0x02) && !passes(0x0102_0304, 0x12) && !passes(0x0102_0304, 0x14));
            assert_eq!(rig.path.flow_stats(slot), FastFlowStats::default());
            assert!(passes(0x0102_0304, first));
            assert!(passes(0x0102_0999, 0x10) && passes(7, 0x18) && passes(8, 0x10));
            assert_eq!(rig.path.flow_stats(slot).packets, 4);
            rig.path.revoke(slot);
            rig.path.remove(&key, slot);
        }
    }
}

/// While a slot alternates between two flows, no packet gets the other flow's action. The first action keeps
/// the frame in its flow, so that the kernel can run the program on it repeatedly. The second one would
/// change its addresses for good, so that a single wrong rewrite shows in the result.
#[test]
fn writing_while_the_program_runs() {
    let Some(rig) = rig() else { return };
    let one = packet(6);
    let frame = one.build();
    let after = Sent { macs: [[0x11; 6]; 2], ..one.clone() }.build();
    let (address, port) = (IpAddr::from([0x22; 4]), 0x2222);
    let flows = [
        (
            one.ends[0].1,
            FastAction { macs: Some(FastMacs { destination: [0x11; 6], source: [0x11; 6] }), ..rig.wire() },
        ),
        (7, rig.nat((address, port), (address, port))),
    ]
    .map(|(port, action)| (rig.key(6, (one.ends[0].0, port), one.ends[1]), action));
    let (mut hits, mut misses, done) = (0, 0, AtomicBool::new(false));
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0u32.. {
                for (key, action) in &flows {
                    rig.path.install(1, NOW, key, action).unwrap();
                    // The prescribed order, sometimes; nothing fails without it.
                    if round % 4 == 0 {
                        rig.path.revoke(1);
                        rig.path.remove(key, 1);
                    }
                }
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        // On a busy machine, the two threads alternate slowly.
        while start.elapsed().as_millis() < 500 || (hits.min(misses) < 20 && start.elapsed().as_secs() < 30) {
            let (verdict, got, _) = run_on(&rig.port, &frame, 1000);
            if got != frame && got != after {
                done.store(true, Ordering::Relaxed);
                panic!("{got:x?}");
            }
            if verdict == sys::XDP_REDIRECT { hits += 1 } else { misses += 1 }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(hits >= 20 && misses >= 20, "{hits}, {misses}");
}

#[test]
fn port_numbers_are_not_reused() {
    let Some(mut rig) = rig() else { return };
    let sent = packet(17);
    let (frame, key) = (sent.build(), rig.key(17, sent.ends[0], sent.ends[1]));
    rig.path.install(1, NOW, &key, &rig.wire()).unwrap();
    assert!(rig.send(&frame).is_some());
    let old = rig.out.port;
    // The old membership ends after the new one has begun.
    rig.out = Member::join(index("peer0")).unwrap();
    assert_eq!(rig.send(&frame), None);
    assert!(rig.out.port > old);
    // The number of members is limited.
    let members: Vec<_> =
        (0..sys::STEER_FAST_PORTS).map_while(|_| Member::join(index("peer0")).ok()).collect();
    assert_eq!(members.len() as u32, sys::STEER_FAST_PORTS - 2);
    assert_eq!(
        Member::join(index("peer0")).err(),
        Some(XdpError { step: "join the fast path", errno: libc::E2BIG })
    );
    // A port beyond the limit works without the fast path.
    let socket = unbound_socket();
    let without = XdpProgram::attach(index("peer0"), socket.as_raw_fd()).unwrap();
    without.engage();
    assert!(!without.is_generic());
    assert_eq!(
        without.fast().unwrap().err(),
        Some(XdpError { step: "join the fast path", errno: libc::E2BIG })
    );
    assert_eq!(run_on(&without, &frame, 1).0, sys::XDP_REDIRECT, "its socket gets every frame");
    drop((without, members));
    assert!(Member::join(index("peer0")).is_ok());
    assert_eq!(Member::join(9999).err(), Some(XdpError { step: "join the fast path", errno: libc::EINVAL }));
}

/// The kernel's ids of the maps.
fn map_ids(path: &FastPath) -> Vec<u32> {
    let id = |fd| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        info.lines().find_map(|line| line.strip_prefix("map_id:")).unwrap().trim().parse().unwrap()
    };
    path.maps().map(|(_, fd)| id(fd)).to_vec()
}

fn map_exists(id: u32) -> bool {
    const BPF_MAP_GET_FD_BY_ID: libc::c_int = 14;
    let attributes = [id, 0, 0, 0];
    // SAFETY: live attributes of the given size; a returned descriptor is new and owned.
    unsafe {
        let size = size_of_val(&attributes);
        let fd = libc::syscall(libc::SYS_bpf, BPF_MAP_GET_FD_BY_ID, attributes.as_ptr(), size);
        if fd >= 0 {
            drop(OwnedFd::from_raw_fd(fd as RawFd));
        }
        fd >= 0
    }
}

#[test]
fn the_last_port_frees_the_maps() {
    let Some(rig) = rig() else { return };
    let ids = map_ids(&rig.path);
    assert!(ids.len() == 4 && ids.iter().all(|id| map_exists(*id)));
    let Rig { port, out, path, _alone } = rig;
    drop((port, out, path));
    // The kernel frees maps asynchronously.
    let end = Instant::now() + Duration::from_secs(10);
    while ids.iter().any(|id| map_exists(*id)) {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Without a heartbeat for a second, nothing is forwarded; with the next one, it is.
#[test]
fn entries_count_while_the_process_is_alive() {
    let Some(rig) = rig() else { return };
    let now = || {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a live structure.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    for sent in [packet(6), packet(17), packet6(6), packet6(17)] {
        let key = rig.key(sent.proto, sent.ends[0], sent.ends[1]);
        rig.path.install(1, NOW, &key, &rig.wire()).unwrap();
        let is_forwarded = |age: u64| {
            rig.path.beat(now() - age);
            rig.send(&sent.build()).is_some()
        };
        assert!(is_forwarded(0) && is_forwarded(500_000_000));
        let packets = rig.path.flow_stats(1).packets;
        assert!(!is_forwarded(1_100_000_000) && !is_forwarded(now() - 1));
        assert_eq!(rig.path.flow_stats(1).packets, packets);
        assert!(is_forwarded(0));
        rig.path.remove(&key, 1);
    }
}
