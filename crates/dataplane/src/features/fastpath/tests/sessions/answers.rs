//! Connections that are lent when they have been answered, before they are open.

use super::*;

/// The third packet, which opens the connection.
fn third() -> Vec<u8> {
    tcp(ACK, 101, 501)
}

/// A connection that was answered, and is the kernel's.
fn lent(world: &mut World) -> Vec<u8> {
    world.wait(100);
    let out = answered(world);
    assert_eq!(world.lab.states(), ["syn-received"]);
    assert!(world.works(LEFT, &third()) && world.works(RIGHT, &back(&out, ACK, 501, 101)));
    out
}

#[test]
fn the_third_packet_is_the_kernels() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for rules in [&["add-stateful in left accept", "add all drop"], &RULES_OF_NAT] {
        let mut world = World::new(rules);
        let out = lent(&mut world);
        let awaits = |port, frame: &[u8]| world.kernel.action(&key(port, frame)).unwrap().awaited_ack;
        assert_eq!(awaits(LEFT, &third()), Some(501));
        assert_eq!(awaits(RIGHT, &back(&out, ACK, 501, 101)), None);
        // What the other side sends meanwhile opens nothing.
        world.passes(RIGHT, &back(&out, ACK, 501, 101), (501, 101, 0));
        assert_eq!(world.lab.states(), ["syn-received"]);
        // More than the third packet, all between two looks.
        world.kernel.count(&key(LEFT, &third()), 3, 180);
        world.passes(LEFT, &third(), (301, 9501, 0));
        assert_eq!(world.lab.states(), ["established"]);
        assert!(world.works(LEFT, &third()), "it goes on");
        // And to its end, for which the engine is not asked.
        world.passes(RIGHT, &back(&out, ACK, 501, 101), (9502, 301, FIN));
        world.passes(LEFT, &third(), (302, 9502, FIN));
        world.wait(60);
        assert_eq!(world.lab.states(), ["closing"]);
        assert_eq!(world.refused(), []);
    }
}

/// A client that opens and closes in one go.
#[test]
fn the_third_packet_and_the_end_at_once() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(&RULES_OF_NAT);
    lent(&mut world);
    world.passes(LEFT, &third(), (102, 501, FIN));
    assert_eq!(world.lab.states(), ["fin-wait"]);
}

/// Nobody acknowledges the answer: the session is as half open as ever.
#[test]
fn what_stays_half_open_expires() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(&RULES_OF_NAT);
    let out = lent(&mut world);
    for _ in 0..15 {
        world.wait(100);
    }
    assert!(!world.works(LEFT, &third()), "its place is for others");
    let timeout = SessionSettings::default().timeouts.tcp_handshake;
    world.wait(timeout - 3000);
    assert_eq!(world.lab.states(), ["syn-received"]);
    world.wait(3000);
    world.wait(1000);
    assert_eq!(world.sessions(), 0);
    assert!(world.send(RIGHT, &back(&out, ACK, 501, 101)).is_none());
}

/// The timer of a half-open session asks the kernel before it ends it.
#[test]
fn what_the_kernel_has_opened_stays_open() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut settings = SessionSettings::default();
    settings.timeouts.tcp_handshake = 1000;
    let mut world = World::with(Forwarding { settings, ..forwarding(&RULES_OF_NAT) });
    lent(&mut world);
    world.wait(900);
    world.kernel.count(&key(LEFT, &third()), 1, 60);
    world.kernel.acknowledge(&key(LEFT, &third()), 501);
    // The time-out is over, and so is the pause between two looks.
    world.wait(500);
    world.wait(2000);
    assert_eq!(world.lab.states(), ["established"]);
}

/// The table is full: who is to make room is not who only looks half open.
#[test]
fn what_the_kernel_has_opened_makes_no_room() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for opened in [true, false] {
        let mut world = World::new(&["add-stateful in left accept", "add all drop"]);
        lent(&mut world);
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

/// What comes again, and what resets, is the engine's, and takes the connection back.
#[test]
fn what_the_engine_sees_takes_it_back() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let again = |out: &[u8], seq| back(out, SYN | ACK, seq, 101);
    for rules in [&["add-stateful in left accept", "add all drop"], &RULES_OF_NAT] {
        let mut world = World::new(rules);
        let out = lent(&mut world);
        world.send(LEFT, &tcp(SYN, 100, 0)).unwrap();
        assert!(!world.works(LEFT, &third()), "a SYN again");
        assert_eq!(world.lab.states(), ["syn-received"]);
        // An answer with another number, which is what has to be acknowledged from then on.
        world.send(RIGHT, &again(&out, 800)).unwrap();
        assert_eq!(world.lab.states(), ["syn-received"]);
        world.send(LEFT, &third()).unwrap();
        assert_eq!(world.lab.states(), ["syn-received"], "it acknowledges the first answer");
        world.send(LEFT, &tcp(ACK, 101, 801)).unwrap();
        assert_eq!(world.lab.states(), ["established"]);
        drop(world);
        let mut world = World::new(rules);
        let out = lent(&mut world);
        world.send(RIGHT, &back(&out, RST | ACK, 501, 101)).unwrap();
        assert!(!world.works(LEFT, &third()) && !world.works(RIGHT, &again(&out, 500)), "a reset");
        assert_eq!(world.lab.states(), ["reset"]);
    }
}

/// An answer that brings data may be acknowledged in several ways, and one without its SYN was not seen as it
/// was sent.
#[test]
fn what_is_not_clear_is_not_lent() {
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

/// A connection takes the place of one with the same addresses and ports that was closed, in the walk in
/// which it begins.
#[test]
fn a_connection_in_the_place_of_another() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for rules in [&["add-stateful in left accept", "add all drop"], &RULES_OF_NAT] {
        let mut world = World::new(rules);
        let out = lent(&mut world);
        world.passes(LEFT, &third(), (101, 501, 0));
        world.passes(RIGHT, &back(&out, ACK, 501, 101), (502, 101, FIN));
        world.passes(LEFT, &third(), (102, 502, FIN));
        world.send(RIGHT, &back(&out, ACK, 502, 102)).unwrap();
        assert_eq!(world.lab.states(), ["closed"]);
        world.wait(60);
        world.wait(200);
        let out = lent(&mut world);
        assert!(world.works(RIGHT, &back(&out, ACK, 501, 101)));
        assert_eq!((world.sessions(), world.refused()), (1, vec![]));
    }
}
