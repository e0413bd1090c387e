//! Tests of the parent module.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    /// Agrees with a plain set of the free numbers.
    #[test]
    fn a_bitmap_is_a_set(
        window in (0u32..65536, 0u32..65536),
        ops in prop::collection::vec((any::<u32>(), 0u32..2, 0u32..4), 1..300),
    ) {
        let mut taken = vec![0; WORDS];
        let mut left: BTreeSet<u32> = (0..65536).collect();
        let (first, last) = (window.0.min(window.1), window.0.max(window.1));
        let mut bitmap = PortBitmap(taken.as_mut_slice());
        let mut mine = vec![];
        for (random, odd, what) in ops {
            let from = first + random % (last - first + 1);
            if what == 0 && !mine.is_empty() {
                let number = mine.swap_remove(random as usize % mine.len());
                bitmap.release(number);
                left.insert(number);
            }
            let behind = left.range(from..=last).find(|n| *n % 2 == odd);
            let expected = behind.or_else(|| left.range(first..from).find(|n| *n % 2 == odd)).copied();
            let found = bitmap.find((first, last), from, odd);
            prop_assert_eq!(found, expected);
            if let Some(number) = found {
                prop_assert!(bitmap.is_free(number));
                bitmap.take(number);
                prop_assert!(!bitmap.is_free(number));
                left.remove(&number);
                mine.push(number);
            }
        }
    }
}

/// The last free number is found from any start, and again after it was taken and freed.
#[test]
fn the_last_free_port_is_found() {
    let mut taken = vec![0; WORDS];
    let mut bitmap = PortBitmap(taken.as_mut_slice());
    (0..65536).for_each(|n| bitmap.take(n));
    for odd in 0..2 {
        assert_eq!(bitmap.find((0, 65535), 77, odd), None);
    }
    for last in [0, 1, 63, 64, 4095, 4096, 32768, 65534, 65535] {
        bitmap.release(last);
        for from in [0, 63, 64, 40_000, 65535] {
            assert_eq!(bitmap.find((0, 65535), from, last), Some(last));
            assert_eq!(bitmap.find((0, 65535), from, last + 1), None);
        }
        bitmap.take(last);
    }
}
