//! The functions that sessions are translated for, with the engine around them: what either end sees.

#[path = "common/mod.rs"]
mod common;

use std::collections::HashMap;

use mmb_flow::{SessionSettings, TcpSegment};
use mmb_packet::build::{Frame, Ip4, Tcp};
use mmb_packet::{Meta, PacketBuf, parse, tcp_options};
use mmb_session_harness::{Outcome, ProcessedPacket, RuleSet};

use common::*;

const CLIENT: End = ([10, 0, 0, 1], 4000);
const SERVICE: End = ([192, 0, 2, 1], 80);
const POOL: &str = "nat pool add office 198.51.100.1-198.51.100.4";

#[track_caller]
fn net(chain: &str, workers: u16) -> Net {
    let lines = [
        POOL,
        "nf add a acl allow ip-saddr 10.0.0.0/8 deny",
        "nf add l lb 192.0.2.11:8080 192.0.2.12:8080 by hash",
        "nf add r lb 192.0.2.11 192.0.2.12 by round-robin",
        "nf add d lb 127.0.0.1:1 check tcp every 0.1",
        "nf add n nat office",
        "nf add p synproxy",
        "nf add s split web: tcp-dport 80 dns: udp-dport 53",
        &format!("chain add web {chain}"),
        "add-stateful in port0 chain web",
    ];
    let rules =
        RuleSet::parse_with(&lines, SessionSettings::default(), None, &mmb_nf_builtin::registry(), workers);
    Net::with(rules.unwrap_or_else(|error| panic!("{error}")), workers, 1000)
}

fn report(net: &Net, instance: &str) -> HashMap<String, String> {
    net.harness.rules().chains.instance(instance).expect("there is one").report().into_iter().collect()
}

/// A segment, and between whom.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SentSegment {
    port: u16,
    from: End,
    to: End,
    segment: TcpSegment,
    stamps: Option<(u32, u32)>,
}

fn seen(sent: &ProcessedPacket) -> Option<SentSegment> {
    let (Outcome::Out(port) | Outcome::Emitted(port) | Outcome::Answered(port, _)) = sent.outcome else {
        return None;
    };
    let (frame, mut meta) = (sent.packet.head(), Meta::default());
    parse(frame, frame.len(), &mut meta).expect("well-formed");
    check(frame, &meta);
    let stamps = tcp_options(frame, &meta).find(|option| option.kind == 8).map(|option| {
        let [value, echo]: [[u8; 4]; 2] =
            bytemuck::cast(<[u8; 8]>::try_from(option.data).expect("eight bytes"));
        (u32::from_be_bytes(value), u32::from_be_bytes(echo))
    });
    let segment = TcpSegment::read(frame, &meta).expect("TCP");
    Some(SentSegment { port, from: source(frame), to: destination(frame), segment, stamps })
}

/// Both checksums, from scratch.
fn check(frame: &[u8], meta: &Meta) {
    use mmb_packet::checksum::{fold, pseudo4, sum};
    let (l4, end) = (usize::from(meta.l4_off), usize::from(meta.end));
    assert_eq!(fold(sum(&frame[14..34], 0)), 0xffff);
    let [a, b]: [[u8; 4]; 2] = [26, 30].map(|at| frame[at..at + 4].try_into().expect("four"));
    assert_eq!(fold(sum(&frame[l4..end], pseudo4(a, b, 6, (end - l4) as u16))), 0xffff);
}

#[track_caller]
fn go(net: &mut Net, port: u16, from: End, to: End, tcp: Tcp) -> Vec<SentSegment> {
    say(net, port, from, to, tcp, b"")
}

#[track_caller]
fn say(net: &mut Net, port: u16, from: End, to: End, tcp: Tcp, payload: &[u8]) -> Vec<SentSegment> {
    let frame = Frame::new(Ip4::new(from.0, to.0), Tcp { sport: from.1, dport: to.1, ..tcp });
    net.run(port, &frame.payload(payload)).iter().filter_map(seen).collect()
}

