use std::io::Write;
use std::time::SystemTime;

use mmb_nf::Harness;
use mmb_packet::build::{Frame, Ip4, Tcp, Udp};

use super::known::KnownDigests;
use super::*;

/// FIPS 180-4, example of `abc`.
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
/// RFC 3720, B.4: the CRC of 32 bytes of zeros is aa36918a, sent with its least significant byte first.
const ZEROS: &str = "8a9136aa";

fn report(harness: &Harness) -> String {
    let report = harness.program().instance("d").unwrap().report();
    report.into_iter().take(3).map(|(name, value)| format!("{name} {value}; ")).collect()
}

fn segment(seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let net = Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]);
    Frame::new(net, Tcp { seq, flags, ..Tcp::new(1000, 80) }).payload(payload).build()
}

fn with_known(algorithm: &str, known: &str) -> Harness {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(known.as_bytes()).unwrap();
    let lines = format!("nf add d digest {algorithm} known {}\nchain add c d", file.path().display());
    Harness::new(crate::registry(), &lines).unwrap()
}

#[test]
fn streams_are_compared_with_known_ones() {
    let known = format!("# a comment\n\n{ABC}  abc.txt\n");
    for (payload, found) in [(b"abc", 1), (b"abd", 0)] {
        let mut harness = with_known("sha256", &known);
        harness
            .send("c", &[segment(9, 2, b""), segment(12, 17, &payload[2..]), segment(10, 16, &payload[..2])]);
        harness.released();
        assert_eq!(report(&harness), format!("streams 1; bytes 3; known streams {found}; "));
        // It counts once.
        harness.end_all();
        assert_eq!(report(&harness), format!("streams 1; bytes 3; known streams {found}; "));
    }
}

#[test]
fn the_crc_is_that_of_iscsi() {
    let mut harness = with_known("crc32c", ZEROS);
    let net = Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]);
    let datagram = |len| Frame::new(net.clone(), Udp::new(1000, 53)).payload(vec![0; len]).build();
    harness.send("c", &[datagram(10), datagram(22)]);
    harness.end_all();
    assert_eq!(report(&harness), "streams 1; bytes 32; known streams 1; ");
}

#[test]
fn known_digests_are_reloaded() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = format!("nf add d digest crc32c known {}\nchain add c d", file.path().display());
    let mut harness = Harness::new(crate::registry(), &lines).unwrap();
    let instance = harness.program().instance("d").unwrap().clone();
    std::fs::write(file.path(), ZEROS).unwrap();
    instance.set(&["reload"]).unwrap();
    std::fs::write(file.path(), "x").unwrap();
    assert!(instance.set(&["reload"]).unwrap_err().to_string().starts_with("line 1 of "));
    let net = Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]);
    harness.send("c", &[Frame::new(net, Udp::new(1000, 53)).payload(vec![0; 32]).build()]);
    harness.end_all();
    assert_eq!(report(&harness), "streams 1; bytes 32; known streams 1; ");
    assert!(instance.set(&["faster"]).is_err());
}

#[test]
fn lines() {
    let mut digest = [0; 32];
    digest[..4].copy_from_slice(&[0x8a, 0x91, 0x36, 0xaa]);
    let key = mmb_nf::testing::key_of_frame(&segment(1, 16, b""));
    let mut one = Finished {
        digest,
        algorithm: Algorithm::Crc32c,
        bytes: 32,
        direction: Direction::Reverse,
        key,
        at: 0,
        is_whole: true,
        is_known: None,
    };
    let mut text = String::new();
    line(&mut text, SystemTime::UNIX_EPOCH, &one);
    (one.is_whole, one.is_known, one.direction) = (false, Some(true), Direction::Forward);
    line(&mut text, SystemTime::UNIX_EPOCH, &one);
    let begin = "1970-01-01T00:00:00.000Z digest: crc32c 8a9136aa tcp 10.0.0.1:1000 -> 10.0.0.2:80";
    let expected = format!("{begin} reverse 32 bytes\n{begin} forward 32 bytes known without end\n");
    assert_eq!(text, expected);
}

#[test]
fn arguments() {
    let refused = |line: &str| {
        let lines = format!("nf add d digest {line}");
        Harness::new(crate::registry(), &lines).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refused("").contains("`sha256` or `crc32c`"));
    assert!(refused("md5").contains("md5"));
    assert!(refused("sha256 known").contains("needs a path"));
    assert!(refused("sha256 known /nowhere/x").contains("/nowhere/x"));
    assert!(refused("sha256 sideways").contains("sideways"));
    assert_eq!(refused("sha256 forward"), "");
    let wrong = |text| KnownDigests::parse(text, 4).err();
    assert_eq!([wrong("8a9136aa\n8a9136"), wrong("8a9136ag"), wrong("")], [Some(2), Some(1), None]);
}

#[test]
fn numbers_are_used_again() {
    let mut slab = Slab::default();
    let session = || Session {
        key: mmb_nf::testing::key_of_frame(&segment(1, 16, b"")),
        streams: std::array::from_fn(|_| Stream::new(Algorithm::Crc32c)),
    };
    assert_eq!([slab.insert(session()), slab.insert(session())], [Some(1), Some(2)]);
    slab.remove(1);
    slab.remove(1);
    slab.remove(0);
    assert!(slab.get(1).is_none() && slab.get(0).is_none() && slab.get(2).is_some());
    assert_eq!([slab.insert(session()), slab.insert(session())], [Some(1), Some(3)]);
}
