use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

#[test]
fn the_empty_list_is_not_counted() {
    let mut lists = InternedLists::new(10);
    assert_eq!(lists.get(EMPTY), &[] as &[u32]);
    assert!(!lists.release(EMPTY) && !lists.release(EMPTY));
    assert_eq!((lists.len(), lists.get(99)), (0, &[] as &[u32]));
}

#[test]
fn numbers_are_bounded_and_reused() {
    let mut lists = InternedLists::new(3);
    let first = lists.acquire(0, &[1]).expect("room");
    assert!(lists.acquire(0, &[2]).is_some() && lists.acquire(0, &[3]).is_none());
    assert_eq!(
        lists.acquire(0, &[1]),
        Some(Acquired { number: first.number, is_new: false }),
        "the list exists"
    );
    assert!(!lists.release(first.number) && lists.release(first.number));
    assert_eq!(lists.acquire(0, &[3]), Some(Acquired { number: first.number, is_new: true }));
}

#[test]
fn a_hint_is_invalid_once_a_list_is_freed() {
    let mut lists = InternedLists::new(10);
    let kept = lists.acquire(0, &[1]).expect("room").number;
    let hint = lists.hint(kept);
    assert_eq!((lists.acquire_by_hint(hint), lists.refs(kept)), (Some(kept), 2));
    let other = lists.acquire(0, &[2]).expect("room").number;
    assert_eq!(lists.acquire_by_hint(hint), Some(kept), "new lists do not invalidate the hint");
    assert!(lists.release(other) && lists.acquire_by_hint(hint).is_none(), "a freed list does");
    assert_eq!(lists.refs(kept), 3);
}

proptest! {
    /// Compares any order of acquire and release with a map: equal lists have equal numbers, different lists
    /// have different numbers, and a list exists exactly as long as it is referenced.
    #[test]
    fn behaves_like_a_map(
        steps in prop::collection::vec((any::<bool>(), 0u32..3, prop::collection::vec(0u32..4, 0..9)), 1..400),
    ) {
        let mut lists = InternedLists::new(1000);
        let mut model: HashMap<(u32, Vec<u32>), (u32, u32)> = HashMap::new();
        for (take, tag, list) in steps {
            let key = (tag, list.clone());
            if take {
                let taken = lists.acquire(tag, &list).expect("room");
                let entry = model.entry(key).or_insert((taken.number, 0));
                prop_assert_eq!(taken, Acquired { number: entry.0, is_new: entry.1 == 0 });
                entry.1 += 1;
            } else if let Some(entry) = model.get_mut(&key) {
                entry.1 -= 1;
                prop_assert_eq!(lists.release(entry.0), entry.1 == 0);
                if entry.1 == 0 {
                    model.remove(&key);
                }
            }
            prop_assert_eq!(lists.len(), model.len());
            for ((_, list), (number, _)) in &model {
                prop_assert_eq!(lists.get(*number), &list[..]);
            }
        }
    }
}
