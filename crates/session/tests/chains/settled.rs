//! Sessions whose functions have edited the connection and do not read it any more: constants are left.

use mmb_packet::build::{Frame, Ip4, Tcp};
use mmb_packet::{Meta, PacketBuf, parse};
use mmb_session::{AddedNumbers, OffloadSource, OffloadState};

use crate::common::*;
use crate::{CLIENT, SERVER, World};

/// Four bytes more in the first eight of the client, and five less in those of the server.
const LINES: [&str; 4] = [
    "nf add there match evil replace harmless forward first 8",
    "nf add back match remove\\x20 remove reverse first 8",
    "chain add web there then back",
    "add-stateful in port0 tcp-dport 80 chain web",
];
const NAT: [&str; 2] = ["map ip-saddr 203.0.113.9", "shuffle tcp-sport"];

fn to_server(seq: u32, ack: u32, bytes: &str) -> Frame {
    tcp(CLIENT, SERVER, ACK, seq, ack).payload(bytes)
}

fn to_client(seq: u32, ack: u32, bytes: &str) -> Frame {
    tcp(SERVER, CLIENT, ACK, seq, ack).payload(bytes)
}

/// Sends both heads, and has them acknowledged. The numbers of the client grow by 4 from then on, those of
/// the server shrink by 7.
fn edit(world: &mut World) {
    world.net.connect(CLIENT, SERVER);
    let sent = world.net.run(IN, &to_server(101, 501, "evil one"));
    assert!(sent.iter().any(|one| one.packet.head().ends_with(b"harmless one")), "{sent:?}");
    world.net.becomes(OUT, &to_client(501, 113, ""), &to_client(501, 109, ""));
    let sent = world.net.run(OUT, &to_client(501, 113, "remove x"));
    assert!(sent.iter().any(|one| one.packet.head().ends_with(b"x")), "{sent:?}");
    world.net.becomes(IN, &to_server(109, 502, ""), &to_server(113, 509, ""));
}

/// What the fast path would add to the numbers of the client's segments. None: it may not forward them.
fn added(world: &mut World) -> Option<AddedNumbers> {
    // Sessions leave their chains when no packet is under way.
    world.net.wait(1);
    let frame = to_server(109, 502, "").build();
    let mut meta = Meta::default();
    parse(&frame, frame.len(), &mut meta).expect("a frame");
    let sessions = &world.net.harness.workers()[0];
    let candidate = sessions.offload_candidate(&frame, &meta).expect("a session");
    let is_eligible = matches!(sessions.offload_state(candidate, IN), OffloadState::Eligible { .. });
    assert!(!sessions.may_pass_fins(candidate), "its numbers differ");
    is_eligible.then(|| sessions.added_numbers(candidate))
}

fn settled() -> Option<AddedNumbers> {
    Some(AddedNumbers { sequence: 4, acknowledgment: 7, ..AddedNumbers::default() })
}

/// Both ends go on.
fn go_on(world: &mut World) {
    world.net.becomes(IN, &to_server(109, 502, "more"), &to_server(113, 509, "more"));
    world.net.becomes(OUT, &to_client(509, 117, "more"), &to_client(502, 113, "more"));
    world.net.becomes(IN, &to_server(113, 506, ""), &to_server(117, 513, ""));
    // Selective acknowledgements (RFC 2018).
    let sack = |seq, ack, (from, to): (u32, u32)| {
        let block = [from.to_be_bytes(), to.to_be_bytes()].concat();
        let options = [&[1, 1, 5, 10][..], &block].concat();
        Frame::new(
            Ip4::new(SERVER.0, CLIENT.0),
            Tcp { seq, ack, flags: ACK, options, ..Tcp::new(SERVER.1, CLIENT.1) },
        )
    };
    world.net.becomes(OUT, &sack(513, 117, (127, 137)), &sack(506, 113, (123, 133)));
    // What was acknowledged before comes again. It is in front of what its receiver expects.
    world.net.becomes(IN, &to_server(101, 506, "evil one"), &to_server(105, 513, "evil one"));
}

