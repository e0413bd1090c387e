//! Connections come and go for a while, and nothing may be left of them.
//!
//! ```text
//! cargo run --release -p mmb-session --example soak -- [SECONDS]         (600)
//! ```
//!
//! Hosts behind a pool open TCP connections, some of which are closed, some reset, some forgotten; they send
//! datagrams, pings and fragments that are answered or not; rules change, and floods of SYNs fill the table.
//! Time is simulated, a few hours to the second. In between all ends wait until everything is over: then
//! there must be no session, no mapping and no fragment, and the process must not have grown.

use std::time::{Duration, Instant};

use mmb_flow::{SessionSettings, TcpSegment};
use mmb_packet::build::{Frame, Icmp, Ip4, Tcp, Transport, Udp};
use mmb_packet::{PacketBuf, VecPacket};
use mmb_session_harness::{Outcome, RuleSet, SessionHarness};

const WORKERS: u16 = 2;
const SESSIONS: usize = 20_000;
const INSIDE: u16 = 0;
const RULES: [&str; 5] = [
    "add-stateful ip-saddr 10.0.0.0/8 nat p",
    "add-stateful ip-saddr 10.0.0.0/8 tcp-dport 80 mod ip-dscp 7 chain watch",
    "add-stateful ip-saddr 10.1.0.0/16 ip-proto tcp shuffle tcp-seq-num map ip-saddr 200.0.2.0/28",
    "add in port1 ip-proto tcp drop",
    "add-stateful ip-saddr 10.0.2.0/24 chain hide",
];
/// The pool, and functions of chains.
const SETUP: [&str; 5] = [
    "nat pool add p 200.0.1.1-200.0.1.4",
    "nf add m monitor",
    "nf add n nat p",
    "chain add watch m",
    "chain add hide m | n",
];
/// Bytes that the process may grow by, once it has seen everything.
const GROWTH: u64 = 4 << 20;
/// Rounds after which it has.
const WARM: u32 = 20;

/// Numbers that look random (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// The pool and so many rules.
fn rules(n: usize) -> RuleSet {
    let lines = [&SETUP[..], &RULES[..n]].concat();
    RuleSet::parse(&lines, SessionSettings::default(), None).expect("good lines")
}

struct Soak {
    harness: SessionHarness,
    random: Random,
    now: u32,
    came: u64,
    went: u64,
    dropped: u64,
}

impl Soak {
    fn send(&mut self, in_port: u16, frame: &[u8]) -> Option<Vec<u8>> {
        self.came += 1;
        let sent = self.harness.process(in_port, VecPacket::new(frame));
        let mut out = None;
        for sent in sent {
            self.went += 1;
            match sent.outcome {
                Outcome::Out(_) => out = Some(sent.packet.head().to_vec()),
                Outcome::Lost => panic!("a packet went round in circles"),
                _ => self.dropped += 1,
            }
        }
        out
    }

    /// Time goes by, and what waited is done with.
    fn wait(&mut self, milliseconds: u32) {
        self.now = self.now.wrapping_add(milliseconds);
        let lost = self.harness.advance(self.now).len() as u64;
        (self.went, self.dropped) = (self.went + lost, self.dropped + lost);
    }

    fn tuple(&mut self) -> ([u8; 4], u16, [u8; 4]) {
        let host = [10, self.random.below(2) as u8, self.random.below(4) as u8, self.random.below(250) as u8];
        (host, 1024 + self.random.below(60_000) as u16, [192, 0, 2, self.random.below(200) as u8])
    }

    /// A connection, up to where somebody loses interest.
    fn connection(&mut self) {
        let (host, port, server) = self.tuple();
        let end = self.random.below(9);
        let (syn, ack, fin) = (TcpSegment::SYN, TcpSegment::ACK, TcpSegment::FIN);
        let last = if self.random.below(4) == 0 { TcpSegment::RST | ack } else { fin | ack };
        // Direction, flags, numbers: the originator's sequence starts at 100, the other side's at 900.
        let script = [
            (true, syn, 100, 0),
            (false, syn | ack, 900, 101),
            (true, ack, 101, 901),
            (true, ack, 101, 901),
            (false, ack, 901, 101),
            (false, last, 901, 101),
            (true, fin | ack, 101, 902),
            (false, ack, 902, 102),
        ];
        let mut seen = None;
        for (forward, flags, seq, ack) in script.into_iter().take(end as usize) {
            let ip = if forward { Ip4::new(host, server) } else { Ip4::new(server, host) };
            let [from, to] = if forward { [port, 80] } else { [80, port] };
            let segment = Frame::new(ip, Tcp { flags, seq, ack, ..Tcp::new(from, to) }).build();
            if forward {
                seen = self.send(INSIDE, &segment);
            } else if let Some(out) = &seen {
                // To where the other side has seen it come from, and about the numbers that it has seen.
                let shift = word(out, 38).wrapping_sub(if flags & syn == 0 { 101 } else { 100 });
                let tcp = Tcp { flags, seq, ack: ack.wrapping_add(shift), ..Tcp::new(80, port_of(out)) };
                self.send(INSIDE ^ 1, &Frame::new(Ip4::new(server, address(out)), tcp).build());
            }
        }
    }

