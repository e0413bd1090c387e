//! The model: what is known of sessions, rules and mappings, and what must become of a packet.
//!
//! What the engine may choose (a port, a server, a random number) is read off the first packet that it sends
//! on, and held against what the rule allows. From then on everything is determined.

mod mapped;
mod related;

use std::collections::HashSet;

use mmb_flow::{Key, SessionSettings};
use mmb_packet::{DropReason, PacketBuf, VecPacket};
use mmb_session_harness::{Outcome, ProcessedPacket, RuleSet};

use crate::common::{self, IN, Net, OUT};
use crate::functions::registry;
use crate::packet::{Detail, ICMP, TCP, Tuple, error, fragments, frame};
use crate::rules::*;
use crate::session::{Direction, RuleId, Session, TIMEOUTS};

/// The decision of the rules about a packet.
#[derive(Clone, Copy, Debug)]
struct RuleVerdict {
    drop: bool,
    tos: u8,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Session(usize),
    Stateless,
    Dropped(DropReason),
}

/// What came out, and how it would look for other addresses and numbers.
struct Output<'a> {
    outcome: Outcome,
    bytes: &'a [u8],
    make: &'a dyn Fn(Tuple, Detail) -> Vec<u8>,
}

pub struct World {
    pub net: Net,
    pub now: u64,
    pub workers: u16,
    /// Sessions go through chains, which make no difference to what comes out.
    chained: bool,
    settings: SessionSettings,
    /// By rule: which one it is now, if it is in force.
    rules: [Option<u32>; RULES.len()],
    next_rule: u32,
    pool: u32,
    port_forward: Option<u32>,
    pub sessions: Vec<Session>,
    /// Those that a packet has ended since their rules are gone. If there are several workers, that packet
    /// may have come to another one than the session's, as rules say who owns an address; then it is still
    /// there, until it expires.
    ghosts: HashSet<(Tuple, Tuple)>,
    fragment_id: u16,
    /// When fragments came whose first ones never will.
    orphans: Vec<u64>,
}

impl World {
    pub fn new(workers: u16, mask: u16, port_forward: bool, tcp_window_check: bool, chained: bool) -> World {
        let settings = SessionSettings { timeouts: TIMEOUTS, tcp_window_check, ..SessionSettings::default() };
        // The chains are there from the beginning on, so that what they count is known to the end.
        let lines = if chained { &CHAIN_LINES[..] } else { &[] };
        let rules = RuleSet::parse_with(lines, settings, None, &registry(), workers).expect("good lines");
        let net = Net::with(rules, workers, 4000);
        let mut world = World {
            net,
            now: 0,
            workers,
            chained,
            settings,
            rules: [None; RULES.len()],
            next_rule: 0,
            pool: 0,
            port_forward: None,
            sessions: Vec::new(),
            ghosts: HashSet::new(),
            fragment_id: 0,
            orphans: Vec::new(),
        };
        world.change(mask, port_forward);
        world
    }

    /// Puts those rules in force whose bits are set. A rule that was in force before stays what it was.
    pub fn change(&mut self, mask: u16, port_forward: bool) {
        let mask = if self.chained { mask & !OVERRULED } else { mask };
        let mut lines: Vec<String> = Vec::new();
        if self.chained {
            lines.extend(CHAIN_LINES.map(str::to_owned));
        }
        for (n, rule) in RULES.iter().enumerate() {
            if mask & 1 << n == 0 {
                self.rules[n] = None;
                continue;
            }
            lines.push(rule.said(self.chained));
            if self.rules[n].is_none() {
                self.next_rule += 1;
                self.rules[n] = Some(self.next_rule);
                self.pool += u32::from(n == POOL_RULE);
            }
        }
        if self.rules[POOL_RULE].is_some() {
            lines.push(POOL_LINE.to_owned());
        }
        if port_forward {
            lines.push(FORWARD_LINE.to_owned());
            self.next_rule += 1;
            self.port_forward = self.port_forward.or(Some(self.next_rule));
        } else {
            self.port_forward = None;
        }
        let before = Some(self.net.harness.rules());
        let rules = RuleSet::parse_with(&lines, self.settings, before, &registry(), self.workers);
        self.net.harness.replace_rules(rules.unwrap_or_else(|error| panic!("{error}")));
    }

