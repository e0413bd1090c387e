//! A client, servers, and mmb between them, on links that lose, repeat and reorder segments.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::IpAddr;

use mmb_flow::SessionSettings;
use mmb_packet::{PacketBuf, VecPacket};
use mmb_session_harness::{Outcome, RuleSet};

use crate::common::{IN, Net, OUT};
use crate::hosts::*;
use crate::offload::{forwarded, numbers};

/// Addresses of the service and of the servers, by family.
pub fn address(is_ip6: bool, host: u8) -> IpAddr {
    match is_ip6 {
        false => [192, 0, 2, host].into(),
        true => [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)].into(),
    }
}

pub const CLAUSES: &str = "host *.a.example to 192.0.2.11:8080 192.0.2.12:8080 [2001:db8::b]:8080 [2001:db8::c]:8080 \
                       path /static to 192.0.2.13 2001:db8::d cookie s x* to 192.0.2.14:81 [2001:db8::e]:81";

/// Room behind a frame, at least what is left in a buffer of DPDK behind one of 1,500 bytes.
const ROOM: usize = 500;

/// Where a frame is on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hop {
    /// On the way to mmb.
    In,
    /// Late on the way to mmb.
    LateIn,
    /// On the way to a host.
    Out,
}

/// A client, servers, mmb between them, and links that lose segments.
pub struct World {
    pub net: Net,
    pub client: Host,
    pub servers: BTreeMap<(End, End), Host>,
    pub server: Offer,
    /// Bytes of the request, after which a server responds.
    pub expected: usize,
    pub response: Vec<u8>,
    /// Servers that refuse, and servers that say nothing.
    pub refusing: HashSet<IpAddr>,
    pub silent: HashSet<IpAddr>,
    /// Servers answer SYNs with cookies, as Linux does when many connections open.
    pub have_cookies: bool,
    /// They do not accept their cookies.
    pub forget: bool,
    /// They reset connections when they have got something.
    pub abort: bool,
    /// They close behind the response.
    pub closes: bool,
    pub losses: Vec<bool>,
    /// Frames that come to mmb a second time, behind all others that are under way.
    pub copies: Vec<bool>,
    /// Frames that are overtaken by all others that are under way.
    pub late: Vec<bool>,
    pub frames: usize,
    /// Segments that the fast path could have forwarded, if they are compared with what it would have sent.
    pub forwarded: Option<usize>,
}

impl World {
    pub fn new(options: &str, workers: u16, is_ip6: bool, offers: (Offer, Offer)) -> World {
        World::with_chain("l", options, workers, is_ip6, offers)
    }

    pub fn with_chain(
        chain: &str,
        options: &str,
        workers: u16,
        is_ip6: bool,
        offers: (Offer, Offer),
    ) -> World {
        let settings = SessionSettings { tcp_window_check: true, ..SessionSettings::default() };
        World::with_settings(chain, options, (workers, settings), is_ip6, offers)
    }

    pub fn with_settings(
        chain: &str,
        options: &str,
        (workers, settings): (u16, SessionSettings),
        is_ip6: bool,
        (client, server): (Offer, Offer),
    ) -> World {
        let lines = [
            &format!("nf add l http-lb {CLAUSES} {options}"),
            "nat pool add office 198.51.100.1-198.51.100.2",
            "nf add n nat office",
            "nf add c count",
            "nf add w payload-count",
            "nf add m match @ replace three!",
            "nf add x match % remove",
            "nf add h http-edit response header add X-Seen yes",
            &format!("chain add web {chain}"),
            "add-stateful in port0 chain web",
        ];
        let rules = RuleSet::parse_with(&lines, settings, None, &mmb_nf_builtin::registry(), workers);
        let net = Net::with(rules.unwrap_or_else(|error| panic!("{error}")), workers, 1000);
        let near = if is_ip6 { "2001:db8:1::9".parse().expect("an address") } else { [10, 0, 0, 1].into() };
        World {
            net,
            client: Host::new((near, 4000), (address(is_ip6, 1), 80), client),
            servers: BTreeMap::new(),
            server,
            expected: 0,
            response: Vec::new(),
            refusing: HashSet::new(),
            silent: HashSet::new(),
            have_cookies: false,
            forget: false,
            abort: false,
            closes: false,
            losses: Vec::new(),
            copies: Vec::new(),
            late: Vec::new(),
            frames: 0,
            forwarded: None,
        }
    }

    /// The client writes a request in pieces.
    pub fn request(&mut self, request: &[u8], cuts: &[usize]) {
        self.expected = request.len();
        let mut rest = request;
        for &cut in cuts {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            self.client.writes.push(piece.to_vec());
            rest = behind;
        }
        self.client.writes.push(rest.to_vec());
        self.client.writes.retain(|piece| !piece.is_empty());
    }

    pub fn is_lost(&mut self) -> bool {
        self.frames += 1;
        self.losses.get(self.frames).copied().unwrap_or(false)
    }