fn stamps(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat()
}

/// A connection through a chain with a `synproxy` in it; the end by which the server is known, and to the
/// server the client.
#[track_caller]
fn through(chain: &str, workers: u16, client: End) -> (End, End) {
    let mut net = net(chain, workers);
    let options = [&[2, 4, 5, 180, 4, 2][..], &stamps(7000, 0)[2..], &[1, 3, 3, 7]].concat();
    let syn = Tcp { seq: 1000, flags: SYN, window: 64_000, options, ..Tcp::default() };
    let answer = go(&mut net, IN, client, SERVICE, syn);
    let [answer] = &answer[..] else { panic!("{answer:?}") };
    assert_eq!((answer.port, answer.from, answer.to), (IN, SERVICE, client));
    assert_eq!((answer.segment.flags, answer.segment.ack, answer.segment.window), (SYN | ACK, 1001, 0));
    assert!(net.views().is_empty(), "no state for a SYN");
    let (cookie, (given, _)) = (answer.segment.seq, answer.stamps.expect("it has them"));

    let ack = Tcp { seq: 1001, ack: cookie.wrapping_add(1), flags: ACK, window: 500, ..Tcp::default() };
    let ack = Tcp { options: stamps(7005, given), ..ack };
    let syn = go(&mut net, IN, client, SERVICE, ack.clone());
    let [syn] = &syn[..] else { panic!("{syn:?}") };
    assert_eq!((syn.port, syn.segment.flags, syn.segment.seq, syn.segment.ack), (OUT, SYN, 1000, 0));
    assert_eq!((syn.segment.scale, syn.segment.window, syn.stamps), (Some(7), 64_000, Some((7005, 0))));
    let (server, shown) = (syn.to, syn.from);

    // It is lost, and the client asks again.
    let again = go(&mut net, IN, client, SERVICE, Tcp { seq: 1000, ..ack });
    assert_eq!(again, std::slice::from_ref(syn));

    let options = [&[2, 4, 5, 180, 4, 2][..], &stamps(50, 7005)[2..], &[1, 3, 3, 9]].concat();
    let first =
        Tcp { seq: 0xffff_fff0, ack: 1001, flags: SYN | ACK, window: 60_000, options, ..Tcp::default() };
    let both = go(&mut net, OUT, server, shown, first);
    let [window, ack] = &both[..] else { panic!("{both:?}") };
    assert_eq!((ack.port, ack.from, ack.to), (OUT, shown, server));
    assert_eq!((ack.segment.flags, ack.segment.seq, ack.segment.ack), (ACK, 1001, 0xffff_fff1));
    assert_eq!((ack.segment.window, ack.stamps), (500, Some((7005, 50))));
    assert_eq!((window.port, window.from, window.to), (IN, SERVICE, client));
    assert_eq!((window.segment.flags, window.segment.seq), (ACK, cookie.wrapping_add(1)));
    assert_eq!((window.segment.window, window.stamps), (60_000 >> 7, Some((given, 7005))));

    // The server speaks first, then the client acknowledges, with a block of SACK.
    let banner = Tcp { seq: 0xffff_fff1, ack: 1001, flags: ACK, window: 100, ..Tcp::default() };
    let banner = Tcp { options: stamps(60, 7005), ..banner };
    let told = say(&mut net, OUT, server, shown, banner, b"220 here is the mail");
    assert_eq!((told[0].segment.seq, told[0].stamps), (cookie.wrapping_add(1), Some((given + 10, 7005))));
    assert_eq!(told[0].segment.window, 400, "from a scale of 9 to one of 7");
    let block = [cookie.wrapping_add(100), cookie.wrapping_add(200)].map(u32::to_be_bytes).concat();
    let options = [stamps(7010, given + 10), vec![1, 1, 5, 10], block].concat();
    let reply =
        Tcp { seq: 1001, ack: cookie.wrapping_add(21), flags: ACK, window: 500, options, ..Tcp::default() };
    let told = go(&mut net, IN, client, SERVICE, reply);
    assert_eq!((told[0].segment.ack, told[0].stamps), (0xffff_fff0u32.wrapping_add(21), Some((7010, 60))));
    assert_eq!((told[0].from, told[0].to), (shown, server));
    assert_eq!((net.view().state, report(&net, "p")["servers-joined"].as_str()), ("established", "1"));
    (server, shown)
}

