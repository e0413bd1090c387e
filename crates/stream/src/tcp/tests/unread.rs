//! No byte reaches a receiver that functions have not read.

use std::collections::BTreeSet;

use super::*;

/// The number of the receiver's SYN.
const OWN: u32 = 1000;

/// A receiver as in RFC 9293, 3.10.7: a client whose SYN has gone on, or a server.
struct Receiver {
    is_server: bool,
    next: Option<u32>,
    is_closed: bool,
}

impl Receiver {
    /// Takes a segment. Returns the numbers of the bytes that it takes, and flags and acknowledgement of its
    /// answer.
    fn take(&mut self, segment: &Segment) -> (Vec<u32>, Option<(u8, u32)>) {
        let has = |flag| segment.flags & flag != 0;
        let is_answer = has(ACK) && segment.ack == OWN + 1;
        let nothing = |answer| (Vec::new(), answer);
        let Some(next) = self.next else {
            let begins = if self.is_server { has(SYN) && !has(ACK) } else { has(SYN) && is_answer };
            if self.is_closed || has(RST) || !begins {
                let refuses = !has(RST) && has(ACK) && (self.is_server || !is_answer);
                return nothing(refuses.then_some((RST, 0)));
            }
            self.next = Some(segment.seq.wrapping_add(1));
            let flags = if self.is_server { SYN | ACK } else { ACK };
            return nothing(self.next.map(|next| (flags, next)));
        };
        if has(RST) && segment.seq == next {
            // A server listens again.
            (self.next, self.is_closed) = (None, !self.is_server);
            return nothing(None);
        }
        if has(RST) || has(SYN) || !is_answer {
            // Challenge ACKs (RFC 5961).
            return nothing(Some((ACK, next)));
        }
        let end = segment.seq.wrapping_add(segment.len.into());
        if is_after(segment.seq, next) || !is_after(end, next) {
            return nothing(Some((ACK, next)));
        }
        self.next = Some(end);
        ((0..end.wrapping_sub(next)).map(|at| next.wrapping_add(at)).collect(), Some((ACK, end)))
    }
}

/// The middlebox: the stream of the attacker's direction, and what it holds.
struct Middlebox {
    stream: TcpStream,
    policy: Policy,
    held: Vec<(HeldRange, Segment, bool)>,
    read: BTreeSet<u32>,
}

impl Middlebox {
    /// Takes a segment of the attacker. Returns those that go on, and whether each arrives.
    fn take(&mut self, direction: usize, sent: Segment, arrives: bool) -> Vec<(Segment, bool)> {
        let mut gone = Vec::new();
        match self.stream.segment(direction, &sent, &self.policy) {
            Outcome::Pass(view, _) => gone.push((sent, view, arrives)),
            Outcome::Stop(_) => gone.push((sent, View::NONE, arrives)),
            Outcome::Hold(range) => {
                let at = self.held.iter().position(|(other, ..)| is_after(other.from, range.from));
                self.held.insert(at.unwrap_or(self.held.len()), (range, sent, arrives));
                self.stream.note_held(direction);
            }
            Outcome::Drop(_) | Outcome::Reset(_) => {}
        }
        while let Some(&(range, sent, arrives)) = self.held.first() {
            match self.stream.next_held(direction, range) {
                NextHeld::Wait => break,
                NextHeld::Pass(view) => gone.push((sent, view, arrives)),
                NextHeld::Drop => {}
            }
            self.held.remove(0);
        }
        gone.into_iter().map(|(sent, view, arrives)| (self.note(sent, view), arrives)).collect()
    }

    fn note(&mut self, sent: Segment, view: View) -> Segment {
        if view.is_restart {
            self.read.clear();
        }
        let start = sent.seq.wrapping_add(u32::from(sent.flags & SYN != 0) + u32::from(view.skip));
        self.read.extend((0..u32::from(view.len)).map(|at| start.wrapping_add(at)));
        sent
    }
}

/// Flags, number, acknowledgement, bytes, and whether the segment arrives.
type Sent = (u8, u32, u32, u16, bool);

fn sent() -> impl Strategy<Value = Sent> {
    let flags = prop_oneof![1 => Just(SYN | ACK), 4 => Just(ACK), 1 => Just(RST), 1 => Just(SYN), 1 => Just(ACK | FIN)];
    let acks = prop_oneof![6 => Just(OWN + 1), 1 => OWN - 20..OWN + 20];
    (flags, 0u32..40, acks, 0u16..12, prop::bool::weighted(0.7))
}

proptest! {
    /// A host sends what it likes, and some of it is lost behind the middlebox.
    #[test]
    fn no_byte_reaches_the_receiver_unread(
        base in prop_oneof![Just(100u32), u32::MAX - 30..u32::MAX],
        segments in prop::collection::vec(sent(), 0..60),
        is_server in any::<bool>(),
        pickup in prop_oneof![Just(OnPickup::Pass), Just(OnPickup::Inspect)],
    ) {
        let policy = Policy { pickup, ..Policy::default() };
        let mut middlebox =
            Middlebox { stream: TcpStream::default(), policy, held: Vec::new(), read: BTreeSet::new() };
        let mut receiver = Receiver { is_server, next: None, is_closed: false };
        // The attacker is the side that opens the session, if the receiver is a server.
        let (attacker, victim) = if is_server { (0, 1) } else { (1, 0) };
        if !is_server {
            middlebox.stream.segment(victim, &segment(SYN, OWN, 0, 0), &policy);
        }
        for (flags, seq, ack, len, arrives) in segments {
            let len = if flags & (RST | SYN) != 0 { 0 } else { len };
            let sent = segment(flags, base.wrapping_add(seq), ack, len);
            for (sent, arrives) in middlebox.take(attacker, sent, arrives) {
                if !arrives {
                    continue;
                }
                let (taken, answer) = receiver.take(&sent);
                for number in taken {
                    prop_assert!(middlebox.read.contains(&number), "{number} of {:?}", middlebox.read);
                }
                if let Some((flags, ack)) = answer {
                    let seq = if flags == RST { sent.ack } else { OWN + u32::from(flags & SYN == 0) };
                    middlebox.stream.segment(victim, &segment(flags, seq, ack, 0), &policy);
                }
            }
        }
    }
}