#[test]
fn constants_are_left_when_no_function_reads() {
    let mut world = World::new(&LINES);
    edit(&mut world);
    world.net.becomes(IN, &to_server(109, 502, ""), &to_server(113, 509, ""));
    assert_eq!(added(&mut world), settled());
    go_on(&mut world);
    assert_eq!(added(&mut world), settled());
    let view = world.net.view();
    let (name, text) = view.functions.last().expect("what is left");
    assert_eq!((&name[..], &text[..]), ("(edits)", "offset +4 / offset -7; the functions have left"));
    // Ends of the connection have the numbers that the tracker expects.
    world.net.becomes(
        IN,
        &tcp(CLIENT, SERVER, FIN | ACK, 113, 506),
        &tcp(CLIENT, SERVER, FIN | ACK, 117, 513),
    );
    world.net.becomes(
        OUT,
        &tcp(SERVER, CLIENT, FIN | ACK, 513, 118),
        &tcp(SERVER, CLIENT, FIN | ACK, 506, 114),
    );
    world.net.becomes(IN, &to_server(114, 507, ""), &to_server(118, 514, ""));
    assert_eq!(world.net.view().state, "closed");
}

#[test]
fn edits_under_way_keep_the_chain() {
    let mut world = World::new(&LINES);
    world.net.connect(CLIENT, SERVER);
    world.net.run(IN, &to_server(101, 501, "evil one"));
    world.net.run(OUT, &to_client(501, 101, "remove x"));
    // Neither end has acknowledged the other's bytes.
    for _ in 0..2 {
        world.net.run(IN, &to_server(109, 501, "more"));
        assert_eq!(added(&mut world), None);
    }
    world.net.becomes(IN, &to_server(113, 502, ""), &to_server(117, 509, ""));
    assert_eq!(added(&mut world), None, "the server has not");
    world.net.becomes(OUT, &to_client(509, 117, ""), &to_client(502, 113, ""));
    world.net.becomes(IN, &to_server(113, 502, ""), &to_server(117, 509, ""));
    assert_eq!(added(&mut world), settled());
}

#[test]
fn a_reset_counts_behind_edits() {
    for (port, frame, state) in [
        (IN, tcp(CLIENT, SERVER, RST, 113, 0), "reset"),
        (IN, tcp(CLIENT, SERVER, RST, 117, 0), "established"),
        (OUT, tcp(SERVER, CLIENT, RST, 513, 0), "reset"),
        (OUT, tcp(SERVER, CLIENT, RST, 506, 0), "established"),
    ] {
        let mut world = World::new(&LINES);
        edit(&mut world);
        world.net.becomes(IN, &to_server(109, 502, ""), &to_server(113, 509, ""));
        assert_eq!(added(&mut world), settled());
        go_on(&mut world);
        world.net.run(port, &frame);
        assert_eq!(world.net.view().state, state, "{frame:?}");
    }
}

/// RFC 5927, section 4.1: senders ignore errors about numbers that they do not have in flight.
#[test]
fn errors_quote_the_numbers_of_the_sender() {
    let router = [198, 51, 100, 1];
    let mut world = World::new(&LINES);
    edit(&mut world);
    world.net.becomes(IN, &to_server(109, 502, ""), &to_server(113, 509, ""));
    assert_eq!(added(&mut world), settled());
    go_on(&mut world);
    let about = |to: End, frame| error(3, 1, router, to.0, &frame);
    let (left, sent) = (to_server(117, 513, "more"), to_server(113, 506, "more"));
    world.net.becomes(OUT, &about(CLIENT, left), &about(CLIENT, sent));
    let (left, sent) = (to_client(506, 113, "more"), to_client(513, 117, "more"));
    world.net.becomes(IN, &about(SERVER, left), &about(SERVER, sent));
    // About numbers that were never sent.
    let forged = about(CLIENT, to_server(1 << 30, 513, "more"));
    world.net.drops(OUT, &forged, mmb_packet::DropReason::IcmpForged);
}

/// Functions, chain or rule are removed: the connection goes on with the constants, without a chain.
#[test]
fn functions_that_leave_leave_constants() {
    for left in
        [&LINES[..3], &[], &["add-stateful in port0 tcp-dport 80 accept"], &["add-stateful udp-dport accept"]]
    {
        let mut world = World::new(&LINES);
        edit(&mut world);
        world.change(left);
        world.net.becomes(IN, &to_server(109, 502, ""), &to_server(113, 509, ""));
        assert_eq!(added(&mut world), settled(), "{left:?}");
        assert_eq!(world.chains(), [None]);
        go_on(&mut world);
        // Rules that change keep the session.
        world.change(&[
            "nf add t tally",
            "chain add other t",
            "add-stateful in port0 tcp-dport 80 chain other",
        ]);
        go_on(&mut world);
        assert_eq!((added(&mut world), world.count("t", "packets")), (None, 5));
        world.change(&[]);
        go_on(&mut world);
        assert_eq!(added(&mut world), settled(), "{left:?}");
        world.net.wait(10_000_000);
        assert!(world.net.views().is_empty());
    }
}

