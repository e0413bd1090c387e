//! The bytes of a packet, in one segment or more.

use proptest::prelude::*;

use crate::{common, pattern, pool};

#[test]
fn a_devices_hints_belong_to_one_packet() {
    let _alone = common::alone();
    let pool = pool(2, 100);
    let mut packet = pool.alloc_from(b"frame").unwrap();
    assert_eq!((packet.rss_hash(), packet.mark()), (None, None));
    packet.set_rss_hash(0xdead_beef);
    assert_eq!((packet.rss_hash(), packet.mark()), (Some(0xdead_beef), None));
    packet.set_mark(7);
    assert_eq!((packet.rss_hash(), packet.mark()), (Some(0xdead_beef), Some(7)));
    drop(packet);
    let both = [pool.alloc().unwrap(), pool.alloc().unwrap()];
    assert!(both.iter().all(|packet| packet.rss_hash().is_none() && packet.mark().is_none()));
}

#[test]
fn bytes_are_added_and_removed_at_both_ends() {
    let _alone = common::alone();
    let pool = pool(16, 100);
    let mut packet = pool.alloc_from(&pattern(40)).unwrap();
    packet.prepend(4).unwrap().copy_from_slice(b"head");
    packet.append(4).unwrap().copy_from_slice(b"tail");
    let expected: Vec<u8> = [b"head", &pattern(40)[..], b"tail"].concat();
    assert_eq!((packet.data(), packet.pkt_len(), packet.nb_segs()), (&expected[..], 48, 1));
    assert!(packet.adj(4) && packet.trim(4));
    assert_eq!(packet.data(), pattern(40));
    assert!(
        !packet.adj(41) && !packet.trim(41) && packet.prepend(129).is_none() && packet.append(61).is_none()
    );
    assert_eq!(packet.data(), pattern(40), "what is refused changes nothing");
    assert!(packet.adj(40) && packet.data().is_empty() && packet.trim(0));
}

#[test]
fn long_packets_are_chains() {
    let _alone = common::alone();
    let pool = pool(64, 100);
    let mut packet = pool.alloc_from(&pattern(550)).unwrap();
    assert_eq!((packet.nb_segs(), packet.pkt_len(), packet.data().len(), pool.in_use()), (6, 550, 100, 6));
    assert_eq!(packet.to_vec(), pattern(550));
    assert_eq!(packet.append(50).map(|new| new.len()), Some(50));
    assert!(packet.trim(50) && packet.trim(60), "cuts through segments");
    assert_eq!((packet.nb_segs(), packet.to_vec()), (5, pattern(490)));
    let (head, rest) = packet.split_first_segment();
    head[0] = 0xff;
    assert_eq!(rest.map(<[u8]>::len).collect::<Vec<_>>(), [100, 100, 100, 90]);
    assert_eq!(packet.data()[0], 0xff);
    assert!(packet.trim(490) && packet.nb_segs() == 1 && pool.in_use() == 1);
    assert!(pool.alloc_from(&pattern(100 * 65)).is_none(), "more than there are buffers");
    assert_eq!(pool.in_use(), 1, "and nothing is lost");
}

