use std::net::{SocketAddr, TcpListener};
use std::thread;

use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Tcp, Udp};

use super::health::{Health, HealthLog, is_there};
use super::*;
use mmb_nf::StopSignal;
use mmb_nf::tcp_segment::ACK;
use mmb_nf::testing::{Bench, FAR, Forward, NEAR, Reverse, assert_checksums, key_of_frame, parsed, refused};

const CLIENT: [u8; 4] = [192, 0, 2, 9];
const SERVICE: [u8; 4] = [198, 51, 100, 1];

fn tcp(sport: u16, flags: u8) -> Frame {
    Frame::new(Ip4::new(CLIENT, SERVICE), Tcp { flags, seq: 1000, ack: 5000, ..Tcp::new(sport, 80) })
}

/// Opens a session as the engine does: asks, translates, enters.
fn open(bench: &mut Bench<Lb>, frame: &[u8]) -> usize {
    let (admission, _, translation) = bench.admit(frame);
    assert_eq!(admission, Admission::Open);
    let (address, port) = translation.destination.expect("a back end");
    let (key, mut onward) = (key_of_frame(frame), key_of_frame(frame));
    match address {
        IpAddr::V4(address) => onward.destination[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => onward.destination = address.octets(),
    }
    if let Some(port) = port {
        onward.destination_port = port.to_be_bytes();
    }
    bench.open_onward(key, onward)
}

fn requested_destination(bench: &mut Bench<Lb>, frame: &[u8]) -> (IpAddr, Option<u16>) {
    bench.admit(frame).2.destination.unwrap()
}

fn line(bench: &Bench<Lb>, name: &str) -> String {
    bench.function.report().into_iter().find(|(key, _)| key == name).unwrap().1
}

#[test]
fn accepted_traffic_and_translations() {
    for (words, accepts) in [
        ("10.0.0.1", "net-proto ip4"),
        ("2001:db8::1 [2001:db8::2]:80", "net-proto ip6"),
        ("10.0.0.1 2001:db8::1", ""),
    ] {
        let traits = Bench::<Lb>::new(words).function.properties();
        assert_eq!(traits.accepts, accepts);
        assert!(traits.translates.destination && !traits.translates.source);
        assert!(accepts.is_empty() || mmb_lang::parse_matches(accepts).is_ok());
    }
    assert!(refused::<Lb>("").contains("back ends"));
}

#[test]
fn sessions_take_turns_and_are_counted() {
    let mut bench = Bench::<Lb>::new("10.0.0.1:8080 10.0.0.2");
    let sessions: Vec<_> = (0..4).map(|n| open(&mut bench, &tcp(4000 + n, SYN).build())).collect();
    assert_eq!(line(&bench, "10.0.0.1:8080"), "up, 2 sessions, 2 opened");
    assert_eq!(line(&bench, "10.0.0.2"), "up, 2 sessions, 2 opened");
    bench.release(sessions[0]);
    assert_eq!(line(&bench, "10.0.0.1:8080"), "up, 1 sessions, 2 opened");
    assert_eq!(bench.pad(sessions[0]), 0);
}

/// The fast path may have sessions of back ends that are up, whatever their method.
#[test]
fn sessions_need_no_packets_while_their_back_end_is_up() {
    for method in ["round-robin", "least-connections", "hash"] {
        let mut bench = Bench::<Lb>::new(&format!("10.0.0.1:8080 by {method}"));
        let session = open(&mut bench, &tcp(4000, SYN).build());
        let pad = bench.pad(session);
        let none = Some(ConstantRewrite::default());
        assert_eq!((bench.function.constant_rewrite(&pad), bench.function.revision()), (none, 0));
        bench.function.backends.set_draining(bench.function.backends.all()[0].place, true);
        assert_eq!((bench.function.constant_rewrite(&pad), bench.function.revision()), (none, 0));
        bench.function.backends.set_down(0, true);
        assert_eq!((bench.function.constant_rewrite(&pad), bench.function.revision()), (None, 1));
        bench.function.backends.set_down(0, false);
        assert_eq!((bench.function.constant_rewrite(&pad), bench.function.revision()), (none, 1));
        assert_eq!(bench.function.constant_rewrite(&0), none, "a session older than the function");
    }
}

#[test]
fn ports_are_translated_for_protocols_with_ports() {
    let mut bench = Bench::<Lb>::new("10.0.0.1:8080");
    let udp = Frame::new(Ip4::new(CLIENT, SERVICE), Udp::new(5, 53)).build();
    let ping = Frame::new(Ip4::new(CLIENT, SERVICE), Icmp::new(8)).build();
    assert_eq!(requested_destination(&mut bench, &udp).1, Some(8080));
    assert_eq!(requested_destination(&mut bench, &ping).1, None);
    open(&mut bench, &ping);
    assert_eq!(line(&bench, "10.0.0.1:8080"), "up, 1 sessions, 1 opened");
}

#[test]
fn address_families_are_separate() {
    let mut bench = Bench::<Lb>::new("10.0.0.1 2001:db8::1 by least-connections");
    let (a, b) = ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 5]);
    let six = Frame::new(Ip6::new(a, b), Tcp { flags: SYN, ..Tcp::new(1, 80) }).build();
    assert_eq!(requested_destination(&mut bench, &six).0, "2001:db8::1".parse::<IpAddr>().unwrap());
    assert_eq!(
        requested_destination(&mut bench, &tcp(1, SYN).build()).0,
        "10.0.0.1".parse::<IpAddr>().unwrap()
    );
    let mut bench = Bench::<Lb>::new("10.0.0.1");
    assert_eq!(bench.admit(&six).0, Admission::Drop(DropReason::NoBackend));
}

