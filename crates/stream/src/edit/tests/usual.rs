//! Segments that simply go on, and those that do not.

use crate::{Rope, Splices, Translated};

/// The sender's number of the first byte.
const FIRST: u32 = u32::MAX - 1;
const CARRIES: (u32, u16) = (7, 9);

/// A connection whose receiver has acknowledged nothing, with room for so many bytes in its window.
fn begun(window: u16) -> (Splices, u32) {
    let mut splices = Splices::new(1 << 20, 1);
    let number = splices.insert().expect("room");
    splices.begin(number, 0, FIRST, false);
    splices.acknowledge(number, 0, FIRST, (window, Some(0)));
    (splices, number)
}

fn take(splices: &mut Splices, number: u32, seq: u32, bytes: &[u8]) -> Option<u32> {
    splices.take_next((number, 0), (seq, CARRIES), bytes, 5)
}

fn edit(splices: &mut Splices, number: u32, input: u32, new: &[u8]) {
    let mut rope = Rope::default();
    rope.clear(splices.ends(number, 0).0);
    rope.push_edit(input, new);
    assert!(splices.append_rope(number, 0, &rope, std::iter::empty()));
}

#[test]
fn the_next_bytes_go_on_and_are_kept() {
    let (mut splices, number) = begun(10);
    assert_eq!(take(&mut splices, number, FIRST, b"abcd"), Some(FIRST));
    assert_eq!((splices.next(number, 0), splices.carried(number, 0)), (FIRST.wrapping_add(4), CARRIES));
    assert_eq!(splices.hold_time(number, 0, 6), 1);
    let mut kept = Vec::new();
    assert!(splices.read(number, 0, (FIRST, FIRST.wrapping_add(4)), &mut kept));
    assert_eq!(kept, b"abcd");
    // An acknowledgement carries others, and no bytes move.
    let ack = splices.take_next((number, 0), (FIRST.wrapping_add(4), (8, 1)), b"", 6);
    assert_eq!((ack, splices.carried(number, 0)), (Some(FIRST.wrapping_add(4)), (8, 1)));
    assert_eq!(splices.hold_time(number, 0, 6), 1);
}

#[test]
fn edits_in_front_move_the_number() {
    let (mut splices, number) = begun(10);
    edit(&mut splices, number, 1, b"xyz");
    let end = FIRST.wrapping_add(1);
    assert_eq!(take(&mut splices, number, end, b"a"), None, "the edit waits");
    splices.take_pending(number, 0);
    assert_eq!(take(&mut splices, number, end, b"a"), Some(FIRST.wrapping_add(3)));
    assert_eq!(splices.ends(number, 0), (end.wrapping_add(1), FIRST.wrapping_add(4)));
}

#[test]
fn bytes_are_next_if_none_are_held_back_in_front_of_them() {
    let (mut splices, number) = begun(10);
    assert!(!splices.note_next(number, 1, (FIRST, 4), 3), "not begun");
    assert!(splices.note_next(number, 0, (FIRST, 4), 3));
    assert!(splices.note_next(number, 0, (FIRST, 0), 7));
    assert_eq!(splices.hold_time(number, 0, 8), 5, "an acknowledgement brings no bytes");
    // Functions have got four bytes, and hold them back.
    assert!(!splices.note_next(number, 0, (FIRST.wrapping_add(4), 4), 9));
    assert_eq!(splices.hold_time(number, 0, 9), 6);
}

#[test]
fn numbers_differ_behind_an_edit() {
    let (mut splices, number) = begun(10);
    let same = splices.translate(number, 0, FIRST, (10, Some(0)));
    assert_eq!((same.ack, same.window, same.differs), (FIRST, 10, false));
    assert!(same.pending.is_empty());
    edit(&mut splices, number, 1, b"xyz");
    let Translated { differs, pending, .. } = splices.translate(number, 0, FIRST, (10, Some(0)));
    assert!(differs);
    assert_eq!((pending.from, pending.to), (FIRST, FIRST.wrapping_add(3)));
}

#[test]
fn others_change_nothing() {
    let (mut splices, number) = begun(4);
    let before = format!("{splices:?}");
    for (seq, bytes) in [(FIRST.wrapping_add(1), &b"b"[..]), (FIRST.wrapping_sub(1), b"b"), (FIRST, b"abcde")]
    {
        assert_eq!(take(&mut splices, number, seq, bytes), None);
    }
    assert_eq!(take(&mut splices, number + 1, FIRST, b"a"), None);
    assert_eq!(splices.take_next((number, 1), (FIRST, CARRIES), b"a", 5), None, "not begun");
    assert_eq!(format!("{splices:?}"), before);
    splices.stop(number);
    assert_eq!(take(&mut splices, number, FIRST, b"a"), None, "bytes are not kept any more");
}

#[test]
fn bytes_without_room_change_nothing() {
    let mut splices = Splices::new(0, 1);
    let number = splices.insert().expect("room");
    splices.begin(number, 0, FIRST, false);
    assert_eq!(take(&mut splices, number, FIRST, b"a"), None);
    assert_eq!((splices.next(number, 0), splices.carried(number, 0)), (FIRST, (0, 0)));
    assert_eq!(take(&mut splices, number, FIRST, b""), Some(FIRST));
}
