//! Limits of sessions: of a source, of all workers together, and in a table that is nearly full.

mod common;

use common::*;
use mmb_flow::{SessionSettings, SourceLimit};
use mmb_packet::DropReason;
use mmb_session::SessionCounters;
use mmb_session_harness::{Outcome, SessionHarness};

const SERVER: End = ([192, 0, 2, 7], 53);
const ACCEPT: &str = "add-stateful all accept";
const POOL: &str = "nat pool add p 200.0.0.1 limit 60000";
const USE: &str = "add-stateful ip-saddr 10.0.0.0/8 nat p";

fn limited(lines: &[&str], limit: u32) -> mmb_session_harness::RuleSet {
    let settings = SessionSettings { source_limit: SourceLimit::Sessions(limit), ..Default::default() };
    rules_with(lines, settings, None)
}

/// A counter, summed over all workers.
fn sum(harness: &SessionHarness, counter: fn(&SessionCounters) -> u64) -> u64 {
    harness.workers().iter().map(|sessions| counter(&sessions.counters())).sum()
}

/// A datagram and its answer, which open a session with replies. False if the datagram is dropped.
fn converse(net: &mut Net, from: End, to: End) -> Option<DropReason> {
    let (outcome, bytes) = net.one(IN, &udp(from, to));
    match outcome {
        Outcome::Out(OUT) => {
            let shown = source(&bytes);
            net.becomes(OUT, &udp(to, shown), &udp(to, from));
            None
        }
        Outcome::Dropped(reason) | Outcome::Answered(_, reason) => Some(reason),
        other => panic!("{other:?}"),
    }
}

/// Answered datagrams of one host: it gets as many sessions as it may have, wherever they live, and others
/// are not touched.
#[test]
fn a_source_has_its_limit() {
    for workers in [1, 2, 4] {
        for lines in [vec![ACCEPT], vec![POOL, USE]] {
            let mut net = Net::with(limited(&lines, 50), workers, 1000);
            for round in 0..2u8 {
                let server = |n: u8| -> End { ([192, 0, 2 + round, n], 53) };
                let refused = |reason| reason == Some(DropReason::SessionLimit);
                let opened: Vec<_> =
                    (0..200).map(|n| converse(&mut net, ([10, 0, 0, 1], 4000), server(n))).collect();
                assert_eq!(opened.iter().filter(|reason| reason.is_none()).count(), 50, "{lines:?}");
                assert!(opened[50..].iter().all(|reason| refused(*reason)));
                assert_eq!(sum(&net.harness, |c| c.refused_source), 150 * (u64::from(round) + 1));
                // Sessions that are open go on.
                assert_eq!(converse(&mut net, ([10, 0, 0, 1], 4000), server(7)), None);
                for host in 2..100 {
                    assert_eq!(converse(&mut net, ([10, 0, 0, host], 4000), SERVER), None);
                }
                // What has ended no longer counts.
                net.wait(400_000);
                assert_eq!(sum(&net.harness, |c| c.sessions), 0);
            }
        }
    }
}

/// `off` is off; and the share is that of the whole table.
#[test]
fn limits_follow_the_setting() {
    let (share, off) = (SourceLimit::Share, SourceLimit::Off);
    assert_eq!([800_000, 8_000].map(|n| share.for_capacity(n)), [Some(100_000), Some(4_096)]);
    let settings = SessionSettings { source_limit: off, ..Default::default() };
    let mut net = Net::with(rules_with(&[ACCEPT], settings, None), 1, 6_000);
    let open = |net: &mut Net, n: u16| converse(net, ([10, 0, 0, 1], n), SERVER);
    assert!((0..5_000).all(|n| open(&mut net, n).is_none()));
    // A limit that comes later counts what is opened from now on.
    let settings = SessionSettings { source_limit: share, ..Default::default() };
    net.harness.replace_rules(rules_with(&[ACCEPT], settings, Some(&net.harness.rules().policy)));
    assert!((5_000..5_900).all(|n| open(&mut net, n).is_none()));
    net.wait(400_000);
    assert!((0..4_096).all(|n| open(&mut net, n).is_none()));
    assert_eq!(open(&mut net, 9_000), Some(DropReason::SessionLimit));
}

