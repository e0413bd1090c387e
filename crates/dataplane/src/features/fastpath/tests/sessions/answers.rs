//! TCP connections that are offloaded with their answer, before they are established.

use super::*;

/// The third packet, which establishes the connection.
fn third() -> Vec<u8> {
    tcp(ACK, 101, 501)
}

/// Opens a connection that is offloaded with its answer.
fn offloaded(world: &mut World) -> Vec<u8> {
    world.wait(100);
    let out = answered(world);
    assert_eq!(world.lab.states(), ["syn-received"]);
    assert!(world.works(LEFT, &third()) && world.works(RIGHT, &back(&out, ACK, 501, 101)));
    out
}

#[test]
fn the_third_packet_goes_through_the_kernel() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for rules in [&["add-stateful in left accept", "add all drop"], &RULES_OF_NAT] {
        let mut world = World::new(rules);
        let out = offloaded(&mut world);
        let awaits = |port, frame: &[u8]| world.kernel.action(&key(port, frame)).unwrap().awaited_ack;
        assert_eq!(awaits(LEFT, &third()), Some(501));
        assert_eq!(awaits(RIGHT, &back(&out, ACK, 501, 101)), None);
        // Packets of the responder do not establish it.
        world.passes(RIGHT, &back(&out, ACK, 501, 101), 101);
        assert_eq!(world.lab.states(), ["syn-received"]);
        // The third packet and more, between two sweeps.
        world.kernel.count(&key(LEFT, &third()), 3, 180);
        world.passes(LEFT, &third(), 9501);
        assert_eq!(world.lab.states(), ["established"]);
        assert!(world.works(LEFT, &third()), "it goes on");
        // Until its end.
        world.send(RIGHT, &back(&out, FIN | ACK, 9501, 101)).unwrap();
        assert_eq!(world.lab.states(), ["close-wait"]);
        world.send(LEFT, &tcp(FIN | ACK, 301, 9502)).unwrap();
        assert_eq!(world.lab.states(), ["closing"]);
        assert_eq!(world.refused(), []);
    }
}

/// A client that establishes and closes at once.
#[test]
fn the_third_packet_may_close_the_connection() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(&RULES_OF_NAT);
    offloaded(&mut world);
    world.send(LEFT, &tcp(FIN | ACK, 101, 501)).unwrap();
    assert_eq!(world.lab.states(), ["fin-wait"]);
}

/// Without an acknowledgement of the answer, the session stays half open.
#[test]
fn half_open_sessions_expire() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(&RULES_OF_NAT);
    let out = offloaded(&mut world);
    for _ in 0..15 {
        world.wait(100);
    }
    assert!(!world.works(LEFT, &third()), "its entry was revoked");
    let timeout = SessionSettings::default().timeouts.tcp_handshake;
    world.wait(timeout - 3000);
    assert_eq!(world.lab.states(), ["syn-received"]);
    world.wait(3000);
    world.wait(1000);
    assert_eq!(world.sessions(), 0);
    assert!(world.send(RIGHT, &back(&out, ACK, 501, 101)).is_none());
}

/// The timer of a half-open session reads the kernel's counters before it ends the session.
#[test]
fn sessions_established_through_the_kernel_stay() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut settings = SessionSettings::default();
    settings.timeouts.tcp_handshake = 1000;
    let mut world = World::with(Forwarding { settings, ..forwarding(&RULES_OF_NAT) });
    offloaded(&mut world);
    world.wait(900);
    world.kernel.count(&key(LEFT, &third()), 1, 60);
    world.kernel.acknowledge(&key(LEFT, &third()), 501);
    // The timeout and the sweep interval have both passed.
    world.wait(500);
    world.wait(2000);
    assert_eq!(world.lab.states(), ["established"]);
}