/// Asked twice, or asked in vain, or about the other family: it is somebody's turn when a session opens.
#[test]
fn a_turn_ends_when_a_session_opens() {
    let mut bench = Bench::<Lb>::new("10.0.0.1 10.0.0.2 2001:db8::1 2001:db8::2");
    let (a, b) = ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 5]);
    let mut last = Vec::new();
    for n in 0..4 {
        let four = tcp(4000 + n, SYN).build();
        let six = Frame::new(Ip6::new(a, b), Tcp { flags: SYN, ..Tcp::new(n, 80) }).build();
        assert_eq!(requested_destination(&mut bench, &four), requested_destination(&mut bench, &four));
        let session = open(&mut bench, &four);
        last.push(bench.pad(session));
        open(&mut bench, &six);
    }
    assert_eq!(last, [1, 2, 1, 2]);
    assert!(bench.function.report().iter().skip(1).all(|(_, line)| line == "up, 2 sessions, 2 opened"));
}

#[test]
fn sessions_determine_the_least_connections() {
    let mut bench = Bench::<Lb>::new("10.0.0.1*3 10.0.0.2 by least-connections");
    let sessions: Vec<_> = (0..8).map(|n| open(&mut bench, &tcp(4000 + n, SYN).build())).collect();
    assert_eq!(line(&bench, "10.0.0.1"), "up, 6 sessions, 6 opened");
    let light: Vec<_> = sessions.iter().filter(|&&session| bench.pad(session) == 2).copied().collect();
    light.into_iter().for_each(|session| bench.release(session));
    assert_eq!(
        requested_destination(&mut bench, &tcp(5000, SYN).build()).0,
        "10.0.0.2".parse::<IpAddr>().unwrap()
    );
}

/// A closed connection has a session for minutes, and no load.
#[test]
fn closed_connections_do_not_count() {
    let mut bench = Bench::<Lb>::new("10.0.0.1 10.0.0.2 by least-connections");
    let sessions: Vec<_> = (0..4).map(|n| open(&mut bench, &tcp(4000 + n, SYN).build())).collect();
    let mut send = |session: usize, direction, flags| {
        bench.packet(sessions[session], direction, &tcp(4000 + session as u16, flags).build());
        ["10.0.0.1", "10.0.0.2"].map(|name| line(&bench, name))
    };
    let lines = |a, b| [a, b].map(|n| format!("up, {n} sessions, 2 opened"));
    assert_eq!(send(0, Forward, FIN | ACK), lines(2, 2));
    assert_eq!(send(0, Forward, FIN | ACK), lines(2, 2), "sent again");
    assert_eq!(send(0, Reverse, FIN | ACK), lines(1, 2));
    assert_eq!(send(0, Reverse, RST), lines(1, 2), "counted once");
    assert_eq!(send(1, Reverse, RST | ACK), lines(1, 1));
    // The ports are used again.
    assert_eq!(send(1, Forward, SYN), lines(1, 2));
    assert_eq!(send(1, Reverse, SYN | ACK), lines(1, 2));
    sessions.iter().for_each(|&session| bench.release(session));
    for name in ["10.0.0.1", "10.0.0.2"] {
        assert_eq!(line(&bench, name), "up, 0 sessions, 2 opened");
    }
}

#[test]
fn one_source_has_one_back_end() {
    let mut bench = Bench::<Lb>::new("10.0.0.1 10.0.0.2 10.0.0.3 by hash");
    let first = requested_destination(&mut bench, &tcp(1, SYN).build());
    assert!((2..50).all(|sport| requested_destination(&mut bench, &tcp(sport, SYN).build()) == first));
}

