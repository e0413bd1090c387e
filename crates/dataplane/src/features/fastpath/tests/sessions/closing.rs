//! The end of TCP connections: through the engine, or through the kernel, which records FINs.

use super::*;

#[test]
fn connections_close_through_the_engine() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(&["add-stateful in left nat p accept", "add in right drop"]);
    let out = open(&mut world);
    let data = tcp(ACK, 101, 501);
    assert!(world.learns(LEFT, &data));
    let answer = back(&out, ACK, 501, 101);
    assert!(world.learns(RIGHT, &answer));
    assert!(world.kernel.action(&key(LEFT, &data)).unwrap().track_tcp);
    // An RST must fit the highest acknowledgement that the kernel has seen.
    world.kernel.count(&key(LEFT, &data), 5, 5000);
    world.kernel.acknowledge(&key(LEFT, &data), 900_501);
    world.send(RIGHT, &back(&out, RST, 900_501, 0)).unwrap();
    assert!(!world.works(LEFT, &data) && !world.works(RIGHT, &answer), "both at once");
    // The RST was accepted: the session ends in minutes, not in hours.
    for _ in 0..300 {
        world.wait(1000);
    }
    assert_eq!(world.sessions(), 0);
    // A FIN revokes the flow, too, and its successors are forwarded.
    drop(world);
    let mut world = World::new(&["add-stateful in left nat p accept", "add in right drop"]);
    let out = open(&mut world);
    assert!(world.learns(LEFT, &data));
    world.send(RIGHT, &back(&out, FIN | ACK, 501, 101)).unwrap();
    assert!(!world.works(LEFT, &data));
    assert!(world.learns(LEFT, &tcp(ACK, 101, 502)));
    world.send(LEFT, &tcp(FIN | ACK, 101, 502)).unwrap();
    assert!(!world.works(LEFT, &data));
    assert!(!world.learns(LEFT, &data), "the last acknowledgement goes through the engine");
}

/// A connection that the kernel forwards in both directions: a frame of each.
struct Opened {
    world: World,
    data: Vec<u8>,
    answer: Vec<u8>,
    /// A packet of the client as sent on the right.
    sent: Vec<u8>,
}

impl Opened {
    fn new(rules: &[&str]) -> Opened {
        let mut world = World::new(rules);
        world.wait(100);
        let ([data, answer], sent) = opened(&mut world);
        for (port, frame) in [(LEFT, &data), (RIGHT, &answer)] {
            assert!(world.kernel.action(&key(port, frame)).unwrap().pass_fin);
        }
        Opened { world, data, answer, sent }
    }

    fn key(&self, port: PortId) -> FastKey {
        key(port, if port == LEFT { &self.data } else { &self.answer })
    }

    /// The kernel forwards a segment that acknowledges `ack`, perhaps with the FIN that ends at `fin`.
    fn forward(&self, port: PortId, ack: u32, fin: Option<u32>) {
        let (kernel, key) = (&self.world.kernel, self.key(port));
        kernel.count(&key, 1, 60);
        kernel.acknowledge(&key, ack);
        if let Some(end) = fin {
            kernel.finish(&key, end);
        }
    }

    /// A sweep runs. Returns the state of the connection.
    fn swept(&mut self) -> Vec<&'static str> {
        self.world.wait(60);
        self.world.lab.states()
    }
}

const FIREWALL_AND_NAT: [&[&str]; 2] = [&["add-stateful in left accept", "add all drop"], &RULES_OF_NAT];

#[test]
fn connections_close_through_the_kernel() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for rules in FIREWALL_AND_NAT {
        let mut it = Opened::new(rules);
        it.forward(RIGHT, 101, Some(502));
        assert_eq!(it.swept(), ["close-wait"]);
        assert!(it.world.works(LEFT, &it.data) && it.world.works(RIGHT, &it.answer));
        it.forward(LEFT, 502, Some(102));
        assert_eq!(it.swept(), ["closing"]);
        it.world.wait(1);
        assert!(!it.world.works(LEFT, &it.data) && !it.world.works(RIGHT, &it.answer));
        it.world.send(RIGHT, &back(&it.sent, ACK, 502, 102)).unwrap();
        assert_eq!(it.world.lab.states(), ["closed"]);
    }
}

/// The first side that closes receives much data until the other one does.
#[test]
fn connections_close_between_two_sweeps() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for rules in FIREWALL_AND_NAT {
        let mut it = Opened::new(rules);
        it.forward(LEFT, 501, Some(102));
        it.forward(RIGHT, 102, Some(9_000_502));
        it.forward(LEFT, 9_000_502, None);
        assert_eq!(it.swept(), ["closed"]);
        it.world.wait(1);
        assert!(!it.world.works(LEFT, &it.data) && !it.world.works(RIGHT, &it.answer));
        assert_eq!(it.world.refused(), []);
    }
}

/// A SYN of the same addresses and ports comes before the next sweep: it opens a new session.
#[test]
fn a_connection_that_has_closed_in_the_kernel_gives_way_to_another() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut it = Opened::new(&RULES_OF_NAT);
    it.forward(RIGHT, 101, Some(502));
    it.forward(LEFT, 502, Some(102));
    it.forward(RIGHT, 102, None);
    it.world.send(LEFT, &tcp(SYN, 70_000, 0)).unwrap();
    assert_eq!(it.world.lab.states(), ["syn-sent"]);
    drop(it);
    // One that is half closed does not.
    let mut it = Opened::new(&RULES_OF_NAT);
    it.forward(RIGHT, 101, Some(502));
    it.world.send(LEFT, &tcp(SYN, 70_000, 0)).unwrap();
    assert_eq!(it.world.lab.states(), ["close-wait"]);
}

/// A FIN that does not fit the connection changes nothing.
#[test]
fn forged_fins_do_not_close() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for end in [3_000_000, 400, 500] {
        let mut it = Opened::new(&RULES_OF_NAT);
        it.forward(LEFT, 501, None);
        it.forward(RIGHT, 101, Some(end));
        assert_eq!(it.swept(), ["established"], "FIN up to {end}");
        assert!(it.world.works(RIGHT, &it.answer), "the flow stays");
    }
    // Later segments disprove one that fits.
    let mut it = Opened::new(&RULES_OF_NAT);
    it.forward(RIGHT, 101, Some(700));
    assert_eq!(it.swept(), ["close-wait"]);
    it.forward(LEFT, 5000, None);
    it.swept();
    it.world.send(LEFT, &tcp(FIN | ACK, 101, 5000)).unwrap();
    assert_eq!(it.world.lab.states(), ["fin-wait"]);
}