/// A full table does not evict a session that the kernel has established.
#[test]
fn sessions_established_through_the_kernel_are_not_evicted() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for opened in [true, false] {
        let mut world = World::new(&["add-stateful in left accept", "add all drop"]);
        offloaded(&mut world);
        if opened {
            world.kernel.count(&key(LEFT, &third()), 1, 60);
            world.kernel.acknowledge(&key(LEFT, &third()), 501);
        }
        let other = |port: u16| Frame::new(Ip4::new(INSIDE, SERVER), Udp::new(port, 53)).payload([1]).build();
        world.now += 1;
        world.lab.run(world.now, (3000..3100).map(|port| (LEFT, other(port))).collect());
        assert_eq!(world.sessions(), 64);
        assert_eq!(world.lab.states().contains(&"established"), opened);
        assert_eq!(world.works(LEFT, &third()), opened);
    }
}

/// Retransmissions and resets go through the engine and revoke the flow.
#[test]
fn packets_through_the_engine_revoke_the_flow() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let again = |out: &[u8], seq| back(out, SYN | ACK, seq, 101);
    for rules in [&["add-stateful in left accept", "add all drop"], &RULES_OF_NAT] {
        let mut world = World::new(rules);
        let out = offloaded(&mut world);
        world.send(LEFT, &tcp(SYN, 100, 0)).unwrap();
        assert!(!world.works(LEFT, &third()), "a SYN again");
        assert_eq!(world.lab.states(), ["syn-received"]);
        // An answer with another sequence number must be acknowledged instead.
        world.send(RIGHT, &again(&out, 800)).unwrap();
        assert_eq!(world.lab.states(), ["syn-received"]);
        world.send(LEFT, &third()).unwrap();
        assert_eq!(world.lab.states(), ["syn-received"], "it acknowledges the first answer");
        world.send(LEFT, &tcp(ACK, 101, 801)).unwrap();
        assert_eq!(world.lab.states(), ["established"]);
        drop(world);
        let mut world = World::new(rules);
        let out = offloaded(&mut world);
        world.send(RIGHT, &back(&out, RST | ACK, 501, 101)).unwrap();
        assert!(!world.works(LEFT, &third()) && !world.works(RIGHT, &again(&out, 500)), "a reset");
        assert_eq!(world.lab.states(), ["reset"]);
    }
}

/// An answer with data has several valid acknowledgements; the opening packet of an answer may be unseen.
/// Neither is offloaded.
#[test]
fn ambiguous_answers_are_not_offloaded() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(&["add-stateful in left accept", "add all drop"]);
    world.wait(100);
    let out = world.send(LEFT, &tcp(SYN, 100, 0)).unwrap();
    let (address, port) = source(&out);
    let answer = Tcp { flags: SYN | ACK, seq: 500, ack: 101, ..Tcp::new(80, port) };
    let frame = Frame::new(Ip4::new(SERVER, address), answer).payload([1; 5]).build();
    world.send(RIGHT, &frame).unwrap();
    assert_eq!(world.lab.states(), ["syn-received"]);
    assert!(!world.works(LEFT, &third()) && !world.works(RIGHT, &frame));
    world.send(LEFT, &tcp(ACK, 101, 503)).unwrap();
    assert_eq!(world.lab.states(), ["established"]);
}

/// A connection replaces a closed one with the same addresses and ports in one walk.
#[test]
fn a_connection_replaces_a_closed_one() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for rules in [&["add-stateful in left accept", "add all drop"], &RULES_OF_NAT] {
        let mut world = World::new(rules);
        let out = offloaded(&mut world);
        world.passes(LEFT, &third(), 501);
        world.send(RIGHT, &back(&out, FIN | ACK, 501, 101)).unwrap();
        world.send(LEFT, &tcp(FIN | ACK, 101, 502)).unwrap();
        world.send(RIGHT, &back(&out, ACK, 502, 102)).unwrap();
        assert_eq!(world.lab.states(), ["closed"]);
        world.wait(60);
        world.wait(200);
        let out = offloaded(&mut world);
        assert!(world.works(RIGHT, &back(&out, ACK, 501, 101)));
        assert_eq!((world.sessions(), world.refused()), (1, vec![]));
    }
}