/// One inside host of a pool lives at one worker, and still may have all sessions of all workers.
#[test]
fn one_worker_may_have_all_sessions() {
    for workers in [1, 2, 4] {
        let mut net = Net::with(rules(&[POOL, USE]), workers, 600);
        let total = 600 * usize::from(workers);
        let server = |n: usize| -> End { ([192, 0, (n / 250) as u8, (n % 250) as u8], 53) };
        for n in 0..total {
            assert_eq!(
                converse(&mut net, ([10, 0, 0, 1], 4000), server(n)),
                None,
                "{n} of {total}, {workers}"
            );
        }
        assert_eq!(sum(&net.harness, |c| c.sessions), total as u64);
        assert_eq!(sum(&net.harness, |c| c.capacity), total as u64);
        let refused = Some(DropReason::SessionFull);
        assert_eq!(converse(&mut net, ([10, 0, 0, 1], 4000), ([198, 51, 100, 1], 53)), refused);
        assert_eq!(converse(&mut net, ([10, 0, 0, 2], 4000), ([198, 51, 100, 1], 53)), refused);
        net.wait(400_000);
        // The room comes back, also for hosts of other workers.
        for host in 2..200 {
            assert_eq!(converse(&mut net, ([10, 0, 0, host], 4000), SERVER), None);
        }
    }
}

/// Ends all sessions, as an operator does. Redirects stay.
fn clear(net: &mut Net) {
    let views = net.views();
    let (workers, rules) = net.harness.workers_mut();
    for view in views {
        assert!(workers[usize::from(view.worker)].clear(view.id, view.uid, rules));
    }
}

/// A port moves from worker to worker with the hosts that use it. Redirects of before do not lead replies
/// astray.
#[test]
fn a_port_changes_its_worker() {
    for workers in [1, 2, 4] {
        let mut net = Net::with(rules(&["nat pool add p 200.0.0.1 ports 5000-5000", USE]), workers, 100);
        for host in 1..60 {
            let client: End = ([10, 0, 0, host], 4000);
            for round in 0..2 {
                let refused = converse(&mut net, client, SERVER);
                assert_eq!(refused, None, "{workers} workers, host {host}, round {round}");
            }
            let other = converse(&mut net, ([10, 0, 0, host + 1], 4000), SERVER);
            assert_eq!(other, Some(DropReason::NatExhausted));
            clear(&mut net);
            // A worker that has found no port looks again after a tenth of a second.
            net.wait(200);
        }
    }
}

const WEB: End = ([192, 0, 2, 7], 80);

/// Several connections of a host, of which some live at another worker than the one that gets their packets
/// first.
struct Connections {
    net: Net,
    /// Each client, and its external endpoint.
    ends: Vec<(End, End)>,
}

impl Connections {
    const COUNT: u16 = 16;

    /// Sends the first segment of each.
    fn new(rules: mmb_session_harness::RuleSet, workers: u16) -> Connections {
        let mut net = Net::with(rules, workers, 1000);
        let clients = (0..Connections::COUNT).map(|n| ([10, 0, 0, 1], 4000 + n));
        let mut open = |client| (client, source(&net.one(IN, &tcp(client, WEB, SYN, 100, 0)).1));
        let ends = clients.map(&mut open).collect();
        Connections { net, ends }
    }

    fn redirects(&self) -> u64 {
        sum(&self.net.harness, |counters| counters.redirects)
    }

    /// The client of each sends a segment.
    #[track_caller]
    fn send(&mut self, flags: u8, seq: u32, ack: u32) {
        for &(client, shown) in &self.ends {
            self.net.becomes(IN, &tcp(client, WEB, flags, seq, ack), &tcp(shown, WEB, flags, seq, ack));
        }
    }

    /// The server sends each a segment.
    #[track_caller]
    fn answer(&mut self, flags: u8, seq: u32, ack: u32) {
        for &(client, shown) in &self.ends {
            self.net.becomes(OUT, &tcp(WEB, shown, flags, seq, ack), &tcp(WEB, client, flags, seq, ack));
        }
    }

    #[track_caller]
    fn open(&mut self) {
        self.answer(SYN | ACK, 500, 101);
        self.send(ACK, 101, 501);
    }

    /// The client of each sends an ICMP error about a segment of the server.
    #[track_caller]
    fn complain(&mut self) {
        for &(client, shown) in &self.ends {
            let about = |to: End| tcp(WEB, to, ACK, 501, 101);
            let [sent, expected] = [client, shown].map(|to| error(3, 3, to.0, WEB.0, &about(to)));
            self.net.becomes(IN, &sent, &expected);
        }
    }
}

