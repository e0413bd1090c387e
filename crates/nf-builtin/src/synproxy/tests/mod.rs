mod hosts;

use mmb_flow::{Mangle, TcpSegment, translate};
use mmb_packet::build::{Frame, Ip4, Ip6, Net, Tcp};
use mmb_packet::tcp_options;
use proptest::prelude::*;

use super::*;
use hosts::*;
use mmb_nf::testing::{
    Bench, Done, FAR, Forward, NEAR, Reverse, assert_checksums, key_of_frame, parsed, refused,
};
use mmb_nf::{Direction, Verdict};

proptest! {
    /// What the client is answered, and what the server is asked.
    #[test]
    fn the_handshake_carries_all_options(client in host()) {
        let (_, answer, syn) = connect(Bench::new(""), &client);
        prop_assert_eq!((answer.flags, answer.ack, answer.window), (SYN | ACK, client.isn.wrapping_add(1), 0));
        prop_assert_eq!(answer.mss, Some(if client.ip6 { 1440 } else { 1460 }));
        let stamped = client.clock.is_some();
        prop_assert_eq!(answer.scale, client.scale.filter(|_| stamped).map(|_| 7));
        prop_assert_eq!(answer.sack, client.sack && stamped);
        prop_assert_eq!(answer.stamps.map(|(_, echo)| echo), client.clock);

        prop_assert_eq!((syn.flags, syn.seq, syn.ack, syn.len), (SYN, client.isn, 0, 0));
        let offered = client.mss.unwrap_or(if client.ip6 { 1220 } else { 536 });
        prop_assert!(syn.mss.unwrap() <= offered && (offered < 536 || syn.mss.unwrap() >= 536), "{:?}", syn);
        prop_assert_eq!(syn.scale, client.scale.filter(|_| stamped));
        prop_assert_eq!(syn.sack, client.sack && stamped);
        prop_assert_eq!(syn.stamps, client.clock.map(|clock| (clock.wrapping_add(5), 0)));
        let scale = syn.scale.unwrap_or(0);
        let offered = u32::from(advertised_window(client.window, syn.scale)) << scale;
        prop_assert_eq!(u32::from(syn.window), offered.min(65_535));
    }

    /// Two hosts, any offers: each sees numbers, timestamps and windows that go on from what it has seen
    /// before.
    #[test]
    fn two_hosts_talk(client in host(), server in host(), promised in 0..15u8) {
        let bench = Bench::new(&format!("window-scale {promised}"));
        let (mut wire, answer, syn) = connect(bench, &client);
        let server = agreed(&Host { ip6: client.ip6, ..server }, &syn);
        prop_assume!(server.isn != answer.seq);
        let (done, window) = wire.reverse(answer_of(&server, &syn), client.ip6);
        let window = window.unwrap();

        // The server has its acknowledgment.
        let [(port, ack)] = &done.emitted[..] else { panic!("{:?}", done.emitted) };
        prop_assert_eq!(*port, FAR);
        let ack = read(&wire.translated(Forward, ack));
        prop_assert_eq!((ack.flags, ack.seq, ack.ack), (ACK, client.isn.wrapping_add(1), server.isn.wrapping_add(1)));
        prop_assert_eq!(ack.stamps, server.clock.map(|clock| (syn.stamps.unwrap().0, clock)));
        let in_bytes = |window: u16, scale: Option<u8>| u32::from(window) << scale.unwrap_or(0);
        let client_scale = client.scale.filter(|_| answer.scale.is_some());
        let server_reads = client_scale.filter(|_| server.scale.is_some());
        let coarse = client_scale.unwrap_or(0);
        prop_assert!(same_window(in_bytes(ack.window, server_reads), u32::from(syn.window), coarse));

        // The client has its window, and has seen the number before.
        prop_assert_eq!((window.flags, window.seq), (ACK, answer.seq.wrapping_add(1)));
        prop_assert_eq!(window.ack, client.isn.wrapping_add(1));
        prop_assert_eq!((window.mss, window.scale, window.sack), (None, None, false));
        prop_assert_eq!(window.stamps, server.clock.map(|_| (answer.stamps.unwrap().0, syn.stamps.unwrap().0)));
        let client_reads = answer.scale.filter(|_| client.scale.is_some());
        let coarse = client_reads.unwrap_or(0);
        prop_assert!(same_window(in_bytes(window.window, client_reads), server.window.min(65_535), coarse));

        // Data of the server, 9 ms later.
        let (given, _) = window.stamps.unwrap_or_default();
        let options = server.clock.map_or(vec![], |clock| stamps(clock.wrapping_add(9), client.clock.unwrap().wrapping_add(5)));
        let data = Tcp {
            seq: server.isn.wrapping_add(1), ack: client.isn.wrapping_add(1), flags: ACK | PSH,
            window: advertised_window(server.window, server.scale), options, ..Tcp::default()
        };
        let (done, data) = wire.reverse(data, client.ip6);
        let data = data.unwrap();
        prop_assert_eq!(done.emitted.len(), 0);
        prop_assert_eq!((data.flags, data.seq), (ACK | PSH, answer.seq.wrapping_add(1)));
        prop_assert_eq!(data.stamps.map(|(value, _)| value), server.clock.map(|_| given.wrapping_add(9)));
        let finest = client_reads.unwrap_or(0).max(server.scale.unwrap_or(0));
        let most = in_bytes(advertised_window(server.window, server.scale), server.scale);
        prop_assert!(same_window(in_bytes(data.window, client_reads), most.min(in_bytes(u16::MAX, client_reads)), finest));

        // Data of the client, which has seen that.
        let options = data.stamps.map_or(vec![], |(value, _)| stamps(client.clock.unwrap().wrapping_add(20), value));
        let more = Tcp {
            seq: client.isn.wrapping_add(1), ack: answer.seq.wrapping_add(2), flags: ACK,
            window: advertised_window(client.window, client_scale), options, ..Tcp::default()
        };
        let (_, more) = wire.forward(more, client.ip6);
        let more = more.unwrap();
        prop_assert_eq!((more.seq, more.ack, more.len), (client.isn.wrapping_add(1), server.isn.wrapping_add(2), 1));
        prop_assert_eq!(more.stamps.map(|(_, echo)| echo), server.clock.map(|clock| clock.wrapping_add(9)));
        let most = in_bytes(advertised_window(client.window, client_scale), client_scale);
        let coarse = client_scale.unwrap_or(0);
        prop_assert!(same_window(in_bytes(more.window, server_reads), most.min(in_bytes(u16::MAX, server_reads)), coarse));
    }

    /// Whatever comes, nothing breaks, and what is answered is well-formed.
    #[test]
    fn any_packet_is_handled(frames in mmb_oracle::generate::frames(20), state in 0..4u8, fill: [u8; 28]) {
        let mut bench = Bench::<Synproxy>::new("");
        for frame in &frames {
            let mut meta = mmb_nf::Meta::default();
            let parsed = mmb_packet::parse(frame, frame.len(), &mut meta);
            if parsed.is_err() || mmb_flow::parse_key(frame, &meta).is_err() {
                continue;
            }
            if let (Admission::Answer, answer, _) = bench.admit(frame) {
                assert_checksums(&answer);
            }
            let session = bench.open(frame);
            let mut pad = fill;
            pad[std::mem::offset_of!(Splice, state)] = state;
            for way in [Forward, Reverse] {
                bench.set_pad(session, bytemuck::pod_read_unaligned(&pad));
                for (_, frame) in bench.packet(session, way, frame).emitted {
                    assert_checksums(&frame);
                }
            }
        }
    }
}

