use bytemuck::Zeroable;

use super::*;
use crate::testing::udp_key;

fn session(n: u8) -> SavedSession {
    let key = udp_key();
    SavedSession {
        counts: [[1 << 33, 2], [3, u64::from(n)]],
        keys: [key, key.reversed()],
        rule_list: u32::from(n % 2),
        ..SavedSession::zeroed()
    }
}

fn example(sessions: u8) -> SessionFile {
    let rule = |slot, translates| SavedRule { slot, translates };
    SessionFile {
        owner: "/run/mmb/mmb.sock".into(),
        saved_at: 1_700_000_000_000,
        ports: vec![(0, "lan".into()), (7, "wan".into())],
        rules: vec![(3, "add-stateful in lan nat p".into()), (9, String::new())],
        pools: vec!["p".into()],
        followed: vec![("wan".into(), [192, 0, 2, 1])],
        saved: SavedSessions {
            sessions: (0..sessions).map(session).collect(),
            lists: vec![vec![], vec![rule(3, true), rule(9, false)]],
            left_out: 0,
        },
    }
}

fn written(file: &SessionFile) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.write(&mut bytes).unwrap();
    bytes
}

fn error(bytes: &[u8]) -> SessionFileError {
    SessionFile::read(bytes).map(|_| ()).unwrap_err()
}

/// Computes the checksum of what was changed.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let content = bytes.len() - CHECKSUM;
    let checksum = SipHasher24::new().hash(&bytes[..content]);
    bytes[content..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn a_file_is_read_as_it_was_written() {
    for sessions in [0, 1, 5] {
        let file = example(sessions);
        let read = SessionFile::read(&written(&file)).unwrap();
        assert_eq!((&read.owner, read.saved_at, &read.ports), (&file.owner, file.saved_at, &file.ports));
        assert_eq!((&read.rules, &read.pools, &read.followed), (&file.rules, &file.pools, &file.followed));
        assert_eq!(read.saved.lists, file.saved.lists);
        let bytes = |file: &SessionFile| bytemuck::cast_slice::<_, u8>(&file.saved.sessions).to_vec();
        assert_eq!(bytes(&read), bytes(&file));
    }
}

#[test]
fn a_truncated_file_is_refused() {
    let bytes = written(&example(2));
    for length in 0..bytes.len() {
        let expected =
            if length < MAGIC.len() { SessionFileError::Foreign } else { SessionFileError::Damaged };
        assert_eq!(error(&bytes[..length]), expected, "{length} bytes");
    }
    assert_eq!(error(&[&bytes[..], b"x"].concat()), SessionFileError::Damaged);
}

#[test]
fn a_changed_byte_is_found() {
    let bytes = written(&example(2));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(SessionFile::read(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn other_versions_and_machines_are_named() {
    let bytes = written(&example(1));
    let changed = |at: usize, new: [u8; 4]| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&new);
        error(&bytes)
    };
    assert_eq!(changed(8, 7u32.to_le_bytes()), SessionFileError::Version(7));
    assert_eq!(changed(12, BYTE_ORDER.swap_bytes().to_ne_bytes()), SessionFileError::Machine);
    assert_eq!(changed(16, 999u32.to_le_bytes()), SessionFileError::Machine);
    assert_eq!(error(b"#!/bin/sh\necho something else, and longer than a head\n"), SessionFileError::Foreign);
    let text = SessionFileError::Version(7).to_string();
    assert_eq!(text, "its format is of version 7, and this program reads version 1");
}

/// The checksum does not tell who wrote the file: numbers are checked, and memory does not follow them.
#[test]
fn wrong_numbers_are_refused() {
    let mut file = example(1);
    file.saved.sessions[0].rule_list = 2;
    assert_eq!(error(&written(&file)), SessionFileError::Damaged, "no such list");
    let mut file = example(1);
    file.saved.sessions[0].keys[0].kind = 0;
    assert_eq!(error(&written(&file)), SessionFileError::Damaged, "no packet has this key");
    let empty = written(&SessionFile { saved: SavedSessions::default(), ..example(0) });
    // The last number in front of the checksum is that of the sessions, the one before that of the lists.
    for at in [CHECKSUM + 4, CHECKSUM + 8] {
        let mut bytes = empty.clone();
        let at = bytes.len() - at;
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(error(&with_checksum(bytes)), SessionFileError::Damaged);
    }
}
