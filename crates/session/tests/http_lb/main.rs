//! `http-lb` with the engine around it: hosts that lose segments get each other's exact bytes.

#[path = "../common/mod.rs"]
mod common;
mod hosts;
mod streams;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::IpAddr;

use mmb_flow::SessionSettings;
use mmb_packet::{PacketBuf, VecPacket};
use mmb_session_harness::{Outcome, RuleSet};
use proptest::prelude::*;

use common::{IN, Net, OUT};
use hosts::*;

/// Addresses of the service and of the servers, by family.
fn address(is_ip6: bool, host: u8) -> IpAddr {
    match is_ip6 {
        false => [192, 0, 2, host].into(),
        true => [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)].into(),
    }
}

const CLAUSES: &str = "host *.a.example to 192.0.2.11:8080 192.0.2.12:8080 [2001:db8::b]:8080 [2001:db8::c]:8080 \
                       path /static to 192.0.2.13 2001:db8::d cookie s x* to 192.0.2.14:81 [2001:db8::e]:81";

/// Room behind a frame, at least what is left in a buffer of DPDK behind one of 1,500 bytes.
const ROOM: usize = 500;

/// A client, servers, mmb between them, and links that lose segments.
struct World {
    net: Net,
    client: Host,
    servers: BTreeMap<(End, End), Host>,
    server: Offer,
    /// Bytes of the request, after which a server responds.
    expected: usize,
    response: Vec<u8>,
    /// Servers that refuse, and servers that say nothing.
    refusing: HashSet<IpAddr>,
    silent: HashSet<IpAddr>,
    /// Servers answer SYNs with cookies, as Linux does when many connections open.
    have_cookies: bool,
    /// They do not accept their cookies.
    forget: bool,
    /// They reset connections when they have got something.
    abort: bool,
    losses: Vec<bool>,
    /// Frames that come to mmb a second time, behind all others that are under way.
    copies: Vec<bool>,
    frames: usize,
}

impl World {
    fn new(options: &str, workers: u16, is_ip6: bool, offers: (Offer, Offer)) -> World {
        World::with_chain("l", options, workers, is_ip6, offers)
    }