#[test]
fn the_answer_has_the_encapsulation_of_the_syn() {
    let mut bench = Bench::<Synproxy>::new("mss 1300 window-scale 3");
    let syn = syn_of(&linux()).vlan(7).payload(*b"too early").build();
    let (admission, answer, translation) = bench.admit(&syn);
    assert_eq!((admission, translation), (Admission::Answer, Default::default()));
    assert_eq!(key_of_frame(&answer), key_of_frame(&syn).reversed());
    assert_eq!((&answer[..6], &answer[6..12], &answer[12..16]), (&syn[6..12], &syn[..6], &syn[12..16]));
    let answer = read(&answer);
    assert_eq!((answer.mss, answer.scale, answer.sack, answer.len), (Some(1300), Some(3), true, 0));
}

#[test]
fn options_can_be_disabled() {
    let answered = |words: &str| read(&Bench::<Synproxy>::new(words).admit(&syn_of(&linux()).build()).1);
    let Read { scale, sack, stamps, .. } = answered("no-timestamps");
    assert_eq!((scale, sack, stamps), (None, false, None));
    let Read { scale, sack, stamps, .. } = answered("no-sack");
    assert_eq!((scale, sack, stamps.map(|(_, echo)| echo)), (Some(7), false, Some(90_000)));
    for (words, named) in [
        ("mss", "number"),
        ("mss 100", "`mss 100`"),
        ("window-scale 15", "`window-scale 15`"),
        ("slowly", "`slowly`"),
    ] {
        assert!(refused::<Synproxy>(words).contains(named), "{words}");
    }
}