/// A session may live at another worker than the one that gets its packets first. When it was idle, its next
/// packet gets there, although that worker would not open a session for it.
#[test]
fn idle_sessions_of_other_workers_go_on() {
    let default = SessionSettings::default();
    let limit = SourceLimit::Sessions(Connections::COUNT.into());
    for (settings, rule) in [
        (default, USE),
        (SessionSettings { tcp_pickup: false, ..default }, USE),
        (SessionSettings { source_limit: limit, ..default }, USE),
        (default, "add-stateful ip-saddr 10.0.0.0/8 tcp-syn nat p"),
        (default, "add-stateful ip-saddr 10.0.0.0/8 tcp-syn map ip-saddr 200.0.0.1"),
    ] {
        for workers in [2, 4] {
            let mut all = Connections::new(rules_with(&[POOL, rule], settings, None), workers);
            all.open();
            assert!(all.redirects() > 0);
            for (seq, idle) in [(101, 121_000), (102, 241_000), (103, 7_400_000)] {
                all.net.wait(idle);
                all.complain();
                all.send(ACK, seq, 501);
            }
            assert_eq!(sum(&all.net.harness, |counters| counters.created), Connections::COUNT.into());
        }
    }
}

/// Datagrams, too.
#[test]
fn idle_flows_of_other_workers_go_on() {
    let settings = SessionSettings { source_limit: SourceLimit::Sessions(16), ..Default::default() };
    let mut net = Net::with(rules_with(&[POOL, USE], settings, None), 2, 1000);
    for round in 0..3 {
        for n in 0..16 {
            assert_eq!(converse(&mut net, ([10, 0, 0, 1], 4000 + n), SERVER), None, "round {round}");
        }
        net.wait(290_000);
    }
    assert_eq!(sum(&net.harness, |counters| counters.created), 16);
}

/// A session that only its server keeps alive gets the next datagram of its client, even if the source has
/// all of its sessions. Datagrams that open no session store nothing.
#[test]
fn a_source_at_its_limit_reaches_its_sessions() {
    for workers in [2, 4] {
        let settings = SessionSettings { source_limit: SourceLimit::Sessions(16), ..Default::default() };
        let mut net = Net::with(rules_with(&[POOL, USE], settings, None), workers, 1000);
        let redirects = |net: &Net| sum(&net.harness, |counters| counters.redirects);
        let clients: Vec<End> = (0..16).map(|n| ([10, 0, 0, 1], 4000 + n)).collect();
        for &client in &clients {
            assert_eq!(converse(&mut net, client, SERVER), None);
        }
        for _ in 0..3 {
            net.wait(200_000);
            for &client in &clients {
                net.becomes(OUT, &udp(SERVER, ([200, 0, 0, 1], client.1)), &udp(SERVER, client));
            }
        }
        net.wait(200_000);
        assert_eq!(redirects(&net), 0);
        for &(from, port) in &clients {
            assert_eq!(converse(&mut net, (from, port + 1000), SERVER), Some(DropReason::SessionLimit));
        }
        assert_eq!(redirects(&net), 0);
        for &client in &clients {
            assert_eq!(converse(&mut net, client, SERVER), None);
        }
    }
}

/// What leads packets to another worker ends soon after the connection, and that for replies after two
/// minutes: the claim on the port leads them there.
#[test]
fn redirects_end_with_their_connections() {
    let (mut states, fin) = (Vec::new(), FIN | ACK);
    for end in 0..4 {
        let mut all = Connections::new(rules(&[POOL, USE]), 2);
        let forward = all.redirects();
        assert!((1..16).contains(&forward), "{forward}");
        if end > 0 {
            all.open();
            assert!(all.redirects() > forward);
            all.net.wait(130_000);
            assert_eq!(all.redirects(), forward);
        }
        match end {
            // Nobody answers.
            0 => {}
            1 => {
                all.send(fin, 101, 501);
                all.answer(fin, 501, 102);
                all.send(ACK, 102, 502);
            }
            2 => {
                all.answer(fin, 501, 101);
                all.send(fin, 101, 502);
                all.answer(ACK, 502, 102);
            }
            _ => all.send(RST, 101, 0),
        }
        all.net.wait(250_000);
        states.push((all.redirects(), sum(&all.net.harness, |counters| counters.sessions)));
    }
    assert_eq!(states, [(0, 0); 4]);
}

