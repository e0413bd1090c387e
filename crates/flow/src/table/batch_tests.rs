//! Lookups of vectors against lookups one by one.

use std::collections::HashMap;

use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
use mmb_packet::{Meta, parse};
use proptest::prelude::*;

use super::*;
use crate::key::key_of;

fn frame(shape: u8, n: u8, port: u16) -> Vec<u8> {
    let net: Net = match shape % 2 {
        0 => Ip4::new([10, 0, 0, n], [198, 51, 100, 1]).into(),
        _ => Ip6::new([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)], [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1]).into(),
    };
    let transport: Transport = match shape / 2 % 5 {
        0 | 1 => Tcp::new(port, 80).into(),
        2 => Udp::new(port, 53).into(),
        3 => Icmp { rest: [0, n, 0, 1], ..Icmp::new([8, 128][usize::from(shape % 2)]) }.into(),
        _ => Transport::Raw(47),
    };
    Frame::new(net, transport).payload([0; 20]).build()
}

fn parsed(frame: &[u8]) -> Meta {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).unwrap();
    meta
}

fn look(table: &Table, frames: &[Vec<u8>]) -> Vec<Found> {
    let mut lookups = Box::new(Lookups::default());
    // What an earlier vector left must not matter.
    for frame in frames.iter().rev() {
        lookups.push(&table.view(), frame, &parsed(frame));
    }
    lookups.run(table);
    lookups.clear();
    for frame in frames {
        lookups.push(&table.view(), frame, &parsed(frame));
    }
    lookups.run(table);
    for (i, frame) in frames.iter().take(VECTOR).enumerate() {
        assert_eq!(lookups.key(i), key_of(frame, &parsed(frame)).unwrap_or_default());
    }
    lookups.found().to_vec()
}

fn one_by_one(table: &Table, frames: &[Vec<u8>]) -> Vec<Found> {
    let find = |frame: &Vec<u8>| key_of(frame, &parsed(frame)).map_or(Found::NONE, |key| table.find(&key));
    frames.iter().map(find).collect()
}

#[test]
fn packets_behind_the_vectors_end_are_left_out() {
    let table = Table::new(10, 0, 1).unwrap();
    assert_eq!(look(&table, &vec![frame(0, 1, 1); VECTOR + 3]).len(), VECTOR);
}

#[test]
fn packets_without_key_find_nothing() {
    let mut table = Table::new(10, 0, 1).unwrap();
    let tcp = frame(0, 1, 1);
    let key = key_of(&tcp, &parsed(&tcp)).unwrap();
    table.insert(&key, &key.reversed(), 0).unwrap();
    let first = Frame::new(Ip4 { flags: 1, ..Ip4::new([10, 0, 0, 1], [198, 51, 100, 1]) }, Tcp::new(1, 80));
    let error = Frame::new(Ip4::new([10, 0, 0, 1], [198, 51, 100, 1]), Icmp::new(3));
    let frames = [tcp, first.build(), error.build(), Frame::ethernet(0x806).payload([0; 46]).build()];
    let found = look(&table, &frames);
    assert!(found[0].is_some());
    assert_eq!(found[1..], [Found::NONE; 3]);
}

/// Keys that have both bucket and tag in common are told apart.
#[test]
fn equal_tags_in_a_bucket() {
    let mut table = Table::new(8, 0, 3).unwrap();
    let mut by_hash: HashMap<(u32, u16), Vec<Vec<u8>>> = HashMap::new();
    for n in 0..20_000 {
        let frame = frame(0, 1, n);
        let hash = table.hasher.hash(&key_of(&frame, &parsed(&frame)).unwrap().pack());
        by_hash.entry((hash.bucket(table.index.count()), hash.tag())).or_default().push(frame);
    }
    let alike = by_hash.into_values().find(|frames| frames.len() >= 3).unwrap();
    for frame in &alike[..2] {
        let key = key_of(frame, &parsed(frame)).unwrap();
        table.insert(&key, &key.reversed(), 0).unwrap();
    }
    let found = look(&table, &alike[..3]);
    assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [0, 2, u32::MAX]);
    assert!(table.remove(SessionId(0)));
    assert_eq!(look(&table, &alike[..3]), [Found::NONE, Found(2), Found::NONE]);
}

proptest! {
    #[test]
    fn agree_with_single_ones(
        packets in prop::collection::vec((0..10u8, 0..12u8, 0..3u16), 1..VECTOR),
        entered in prop::collection::vec((0..10u8, 0..12u8, 0..3u16), 0..60),
        removed in prop::collection::vec(0..60u32, 0..20),
        seed: u64,
    ) {
        let mut table = Table::new(50, 0, seed).unwrap();
        for (shape, n, port) in entered {
            let frame = frame(shape, n, port);
            let key = key_of(&frame, &parsed(&frame)).unwrap();
            let result = table.insert(&key, &key.reversed(), 0);
            prop_assert!(!matches!(result, Err(InsertError::Crowded)));
        }
        for id in removed {
            table.remove(SessionId(id));
        }
        let frames: Vec<_> = packets.into_iter().map(|(shape, n, port)| frame(shape, n, port)).collect();
        prop_assert_eq!(look(&table, &frames), one_by_one(&table, &frames));
    }
}