/// Instances are freed although sessions that they have edited are idle. Constants stay, and so does what is
/// under way.
#[test]
fn removed_functions_leave_idle_sessions() {
    for is_settled in [true, false] {
        let mut world = World::new(&LINES);
        if is_settled {
            edit(&mut world);
        } else {
            world.net.connect(CLIENT, SERVER);
            world.net.run(IN, &to_server(101, 501, "evil one"));
        }
        let function = world.net.harness.rules().chains.instance("there").expect("there").clone();
        world.change(&["nf add t tally", "chain add other t", "add-stateful udp-dport 80 chain other"]);
        assert!(std::sync::Arc::strong_count(&function) > 1);
        world.net.wait(100);
        assert_eq!((std::sync::Arc::strong_count(&function), world.chains()), (1, vec![None]));
        let described = world.net.view().functions;
        let [(_, text)] = &described[..] else { panic!("{described:?}") };
        assert!(text.starts_with("offset +4") && text.ends_with("the functions have left"), "{text}");
        if is_settled {
            go_on(&mut world);
            assert_eq!(added(&mut world), settled());
            continue;
        }
        // The edited bytes come again.
        let sent = world.net.run(IN, &to_server(101, 501, "evil one"));
        assert!(sent.iter().any(|one| one.packet.head().ends_with(b"harmless one")), "{sent:?}");
        world.net.becomes(OUT, &to_client(501, 113, ""), &to_client(501, 109, ""));
    }
}

/// The next connection of the same addresses and ports is edited, with the constants around it.
#[test]
fn the_next_connection_is_edited() {
    let mut world = World::new(&LINES);
    edit(&mut world);
    world.net.becomes(IN, &to_server(109, 502, ""), &to_server(113, 509, ""));
    assert_eq!(added(&mut world), settled());
    world.net.run(IN, &tcp(CLIENT, SERVER, SYN, 5_000_000, 0));
    assert_eq!(added(&mut world), None);
}

#[test]
fn nat_and_constants_together() {
    let outside =
        |frame: &[u8]| (source(frame), u32::from_be_bytes([frame[38], frame[39], frame[40], frame[41]]));
    for nat in NAT {
        let rule = format!("add-stateful in port0 tcp-dport 80 {nat} chain web");
        let mut world = World::new(&[LINES[0], LINES[1], LINES[2], &rule]);
        world.net.run(IN, &tcp(CLIENT, SERVER, SYN, 100, 0));
        let (_, frame) = world.net.one(IN, &tcp(CLIENT, SERVER, SYN, 100, 0));
        let mapped = source(&frame);
        let back = |seq, ack, bytes: &str| tcp(SERVER, mapped, ACK, seq, ack).payload(bytes);
        world.net.run(OUT, &tcp(SERVER, mapped, SYN | ACK, 500, 101));
        world.net.run(IN, &to_server(101, 501, ""));
        world.net.run(IN, &to_server(101, 501, "evil one"));
        world.net.run(OUT, &back(501, 113, "remove x"));
        for _ in 0..2 {
            let (_, frame) = world.net.one(IN, &to_server(109, 502, ""));
            assert_eq!(outside(&frame), (mapped, 113), "{nat}");
        }
        assert_eq!(added(&mut world), settled(), "{nat}");
        let (_, frame) = world.net.one(IN, &to_server(109, 502, "more"));
        assert_eq!(outside(&frame), (mapped, 113), "{nat}");
        world.net.becomes(OUT, &back(509, 117, "more"), &to_client(502, 113, "more"));
        // Back into a chain, and out of it.
        for (line, is_settled) in [("nf add t tally", false), ("nf add u tally", true)] {
            let chain = if is_settled { LINES[2] } else { "chain add web there then back then t" };
            world.change(&[LINES[0], LINES[1], line, chain, &rule]);
            for _ in 0..2 {
                let (_, frame) = world.net.one(IN, &to_server(113, 506, "more"));
                assert_eq!(outside(&frame), (mapped, 117), "{nat}");
                world.net.becomes(OUT, &back(513, 117, "more"), &to_client(506, 113, "more"));
            }
            assert_eq!(added(&mut world), settled().filter(|_| is_settled), "{nat}");
        }
    }
}
