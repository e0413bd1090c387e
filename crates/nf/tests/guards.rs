//! Segments that must not reach stream functions as they are: their receiver takes other bytes, or none.

#[path = "common/count.rs"]
mod count;
#[path = "common/substitute.rs"]
mod substitute;

use mmb_nf::harness::{Harness, Sent};
use mmb_nf::{ChainVerdict, DropReason, Registry};
use mmb_packet::build::{Frame, Ip4, Tcp};

use self::count::Count;
use self::substitute::{Forbid, Substitute};

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;
const URG: u8 = 32;
/// Offsets in a frame.
const FLAGS: usize = 14 + 20 + 13;
const URGENT_POINTER: usize = 14 + 20 + 18;

/// Chains with a function that reads, with one that edits, and with one that does not look at bytes.
const EXACT: [&str; 2] = ["nf add w forbid !\nchain add c w", "nf add w substitute evil good\nchain add c w"];
const COUNTS: &str = "nf add w count-packets\nchain add c w";

/// A connection from port 4000 to port 80. The ends count from 1000 and from 2000.
struct Bench(Harness);

impl Bench {
    fn open(lines: &str) -> Bench {
        let mut registry = Registry::default();
        registry.add_stream::<Forbid>().add_stream::<Substitute>().add_stream::<Count>();
        let mut bench = Bench(Harness::new(registry, lines).expect("a valid configuration"));
        for (direction, from, flags) in [(0, -1, SYN), (1, -1, SYN | ACK), (0, 0, ACK)] {
            assert_eq!(bench.send(&frame(direction, from, flags, b"")).verdict, ChainVerdict::Pass);
        }
        bench
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        self.0.send("c", &[frame.to_vec()]).swap_remove(0)
    }
}

fn frame(direction: usize, from: i32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let seq = [1000u32, 2000][direction].wrapping_add_signed(from);
    let ack = if flags & ACK != 0 { [2000, 1000][direction] } else { 0 };
    let ports = [4000, 80];
    let urgent = if flags & URG != 0 { bytes.len() as u16 } else { 0 };
    let tcp = Tcp { seq, ack, flags, urgent, ..Tcp::new(ports[direction], ports[1 - direction]) };
    let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
    Frame::new(Ip4::new(ends[direction], ends[1 - direction]), tcp).payload(bytes).build()
}

/// RFC 6093, 3.1: receivers take the byte in front of the urgent pointer out of the stream.
#[test]
fn functions_that_read_content_and_receivers_get_the_urgent_byte() {
    for lines in EXACT {
        let mut bench = Bench::open(lines);
        let sent = bench.send(&frame(0, 0, ACK | URG, b"an urgent bit"));
        assert_eq!(sent.verdict, ChainVerdict::Pass, "{lines}");
        assert_eq!((sent.frame[FLAGS], &sent.frame[URGENT_POINTER..][..2]), (ACK, &[0, 0][..]), "{lines}");
        mmb_nf::testing::assert_checksums(&sent.frame);
    }
}

#[test]
fn functions_that_count_leave_the_urgent_pointer() {
    let urgent = frame(0, 0, ACK | URG, b"an urgent bit");
    assert_eq!(Bench::open(COUNTS).send(&urgent).frame, urgent);
}

/// The frame with another last byte: of its payload, or of the urgent pointer of a segment without one.
fn damaged(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    *frame.last_mut().expect("a frame") ^= 1;
    frame
}

/// RFC 9293, 3.1: receivers take no segment with a wrong checksum. What it says must not be noted.
#[test]
fn damaged_segments_go_no_further() {
    for lines in EXACT {
        let mut bench = Bench::open(lines);
        for good in [
            frame(0, 0, ACK, b"first"),
            frame(1, 0, ACK, b""),
            frame(0, 5, ACK | FIN, b"last"),
            frame(1, 0, ACK | FIN, b""),
            frame(0, 99_999, SYN, b""),
        ] {
            let dropped = bench.send(&damaged(&good));
            assert_eq!(dropped.verdict, ChainVerdict::Drop(DropReason::StreamChecksum), "{lines}");
            let sent = bench.send(&good);
            assert_eq!((sent.verdict, &sent.frame), (ChainVerdict::Pass, &good), "{lines}");
        }
    }
}

/// Kernels leave checksums to network cards.
#[test]
fn partial_checksums_are_completed() {
    for lines in EXACT {
        let tcp = Tcp { seq: 1000, ack: 2000, flags: ACK, ..Tcp::new(4000, 80) };
        let whole = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), tcp).payload(*b"first");
        let sent = Bench::open(lines).send(&whole.clone().partial_checksum().build());
        assert_eq!((sent.verdict, sent.frame), (ChainVerdict::Pass, whole.build()), "{lines}");
    }
}

#[test]
fn functions_that_count_get_damaged_segments() {
    let damaged = damaged(&frame(0, 0, ACK, b"first"));
    let sent = Bench::open(COUNTS).send(&damaged);
    assert_eq!((sent.verdict, sent.frame), (ChainVerdict::Pass, damaged));
}