/// A client that uses its port again has a connection that may be idle for as long as the first one.
#[test]
fn a_port_that_is_used_again_leads_to_the_same_worker() {
    let mut all = Connections::new(rules(&[POOL, "add-stateful ip-saddr 10.0.0.0/8 tcp-syn nat p"]), 2);
    all.open();
    all.send(FIN | ACK, 101, 501);
    all.answer(FIN | ACK, 501, 102);
    all.send(ACK, 102, 502);
    all.send(SYN, 200_000, 0);
    all.answer(SYN | ACK, 900_000, 200_001);
    all.send(ACK, 200_001, 900_001);
    all.net.wait(7_400_000);
    all.send(ACK, 200_001, 900_001);
}

/// Idle sessions end early while the table is nearly full, and only then.
#[test]
fn a_table_that_is_nearly_full_ages() {
    for (opened, aged) in [(1_700u16, false), (2_000, true)] {
        let mut net = Net::with(rules(&[ACCEPT]), 1, 2_048);
        for n in 0..opened {
            let from: End = ([10, 0, (n / 250) as u8, (n % 250) as u8], 4000);
            assert_eq!(converse(&mut net, from, SERVER), None);
        }
        // Answered datagrams live 300 seconds.
        for _ in 0..2_000 {
            net.wait(100);
        }
        let counters = net.counters();
        assert_eq!((counters.aged > 0, counters.expired), (aged, 0), "{opened}");
        // Not more than necessary: with 171 of 256 places free, timeouts are 200 seconds.
        let free = 2_048 - counters.sessions;
        assert!(if aged { (171..180).contains(&free) } else { counters.sessions == opened.into() }, "{free}");
        assert!(converse(&mut net, ([10, 9, 9, 9], 1), SERVER).is_none());
    }
}

/// A packet to an unmapped port of its own pool is dropped, and leaves nothing: no session, no mapping, no
/// use of a limit.
#[test]
fn a_hairpin_that_is_dropped_leaves_nothing() {
    let client: End = ([10, 0, 0, 1], 4000);
    let nobody: End = ([200, 0, 0, 1], 9999);
    for workers in [1, 2, 4] {
        let mut net = Net::with(rules(&["nat pool add p 200.0.0.1 limit 1", USE]), workers, 100);
        for _ in 0..3 {
            net.drops(IN, &udp(client, nobody), DropReason::NatUnmapped);
            net.drops(IN, &tcp(client, nobody, SYN, 1, 0), DropReason::NatUnmapped);
        }
        assert_eq!(net.views(), []);
        assert!(net.harness.workers().iter().all(|sessions| sessions.nat().is_empty()));
        assert_eq!(sum(&net.harness, |c| c.created), 0);
        // The host has not used up its limit, and nobody the reply key.
        for host in 1..30 {
            assert_eq!(converse(&mut net, ([10, 0, 0, host], 4000), SERVER), None);
        }
    }
    // A port that is mapped, but filtered.
    let mut net = Net::new(&["nat pool add p 200.0.0.1 limit 1", USE]);
    assert_eq!(converse(&mut net, ([10, 0, 0, 2], 5000), SERVER), None);
    net.drops(IN, &udp(client, ([200, 0, 0, 1], 5000)), DropReason::NatFiltered);
    assert_eq!(converse(&mut net, client, SERVER), None);
    assert_eq!(net.views().len(), 2);
}

/// One host must not take all ports of an address (RFC 6888, REQ-4).
#[test]
fn a_host_has_half_of_the_ports() {
    let mut net = Net::with(rules(&["nat pool add p 200.0.0.1 ports 1024-5023", USE]), 1, 9_000);
    let open = |net: &mut Net, host: u8, port: u16| converse(net, ([10, 0, 0, host], port), SERVER);
    assert!((1024..3024).all(|port| open(&mut net, 1, port).is_none()));
    assert_eq!(open(&mut net, 1, 4000), Some(DropReason::NatLimit));
    assert_eq!(open(&mut net, 2, 4000), None);
    // A further session of a mapping needs no port.
    assert_eq!(converse(&mut net, ([10, 0, 0, 1], 1024), ([192, 0, 2, 9], 53)), None);
}
