//! Packets that come of sessions: the next one, ICMP errors, fragments.

use super::*;

impl World {
    /// The next packet of a session.
    pub fn proceed(&mut self, at: usize, choice: u8) {
        let Some(session) = self.sessions.get(at) else { return };
        let (direction, mut detail) = session.next_packet(choice);
        let (in_port, tuple) = match direction {
            Direction::Forward => (port_of(&session.original), session.original),
            Direction::Reverse => {
                if detail.flags & common::ACK != 0 {
                    detail.ack = detail.ack.wrapping_add(session.delta);
                }
                (port_of(&session.original) ^ 1, session.outside.reversed())
            }
        };
        self.packet(in_port, tuple, detail);
    }

    /// An ICMP error about a packet of a session, by an end or a router behind it.
    pub fn complain(&mut self, at: usize, about: Direction, by_router: bool, quoted: usize) {
        let Some(session) = self.sessions.get(at).filter(|session| !self.is_doomed(session)) else { return };
        let sent = Detail { len: 30, seq: session.next[about as usize], ack: 6, ..Detail::default() };
        // As the one who complains has seen it, and as who has sent it did.
        let (seen, original, complained) = match about {
            Direction::Forward => {
                let moved = Detail { seq: sent.seq.wrapping_add(session.delta), ..sent };
                (session.outside, session.original, moved)
            }
            Direction::Reverse => (session.original.reversed(), session.outside.reversed(), sent),
        };
        let in_port = match about {
            Direction::Forward => port_of(&session.original) ^ 1,
            Direction::Reverse => port_of(&session.original),
        };
        let router = if in_port == IN { [10, 9, 9, 9] } else { [198, 51, 100, 77] };
        let from = if by_router { router } else { seen.destination.0 };
        let matching = self
            .matching(&Tuple { proto: ICMP, source: (from, 0), destination: (seen.source.0, 0) }, in_port);
        let rule_verdict = self.rule_verdict(&session.attached, &matching);
        let (outcome, bytes) =
            self.net.one(in_port, &error(from, seen.source.0, 0, &frame(seen, complained), quoted));
        if rule_verdict.drop {
            assert_eq!(outcome, Outcome::Dropped(DropReason::Rule));
            return;
        }
        assert_eq!(outcome, Outcome::Out(in_port ^ 1));
        let shown = if seen.destination.0 == original.destination.0 { from } else { original.destination.0 };
        let expected = error(shown, original.source.0, rule_verdict.tos, &frame(original, sent), quoted);
        assert_eq!(bytes, expected.build(), "{:?}", self.sessions[at]);
    }

    /// A datagram in fragments, in some order.
    pub fn in_fragments(&mut self, in_port: u16, tuple: Tuple, order: u8) {
        self.fragment_id += 1;
        let (id, detail) = (self.fragment_id, Detail { len: 40, ..Detail::default() });
        let make = |tuple, detail: Detail| fragments(&frame(tuple, detail).build(), detail.tos, id, 16);
        let mut pieces: Vec<(usize, Vec<u8>)> = make(tuple, detail).into_iter().enumerate().collect();
        pieces.rotate_left(usize::from(order % 3));
        if order & 4 != 0 {
            pieces.reverse();
        }
        let mut out: [Option<ProcessedPacket>; 3] = [None, None, None];
        let mut sent: Vec<ProcessedPacket> = pieces
            .iter()
            .flat_map(|(_, piece)| self.net.harness.process(in_port, VecPacket::new(piece)))
            .collect();
        sent.extend(self.net.harness.advance(self.net.now));
        for sent in sent {
            let place = usize::from(sent.packet.head()[21] & 0x1f) / 2;
            assert!(out[place].replace(sent).is_none(), "twice");
        }
        let [first, later @ ..] = out.map(|sent| sent.expect("all fragments come out"));
        let make_first = |tuple, detail: Detail| make(tuple, detail).swap_remove(0);
        let seen = Output { outcome: first.outcome, bytes: first.packet.head(), make: &make_first };
        let verdict = self.judge(in_port, tuple, detail, &seen);
        for (n, sent) in later.iter().enumerate() {
            self.judge_later(verdict, in_port, tuple, sent, |tuple| make(tuple, detail).swap_remove(n + 1));
        }
    }

    fn judge_later(
        &mut self,
        verdict: Verdict,
        in_port: u16,
        tuple: Tuple,
        sent: &ProcessedPacket,
        make: impl Fn(Tuple) -> Vec<u8>,
    ) {
        let matching = self.matching(&tuple.without_ports(), in_port);
        let (attached, to) = match verdict {
            Verdict::Dropped(reason) => return assert_eq!(sent.outcome, Outcome::Dropped(reason)),
            Verdict::Stateless => (vec![], tuple),
            Verdict::Session(at) => {
                let session = &self.sessions[at];
                let forward = session.direction_of(tuple) == Some(Direction::Forward);
                (
                    session.attached.clone(),
                    if forward { session.outside } else { session.original.reversed() },
                )
            }
        };
        if self.rule_verdict(&attached, &matching).drop {
            return assert_eq!(sent.outcome, Outcome::Dropped(DropReason::Rule));
        }
        assert_eq!(sent.outcome, Outcome::Out(in_port ^ 1));
        assert_eq!(sent.packet.head(), make(to));
        if let Verdict::Session(at) = verdict {
            self.sessions[at].last = self.now;
        }
    }

    /// A later fragment of a datagram whose first one never comes.
    pub fn orphan(&mut self, tuple: Tuple) {
        self.fragment_id += 1;
        let pieces = fragments(
            &frame(tuple, Detail { len: 40, ..Detail::default() }).build(),
            0,
            self.fragment_id,
            16,
        );
        assert_eq!(self.net.harness.process(IN, VecPacket::new(&pieces[1])), vec![]);
        self.orphans.push(self.now);
    }
}
