use std::collections::HashMap;
use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn candidate(last: u8, weight: u16) -> Candidate {
    let place = BackendAddress { address: Ipv4Addr::new(10, 0, 0, last).into(), port: Some(80) };
    Candidate { place, weight, takes: true }
}

fn equal(n: u8) -> Vec<Candidate> {
    (1..=n).map(|last| candidate(last, 1)).collect()
}

fn source(n: u32) -> [u8; 16] {
    let mut source = [0; 16];
    source[..4].copy_from_slice(&0x0a01_0000u32.wrapping_add(n).to_be_bytes());
    source
}

/// What each of so many sources gets.
fn hashed(candidates: &[Candidate], sources: u32) -> Vec<Option<u16>> {
    let choices = Choices::new(Method::Hash, Families::Separate, candidates);
    (0..sources).map(|n| choices.choose(&source(n), true, 0, |_| 0)).collect()
}

fn shares(chosen: impl IntoIterator<Item = u16>) -> HashMap<u16, usize> {
    let mut shares = HashMap::new();
    chosen.into_iter().for_each(|backend| *shares.entry(backend).or_default() += 1);
    shares
}

#[test]
fn no_candidate_is_available() {
    for method in [Method::RoundRobin, Method::LeastConnections, Method::Hash] {
        let gone = Candidate { takes: false, ..candidate(1, 1) };
        for candidates in [&[][..], &[gone]] {
            let choices = Choices::new(method, Families::Separate, candidates);
            assert_eq!(choices.choose(&source(1), true, 0, |_| 0), None);
        }
        let choices = Choices::new(method, Families::Separate, &equal(2));
        assert_eq!(choices.choose(&source(1), false, 0, |_| 0), None, "of the other family");
        assert!(choices.choose(&source(1), true, usize::MAX, |_| 0).is_some());
    }
}

/// nginx's example of smooth weighted round robin: weights 5, 1, 1 give a a b a c a a.
#[test]
fn weighted_turns_are_interleaved() {
    assert_eq!(schedule(&[(0, 5), (1, 1), (2, 1)]), [0, 0, 1, 0, 2, 0, 0]);
    assert_eq!(schedule(&[(7, 1), (8, 1), (9, 1)]), [7, 8, 9]);
    assert!(schedule(&[]).is_empty());
}

#[test]
fn round_robin_takes_turns() {
    let choices = Choices::new(Method::RoundRobin, Families::Separate, &[candidate(1, 20), candidate(2, 10)]);
    let chosen: Vec<u16> =
        (0..9).map(|turn| choices.choose(&source(0), true, turn, |_| 0).unwrap()).collect();
    assert_eq!(chosen, [0, 1, 0, 0, 1, 0, 0, 1, 0]);
}

/// Karger et al., theorem 3.4: balance. With 160 points each, shares differ by a few times a twelfth at most.
#[test]
fn the_ring_distributes_evenly() {
    let shares = shares(hashed(&equal(8), 64_000).into_iter().flatten());
    assert_eq!(shares.len(), 8);
    assert!(shares.values().all(|share| (6000..10_000).contains(share)), "{shares:?}");
}

#[test]
fn the_ring_respects_weights() {
    let shares = shares(hashed(&[candidate(1, 3), candidate(2, 1)], 64_000).into_iter().flatten());
    assert!((43_000..53_000).contains(&shares[&0]), "{shares:?}");
}

/// Karger et al., theorem 3.4: monotony. Sessions move only from a back end that goes, or to one that comes.
#[test]
fn only_sessions_of_a_removed_back_end_move() {
    let all = equal(8);
    let before = hashed(&all, 20_000);
    for gone in 0..8 {
        let mut rest = all.clone();
        rest[gone].takes = false;
        let after = hashed(&rest, 20_000);
        for (old, new) in std::iter::zip(&before, &after) {
            match *old == Some(gone as u16) {
                true => assert_ne!(old, new),
                false => assert_eq!(old, new),
            }
        }
        let elsewhere = shares(
            std::iter::zip(&before, after).filter(|(o, _)| **o == Some(gone as u16)).filter_map(|(_, n)| n),
        );
        assert!(elsewhere.len() >= 6, "its sessions are shared out: {elsewhere:?}");
    }
    let more = hashed(&equal(9), 20_000);
    let moved = std::iter::zip(&before, &more).filter(|(old, new)| old != new);
    assert!(moved.clone().all(|(_, new)| *new == Some(8)), "what translates, moves to the new one");
    // A ninth, give or take a few twelfths of it.
    assert!((1400..3200).contains(&moved.count()));
}

/// The order of the candidates makes no difference.
#[test]
fn the_ring_depends_on_addresses_only() {
    let all = equal(5);
    let turned: Vec<_> = all.iter().copied().rev().collect();
    let names = |candidates: &[Candidate], chosen: Vec<Option<u16>>| {
        chosen.into_iter().map(|one| candidates[usize::from(one.unwrap())].place).collect::<Vec<_>>()
    };
    assert_eq!(names(&all, hashed(&all, 2000)), names(&turned, hashed(&turned, 2000)));
}

proptest! {
    /// In a whole round each back end has had as many turns as its weight says, and never is one behind by
    /// more than one turn of what it should have had (smooth weighted round robin).
    #[test]
    fn a_round_is_fair(weights in prop::collection::vec(1..9u32, 1..8)) {
        let shares: Vec<_> = (0..).zip(weights.iter().copied()).collect();
        let turns = schedule(&shares);
        let total: u32 = weights.iter().sum();
        prop_assert_eq!(turns.len(), total as usize);
        let mut had = vec![0u32; weights.len()];
        for (turn, backend) in (1u32..).zip(turns) {
            had[usize::from(backend)] += 1;
            for (had, weight) in std::iter::zip(&had, &weights) {
                let due = f64::from(turn) * f64::from(*weight) / f64::from(total);
                prop_assert!((f64::from(*had) - due).abs() < weights.len() as f64, "{} of {}", had, due);
            }
        }
        prop_assert_eq!(had, weights);
    }

    /// Nobody with fewer sessions for his weight is passed over.
    #[test]
    fn the_least_loaded_back_end_is_chosen(
        all in prop::collection::vec((1..=100u16, 0..1000u64, any::<bool>()), 0..20),
        turn: usize,
    ) {
        let candidates: Vec<_> = (0..).zip(&all)
            .map(|(last, &(weight, _, takes))| Candidate { takes, ..candidate(last, weight) })
            .collect();
        let choices = Choices::new(Method::LeastConnections, Families::Separate, &candidates);
        let chosen = choices.choose(&source(0), true, turn, |backend| all[usize::from(backend)].1);
        let load = |(weight, sessions, _): &(u16, u64, bool)| *sessions as f64 / f64::from(*weight);
        let least = all.iter().filter(|(.., takes)| *takes).map(load).min_by(f64::total_cmp);
        prop_assert_eq!(chosen.map(|chosen| load(&all[usize::from(chosen)])), least);
        prop_assert!(chosen.is_none_or(|chosen| all[usize::from(chosen)].2));
    }

    /// ProgramSpec that are chosen for by hash never depend on turns or loads.
    #[test]
    fn the_ring_ignores_turns_and_loads(n: u32, turn: usize, load: u64) {
        let choices = Choices::new(Method::Hash, Families::Separate, &equal(3));
        let chosen = choices.choose(&source(n), true, turn, |_| load);
        prop_assert_eq!(chosen, choices.choose(&source(n), true, 0, |_| 0));
    }
}
