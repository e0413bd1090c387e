//! Tests of the parent module.

use super::*;

fn frames() -> Vec<Frame> {
    (0..50u64)
        .map(|i| Frame {
            time_ns: 1_700_000_000_123_456_789 + i * 1_000,
            data: vec![i as u8; 14 + i as usize * 40],
            missing: if i % 7 == 0 { 9 } else { 0 },
        })
        .collect()
}

fn write(path: &Path) {
    let mut writer = Writer::create(path).expect("create");
    for frame in frames() {
        writer.write(&frame).expect("write");
    }
    writer.finish().expect("finish");
}

fn read(path: &Path) -> (Vec<Frame>, End) {
    let mut reader = Reader::open(path).expect("open");
    let mut frames = Vec::new();
    loop {
        match reader.next_frame() {
            Ok(frame) => frames.push(frame),
            Err(end) => return (frames, end),
        }
    }
}

#[test]
fn written_captures_are_read_back() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("a.pcap");
    write(&path);
    let (read, end) = read(&path);
    assert_eq!(read, frames());
    assert!(matches!(end, End::Clean));
}

/// 2^32 seconds are over on 7 February 2106. pcapng has 64 bits.
#[test]
fn times_after_2106_are_kept_or_refused() {
    let dir = tempfile::tempdir().expect("tempdir");
    let late = |n: u64| Frame {
        time_ns: (u64::from(u32::MAX) + n) * 1_000_000_000 + 7,
        data: vec![5; 61],
        missing: 3,
    };
    let path = dir.path().join("a.pcapng");
    let mut writer = Writer::create(&path).expect("create");
    (0..3).for_each(|n| writer.write(&late(n)).expect("write"));
    frames().iter().for_each(|frame| writer.write(frame).expect("write"));
    writer.finish().expect("finish");
    let (read, end) = read(&path);
    assert_eq!(read, [(0..3).map(late).collect(), frames()].concat());
    assert!(matches!(end, End::Clean), "{end:?}");
    let mut writer = Writer::create(&dir.path().join("a.pcap")).expect("create");
    writer.write(&late(0)).expect("write");
    assert!(writer.write(&late(1)).expect_err("no room").to_string().contains("*.pcapng"));
}

#[test]
fn a_truncated_file_yields_the_readable_frames_and_the_cause() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("a.pcap");
    write(&path);
    let whole = std::fs::read(&path).expect("read");
    for cut in [1, 7, 16, 30, 1_000] {
        std::fs::write(&path, &whole[..whole.len() - cut]).expect("write");
        let (read, end) = read(&path);
        assert!(read.len() < 50 && frames().starts_with(&read), "cut {cut}: {}", read.len());
        assert!(matches!(end, End::Damaged(_)), "cut {cut}");
    }
}

#[test]
fn other_files_are_rejected() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("a.pcap");
    for garbage in [&b""[..], b"abc", &[0u8; 4096]] {
        std::fs::write(&path, garbage).expect("write");
        assert!(Reader::open(&path).is_err());
    }
}

/// A block of pcapng.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (12 + body.len() as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// draft-ietf-opsawg-pcapng, sections 4.2 (`if_name` is option 2) and 4.3 (`epb_flags` is option 2).
#[test]
fn the_interface_and_the_direction_of_a_packet_are_read() {
    let mut file = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    file.extend(block(1, &[&words(&[1, 0, 2 | 4 << 16])[..], b"left", &words(&[0])].concat()));
    file.extend(block(1, &words(&[1, 0])));
    let packet = |interface, flags: &[u32]| {
        block(6, &[&words(&[interface, 0, 0, 4, 4])[..], b"data", &words(flags)].concat())
    };
    file.extend(packet(0, &[2 | 4 << 16, 1, 0]));
    file.extend(packet(0, &[2 | 4 << 16, 2, 0]));
    file.extend(packet(0, &[]));
    file.extend(packet(1, &[2 | 4 << 16, 2, 0]));
    let mut reader = Reader::new(std::io::Cursor::new(file)).expect("a capture");
    for expected in [Some(("left", false)), Some(("left", true)), Some(("left", false)), None] {
        assert_eq!(reader.next_frame().expect("a frame").data, b"data");
        assert_eq!(reader.interface(), expected);
    }
    assert!(matches!(reader.next_frame(), Err(End::Clean)));
}
