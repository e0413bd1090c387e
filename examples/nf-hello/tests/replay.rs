//! The program that this crate makes, with a capture.

use std::path::PathBuf;
use std::process::Command;

use mmb::testing::{Frame, Ip4, Udp};

/// A capture (libpcap format, little endian) of so many datagrams of one session.
fn capture(packets: usize) -> PathBuf {
    let mut file: Vec<u8> = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(4000, 53)).build();
    for second in 0..packets as u32 {
        file.extend([second, 0, frame.len() as u32, frame.len() as u32].map(u32::to_le_bytes).concat());
        file.extend(&frame);
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("queries.pcap");
    std::fs::write(&path, file).expect("a file for the capture");
    path
}

#[test]
fn a_capture_goes_through_the_function() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/hello.conf");
    let replay =
        Command::new(env!("CARGO_BIN_EXE_nf-hello")).args(["replay", "-c", config]).arg(capture(5)).output();
    let output = replay.expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.starts_with("5 packets: 2 forwarded, 3 dropped\n"), "{text}");
    assert!(text.contains("dropped, hello-limit: 3\n"), "{text}");
}
