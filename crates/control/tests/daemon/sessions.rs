//! Sessions: packets of capture files open them; commands list and end them.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mmb_control::api::{ConnectionList, Runtime};
use mmb_packet::build::{Frame, Ip4, Tcp, Udp};
use serde_json::Value;

use crate::harness::{Daemon, SESSIONS, daemon};

/// A capture file (libpcap format, little endian) with these frames.
fn capture(path: &Path, frames: impl Iterator<Item = Vec<u8>>) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for frame in frames {
        let len = frame.len() as u32;
        [0, 0, len, len].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Packet `n`: alternately a TCP SYN and a UDP datagram, each of its own flow.
fn frame(n: u32) -> Vec<u8> {
    let ip = Ip4::new(Ipv4Addr::from(0x0a00_0000 + n / 60_000).octets(), [192, 0, 2, 1]);
    let port = 1024 + (n % 60_000) as u16;
    match n % 2 {
        0 => Frame::new(ip, Tcp { flags: 0x02, ..Tcp::new(port, 80) }).build(),
        _ => Frame::new(ip, Udp::new(port, 53)).build(),
    }
}

impl Daemon {
    /// Sends the flows `0..n` from a capture over a wire, and waits for the number of sessions.
    fn play(&self, n: u32, sessions: u64) {
        let (rx, tx) = (file("rx.pcap"), file("tx.pcap"));
        capture(&rx, (0..n).map(frame));
        // One of an earlier run of the tests would not be overwritten.
        let _ = std::fs::remove_file(&tx);
        // All flows come from a few sources.
        self.run("set session-limit source off").unwrap();
        self.run("interface add far null").unwrap();
        self.run(&format!("interface add near pcap {} {}", rx.display(), tx.display())).unwrap();
        self.run("wire near far").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.live() < sessions {
            assert!(
                Instant::now() < deadline,
                "{} sessions\n{}",
                self.live(),
                self.run("show drops").unwrap()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn live(&self) -> u64 {
        self.client().get::<Runtime>("/v1/runtime").unwrap().sessions.sessions
    }

    fn connections(&self, matches: &str) -> ConnectionList {
        let mut text = Vec::new();
        let keep = |piece: &[u8]| {
            text.extend_from_slice(piece);
            true
        };
        self.client().print(&format!("show connections {matches}"), true, keep).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

#[test]
fn sessions_show_their_chain() {
    let daemon = daemon();
    for line in [
        "nf add seen probe",
        "nf add wall acl deny udp-dport 53 allow all",
        "chain add c seen | wall",
        "add-stateful all chain c",
    ] {
        daemon.run(line).unwrap();
    }
    daemon.play(200, 200);
    let connections = daemon.connections("").connections;
    assert_eq!(connections.len(), 200);
    for c in &connections {
        // A refusal holds until the configuration changes, as it did with the wire while packets were
        // received.
        let refused = c.refused.as_deref().is_none_or(|reason| c.protocol == "udp" && reason == "acl");
        assert!(refused && c.chain.as_deref() == Some("c"), "{c:?}");
    }
    let text = daemon.run("show connections udp-dport 53").unwrap();
    assert!(text.lines().skip(1).all(|line| line.contains("  1 (c")), "{text}");
    let costs: Vec<_> =
        daemon.control.functions().functions.into_iter().map(|f| (f.cost.packets, f.cost.drops)).collect();
    assert_eq!(costs, [(200, 0), (200, 100)]);
    // A new function is used from the next packet on, and no session ends.
    daemon.run("nf add more probe").unwrap();
    daemon.run("chain set c more | seen | wall").unwrap();
    assert_eq!(daemon.connections("").connections.len(), 200);
}

#[test]
fn an_empty_listing_says_that_the_policy_is_stateless() {
    let daemon = daemon();
    daemon.run("add ip-df drop").unwrap();
    for line in ["show connections", "show connections verbose tcp-dport 80"] {
        let text = daemon.run(line).unwrap();
        assert_eq!(text, "no connections: the policy is stateless; `add-stateful` rules open sessions\n");
    }
    assert_eq!(daemon.connections("").connections, []);
    daemon.run("add-stateful all accept").unwrap();
    assert_eq!(daemon.run("show connections").unwrap(), "no connections\n");
    assert_eq!(daemon.run("clear connections").unwrap(), "0 connections ended\n");
}

#[test]
fn many_sessions_are_listed_filtered_and_cleared() {
    const N: u32 = 30_000;
    let daemon = daemon();
    daemon.run("add-stateful ip-saddr 10.0.0.0/8 accept").unwrap();
    daemon.play(N, u64::from(N));
    let all = daemon.connections("").connections;
    let ports: HashSet<_> = all.iter().map(|c| (c.protocol.clone(), c.forward.source_port)).collect();
    assert_eq!((all.len(), ports.len()), (N as usize, N as usize));
    let one = &daemon.connections("tcp-sport 1024").connections[..];
    let [one] = one else { panic!("{one:?}") };
    assert_eq!(
        (one.protocol.as_ref(), one.forward.destination_port, one.rules.as_slice()),
        ("tcp", Some(80), &[1][..])
    );
    assert_eq!((one.forward.packets, one.reverse.packets, one.translated), (1, 0, false));
    assert_eq!((one.forward.in_.as_deref(), one.reverse.in_.as_deref()), (Some("near"), None));
    assert_eq!((one.reverse.source_port, one.reverse.destination_port), (Some(80), Some(1024)));
    // Packets of either direction may match.
    for (matches, n) in [
        ("ip-proto udp", N / 2),
        ("udp-dport 53", N / 2),
        ("udp-sport 53", N / 2),
        ("ip-saddr 192.0.2.1 tcp-dport 1024-1033", 5),
        ("in near", N),
        ("in far", 0),
        ("out far", N),
        ("net-proto ip6", 0),
        ("! ip-proto udp", N / 2),
    ] {
        assert_eq!(daemon.connections(matches).connections.len(), n as usize, "{matches}");
    }
    let text = daemon.run("show connections udp-sport 1025").unwrap();
    assert!(text.contains("10.0.0.0:1025 > 192.0.2.1:53  192.0.2.1:53 > 10.0.0.0:1025"), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(
        daemon.run("clear connections tcp-dport 80").unwrap(),
        format!("{} connections ended\n", N / 2)
    );
    assert_eq!(daemon.live(), u64::from(N / 2));
    assert_eq!(daemon.connections("ip-proto tcp").connections, []);
    let metrics = daemon.http("GET", "/metrics", "", b"").body;
    let metrics = String::from_utf8(metrics).unwrap();
    for line in [
        format!("mmb_sessions {}", N / 2),
        format!("mmb_sessions_capacity {SESSIONS}"),
        format!("mmb_worker_sessions{{worker=\"0\"}} {}", N / 2),
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line} in\n{metrics}");
    }
}

#[test]
fn a_reply_with_both_parts_is_one_document() {
    let daemon = daemon();
    daemon.run("add-stateful all accept").unwrap();
    daemon.play(100, 100);
    let reply = daemon.send("show connections verbose");
    let text = reply.text.unwrap();
    let json: Value = serde_json::from_str(reply.json.unwrap().get()).unwrap();
    assert_eq!(text.lines().count(), 101);
    assert_eq!(json["connections"].as_array().unwrap().len(), 100);
    assert!(text.contains("near/-"), "{text}");
}

#[test]
fn a_disconnected_reader_ends_the_listing() {
    let daemon = daemon();
    daemon.run("add-stateful all accept").unwrap();
    daemon.play(30_000, 30_000);
    let mut client = daemon.client();
    let mut pieces = 0;
    let count = |_: &[u8]| {
        pieces += 1;
        false
    };
    client.print("show connections", false, count).unwrap();
    assert_eq!(pieces, 1);
    // The client opens a new connection for its next request.
    client.print("list", false, |_| true).unwrap();
}

#[test]
fn pools_translate_and_count_their_ports() {
    let daemon = daemon();
    daemon.run("nat pool add p 198.51.100.1 ports 1024-65535 block 1000").unwrap();
    daemon.run("add-stateful ip-saddr 10.0.0.0/8 nat p").unwrap();
    daemon.play(1000, 1000);
    let list = daemon.connections("ip-daddr 198.51.100.1").connections;
    assert!(list.len() == 1000 && list.iter().all(|c| c.translated), "{}", list.len());
    let nat = daemon.http("GET", "/v1/nat", "", b"").json();
    let pool = &nat["pools"][0];
    assert_eq!((&pool["hosts"], &pool["sessions"]), (&1.into(), &1000.into()), "{nat}");
    assert_eq!((&pool["ports_used"]["tcp"], &pool["ports_used"]["udp"]), (&500.into(), &500.into()), "{nat}");
    assert!(pool["blocks_used"].as_u64().unwrap() >= 1, "{nat}");
    let text = daemon.run("show nat").unwrap();
    assert!(text.contains("198.51.100.1") && text.contains("of 1000"), "{text}");
    let metrics = String::from_utf8(daemon.http("GET", "/metrics", "", b"").body).unwrap();
    assert!(metrics.contains("mmb_nat_ports_used{pool=\"p\",protocol=\"tcp\"} 500\n"), "{metrics}");
}
