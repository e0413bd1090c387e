//! Which connections to servers are kept, and used again.

use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc::channel;

use mmb_broker::{Count, Settings};

use super::common::{self, Answer, Client, broker};
use super::{get, ok};

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
