//! Which connections to servers are kept, and used again.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use mmb_broker::{Count, Settings};
use rustix::net::sockopt::set_tcp_cork;

use super::common::{self, Answer, Client, broker, serve};
use super::{gate, get, ok};

const PATIENCE: Duration = Duration::from_secs(20);
const PUT: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";

/// A server may close a connection behind a response that does not tell so.
#[test]
fn a_connection_that_ends_with_its_response_is_not_kept() {
    let server = serve(|_, stream| {
        // The FIN leaves in the last segment of the response.
        set_tcp_cork(stream.as_fd(), true).unwrap();
        write!(stream, "{}", ok("x")).unwrap();
        false
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    for _ in 0..10 {
        let mut client = Client::connect(broker.address());
        client.send(&get("/"));
        assert_eq!(client.answer(), Answer::of(200, "x"));
        let begin = Instant::now();
        while broker.counters().get(Count::Servers) > 0 {
            assert!(begin.elapsed() < PATIENCE, "the connection is kept");
            std::thread::yield_now();
        }
        client.send(PUT);
        assert_eq!(client.answer(), Answer::of(200, "x"));
    }
    assert_eq!([Count::Reused, Count::Failed].map(|count| broker.counters().get(count)), [0, 0]);
}

/// A request with a body is not sent on a connection whose end has come and was not noticed yet.
#[test]
fn a_request_with_a_body_gets_a_connection_that_is_open() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (close, closing) = channel();
    let (closed, has_closed) = channel();
    std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        common::read_head(&mut first);
        write!(first, "{}", ok("first")).unwrap();
        closing.recv().unwrap();
        drop(first);
        closed.send(()).unwrap();
        let (mut second, _) = listener.accept().unwrap();
        common::read_head(&mut second);
        second.read_exact(&mut [0; 5]).unwrap();
        write!(second, "{}", ok("second")).unwrap();
    });
    let (gate, broker) = gate::broker(&[&format!("nf add lb proxy {address}")], "lb");
    let mut client = Client::connect(broker.address());
    client.send(&get("/"));
    assert_eq!(client.answer(), Answer::of(200, "first"));
    // The broker learns of both at once: of the request first, and of the end behind it.
    let mut other = Client::connect(broker.address());
    other.send(&get("/hold"));
    gate::wait(&gate);
    client.send(PUT);
    close.send(()).unwrap();
    has_closed.recv_timeout(PATIENCE).unwrap();
    drop(other);
    gate::open(&gate);
    assert_eq!(client.answer(), Answer::of(200, "second"));
}

/// Responses of all lengths around those of the buffers, in one piece or in several.
#[test]
fn connections_are_kept_whatever_the_length_of_a_response_is() {
    let server = serve(|request, stream| {
        let len: usize = request.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        write!(stream, "{}", ok(&"x".repeat(len))).is_ok()
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    let mut client = Client::connect(broker.address());
    // The head has 41 or 42 bytes, and a read takes 16 KiB.
    let lengths = (0..900).map(|n| n % 10).chain((16300..16400).chain(32700..32800));
    for (count, len) in lengths.enumerate() {
        client.send(&get(&format!("/{len}")));
        assert_eq!(client.answer().body.len(), len);
        let [connects, reused] = [Count::Connects, Count::Reused].map(|count| broker.counters().get(count));
        assert_eq!((connects, reused), (1, count as u64), "{len} bytes");
    }
}

/// The server gets no end of a body over the limit, and its late response is for nobody else.
#[test]
fn the_response_to_a_refused_body_reaches_no_other_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, bodies) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sender) = (stream.unwrap(), sender.clone());
            std::thread::spawn(move || {
                if common::read_head(&mut stream).starts_with("POST ") {
                    // The last chunk ends as a head does.
                    sender.send(common::read_head(&mut stream)).unwrap();
                    // The server answers late: when the connection is used again, if it ever is.
                    if !common::read_head(&mut stream).is_empty() {
                        write!(stream, "{}", ok("for POST")).unwrap();
                    }
                }
                // The broker may have closed the connection.
                let _ = write!(stream, "{}", ok("for GET"));
            });
        }
    });
    let limits = Settings { body_limit: Some(3), ..Settings::default() };
    let broker = broker(&[&format!("nf add lb proxy {address}")], "lb", limits);
    let mut client = Client::connect(broker.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    let mut other = Client::connect(broker.address());
    other.send(&get("/"));
    assert_eq!(other.answer(), Answer::of(200, "for GET"));
    assert!(!bodies.recv().unwrap().contains("0\r\n"));
    assert_eq!(broker.counters().get(Count::Reused), 0);
}
