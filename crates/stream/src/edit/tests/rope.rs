use proptest::prelude::*;

use crate::{Change, Rope};

/// Returns the bytes of a rope, and how many of the sender they stand for.
fn flat(rope: &Rope, body: &[&[u8]]) -> (Vec<u8>, u32) {
    let bytes = rope.iter(body.iter().copied()).flat_map(|(_, bytes)| bytes.to_vec()).collect();
    (bytes, rope.iter(body.iter().copied()).map(|(part, _)| part.input).sum())
}

/// What a reader returns.
fn read(rope: &Rope, body: &[&[u8]]) -> Vec<u8> {
    let (mut reader, mut body, mut bytes) = (rope.reader(), body.iter().copied(), Vec::new());
    while let Some(chunk) = reader.next_chunk(&mut body) {
        assert!(!chunk.is_empty());
        bytes.extend_from_slice(chunk);
    }
    bytes
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

fn verify(rope: &Rope, body: &[&[u8]], input: &[u8], from: u32) -> Result<(), TestCaseError> {
    let (mut at, mut len) = (0, 0);
    prop_assert_eq!(rope.from, from);
    for (part, bytes) in rope.iter(body.iter().copied()) {
        prop_assert!(part.input >= 1, "{:?}", rope);
        prop_assert_eq!(part.len as usize, bytes.len());
        if part.is_plain() {
            prop_assert_eq!(bytes, &input[at..at + part.input as usize]);
        }
        (at, len) = (at + part.input as usize, len + bytes.len());
    }
    prop_assert_eq!(at, input.len());
    prop_assert_eq!((len, rope.end()), (rope.len(), from.wrapping_add(at as u32)));
    prop_assert_eq!(read(rope, body), flat(rope, body).0);
    Ok(())
}

/// Gaps are short, or as long as bytes of the body that are not copied.
fn raw() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    let gap = prop_oneof![0usize..6, 100usize..160];
    prop::collection::vec((gap, 0usize..4, 0usize..4), 0..6)
}

proptest! {
    /// Two functions change bytes one after the other, and each holds some back. `held`: bytes in front of
    /// those of the packet, whose body has two slices.
    #[test]
    fn a_rope_has_the_changed_bytes_and_all_of_the_input(
        len in 1usize..800, held in 0usize..300, cut in 0usize..500, first in raw(), second in raw(),
        holds in [0usize..900, 0usize..900],
    ) {
        let input: Vec<u8> = (0..len).map(|n| b'a' + (n % 26) as u8).collect();
        let from = 0xffff_ff80;
        let (front, body) = input.split_at(held.min(len));
        let body = <[&[u8]; 2]>::from(body.split_at(cut.min(body.len())));
        let chunks = || body.iter().copied();
        let (mut tail, mut rope, mut out) = (Rope::default(), Rope::default(), Rope::default());
        tail.clear(from);
        tail.push_plain(front);
        rope.set_body(from.wrapping_add(front.len() as u32), (len - front.len()) as u32);
        let (mut expected, mut taken) = (input.clone(), len);
        for (raw, hold) in [(&first, holds[0]), (&second, holds[1])] {
            let (list, buffer) = changes(raw, expected.len());
            out.apply((&tail, &rope), chunks(), &list, &buffer);
            tail.clear(0);
            expected = model(&expected, &list, &buffer);
            prop_assert_eq!(&flat(&out, &body).0, &expected, "{:?} {:?}", list, rope);
            verify(&out, &body, &input[..taken], from)?;
            let hold = hold.min(expected.len());
            let (mut rest, mut saved, mut again) = (Rope::default(), Vec::new(), Rope::default());
            out.split_off(hold, chunks(), &mut rest);
            prop_assert_eq!(rest.bytes(), &expected[hold..]);
            let (mut front, before) = flat(&out, &body);
            let (rest_bytes, left) = flat(&rest, &[]);
            front.extend(rest_bytes);
            prop_assert_eq!(&front, &expected);
            prop_assert_eq!(before + left, taken as u32);
            prop_assert!(rest.is_empty() || rest.from == from.wrapping_add(before));
            rest.write(std::iter::empty(), &mut saved);
            again.read(&saved);
            prop_assert_eq!(&again, &rest);
            let mut whole = out.clone();
            whole.append(&again);
            verify(&whole, &body, &input[..taken], from)?;
            (expected, taken) = (flat(&out, &body).0, before as usize);
            if taken == 0 {
                break;
            }
            std::mem::swap(&mut rope, &mut out);
        }
    }

    /// A tail whose first part is done with in part goes on with the bytes of the next packet.
    #[test]
    fn a_tail_goes_on_in_front_of_the_next_bytes(
        len in 1usize..400, next in 1usize..400, first in raw(), second in raw(), hold in 0usize..500,
    ) {
        let input: Vec<u8> = (0..len + next).map(|n| b'a' + (n % 26) as u8).collect();
        let (mut empty, mut rope, mut out) = (Rope::default(), Rope::default(), Rope::default());
        let (mut tail, mut last) = (Rope::default(), Rope::default());
        let body = [&input[..len]];
        empty.clear(0);
        rope.set_body(0, len as u32);
        let (list, buffer) = changes(&first, len);
        out.apply((&empty, &rope), body.into_iter(), &list, &buffer);
        let all = flat(&out, &body).0;
        let hold = hold.min(all.len());
        out.split_off(hold, body.into_iter(), &mut tail);
        let gone = flat(&out, &body);
        prop_assert_eq!(tail.bytes(), &all[hold..]);
        let body = [&input[len..]];
        rope.set_body(len as u32, next as u32);
        let given = [tail.bytes(), body[0]].concat();
        let (list, buffer) = changes(&second, given.len());
        last.apply((&tail, &rope), body.into_iter(), &list, &buffer);
        let expected = [&all[..hold], &model(&given, &list, &buffer)[..]].concat();
        prop_assert_eq!([gone.0, flat(&last, &body).0].concat(), expected);
        verify(&last, &body, &input[gone.1 as usize..], gone.1)?;
    }
}
