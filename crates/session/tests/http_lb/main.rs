//! `http-lb` with the engine around it: hosts that lose segments get each other's exact bytes.

#[path = "../common/mod.rs"]
mod common;
mod hosts;
mod offload;
mod streams;
mod world;

use mmb_flow::SessionSettings;
use mmb_session_harness::RuleSet;
use proptest::prelude::*;

use common::IN;
use hosts::*;
use world::{CLAUSES, World, address};

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

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Servers with SYN cookies, which reset what they do not know, on links that lose, repeat and reorder
    /// segments: no client sees a reset.
    #[test]
    fn servers_with_cookies_are_behind_bad_links(
        (workers, scale, waits) in (1..3u16, prop::option::of(0..9u8), any::<bool>()),
        (header, body, response) in (0..8_000usize, 0..20_000usize, 1..20_000usize),
        losses in prop::collection::vec(prop::bool::weighted(0.1), 0..80),
        copies in prop::collection::vec(prop::bool::weighted(0.1), 0..80),
        late in prop::collection::vec(prop::bool::weighted(0.25), 20..120),
    ) {
        let offers = (plain(1000), Offer { scale, ..plain(0xffff_fff0) });
        let mut world = World::new("", workers, false, offers);
        let fill = format!("X-Fill: {}\r\n", "f".repeat(header));
        let head = "POST /static HTTP/1.1\r\nHost: b\r\n";
        let request = format!("{head}{fill}Content-Length: {body}\r\n\r\n{}", "b".repeat(body)).into_bytes();
        let answer: Vec<u8> = (0..response).map(|at| ((at * 31) >> 3) as u8).collect();
        (world.have_cookies, world.client.waits, world.response) = (true, waits, answer.clone());
        (world.losses, world.copies, world.late) = (losses, copies, late);
        world.request(&request, &[]);
        world.run(answer.len(), 200);
        world.settle();
        prop_assert!(!world.client.was_reset);
        let served = world.served();
        prop_assert_eq!(served.len(), 1);
        prop_assert!(served[0].1 == request, "{} of {} bytes", served[0].1.len(), request.len());
        prop_assert!(world.client.received == answer, "{} of {} bytes", world.client.received.len(), answer.len());
        prop_assert_eq!(world.report("connections that their server did not know"), "");
    }
}

/// A server that does not scale windows, and a client that does: its windows are scaled, as it was promised.
#[test]
fn long_responses_pass_from_a_server_without_a_scale() {
    for is_ip6 in [false, true] {
        let client = Offer { window: 30_000, scale: Some(8), ..plain(1000) };
        let mut world = World::new("", 1, is_ip6, (client, Offer { scale: None, ..plain(5000) }));
        world.response = vec![b'r'; 100_000];
        world.request(REQUEST, &[]);
        world.run(100_000, 10);
        assert_eq!(world.client.received.len(), 100_000);
        assert_eq!(world.net.view().state, "established");
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

/// The end of the handshake and the first segment behind it are lost: nothing further behind goes to a server
/// with cookies, which would reset it.
#[test]
fn what_is_behind_a_lost_beginning_waits() {
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
        assert_eq!(world.report("connections that their server did not know"), "");
    }
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

/// The client connects once more from its port, and servers have forgotten it.
fn connect_again(world: &mut World) {
    let Host { near, far, .. } = world.client;
    world.client = Host::new(near, far, plain(900_000));
    world.response = b"there".to_vec();
    world.request(REQUEST, &[]);
    world.servers.clear();
}

/// The whole response and the FIN come before the client acknowledges anything. When the client has closed
/// too, its next SYN from the port opens another connection at once.
#[test]
fn a_port_is_used_again_after_a_short_response() {
    for len in [1, 8 << 10] {
        let mut world = plain_world("", false);
        world.closes = true;
        world.response = vec![b'r'; len];
        world.request(REQUEST, &[]);
        world.run(len, 1);
        assert!(world.client.has_fin, "{len}");
        assert_eq!(world.net.view().state, "close-wait", "{len}");
        let now = world.net.now;
        world.pass(vec![(IN, world.client.close(now))]);
        assert_eq!(world.net.view().state, "closed", "{len}");
        connect_again(&mut world);
        world.run(5, 1);
        assert_eq!((&*world.client.received, world.report("requests")), (&b"there"[..], "2".to_owned()));
    }
}

/// A client and its server that both have lost an open connection: the server answers the client's next SYN,
/// which mmb has let through, and the SYN behind that opens another connection.
#[test]
fn a_port_is_used_again_after_both_ends_have_forgotten() {
    let mut world = plain_world("", false);
    world.response = b"here".to_vec();
    world.request(REQUEST, &[]);
    world.run(4, 1);
    connect_again(&mut world);
    world.run(5, 4);
    assert_eq!((&*world.client.received, world.report("requests")), (&b"there"[..], "2".to_owned()));
    assert_eq!(world.client.syns, 2);
    assert_eq!(world.net.view().state, "established");
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