#[test]
fn nothing_opens_without_a_cookie() {
    let mut bench = Bench::<Synproxy>::new("");
    let (answer, ack) = handshake(&mut bench, &linux());
    let bad = Admission::Drop(DropReason::SynCookieBad);
    let tcp = |seq: u32, ack: u32, flags: u8| {
        frame(Forward, false, Tcp { seq, ack, flags, ..Tcp::default() }).build()
    };
    let right = answer.seq.wrapping_add(1);
    for (seq, ack, flags) in [
        (1001, right.wrapping_add(1), ACK),
        (1002, right, ACK),
        (999, right, ACK),
        (1001, 0, ACK),
        (1001, right, ACK | RST),
        (1001, right, FIN),
        (1001, right, 0),
        (1001, right, SYN | ACK),
        (1001, right, SYN | RST),
    ] {
        assert_eq!(bench.admit(&tcp(seq, ack, flags)).0, bad, "{seq} {ack} {flags}");
    }
    let refusal = Admission::Drop(DropReason::SynCookie);
    assert_eq!(bench.admit(&tcp(1001, 0, RST)).0, refusal, "who has not asked");
    // Who probes the closed window, who closes at once, who has data at once.
    for (seq, flags) in [(1000, ACK), (1001, ACK | FIN), (1001, ACK | PSH)] {
        let (admission, syn, _) = bench.admit(&tcp(seq, right, flags));
        assert_eq!((admission, read(&syn).seq), (Admission::Open, 1000));
    }
    bench.now += 2 << 16;
    assert_eq!(bench.admit(&ack.build()).0, bad, "too late");
}

/// Every worker, and one that a packet is handed to, tells a good cookie.
#[test]
fn workers_agree() {
    let (answer, ack) = handshake(&mut Bench::new(""), &linux());
    let mut other = Bench::<Synproxy>::new("");
    let (admission, syn, translation) = other.admit(&ack.build());
    assert_eq!((admission, translation.proxied_isn), (Admission::Open, Some(answer.seq)));
    let (admission, same, translation) = Bench::<Synproxy>::new("").admit(&syn);
    assert_eq!((admission, translation.proxied_isn), (Admission::Open, Some(answer.seq)));
    assert_eq!(same, syn);
    // A SYN with anything else there is a SYN.
    let odd = frame(Forward, false, Tcp { seq: 1, ack: 77, flags: SYN, ..Tcp::default() }).build();
    assert_eq!(other.admit(&odd).0, Admission::Answer);
}

#[test]
fn a_repeated_syn_of_the_client_is_sent_again() {
    let (mut wire, _, syn) = connect(Bench::new(""), &linux());
    let probe = Tcp { seq: 1000, ack: wire.cookie.wrapping_add(1), flags: ACK, ..Tcp::default() };
    let (done, _) = wire.forward(probe.clone(), false);
    assert_eq!(done.verdict, Verdict::Drop(DropReason::SynCookie));
    let [(port, again)] = &done.emitted[..] else { panic!() };
    assert_eq!((*port, read(again)), (FAR, syn));
    let rst = Tcp { flags: RST, ..probe.clone() };
    assert_eq!(wire.forward(rst, false).0.verdict, Verdict::Pass);
    let anew = Tcp { flags: SYN, ..probe };
    assert_eq!(wire.forward(anew, false).0.verdict, Verdict::End(DropReason::SynCookie));
}