#[test]
fn synproxy_with_and_without_others() {
    for workers in 1..=3 {
        for port in 4000..4006 {
            let client = (CLIENT.0, port);
            assert_eq!(through("p", workers, client), (SERVICE, client));
            for chain in [
                "p | l",
                "l | p",
                "a | p | l",
                "a | s [web: [p | l, else: drop], dns: [n, else: pass], rest: drop]",
            ] {
                let (server, shown) = through(chain, workers, client);
                assert_eq!((server.0[3] / 10, server.1), (1, 8080), "{chain}");
                assert!(shown.0 == client.0, "{chain}: {shown:?}");
            }
            for chain in ["p | n", "n | p", "a | p | l | n", "n | l | p"] {
                let (server, shown) = through(chain, workers, client);
                assert!(shown.0[..3] == [198, 51, 100], "{chain}: {server:?} {shown:?}");
            }
        }
    }
}

#[test]
fn invalid_cookies_are_refused() {
    let mut net = net("p | l", 2);
    let ack = Tcp { seq: 1001, ack: 77, flags: ACK, ..Tcp::default() };
    assert_eq!(go(&mut net, IN, CLIENT, SERVICE, ack), []);
    assert!(net.views().is_empty());
}

#[test]
fn back_ends_share_sessions_and_drain() {
    let mut net = net("r", 1);
    let mut servers = Vec::new();
    for n in 0..4 {
        let syn = Tcp { seq: 1, flags: SYN, ..Tcp::default() };
        servers.push(go(&mut net, IN, (CLIENT.0, 4000 + n), SERVICE, syn)[0].to);
    }
    assert_eq!(servers.iter().filter(|end| **end == ([192, 0, 2, 11], 80)).count(), 2);
    assert_eq!(report(&net, "r")["192.0.2.11"], "up, 2 sessions, 2 opened");
    net.harness.rules().chains.instance("r").unwrap().set(&["drain", "192.0.2.11"]).unwrap();
    let syn = Tcp { seq: 1, flags: SYN, ..Tcp::default() };
    assert_eq!(go(&mut net, IN, (CLIENT.0, 5000), SERVICE, syn)[0].to.0, [192, 0, 2, 12]);
    net.wait(300_000);
    assert_eq!(report(&net, "r")["192.0.2.11"], "draining, 0 sessions, 2 opened");
}

/// Connections may live at another worker than the one that gets their packets first. When they were idle,
/// they go on to the same server.
#[test]
fn idle_connections_keep_their_back_end() {
    for workers in [2, 4] {
        let mut net = net("r", workers);
        let mut ends = Vec::new();
        for n in 0..24 {
            let client = (CLIENT.0, 4000 + n);
            let syn = &go(&mut net, IN, client, SERVICE, Tcp { seq: 1, flags: SYN, ..Tcp::default() })[0];
            let (server, shown) = (syn.to, syn.from);
            go(&mut net, OUT, server, shown, Tcp { seq: 9, ack: 2, flags: SYN | ACK, ..Tcp::default() });
            go(&mut net, IN, client, SERVICE, Tcp { seq: 2, ack: 10, flags: ACK, ..Tcp::default() });
            ends.push((client, shown, server));
        }
        assert!(net.harness.workers().iter().any(|sessions| sessions.counters().redirects > 0));
        for idle in [121_000, 7_400_000] {
            net.wait(idle);
            for &(client, shown, server) in &ends {
                let ack = Tcp { seq: 2, ack: 10, flags: ACK, ..Tcp::default() };
                let sent = &go(&mut net, IN, client, SERVICE, ack)[0];
                assert_eq!((sent.from, sent.to), (shown, server));
            }
        }
        assert_eq!(net.views().len(), ends.len());
    }
}

