//! Random TCP options: well-formed, as common stacks send them, duplicated, of invalid length, truncated.

use super::{ByteChoices, pools};

/// Maximum number of option bytes.
const ROOM: usize = 40;

/// The bytes between the fixed TCP header and the payload: a multiple of 4, at most 40.
pub(super) fn area(choices: &mut ByteChoices<'_>) -> Vec<u8> {
    let mut area = match choices.below(8) {
        0 | 1 => return Vec::new(),
        2 => syn(choices),
        3 => [&[1, 1][..], &timestamp(choices)].concat(),
        7 => (0..choices.pick(&[4, 12, 40])).map(|_| choices.byte() & 15).collect(),
        _ => list(choices),
    };
    area.truncate(ROOM);
    let full = area.len().next_multiple_of(4);
    let padding = choices.pick(&[0, 1, 0, 8]);
    area.resize(full, padding);
    // More padding than necessary, as some stacks send.
    if choices.one_in(8) && full + 4 <= ROOM {
        area.resize(full + 4, choices.pick(&[0, 1]));
    }
    area
}

/// The options of a SYN of Linux and other stacks.
fn syn(choices: &mut ByteChoices<'_>) -> Vec<u8> {
    let mss = option(2, &number(choices, FieldBits::MSS));
    let wscale = option(3, &number(choices, FieldBits::WSCALE));
    match choices.below(3) {
        0 => [mss, option(4, &[]), timestamp(choices), vec![1], wscale].concat(),
        1 => [mss, vec![1], wscale, vec![1, 1], option(4, &[])].concat(),
        _ => [mss, vec![1], wscale, vec![1, 1], timestamp(choices), option(4, &[]), vec![0, 0]].concat(),
    }
}

fn timestamp(choices: &mut ByteChoices<'_>) -> Vec<u8> {
    option(8, &number(choices, FieldBits::TIMESTAMP))
}

/// Up to six options with padding in between, possibly with an unreadable end.
fn list(choices: &mut ByteChoices<'_>) -> Vec<u8> {
    let mut area = Vec::new();
    for _ in 0..1 + choices.below(6) {
        area.extend(std::iter::repeat_n(1, choices.pick(&[0, 0, 1, 2, 3])));
        let one = any_option(choices);
        // An option without room is left out, or truncated by the header's end.
        if area.len() + one.len() <= ROOM || choices.one_in(6) {
            area.extend(one);
        }
    }
    match choices.below(8) {
        // An end-of-list option with bytes behind it.
        5 => area.extend([&[0][..], &any_option(choices)].concat()),
        // Lengths that are too small or extend beyond the header.
        6 => area.extend([pools::kind(choices), choices.pick(&[0, 1, 41, 255])]),
        // A kind without a length.
        7 => area.push(pools::kind(choices)),
        _ => {}
    }
    area
}

fn any_option(choices: &mut ByteChoices<'_>) -> Vec<u8> {
    let kind = pools::kind(choices);
    let wrong_length = choices.one_in(8);
    let data = match kind {
        _ if wrong_length => pools::option_data(choices, 12),
        2 => number(choices, FieldBits::MSS),
        3 => number(choices, FieldBits::WSCALE),
        4 => Vec::new(),
        8 => number(choices, FieldBits::TIMESTAMP),
        _ => pools::option_data(choices, 38),
    };
    option(kind, &data)
}

fn option(kind: u8, data: &[u8]) -> Vec<u8> {
    [&[kind, data.len() as u8 + 2], data].concat()
}

/// Options with a numeric value, and its width in bits.
struct FieldBits(mmb_lang::FieldId, u16);

impl FieldBits {
    const MSS: Self = Self(mmb_lang::FieldId::TcpOptMss, 16);
    const WSCALE: Self = Self(mmb_lang::FieldId::TcpOptWscale, 8);
    const TIMESTAMP: Self = Self(mmb_lang::FieldId::TcpOptTimestamp, 64);
}

fn number(choices: &mut ByteChoices<'_>, field: FieldBits) -> Vec<u8> {
    let value = pools::number(choices, field.0, field.1);
    value.to_be_bytes()[8 - usize::from(field.1) / 8..].to_vec()
}