#[test]
fn a_drained_back_end_keeps_its_sessions() {
    let mut bench = Bench::<Lb>::new("10.0.0.1:80 10.0.0.1:81 10.0.0.2:80");
    let session = open(&mut bench, &tcp(1, SYN).build());
    bench.function.set(&["drain", "10.0.0.1"]).unwrap();
    assert_eq!(line(&bench, "10.0.0.1:80"), "draining, 1 sessions, 1 opened");
    assert!(line(&bench, "10.0.0.1:81").starts_with("draining"));
    assert!(
        (2..9)
            .all(|sport| requested_destination(&mut bench, &tcp(sport, SYN).build()).0.to_string()
                == "10.0.0.2")
    );
    assert_eq!(bench.packet(session, Forward, &tcp(1, ACK).build()).verdict, Verdict::Pass);
    bench.function.set(&["undrain", "10.0.0.1:81"]).unwrap();
    assert!(line(&bench, "10.0.0.1:80").starts_with("draining"));
    assert!(line(&bench, "10.0.0.1:81").starts_with("up"));
    for words in [&["drain", "10.0.0.7"][..], &["drain", "10.0.0.2:81"], &["drain"], &["weight", "10.0.0.1"]]
    {
        assert!(bench.function.set(words).is_err(), "{words:?}");
    }
}

/// RFC 9293, 3.10.7.1: an acknowledgment is answered by a RST with its number, anything else by one that
/// acknowledges it.
#[test]
fn sessions_of_a_dead_back_end_end() {
    let mut bench = Bench::<Lb>::new("10.0.0.1:80 10.0.0.2:80");
    let [a, b] = [1, 2].map(|sport| open(&mut bench, &tcp(sport, SYN).build()));
    bench.function.backends.set_down(0, true);
    assert!(
        (3..9)
            .all(|sport| requested_destination(&mut bench, &tcp(sport, SYN).build()).0.to_string()
                == "10.0.0.2")
    );
    assert_eq!(bench.packet(b, Forward, &tcp(2, ACK).build()).verdict, Verdict::Pass);

    let done = bench.packet(a, Forward, &tcp(1, ACK).vlan(7).payload(*b"GET /").build());
    assert_eq!(done.verdict, Verdict::End(DropReason::BackendDown));
    let [(port, frame)] = &done.emitted[..] else { panic!("{:?}", done.emitted) };
    assert_eq!(*port, NEAR);
    assert_checksums(frame);
    assert_eq!(key_of_frame(frame), key_of_frame(&tcp(1, ACK).build()).reversed());
    assert_eq!((&frame[..6], &frame[6..12]), (&[2, 0, 0, 0, 0, 1][..], &[2, 0, 0, 0, 0, 2][..]));
    let rst = mmb_flow::TcpSegment::read(frame, &parsed(frame)).unwrap();
    assert_eq!((rst.flags, rst.seq, rst.len), (0x04, 5000, 0));

    let fin = bench.packet(a, Forward, &tcp(1, 0x01).payload(*b"GET /").build());
    let rst = mmb_flow::TcpSegment::read(&fin.emitted[0].1, &parsed(&fin.emitted[0].1)).unwrap();
    assert_eq!((rst.flags, rst.seq, rst.ack), (0x14, 0, 1000 + 5 + 1));

    let reply = Frame::new(Ip4::new(SERVICE, CLIENT), Tcp { seq: 77, ack: 88, ..Tcp::new(80, 1) }).build();
    let done = bench.packet(a, Reverse, &reply);
    assert_eq!(done.verdict, Verdict::End(DropReason::BackendDown));
    let (port, frame) = &done.emitted[0];
    let rst = mmb_flow::TcpSegment::read(frame, &parsed(frame)).unwrap();
    assert_eq!((*port, key_of_frame(frame)), (NEAR, key_of_frame(&reply)));
    assert_eq!((rst.flags, rst.seq, rst.ack), (0x14, 77, 88));
    assert_ne!(*port, FAR);
}

#[test]
fn a_repeated_syn_gets_another_back_end() {
    let mut bench = Bench::<Lb>::new("10.0.0.1 10.0.0.2");
    let session = open(&mut bench, &tcp(1, SYN).build());
    bench.function.backends.set_down(0, true);
    let done = bench.packet(session, Forward, &tcp(1, SYN).build());
    assert_eq!((done.verdict, done.emitted.len()), (Verdict::End(DropReason::BackendDown), 0));
    bench.release(session);
    let again = open(&mut bench, &tcp(1, SYN).build());
    assert_eq!(bench.packet(again, Forward, &tcp(1, SYN).build()).verdict, Verdict::Pass);
}

