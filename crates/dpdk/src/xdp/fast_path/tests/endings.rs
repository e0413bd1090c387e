//! TCP control segments, and entries of destinations and of address pairs.

use super::tc::tc_rig;
use super::*;

fn segment(from: &Sent, flags: u8, seq: u32, ack: u32) -> Frame {
    let Sent { ends: [(source, sport), (destination, dport)], .. } = *from;
    let tcp = Tcp { flags, seq, ack, window: 9, ..Tcp::new(sport, dport) };
    let frame = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Frame::new(Ip4::new(source, destination), tcp),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Frame::new(Ip6::new(source, destination), tcp),
        _ => unreachable!(),
    };
    frame.pad_to(60)
}

/// Every combination of TCP flags, with every permission.
#[test]
fn segments_are_forwarded_as_the_action_permits() {
    let Some(rig) = rig() else { return };
    for sent in [packet(6), packet6(6)] {
        let key = rig.key(6, sent.ends[0], sent.ends[1]);
        for (pass_control, track_tcp) in [(false, false), (false, true), (true, false)] {
            let action = FastAction { pass_control, track_tcp, ..rig.wire() };
            for flags in 0..=u8::MAX {
                rig.path.install(1, NOW, &key, &action).unwrap();
                let frame = segment(&sent, flags, 100, 200).payload([1; 10]).build();
                let is_forwarded = super::is_forwarded(flags, &action);
                assert_eq!(rig.send(&frame), is_forwarded.then_some(frame), "{flags:#x} {action:?}");
                let stats = rig.path.flow_stats(1);
                let ended = if is_forwarded { flags & (FAST_FIN | FAST_RST) } else { 0 };
                assert_eq!(
                    (stats.ended, stats.packets),
                    (ended, u64::from(is_forwarded)),
                    "{flags:#x} {action:?}"
                );
                assert_eq!(stats.ack, (is_forwarded && track_tcp).then_some(200), "{flags:#x} {action:?}");
            }
        }
    }
}

/// With sessions, no FIN or RST is forwarded, whatever its numbers are: the engine compares them with the
/// session. What is forwarded without sessions stays recorded.
#[test]
fn the_end_of_a_connection_goes_to_the_socket_or_stays_recorded() {
    let Some(rig) = rig() else { return };
    let (sent, path) = (packet(6), &rig.path);
    let key = rig.key(6, sent.ends[0], sent.ends[1]);
    let send = |flags, seq| {
        let is_forwarded = rig.send(&segment(&sent, flags, seq, 5).build()).is_some();
        is_forwarded.then(|| path.flow_stats(1).ended)
    };
    path.install(1, NOW, &key, &FastAction { track_tcp: true, ..rig.wire() }).unwrap();
    for seq in [0, 1, 3_000_000_000, u32::MAX] {
        assert_eq!(
            (send(0x11, seq), send(0x19, seq), send(0x14, seq), send(0x04, seq)),
            (None, None, None, None)
        );
        assert_eq!(send(0x10, seq), Some(0));
    }
    path.install(1, NOW, &key, &FastAction { pass_control: true, ..rig.wire() }).unwrap();
    assert_eq!(path.flow_stats(1), FastFlowStats::default());
    assert_eq!(send(0x14, 0), Some(FAST_RST));
    assert_eq!(send(0x11, 0), Some(FAST_RST | FAST_FIN));
    assert_eq!(send(0x10, 0), Some(FAST_RST | FAST_FIN));
    path.install(1, NOW, &key, &rig.wire()).unwrap();
    assert_eq!(path.flow_stats(1), FastFlowStats::default());
}

/// With sessions, the programs may take over FINs: the first one that fits the acknowledgements, and its
/// retransmissions.
#[test]
fn the_first_fin_is_forwarded_and_recorded() {
    const IN_FLIGHT: u32 = sys::STEER_FAST_IN_FLIGHT;
    let Some(it) = tc_rig() else { return };
    let path = &it.rig.path;
    for (sent, is_tc) in [(packet(6), false), (packet6(6), false), (packet(6), true), (packet6(6), true)] {
        let key = it.rig.key(6, sent.ends[0], sent.ends[1]);
        let send = |flags, seq, ack| {
            let frame = segment(&sent, flags, seq, ack).payload([1; 10]).build();
            if is_tc { it.send(&frame, (0, 0)) } else { it.rig.send(&frame) }.is_some()
        };
        let fin = || {
            let stats = path.flow_stats(1);
            (stats.ended & FAST_FIN != 0).then_some(stats.fin_end)
        };
        let action = FastAction { track_tcp: true, pass_fin: true, ..it.rig.wire() };
        path.install(1, NOW, &key, &action).unwrap();
        assert!(!send(0x11, 100, 5), "nothing is known of the acknowledgements");
        assert!(send(0x10, 100, 5));
        for ack in [5 + IN_FLIGHT + 1, 5_u32.wrapping_sub(IN_FLIGHT + 1), 3_000_000_000] {
            assert!(!send(0x11, 110, ack), "acknowledges {ack}");
        }
        for flags in [0x01, 0x13, 0x15, 0x14, 0x02] {
            assert!(!send(flags, 110, 5), "flags {flags:#x}");
        }
        assert_eq!(fin(), None);
        assert!(send(0x11, 110, 5 + IN_FLIGHT));
        assert_eq!(fin(), Some(121));
        assert!(send(0x19, 110, 5), "a retransmission");
        assert!(!send(0x11, 111, 5) && !send(0x11, 3_000_000_000, 5), "other FINs");
        assert!(send(0x10, 121, 6), "what follows");
        assert_eq!((fin(), path.flow_stats(1).packets), (Some(121), 4));
        // Another flow in the slot. Numbers wrap.
        path.install(1, NOW, &key, &action).unwrap();
        assert_eq!(path.flow_stats(1), FastFlowStats::default());
        assert!(send(0x10, u32::MAX, u32::MAX) && send(0x11, u32::MAX - 5, 3));
        assert_eq!(fin(), Some(5));
        path.remove(&key, 1);
    }
}

