use proptest::prelude::*;

use crate::{Change, Rope};

/// A byte with the sender's bytes that it stands for. A removed range is an entry without a byte.
fn flat(rope: &Rope) -> (Vec<u8>, u32) {
    let bytes = rope.pieces().flat_map(|(_, bytes)| bytes.to_vec()).collect();
    (bytes, rope.pieces().map(|(piece, _)| piece.input).sum())
}

/// Turns any numbers into ordered changes of `len` bytes.
fn changes(raw: &[(usize, usize, usize)], len: usize) -> (Vec<Change>, Vec<u8>) {
    let (mut at, mut list, mut buffer) = (0, Vec::new(), Vec::new());
    for &(gap, removed, inserted) in raw {
        let start = at + gap;
        let end = start + removed;
        if end > len {
            break;
        }
        let new = (buffer.len(), buffer.len() + inserted);
        buffer.extend((0..inserted).map(|n| b'A' + (n % 26) as u8));
        list.push(Change { start, end, new });
        at = end;
    }
    (list, buffer)
}

fn model(bytes: &[u8], list: &[Change], buffer: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    for change in list {
        out.extend_from_slice(&bytes[at..change.start]);
        out.extend_from_slice(&buffer[change.new.0..change.new.1]);
        at = change.end;
    }
    out.extend_from_slice(&bytes[at..]);
    out
}

fn verify(rope: &Rope, input: &[u8], from: u32) -> Result<(), TestCaseError> {
    let mut at = 0;
    prop_assert_eq!(rope.from, from);
    for (piece, bytes) in rope.pieces() {
        prop_assert!(piece.input >= 1, "{:?}", rope);
        if piece.is_plain {
            prop_assert_eq!(bytes, &input[at..at + piece.input as usize]);
        }
        at += piece.input as usize;
    }
    prop_assert_eq!(at, input.len());
    Ok(())
}

fn raw() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    prop::collection::vec((0usize..6, 0usize..4, 0usize..4), 0..6)
}

proptest! {
    /// Two functions change bytes one after the other, and the second one holds some back.
    #[test]
    fn a_rope_has_the_changed_bytes_and_all_of_the_input(
        len in 1usize..30, first in raw(), second in raw(), hold in 0usize..40,
    ) {
        let input: Vec<u8> = (0..len).map(|n| b'a' + (n % 26) as u8).collect();
        let from = 0xffff_fff8;
        let mut rope = Rope::default();
        rope.clear(from);
        rope.push_plain(&input);
        let (mut expected, mut out) = (input.clone(), Rope::default());
        for raw in [&first, &second] {
            let (list, buffer) = changes(raw, expected.len());
            rope.apply(&list, &buffer, &mut out);
            expected = model(&expected, &list, &buffer);
            prop_assert_eq!(flat(&out).0, &expected[..], "{:?} {:?}", list, rope);
            verify(&out, &input, from)?;
            std::mem::swap(&mut rope, &mut out);
        }
        let hold = hold.min(expected.len());
        let mut tail = Rope::default();
        rope.split_off(hold, &mut tail);
        prop_assert_eq!(tail.bytes(), &expected[hold..]);
        let (front, taken) = flat(&rope);
        let (rest, left) = flat(&tail);
        prop_assert_eq!([front, rest].concat(), expected);
        prop_assert_eq!(taken + left, len as u32);
        prop_assert!(tail.is_empty() || tail.from == from.wrapping_add(taken));
        let (mut saved, mut again) = (Vec::new(), Rope::default());
        tail.write(&mut saved);
        again.read(&saved);
        prop_assert_eq!(&again, &tail);
        rope.append(&again);
        verify(&rope, &input, from)?;
    }
}
