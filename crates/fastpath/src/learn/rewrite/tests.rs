use mmb_dpdk::FastKey;
use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Tcp, Udp};
use proptest::prelude::*;

use super::*;

const PORT: FastPort = FastPort(3);
const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const HOME: [u8; 6] = [2, 0, 0, 0, 9, 1];
const AWAY: [u8; 6] = [2, 0, 0, 0, 9, 2];

fn ack_segment() -> Tcp {
    Tcp { flags: 0x10, ..Tcp::new(40_000, 80) }
}

fn key(frame: &Frame) -> Option<FastKey> {
    parse_key(PORT, &frame.build())
}

/// A packet of some protocol and IP version, and one with other ends and the same payload.
fn frames() -> impl Strategy<Value = (Frame, Frame)> {
    let ends = (any::<[u8; 4]>(), any::<[u8; 4]>(), 1u16.., 1u16..);
    let tail = (prop::collection::vec(any::<u8>(), 0..40), any::<bool>(), 0..5usize);
    (ends.clone(), ends, tail).prop_map(|(one, other, (payload, partial, which))| {
        let make = |(a, b, sport, dport): ([u8; 4], [u8; 4], u16, u16)| {
            let (six, to) = ([a, a, b, a].concat(), [b, a, b, b].concat());
            let six = Ip6::new(<[u8; 16]>::try_from(six).unwrap(), <[u8; 16]>::try_from(to).unwrap());
            let ip = Ip4::new(a, b);
            let [high, low] = sport.to_be_bytes();
            let rest = [high, low, 0, 1];
            let frame = match which {
                0 => Frame::new(ip, Tcp { sport, dport, ..ack_segment() }),
                1 => Frame::new(ip, Udp::new(sport, dport)),
                2 => Frame::new(six, Tcp { sport, dport, ..ack_segment() }),
                3 => Frame::new(six, Udp::new(sport, dport)),
                _ => Frame::new(ip, Icmp { rest, ..Icmp::new(8) }),
            };
            frame.payload(payload.clone()).pad_to(60)
        };
        let before = make(one);
        (if partial { before.partial_checksum() } else { before }, make(other))
    })
}