#[test]
fn resets_and_datagrams_get_no_answer() {
    let mut bench = Bench::<Lb>::new("10.0.0.1");
    let udp = Frame::new(Ip4::new(CLIENT, SERVICE), Udp::new(5, 53)).build();
    let (a, b) = (open(&mut bench, &tcp(1, SYN).build()), open(&mut bench, &udp));
    bench.function.backends.set_down(0, true);
    for (session, frame) in [(a, tcp(1, 0x14).build()), (b, udp)] {
        let done = bench.packet(session, Forward, &frame);
        assert_eq!((done.verdict, done.emitted.len()), (Verdict::End(DropReason::BackendDown), 0));
    }
}

#[test]
fn back_ends_go_down_and_up_again() {
    let mut bench = Bench::<Lb>::new("10.0.0.1 10.0.0.2");
    let frame = tcp(1, SYN).build();
    for number in [0, 1, 1] {
        bench.function.backends.set_down(number, true);
    }
    assert_eq!(bench.admit(&frame).0, Admission::Drop(DropReason::NoBackend));
    bench.function.set(&["drain", "10.0.0.1"]).unwrap();
    assert!(line(&bench, "10.0.0.1").starts_with("draining, down"));
    bench.function.backends.set_down(0, false);
    assert_eq!(bench.admit(&frame).0, Admission::Drop(DropReason::NoBackend), "it drains still");
    bench.function.backends.set_down(1, false);
    assert_eq!(requested_destination(&mut bench, &frame).0.to_string(), "10.0.0.2");
    assert!(bench.function.backends.all_up());
}

/// A session that something else has translated is nobody's.
#[test]
fn sessions_of_other_instances_are_not_counted() {
    let mut bench = Bench::<Lb>::new("10.0.0.1:80");
    let session = bench.open(&tcp(1, SYN).build());
    assert_eq!(bench.pad(session), 0);
    bench.function.backends.set_down(0, true);
    assert_eq!(bench.packet(session, Forward, &tcp(1, ACK).build()).verdict, Verdict::Pass);
    bench.release(session);
    assert_eq!(line(&bench, "10.0.0.1:80"), "down, 0 sessions, 0 opened");
}

#[test]
fn two_checks_in_a_row_change_the_state() {
    let noted = |checks: &[bool]| {
        let mut health = Health::default();
        checks.iter().map(|&passed| health.note(passed)).collect::<Vec<_>>()
    };
    assert_eq!(
        noted(&[true, true, false, true, false, false]),
        [Some(true), None, None, None, None, Some(false)]
    );
    assert_eq!(noted(&[false, true, false, true, true]), [Some(false), None, None, None, Some(true)]);
}

/// A back end that comes and goes has a line every ten seconds, and the last state has one.
#[test]
fn changes_of_health_are_logged() {
    let mut lines = HealthLog::default();
    let mut log =
        |is_down, seconds| lines.line(is_down, Duration::from_secs(seconds), ("lb", &"10.0.0.1:80"));
    let (down, up) =
        ("lb: back end 10.0.0.1:80 is down: its checks fail\n", "lb: back end 10.0.0.1:80 is up\n");
    assert_eq!(log(false, 0), None, "as it began");
    assert_eq!(log(true, 1).as_deref(), Some(down));
    assert_eq!((log(true, 2), log(false, 3), log(true, 4), log(false, 10)), (None, None, None, None));
    assert_eq!(log(false, 11).as_deref(), Some(up));
    assert_eq!(log(false, 30), None);
    assert_eq!(log(true, 30).as_deref(), Some(down));
}

#[test]
fn a_check_is_a_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    assert!(is_there(to, Duration::from_secs(5)));
    drop(listener);
    assert!(!is_there(to, Duration::from_secs(5)));
}

#[test]
fn checks_run_in_the_background_until_they_are_stopped() {
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let to = there.local_addr().unwrap();
    let bench = Bench::<Lb>::new(&format!("{to} {gone} check tcp every 0.1"));
    let background = bench.function.background().unwrap();
    let stop = StopSignal::default();
    thread::scope(|scope| {
        scope.spawn(|| background(&stop));
        // Two connections: the first check is over.
        let from: Vec<SocketAddr> = (0..2).map(|_| there.accept().unwrap().1).collect();
        assert_ne!(from[0], from[1]);
        while bench.function.backends.all_up() {
            drop(there.accept().unwrap());
        }
        stop.stop();
    });
    assert!(line(&bench, &to.to_string()).starts_with("up, 0 sessions, 0 opened, checks "));
    assert!(line(&bench, &gone.to_string()).starts_with("down, "));
    assert!(line(&bench, "check").contains("every 0.1 s"));
    assert!(Bench::<Lb>::new("10.0.0.1").function.background().is_none());
}