#[test]
fn a_repeated_answer_of_the_server_is_acknowledged_again() {
    let server = Host { isn: 5, clock: Some(700), ..linux() };
    let (mut wire, answer, syn) = connect(Bench::new(""), &linux());
    let (first, window) = wire.reverse(answer_of(&server, &syn), false);
    let later = Host { clock: Some(1700), ..server };
    let (second, again) = wire.reverse(answer_of(&later, &syn), false);
    assert_eq!((first.emitted.len(), second.emitted.len()), (1, 1));
    let (window, again) = (window.unwrap(), again.unwrap());
    assert_eq!(read(&second.emitted[0].1).stamps.unwrap().1, 1700);
    assert_eq!(again.stamps.unwrap().0, answer.stamps.unwrap().0 + 1000, "its clock has gone on");
    assert_eq!(Read { stamps: window.stamps, ..again }, window);
    let blind = Tcp { ack: 77, ..answer_of(&server, &syn) };
    assert_eq!(wire.reverse(blind, false).0.verdict, Verdict::Drop(DropReason::SynCookieBad));
}

/// Both ends have forgotten the connection: the server answers another SYN, and its connection is reset. An
/// answer to anything else ends nothing.
#[test]
fn an_answer_to_another_syn_ends_the_session() {
    let (mut wire, _, syn) = connect(Bench::new(""), &linux());
    let server = Host { isn: 5, clock: Some(700), ..linux() };
    wire.reverse(answer_of(&server, &syn), false);
    let anew = Tcp { seq: 777_000, flags: SYN, ..Tcp::default() };
    let answer = Tcp { ack: 777_001, ..answer_of(&server, &syn) };
    assert_eq!(wire.reverse(answer.clone(), false).0.verdict, Verdict::Drop(DropReason::SynCookieBad));
    let repeated = Tcp { seq: linux().isn, ..anew.clone() };
    for syn in [repeated, anew] {
        assert_eq!(wire.forward(syn, false).0.verdict, Verdict::Pass);
    }
    let blind = Tcp { ack: 777_002, ..answer.clone() };
    assert_eq!(wire.reverse(blind, false).0.verdict, Verdict::Drop(DropReason::SynCookieBad));
    let (done, _) = wire.reverse(answer, false);
    assert_eq!(done.verdict, Verdict::End(DropReason::SynCookie));
    let [(port, reset)] = &done.emitted[..] else { panic!("{:?}", done.emitted) };
    let reset = read(reset);
    assert_eq!((*port, reset.flags, reset.seq), (FAR, RST, 777_001));
}

/// RFC 5961, section 3.2: the client believes a RST that is what comes next.
#[test]
fn a_refusal_of_the_server_reaches_the_client() {
    let (mut wire, answer, _) = connect(Bench::new(""), &linux());
    let blind = Tcp { ack: 1002, flags: RST | ACK, ..Tcp::default() };
    assert_eq!(wire.reverse(blind, false).0.verdict, Verdict::Drop(DropReason::SynCookieBad));
    let refusal = Tcp { ack: 1001, flags: RST | ACK, ..Tcp::default() };
    let (_, refusal) = wire.reverse(refusal, false);
    assert_eq!(refusal.map(|rst| (rst.flags, rst.seq)), Some((RST | ACK, answer.seq.wrapping_add(1))));
}