/// Every packet to a destination is forwarded as by a router; keys of another granularity do not match.
#[test]
fn entries_of_destinations() {
    let Some(rig) = rig() else { return };
    let result = runner(3000).run(&(sent(), any::<[bool; 2]>()), |((sent, [other, _]), [hop, flow])| {
        let port = rig.port.fast().unwrap().unwrap().port;
        let destination = sent.ends[1].0;
        let key = FastKey::for_destination(port, destination);
        let macs = Some(FastMacs { destination: [1; 6], source: [2; 6] });
        let action = FastAction { macs, decrement_ttl: hop, ..rig.wire() };
        let granularity = FastGranularity::Destination;
        rig.path.set_generation(NOW, granularity);
        rig.path.install(1, NOW, &key, &action).unwrap();
        let (before, frames) = (sent.build(), rig.path.flow_stats(1).packets);
        let after =
            Sent { macs: [[2; 6], [1; 6]], ttl: sent.ttl - u8::from(hop), partial: false, ..sent.clone() };
        let dies = hop && sent.ttl == 1;
        let is_forwarded = !is_martian(sent.ends[0].0, sent.ends[1].0) && !dies && before.len() <= 1514;
        prop_assert_eq!(rig.send(&before), is_forwarded.then(|| after.build()));
        prop_assert_eq!(rig.path.flow_stats(1).packets, frames + u64::from(is_forwarded));
        // Another destination, port, generation or granularity does not match.
        let elsewhere =
            FastKey::for_destination(port, if other.0 == destination { sent.ends[0].0 } else { other.0 });
        for wrong in [elsewhere, FastKey::for_destination(rig.out.port, destination)] {
            if wrong != key {
                rig.path.remove(&key, 1);
                rig.path.install(1, NOW, &wrong, &action).unwrap();
                prop_assert_eq!(rig.send(&before), None);
                rig.path.remove(&wrong, 1);
            }
        }
        rig.path.install(1, NOW, &key, &action).unwrap();
        for (generation, granularity) in
            [(NOW, FastGranularity::Flow), (NOW + 1, granularity), (0, granularity)]
        {
            rig.path.set_generation(generation, granularity);
            prop_assert_eq!(rig.send(&before), None);
        }
        rig.path.remove(&key, 1);
        let key = rig.key(sent.proto, sent.ends[0], sent.ends[1]);
        rig.path.install(1, NOW, &key, &action).unwrap();
        rig.path.set_generation(NOW, if flow { FastGranularity::Flow } else { granularity });
        let is_forwarded = flow && !dies && before.len() <= 1514;
        prop_assert_eq!(rig.send(&before).is_some(), is_forwarded);
        rig.path.remove(&key, 1);
        Ok(())
    });
    result.unwrap();
}

