//! Numbers of TCP segments.

use super::super::super::fast_flow::FastNumbers;
use super::*;

/// The beginning of timestamps in the form that RFC 7323 recommends, and of a selective acknowledgement.
const STAMPS: [u8; 4] = [1, 1, 8, 10];
const SACK: [u8; 4] = [1, 1, 5, 10];

/// Options of a segment.
fn options() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![Just(STAMPS), Just(SACK), any::<[u8; 4]>()];
    prop_oneof![
        Just(Vec::new()),
        any::<[u8; 8]>().prop_map(|stamps| [&STAMPS[..], &stamps].concat()),
        // A block of a selective acknowledgement, alone and behind timestamps.
        any::<[u8; 8]>().prop_map(|block| [&SACK[..], &block].concat()),
        any::<[u8; 8]>().prop_map(|block| [&STAMPS[..], &block, &SACK, &block].concat()),
        (word, 1usize..10).prop_map(|(word, words)| [&word[..], &vec![1; (words - 1) * 4]].concat()),
    ]
}

/// Options with something added to their timestamps.
fn translated(options: &[u8], numbers: &FastNumbers) -> Vec<u8> {
    let mut options = options.to_vec();
    for (at, added) in [(4, numbers.timestamp), (8, numbers.echo)] {
        if let Some(place) = options.get_mut(at..at + 4) {
            let old = u32::from_be_bytes(place.try_into().unwrap());
            place.copy_from_slice(&old.wrapping_add(added).to_be_bytes());
        }
    }
    options
}

/// A window after its shift.
fn shifted(window: u16, shift: i8) -> u16 {
    let wide = f64::from(window) * 2f64.powi(shift.into());
    wide.min(65535.0) as u16
}

/// Numbers to add, with and without timestamps.
fn numbers() -> impl Strategy<Value = FastNumbers> {
    let add = || prop_oneof![Just(0), Just(u32::MAX), any::<u32>()];
    let stamps = prop_oneof![Just((0, 0)), (add(), add())];
    (add(), add(), stamps, prop_oneof![Just(0i8), -14..=14i8]).prop_map(
        |(sequence, acknowledgment, (timestamp, echo), window_shift)| FastNumbers {
            sequence,
            acknowledgment,
            timestamp,
            echo,
            window_shift,
        },
    )
}

/// Numbers with something added, and a right checksum, next to all other changes.
#[test]
fn something_is_added_to_numbers() {
    let Some(rig) = rig() else { return };
    let fields = (any::<[u32; 2]>(), any::<u16>());
    let cases = (sent(), options(), numbers(), fields, any::<[bool; 3]>());
    let forwarded = [const { std::cell::Cell::new(0) }; 2];
    let result = runner(4000).run(
        &cases,
        |((sent, ends), options, numbers, ([seq, ack], window), [partial, hop, has_nat])| {
            let key = rig.key(6, sent.ends[0], sent.ends[1]);
            let build = |ends: [End; 2], (seq, ack): (u32, u32), window, options, ttl: u8| {
                let [(source, sport), (destination, dport)] = ends;
                let tcp = Tcp { flags: 0x18, seq, ack, window, options, ..Tcp::new(sport, dport) };
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
                numbers: Some(numbers),
                translation: rig.nat(ends[0], ends[1]).translation.filter(|_| has_nat),
                ..rig.wire()
            };
            rig.path.install(1, NOW, &key, &action).unwrap();
            let before = build(sent.ends, (seq, ack), window, options.clone(), 64);
            let before = if partial { before.partial_checksum() } else { before }.build();
            let after = (seq.wrapping_add(numbers.sequence), ack.wrapping_add(numbers.acknowledgment));
            let window = shifted(window, numbers.window_shift);
            let ends = if has_nat { ends } else { sent.ends };
            let to = translated(&options, &numbers);
            let expected = build(ends, after, window, to, 64 - u8::from(hop)).build();
            let has_stamps = options.len() == 12 && options.starts_with(&STAMPS);
            let has_none = options.is_empty() && numbers.timestamp | numbers.echo == 0;
            let is_forwarded = (has_stamps || has_none) && before.len() <= 1514;
            prop_assert_eq!(rig.send(&before), is_forwarded.then_some(expected));
            prop_assert_eq!(rig.path.flow_stats(1).ack, is_forwarded.then_some(ack), "as received");
            let count = &forwarded[usize::from(has_stamps)];
            count.set(count.get() + u32::from(is_forwarded));
            // Without something to add, options make no difference.
            rig.path.install(1, NOW, &key, &FastAction { numbers: None, ..action }).unwrap();
            prop_assert_eq!(rig.send(&before).is_some(), before.len() <= 1514);
            rig.path.remove(&key, 1);
            Ok(())
        },
    );
    result.unwrap();
    assert!(forwarded.iter().all(|count| count.get() > 300), "{forwarded:?}");
}

/// Only what is tracked has numbers: one direction of one connection.
#[test]
fn several_flows_have_no_numbers() {
    let Some(rig) = rig() else { return };
    let sent = packet(6);
    let key = rig.key(6, sent.ends[0], sent.ends[1]);
    let numbers = Some(FastNumbers { sequence: 1, acknowledgment: 2, ..FastNumbers::default() });
    let action = FastAction { numbers, ..rig.wire() };
    assert!(rig.path.install(1, NOW, &key, &action).is_err());
    let action = FastAction { track_tcp: true, ..action };
    assert!(rig.path.install(1, NOW, &key.without_ports(), &action).is_err());
    assert!(rig.path.install(1, NOW, &key, &action).is_ok());
    rig.path.remove(&key, 1);
    // Windows have scales of at most 14.
    let numbers = Some(FastNumbers { window_shift: 15, ..FastNumbers::default() });
    assert!(rig.path.install(1, NOW, &key, &FastAction { numbers, ..action }).is_err());
}
