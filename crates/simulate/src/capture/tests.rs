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