/// Packets of a pair match whatever their ports are; the entry of a flow applies if the pair has none.
#[test]
fn entries_of_pairs() {
    let Some(rig) = rig() else { return };
    let cases = (sent(), any::<[u16; 2]>(), any::<[bool; 2]>());
    let result = runner(3000).run(&cases, |((sent, [other, _]), ports, [hop, flow])| {
        let flow_key = rig.key(sent.proto, sent.ends[0], sent.ends[1]);
        let key = flow_key.without_ports();
        let macs = Some(FastMacs { destination: [1; 6], source: [2; 6] });
        let action = FastAction { macs, decrement_ttl: hop, ..rig.wire() };
        let other_action =
            FastAction { macs: Some(FastMacs { destination: [3; 6], source: [4; 6] }), ..action };
        let moved = |macs| {
            let [mut source, mut destination] = sent.ends;
            source.1 = ports[0];
            // For echoes, this field is the type.
            destination.1 = if matches!(sent.proto, 6 | 17) { ports[1] } else { destination.1 };
            Sent { ends: [source, destination], macs, partial: false, ttl: sent.ttl, ..sent.clone() }
        };
        let is_forwarded = !(hop && sent.ttl == 1) && sent.build().len() <= 1514;
        let after = |sent: Sent| is_forwarded.then(|| Sent { ttl: sent.ttl - u8::from(hop), ..sent }.build());
        rig.path.set_generation(NOW, FastGranularity::Pair);
        rig.path.install(1, NOW, &key, &action).unwrap();
        if flow {
            rig.path.install(2, NOW, &flow_key, &other_action).unwrap();
        }
        let pair = [[2; 6], [1; 6]];
        prop_assert_eq!(rig.send(&sent.build()), after(Sent { macs: pair, partial: false, ..sent.clone() }));
        prop_assert_eq!(rig.send(&moved(sent.macs).build()), after(moved(pair)));
        let both = 2 * u64::from(is_forwarded);
        prop_assert_eq!(rig.path.flow_stats(1).packets, both);
        // Another address, protocol, port or granularity does not match; the flow's own entry does.
        rig.path.remove(&key, 1);
        let wrong = [
            FastKey { source: other.0, ..key },
            FastKey { destination: other.0, ..key },
            FastKey { port: rig.out.port, ..key },
            FastKey { proto: if key.proto == 6 { 17 } else { 6 }, ..key },
            FastKey { granularity: FastGranularity::Flow, ..key },
        ];
        for wrong in wrong.into_iter().filter(|wrong| *wrong != key && *wrong != flow_key) {
            rig.path.install(1, NOW, &wrong, &action).unwrap();
            let own = after(Sent { macs: [[4; 6], [3; 6]], partial: false, ..sent.clone() }).filter(|_| flow);
            prop_assert_eq!(rig.send(&sent.build()), own);
            rig.path.remove(&wrong, 1);
        }
        rig.path.remove(&flow_key, 2);
        rig.path.install(1, NOW, &key, &action).unwrap();
        for (generation, granularity) in [
            (NOW, FastGranularity::Flow),
            (NOW, FastGranularity::Destination),
            (NOW + 1, FastGranularity::Pair),
            (0, FastGranularity::Pair),
        ] {
            rig.path.set_generation(generation, granularity);
            prop_assert_eq!(rig.send(&sent.build()), None);
        }
        rig.path.remove(&key, 1);
        Ok(())
    });
    result.unwrap();
}

/// Sources that must not be forwarded, and valid ones next to them.
#[test]
fn martian_sources_go_to_the_socket() {
    let Some(rig) = rig() else { return };
    rig.path.set_generation(NOW, FastGranularity::Destination);
    let port = rig.port.fast().unwrap().unwrap().port;
    let cases = [
        ("0.0.0.0", false),
        ("0.255.255.255", false),
        ("1.0.0.0", true),
        ("126.255.255.255", true),
        ("127.0.0.0", false),
        ("127.255.255.255", false),
        ("128.0.0.0", true),
        ("169.254.0.1", true),
        ("223.255.255.255", true),
        ("224.0.0.0", false),
        ("255.255.255.255", false),
        ("::", false),
        ("::1", false),
        ("::2", true),
        ("::1:0:0", true),
        ("::fffe:ffff:ffff", true),
        ("::ffff:0:0", false),
        ("::ffff:192.0.2.1", false),
        ("::1:0:0:0", true),
        ("0:1::ffff:0:0", true),
        ("0:0:1::", true),
        ("1::", true),
        ("fe7f:ffff::", true),
        ("fe80::", false),
        ("febf:ffff::1", false),
        ("fec0::", true),
        ("feff::", true),
        ("ff00::", false),
        ("ffff::", false),
    ];
    let cases = cases.map(|(source, is_forwarded)| (source.parse().unwrap(), is_forwarded));
    // Destinations as sources.
    let same = [packet(17), packet6(17)].map(|sent| (sent.ends[1].0, false));
    for (source, is_forwarded) in cases.into_iter().chain(same) {
        let source: IpAddr = source;
        let mut sent = if source.is_ipv4() { packet(17) } else { packet6(17) };
        sent.ends[0].0 = source;
        assert_eq!(is_martian(source, sent.ends[1].0), !is_forwarded);
        rig.path.install(1, NOW, &FastKey::for_destination(port, sent.ends[1].0), &rig.wire()).unwrap();
        assert_eq!(rig.send(&sent.build()).is_some(), is_forwarded, "{source}");
    }
}

/// Control segments are recognised with keys of destinations and pairs, too.
#[test]
fn control_segments_of_destinations_and_pairs() {
    let Some(rig) = rig() else { return };
    let flows = [packet(6), packet6(6)].map(|sent| (rig.key(6, sent.ends[0], sent.ends[1]), sent));
    let keys = flows.each_ref().map(|(key, sent)| {
        [(key.without_ports(), sent), (FastKey::for_destination(key.port, key.destination), sent)]
    });
    for ((key, sent), pass_control) in keys.into_iter().flatten().flat_map(|key| [(key, false), (key, true)])
    {
        let action = FastAction { pass_control, ..rig.wire() };
        rig.path.set_generation(NOW, key.granularity);
        rig.path.install(1, NOW, &key, &action).unwrap();
        for flags in 0..=u8::MAX {
            let frame = segment(sent, flags, 1, 2).build();
            assert_eq!(rig.send(&frame).is_some(), is_forwarded(flags, &action), "{flags:#x}");
        }
    }
}