    fn datagram(&mut self) {
        let (host, port, server) = self.tuple();
        let out = self.send(INSIDE, &Frame::new(Ip4::new(host, server), Udp::new(port, 53)).build());
        let Some(out) = out.filter(|_| self.random.below(2) == 0) else { return };
        let reply = Frame::new(Ip4::new(server, address(&out)), Udp::new(53, port_of(&out)));
        self.send(INSIDE ^ 1, &reply.build());
        let error = Frame::new(Ip4::new(server, address(&out)), Icmp { code: 3, ..Icmp::new(3) });
        self.send(INSIDE ^ 1, &error.payload(&out[14..42]).build());
    }

    fn ping(&mut self) {
        let (host, id, server) = self.tuple();
        let [high, low] = id.to_be_bytes();
        self.send(
            INSIDE,
            &Frame::new(Ip4::new(host, server), Icmp { rest: [high, low, 0, 1], ..Icmp::new(8) }).build(),
        );
    }

    /// Fragments, of which some come too late or never.
    fn fragments(&mut self) {
        let (host, id, server) = self.tuple();
        let ip = |flags, fragment_offset| Ip4 { id, flags, fragment_offset, ..Ip4::new(host, server) };
        let first = Frame::new(ip(1, 0), Udp::new(id, 53)).payload([0; 8]).build();
        let last = Frame::new(ip(0, 2), Transport::Raw(17)).payload([0; 16]).build();
        match self.random.below(4) {
            0 => drop(self.send(INSIDE, &last)),
            1 => drop(self.send(INSIDE, &last).or(self.send(INSIDE, &first))),
            _ => drop(self.send(INSIDE, &first).or(self.send(INSIDE, &last))),
        }
    }

    fn round(&mut self) {
        for step in 0..4000 {
            match self.random.below(8) {
                0..4 => self.connection(),
                4 | 5 => self.datagram(),
                6 => self.ping(),
                _ => self.fragments(),
            }
            if step % 10 == 0 {
                let milliseconds = self.random.below(400) as u32;
                self.wait(milliseconds);
            }
            if step % 1000 == 999 {
                let n = 1 + self.random.below(RULES.len() as u64) as usize;
                self.harness.replace_rules(rules(n));
            }
        }
        for _ in 0..2 * SESSIONS {
            let (host, port, server) = self.tuple();
            let syn = Tcp { flags: TcpSegment::SYN, ..Tcp::new(port, 443) };
            self.send(INSIDE, &Frame::new(Ip4::new(host, server), syn).build());
        }
    }

    /// Everything comes to its end.
    fn settle(&mut self) {
        for _ in 0..400 {
            self.wait(60_000);
        }
        assert_eq!(self.came, self.went, "packets are kept");
        for sessions in self.harness.workers() {
            let counters = sessions.counters();
            assert_eq!((counters.sessions, counters.half_open, sessions.nat().mappings()), (0, 0, 0));
        }
    }
}

/// The source address of an IPv4 frame, and its source port.
fn address(frame: &[u8]) -> [u8; 4] {
    word(frame, 26).to_be_bytes()
}

fn port_of(frame: &[u8]) -> u16 {
    (word(frame, 34) >> 16) as u16
}

fn word(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"))
}

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

fn main() {
    let seconds =
        std::env::args().nth(1).map_or(600, |argument| argument.parse().expect("a number of seconds"));
    let (start, length) = (Instant::now(), Duration::from_secs(seconds));
    let harness = SessionHarness::new(WORKERS, SESSIONS, 5, rules(1)).expect("memory");
    let mut soak =
        Soak { harness, random: Random(88_172_645_463_325_252), now: 0, came: 0, went: 0, dropped: 0 };
    let (mut rounds, mut warm) = (0, 0);
    while rounds <= WARM || start.elapsed() < length {
        soak.round();
        soak.settle();
        rounds += 1;
        if rounds == WARM {
            warm = resident();
        }
    }
    let grown = resident().saturating_sub(warm);
    let created: u64 = soak.harness.workers().iter().map(|sessions| sessions.counters().created).sum();
    let evicted: u64 = soak.harness.workers().iter().map(|sessions| sessions.counters().evicted).sum();
    println!(
        "{rounds} rounds, {} packets ({} dropped), {created} sessions ({evicted} made room); none left; {} MiB, grown by {} KiB",
        soak.came,
        soak.dropped,
        resident() >> 20,
        grown >> 10,
    );
    assert!(grown <= GROWTH, "the process has grown by {grown} bytes");
}