    /// Whether every session that functions have opened was released.
    pub fn is_released(&self) -> bool {
        let Some(tally) = self.net.harness.rules().chains.instance("t") else { return true };
        let report = tally.report();
        report[0].1 == report[1].1
    }

    pub fn wait(&mut self, seconds: u8) {
        let lost = self.net.wait(u32::from(seconds) * 1000);
        self.now += u64::from(seconds) * 1000;
        let now = self.now;
        let before = self.orphans.len();
        self.orphans.retain(|came| now - came < u64::from(TIMEOUTS.fragment));
        assert_eq!(lost.len(), before - self.orphans.len());
        assert!(lost.iter().all(|sent| sent.outcome == Outcome::Dropped(DropReason::FragmentLost)));
        self.sessions.retain(|session| now - session.last < session.timeout());
    }

    pub fn clear(&mut self) {
        let (workers, rules) = self.net.harness.workers_mut();
        for sessions in workers {
            while sessions.clear_batch(3, rules) {}
        }
        self.sessions.clear();
    }

    fn is_alive(&self, rule: RuleId) -> bool {
        self.rules[rule.0] == Some(rule.1)
    }

    fn matching(&self, tuple: &Tuple, in_port: u16) -> Vec<RuleId> {
        let matches = |n: usize| (RULES[n].matches)(tuple, in_port);
        (0..RULES.len()).filter(|&n| matches(n)).filter_map(|n| Some((n, self.rules[n]?))).collect()
    }

    fn rule_verdict(&self, attached: &[RuleId], matching: &[RuleId]) -> RuleVerdict {
        let mut rule_verdict = RuleVerdict { drop: false, tos: 0 };
        let mut accept = false;
        for rule in attached.iter().filter(|rule| self.is_alive(**rule)).chain(matching) {
            match RULES[rule.0].effect {
                Effect::Nothing => {}
                Effect::Accept => accept = true,
                Effect::Drop => rule_verdict.drop = true,
                Effect::Dscp(dscp) => rule_verdict.tos = dscp << 2,
            }
        }
        rule_verdict.drop &= !accept;
        rule_verdict
    }

    /// Whether nothing keeps the session any more, so that its next packet ends it.
    fn is_doomed(&self, session: &Session) -> bool {
        let gone = |rule: &RuleId| !self.is_alive(*rule);
        let ruleless = session.port_forward.is_some() && session.inbound;
        session.translators.iter().any(gone)
            || (!ruleless && session.attached.iter().all(gone) && self.opening_rules(session).is_empty())
            || session.pool.is_some_and(|pool| pool != self.pool || self.rules[POOL_RULE].is_none())
            || session.port_forward.is_some_and(|port_forward| self.port_forward != Some(port_forward))
    }

    /// The stateful rules that would open the session now, by its first packet; none if they drop it or
    /// translate it.
    fn opening_rules(&self, session: &Session) -> Vec<RuleId> {
        let first = &session.original;
        let matching = self.matching(first, port_of(first));
        let is = |what: fn(&ModelRule) -> bool| matching.iter().any(|rule| what(&RULES[rule.0]));
        let is_opened = is(ModelRule::opens) && !is(ModelRule::translates);
        if first.proto == ICMP || !is_opened || self.rule_verdict(&[], &matching).drop {
            return Vec::new();
        }
        matching.into_iter().filter(|rule| RULES[rule.0].stateful).collect()
    }

    /// Whether NAT has a say about packets to there.
    fn is_claimed(&self, tuple: &Tuple) -> bool {
        let pool = self.rules[POOL_RULE].is_some() && POOL.contains(&tuple.destination.0);
        pool || self.is_port_forward(tuple)
    }

