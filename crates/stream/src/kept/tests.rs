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
            (0usize..3000).prop_map(Step::Append),
            (0usize..20_000).prop_map(Step::Acknowledge),
            (0usize..20_000, 0usize..5000, any::<u8>()).prop_map(|(from, len, fill)| Step::Repeat(from, len, fill)),
        ], 0..40),
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
