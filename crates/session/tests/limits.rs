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
