//! Edits of UDP, against a model that searches all that was sent.

use mmb_nf::testing::assert_checksums;
use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Ip6, Net, Udp};
use mmb_packet::checksum::{fold, pseudo6, sum};
use proptest::prelude::*;

fn harness(arguments: &str) -> Harness {
    let lines = format!("nf add s match {arguments}\nnf add n payload-count\nchain add c s then n");
    Harness::new(crate::registry(), &lines).unwrap()
}

fn ip4() -> Net {
    Ip4 { options: vec![148, 4, 0, 0], ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) }.into()
}

fn ip6() -> Net {
    let ends: [u128; 2] = [0x20010db8 << 96 | 1, 0x20010db8 << 96 | 2];
    Ip6::new(ends[0], ends[1]).into()
}

fn frame(net: Net, payload: &[u8]) -> Frame {
    Frame::new(net, Udp::new(4000, 53)).payload(payload)
}

/// Sends a frame. Returns the one that leaves.
fn send(harness: &mut Harness, frame: &[u8]) -> Vec<u8> {
    let mut sent = harness.send("c", &[frame.to_vec()]);
    let mut one = sent.pop().unwrap();
    match (one.verdict, one.emitted.len()) {
        (ChainVerdict::Pass, 0) => one.frame,
        (ChainVerdict::Consume, 1) => one.emitted.pop().unwrap().1,
        other => panic!("{other:?}"),
    }
}

fn report(harness: &Harness, name: &str) -> u64 {
    let report = harness.program().instance("s").unwrap().report();
    report.iter().find(|(one, _)| one == name).map_or(0, |(_, count)| count.parse().unwrap())
}

/// The frame that a sender would have made with the other payload is what leaves.
#[test]
fn lengths_and_checksums_are_those_of_the_new_payload() {
    let text = b"an evil word";
    for (arguments, new) in [
        ("evil remove", &b"an  word"[..]),
        ("evil mask", b"an **** word"),
        ("evil replace harmless", b"an harmless word"),
        ("'an evil word' remove", b""),
    ] {
        let arguments = arguments.replace('\'', "\"");
        for net in [ip4(), ip6()] {
            for tags in 0..3 {
                let tagged = |frame: Frame| (0..tags).fold(frame, |frame, n| frame.vlan(7 + n)).build();
                let mut harness = harness(&arguments);
                let left = send(&mut harness, &tagged(frame(net.clone(), text)));
                assert_eq!(left, tagged(frame(net.clone(), new)), "{arguments}");
                assert_checksums(&left);
            }
        }
    }
}

/// RFC 768: zero means that there is no checksum. RFC 6936, section 5: also over IPv6, for tunnels.
#[test]
fn no_checksum_stays_none() {
    for net in [ip4(), ip6()] {
        for action in ["mask", "remove"] {
            let mut plain = frame(net.clone(), b"an evil word").build();
            let at = plain.len() - 14;
            plain[at..at + 2].fill(0);
            let left = send(&mut harness(&format!("evil {action}")), &plain);
            let at = left.len() - left.iter().rev().take_while(|byte| **byte != 0).count();
            assert_eq!(left[at - 2..at], [0, 0]);
        }
    }
}

/// RFC 768 and RFC 8200, section 8.1: a checksum that is computed as zero is sent as ones.
#[test]
fn a_computed_checksum_is_never_zero() {
    let mut found = 0;
    for first in 0..=255u8 {
        for last in 0..=255u8 {
            let text = [b"evil", &[first, last][..]].concat();
            let new = frame(ip6(), &[first, last]).build();
            let (segment, ip) = (&new[54..], &new[14..]);
            let [source, destination] = [8, 24].map(|at| std::array::from_fn(|i| ip[at + i]));
            let mut cleared = segment.to_vec();
            cleared[6..8].fill(0);
            let computed = fold(sum(&cleared, pseudo6(&source, &destination, 17, segment.len() as u32)));
            if computed == 0xffff {
                let left = send(&mut harness("evil remove"), &frame(ip6(), &text).build());
                assert_eq!(left[60..62], [0xff, 0xff]);
                found += 1;
            }
        }
    }
    assert_ne!(found, 0);
}

/// A receiver drops what was damaged on the way, also if it is edited.
#[test]
fn a_wrong_checksum_stays_wrong() {
    for action in ["mask", "remove"] {
        let mut damaged = frame(ip6(), b"an evil word").build();
        *damaged.last_mut().unwrap() ^= 1;
        let left = send(&mut harness(&format!("evil {action}")), &damaged);
        let ip = &left[14..];
        let [source, destination] = [8, 24].map(|at| std::array::from_fn(|i| ip[at + i]));
        let segment = &left[54..];
        assert_ne!(fold(sum(segment, pseudo6(&source, &destination, 17, segment.len() as u32))), 0xffff);
    }
}

#[test]
fn a_datagram_does_not_exceed_the_mtu() {
    // 24 bytes of IPv4 with options, 8 of UDP, and four words of 5 bytes.
    let mut harness = harness("evil replace harmless");
    harness.set_mtu(24 + 8 + 4 * 5 + 8);
    let left = send(&mut harness, &frame(ip4(), b"evil evil evil evil ").build());
    assert_eq!(left, frame(ip4(), b"harmless harmless evil evil ").build());
    let counts = ["edited", "not edited", "not edited: mtu"].map(|name| report(&harness, name));
    assert_eq!(counts, [2, 2, 2]);
    // One that is too long already can become shorter.
    harness.set_mtu(30);
    harness.load("nf add s match evil replace ev\nnf add n payload-count\nchain add c s then n").unwrap();
    let left = send(&mut harness, &frame(ip4(), b"evil evil").build());
    assert_eq!(left, frame(ip4(), b"ev ev").build());
}