/// Forwards a frame as a router does.
fn route(frame: &mut [u8]) {
    frame[..6].copy_from_slice(&AWAY);
    frame[6..12].copy_from_slice(&HOME);
    if frame[14] >> 4 == 6 {
        frame[21] -= 1;
        return;
    }
    frame[22] -= 1;
    frame[24..26].fill(0);
    let sum = !checksum::fold(checksum::sum(&frame[14..34], 0));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

proptest! {
    /// Changes of addresses, ports, TTL and Ethernet header are derived in any combination, even if the
    /// received checksum is partial. Any other difference is refused.
    #[test]
    fn the_derived_rewrite_equals_the_edits(
        (before, after) in frames(),
        routed: bool,
        translated: bool,
        hit in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let key = key(&before).unwrap();
        let mut sent = if translated { after.build() } else {
            // The packet with a complete checksum.
            let mut whole = before.build();
            let headers = Headers::parse(&whole).unwrap();
            let sum = transport_checksum(&mut whole, headers).unwrap();
            put(&mut whole, headers.checksum(), sum).unwrap();
            whole
        };
        if routed {
            route(&mut sent);
        }
        let rewrite = derive_rewrite(key.port, routed, None, &before.build(), &sent).unwrap();
        prop_assert_eq!(rewrite.decrement_ttl, routed);
        prop_assert_eq!(rewrite.macs, routed.then_some(FastMacs { destination: AWAY, source: HOME }));
        let now = parse_key(PORT, &sent).unwrap();
        if let Some(to) = rewrite.translation {
            let to = (to.source, to.destination, to.source_port, to.destination_port);
            prop_assert_eq!(to, (now.source, now.destination, now.source_port, now.destination_port));
        } else {
            prop_assert_eq!(key, now);
        }
        let at = hit.index(sent.len());
        sent[at] ^= 1u8 << bit;
        let refused = derive_rewrite(key.port, routed, None, &before.build(), &sent) == Err(RefusalReason::Otherwise);
        // A router may write any Ethernet addresses.
        prop_assert_eq!(refused, !(routed && at < 12));
        prop_assert_eq!(derive_rewrite(key.port, !routed, None, &before.build(), &sent), Err(RefusalReason::Otherwise));
    }
}

/// A segment from `source` with these numbers: sequence, acknowledgment and window.
fn segment(source: [u8; 4], (seq, ack, window): (u32, u32, u16), options: &[u8]) -> Vec<u8> {
    let tcp = Tcp { seq, ack, window, options: options.to_vec(), ..ack_segment() };
    Frame::new(Ip4::new(source, B), tcp).payload(*b"text").build()
}

fn stamps(value: u8, echo: u8) -> [u8; 12] {
    [1, 1, 8, 10, 0, 0, 0, value, 0, 0, 0, echo]
}

/// What sessions add to numbers is accepted next to a translation, if it is what was done to the segment.
#[test]
fn what_is_added_to_numbers_is_checked() {
    let added = FastNumbers { sequence: 4, acknowledgment: u32::MAX - 4, ..FastNumbers::default() };
    let clocks = FastNumbers { timestamp: 6, echo: 1_u32.wrapping_neg(), window_shift: 3, ..added };
    let (plain, from, to) = (&[][..], stamps(1, 2), stamps(7, 1));
    for (source, numbers, window, options, translated) in [
        (A, added, 9_000, plain, plain),
        (A, added, 9_000, &from[..], &from[..]),
        ([192, 0, 2, 9], clocks, u16::MAX, &from, &to),
    ] {
        let before = segment(A, (u32::MAX, 7, 9_000), options);
        let sent = segment(source, (3, 2, window), translated);
        let rewrite = derive_rewrite(PORT, false, Some(numbers), &before, &sent).unwrap();
        assert_eq!(rewrite.numbers, Some(numbers));
        assert_eq!(rewrite.translation.is_some(), source != A);
        let action = rewrite.into_action(PORT, 1500);
        assert_eq!(action.numbers, rewrite.numbers);
        for wrong in [
            FastNumbers { sequence: 5, ..numbers },
            FastNumbers { acknowledgment: 0, ..numbers },
            FastNumbers { window_shift: -1, ..numbers },
        ] {
            let refused = derive_rewrite(PORT, false, Some(wrong), &before, &sent);
            assert_eq!(refused, Err(RefusalReason::Otherwise), "{wrong:?}");
        }
    }
}

/// The kernel does not forward segments whose options it does not know, nor those without the timestamps to
/// which something is added.
#[test]
fn other_options_teach_nothing() {
    let numbers = FastNumbers { acknowledgment: 1, ..FastNumbers::default() };
    let clocks = FastNumbers { echo: 1, ..numbers };
    let sack = [1, 1, 5, 10, 0, 0, 0, 50, 0, 0, 0, 99];
    for (numbers, options) in [(numbers, &sack[..]), (clocks, &sack), (clocks, &[])] {
        let frame = segment(A, (1, 7, 9), options);
        let refused = derive_rewrite(PORT, false, Some(numbers), &frame, &segment(A, (1, 8, 9), options));
        assert_eq!(refused, Err(RefusalReason::Session), "{options:?}");
    }
}

#[test]
fn changes_of_payload_or_length_are_refused() {
    let before = Frame::new(Ip4::new(A, B), Udp::new(1, 2)).payload(*b"one");
    let same = Frame::new(Ip4::new(A, B), Udp::new(1, 2)).payload(*b"two");
    let longer = before.clone().pad_to(60);
    let key = key(&before).unwrap();
    for after in [same, longer] {
        assert_eq!(
            derive_rewrite(key.port, false, None, &before.build(), &after.build()),
            Err(RefusalReason::Otherwise)
        );
    }
    assert!(derive_rewrite(key.port, false, None, &before.build(), &before.build()).is_ok());
}