    fn is_port_forward(&self, tuple: &Tuple) -> bool {
        self.port_forward.is_some() && tuple.proto == TCP && tuple.destination == FORWARD_ENDPOINT
    }

    /// A packet, and the check of what becomes of it.
    pub fn packet(&mut self, in_port: u16, tuple: Tuple, detail: Detail) {
        let (outcome, bytes) = self.net.one(in_port, &frame(tuple, detail));
        let make = |tuple, detail| frame(tuple, detail).build();
        self.judge(in_port, tuple, detail, &Output { outcome, bytes: &bytes, make: &make });
    }

    fn judge(&mut self, in_port: u16, tuple: Tuple, detail: Detail, seen: &Output<'_>) -> Verdict {
        let found = self.sessions.iter().position(|session| session.direction_of(tuple).is_some());
        if let Some(at) = found {
            let syn = tuple.proto == TCP && detail.flags == common::SYN;
            let over = syn && self.sessions[at].is_over();
            if !over && !self.is_doomed(&self.sessions[at]) {
                return self.existing(at, in_port, tuple, detail, seen);
            }
            let session = self.sessions.remove(at);
            if !over && self.workers > 1 {
                self.ghosts.insert((session.original, session.outside.reversed()));
            }
        }
        self.unknown(in_port, tuple, detail, seen)
    }

    fn existing(
        &mut self,
        at: usize,
        in_port: u16,
        tuple: Tuple,
        detail: Detail,
        seen: &Output<'_>,
    ) -> Verdict {
        let matching = self.matching(&tuple, in_port);
        let session = &self.sessions[at];
        if !session.attached.is_empty() && session.attached.iter().all(|rule| !self.is_alive(*rule)) {
            let opening = self.opening_rules(session);
            self.attach(at, &opening);
        }
        self.attach(at, &matching);
        let rule_verdict = self.rule_verdict(&self.sessions[at].attached, &matching);
        let session = &mut self.sessions[at];
        if rule_verdict.drop {
            assert_eq!(seen.outcome, Outcome::Dropped(DropReason::Rule));
            return Verdict::Session(at);
        }
        let direction = session.direction_of(tuple).expect("it was found");
        let (to, mut out) = match direction {
            Direction::Forward => {
                (session.outside, Detail { seq: detail.seq.wrapping_add(session.delta), ..detail })
            }
            Direction::Reverse => (
                session.original.reversed(),
                Detail { ack: detail.ack.wrapping_sub(session.delta), ..detail },
            ),
        };
        out.tos = rule_verdict.tos;
        if tuple.proto == TCP && detail.flags & common::ACK == 0 {
            out.ack = detail.ack;
        }
        let view = if direction == Direction::Forward { detail } else { out };
        session.advance(direction, view, self.now);
        assert_eq!(seen.outcome, Outcome::Out(in_port ^ 1), "{session:?}");
        assert_eq!(seen.bytes, (seen.make)(to, out), "{session:?}");
        Verdict::Session(at)
    }

    fn attach(&mut self, at: usize, matching: &[RuleId]) {
        let rules = self.rules;
        let attached = &mut self.sessions[at].attached;
        attached.retain(|rule| rules[rule.0] == Some(rule.1));
        for rule in matching.iter().filter(|rule| RULES[rule.0].stateful) {
            if !attached.contains(rule) {
                attached.push(*rule);
            }
        }
    }