/// With and without DF, and over IPv6: an edit that needs a longer frame than the output takes is refused,
/// and the datagram goes on as it is. The box neither drops it nor makes fragments.
#[test]
fn no_frame_is_longer_than_the_output_takes() {
    let ip4 = |flags| Net::from(Ip4 { flags, ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) });
    for (net, header) in [(ip4(2), 20), (ip4(0), 20), (ip6(), 40)] {
        for room in 0..6 {
            let mut harness = harness("evil replace harmless");
            harness.set_mtu(header + 8 + 4 + room);
            let left = send(&mut harness, &frame(net.clone(), b"evil").build());
            let expected: &[u8] = if room < 4 { b"evil" } else { b"harmless" };
            assert_eq!(left, frame(net.clone(), expected).build());
            assert!(left.len() <= 14 + header + 8 + 4 + room);
            assert_eq!(report(&harness, "not edited: mtu"), u64::from(room < 4));
        }
    }
}

/// Bytes behind the length of the header are no payload (RFC 768). They stay where they are.
#[test]
fn bytes_behind_the_udp_length() {
    let net = ip4();
    let shorter = |payload: &[u8]| {
        let mut one = frame(net.clone(), payload).build();
        let at = one.len() - payload.len() - 4;
        one[at..at + 2].copy_from_slice(&(8 + 4u16).to_be_bytes());
        one[at + 2..at + 4].fill(0);
        one
    };
    let (word, masked) = (shorter(b"evilevil"), shorter(b"****evil"));
    assert_eq!(send(&mut harness("evil mask"), &word), masked);
    let mut other = harness("evil remove");
    assert_eq!(send(&mut other, &word), word);
    assert_eq!([report(&other, "edited"), report(&other, "not edited: udp-length")], [0, 1]);
}

#[test]
fn the_rest_of_a_word_in_the_next_datagram_is_edited() {
    for (arguments, expected) in [
        ("evil mask", ["an e", "**", "** word"]),
        ("evil remove", ["an e", "vi", " word"]),
        ("evil replace good", ["an e", "vi", "good word"]),
    ] {
        let mut harness = harness(arguments);
        let sent = ["an e", "vi", "l word"];
        let left = sent.map(|text| {
            let left = send(&mut harness, &frame(ip4(), text.as_bytes()).build());
            assert_checksums(&left);
            String::from_utf8(left[14 + 24 + 8..].to_vec()).unwrap()
        });
        // A part that has left cannot be changed.
        let expected = if arguments.ends_with("mask") { ["an e", "vi", "* word"] } else { expected };
        assert_eq!(left, expected, "{arguments}");
        assert_eq!(report(&harness, "edited in two datagrams"), 1);
    }
}

/// What the datagrams become, and how many words were edited and refused.
fn model(words: &[&str], new: Option<&str>, datagrams: &[String], most: usize) -> (Vec<Vec<u8>>, [u64; 2]) {
    let (mut before, mut left, mut counts) = (Vec::new(), Vec::new(), [0, 0]);
    for datagram in datagrams {
        let text = [&before[..], datagram.as_bytes()].concat();
        let (gone, mut out, mut at, mut done) = (before.len(), Vec::new(), 0, 0);
        let mut len = datagram.len();
        while at < text.len() {
            let word = words.iter().filter(|word| text[at..].starts_with(word.as_bytes()));
            let Some(end) = word.map(|word| at + word.len()).filter(|end| *end > gone).max() else {
                if at >= gone {
                    out.push(text[at]);
                }
                at += 1;
                continue;
            };
            let old = end - at.max(gone);
            let bytes = new.map_or(vec![b'*'; old], |new| new.as_bytes().to_vec());
            let is_too_long = bytes.len() > old && len + bytes.len() - old > most;
            counts[usize::from(is_too_long)] += 1;
            if is_too_long {
                out.extend_from_slice(&text[at.max(gone)..end]);
            } else {
                len = len + bytes.len() - old;
                out.extend(bytes);
            }
            (at, done) = (end, end);
        }
        before = text[done..].to_vec();
        left.push(out);
    }
    (left, counts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn datagrams_are_edited_as_by_the_model(
        datagrams in prop::collection::vec("[evil]{0,9}", 1..12),
        words in prop::sample::subsequence(vec!["evil", "vi", "lev", "ee", "evilevil", "li"], 1..6),
        new in prop::sample::select(vec![None, Some(""), Some("x"), Some("harmless")]),
        most in prop::sample::select(vec![8usize, 12, 100]),
        is_ip6 in any::<bool>(),
    ) {
        let action = match new {
            None => "mask".to_owned(),
            Some("") => "remove".to_owned(),
            Some(new) => format!("replace {new}"),
        };
        let mut harness = harness(&format!("{} {action}", words.join(" ")));
        let (net, headers) = if is_ip6 { (ip6(), 40) } else { (ip4(), 24) };
        harness.set_mtu(headers + 8 + most);
        let (expected, counts) = model(&words, new, &datagrams, most);
        for (datagram, expected) in datagrams.iter().zip(&expected) {
            let left = send(&mut harness, &frame(net.clone(), datagram.as_bytes()).build());
            prop_assert_eq!(left, frame(net.clone(), expected).build(), "{:?}", datagram);
        }
        prop_assert_eq!([report(&harness, "edited"), report(&harness, "not edited")], counts);
    }
}