/// RFC 9293, 3.10.7.3: what a host in SYN-SENT answers to an acknowledgment of something else.
#[test]
fn an_old_connection_of_the_server_is_reset() {
    let (mut wire, _, syn) = connect(Bench::new(""), &linux());
    let (done, _) = wire.reverse(Tcp { seq: 7, ack: 4711, flags: ACK, ..Tcp::default() }, false);
    assert_eq!(done.verdict, Verdict::Drop(DropReason::SynCookieBad));
    let [(a, rst), (b, again)] = &done.emitted[..] else { panic!("{:?}", done.emitted) };
    assert_eq!((*a, *b, read(again)), (FAR, FAR, syn));
    let rst = read(rst);
    assert_eq!((rst.flags, rst.seq), (RST, 4711));
    assert_eq!(
        wire.reverse(Tcp { flags: SYN, ..Tcp::default() }, false).0.verdict,
        Verdict::Drop(DropReason::SynCookieBad)
    );
}

/// RFC 6191, section 2: a newer timestamp than the last one of a connection in TIME-WAIT replaces it. Later,
/// each end sees a clock that goes on.
#[test]
fn an_old_connection_with_newer_timestamps_is_replaced() {
    let (mut wire, answer, syn) = connect(Bench::new(""), &linux());
    let (clock, _) = syn.stamps.unwrap();
    let last = clock.wrapping_add(1 << 30);
    let old = Tcp { seq: 7, ack: 4711, flags: ACK, options: stamps(99, last), ..Tcp::default() };
    let (done, _) = wire.reverse(old, false);
    let [(_, rst), (_, again)] = &done.emitted[..] else { panic!("{:?}", done.emitted) };
    assert_eq!((read(rst).flags, read(rst).seq), (RST, 4711));
    let again = read(again);
    assert_eq!(again, Read { stamps: Some((last + 1, 0)), ..syn });

    let server = agreed(&Host { isn: 5, clock: Some(700), ..linux() }, &again);
    let (done, window) = wire.reverse(answer_of(&server, &again), false);
    let [(_, ack)] = &done.emitted[..] else { panic!("{:?}", done.emitted) };
    assert_eq!(read(ack).stamps, Some((last + 1, 700)));
    assert_eq!(window.unwrap().stamps, Some((answer.stamps.unwrap().0, clock)));
    let segment =
        |isn: u32, ack: u32, options| Tcp { seq: isn + 1, ack, flags: ACK, options, ..Tcp::default() };
    let (given, _) = answer.stamps.unwrap();
    let (_, data) = wire.forward(segment(1000, answer.seq.wrapping_add(1), stamps(clock + 9, given)), false);
    assert_eq!(data.unwrap().stamps, Some((last + 10, 700)));
    let (_, data) = wire.reverse(segment(5, 1001, stamps(720, last + 10)), false);
    assert_eq!(data.unwrap().stamps, Some((given + 20, clock + 9)));
}

#[test]
fn servers_without_the_offered_options_are_counted() {
    let lacking = |server: Host| {
        let (mut wire, _, syn) = connect(Bench::new(""), &linux());
        wire.reverse(answer_of(&server, &syn), false);
        let report = wire.bench.function.report();
        report.into_iter().filter(|(_, count)| count == "1").map(|(name, _)| name).collect::<Vec<_>>()
    };
    let server = Host { isn: 5, clock: Some(700), ..linux() };
    assert_eq!(lacking(server), ["servers-joined"]);
    assert_eq!(lacking(Host { clock: None, ..server }), ["servers-joined", "servers-lacking-options"]);
    assert_eq!(lacking(Host { sack: false, ..server }), ["servers-joined", "servers-lacking-options"]);
}

/// A session that was there before the function is left alone.
#[test]
fn earlier_sessions_pass() {
    let mut bench = Bench::<Synproxy>::new("");
    for flags in [ACK, SYN, SYN | ACK, RST, FIN | ACK] {
        for way in [Forward, Reverse] {
            let tcp = Tcp {
                seq: 9,
                ack: if flags == SYN { 0 } else { 4 },
                flags,
                options: stamps(1, 2),
                ..Tcp::default()
            };
            let frame = frame(way, true, tcp).build();
            let session = bench.open(&frame);
            let done = bench.packet(session, way, &frame);
            assert_eq!((done.verdict, done.frame, done.emitted), (Verdict::Pass, frame, vec![]));
        }
    }
    assert_ne!(NEAR, FAR);
}
