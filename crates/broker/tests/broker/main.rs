//! Brokers with real sockets: clients and servers are threads of the test.

mod common;
mod crowds;
mod ends;
mod filters;
mod gate;
mod kept;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};

use common::{Answer, Client, broker, free_address, serve};
use mmb_broker::{Count, Settings};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

/// A response with a length.
fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn requests_pass_the_chain_on_kept_connections() {
    let server = serve(|request, stream| {
        let path = request.split(' ').nth(1).unwrap().to_owned();
        write!(stream, "{}", ok(&path)).unwrap();
        true
    });
    let lines =
        [&format!("nf add lb proxy {}", server.address), "nf add urls url-rewrite ^/old/(.*) /new/$1"];
    let broker = broker(&lines, "lb | urls", Settings::default());
    let mut client = Client::connect(broker.address());
    // Two requests at once, then one behind them.
    client.send(&(get("/old/a") + &get("/b")));
    assert_eq!(client.answer(), Answer::of(200, "/new/a"));
    assert_eq!(client.answer(), Answer::of(200, "/b"));
    client.send(&get("/old/c"));
    assert_eq!(client.answer(), Answer::of(200, "/new/c"));
    let counters = broker.counters();
    assert_eq!((counters.get(Count::Connects), counters.get(Count::Reused)), (1, 2));
    let request = server.requests().pop().unwrap();
    assert!(
        request.contains("X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nVia: 1.1 mmb\r\n"),
        "{request}"
    );
}

#[test]
fn what_may_be_smuggled_reaches_no_server() {
    let server = serve(|_, stream| {
        write!(stream, "{}", ok("x")).unwrap();
        true
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded: x\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 501),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        (&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(9000)), 431),
        (&format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\n\r\n", "x,".repeat(600)), 431),
    ] {
        let mut client = Client::connect(broker.address());
        client.send(request);
        assert_eq!(client.answer().status, status, "{request:?}");
        assert!(client.is_closed(), "{request:?}");
    }
    assert_eq!(server.requests().len(), 0);
    // The server has the beginning of this one, and gets no end of it.
    let mut client = Client::connect(broker.address());
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\nGET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.answer().status, 400);
    assert!(client.is_closed());
}

/// The server learns the host that the functions have seen, whatever the Host header says (RFC 9112, 3.2.2).
#[test]
fn the_host_of_a_target_replaces_the_header() {
    let server = serve(|_, stream| write!(stream, "{}", ok("x")).is_ok());
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    for (request, line, host) in [
        ("GET http://a.example/x HTTP/1.1\r\nHost:\r\n", "GET /x HTTP/1.1\r\n", "a.example"),
        ("GET http://a.example:8081/ HTTP/1.0\r\n", "GET / HTTP/1.1\r\n", "a.example:8081"),
        ("GET http://a.example?q HTTP/1.1\r\nHost: A.example:80\r\n", "GET /?q HTTP/1.1\r\n", "a.example"),
    ] {
        let mut client = Client::connect(broker.address());
        client.send(&format!("{request}\r\n"));
        assert_eq!(client.answer().status, 200, "{request}");
        let seen = server.requests().pop().unwrap();
        let hosts: Vec<_> = seen.lines().filter_map(|line| line.strip_prefix("Host:")).collect();
        assert!(seen.starts_with(line) && hosts == [format!(" {host}")], "{request}: {seen}");
    }
}

/// The trailers of a request are checked before the server gets the first of them.
#[test]
fn a_forbidden_trailer_keeps_the_others_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut text = String::new();
        // A reset is an end, too.
        let _ = listener.accept().unwrap().0.read_to_string(&mut text);
        text
    });
    let broker = broker(&[&format!("nf add lb proxy {address}")], "lb", Settings::default());
    let mut client = Client::connect(broker.address());
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-A: b\r\n");
    client.send("Content-Length: 9\r\n\r\n");
    assert_eq!(client.answer().status, 400);
    assert!(client.is_closed());
    let text = server.join().unwrap();
    assert!(!text.contains("X-A") && !text.contains("\r\n0\r\n"), "{text:?}");
}

