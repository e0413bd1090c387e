//! Many clients at once.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Barrier;
use std::time::Duration;

use mmb_broker::{Count, Listener, Settings};

use super::common::{Answer, Client, broker, serve};
use super::{gate, get, ok};

/// As many connections are kept as were needed at once, so that the next requests need no others.
#[test]
fn a_crowd_gets_the_connections_of_the_crowd_before() {
    const CROWD: usize = 200;
    let all_are_there = Barrier::new(CROWD);
    let server = serve(move |_, stream| {
        all_are_there.wait();
        write!(stream, "{}", ok("x")).unwrap();
        true
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    let mut clients: Vec<_> = (0..CROWD).map(|_| Client::connect(broker.address())).collect();
    for round in 0..3 {
        clients.iter_mut().for_each(|client| client.send(&get("/")));
        for client in &mut clients {
            assert_eq!(client.answer(), Answer::of(200, "x"));
        }
        let [connects, reused] = [Count::Connects, Count::Reused].map(|count| broker.counters().get(count));
        assert_eq!((connects, reused), (CROWD as u64, (round * CROWD) as u64));
    }
}

/// Clients that come at once find room in the queue, though none is accepted yet.
#[test]
fn a_crowd_may_come_before_the_first_is_accepted() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let connect = |_| TcpStream::connect_timeout(&listener.address(), Duration::from_secs(20)).unwrap();
    let clients: Vec<_> = (0..600).map(connect).collect();
    assert_eq!(clients.len(), 600);
}

/// However many requests a client sends at once, others get their turn in between.
#[test]
fn a_client_with_many_requests_does_not_keep_others_waiting() {
    let (gate, broker) = gate::broker(&["nf add hello respond 200 hi"], "hello");
    let [mut first, mut many, mut one] = [(); 3].map(|()| Client::connect(broker.address()));
    for client in [&mut many, &mut one] {
        client.send(&get("/"));
        assert_eq!(client.answer(), Answer::of(200, "hi"));
    }
    // Both have sent everything before the broker reads any of it.
    first.send(&get("/hold"));
    gate::wait(&gate);
    many.send(&get("/many").repeat(1000));
    one.send(&get("/one"));
    gate::open(&gate);
    assert_eq!(one.answer(), Answer::of(200, "hi"));
    let before = gate::paths(&gate).iter().position(|path| path == "/one").unwrap();
    assert!(before < 100, "behind {before} requests of another client");
    // Those are all answered, too.
    for _ in 0..1000 {
        assert_eq!(many.answer(), Answer::of(200, "hi"));
    }
}

/// Messages of many exchanges at once, shorter and longer than those that wait for others.
#[test]
fn a_crowd_gets_answers_of_all_lengths() {
    const CROWD: usize = 48;
    let all_are_there = Barrier::new(CROWD);
    let server = serve(move |request, stream| {
        all_are_there.wait();
        let (_, body) = request.split_once("\r\n\r\n").unwrap();
        let keeps_open = !body.len().is_multiple_of(3);
        let connection = if keeps_open { "" } else { "Connection: close\r\n" };
        write!(stream, "HTTP/1.1 200 OK\r\n{connection}Content-Length: {}\r\n\r\n{body}", body.len())
            .unwrap();
        keeps_open
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    let mut clients: Vec<_> = (0..CROWD).map(|_| Client::connect(broker.address())).collect();
    for round in 0..3 {
        let body = |n: usize| char::from(b'A' + n as u8).to_string().repeat(n * 1000 + round);
        for (n, client) in clients.iter_mut().enumerate() {
            let body = body(n);
            client
                .send(&format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        }
        for (n, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.answer(), Answer::of(200, &body(n)), "client {n}, round {round}");
        }
    }
    assert_eq!(broker.counters().get(Count::Aborted), 0);
}
