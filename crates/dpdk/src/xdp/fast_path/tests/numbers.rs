//! Numbers of TCP segments.

use super::super::super::fast_flow::FastNumbers;
use super::*;

/// Options of a segment, and whether it is forwarded if something is added to its numbers.
fn options() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let stamps = any::<[u8; 8]>();
    let word = prop_oneof![Just(0x0101_080a_u32), Just(0x0101_050a), any::<u32>()];
    prop_oneof![
        Just((Vec::new(), true)),
        stamps.prop_map(|stamps| ([&[1, 1, 8, 10][..], &stamps].concat(), true)),
        // A block of a selective acknowledgement, alone and behind timestamps.
        any::<[u8; 8]>().prop_map(|block| ([&[1, 1, 5, 10][..], &block].concat(), false)),
        any::<[u8; 8]>()
            .prop_map(|block| ([&[1, 1, 8, 10][..], &block, &[1, 1, 5, 10], &block].concat(), false)),
        (word, 1usize..10).prop_map(|(word, words)| {
            let options = [&word.to_be_bytes()[..], &vec![1; (words - 1) * 4]].concat();
            let has_form = word == 0x0101_080a && words == 3;
            (options, has_form)
        }),
    ]
}

/// Numbers with something added, and a right checksum, next to all other changes.
#[test]
fn something_is_added_to_numbers() {
    let Some(rig) = rig() else { return };
    let add = || prop_oneof![Just(0), Just(u32::MAX), any::<u32>()];
    let cases = (sent(), options(), (add(), add(), any::<[u32; 2]>()), any::<[bool; 3]>());
    let forwarded = std::cell::Cell::new(0);
    let result =
        runner(4000).run(&cases, |((sent, ends), (options, is_plain), numbers, [partial, hop, has_nat])| {
            let (sequence, acknowledgment, [seq, ack]) = numbers;
            let key = rig.key(6, sent.ends[0], sent.ends[1]);
            let build = |ends: [End; 2], (seq, ack): (u32, u32), ttl: u8| {
                let [(source, sport), (destination, dport)] = ends;
                let options = options.clone();
                let tcp = Tcp { flags: 0x18, seq, ack, window: 9, options, ..Tcp::new(sport, dport) };
                let frame = match (source, destination) {
                    (IpAddr::V4(source), IpAddr::V4(to)) => {
                        Frame::new(Ip4 { ttl, ..Ip4::new(source, to) }, tcp)
                    }
                    (IpAddr::V6(source), IpAddr::V6(to)) => {
                        Frame::new(Ip6 { hop_limit: ttl, ..Ip6::new(source, to) }, tcp)
                    }
                    _ => unreachable!(),
                };
                frame.payload(sent.payload.clone()).pad_to(sent.pad)
            };
            let action = FastAction {
                track_tcp: true,
                decrement_ttl: hop,
                numbers: Some(FastNumbers { sequence, acknowledgment }),
                translation: rig.nat(ends[0], ends[1]).translation.filter(|_| has_nat),
                ..rig.wire()
            };
            rig.path.install(1, NOW, &key, &action).unwrap();
            let before = build(sent.ends, (seq, ack), 64);
            let before = if partial { before.partial_checksum() } else { before }.build();
            let after = (seq.wrapping_add(sequence), ack.wrapping_add(acknowledgment));
            let expected = build(if has_nat { ends } else { sent.ends }, after, 64 - u8::from(hop)).build();
            let is_forwarded = is_plain && before.len() <= 1514;
            prop_assert_eq!(rig.send(&before), is_forwarded.then_some(expected));
            prop_assert_eq!(rig.path.flow_stats(1).ack, is_forwarded.then_some(ack), "as received");
            forwarded.set(forwarded.get() + u32::from(is_forwarded));
            // Without something to add, options make no difference.
            rig.path.install(1, NOW, &key, &FastAction { numbers: None, ..action }).unwrap();
            prop_assert_eq!(rig.send(&before).is_some(), before.len() <= 1514);
            rig.path.remove(&key, 1);
            Ok(())
        });
    result.unwrap();
    assert!(forwarded.get() > 1000, "{forwarded:?}");
}

/// Only what is tracked has numbers: one direction of one connection.
#[test]
fn several_flows_have_no_numbers() {
    let Some(rig) = rig() else { return };
    let sent = packet(6);
    let key = rig.key(6, sent.ends[0], sent.ends[1]);
    let numbers = Some(FastNumbers { sequence: 1, acknowledgment: 2 });
    let action = FastAction { numbers, ..rig.wire() };
    assert!(rig.path.install(1, NOW, &key, &action).is_err());
    let action = FastAction { track_tcp: true, ..action };
    assert!(rig.path.install(1, NOW, &key.without_ports(), &action).is_err());
    assert!(rig.path.install(1, NOW, &key, &action).is_ok());
    rig.path.remove(&key, 1);
}
