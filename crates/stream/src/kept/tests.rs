use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Acknowledge(usize),
    Repeat(usize, usize, u8),
}

proptest! {
    /// Against a model that keeps all bytes of the stream.
    #[test]
    fn kept_bytes_are_those_that_went_on(
        initial in prop_oneof![any::<u32>(), (u32::MAX - 5000)..u32::MAX],
        steps in prop::collection::vec(prop_oneof![
            (0usize..12_000).prop_map(Step::Append),
            (0usize..200_000).prop_map(Step::Acknowledge),
            (0usize..300_000, 0usize..5000, any::<u8>()).prop_map(|(from, len, fill)| Step::Repeat(from, len, fill)),
        ], 0..90),
    ) {
        let mut kept = KeptBytes::new(1 << 20, 1);
        let number = kept.insert().unwrap();
        prop_assert!(kept.insert().is_none());
        let (mut stream, mut acknowledged): (Vec<u8>, usize) = (Vec::new(), 0);
        let seq = |at: usize| initial.wrapping_add(at as u32);
        for step in steps {
            match step {
                Step::Append(len) => {
                    let bytes: Vec<u8> = (0..len).map(|n| (stream.len() + n * 7) as u8).collect();
                    prop_assert!(kept.append(number, 1, seq(stream.len()), &bytes));
                    stream.extend(bytes);
                }
                Step::Acknowledge(at) => {
                    let at = at.min(stream.len());
                    kept.acknowledge(number, 1, seq(at));
                    acknowledged = acknowledged.max(at);
                }
                Step::Repeat(from, len, fill) => {
                    let sent = vec![fill; len];
                    let mut expected = sent.clone();
                    for (n, byte) in expected.iter_mut().enumerate() {
                        if from + n >= acknowledged && let Some(first) = stream.get(from + n) {
                            *byte = *first;
                        }
                    }
                    prop_assert_eq!(kept.differs(number, 1, seq(from), &sent), sent != expected);
                    let mut restored = sent;
                    kept.restore(number, 1, seq(from), &mut restored);
                    prop_assert_eq!(restored, expected);
                }
            }
            prop_assert!(kept.blocks() <= (stream.len() - acknowledged) / BLOCK + 2);
        }
        kept.remove(number);
        prop_assert_eq!(kept.blocks(), 0);
    }
}

#[test]
fn without_room_a_direction_forgets() {
    let mut kept = KeptBytes::new(2 * BLOCK, 2);
    let numbers = [kept.insert().unwrap(), kept.insert().unwrap()];
    assert!(kept.append(numbers[0], 0, 10, &[1; BLOCK + 1]));
    assert!(!kept.append(numbers[1], 0, 10, b"x"));
    assert!(kept.differs(numbers[0], 0, 10, b"x") && !kept.differs(numbers[1], 0, 10, b"y"));
    assert!(!kept.append(numbers[0], 0, 11 + BLOCK as u32, &[1; BLOCK]));
    assert_eq!(kept.blocks(), 0);
    // Bytes that do not follow begin anew.
    assert!(kept.append(numbers[0], 0, 10, b"ab") && kept.append(numbers[0], 0, 20, b"cd"));
    assert!(!kept.differs(numbers[0], 0, 10, b"xy") && kept.differs(numbers[0], 0, 20, b"xy"));
    for number in numbers {
        kept.remove(number);
    }
    kept.remove(0);
    assert_eq!((kept.blocks(), kept.insert().is_some()), (0, true));
}

/// A sender chooses what it repeats: bytes in the middle of many are found in a few steps.
#[test]
fn no_search_walks_along_all_blocks() {
    let blocks = MOST as usize / BLOCK;
    let mut kept = KeptBytes::new(MOST as usize, 1);
    let number = kept.insert().unwrap();
    let seq = |block: usize| (u32::MAX - 9).wrapping_add((block * BLOCK) as u32);
    // Some are acknowledged, and their blocks used again, so that links would be wrong if they stayed.
    for (n, acknowledged) in (0..2 * blocks).map(|n| (n, (n + 100).saturating_sub(blocks) / 70 * 70)) {
        assert!(kept.append(number, 0, seq(n), &[n as u8; BLOCK]), "{n}");
        kept.acknowledge(number, 0, seq(acknowledged));
    }
    let flow = kept.flow(number, 0).unwrap();
    let kept_blocks = flow.to.wrapping_sub(flow.from) / BLOCK as u32;
    assert!(kept_blocks > 40 * SKIP, "{kept_blocks}");
    for n in 2 * blocks - kept_blocks as usize..2 * blocks {
        let (block, base) = kept.seek(&flow, seq(n));
        assert!(seq(n).wrapping_sub(base) < (SKIP + 1) * BLOCK as u32, "{n}");
        assert_eq!(kept.blocks[block as usize], [((base.wrapping_sub(seq(0))) / BLOCK as u32) as u8; BLOCK]);
        assert!(!kept.differs(number, 0, seq(n), &[n as u8; BLOCK]), "{n}");
    }
}

/// A connection needs a number only while it has kept bytes.
#[test]
fn a_connection_may_have_no_kept_bytes() {
    let mut kept = KeptBytes::new(1 << 20, 1);
    let number = kept.insert().unwrap();
    assert!(kept.is_empty(number) && kept.append(number, 1, 7, b"abc") && !kept.is_empty(number));
    assert!(kept.covers(number, 1, 8, 2) && !kept.covers(number, 1, 6, 2) && !kept.covers(number, 1, 8, 3));
    kept.acknowledge(number, 1, 10);
    assert!(kept.is_empty(number) && !kept.covers(number, 1, 8, 1));
}
