use super::*;

/// Type and body of each block; panics unless both lengths of a block agree.
fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let (kind, length) = (word(file), word(&file[4..]) as usize);
        assert_eq!(word(&file[length - 4..]) as usize, length);
        assert!(length.is_multiple_of(4));
        blocks.push((kind, &file[8..length - 4]));
        file = &file[length..];
    }
    blocks
}

#[test]
fn packets_have_interface_time_direction_and_comment() {
    let writer = PcapngWriter::new(vec![(PortId(3), "lan".to_owned()), (PortId(7), "wan".to_owned())]);
    let mut file = Vec::new();
    writer.begin(&mut file).unwrap();
    let time = 0x1234_5678_9abc_def0;
    writer.packet(&mut file, (PortId(7), Direction::Out), time, (b"abcde", 9), "dropped: acl").unwrap();
    writer.packet(&mut file, (PortId(5), Direction::In), time, (b"abcd", 4), "").unwrap();
    writer.end(&mut file, 6, "").unwrap();
    let blocks = blocks(&file);
    let kinds: Vec<_> = blocks.iter().map(|(kind, _)| *kind).collect();
    // Section, three interfaces, two packets, statistics (draft-ietf-opsawg-pcapng, 4.1 to 4.6).
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 1, 6, 6, 5]);
    // Interface 1, high and low half of the time, captured and original length, bytes with padding, comment,
    // flags (outbound), end of options.
    let mut expected = Vec::new();
    for word in [1u32, 0x1234_5678, 0x9abc_def0, 5, 9] {
        expected.extend(word.to_le_bytes());
    }
    expected.extend(b"abcde\0\0\0\x01\0\x0c\0dropped: acl\x02\0\x04\0\x02\0\0\0\0\0\0\0");
    assert_eq!(blocks[4].1, expected);
    // A port without a name has the last interface.
    assert_eq!(blocks[5].1[..4], [2, 0, 0, 0]);
    assert!(blocks[6].1.ends_with(b"\x05\0\x08\0\x06\0\0\0\0\0\0\0\0\0\0\0"));
}
