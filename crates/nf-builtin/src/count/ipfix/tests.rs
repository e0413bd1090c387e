//! Tests of IPFIX messages.

use std::time::Duration;

use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Tcp, Udp};

use super::super::record::{Ended, Record};
use super::*;
use crate::shared::export_queue::ClockReading;
use mmb_nf::testing::key_of_frame;

/// 2026-01-02 03:04:05.678 UTC, when the worker's clock stood at 100,000.
const NOW: Duration = Duration::from_millis(1_767_323_045_678);

fn flow(frame: Frame, first: u32, packets: [u32; 2], bytes: [u64; 2], flags: [u8; 2], ended: Ended) -> Flow {
    let key = key_of_frame(&frame.build());
    let times = ClockReading::at(UNIX_EPOCH + NOW, 100_000);
    Flow::new(&times, Record { key, bytes, packets, first, last: 99_000, flags, ended })
}

/// The flows of `vectors/make.py`.
fn flows() -> Vec<Flow> {
    let ip4 = || Ip4::new([10, 0, 0, 1], [192, 0, 2, 200]);
    let ip6 = || Ip6::new([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 1, 2, 3, 4, 5, 6]);
    let echo = Icmp { rest: [0x12, 0x34, 0, 1], ..Icmp::new(8) };
    vec![
        flow(
            Frame::new(ip4(), Tcp::new(40_000, 443)),
            94_322,
            [12, 10],
            [1_800, 9_000_000_000],
            [0x1b, 0x13],
            Ended::Closed,
        ),
        flow(Frame::new(ip6(), Udp::new(5_000, 53)), 99_000, [1, 1], [61, 250], [0, 0], Ended::Idle),
        flow(Frame::new(ip4(), echo), 40_000, [u32::MAX, 0], [u64::MAX, 0], [0, 0], Ended::Active),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Byte by byte what scapy makes of the same templates and records.
#[test]
fn messages_are_as_scapy_builds_them() {
    let mut lines = include_str!("../vectors/messages.txt").lines().filter(|line| !line.starts_with('#'));
    let (mut encoder, time) = (Encoder::default(), 1_767_323_046);
    let made = [
        encoder.templates(time),
        encoder.data(time, &flows()),
        encoder.data(time, &flows()[1..2]),
        encoder.templates(time + 60),
    ];
    for message in made {
        assert_eq!(message.map(|bytes| hex(&bytes)), Ok(lines.next().unwrap_or("no more").to_string()));
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn a_full_message_fits_every_path() {
    let flows: Vec<_> = (0..PER_MESSAGE).map(|i| flows()[1 - usize::from(i == 0)].clone()).collect();
    let message = Encoder::default().data(0, &flows).expect("a message");
    assert!(message.len() <= MOST_BYTES && message.len() % 4 == 0, "{}", message.len());
    assert_eq!(message[2..4], (message.len() as u16).to_be_bytes());
}

#[test]
fn the_sequence_counts_records_and_wraps() {
    let mut encoder = Encoder { sequence: u32::MAX };
    let sequence = |message: Result<Vec<u8>, ExportError>| message.expect("a message")[8..12].to_vec();
    assert_eq!(sequence(encoder.data(0, &flows())), [255; 4]);
    assert_eq!(sequence(encoder.templates(0)), [0, 0, 0, 2]);
    assert_eq!(sequence(encoder.data(0, &flows())), [0, 0, 0, 2]);
}
