use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A naive table: prefixes by length and bits.
#[derive(Clone, Default)]
struct Oracle<A>(BTreeMap<(u32, A), NextHopId>);

impl<A: Address + Ord> Oracle<A> {
    fn lookup(&self, address: A) -> NextHopId {
        let find = |length| self.0.get(&(length, address.masked(length))).copied();
        (0..=A::BITS).rev().find_map(find).unwrap_or(0)
    }
}

/// A change of a prefix.
#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(u32),
    Remove,
    /// Removes the prefix of the operation this many steps back.
    Undo(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![4 => (0u32..5).prop_map(Op::Insert), 1 => Just(Op::Remove), 2 => (0usize..40).prop_map(Op::Undo)]
}

/// Addresses that differ in few bits, so that prefixes nest and branch often.
fn ip4() -> impl Strategy<Value = u32> {
    prop_oneof![
        prop::sample::select(vec![0u32, 1, 0x100, 0x40, 0x4000, 0x2000, 0x10_0000, 0x8000_0000, u32::MAX])
            .prop_flat_map(|flip| (0..32u32).prop_map(move |at| 0x0a14_1e28 ^ flip ^ 1 << at)),
        any::<u32>(),
    ]
}

fn ip6() -> impl Strategy<Value = u128> {
    let base = 0x2001_0db8_1234_5678_9abc_def0_1122_3344_u128;
    prop_oneof![
        4 => (0..128u32, 0..128u32).prop_map(move |(one, other)| base ^ 1 << one ^ 1 << other),
        1 => (0..128u32, any::<u16>()).prop_map(move |(at, low)| base ^ 1 << at ^ u128::from(low)),
        1 => any::<u128>(),
    ]
}

fn length(bits: u32) -> impl Strategy<Value = u32> {
    prop_oneof![3 => 0..=bits, 1 => Just(bits), 2 => (0..=bits / 8).prop_map(|n| n * 8)]
}

fn check<A: Address + Ord>(trie: &Trie<A>, oracle: &Oracle<A>, probes: &[A]) -> Result<(), TestCaseError> {
    let mut hops = vec![99; probes.len()];
    trie.lookup_batch(probes, &mut hops);
    for (probe, hop) in probes.iter().zip(hops) {
        trie.prefetch(*probe);
        prop_assert_eq!(oracle.lookup(*probe), hop, "{:x?}", probe);
        prop_assert_eq!(trie.lookup(*probe), hop);
    }
    prop_assert_eq!(trie.len(), oracle.0.len());
    Ok(())
}

fn behaves_like_the_oracle<A: Address + Ord>(
    ops: &[(Op, A, u32)],
    probes: &[A],
) -> Result<(), TestCaseError> {
    let (mut trie, mut oracle) = (Trie::<A>::default(), Oracle::default());
    let mut probes = probes.to_vec();
    let mut past = Vec::new();
    for (n, (op, prefix, length)) in ops.iter().enumerate() {
        let (prefix, length) = match op {
            Op::Undo(before) => (ops[n.saturating_sub(*before)].1, ops[n.saturating_sub(*before)].2),
            _ => (*prefix, *length),
        };
        if let Op::Insert(hop) = op {
            trie.insert(prefix, length as u8, *hop);
            oracle.0.insert((length, prefix.masked(length)), *hop);
        } else {
            trie.remove(prefix, length as u8);
            oracle.0.remove(&(length, prefix.masked(length)));
        }
        probes.push(prefix);
        if n % 8 == 0 {
            past.push((trie.clone(), oracle.clone()));
        }
        check(&trie, &oracle, &[prefix, prefix.masked(length)])?;
    }
    check(&trie, &oracle, &probes)?;
    for (trie, oracle) in &past {
        check(trie, oracle, &probes)?;
    }
    // Removing all prefixes frees all nodes.
    for ((length, prefix), _) in std::mem::take(&mut oracle.0) {
        trie.remove(prefix, length as u8);
    }
    check(&trie, &oracle, &probes)?;
    prop_assert!((0..1 << A::ROOT).step_by(64).all(|slot| trie.root.get(slot) == 0));
    prop_assert!(probes.iter().all(|probe| trie.root.get(probe.first(A::ROOT)) == 0));
    past.iter().try_for_each(|(trie, oracle)| check(trie, oracle, &probes))
}

proptest! {
    #[test]
    fn ip4_behaves_like_the_oracle(
        ops in prop::collection::vec((op(), ip4(), length(32)), 1..120),
        probes in prop::collection::vec(ip4(), 0..300),
    ) {
        behaves_like_the_oracle(&ops, &probes)?;
    }

    #[test]
    fn ip6_behaves_like_the_oracle(
        ops in prop::collection::vec((op(), ip6(), length(128)), 1..120),
        probes in prop::collection::vec(ip6(), 0..300),
    ) {
        behaves_like_the_oracle(&ops, &probes)?;
    }

    /// Every code of a node, and every slot of a node with children.
    #[test]
    fn a_full_node(order in Just((0..4096u32).collect::<Vec<_>>()).prop_shuffle(), probes: [u32; 32]) {
        let (mut trie, mut oracle) = (Trie::<u32>::default(), Oracle::default());
        for n in &order[..2048] {
            let (prefix, length) = (0x0a00_0000 | n, 25 + n % 8);
            trie.insert(prefix, length as u8, n + 1);
            oracle.0.insert((length, prefix.masked(length)), n + 1);
        }
        let probes = probes.map(|probe| 0x0a00_0000 | probe & 0xfff);
        check(&trie, &oracle, &probes)?;
        let gone: Vec<_> = oracle.0.keys().copied().step_by(2).collect();
        for (length, prefix) in gone {
            trie.remove(prefix, length as u8);
            oracle.0.remove(&(length, prefix));
        }
        check(&trie, &oracle, &probes)?;
    }
}

#[test]
fn default_route_and_next_hop_zero() {
    let mut trie = Trie::<u32>::default();
    assert_eq!(trie.lookup(7), 0);
    trie.insert(0, 0, 9);
    assert_eq!((trie.lookup(7), trie.len()), (9, 1));
    trie.insert(0xffff_ffff, 200, 3);
    assert_eq!((trie.lookup(u32::MAX), trie.lookup(u32::MAX - 1)), (3, 9));
    trie.insert(u32::MAX, 32, 0);
    assert_eq!((trie.lookup(u32::MAX), trie.len()), (0, 2), "a route to next hop 0 hides shorter ones");
    trie.remove(1, 32);
    trie.remove(1, 3);
    assert_eq!(trie.len(), 2);
    let mut few = [5; 3];
    trie.lookup_batch(&[1, 2, 3, 4], &mut few[..2]);
    assert_eq!(few, [9, 9, 5]);
}

#[test]
fn freed_memory_is_reused() {
    let mut trie = Trie::<u128>::default();
    let mut bytes = Vec::new();
    for round in 0..6 {
        for n in 0..5000u128 {
            trie.insert(0x2001_0db8 << 96 | n << 70, 60, round);
        }
        bytes.push(trie.bytes());
        for n in 0..5000u128 {
            trie.remove(0x2001_0db8 << 96 | n << 70, 60);
        }
        assert!(trie.len() == 0 && trie.lookup(0x2001_0db8 << 96) == 0);
    }
    assert_eq!(bytes[1], bytes[5]);
}