#[test]
fn chains_have_a_longest_length() {
    let _alone = common::alone();
    let pool = pool(300, 1);
    assert!(pool.alloc_from(&pattern(65)).is_none());
    let mut packet = pool.alloc_from(&pattern(64)).unwrap();
    for len in [64, 64, 63] {
        packet.chain(pool.alloc_from(&pattern(len)).unwrap()).unwrap();
    }
    let more = packet.chain(pool.alloc_from(&[1]).unwrap()).unwrap_err();
    assert_eq!((more.to_vec(), packet.pkt_len(), packet.nb_segs()), (vec![1], 255, 255));
    drop((packet, more));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn pull_up_uses_tail_room_then_head_room_and_then_gives_up() {
    let _alone = common::alone();
    let pool = pool(16, 100);
    let mut packet = pool.alloc_from(&pattern(250)).unwrap();
    assert!(packet.pull_up(100), "has them already");
    assert!(!packet.pull_up(251), "longer than the packet");
    assert!(!packet.pull_up(229), "longer than a buffer");
    assert_eq!((packet.nb_segs(), packet.to_vec()), (3, pattern(250)));
    assert!(packet.pull_up(228), "head room, data and tail room are the buffer");
    assert_eq!((packet.data(), packet.headroom(), packet.nb_segs()), (&pattern(250)[..228], 0, 2));
    assert_eq!(packet.to_vec(), pattern(250));
    let mut short = pool.alloc_from(&pattern(150)).unwrap();
    assert!(short.adj(60) && short.pull_up(60), "there is no tail room, so head room shrinks");
    assert_eq!((short.to_vec(), short.headroom()), (pattern(150)[60..].to_vec(), 168));
    assert!(short.linearize() && short.nb_segs() == 1);
    assert_eq!(short.data(), &pattern(150)[60..]);
}

#[test]
fn stripped_tags_come_back() {
    let _alone = common::alone();
    let pool = pool(16, 100);
    let mut packet = pool.alloc_from(&pattern(60)).unwrap();
    assert!(!packet.has_stripped_vlan() && packet.restore_vlan());
    assert_eq!(packet.data(), pattern(60), "nothing to put back");
    packet.set_stripped_vlan(0x6123);
    assert!(packet.has_stripped_vlan() && packet.restore_vlan() && !packet.has_stripped_vlan());
    let tagged = [&pattern(60)[..12], &[0x81, 0x00, 0x61, 0x23], &pattern(60)[12..]].concat();
    assert_eq!((packet.data(), packet.pkt_len()), (&tagged[..], 64));
    assert!(packet.restore_vlan() && packet.data() == tagged, "once");
    packet.prepend(124).unwrap();
    packet.set_stripped_vlan(1);
    assert!(!packet.restore_vlan() && packet.has_stripped_vlan(), "no room");
    let mut split = pool.alloc_from(&pattern(6)).unwrap();
    split.chain(pool.alloc_from(&pattern(60)[6..]).unwrap()).unwrap();
    split.set_stripped_vlan(0x6123);
    assert!(split.restore_vlan());
    assert_eq!(split.to_vec(), tagged, "addresses in two segments");
    let mut runt = pool.alloc_from(&pattern(11)).unwrap();
    runt.set_stripped_vlan(1);
    assert!(!runt.restore_vlan());
}

/// An operation on a packet, with a naive counterpart on a vector of bytes.
#[derive(Clone, Debug)]
enum Change {
    Prepend(usize),
    Append(usize),
    Adj(usize),
    Trim(usize),
    PullUp(usize),
    Chain(usize),
    Restore,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..160usize).prop_map(Change::Prepend),
        (0..120usize).prop_map(Change::Append),
        (0..120usize).prop_map(Change::Adj),
        (0..200usize).prop_map(Change::Trim),
        (0..300usize).prop_map(Change::PullUp),
        (0..250usize).prop_map(Change::Chain),
        Just(Change::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_packet_is_its_bytes(len in 0..400usize, changes in prop::collection::vec(change(), 0..20)) {
        let _alone = common::alone();
        let pool = pool(256, 100);
        let (mut bytes, mut packet) = (pattern(len), pool.alloc_from(&pattern(len)).unwrap());
        for change in changes {
            match change {
                Change::Prepend(n) => if let Some(new) = packet.prepend(n) {
                    new.copy_from_slice(&pattern(n));
                    bytes.splice(0..0, pattern(n));
                },
                Change::Append(n) => if let Some(new) = packet.append(n) {
                    new.copy_from_slice(&pattern(n));
                    bytes.extend(pattern(n));
                },
                Change::Adj(n) => if packet.adj(n) { bytes.drain(..n); },
                Change::Trim(n) => {
                    prop_assert_eq!(packet.trim(n), n <= bytes.len());
                    bytes.truncate(bytes.len().saturating_sub(if n <= bytes.len() { n } else { 0 }));
                }
                Change::PullUp(n) => {
                    prop_assert_eq!(packet.pull_up(n), n <= bytes.len() && n <= 228 || n <= packet.data().len());
                    prop_assert!(n > bytes.len() || n > 228 || packet.data().len() >= n);
                }
                Change::Chain(n) => {
                    packet.chain(pool.alloc_from(&pattern(n)).unwrap()).unwrap();
                    bytes.extend(pattern(n));
                }
                Change::Restore => {
                    packet.set_stripped_vlan(7);
                    if packet.restore_vlan() { bytes.splice(12..12, [0x81, 0, 0, 7]); } else {
                        prop_assert!(bytes.len() < 12 || packet.headroom() < 4);
                    }
                }
            }
            prop_assert_eq!(packet.to_vec(), &bytes[..]);
            prop_assert_eq!(packet.pkt_len(), bytes.len());
            prop_assert_eq!(usize::from(packet.nb_segs()), packet.segments().count());
        }
        drop(packet);
        prop_assert_eq!(pool.in_use(), 0);
    }
}
