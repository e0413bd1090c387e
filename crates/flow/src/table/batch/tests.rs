//! Batch lookups agree with single lookups.

use std::collections::HashMap;

use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
use mmb_packet::{Meta, parse, parse_plain_ip4, parse_plain_ip6};
use proptest::prelude::*;

use super::*;
use crate::key::parse_key;
use crate::{InsertError, RedirectState, SessionId};

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

fn look(table: &Table, frames: &[Vec<u8>]) -> Vec<FlowRef> {
    let mut lookups = Box::new(BatchLookup::default());
    // Stale data of an earlier vector must not matter.
    let metas: Vec<_> = frames.iter().map(|frame| parsed(frame)).collect();
    let last = frames.len().saturating_sub(1);
    lookups.fill(table, frames.len(), |at| (&frames[last - at], &metas[last - at]));
    lookups.run(table);
    lookups.fill(table, frames.len(), |at| (&frames[at], &metas[at]));
    lookups.run(table);
    for (i, frame) in frames.iter().take(VECTOR).enumerate() {
        assert_eq!(lookups.key(i), parse_key(frame, &parsed(frame)).unwrap_or_default());
    }
    let found = lookups.results().to_vec();
    assert_eq!(found, look_ahead(table, frames, &metas, &mut lookups, |_| None));
    found
}

/// The results of a lookup whose packets are pushed one by one, as a parser has them.
fn look_ahead(
    table: &Table,
    frames: &[Vec<u8>],
    metas: &[Meta],
    lookups: &mut BatchLookup,
    brought: impl Fn(&Meta) -> Option<u32>,
) -> Vec<FlowRef> {
    lookups.begin();
    for (at, (frame, meta)) in frames.iter().zip(metas).take(VECTOR).enumerate() {
        let mut again = Meta { ethertype: meta.ethertype, l3_off: meta.l3_off, ..Meta::default() };
        let (four, l3, len) = (meta.ethertype == 0x0800, usize::from(meta.l3_off), frame.len());
        let ip4 = four.then(|| parse_plain_ip4(frame, l3, len, &mut again));
        match (ip4, parse_plain_ip6(frame, l3, len, &mut again)) {
            (Some(Some(common)), _) => lookups.push_parsed(table, at, &common, brought(meta)),
            (None, Some(common)) => lookups.push_parsed(table, at, &common, brought(meta)),
            _ => lookups.push(table, at, frame, meta),
        }
    }
    let n = frames.len().min(VECTOR);
    lookups.end(n);
    lookups.find_candidates(table);
    for at in 0..n {
        let guess = lookups.candidate(at);
        let flow = table.flows.get().get(guess.0 as usize);
        let right = flow.is_some_and(|flow| match lookups.has_ip6_keys() {
            true => lookups.is_match::<true>(at, flow),
            false => lookups.is_match::<false>(at, flow),
        });
        if !right && guess.is_some() {
            lookups.resolve(table, at);
        }
    }
    lookups.update_cache();
    lookups.results().to_vec()
}

fn one_by_one(table: &Table, frames: &[Vec<u8>]) -> Vec<FlowRef> {
    let find =
        |frame: &Vec<u8>| parse_key(frame, &parsed(frame)).map_or(FlowRef::NONE, |key| table.find(&key));
    frames.iter().map(find).collect()
}

#[test]
fn packets_beyond_the_vector_are_ignored_by_lookup() {
    let table = Table::new(10, 0, 1).unwrap();
    assert_eq!(look(&table, &vec![frame(0, 1, 1); VECTOR + 3]).len(), VECTOR);
}

#[test]
fn packets_without_key_find_nothing() {
    let mut table = Table::new(10, 0, 1).unwrap();
    let tcp = frame(0, 1, 1);
    let key = parse_key(&tcp, &parsed(&tcp)).unwrap();
    table.insert(&key, &key.reversed(), 0).unwrap();
    let first = Frame::new(Ip4 { flags: 1, ..Ip4::new([10, 0, 0, 1], [198, 51, 100, 1]) }, Tcp::new(1, 80));
    let error = Frame::new(Ip4::new([10, 0, 0, 1], [198, 51, 100, 1]), Icmp::new(3));
    let frames = [tcp, first.build(), error.build(), Frame::ethernet(0x806).payload([0; 46]).build()];
    let found = look(&table, &frames);
    assert!(found[0].is_some());
    assert_eq!(found[1..], [FlowRef::NONE; 3]);
}

/// Keys with equal bucket and tag are distinguished.
#[test]
fn equal_tags_in_a_bucket() {
    let mut table = Table::new(8, 0, 3).unwrap();
    let mut by_hash: HashMap<(usize, u16), Vec<Vec<u8>>> = HashMap::new();
    for n in 0..20_000 {
        let frame = frame(0, 1, n);
        let hash = table.hasher.hash(&parse_key(&frame, &parsed(&frame)).unwrap().pack());
        let bucket = std::ptr::from_ref(table.index.buckets().of(hash)).addr();
        by_hash.entry((bucket, hash.tag())).or_default().push(frame);
    }
    let alike = by_hash.into_values().find(|frames| frames.len() >= 3).unwrap();
    for frame in &alike[..2] {
        let key = parse_key(frame, &parsed(frame)).unwrap();
        table.insert(&key, &key.reversed(), 0).unwrap();
    }
    let found = look(&table, &alike[..3]);
    assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [0, 2, u32::MAX]);
    assert!(table.remove(SessionId(0)));
    assert_eq!(look(&table, &alike[..3]), [FlowRef::NONE, FlowRef(2), FlowRef::NONE]);
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
            let key = parse_key(&frame, &parsed(&frame)).unwrap();
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