#[test]
fn bodies_of_all_kinds_go_both_ways() {
    let server = serve(|request, stream| {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let path = head.split(' ').nth(1).unwrap();
        match path {
            "/close" => {
                write!(stream, "HTTP/1.0 200 OK\r\n\r\nuntil the end").unwrap();
                return false;
            }
            "/chunked" => write!(
                stream,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nX-T: t\r\n\r\n"
            ),
            "/none" => write!(stream, "HTTP/1.1 204 No Content\r\n\r\n"),
            "/head" => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"),
            _ => write!(stream, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{}", ok(body)),
        }
        .unwrap();
        true
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    let mut client = Client::connect(broker.address());
    client.send(&get("/close"));
    assert_eq!(client.answer(), Answer::of(200, "until the end"));
    client.send(&get("/chunked"));
    assert_eq!(client.answer(), Answer::of(200, "abc"));
    client.send(&get("/none"));
    assert_eq!(client.answer(), Answer::of(204, ""));
    client.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer_to_head();
    assert!(answer.head.contains("Content-Length: 99\r\n"), "{answer:?}");
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.answer(), Answer::of(103, ""));
    assert_eq!(client.answer(), Answer::of(200, "hello"));
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
    assert_eq!(client.answer(), Answer::of(103, ""));
    assert_eq!(client.answer(), Answer::of(200, "hello"));
    // A client of HTTP/1.0 gets neither chunks nor interim responses.
    let mut old = Client::connect(broker.address());
    old.send("GET /chunked HTTP/1.0\r\n\r\n");
    let text = old.rest();
    assert!(text.ends_with("\r\nConnection: close\r\n\r\nabc"), "{text}");
}

#[test]
fn the_body_may_wait_for_the_server() {
    let server = serve(|_, stream| {
        write!(stream, "HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut body = [0; 4];
        stream.read_exact(&mut body).unwrap();
        write!(stream, "{}", ok(std::str::from_utf8(&body).unwrap())).unwrap();
        true
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    let mut client = Client::connect(broker.address());
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nX-Length: 4\r\nContent-Length: 4\r\n\r\n",
    );
    assert_eq!(client.answer(), Answer::of(100, ""));
    client.send("body");
    assert_eq!(client.answer(), Answer::of(200, "body"));
}

#[test]
fn another_server_gets_what_the_first_does_not_answer() {
    let dead = free_address();
    let closes = serve(|_, _| false);
    let answers = serve(|_, stream| {
        write!(stream, "{}", ok("here")).unwrap();
        true
    });
    let line = format!("nf add lb proxy {dead} {} {}", closes.address, answers.address);
    let broker = broker(&[&line], "lb", Settings::default());
    let mut client = Client::connect(broker.address());
    for _ in 0..6 {
        client.send(&get("/"));
        assert_eq!(client.answer(), Answer::of(200, "here"));
    }
    assert!(broker.counters().get(Count::Retries) > 0);
    // A request that a server may have executed is not repeated.
    let seen = closes.requests().len();
    let statuses: Vec<u16> = (0..3)
        .map(|_| {
            let mut client = Client::connect(broker.address());
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
            client.answer().status
        })
        .collect();
    let failed = statuses.iter().filter(|status| **status == 502).count();
    assert!(failed > 0 && closes.requests().len() == seen + failed, "{statuses:?}");
}

#[test]
fn errors_of_servers_have_their_status() {
    let nobody =
        broker(&[&format!("nf add lb proxy {} retries 0", free_address())], "lb", Settings::default());
    let text = serve(|_, stream| {
        write!(stream, "no HTTP\r\n\r\n").unwrap();
        false
    });
    let invalid = broker(&[&format!("nf add lb proxy {}", text.address)], "lb", Settings::default());
    let silent = serve(|_, stream| {
        // Until the broker has given up.
        let _ = stream.read(&mut [0]);
        false
    });
    let quick = Settings { response_timeout: 100, header_timeout: 100, ..Settings::default() };
    let late = broker(&[&format!("nf add lb proxy {}", silent.address)], "lb", quick);
    let alone = broker(&["nf add urls url-rewrite ^/a /b"], "urls", quick);
    for (broker, request, status) in [
        (&nobody, get("/"), 502),
        (&invalid, get("/"), 502),
        (&late, get("/"), 504),
        (&alone, get("/"), 503),
        (&alone, "GET / HTTP/1.1\r\nHost:".to_owned(), 408),
        (&late, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx".to_owned(), 408),
    ] {
        let mut client = Client::connect(broker.address());
        client.send(&request);
        assert_eq!(client.answer().status, status, "{request}");
    }
    let limits = Settings { body_limit: Some(3), ..Settings::default() };
    let limited = broker(&[&format!("nf add lb proxy {}", silent.address)], "lb", limits);
    for body in ["Content-Length: 4\r\n\r\nabcd", "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"]
    {
        let mut client = Client::connect(limited.address());
        client.send(&format!("POST / HTTP/1.1\r\nHost: a\r\n{body}"));
        assert_eq!(client.answer().status, 413, "{body}");
    }
}

#[test]
fn a_response_that_breaks_off_breaks_off_for_the_client() {
    let server = serve(|request, stream| {
        let framing = if request.starts_with("GET /length") {
            "Content-Length: 9"
        } else {
            "Transfer-Encoding: chunked"
        };
        let body = if request.starts_with("GET /length") { "abc" } else { "3\r\nabc\r\n" };
        write!(stream, "HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}").unwrap();
        false
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    for (path, end) in [("/length", "\r\n\r\nabc"), ("/chunked", "\r\n\r\n3\r\nabc\r\n")] {
        let mut client = Client::connect(broker.address());
        client.send(&get(path));
        let text = client.rest();
        assert!(text.ends_with(end), "{text}");
    }
    assert_eq!(broker.counters().get(Count::Failed), 2);
}

#[test]
fn an_upgrade_becomes_a_tunnel_with_two_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = common::read_head(&mut stream);
        assert!(head.contains("Connection: upgrade\r\nUpgrade: websocket\r\n"), "{head}");
        write!(stream, "HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        write!(stream, " last").unwrap();
        text
    });
    let (gate, broker) = gate::broker(&[&format!("nf add lb proxy {address}")], "lb");
    let mut client = Client::connect(broker.address());
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly ";
    client.send(request);
    let answer = client.answer();
    assert_eq!(answer.status, 101);
    client.send("late");
    client.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), "first last");
    assert_eq!(server.join().unwrap(), "early late");
    // The function is told when the tunnel has ended.
    while gate::bytes(&gate).is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(gate::bytes(&gate), "10/10");
    let counted =
        [Count::ClientBytes, Count::ResponseBytes].map(|count| broker.counters().get(count) as usize);
    assert_eq!(counted, [request.len() + 4, answer.head.len() + 10]);
}

#[test]
fn a_slow_reader_stops_the_server() {
    let server = serve(|_, stream| {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 33554432\r\n\r\n").unwrap();
        stream.write_all(&vec![7; 32 << 20]).is_ok()
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    let mut client = Client::connect(broker.address());
    client.send(&get("/"));
    let mut first = [0; 1];
    client.stream().read_exact(&mut first).unwrap();
    let out = || broker.counters().get(Count::ResponseBytes);
    // Until the buffers of all sockets are full.
    let mut sent = 0;
    while out() != sent {
        sent = out();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(sent < 24 << 20, "{sent}");
    let (mut len, mut piece) = (1, vec![0; 1 << 20]);
    while len < 32 << 20 {
        len += client.stream().read(&mut piece).unwrap();
    }
}

#[test]
fn limits_bound_connections() {
    let settings = Settings { source_connections: 2, idle_timeout: 100, ..Settings::default() };
    let broker = broker(&["nf add hello respond 200 hi"], "hello", settings);
    let mut two: Vec<_> = (0..2).map(|_| Client::connect(broker.address())).collect();
    for client in &mut two {
        client.send(&get("/"));
        assert_eq!(client.answer(), Answer::of(200, "hi"));
    }
    assert!(Client::connect(broker.address()).is_closed());
    assert_eq!(broker.counters().get(Count::Limited), 1);
    // Both have no request for too long.
    assert!(two.iter_mut().all(Client::is_closed));
    let mut client = Client::connect(broker.address());
    client.send(&get("/"));
    assert_eq!(client.answer(), Answer::of(200, "hi"));
    assert!(client.is_closed());
    let few =
        common::broker(&["nf add hello respond 200 hi"], "hello", Settings { connections: 1, ..settings });
    let mut first = Client::connect(few.address());
    first.send(&get("/"));
    assert_eq!(first.answer(), Answer::of(200, "hi"));
    // The second one waits until the first has gone.
    let mut second = Client::connect(few.address());
    second.send(&get("/"));
    assert_eq!(second.answer(), Answer::of(200, "hi"));
}

#[test]
fn a_change_does_not_disturb_what_is_under_way() {
    let (begin, begun) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel();
    let gone = std::sync::Mutex::new(gone);
    let begin = std::sync::Mutex::new(begin);
    let server = serve(move |_, stream| {
        begin.lock().unwrap().send(()).unwrap();
        gone.lock().unwrap().recv().unwrap();
        write!(stream, "{}", ok("old")).unwrap();
        true
    });
    let broker = broker(&[&format!("nf add lb proxy {}", server.address)], "lb", Settings::default());
    let mut slow = Client::connect(broker.address());
    slow.send(&get("/"));
    begun.recv().unwrap();
    broker.update(common::functions(&["nf add hello respond 200 new"], "hello"), Settings::default());
    let mut client = Client::connect(broker.address());
    client.send(&get("/"));
    assert_eq!(client.answer(), Answer::of(200, "new"));
    let mut busy = Client::connect(broker.address());
    broker.drain();
    // A request that is under way meanwhile is answered, and the connection without one ends.
    busy.send(&get("/"));
    let answer = busy.answer();
    assert_eq!((answer.status, &*answer.body), (200, "new"));
    assert!(answer.head.contains("Connection: close\r\n"));
    assert!(client.is_closed());
    go.send(()).unwrap();
    let answer = slow.answer();
    assert_eq!((answer.status, &*answer.body), (200, "old"));
    assert!(answer.head.contains("Connection: close\r\n"));
    assert!(slow.is_closed());
    drop(slow);
    while !broker.has_ended() {
        std::thread::yield_now();
    }
    TcpListener::bind(broker.address()).unwrap();
}

#[test]
fn a_server_learns_the_client_in_front_of_its_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                line.push(byte[0]);
            }
            lines.push(String::from_utf8(line).unwrap());
            // Until the client has left, since nobody else may use the connection.
            loop {
                let head = common::read_head(&mut stream);
                if head.is_empty() {
                    break;
                }
                assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
                write!(stream, "{}", ok("x")).unwrap();
            }
        }
        lines
    });
    let line = format!("nf add lb proxy {address} send-proxy v1");
    let broker = broker(&[&line], "lb", Settings::default());
    let mut expected = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(broker.address());
        for _ in 0..2 {
            client.send(&get("/"));
            assert_eq!(client.answer(), Answer::of(200, "x"));
        }
        let own = client.stream().local_addr().unwrap().port();
        expected.push(format!("PROXY TCP4 127.0.0.1 127.0.0.1 {own} {}\r\n", broker.address().port()));
    }
    assert_eq!(server.join().unwrap(), expected);
    assert_eq!((broker.counters().get(Count::Connects), broker.counters().get(Count::Reused)), (2, 2));
}

#[test]
fn a_cookie_leads_to_the_same_server() {
    let servers = [(); 3].map(|()| {
        serve(|_, stream| {
            let body = stream.local_addr().unwrap().port().to_string();
            write!(stream, "{}", ok(&body)).is_ok()
        })
    });
    let [a, b, c] = [0, 1, 2].map(|n: usize| servers[n].address);
    let broker = broker(&[&format!("nf add lb proxy {a} {b} {c} sticky srv")], "lb", Settings::default());
    let mut client = Client::connect(broker.address());
    client.send(&get("/"));
    let first = client.answer();
    let cookie = first.head.split("Set-Cookie: ").nth(1).unwrap().split(';').next().unwrap();
    for _ in 0..4 {
        client.send(&format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: x=y; {cookie}\r\n\r\n"));
        let answer = client.answer();
        assert_eq!(answer.body, first.body);
        assert!(!answer.head.contains("Set-Cookie"), "{answer:?}");
    }
    client.send("GET / HTTP/1.1\r\nHost: a\r\nCookie: srv=0\r\n\r\n");
    assert!(client.answer().head.contains("Set-Cookie: srv="));
}