#[test]
fn denied_sessions_are_refused() {
    let mut net = net("a", 1);
    net.passes(IN, &udp(CLIENT, SERVICE));
    let stranger = ([172, 16, 0, 1], 9);
    for _ in 0..3 {
        net.drops(IN, &udp(stranger, SERVICE), mmb_packet::DropReason::Acl);
    }
    net.passes(OUT, &udp(SERVICE, CLIENT));
}

/// The client of a back end that fails its checks gets a RST with a valid sequence number, whether a rule or
/// a function translates the session.
#[test]
fn clients_of_a_dead_back_end_get_a_reset() {
    for chain in ["d", "d | p", "p | d", "p | d | n", "n | d"] {
        let mut net = net(chain, 1);
        let service = ([192, 0, 2, 1], 80);
        let syn = Tcp { seq: 1000, flags: SYN, ..Tcp::default() };
        let mut told = go(&mut net, IN, CLIENT, service, syn);
        let mut next = 1u32;
        if told[0].port == IN {
            next = told[0].segment.seq.wrapping_add(1);
            told =
                go(&mut net, IN, CLIENT, service, Tcp { seq: 1001, ack: next, flags: ACK, ..Tcp::default() });
        }
        let answer = Tcp { seq: 70_000, ack: 1001, flags: SYN | ACK, ..Tcp::default() };
        let answer = go(&mut net, OUT, told[0].to, told[0].from, answer);
        if !chain.contains('p') {
            next = 70_001;
        }
        assert_eq!(answer[0].to, CLIENT);
        let ack = Tcp { seq: 1001, ack: next, flags: ACK, ..Tcp::default() };
        assert_eq!(go(&mut net, IN, CLIENT, service, ack.clone())[0].segment.ack, 70_001, "{chain}");

        let instance = net.harness.rules().chains.instance("d").unwrap().clone();
        let (background, stop) = (instance.background().unwrap(), mmb_nf::StopSignal::default());
        std::thread::scope(|scope| {
            scope.spawn(|| background(&stop));
            while !report(&net, "d")["127.0.0.1:1"].starts_with("down") {
                std::thread::yield_now();
            }
            stop.stop();
        });
        let rst = go(&mut net, IN, CLIENT, service, ack);
        let [rst] = &rst[..] else { panic!("{chain}: {rst:?}") };
        assert_eq!((rst.port, rst.from, rst.to), (IN, service, CLIENT), "{chain}");
        assert_eq!((rst.segment.flags, rst.segment.seq), (RST, next), "{chain}");
        assert!(net.views().is_empty());
    }
}

/// Where one way of a chain translates, rules translate the sessions of the others as well.
#[test]
fn rules_translate_where_the_chain_path_does_not() {
    let lines = [
        "nf add s split web: tcp-dport 80",
        "nf add l lb 192.0.2.11",
        "nf add c monitor",
        "chain add web s [web: [l, else: drop], rest: c]",
        "add-stateful in port0 map ip-saddr 203.0.113.1 chain web",
    ];
    let rules = RuleSet::parse_with(&lines, SessionSettings::default(), None, &mmb_nf_builtin::registry(), 1);
    let mut net = Net::with(rules.unwrap_or_else(|error| panic!("{error}")), 1, 1000);
    let (service, outside) = ((SERVICE.0, 53), ([203, 0, 113, 1], CLIENT.1));
    for _ in 0..2 {
        net.becomes(0, &udp(CLIENT, service), &udp(outside, service));
        net.becomes(1, &udp(service, outside), &udp(service, CLIENT));
    }
}
