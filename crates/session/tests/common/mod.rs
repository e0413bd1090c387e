//! A box between two wires, and packets through it. What comes out is compared with frames made from scratch.

#![allow(dead_code, reason = "each test takes what it needs")]

use mmb_flow::SessionSettings;
use mmb_packet::build::{Frame, Icmp, Ip4, Tcp, Udp};
use mmb_packet::{DropReason, PacketBuf, VecPacket};
use mmb_policy::Policy;
use mmb_session::{DumpCursor, SessionCounters, SessionView};
use mmb_session_harness::{Outcome, ProcessedPacket, RuleSet, SessionHarness};

/// Port of the inside; the outside is the other end of the wire.
pub const IN: u16 = 0;
pub const OUT: u16 = 1;
/// Flags of TCP.
pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// Rules, pools and forwards, a line each.
pub fn rules(lines: &[&str]) -> RuleSet {
    rules_with(lines, SessionSettings::default(), None)
}

/// Rules with settings. Rules with the text of a rule of `before` keep their identity.
pub fn rules_with(lines: &[&str], settings: SessionSettings, before: Option<&Policy>) -> RuleSet {
    RuleSet::parse(lines, settings, before).unwrap_or_else(|error| panic!("{error}"))
}

/// The box.
pub struct Net {
    pub harness: SessionHarness,
    pub now: u32,
}

impl Net {
    pub fn new(lines: &[&str]) -> Net {
        Net::with(rules(lines), 1, 1000)
    }

    pub fn with(rules: RuleSet, workers: u16, sessions: usize) -> Net {
        // The clock is about to wrap.
        let now = u32::MAX - 5_000;
        let mut harness = SessionHarness::new(workers, sessions, 42, rules).expect("memory");
        harness.advance(now);
        Net { harness, now }
    }

    /// Lets milliseconds go by.
    pub fn wait(&mut self, milliseconds: u32) -> Vec<ProcessedPacket> {
        let mut sent = Vec::new();
        // In steps, as a worker would.
        for step in 1..=16u64 {
            let now = self.now.wrapping_add((u64::from(milliseconds) * step / 16) as u32);
            sent.extend(self.harness.advance(now));
        }
        self.now = self.now.wrapping_add(milliseconds);
        sent
    }

    /// Changes the rules; those with the same text stay what they are.
    pub fn change(&mut self, lines: &[&str]) {
        let rules = rules_with(lines, self.harness.rules().settings, Some(&self.harness.rules().policy));
        self.harness.replace_rules(rules);
    }

    /// All that comes out when a packet goes in.
    pub fn run(&mut self, in_port: u16, frame: &Frame) -> Vec<ProcessedPacket> {
        self.harness.process(in_port, VecPacket::new(&frame.build()))
    }

    /// The one packet that comes out.
    pub fn one(&mut self, in_port: u16, frame: &Frame) -> (Outcome, Vec<u8>) {
        let mut sent = self.run(in_port, frame);
        assert_eq!(sent.len(), 1, "{sent:?}");
        let sent = sent.remove(0);
        (sent.outcome, sent.packet.head().to_vec())
    }

    /// A packet comes out at the other end as it went in.
    #[track_caller]
    pub fn passes(&mut self, in_port: u16, frame: &Frame) {
        self.becomes(in_port, frame, frame);
    }

    /// A packet comes out at the other end as another one.
    #[track_caller]
    pub fn becomes(&mut self, in_port: u16, frame: &Frame, expected: &Frame) {
        let (outcome, bytes) = self.one(in_port, frame);
        assert_eq!(outcome, Outcome::Out(in_port ^ 1));
        assert_eq!(bytes, expected.build());
    }

    #[track_caller]
    pub fn drops(&mut self, in_port: u16, frame: &Frame, reason: DropReason) {
        assert_eq!(self.one(in_port, frame).0, Outcome::Dropped(reason));
    }

    /// The sessions of all workers.
    pub fn views(&self) -> Vec<SessionView> {
        let mut views = Vec::new();
        for sessions in self.harness.workers() {
            let mut cursor = DumpCursor::default();
            while sessions.dump(self.now, self.harness.rules(), &mut cursor, 7, |view| views.push(view)) {}
        }
        views
    }

    /// The only session.
    #[track_caller]
    pub fn view(&self) -> SessionView {
        let views = self.views();
        assert_eq!(views.len(), 1, "{views:?}");
        views[0].clone()
    }

    pub fn counters(&self) -> SessionCounters {
        self.harness.workers()[0].counters()
    }

    /// Packets that the rule with this index matched.
    pub fn matched(&mut self, index: u32) -> u64 {
        self.harness.flush_counters();
        let rules = self.harness.rules();
        rules.counts(rules.policy.rule(index).expect("there is one").slot).0
    }

    /// Packets about which the rule with this index decided.
    pub fn decided(&mut self, index: u32) -> u64 {
        self.harness.flush_counters();
        let rules = self.harness.rules();
        rules.decided(rules.policy.rule(index).expect("there is one").slot)
    }

    /// Opens a TCP connection through the box without translation.
    #[track_caller]
    pub fn connect(&mut self, client: ([u8; 4], u16), server: ([u8; 4], u16)) {
        self.passes(IN, &tcp(client, server, SYN, 100, 0));
        self.passes(OUT, &tcp(server, client, SYN | ACK, 500, 101));
        self.passes(IN, &tcp(client, server, ACK, 101, 501));
    }
}

pub type End = ([u8; 4], u16);

pub fn udp(from: End, to: End) -> Frame {
    Frame::new(Ip4::new(from.0, to.0), Udp::new(from.1, to.1)).payload(b"payload".as_slice())
}

pub fn tcp(from: End, to: End, flags: u8, seq: u32, ack: u32) -> Frame {
    Frame::new(Ip4::new(from.0, to.0), Tcp { flags, seq, ack, ..Tcp::new(from.1, to.1) })
}

pub fn ping(from: [u8; 4], to: [u8; 4], id: u16) -> Frame {
    echo(8, from, to, id)
}

pub fn pong(from: [u8; 4], to: [u8; 4], id: u16) -> Frame {
    echo(0, from, to, id)
}

fn echo(kind: u8, from: [u8; 4], to: [u8; 4], id: u16) -> Frame {
    let [high, low] = id.to_be_bytes();
    Frame::new(Ip4::new(from, to), Icmp { rest: [high, low, 0, 1], ..Icmp::new(kind) })
        .payload(b"abcdefgh".as_slice())
}

/// An ICMP error about a frame, which it quotes without the Ethernet header.
pub fn error(kind: u8, code: u8, from: [u8; 4], to: [u8; 4], about: &Frame) -> Frame {
    Frame::new(Ip4::new(from, to), Icmp { code, ..Icmp::new(kind) }).payload(&about.build()[14..])
}

/// The source address and port of an IPv4 frame without options and tags.
pub fn source(frame: &[u8]) -> End {
    (frame[26..30].try_into().expect("long enough"), u16::from_be_bytes([frame[34], frame[35]]))
}

/// The destination of the same.
pub fn destination(frame: &[u8]) -> End {
    (frame[30..34].try_into().expect("long enough"), u16::from_be_bytes([frame[36], frame[37]]))
}
