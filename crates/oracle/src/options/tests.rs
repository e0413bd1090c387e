//! Tests of the parent module.

use super::*;

/// The options of a Linux SYN: MSS 1460, SACK permitted, timestamps, NOP, window scale 7.
const SYN: [u8; 20] = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];

fn edit_area(lines: &[&str], area: &[u8]) -> Result<Option<Vec<u8>>, TooLong> {
    let rules: Vec<Rule> = lines
        .iter()
        .map(|line| match mmb_lang::parse_line(&format!("add all {line}")) {
            Ok(Some(mmb_lang::Command::Add(rule))) => rule,
            other => panic!("{line}: {other:?}"),
        })
        .collect();
    edited(area, &rules.iter().collect::<Vec<_>>())
}

fn becomes(lines: &[&str], area: &[u8], expected: &[u8]) {
    assert_eq!(edit_area(lines, area), Ok(Some(expected.to_vec())), "{lines:?}");
}

fn kinds(area: &[u8]) -> Vec<u8> {
    walk(area).iter().map(|option| option.kind).collect()
}

#[test]
fn the_walk_ends_at_unreadable_bytes() {
    assert_eq!(kinds(&SYN), [2, 4, 8, 3]);
    assert_eq!(kinds(&[1, 1, 1, 1]), []);
    assert_eq!(kinds(&[4, 2, 0, 4, 2, 0, 0, 0]), [4], "behind the end of the list");
    assert_eq!(kinds(&[4, 2, 3, 0, 4, 2, 0, 0]), [4], "length 0");
    assert_eq!(kinds(&[4, 2, 3, 1, 4, 2, 0, 0]), [4], "length 1");
    assert_eq!(kinds(&[4, 2, 3, 7, 4, 2, 0, 0]), [4], "beyond the header");
    assert_eq!(kinds(&[4, 2, 3, 6, 4, 2, 0, 0]), [4, 3], "up to the end of the header");
    assert_eq!(kinds(&[1, 1, 1, 8]), [], "a kind without a length");
}

#[test]
fn values_of_the_same_length_are_written_in_place() {
    let mut changed = SYN;
    changed[2..4].copy_from_slice(&1200_u16.to_be_bytes());
    becomes(&["mod tcp-opt-mss 1200"], &SYN, &changed);
    becomes(&["add tcp-opt-mss 1200"], &SYN, &changed);
    becomes(&["mod tcp-opt-mss 9", "mod tcp-opt-mss 1200"], &SYN, &changed);
    let twice = [2, 4, 0, 1, 0, 2, 9, 9];
    becomes(&["mod tcp-opt-mss 5"], &twice, &[2, 4, 0, 5, 0, 2, 9, 9]);
    let odd = [1, 2, 4, 0, 1, 2, 4, 0, 2, 1, 3, 0];
    becomes(&["mod tcp-opt-mss 5"], &odd, &[1, 2, 4, 0, 5, 2, 4, 0, 5, 1, 3, 0]);
    assert_eq!(edit_area(&["mod tcp-opt-mss 1460", "strip tcp-opt 19"], &SYN), Ok(None));
    assert_eq!(edit_area(&["mod tcp-opt 254 0x00"], &SYN), Ok(None));
    assert_eq!(edit_area(&["strip tcp-opt-wscale", "add tcp-opt-wscale 7"], &SYN), Ok(None));
}

#[test]
fn removed_options_take_their_padding_along() {
    becomes(&["strip tcp-opt-wscale"], &SYN, &SYN[..16]);
    becomes(&["strip tcp-opt-mss strip tcp-opt-wscale"], &SYN, &[&SYN[4..16], &[]].concat());
    becomes(&["strip ! tcp-opt-mss strip ! tcp-opt-wscale"], &SYN, &[2, 4, 5, 0xb4, 1, 3, 3, 7]);
    becomes(&["strip all"], &SYN, &[]);
    becomes(&["strip tcp-opt"], &[1, 1, 4, 2], &[]);
    becomes(&["strip tcp-opt-sackp"], &[4, 2, 1, 1, 2, 4, 0, 9, 4, 2, 3, 77], &[1, 1, 2, 4, 0, 9, 0, 0]);
    becomes(&["strip tcp-opt 2"], &[2, 3, 0, 3, 3, 1, 0, 9], &[3, 3, 1, 0]);
}

#[test]
fn added_options_are_appended() {
    becomes(&["add tcp-opt-mss 1460 add tcp-opt-sackp"], &[], &[2, 4, 5, 0xb4, 4, 2, 0, 0]);
    becomes(&["add tcp-opt 254 0xf989"], &[1, 3, 3, 7], &[1, 3, 3, 7, 254, 4, 0xf9, 0x89]);
    becomes(&["add tcp-opt-sackp"], &[1, 1, 1, 1], &[4, 2, 0, 0]);
    becomes(&["add tcp-opt-sackp", "strip tcp-opt-wscale"], &[1, 3, 3, 7], &[4, 2, 0, 0]);
    becomes(&["strip tcp-opt-mss add tcp-opt-mss 9"], &SYN, &[&SYN[4..], &[2, 4, 0, 9]].concat());
    becomes(
        &["add tcp-opt-timestamp 4294967298"],
        &[3, 3, 7, 0],
        &[3, 3, 7, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0],
    );
    becomes(&["mod tcp-opt-sack 0x0102", "mod tcp-opt-sack 0x01"], &[5, 2, 1, 0], &[5, 3, 1, 0]);
}

#[test]
fn options_are_limited_to_forty_bytes() {
    let twenty = "add tcp-opt 254 0x000000000000000000000000000000000000";
    assert_eq!(edit_area(&[twenty], &SYN).unwrap().unwrap().len(), 40);
    assert_eq!(edit_area(&[twenty, "add tcp-opt 253"], &SYN), Err(TooLong));
    assert_eq!(
        edit_area(&[twenty, "add tcp-opt 253", "strip tcp-opt-sackp"], &SYN).unwrap().unwrap().len(),
        40
    );
}