/// Changes of a table between two vectors.
#[derive(Clone, Debug)]
enum Step {
    Insert((u8, u8, u16)),
    Redirect((u8, u8, u16)),
    Remove(u32),
    Expire(u32),
    Look(Vec<((u8, u8, u16), bool)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packet = || (0..10u8, 0..6u8, 0..3u16);
    prop::collection::vec(
        prop_oneof![
            3 => packet().prop_map(Step::Insert),
            1 => packet().prop_map(Step::Redirect),
            1 => (0..40u32).prop_map(Step::Remove),
            1 => (0..2_000u32).prop_map(Step::Expire),
            3 => prop::collection::vec((packet(), any::<bool>()), 1..60).prop_map(Step::Look),
        ],
        1..60,
    )
}

/// The frame of a flow. Port 2 and address 5 make one whose replies have the same key.
fn one_of((shape, n, port): (u8, u8, u16), reply: bool) -> Vec<u8> {
    if (n, port, shape % 2) == (5, 2, 0) {
        return Frame::new(Ip4::new([10, 0, 0, 5], [10, 0, 0, 5]), Udp::new(9, 9)).payload([0; 20]).build();
    }
    let mut frame = frame(shape, n, port);
    // Protocols other than TCP and UDP would need replies of another kind.
    if reply && shape / 2 % 5 < 3 {
        let (addresses, ports, len) = if shape % 2 == 1 { (22, 54, 16) } else { (26, 34, 4) };
        (0..len).for_each(|i| frame.swap(addresses + i, addresses + len + i));
        (0..2).for_each(|i| frame.swap(ports + i, ports + 2 + i));
    }
    frame
}

/// Looks up packets that have few different RSS hashes, or none.
fn look_recalling(lookups: &mut BatchLookup, table: &Table, frames: &[Vec<u8>], hashes: u32) -> Vec<FlowRef> {
    let metas: Vec<_> = frames.iter().map(|frame| parsed(frame)).collect();
    if hashes > 0 {
        return look_ahead(table, frames, &metas, lookups, |meta| Some(meta.flow_hash % hashes));
    }
    lookups.fill(table, frames.len(), |at| (&frames[at], &metas[at]));
    lookups.run(table);
    lookups.results().to_vec()
}

proptest! {
    /// With or without the cache, lookups agree with the index at all times.
    #[test]
    fn the_cache_changes_nothing(
        steps in steps(),
        hashes in prop_oneof![Just(0), Just(1), 2..9u32],
        forced in prop::option::weighted(0.8, prop::bool::weighted(0.8)),
        seed: u64,
    ) {
        let (mut table, mut other) = (Table::new(40, 0, seed).unwrap(), Table::new(40, 0, !seed).unwrap());
        let mut lookups = Box::new(BatchLookup::default());
        lookups.recall.forced = forced;
        let mut now = 0;
        for step in steps {
            match step {
                Step::Insert(flow) => {
                    let frame = one_of(flow, false);
                    let key = parse_key(&frame, &parsed(&frame)).unwrap();
                    if let Ok(id) = table.insert(&key, &key.reversed(), now) {
                        table.arm_timer(id, now + 1_000);
                    }
                    // The same flows in another table, in the opposite order.
                    let _ = other.insert(&key.reversed(), &key, now);
                }
                Step::Redirect(flow) => {
                    let frame = one_of(flow, true);
                    let key = parse_key(&frame, &parsed(&frame)).unwrap();
                    let _ = table.insert_redirect(&key, (1, RedirectState::Open), now);
                }
                Step::Remove(id) => {
                    table.remove(SessionId(id));
                }
                Step::Expire(time) => {
                    now += time;
                    while let Some(id) = table.next_expired(now, &mut 100) {
                        table.remove(id);
                    }
                }
                Step::Look(packets) => {
                    let frames: Vec<_> = packets.into_iter().map(|(flow, reply)| one_of(flow, reply)).collect();
                    for table in [&table, &other] {
                        let found = look_recalling(&mut lookups, table, &frames, hashes);
                        prop_assert_eq!(found, one_by_one(table, &frames));
                    }
                }
            }
        }
    }
}

/// The cache is disabled when packets miss, probed again, and stays enabled when they hit.
#[test]
fn the_cache_is_on_while_packets_hit() {
    let mut table = Table::new(20_000, 0, 1).unwrap();
    let mut lookups = Box::new(BatchLookup::default());
    let frames: Vec<_> = (0..VECTOR as u16).map(|port| frame(0, 1, port)).collect();
    for frame in &frames {
        let key = parse_key(frame, &parsed(frame)).unwrap();
        table.insert(&key, &key.reversed(), 0).unwrap();
    }
    let strangers: Vec<_> = (0..VECTOR as u16).map(|port| frame(0, 2, port)).collect();
    assert!(lookups.recall.is_on());
    let mut on = 0;
    for _ in 0..2_000 {
        look_recalling(&mut lookups, &table, &strangers, 0);
        on += usize::from(lookups.recall.is_on());
    }
    assert!((30..200).contains(&on), "{on} of 2000 vectors");
    for _ in 0..1_100 {
        look_recalling(&mut lookups, &table, &frames, 0);
    }
    for _ in 0..100 {
        assert_eq!(look_recalling(&mut lookups, &table, &frames, 0), one_by_one(&table, &frames));
        assert!(lookups.recall.is_on());
    }
}