    fn with_chain(
        chain: &str,
        options: &str,
        workers: u16,
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
        let settings = SessionSettings { tcp_window_check: true, ..SessionSettings::default() };
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
            losses: Vec::new(),
            copies: Vec::new(),
            frames: 0,
        }
    }

    /// The client writes a request in pieces.
    fn request(&mut self, request: &[u8], cuts: &[usize]) {
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

    fn is_lost(&mut self) -> bool {
        self.frames += 1;
        self.losses.get(self.frames).copied().unwrap_or(false)
    }

    /// A segment arrives at a server. Returns its answers.
    fn serve(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
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
        let host = self.servers.entry(key).or_insert(new);
        if self.have_cookies && !is_syn && (self.forget || !host.proves_cookie(&came)) {
            let reset = host.reset(&came);
            self.servers.remove(&key);
            return vec![reset];
        }
        let mut answers = host.receive(now, &came);
        if self.abort && !host.received.is_empty() {
            return vec![host.abort(now)];
        }
        if host.received.len() == self.expected && host.writes.is_empty() && !self.response.is_empty() {
            host.writes.push(std::mem::take(&mut self.response));
            answers.extend(host.repeat(now));
        }
        answers
    }

    /// Takes frames through mmb, with all that follows.
    fn pass(&mut self, frames: Vec<(u16, Vec<u8>)>) {
        let mut queue: VecDeque<_> = frames.into();
        while let Some((port, frame)) = queue.pop_front() {
            if self.is_lost() {
                continue;
            }
            if self.copies.get(self.frames).is_some_and(|&is_copied| is_copied) {
                queue.push_back((port, frame.clone()));
            }
            for sent in self.net.harness.process(port, VecPacket::with_room(&frame, ROOM)) {
                let to = match sent.outcome {
                    Outcome::Out(to) | Outcome::Emitted(to) | Outcome::Answered(to, _) => to,
                    Outcome::Dropped(_) | Outcome::Consumed => continue,
                    Outcome::Lost => panic!("no worker took a packet"),
                };
                let (now, frame) = (self.net.now, sent.packet.head().to_vec());
                if self.is_lost() {
                    continue;
                }
                let answers = match to {
                    IN => self.client.receive(now, &Came::read(&frame)),
                    _ => self.serve(&frame),
                };
                queue.extend(answers.into_iter().map(|frame| (to, frame)));
            }
        }
    }

    /// Lets timers go off until the client has a response of this length, or for so many rounds.
    fn run(&mut self, length: usize, rounds: usize) {
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
    fn settle(&mut self) {
        self.losses.clear();
        self.run(usize::MAX, 2);
    }

    /// The servers that have got something, with what they have got.
    fn served(&self) -> Vec<(IpAddr, &[u8])> {
        let all = self.servers.iter().filter(|(_, host)| !host.received.is_empty());
        all.map(|((end, _), host)| (end.0, &host.received[..])).collect()
    }

    fn report(&self, name: &str) -> String {
        let report = self.net.harness.rules().chains.instance("l").expect("there").report();
        report.into_iter().find(|(is, _)| is == name).map_or_else(String::new, |(_, value)| value)
    }
}

fn plain(isn: u32) -> Offer {
    Offer { isn, mss: 1460, scale: Some(7), clock: Some(70_000), window: 64_000 }
}

fn plain_world(options: &str, is_ip6: bool) -> World {
    World::new(options, 1, is_ip6, (plain(1000), plain(0xffff_fff0)))
}

fn offer() -> impl Strategy<Value = Offer> {
    (any::<u32>(), 500..1461u16, prop::option::of(0..9u8), prop::option::of(any::<u32>()), 30_000..200_000u32)
        .prop_map(|(isn, mss, scale, clock, window)| Offer { isn, mss, scale, clock, window })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However a request is cut, and whatever is lost: one server gets it, and the client the response.
    #[test]
    fn both_ends_get_the_exact_bytes(
        offers in (offer(), offer()),
        (workers, chain, waits) in (1..4u16, 0..4usize, any::<bool>()),
        cuts in prop::collection::vec(1..400usize, 0..6),
        (header, body, response) in (0..9_000usize, 0..40_000usize, 1..40_000usize),
        which in 0..3usize,
        losses in prop::collection::vec(prop::bool::weighted(0.2), 0..60),
        copies in prop::collection::vec(prop::bool::weighted(0.1), 0..60),
    ) {
        // What a client is promised, its server has to support.
        let server = Offer { clock: Some(offers.1.clock.unwrap_or(7)), ..offers.1 };
        // Functions that translate sources accept IPv4 alone.
        let (chain, is_ip6) = [("l", true), ("c | l", false), ("l | n", false), ("n | c | l", false)][chain];
        let mut world = World::with_chain(chain, "", workers, is_ip6, (offers.0, server));
        let (head, hosts): (_, &[u8]) = [
            ("POST /static HTTP/1.1\r\nHost: www.A.example\r\n", &[11u8, 12][..]),
            ("POST /x/../static/y HTTP/1.1\r\nHost: b.example:80\r\n", &[13]),
            ("POST / HTTP/1.1\r\nHost: b\r\nCookie: a=b; s=xyz\r\n", &[14]),
        ][which];
        let fill = format!("X-Fill: {}\r\n", "f".repeat(header.min(8_000)));
        let request = format!("{head}{fill}Content-Length: {body}\r\n\r\n{}", "b".repeat(body)).into_bytes();
        let answer: Vec<u8> = (0..response).map(|at| ((at * 31) >> 3) as u8).collect();
        world.client.waits = waits;
        world.response = answer.clone();
        (world.losses, world.copies) = (losses, copies);
        world.request(&request, &cuts);
        world.run(answer.len(), 200);
        world.settle();
        prop_assert!(!world.client.was_reset);
        let served = world.served();
        prop_assert_eq!(served.len(), 1, "{:?}", served.iter().map(|one| one.0).collect::<Vec<_>>());
        prop_assert!(hosts.iter().any(|&host| served[0].0 == address(is_ip6, host)), "{:?}", served[0].0);
        prop_assert!(served[0].1 == request, "{} of {} bytes", served[0].1.len(), request.len());
        prop_assert!(world.client.received == answer, "{} of {} bytes", world.client.received.len(), answer.len());
        prop_assert_eq!(world.report("requests"), "1");
        prop_assert_eq!(world.net.view().state, "established");
    }
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: www.a.example\r\n\r\n";

#[test]
fn the_head_may_be_cut_at_every_byte() {
    for cut in 1..REQUEST.len() {
        for waits in [false, true] {
            let mut world = plain_world("", false);
            world.client.waits = waits;
            world.response = b"here".to_vec();
            world.request(REQUEST, &[cut]);
            world.run(4, 20);
            assert_eq!((&*world.client.received, world.served()[0].1), (&b"here"[..], REQUEST), "{cut}");
            // The tracker knows nothing of the bytes that mmb has sent itself.
            assert_eq!(world.net.view().state, "established", "{cut}");
        }
    }
    let mut world = plain_world("", false);
    world.client.waits = true;
    world.response = b"here".to_vec();
    world.request(REQUEST, &[1; 40]);
    world.run(4, 60);
    assert_eq!((&*world.client.received, world.served()[0].1), (&b"here"[..], REQUEST));
}

/// A server that refuses, and one that does not answer: the other one of the group gets the request.
#[test]
fn another_server_of_the_group_takes_over() {
    for (is_ip6, is_silent) in [(false, false), (true, false), (false, true), (true, true)] {
        for first in [11, 12] {
            let mut world = plain_world("", is_ip6);
            let down = if is_silent { &mut world.silent } else { &mut world.refusing };
            down.insert(address(is_ip6, first));
            world.response = b"here".to_vec();
            world.request(REQUEST, &[]);
            world.run(4, 20);
            assert_eq!(&*world.client.received, b"here", "{first} {is_silent}");
            assert_eq!(world.served(), [(address(is_ip6, 23 - first), REQUEST)]);
            assert_eq!(world.net.view().state, "established");
        }
    }
}

/// The head has several segments.
fn long_request() -> Vec<u8> {
    format!("GET /static HTTP/1.1\r\nHost: b\r\nX-Fill: {}\r\n\r\n", "f".repeat(4000)).into_bytes()
}

/// Only time takes a request from its server: not the number of segments that a client repeats at once, nor
/// duplicates of them.
#[test]
fn segments_that_arrive_often_do_not_cost_a_server() {
    for rounds in [1, 2, 8] {
        let mut world = plain_world("", false);
        world.silent.insert(address(false, 13));
        world.response = b"here".to_vec();
        let request = long_request();
        world.request(&request, &[]);
        for _ in 0..rounds {
            world.run(1, 1);
            for _ in 0..5 {
                let now = world.net.now;
                let frames = world.client.repeat(now);
                world.pass(frames.into_iter().map(|frame| (IN, frame)).collect());
            }
        }
        assert_eq!(world.report("SYNs sent again"), rounds.to_string());
        world.silent.clear();
        world.run(4, 3);
        assert_eq!((&*world.client.received, world.served()[0].1), (&b"here"[..], &*request), "{rounds}");
        assert_eq!(world.report("servers that did not answer"), "0");
    }
}

/// A SYN of the client that comes late, while its request waits for the server.
#[test]
fn a_late_syn_does_not_end_the_session() {
    let mut world = plain_world("", false);
    let syn = world.client.repeat(world.net.now).remove(0);
    world.client.waits = true;
    world.silent.extend([address(false, 11), address(false, 12)]);
    world.response = b"here".to_vec();
    world.request(REQUEST, &[9]);
    world.run(1, 2);
    world.pass(vec![(IN, syn)]);
    world.silent.clear();
    world.run(4, 10);
    assert_eq!((&*world.client.received, world.served()[0].1), (&b"here"[..], REQUEST));
}

/// A server with cookies resets a connection whose first segment is not at the beginning. If one segment is
/// lost, another one is.
#[test]
fn servers_with_cookies_know_the_connection() {
    for lost in 0..30 {
        let mut world = plain_world("", false);
        world.have_cookies = true;
        world.losses = (0..40).map(|at| at == lost).collect();
        world.response = b"here".to_vec();
        let request = long_request();
        world.request(&request, &[]);
        world.run(4, 20);
        assert!(!world.client.was_reset, "{lost}");
        assert_eq!((&*world.client.received, world.served()[0].1), (&b"here"[..], &*request), "{lost}");
    }
}

/// The end of the handshake and the first segment behind it are lost: a server with cookies resets the second
/// one. The client gets another connection to it.
#[test]
fn a_server_that_has_forgotten_the_connection_gets_another_one() {
    let mut reconnects = 0;
    for lost in 0..30 {
        let mut world = plain_world("", false);
        world.have_cookies = true;
        world.losses = (0..40).map(|at| at == lost || at == lost + 1).collect();
        world.response = b"here".to_vec();
        let request = long_request();
        world.request(&request, &[]);
        world.run(4, 30);
        world.settle();
        assert!(!world.client.was_reset, "{lost}");
        assert_eq!((&*world.client.received, world.served()[0].1), (&b"here"[..], &*request), "{lost}");
        assert_eq!(world.net.view().state, "established");
        reconnects += u32::from(world.report("connections that their server did not know") == "1");
    }
    assert_ne!(reconnects, 0);
}

/// A server that forgets each connection is one that has failed.
#[test]
fn a_server_that_forgets_all_connections_is_given_up() {
    let mut world = plain_world("", false);
    (world.have_cookies, world.forget) = (true, true);
    world.request(&long_request(), &[]);
    world.run(1, 60);
    assert!(world.client.received.starts_with(b"HTTP/1.1 503 "), "{:?}", world.client.received);
    assert_eq!(world.report("connections that their server did not know"), "4");
}

/// A server that has got something of the request may have begun its work: no other one gets it.
#[test]
fn a_reset_of_a_server_with_the_request_goes_to_the_client() {
    let mut world = plain_world("", false);
    world.abort = true;
    world.request(REQUEST, &[]);
    world.run(1, 20);
    assert!(world.client.was_reset);
    assert_eq!(world.served().len(), 1);
    assert_eq!(world.report("connections that their server did not know"), "");
}

#[test]
fn a_client_without_server_gets_a_page() {
    let page = |request: &[u8], down: &[u8]| {
        let mut world = plain_world("timeout 2", false);
        world.refusing.extend(down.iter().map(|&host| address(false, host)));
        world.request(request, &[]);
        world.run(1, 30);
        let text = String::from_utf8_lossy(&world.client.received).into_owned();
        assert!(world.client.has_fin && world.served().is_empty(), "{text}");
        // It closes, and is acknowledged.
        let (now, before) = (world.net.now, world.frames);
        world.pass(vec![(IN, world.client.close(now))]);
        assert_eq!(world.frames - before, 2);
        assert!(world.net.views().is_empty());
        text.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(page(REQUEST, &[11, 12]), "HTTP/1.1 503 Service Unavailable");
    assert_eq!(page(b"GET /other HTTP/1.1\r\nHost: b\r\n\r\n", &[]), "HTTP/1.1 503 Service Unavailable");
    assert_eq!(page(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", &[]), "HTTP/1.1 400 Bad Request");
    let long = [b"GET / HTTP/1.1\r\nHost: www.a.example\r\n".as_slice(), &b"X: y\r\n".repeat(200)].concat();
    assert_eq!(page(&long, &[]), "HTTP/1.1 431 Request Header Fields Too Large");
}

/// The page is lost: the client repeats its request, and gets it again.
#[test]
fn the_page_is_repeated() {
    for lost in 0..12 {
        let mut world = plain_world("", false);
        world.refusing.extend([address(false, 11), address(false, 12)]);
        world.losses = (0..40).map(|at| at == lost).collect();
        world.request(REQUEST, &[10, 5]);
        world.run(1, 30);
        assert!(world.client.received.starts_with(b"HTTP/1.1 503 "), "{lost}");
        assert!(world.client.received.ends_with(b"</h1>\n") && world.client.has_fin, "{lost}");
    }
}

#[test]
fn slow_clients_are_told() {
    let mut world = plain_world("timeout 3", false);
    world.client.waits = true;
    world.request(REQUEST, &[5]);
    world.client.writes.truncate(1);
    world.run(1, 20);
    assert!(world.client.received.is_empty());
    world.client.writes.push(b"TP".to_vec());
    world.run(1, 3);
    assert!(world.client.received.starts_with(b"HTTP/1.1 408 "), "{:?}", world.client.received);
    assert_eq!(world.report("requests that took too long"), "1");
}

/// A head for which a client takes longer than its cookie is valid, and servers at other workers.
#[test]
fn a_patient_function_serves_slow_clients() {
    for workers in [1, 4] {
        let mut world = World::new("timeout 300", workers, false, (plain(1000), plain(5000)));
        world.client.waits = true;
        world.response = b"here".to_vec();
        world.request(REQUEST, &[9]);
        let behind = world.client.writes.pop().expect("two pieces");
        world.run(1, 2);
        world.net.now = world.net.now.wrapping_add(200_000);
        world.net.harness.advance(world.net.now);
        world.client.writes.push(behind);
        world.run(4, 10);
        assert_eq!((&*world.client.received, world.served()[0].1), (&b"here"[..], REQUEST), "{workers}");
    }
}

/// A connection that was idle for longer than its cookie is valid: the client is told to begin anew.
#[test]
fn a_request_behind_a_long_silence_is_reset() {
    let mut world = plain_world("", false);
    world.run(1, 2);
    world.net.now = world.net.now.wrapping_add(200_000);
    world.net.harness.advance(world.net.now);
    world.request(REQUEST, &[]);
    world.run(1, 2);
    assert!(world.client.was_reset);
}

/// Further requests of a connection go to the same server, whatever they are for.
#[test]
fn later_requests_stay_with_the_server() {
    let mut world = plain_world("", false);
    let two = [REQUEST, &b"GET /static HTTP/1.1\r\nHost: b\r\n\r\n".repeat(60)].concat();
    world.response = b"here".to_vec();
    world.request(&two, &[]);
    world.run(4, 20);
    let served = world.served();
    assert_eq!((served.len(), served[0].1), (1, &*two));
    assert_eq!(world.net.view().state, "established");
    world.expected += 3;
    world.client.writes.push(b"abc".to_vec());
    world.response = b"there".to_vec();
    world.run(9, 20);
    assert_eq!(&*world.client.received, b"herethere");
    assert_eq!(world.report("requests"), "1");
}

#[test]
fn stream_functions_are_next_to_the_function() {
    for (chain, error) in [
        ("l | w", None),
        ("w | l", None),
        ("l | f | w", Some("`w` reads streams, and `l` opens connections")),
    ] {
        let line = format!("nf add l http-lb {CLAUSES}");
        let chain = format!("chain add web {chain}");
        let lines =
            [&*line, "nf add w payload-count", "nf add f flow", &chain, "add-stateful in port0 chain web"];
        let rules =
            RuleSet::parse_with(&lines, SessionSettings::default(), None, &mmb_nf_builtin::registry(), 1);
        match (rules, error) {
            (Ok(_), None) => {}
            (Err(found), Some(error)) => assert!(found.to_string().contains(error), "{found}"),
            (rules, _) => panic!("{:?}", rules.map(|_| ()).map_err(|error| error.to_string())),
        }
    }
}
