//! Ends that half-close their connections, or disappear at any moment; and which server gets a request.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use mmb_broker::{Broker, Count, Settings};

use super::common::{self, Answer, Client, broker, serve};
use super::{get, ok};

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until no client is left.
fn until_all_have_left(broker: &Broker, what: &str) {
    let begin = Instant::now();
    while broker.counters().get(Count::Clients) > 0 {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client that sends nothing more still reads (RFC 9112, 9.6: half-closed connections).
#[test]
fn a_client_that_sends_nothing_more_gets_its_answers() {
    let server = serve(|request, stream| {
        let (_, body) = request.split_once("\r\n\r\n").unwrap();
        // The end of the client has come before.
        std::thread::sleep(Duration::from_millis(50));
        write!(stream, "{}", ok(body)).is_ok()
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    for request in [
        get("/"),
        get("/a") + &get("/b"),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello".to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_owned(),
    ] {
        let mut client = Client::connect(broker.address());
        client.send(&request);
        client.stream().shutdown(Shutdown::Write).unwrap();
        for _ in 0..request.matches("Host").count() {
            let body = if request.contains("hello") { "hello" } else { "" };
            assert_eq!(client.answer(), Answer::of(200, body), "{request}");
        }
        assert!(client.is_closed(), "{request}");
    }
    // What ends within a request is none.
    let mut client = Client::connect(broker.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    client.stream().shutdown(Shutdown::Write).unwrap();
    assert!(!client.rest().contains(" 200 "));
    until_all_have_left(&broker, "the last one");
}

/// A server that keeps what it gets until it is told, and tells when a connection has ended.
fn patient_server(answer: &'static [u8]) -> (SocketAddr, Receiver<()>, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let ((begin, begun), (end, ended)) = (channel(), channel());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, begin, end) = (stream.expect("a connection"), begin.clone(), end.clone());
            std::thread::spawn(move || {
                common::read_head(&mut stream);
                // The client may have left before.
                let _ = stream.write_all(answer);
                let _ = begin.send(());
                let mut piece = [0; 4096];
                while matches!(stream.read(&mut piece), Ok(len) if len > 0) {}
                let _ = end.send(());
            });
        }
    });
    (address, begun, ended)
}

/// Closes a connection with a reset.
fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream.as_fd(), Some(Duration::ZERO)).expect("a socket");
}

/// Wherever a client is when it disappears, nothing of it is left, and its server is let go.
#[test]
fn nothing_is_left_of_clients_that_disappear() {
    const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    const SWITCHED: &[u8] = b"HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    const ENDLESS: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let request = get("/");
    // What the client sends, what the server answers, and whether it has got the request.
    let cases: [(&str, &[u8], bool); 7] = [
        ("", b"", false),
        ("GET / HTTP/1.1\r\nHo", b"", false),
        (&request, b"", true),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", b"", true),
        (&request, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", true),
        (&request, ENDLESS, true),
        (UPGRADE, SWITCHED, true),
    ];
    for (sent, answer, reaches_server) in cases {
        let (address, begun, ended) = patient_server(answer);
        let broker = broker(&[&format!("nf add lb proxy {address}")], "lb", Settings::default());
        let mut client = TcpStream::connect(broker.address()).unwrap();
        client.write_all(sent.as_bytes()).unwrap();
        if reaches_server {
            begun.recv_timeout(PATIENCE).expect(sent);
        }
        if !answer.is_empty() {
            client.read_exact(&mut [0; 9]).unwrap();
        }
        reset(client);
        until_all_have_left(&broker, sent);
        if reaches_server {
            ended.recv_timeout(PATIENCE).expect(sent);
        }
        // The next one finds a broker that works.
        let mut next = Client::connect(broker.address());
        next.send("GET / HTTP/9.9\r\nHost: a\r\n\r\n");
        assert_eq!(next.answer().status, 505, "{sent}");
    }
}

#[test]
fn weights_and_hashes_choose_servers() {
    let servers = [(); 2].map(|()| {
        serve(|_, stream| {
            let body = stream.local_addr().unwrap().port().to_string();
            write!(stream, "{}", ok(&body)).is_ok()
        })
    });
    let [a, b] = [0, 1].map(|n: usize| servers[n].address);
    let counts = |by: &str, requests: usize| {
        let broker = broker(&[&format!("nf add lb proxy {a}*3 {b} {by}")], "lb", Settings::default());
        let answers: Vec<_> = (0..requests)
            .map(|_| {
                let mut client = Client::connect(broker.address());
                client.send(&get("/"));
                client.answer().body
            })
            .collect();
        [a, b].map(|server| answers.iter().filter(|body| **body == server.port().to_string()).count())
    };
    assert_eq!(counts("", 40), [30, 10]);
    // One client has one server, which its address determines.
    let first = counts("by hash", 8);
    assert!(first == [8, 0] || first == [0, 8], "{first:?}");
    assert_eq!(counts("by hash", 8), first);
}