    /// A segment arrives at a server. Returns its answers.
    pub fn serve(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let (now, came) = (self.net.now, Came::read(frame));
        let new = Host::new(came.to, came.from, self.server);
        if self.silent.contains(&came.to.0) {
            return Vec::new();
        }
        if self.refusing.contains(&came.to.0) {
            return vec![new.refuse(&came)];
        }
        let is_syn = came.segment.flags & SYN != 0;
        let key = (came.to, came.from);
        if !is_syn && !self.servers.contains_key(&key) {
            return vec![new.refuse(&came)];
        }
        let host = self.servers.entry(key).or_insert_with(|| new.clone());
        if is_syn && host.was_reset {
            *host = new;
        }
        if self.have_cookies && !is_syn && (self.forget || !host.proves_cookie(&came)) {
            // A cookie is valid whatever came before.
            let reset = host.reset(&came);
            if self.forget {
                self.servers.remove(&key);
            }
            return vec![reset];
        }
        let mut answers = host.receive(now, &came);
        if self.abort && !host.received.is_empty() {
            return vec![host.abort(now)];
        }
        if host.received.len() == self.expected && host.writes.is_empty() && !self.response.is_empty() {
            host.writes.push(std::mem::take(&mut self.response));
            answers.extend(host.repeat(now));
            answers.extend(self.closes.then(|| host.close(now)));
        }
        answers
    }

    pub fn is_late(&self) -> bool {
        self.late.get(self.frames).copied().unwrap_or(false)
    }

    /// Takes frames through mmb, with all that follows.
    pub fn pass(&mut self, frames: Vec<(u16, Vec<u8>)>) {
        let mut queue: VecDeque<_> = frames.into_iter().map(|(port, frame)| (port, frame, Hop::In)).collect();
        while let Some((port, frame, hop)) = queue.pop_front() {
            if hop == Hop::Out {
                let answers = self.deliver(port, &frame);
                queue.extend(answers.into_iter().map(|frame| (port, frame, Hop::In)));
                continue;
            }
            if hop == Hop::In {
                if self.is_lost() {
                    continue;
                }
                if self.copies.get(self.frames).is_some_and(|&is_copied| is_copied) {
                    queue.push_back((port, frame.clone(), Hop::In));
                }
                if self.is_late() {
                    queue.push_back((port, frame, Hop::LateIn));
                    continue;
                }
            }
            let expected = self.forwarded.and_then(|_| forwarded(&self.net, port, &frame));
            let all = self.net.harness.process(port, VecPacket::with_room(&frame, ROOM));
            if let Some(expected) = expected {
                let sent: Vec<_> = all.iter().map(|sent| numbers(sent.packet.head())).collect();
                assert_eq!(sent, [expected]);
                self.forwarded = self.forwarded.map(|count| count + 1);
            }
            for sent in all {
                let to = match sent.outcome {
                    Outcome::Out(to) | Outcome::Emitted(to) | Outcome::Answered(to, _) => to,
                    Outcome::Dropped(_) | Outcome::Consumed => continue,
                    Outcome::Lost => panic!("no worker took a packet"),
                };
                let frame = sent.packet.head().to_vec();
                if self.is_lost() {
                    continue;
                }
                if self.is_late() {
                    queue.push_back((to, frame, Hop::Out));
                    continue;
                }
                let answers = self.deliver(to, &frame);
                queue.extend(answers.into_iter().map(|frame| (to, frame, Hop::In)));
            }
        }
    }

    /// A frame arrives at a host. Returns its answers.
    pub fn deliver(&mut self, to: u16, frame: &[u8]) -> Vec<Vec<u8>> {
        match to {
            IN => self.client.receive(self.net.now, &Came::read(frame)),
            _ => self.serve(frame),
        }
    }

    /// Lets timers go off until the client has a response of this length, or for so many rounds.
    pub fn run(&mut self, length: usize, rounds: usize) {
        for _ in 0..rounds {
            let now = self.net.now;
            let mut frames: Vec<_> = self.client.repeat(now).into_iter().map(|frame| (IN, frame)).collect();
            frames.extend(
                self.servers.values_mut().flat_map(|host| host.repeat(now)).map(|frame| (OUT, frame)),
            );
            self.pass(frames);
            if self.client.received.len() >= length {
                return;
            }
            self.net.now = now.wrapping_add(300);
            for sent in self.net.harness.advance(self.net.now) {
                assert!(matches!(sent.outcome, Outcome::Dropped(_)), "{sent:?}");
            }
        }
    }

    /// Whatever was lost arrives, also the last acknowledgments.
    pub fn settle(&mut self) {
        self.losses.clear();
        self.late.clear();
        self.run(usize::MAX, 2);
    }

    /// The servers that have got something, with what they have got.
    pub fn served(&self) -> Vec<(IpAddr, &[u8])> {
        let all = self.servers.iter().filter(|(_, host)| !host.received.is_empty());
        all.map(|((end, _), host)| (end.0, &host.received[..])).collect()
    }

    pub fn report(&self, name: &str) -> String {
        let report = self.net.harness.rules().chains.instance("l").expect("there").report();
        report.into_iter().find(|(is, _)| is == name).map_or_else(String::new, |(_, value)| value)
    }
}
