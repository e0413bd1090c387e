//! Tests of `count`.

use std::net::UdpSocket;
use std::time::Duration;

use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Tcp, Transport, Udp};
use proptest::prelude::*;

use super::*;
use mmb_nf::StopSignal;
use mmb_nf::testing::{Bench, Forward, Reverse, key_of_frame, make, refused};

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;
const RST: u8 = 0x04;

fn tcp(direction: Direction, flags: u8, payload: usize) -> Vec<u8> {
    let (ip, ports) = match direction {
        Forward => (Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), (4000, 80)),
        Reverse => (Ip4::new([10, 0, 0, 2], [10, 0, 0, 1]), (80, 4000)),
    };
    Frame::new(ip, Tcp { flags, ..Tcp::new(ports.0, ports.1) }).payload(vec![0; payload]).pad_to(60).build()
}

/// Records that wait to be exported.
fn records(bench: &Bench<Count>) -> Vec<Record> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let stop = StopSignal::default();
    stop.stop();
    let export = bench.function.export.as_ref().expect("to somewhere");
    export.outbox.serve(&stop, |items| {
        items.into_iter().for_each(|(_, record)| sender.send(record).expect("somebody listens"));
    });
    drop(sender);
    receiver.into_iter().collect()
}

/// What a line of JSON says.
fn json(bench: &Bench<Count>) -> Vec<serde_json::Value> {
    let (background, stop) = (bench.function.background().expect("there is some"), StopSignal::default());
    stop.stop();
    background(&stop);
    let Some(Export { target: Target::Json(path), .. }) = &bench.function.export else {
        panic!("to no file")
    };
    let text = std::fs::read_to_string(path.path().expect("a path")).expect("a file");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn both_directions_in_ip_bytes() {
    let mut bench = Bench::<Count>::new("json /dev/null");
    let session = bench.open(&tcp(Forward, SYN, 0));
    for (direction, flags, payload) in [
        (Forward, SYN, 0),
        (Reverse, SYN | ACK, 0),
        (Forward, ACK, 100),
        (Reverse, ACK, 1400),
        (Reverse, ACK | 8, 1),
    ] {
        bench.now += 10;
        let frame = tcp(direction, flags, payload);
        let done = bench.packet(session, direction, &frame);
        assert_eq!((done.verdict, done.frame), (Verdict::Pass, frame));
    }
    bench.now += 5_000;
    bench.release(session);
    let key = key_of_frame(&tcp(Forward, SYN, 0));
    let (bytes, packets, flags) = ([40 + 140, 40 + 1440 + 41], [2, 3], [SYN | ACK, SYN | ACK | 8]);
    let record = Record { key, bytes, packets, first: 1010, last: 1050, flags, ended: Ended::Idle };
    assert_eq!(records(&bench), [record]);
    assert_eq!(
        bench.function.report()[..3].iter().map(|(_, n)| n.as_str()).collect::<Vec<_>>(),
        ["1", "5", "1701"]
    );
}

#[test]
fn how_sessions_end() {
    for (flags, expected) in [
        ([FIN, FIN], Ended::Closed),
        ([FIN, ACK], Ended::Idle),
        ([ACK, RST], Ended::Closed),
        ([RST, 0], Ended::Closed),
        ([ACK, ACK], Ended::Idle),
    ] {
        assert_eq!(Ended::Idle.or_closed(6, flags), expected, "{flags:?}");
        assert_eq!(Ended::Idle.or_closed(17, flags), Ended::Idle);
    }
}

#[test]
fn long_sessions_are_reported_by_the_first_packet_after_the_interval() {
    let mut bench = Bench::<Count>::new("json /dev/null active 10");
    let session = bench.open(&tcp(Forward, SYN, 0));
    let mut send = |now: u32, direction| {
        bench.now = now;
        bench.packet(session, direction, &tcp(direction, ACK, 0));
        records(&bench).into_iter().map(|r| (r.key, r.packets, r.first, r.last, r.ended)).collect::<Vec<_>>()
    };
    let key = key_of_frame(&tcp(Forward, SYN, 0));
    assert_eq!(send(5_000, Forward), []);
    assert_eq!(send(14_999, Reverse), []);
    assert_eq!(send(15_000, Reverse), [(key, [1, 2], 5_000, 15_000, Ended::Active)]);
    // A pause is not the flow's: what follows begins with its own first packet.
    assert_eq!(send(95_000, Reverse), []);
    assert_eq!(send(106_000, Forward), [(key, [1, 1], 95_000, 106_000, Ended::Active)]);
    bench.release(session);
    assert_eq!(records(&bench), [], "nothing since the last record");
    assert_eq!(bench.pad(session), Pad::zeroed());
}

#[test]
fn fragments_count_and_get_their_ports_from_the_next_whole_packet() {
    let mut bench = Bench::<Count>::new("json /dev/null active 1");
    let whole =
        |flags, offset| Ip4 { flags, fragment_offset: offset, ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) };
    let first = Frame::new(whole(1, 0), Udp::new(1, 2)).payload(vec![0; 16]).build();
    let later = Frame::new(whole(0, 3), Transport::Raw(17)).payload(vec![0; 8]).build();
    let session = bench.open_key(
        key_of_frame(&Frame::new(whole(0, 0), Udp::new(1, 2)).build()),
        key_of_frame(&Frame::new(whole(0, 0), Udp::new(1, 2)).build()),
    );
    bench.packet(session, Forward, &later);
    bench.now += 2_000;
    bench.packet(session, Forward, &later);
    assert_eq!(records(&bench), []);
    bench.packet(session, Forward, &first);
    let told: Vec<_> =
        records(&bench).iter().map(|r| (r.key.source_port, r.packets[0], r.bytes[0])).collect();
    assert_eq!(told, [([0, 1], 3, 28 + 28 + 44)]);
}

