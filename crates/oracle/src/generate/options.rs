//! TCP options of frames: well-formed, as the stacks send them, twice over, of a wrong length, cut short.

use super::{Dice, pools};

/// Most bytes of options.
const ROOM: usize = 40;

/// The bytes between the fixed TCP header and the payload: a multiple of 4, at most 40.
pub(super) fn area(dice: &mut Dice<'_>) -> Vec<u8> {
    let mut area = match dice.below(8) {
        0 | 1 => return Vec::new(),
        2 => syn(dice),
        3 => [&[1, 1][..], &timestamp(dice)].concat(),
        7 => (0..dice.pick(&[4, 12, 40])).map(|_| dice.byte() & 15).collect(),
        _ => list(dice),
    };
    area.truncate(ROOM);
    let full = area.len().next_multiple_of(4);
    let padding = dice.pick(&[0, 1, 0, 8]);
    area.resize(full, padding);
    // More padding than needed, as some stacks have.
    if dice.one_in(8) && full + 4 <= ROOM {
        area.resize(full + 4, dice.pick(&[0, 1]));
    }
    area
}

/// What Linux puts in a SYN, or other stacks in theirs.
fn syn(dice: &mut Dice<'_>) -> Vec<u8> {
    let mss = option(2, &number(dice, FieldBits::MSS));
    let wscale = option(3, &number(dice, FieldBits::WSCALE));
    match dice.below(3) {
        0 => [mss, option(4, &[]), timestamp(dice), vec![1], wscale].concat(),
        1 => [mss, vec![1], wscale, vec![1, 1], option(4, &[])].concat(),
        _ => [mss, vec![1], wscale, vec![1, 1], timestamp(dice), option(4, &[]), vec![0, 0]].concat(),
    }
}

fn timestamp(dice: &mut Dice<'_>) -> Vec<u8> {
    option(8, &number(dice, FieldBits::TIMESTAMP))
}

/// Up to six options with padding between them, and perhaps an end that cannot be read.
fn list(dice: &mut Dice<'_>) -> Vec<u8> {
    let mut area = Vec::new();
    for _ in 0..1 + dice.below(6) {
        area.extend(std::iter::repeat_n(1, dice.pick(&[0, 0, 1, 2, 3])));
        let one = any_option(dice);
        // An option that has no room is left out, or cut short by the header's end.
        if area.len() + one.len() <= ROOM || dice.one_in(6) {
            area.extend(one);
        }
    }
    match dice.below(8) {
        // An end, and options behind it that are none.
        5 => area.extend([&[0][..], &any_option(dice)].concat()),
        // Lengths that are too short, or beyond the header.
        6 => area.extend([pools::kind(dice), dice.pick(&[0, 1, 41, 255])]),
        // A kind without a length.
        7 => area.push(pools::kind(dice)),
        _ => {}
    }
    area
}

fn any_option(dice: &mut Dice<'_>) -> Vec<u8> {
    let kind = pools::kind(dice);
    let wrong_length = dice.one_in(8);
    let data = match kind {
        _ if wrong_length => pools::option_data(dice, 12),
        2 => number(dice, FieldBits::MSS),
        3 => number(dice, FieldBits::WSCALE),
        4 => Vec::new(),
        8 => number(dice, FieldBits::TIMESTAMP),
        _ => pools::option_data(dice, 38),
    };
    option(kind, &data)
}

fn option(kind: u8, data: &[u8]) -> Vec<u8> {
    [&[kind, data.len() as u8 + 2], data].concat()
}

/// Options whose value is a number, with its bits.
struct FieldBits(mmb_lang::FieldId, u16);

impl FieldBits {
    const MSS: Self = Self(mmb_lang::FieldId::TcpOptMss, 16);
    const WSCALE: Self = Self(mmb_lang::FieldId::TcpOptWscale, 8);
    const TIMESTAMP: Self = Self(mmb_lang::FieldId::TcpOptTimestamp, 64);
}

fn number(dice: &mut Dice<'_>, field: FieldBits) -> Vec<u8> {
    let value = pools::number(dice, field.0, field.1);
    value.to_be_bytes()[8 - usize::from(field.1) / 8..].to_vec()
}
