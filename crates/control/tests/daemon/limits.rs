//! Limits of the control API.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::harness::{Daemon, LIMITS, daemon};

/// What comes on a connection until it is closed.
fn rest(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // A connection may also be reset, since the daemon does not read what it refused.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Daemon {
    /// The counter of refusals for a reason.
    fn refused(&self, reason: &str) -> u64 {
        let end = Instant::now() + Duration::from_secs(30);
        let mut reply = self.http("GET", "/metrics", "", b"");
        // Connections that were just closed may still count.
        while reply.status != 200 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
            reply = self.http("GET", "/metrics", "", b"");
        }
        let metrics = String::from_utf8(reply.body).unwrap();
        let line = format!("mmb_api_refused_total{{reason=\"{reason}\"}} ");
        metrics.lines().find_map(|l| l.strip_prefix(&line)?.parse().ok()).unwrap()
    }
}

#[test]
fn a_silent_connection_is_closed() {
    let daemon = daemon();
    let before = daemon.refused("head-timeout");
    let start = Instant::now();
    for begun in ["", "GET /v1/rules HTTP/1.1\r\nHost:"] {
        let mut stream = daemon.connect();
        stream.write_all(begun.as_bytes()).unwrap();
        rest(&mut stream);
    }
    assert!(start.elapsed() < 10 * LIMITS.head);
    assert!(daemon.refused("head-timeout") > before);
}

#[test]
fn a_body_that_does_not_come_is_refused() {
    let daemon = daemon();
    let before = daemon.refused("body-timeout");
    let mut stream = daemon.connect();
    stream.write_all(b"POST /v1/check HTTP/1.1\r\nHost: mmb\r\nContent-Length: 9\r\n\r\nadd").unwrap();
    let reply = rest(&mut stream);
    assert!(reply.starts_with("HTTP/1.1 408") && reply.contains("nothing came for 1 seconds"), "{reply}");
    assert_eq!(daemon.refused("body-timeout"), before + 1);
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_comes() {
    let daemon = daemon();
    let before = daemon.refused("body-bytes");
    let mut stream = daemon.connect();
    let head = format!("POST /v1/apply HTTP/1.1\r\nHost: mmb\r\nContent-Length: {}\r\n\r\n", (256 << 20) + 1);
    stream.write_all(head.as_bytes()).unwrap();
    let reply = rest(&mut stream);
    assert!(reply.starts_with("HTTP/1.1 413") && reply.contains("larger than 256 MiB"), "{reply}");
    assert_eq!(daemon.refused("body-bytes"), before + 1);
}

#[test]
fn connections_beyond_the_limit_get_a_sentence() {
    let daemon = daemon();
    let limit = LIMITS.connections[2];
    let held: Vec<UnixStream> = (0..2 * limit).map(|_| daemon.connect()).collect();
    let mut one_more = daemon.connect();
    one_more.write_all(b"GET /v1/rules HTTP/1.1\r\nHost: mmb\r\n\r\n").unwrap();
    let reply = rest(&mut one_more);
    assert!(reply.starts_with("HTTP/1.1 503"), "{reply}");
    assert!(reply.contains("there are 24 connections already"), "{reply}");
    drop(held);
    assert!(daemon.refused("connections") > 0);
}