#[test]
fn a_full_counter_is_reported_before_it_overflows() {
    let mut bench = Bench::<Count>::new("json /dev/null");
    let session = bench.open(&tcp(Forward, ACK, 0));
    bench.set_pad(session, Pad { packets: [u32::MAX - 2, 0], bytes: [1 << 40, 0], ..Pad::zeroed() });
    for _ in 0..3 {
        bench.packet(session, Forward, &tcp(Forward, ACK, 0));
    }
    assert_eq!(bench.pad(session).packets, [1, 0]);
    let packets: Vec<_> = records(&bench).into_iter().map(|record| record.packets).collect();
    assert_eq!(packets, [[u32::MAX, 0]]);
}

/// What `show functions` prints does not wait for the end of sessions.
#[test]
fn totals_count_packets_as_they_come() {
    let mut bench = Bench::<Count>::new("");
    let session = bench.open(&tcp(Forward, SYN, 0));
    bench.packet(session, Forward, &tcp(Forward, SYN, 0));
    bench.packet(session, Reverse, &tcp(Reverse, ACK, 100));
    let totals =
        |bench: &Bench<Count>| bench.function.report().into_iter().map(|(_, n)| n).collect::<Vec<_>>();
    assert_eq!(totals(&bench), ["0", "2", "180"]);
    bench.release(session);
    assert_eq!(totals(&bench), ["1", "2", "180"]);
}

proptest! {
    /// Whatever the packets and their times, the records of a session add up to what was sent.
    #[test]
    fn records_add_up(
        packets in prop::collection::vec((any::<bool>(), any::<u8>(), 0..1400usize, 0..3_000u32), 1..60),
        active in 1..5u32,
    ) {
        let mut bench = Bench::<Count>::new(&format!("json /dev/null active {active}"));
        bench.now = u32::MAX - 20_000;
        let session = bench.open(&tcp(Forward, SYN, 0));
        let (mut sent, mut bytes, mut flags) = ([0, 0], [0, 0], [0, 0]);
        for (reverse, bits, payload, pause) in packets {
            let direction = if reverse { Reverse } else { Forward };
            bench.now = bench.now.wrapping_add(pause);
            bench.packet(session, direction, &tcp(direction, bits, payload));
            sent[direction as usize] += 1;
            bytes[direction as usize] += 40 + payload as u64;
            flags[direction as usize] |= bits;
        }
        bench.release(session);
        let records = records(&bench);
        for way in 0..2 {
            prop_assert_eq!(records.iter().map(|r| r.packets[way]).sum::<u32>(), sent[way]);
            prop_assert_eq!(records.iter().map(|r| r.bytes[way]).sum::<u64>(), bytes[way]);
            prop_assert_eq!(records.iter().fold(0, |all, r| all | r.flags[way]), flags[way]);
        }
        let key = key_of_frame(&tcp(Forward, SYN, 0));
        prop_assert!(records.iter().all(|r| r.key == key && r.last.wrapping_sub(r.first) < active * 1000 + 3_000));
    }
}

