//! The parts of a datagram against a naive model: the fragments that have come, and a set of blocks.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn part(start: u16, end: u16) -> Extent {
    Extent { start, end, is_last: false }
}

fn last(start: u16, end: u16) -> Extent {
    Extent { start, end, is_last: true }
}

#[test]
fn parts_in_any_order_complete_a_datagram() {
    let mut coverage = Coverage::default();
    for (extent, expected) in [
        (last(6, 7), Addition::Part),
        (part(0, 3), Addition::Part),
        (part(0, 3), Addition::Duplicate),
        (last(6, 7), Addition::Duplicate),
        (part(6, 7), Addition::Overlap),
        (part(2, 4), Addition::Overlap),
        (part(1, 2), Addition::Overlap),
        (part(7, 8), Addition::Overlap),
        (last(3, 6), Addition::Overlap),
        (part(3, 6), Addition::Complete),
    ] {
        assert_eq!(coverage.add(extent), expected, "{extent:?}");
    }
}

#[test]
fn the_last_fragment_ends_behind_all_others() {
    let mut coverage = Coverage::default();
    assert_eq!(coverage.add(part(3, 9)), Addition::Part);
    assert_eq!(coverage.add(last(0, 3)), Addition::Overlap);
    assert_eq!(coverage.add(last(9, 10)), Addition::Part);
    assert_eq!(coverage.add(part(0, 3)), Addition::Complete);
}

/// A datagram of maximum length, in order, in fragments of minimum length.
#[test]
fn memory_does_not_grow_with_the_fragments() {
    let mut coverage = Coverage::default();
    for start in 0..8190 {
        assert_eq!(coverage.add(part(start, start + 1)), Addition::Part);
    }
    assert_eq!(coverage.add(last(8190, 8191)), Addition::Complete);
}

/// More gaps than there is memory for: refused, like an overlap.
#[test]
fn gaps_are_limited() {
    let mut coverage = Coverage::default();
    let added = (0..40).map(|i| coverage.add(part(i * 2, i * 2 + 1)));
    assert_eq!(added.filter(|addition| *addition == Addition::Part).count(), PARTS);
}

/// Parts that are merged to make room: a fragment of the merged extent has never come.
#[test]
fn a_fragment_with_the_extent_of_merged_ones_overlaps() {
    let mut coverage = Coverage::default();
    for start in [0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30] {
        assert_eq!(coverage.add(part(start, start + 1)), Addition::Part);
    }
    assert_eq!(coverage.add(part(0, 3)), Addition::Overlap);
    assert_eq!(coverage.add(part(4, 5)), Addition::Duplicate);
}

proptest! {
    #[test]
    fn coverage_agrees_with_the_model(extents in prop::collection::vec((0..24u16, 1..4u16, prop::bool::weighted(0.1)), 1..60)) {
        let mut coverage = Coverage::default();
        let (mut blocks, mut accepted, mut total) = (BTreeSet::new(), Vec::new(), None);
        for (start, length, is_last) in extents {
            let extent = Extent { start, end: start + length, is_last };
            let own: BTreeSet<u16> = (start..start + length).collect();
            let contradicts = match total {
                Some(total) => is_last || extent.end > total,
                None => is_last && blocks.last().is_some_and(|block| *block >= extent.end),
            };
            let addition = coverage.add(extent);
            match addition {
                Addition::Duplicate => prop_assert!(accepted.contains(&extent)),
                Addition::Overlap => {
                    let is_crowded = blocks.len() >= PARTS;
                    prop_assert!(!own.is_disjoint(&blocks) || contradicts || is_crowded);
                }
                Addition::Part | Addition::Complete => {
                    prop_assert!(own.is_disjoint(&blocks) && !contradicts);
                    blocks.extend(own);
                    total = if is_last { Some(extent.end) } else { total };
                    accepted.push(extent);
                    let is_complete = total.is_some_and(|total| blocks.len() == usize::from(total));
                    prop_assert_eq!(addition == Addition::Complete, is_complete);
                }
            }
        }
    }
}