    fn unknown(&mut self, in_port: u16, tuple: Tuple, detail: Detail, seen: &Output<'_>) -> Verdict {
        let matching = self.matching(&tuple, in_port);
        let rule_verdict = self.rule_verdict(&[], &matching);
        if rule_verdict.drop {
            assert_eq!(seen.outcome, Outcome::Dropped(DropReason::Rule));
            return Verdict::Dropped(DropReason::Rule);
        }
        if self.is_claimed(&tuple) {
            return self.arrives(in_port, tuple, detail, &matching, seen);
        }
        if !matching.iter().any(|rule| RULES[rule.0].opens()) {
            assert_eq!(seen.outcome, Outcome::Out(in_port ^ 1));
            assert_eq!(seen.bytes, (seen.make)(tuple, Detail { tos: rule_verdict.tos, ..detail }));
            return Verdict::Stateless;
        }
        let translators: Vec<RuleId> =
            matching.iter().copied().filter(|rule| RULES[rule.0].translates()).collect();
        let binds: Vec<Binding> = translators.iter().flat_map(|rule| RULES[rule.0].binds).copied().collect();
        if matches!(
            seen.outcome,
            Outcome::Answered(_, DropReason::NatExhausted) | Outcome::Dropped(DropReason::NatExhausted)
        ) {
            assert!(self.is_ambiguous(&binds, tuple), "{tuple:?}");
            return Verdict::Dropped(DropReason::NatExhausted);
        }
        assert_eq!(seen.outcome, Outcome::Out(in_port ^ 1), "{tuple:?}");
        let outside = Tuple::read(seen.bytes, tuple);
        let pool = self.allows(&binds, tuple, outside);
        let mut delta = 0;
        if binds.contains(&Binding::Sequence) && detail.flags == common::SYN {
            let seq = seen.bytes[38..42].try_into().expect("four bytes");
            delta = u32::from_be_bytes(seq).wrapping_sub(detail.seq);
        }
        let out = Detail { tos: rule_verdict.tos, seq: detail.seq.wrapping_add(delta), ..detail };
        assert_eq!(seen.bytes, (seen.make)(outside, out));
        self.begin(tuple, outside, detail, &matching);
        let at = self.sessions.len() - 1;
        let port_forward = pool && outside.source == FORWARD_ENDPOINT;
        let session = &mut self.sessions[at];
        (session.delta, session.translators) = (delta, translators);
        session.pool = (pool && !port_forward).then_some(self.pool);
        session.port_forward = self.port_forward.filter(|_| port_forward);
        Verdict::Session(at)
    }

    /// Enters a session. No two may look the same to those who answer.
    fn begin(&mut self, original: Tuple, outside: Tuple, detail: Detail, matching: &[RuleId]) {
        for session in &self.sessions {
            let keys = [session.original, session.outside.reversed()];
            assert!(
                !keys.contains(&outside.reversed()) && !keys.contains(&original),
                "{outside:?}: {session:?}"
            );
        }
        let (state, next) = Session::begin(original.proto, detail);
        self.sessions.push(Session {
            original,
            outside,
            delta: 0,
            attached: matching.iter().copied().filter(|rule| RULES[rule.0].stateful).collect(),
            translators: Vec::new(),
            pool: None,
            port_forward: None,
            inbound: false,
            state,
            reset: detail.flags & common::RST != 0,
            doubtful: false,
            checked: self.settings.tcp_window_check,
            acked: [detail.ack, detail.seq.wrapping_add(u32::from(detail.flags & common::SYN != 0))],
            closer: Direction::Forward,
            next,
            last: self.now,
        });
    }

    /// The engine's sessions are the model's.
    pub fn compare(&self) {
        let tuple = |key: &Key| Tuple {
            proto: key.proto,
            source: (key.source[..4].try_into().expect("four bytes"), u16::from_be_bytes(key.source_port)),
            destination: (
                key.destination[..4].try_into().expect("four bytes"),
                u16::from_be_bytes(key.destination_port),
            ),
        };
        let views: HashSet<_> =
            self.net.views().iter().map(|v| (tuple(&v.original), tuple(&v.reply), v.state)).collect();
        let mine: HashSet<_> =
            self.sessions.iter().map(|s| (s.original, s.outside.reversed(), s.name())).collect();
        assert_eq!(mine.difference(&views).next(), None, "{views:?}");
        let more = views.difference(&mine).find(|(there, back, _)| !self.ghosts.contains(&(*there, *back)));
        assert_eq!(more, None, "{mine:?}");
    }
}

/// The port by which packets with this tuple come in.
pub fn port_of(tuple: &Tuple) -> u16 {
    if tuple.source.0[0] == 10 { IN } else { OUT }
}