#[test]
fn lines_of_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bench = Bench::<Count>::new(&format!("json {}", folder.path().join("records").display()));
    let ip4 = || Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]);
    let echo = Icmp { rest: [0x12, 0x34, 0, 1], ..Icmp::new(8) };
    let udp6 = Frame::new(Ip6::new([0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 2]), Udp::new(5000, 53));
    for frame in [
        tcp(Forward, SYN, 0),
        Frame::new(ip4(), echo).build(),
        udp6.build(),
        Frame::new(ip4(), Transport::Raw(47)).build(),
    ] {
        let session = bench.open(&frame);
        bench.packet(session, Forward, &frame);
        bench.release(session);
    }
    let mut lines = json(&bench);
    for line in &mut lines {
        let line = line.as_object_mut().expect("an object");
        let time = line.remove("start").expect("a start");
        assert_eq!(line.remove("end"), Some(time.clone()));
        humantime::parse_rfc3339(time.as_str().expect("a string")).expect("RFC 3339");
    }
    let expected = [
        serde_json::json!({
            "ended": "idle", "proto": 6, "source": "10.0.0.1", "destination": "10.0.0.2", "source_port": 4000,
            "destination_port": 80, "packets": [1, 0], "bytes": [40, 0], "tcp_flags": [2, 0],
        }),
        serde_json::json!({
            "ended": "idle", "proto": 1, "source": "10.0.0.1", "destination": "10.0.0.2", "icmp_type": 8,
            "icmp_id": 0x1234, "packets": [1, 0], "bytes": [28, 0],
        }),
        serde_json::json!({
            "ended": "idle", "proto": 17, "source": "::1", "destination": "::2", "source_port": 5000,
            "destination_port": 53, "packets": [1, 0], "bytes": [48, 0],
        }),
        serde_json::json!({
            "ended": "idle", "proto": 47, "source": "10.0.0.1", "destination": "10.0.0.2", "packets": [1, 0],
            "bytes": [20, 0],
        }),
    ];
    assert_eq!(lines, expected);
}

/// Messages arrive at a collector: templates first, then each record once.
#[test]
fn a_collector_receives_records() {
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    collector.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    let mut bench = Bench::<Count>::new(&format!("ipfix {}", collector.local_addr().expect("bound")));
    for _ in 0..30 {
        let session = bench.open(&tcp(Forward, SYN, 0));
        bench.packet(session, Forward, &tcp(Forward, SYN, 0));
        bench.release(session);
    }
    let (background, stop) = (bench.function.background().expect("there is some"), StopSignal::default());
    stop.stop();
    background(&stop);
    let messages: Vec<_> = (0..4)
        .map(|_| {
            let mut message = [0; 2000];
            let length = collector.recv(&mut message).expect("a message");
            message[..length].to_vec()
        })
        .collect();
    let sets: Vec<_> = messages.iter().map(|m| u16::from_be_bytes([m[16], m[17]])).collect();
    let sequence: Vec<_> = messages.iter().map(|m| u32::from_be_bytes([m[8], m[9], m[10], m[11]])).collect();
    assert_eq!((sets, sequence), (vec![2, 256, 256, 256], vec![0, 0, 12, 24]));
    let written = ("written".to_string(), "30".to_string());
    assert!(bench.function.report().contains(&written), "{:?}", bench.function.report());
}

#[test]
fn an_unreachable_collector_is_reported() {
    let mut bench = Bench::<Count>::new("ipfix nobody.invalid:4739");
    let session = bench.open(&tcp(Forward, SYN, 0));
    bench.packet(session, Forward, &tcp(Forward, SYN, 0));
    bench.release(session);
    let (background, stop) = (bench.function.background().expect("there is some"), StopSignal::default());
    stop.stop();
    background(&stop);
    let report = bench.function.report();
    assert!(report.contains(&("failed".into(), "1".into())), "{report:?}");
    assert!(
        report.last().is_some_and(|(_, said)| said.starts_with("cannot find nobody.invalid:4739")),
        "{report:?}"
    );
}

#[test]
fn arguments_are_parsed() {
    let count =
        |line| make::<Count>(line).map(|count| (count.export.map(|export| export.target), count.active));
    assert_eq!(count(""), Ok((None, u32::MAX)));
    assert_eq!(
        count("json /x active 5"),
        Ok((Some(Target::Json(LogFile::at("/x", &Arc::default()).expect("granted"))), 5_000))
    );
    assert_eq!(count("ipfix 10.0.0.9:4739"), Ok((Some(Target::Ipfix("10.0.0.9:4739".into())), 60_000)));
    assert!(Bench::<Count>::new("").function.background().is_none());
    for (line, part) in [
        ("json", "`json` needs a path"),
        ("ipfix", "`ipfix` needs a collector"),
        ("ipfix 10.0.0.9", "invalid collector `10.0.0.9`"),
        ("json /x ipfix 10.0.0.9:1", "`count` exports to one place"),
        ("active 5", "`active` needs `ipfix HOST:PORT` or `json PATH`"),
        ("json /x active 0", "must be a number of seconds from 1 to 86400"),
        ("json /x active", "`active` needs a number of seconds"),
        ("xml", "unknown argument `xml`"),
    ] {
        let said = refused::<Count>(line);
        assert!(said.contains(part), "{line}: {said}");
    }
}
