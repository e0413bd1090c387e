use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use mmb_nf::{L7Function, L7Handler, Setup, StopSignal};

use super::*;

fn proxy(args: &[&str]) -> Proxy {
    let setup = Setup {
        args,
        resolve_port: &|_| None,
        has_pool: &|_| false,
        workers: 1,
        seed: 0,
        files: &Arc::default(),
    };
    Proxy::new(&setup).unwrap()
}

fn client(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

#[test]
fn another_server_is_chosen_until_all_were_tried() {
    for method in ["round-robin", "least-connections", "hash"] {
        let proxy = proxy(&["10.0.0.1", "10.0.0.2", "[2001:db8::1]:81", "by", method]);
        let servers = proxy.upstream().unwrap();
        let mut tried = Vec::new();
        for _ in 0..3 {
            let chosen = servers.choose(client(1), None, &tried).unwrap();
            assert!(!tried.contains(&chosen.number), "{method}");
            tried.push(chosen.number);
        }
        assert_eq!(servers.choose(client(1), None, &tried), None, "{method}");
    }
}

#[test]
fn drained_servers_get_no_requests_and_requests_count_as_load() {
    let proxy = proxy(&["10.0.0.1", "10.0.0.2", "by", "least-connections"]);
    let servers = proxy.upstream().unwrap();
    servers.begin(0);
    assert!((0..4).all(|n| servers.choose(client(n), None, &[]).unwrap().number == 1));
    proxy.set(&["drain", "10.0.0.2"]).unwrap();
    assert!((0..4).all(|n| servers.choose(client(n), None, &[]).unwrap().number == 0));
    assert!(proxy.set(&["drain", "10.0.0.9"]).is_err());
    servers.end(0, true);
    let report = proxy.report();
    assert!(
        report.contains(&("10.0.0.1:80".into(), "up, 0 requests now, 1 ever, 1 not answered".into())),
        "{report:?}"
    );
}

#[test]
fn a_server_with_an_error_page_fails_its_check() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let answers = std::thread::spawn(move || {
        let mut answered = 0;
        while answered < 3 {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let request: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            assert!(request.is_empty() || request[0] == "GET /up HTTP/1.1");
            let status = if answered == 0 { "204 No Content" } else { "500 Internal Server Error" };
            // On a busy machine, the check may have given up meanwhile, and comes again.
            if !request.is_empty() && write!(stream, "HTTP/1.1 {status}\r\n\r\n").is_ok() {
                answered += 1;
            }
        }
    });
    let proxy = proxy(&[&place, "check", "http", "/up", "every", "0.1"]);
    let (work, stop) = (proxy.background().unwrap(), Arc::new(StopSignal::default()));
    let signal = stop.clone();
    let checks = std::thread::spawn(move || work(&signal));
    answers.join().unwrap();
    let servers = proxy.upstream().unwrap();
    // The connection of the last check may still be read.
    while servers.choose(client(1), None, &[]).is_some() {
        std::thread::sleep(Duration::from_millis(5));
    }
    stop.stop();
    checks.join().unwrap();
}

#[test]
fn a_cookie_names_the_server() {
    let proxy = proxy(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "sticky", "srv"]);
    let servers = proxy.upstream().unwrap();
    let set_cookie = |server, preferred| {
        let mut message = MessageHead::default();
        let head = mmb_http::Head { status: 200, minor: 1, body: mmb_http::Body::None, request: None };
        let (peer, request) = (crate::shared::http::testing::peer(), mmb_http::RequestClass::default());
        let message_ref = &mut message;
        let mut response =
            L7Response { exchange: 1, peer, message: message_ref, head, request, server, preferred };
        assert_eq!(proxy.response(&mut response, &mut ()), L7Verdict::Pass);
        message.values(b"set-cookie").next().map(|value| String::from_utf8(value.to_vec()).unwrap())
    };
    let cookie = set_cookie(Some(1), None).unwrap();
    assert!(cookie.starts_with("srv=") && cookie.ends_with("; Path=/; HttpOnly"), "{cookie}");
    assert_eq!((set_cookie(Some(1), Some(1)), set_cookie(None, None)), (None, None));
    assert!(set_cookie(Some(2), Some(1)).is_some_and(|other| other != cookie));
    let pair = cookie.split(';').next().unwrap();
    let preferred = |cookies: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookies}\r\n\r\n");
        servers.preferred(&crate::shared::http::testing::read_head(&text))
    };
    assert_eq!(preferred(&format!("a=b; {pair};c=d")), Some(1));
    assert_eq!((preferred(&format!("x{pair}")), preferred("srv=1"), preferred("")), (None, None, None));
    let chosen = |tried: &[u16]| servers.choose(client(1), Some(1), tried).unwrap().number;
    assert!((0..4).all(|_| chosen(&[]) == 1));
    assert_ne!(chosen(&[1]), 1);
    // A drained server keeps its clients; one that is down does not.
    proxy.set(&["drain", "10.0.0.2"]).unwrap();
    assert_eq!(chosen(&[]), 1);
    proxy.servers.backends.set_down(1, true);
    assert_ne!(chosen(&[]), 1);
}
