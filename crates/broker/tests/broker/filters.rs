//! Functions of streams in brokers: what they do to requests and responses on their way.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::common::{Answer, Client, broker, serve};
use mmb_broker::{Count, Settings};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nX-Drop: 1\r\n\r\n")
}

#[test]
fn heads_and_bodies_are_edited_both_ways() {
    let server = serve(|request, stream| {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        match head.split(' ').nth(1).unwrap() {
            "/new/chunked" => {
                write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\n on\r\n1\r\ne\r\n0\r\n\r\n")
            }
            "/new/none" => write!(stream, "HTTP/1.1 204 No Content\r\n\r\n"),
            "/new/head" => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"),
            "/new/close" => {
                write!(stream, "HTTP/1.0 200 OK\r\n\r\nuntil one").unwrap();
                return false;
            }
            _ => write!(stream, "HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
        }
        .unwrap();
        true
    });
    let edit = "nf add edit http-edit type * request path replace ^/old/(.*) /new/$1 \
                request header del X-Drop request header add X-Via broker response header del Server \
                request body replace two three response body replace one eleven";
    let lines = [edit, &format!("nf add lb proxy {}", server.address)];
    let broker = broker(&lines, "edit | lb", Settings::default());
    let mut client = Client::connect(broker.address());
    // Requests in one segment.
    client.send(&(get("/old/chunked") + &get("/old/none") + &get("/old/x")));
    assert_eq!(client.answer(), Answer::of(200, "eleven eleven"));
    assert_eq!(client.answer(), Answer::of(204, ""));
    let answer = client.answer();
    assert!(answer.status == 200 && !answer.head.contains("Server:"), "{answer:?}");
    client.send("HEAD /old/head HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer_to_head().status, 200);
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\none two");
    assert_eq!(client.answer(), Answer::of(200, "eleven three"));
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\none t\r\n2\r\nwo\r\n0\r\n\r\n");
    assert_eq!(client.answer(), Answer::of(200, "eleven three"));
    let mut old = Client::connect(broker.address());
    old.send("GET /old/close HTTP/1.0\r\n\r\n");
    assert!(old.rest().ends_with("\r\n\r\nuntil eleven"));
    let requests = server.requests();
    let first = requests.first().unwrap();
    assert!(first.starts_with("GET /new/chunked "), "{first}");
    assert!(first.contains("X-Via: broker\r\n") && !first.contains("X-Drop"), "{first}");
}

/// Connection names headers of the client's connection (RFC 9110, 7.6.1), and none that the operator adds.
#[test]
fn a_client_cannot_take_added_headers_out() {
    let server = serve(|_, stream| write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_ok());
    let edit = "nf add edit http-edit request header set X-Real-Ip client-address request header add X-Key secret \
                response body replace one two";
    let broker =
        broker(&[edit, &format!("nf add lb proxy {}", server.address)], "edit | lb", Settings::default());
    let mut client = Client::connect(broker.address());
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, x-real-ip, X-KEY, Accept-Encoding, X-Own\r\n\
         X-Real-Ip: 192.0.2.1\r\nX-Own: 1\r\n\r\n",
    );
    assert_eq!(client.answer().status, 200);
    let request = server.requests().pop().unwrap();
    let added = "X-Real-Ip: 127.0.0.1\r\nX-Key: secret\r\nAccept-Encoding: identity\r\n";
    assert!(request.contains(added) && !request.contains("X-Own"), "{request}");
}

#[test]
fn a_pattern_ends_the_connection() {
    let server =
        serve(|_, stream| write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil").is_ok());
    for (action, pattern, is_answered) in
        [("reset", "bad", true), ("close", "bad", true), ("reset", "evil", false)]
    {
        let lines = [
            &format!("nf add ids match {pattern} {action} http-body"),
            &format!("nf add lb proxy {}", server.address),
        ];
        let broker = broker(&lines.map(|line| &**line), "ids | lb", Settings::default());
        let mut client = Client::connect(broker.address());
        client.send(&get("/"));
        if is_answered {
            assert_eq!(client.answer(), Answer::of(200, "evil"));
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbad");
        }
        let mut rest = Vec::new();
        let end = client.stream().read_to_end(&mut rest);
        assert_eq!(end.is_err(), action == "reset", "{end:?}");
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
        assert_eq!(broker.counters().get(Count::Refused), 1);
    }
}

#[test]
fn what_a_function_holds_goes_on() {
    // The end of both bodies may begin the text.
    let server = serve(|request, stream| {
        let body = request.split_once("\r\n\r\n").unwrap().1;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).is_ok()
    });
    let lines = ["nf add hide match secret mask", &format!("nf add lb proxy {}", server.address)];
    let broker = broker(&lines, "hide | lb", Settings::default());
    let mut client = Client::connect(broker.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\na secret sec");
    assert_eq!(client.answer(), Answer::of(200, "a ****** sec"));
}

#[test]
fn tunnels_and_refused_requests_pass_the_functions() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        crate::common::read_head(&mut stream);
        write!(stream, "HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nsecret").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let lines = [
        "nf add hide match secret mask",
        "nf add edit http-edit request header add X 1",
        "nf add log http-log",
        &format!("nf add lb proxy {address}"),
    ];
    let broker = broker(&lines, "hide | edit | log | lb", Settings::default());
    let mut client = Client::connect(broker.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    assert_eq!(client.answer().status, 101);
    client.send("my secret");
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), "******");
    assert_eq!(server.join().unwrap(), "my ******");
}

#[test]
fn a_changed_chain_applies_to_the_next_request() {
    let server = serve(|_, stream| write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none").is_ok());
    let proxy = format!("nf add lb proxy {}", server.address);
    let broker = broker(&[&proxy], "lb", Settings::default());
    let mut client = Client::connect(broker.address());
    client.send(&get("/"));
    assert_eq!(client.answer(), Answer::of(200, "one"));
    let edit = "nf add edit http-edit type * response body replace one two";
    broker.update(crate::common::functions(&[&proxy, edit], "edit | lb"), Settings::default());
    // Commands come before requests.
    let mut other = Client::connect(broker.address());
    other.send(&get("/"));
    assert_eq!(other.answer(), Answer::of(200, "two"));
    client.send(&get("/"));
    assert_eq!(client.answer(), Answer::of(200, "two"));
    broker.update(crate::common::functions(&[&proxy], "lb"), Settings::default());
    let mut third = Client::connect(broker.address());
    third.send(&get("/"));
    assert_eq!(third.answer(), Answer::of(200, "one"));
    client.send(&get("/"));
    assert_eq!(client.answer(), Answer::of(200, "one"));
}
