use std::collections::HashSet;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;

const TARGET: u64 = 1 << 60;

/// RFC 4787, REQ-4: the parity of the port is preserved if a port of that parity is free.
#[test]
fn a_port_of_the_same_parity_is_preferred() {
    let (mut search, mut random) = (PortSearch::default(), SmallRng::seed_from_u64(1));
    for like in [5001, 5002] {
        let range = (Ports::Range(1024, u16::MAX), Some(like));
        let port = search.find(TARGET, 0, &mut random, range, Some).expect("all ports are free");
        assert_eq!(port & 1, like & 1);
    }
}

#[test]
fn the_only_free_port_is_found() {
    let (mut search, mut random) = (PortSearch::default(), SmallRng::seed_from_u64(1));
    for free in [1024, 1025, 40_000, 65_535] {
        let is_free = |port| (port == free).then_some(port);
        let range = (Ports::Range(1024, u16::MAX), Some(1024));
        assert_eq!(search.find(TARGET, 0, &mut random, range, is_free), Some(free));
    }
}

#[test]
fn only_ports_of_the_set_are_tried_and_each_of_them_is() {
    let (mut search, mut random) = (PortSearch::default(), SmallRng::seed_from_u64(1));
    let set = NumberSet::new(vec![(10, 12), (21, 21)]).expect("ranges");
    let mut tried = HashSet::new();
    let found = search.find(TARGET, 0, &mut random, (Ports::Set(&set), Some(10)), |port| {
        tried.insert(port);
        None::<()>
    });
    assert_eq!((found, tried), (None, HashSet::from([10, 11, 12, 21])));
}

/// After a search without result, other packets of the same target do not search again at once.
#[test]
fn an_exhausted_target_is_not_searched_again_at_once() {
    let (mut search, mut random) = (PortSearch::default(), SmallRng::seed_from_u64(1));
    let range = (Ports::Range(1, 3), None);
    assert_eq!(search.find(TARGET, 0, &mut random, range, |_| None::<u16>), None);
    assert_eq!(search.find(TARGET, 50, &mut random, range, Some), None);
    assert!(search.find(TARGET + (1 << 59), 50, &mut random, range, Some).is_some(), "another target");
    assert!(search.find(TARGET, 150, &mut random, range, Some).is_some(), "later");
}
