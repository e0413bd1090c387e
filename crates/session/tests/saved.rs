//! Sessions outlive the process: they are saved, read, and go on as if nothing had happened.

mod common;

use std::collections::HashMap;

use common::*;
use mmb_flow::SessionSettings;
use mmb_packet::DropReason;
use mmb_packet::build::{Frame, Ip4, Udp};
use mmb_session::{
    DumpCursor, KeptRules, NotRestored, Placement, SavedRule, SavedSessions, SessionFile, SessionSet,
    Sessions,
};
use mmb_session_harness::{Outcome, RuleSet};

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const OTHER: End = ([10, 0, 0, 2], 40_000);
const SERVER: End = ([192, 0, 2, 7], 80);
const NAT: [u8; 4] = [200, 0, 0, 1];

const POOL: &str = "nat pool add p 200.0.0.1";
const USE: &str = "add-stateful ip-saddr 10.0.0.0/8 nat p";

/// The sessions of all workers, as they are read from a file.
fn save(net: &mut Net) -> SavedSessions {
    let now = net.now;
    let (workers, rules) = net.harness.workers_mut();
    let mut all = SavedSessions::default();
    for sessions in workers {
        let mut cursor = DumpCursor::default();
        loop {
            let (mut part, more) = sessions.save(now, rules, &mut cursor, 3);
            part.sessions.iter_mut().for_each(|session| session.rule_list += all.lists.len() as u32);
            all.sessions.extend(part.sessions);
            all.lists.extend(part.lists);
            all.left_out += part.left_out;
            if !more {
                break;
            }
        }
    }
    let file = SessionFile { saved: all.clone(), ..SessionFile::default() };
    let mut bytes = Vec::new();
    file.write(&mut bytes).expect("memory");
    let read = SessionFile::read(&bytes).expect("a valid file");
    SavedSessions { left_out: all.left_out, ..read.saved }
}

/// Gives the sessions of `old` to `new`, `away` milliseconds later. Returns why some are not restored.
fn hand_over(old: &mut Net, new: &mut Net, away: u32) -> Vec<NotRestored> {
    let saved = save(old);
    restore(saved, old, new, away)
}

/// Gives sessions that were copied from `old` to `new`, as [`hand_over`].
fn restore(saved: SavedSessions, old: &Net, new: &mut Net, away: u32) -> Vec<NotRestored> {
    let slots: HashMap<String, u32> =
        new.harness.rules().policy.rules().map(|view| (view.body.to_owned(), view.slot)).collect();
    let texts: HashMap<u32, String> =
        old.harness.rules().policy.rules().map(|view| (view.slot, view.body.to_owned())).collect();
    let kept = saved.lists.iter().map(|list| {
        let mut kept = KeptRules::default();
        for rule in list {
            match slots.get(&texts[&rule.slot]) {
                Some(&slot) => kept.rules.push(SavedRule { slot, ..*rule }),
                None => kept.lost_translation |= rule.translates,
            }
        }
        kept.rules.sort_unstable_by_key(|rule| rule.slot);
        kept
    });
    let kept: Vec<_> = kept.collect();
    let now = new.now;
    let (workers, rules) = new.harness.workers_mut();
    let mut refused = Vec::new();
    for mut session in saved.sessions {
        session.age_by(away);
        let place = Placement::of(&session, &rules.nat, workers.len() as u16);
        let owner = &mut workers[usize::from(place.owner)];
        if let Err(reason) = owner.restore(&session, &kept[session.rule_list as usize], now, rules) {
            refused.push(reason);
            continue;
        }
        for (key, worker) in place.redirects.into_iter().flatten() {
            workers[usize::from(worker)].restore_redirect(&key, (place.owner, place.state), now);
        }
    }
    refused
}

/// A box whose clock has nothing in common with that of other boxes.
fn later(lines: &[&str], workers: u16, sessions: usize) -> Net {
    let mut net = Net::with(rules(lines), workers, sessions);
    net.wait(123_456);
    net
}

/// A view of a session without what belongs to a process.
fn gist(net: &Net) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    let mut views: Vec<_> = net
        .views()
        .into_iter()
        .map(|view| {
            let keys = (format!("{:?}", view.original), format!("{:?}", view.reply));
            (keys, view.state, view.age, view.idle, view.expires, view.packets, view.bytes, view.mapped)
        })
        .collect();
    views.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    views
}

/// A process that goes on after its sessions were copied hands over those that have changed. What the other
/// process has in the end is what it would have got at once.
#[test]
fn sessions_that_change_behind_their_copy_are_copied_again() {
    let lines = [POOL, USE];
    let host = |n| ([10, 0, 0, n], 40_000);
    for count in [1, 3] {
        let mut net = Net::with(rules(&lines), count, 100);
        (1..7).for_each(|n| drop(net.run(IN, &udp(host(n), SERVER))));
        net.wait(10);
        let now = net.now;
        let (workers, rules_then) = net.harness.workers_mut();
        let copy =
            |sessions: &mut Sessions| sessions.save_running(now, rules_then, &mut DumpCursor::default(), 100);
        let copies: Vec<_> = workers.iter_mut().map(copy).collect();
        let mut new = later(&lines, 4 - count, 100);
        for (saved, ..) in &copies {
            assert_eq!(restore(saved.clone(), &net, &mut new, 0), []);
        }
        assert_eq!(gist(&new), gist(&net));

        // One session goes on, one ends, and one begins.
        net.wait(10);
        new.wait(10);
        net.run(IN, &udp(host(2), SERVER));
        net.run(IN, &udp(host(7), SERVER));
        let ended = net.views().into_iter().find(|view| view.original.source[..4] == host(3).0);
        let ended = ended.expect("it is there");
        let (workers, rules_now) = net.harness.workers_mut();
        assert!(workers[usize::from(ended.worker)].clear(ended.id, ended.uid, rules_now));
        net.wait(10);
        new.wait(10);
        let now = net.now;
        let (workers, rules_now) = net.harness.workers_mut();
        let (mut gone, mut changes) = (Vec::new(), Vec::new());
        for (sessions, (saved, marks, _)) in workers.iter_mut().zip(&copies) {
            let mut unchanged = SessionSet::default();
            let changed = sessions.find_changed(now, rules_now, marks, &mut unchanged);
            gone.extend(changed.into_iter().flat_map(|at| saved.sessions[at as usize].keys()));
            let cursor = &mut DumpCursor::default();
            changes.push(sessions.save_changed(now, rules_now, cursor, 100, &unchanged).0);
        }
        let copied_again: usize = changes.iter().map(|saved| saved.sessions.len()).sum();
        assert_eq!((gone.len() / 2, copied_again), (2, 2), "nothing else has changed");
        let now = new.now;
        let (workers, rules_new) = new.harness.workers_mut();
        let forget = |sessions: &mut Sessions| {
            gone.iter().filter(|key| sessions.forget_restored(key, now, rules_new)).count()
        };
        assert_eq!(workers.iter_mut().map(forget).sum::<usize>(), 2);
        for saved in changes {
            assert_eq!(restore(saved, &net, &mut new, 0), []);
        }
        assert_eq!(gist(&new), gist(&net));
        let mut at_once = later(&lines, 4 - count, 100);
        assert_eq!(hand_over(&mut net, &mut at_once, 0), []);
        let redirects = |net: &Net| net.counters().redirects;
        assert_eq!((gist(&at_once), redirects(&at_once)), (gist(&new), redirects(&new)));
    }
}

/// Connections through every kind of translation go on, in both directions, whichever comes first.
#[test]
fn sessions_go_on() {
    let deny = "add all drop";
    let kinds: [&[&str]; 6] = [
        &["add-stateful ip-saddr 10.0.0.0/8 accept", deny],
        &[POOL, "add-stateful ip-saddr 10.0.0.0/8 nat p accept", deny],
        &["add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1 accept", deny],
        &["add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1 shuffle tcp-sport accept", deny],
        &["add-stateful ip-saddr 10.0.0.0/8 shuffle tcp-seq-num shuffle tcp-ack-num accept", deny],
        &["add-stateful ip-daddr 192.0.2.7 lb 192.0.2.8 192.0.2.9 accept", deny],
    ];
    for lines in kinds {
        for ([before, after], first) in [[1, 1], [1, 3], [3, 2]].into_iter().zip([IN, OUT, IN]) {
            let mut net = Net::with(rules(lines), before, 100);
            let syn = net.one(IN, &tcp(CLIENT, SERVER, SYN, 100, 0)).1;
            let (shown, server) = (source(&syn), destination(&syn));
            let seq = |frame: &[u8]| u32::from_be_bytes(frame[38..42].try_into().expect("four bytes"));
            let ack = |frame: &[u8]| u32::from_be_bytes(frame[42..46].try_into().expect("four bytes"));
            let sent = seq(&syn);
            let answer = net.one(OUT, &tcp(server, shown, SYN | ACK, 500, sent.wrapping_add(1))).1;
            assert_eq!((source(&answer), destination(&answer), ack(&answer)), (SERVER, CLIENT, 101));
            let told = seq(&answer);
            let third = net.one(IN, &tcp(CLIENT, SERVER, ACK, 101, told.wrapping_add(1))).1;
            assert_eq!((seq(&third), ack(&third)), (sent.wrapping_add(1), 501));
            net.wait(2_000);
            assert_eq!(net.views().len(), 1, "{lines:?}");

            let mut new = later(lines, after, 100);
            assert_eq!(hand_over(&mut net, &mut new, 0), [], "{lines:?}");
            assert_eq!(gist(&new), gist(&net));
            for port in [first, first ^ 1, first] {
                let expected = match port {
                    IN => {
                        let there = new.one(IN, &tcp(CLIENT, SERVER, ACK, 101, told.wrapping_add(1))).1;
                        (source(&there), destination(&there), seq(&there), ack(&there))
                    }
                    _ => {
                        let home = new.one(OUT, &tcp(server, shown, ACK, 501, sent.wrapping_add(1))).1;
                        (source(&home), destination(&home), seq(&home), ack(&home))
                    }
                };
                let wanted = match port {
                    IN => (shown, server, sent.wrapping_add(1), 501),
                    _ => (SERVER, CLIENT, told.wrapping_add(1), 101),
                };
                assert_eq!(expected, wanted, "{lines:?} by port {port}, {before} to {after} workers");
            }
            let view = new.view();
            assert_eq!((view.state, view.packets.iter().sum::<u64>()), ("established", 6));
            // It ends as any other, and leaves nothing behind.
            new.wait(20_000_000);
            assert_eq!((new.views(), new.harness.workers()[0].nat().mappings()), (vec![], 0));
        }
    }
}

/// A restored connection may stay idle, although another worker than its owner gets its packets first.
#[test]
fn restored_connections_may_be_idle() {
    let lines = [POOL, "add-stateful ip-saddr 10.0.0.0/8 tcp-syn nat p"];
    let mut net = Net::with(rules(&lines), 1, 100);
    let clients: Vec<End> = (0..8).map(|n| (CLIENT.0, 40_000 + n)).collect();
    for &client in &clients {
        let shown = (NAT, client.1);
        net.becomes(IN, &tcp(client, SERVER, SYN, 100, 0), &tcp(shown, SERVER, SYN, 100, 0));
        net.becomes(OUT, &tcp(SERVER, shown, SYN | ACK, 500, 101), &tcp(SERVER, client, SYN | ACK, 500, 101));
        net.becomes(IN, &tcp(client, SERVER, ACK, 101, 501), &tcp(shown, SERVER, ACK, 101, 501));
    }
    let mut new = later(&lines, 3, 100);
    assert_eq!(hand_over(&mut net, &mut new, 0), []);
    assert!(new.harness.workers().iter().any(|sessions| sessions.counters().redirects > 0));
    new.wait(7_400_000);
    for client in clients {
        let shown = (NAT, client.1);
        new.becomes(IN, &tcp(client, SERVER, ACK, 101, 501), &tcp(shown, SERVER, ACK, 101, 501));
    }
}

/// Times are durations: what timed out in between does not come back, and the rest has what was left.
#[test]
fn time_goes_on_while_no_process_runs() {
    let lines = ["add-stateful ip-proto udp accept"];
    let timeout = SessionSettings::default().timeouts.udp_unreplied;
    for (away, left) in
        [(0, Some(timeout - 500)), (timeout - 501, Some(1)), (timeout - 500, None), (u32::MAX, None)]
    {
        let mut net = Net::new(&lines);
        net.passes(IN, &udp(CLIENT, SERVER));
        net.wait(500);
        let mut new = later(&lines, 1, 10);
        let refused = hand_over(&mut net, &mut new, away);
        match left {
            Some(left) => {
                assert_eq!((refused, new.view().expires, new.view().age), (vec![], left, away + 500));
                new.wait(left + 1_000);
                assert!(new.views().is_empty());
            }
            None => assert_eq!((refused, new.views()), (vec![NotRestored::Expired], vec![])),
        }
    }
}

/// Sessions are judged by the rules of the new process, as behind a change of rules.
#[test]
fn rules_of_the_new_process_decide() {
    let drop = "add all drop";
    let old = ["add-stateful tcp-dport 80 accept", drop];
    for (new, goes_on) in [
        (&["add udp-dport 9 drop", old[0], drop][..], true),
        (&["add-stateful tcp-dport {80,443} tcp-syn accept", drop], true),
        (&["add-stateful in port0 accept", drop], true),
        (&["add-stateful out port1 accept", drop], true),
        (&["add-stateful tcp-dport 443 accept", drop], false),
        (&["add-stateful tcp-dport {80,443} accept", "add ip-daddr 192.0.2.7 block", drop], false),
        (&[POOL, "add-stateful tcp-dport {80,443} nat p", drop], false),
        (&[drop], false),
    ] {
        let mut net = Net::new(&old);
        net.connect(CLIENT, SERVER);
        let mut next = later(new, 1, 10);
        let refused = hand_over(&mut net, &mut next, 10);
        if goes_on {
            assert_eq!(refused, [], "{new:?}");
            next.passes(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101));
            next.passes(IN, &tcp(CLIENT, SERVER, ACK, 101, 501));
            assert_eq!((next.view().state, next.view().rules.len()), ("established", 1));
        } else {
            assert_eq!((refused, next.views()), (vec![NotRestored::NotAllowed], vec![]), "{new:?}");
            next.drops(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101), DropReason::Rule);
        }
    }
    // A rule that stays keeps its sessions, and a new one drops their packets.
    let mut net = Net::new(&old);
    net.connect(CLIENT, SERVER);
    let mut next = later(&[old[0], "add ip-saddr 10.0.0.1 block", drop], 1, 10);
    assert_eq!(hand_over(&mut net, &mut next, 0), []);
    next.drops(IN, &tcp(CLIENT, SERVER, ACK, 101, 501), DropReason::Rule);
}

/// A rule that is known by more than the key keeps its sessions too, and its effect.
#[test]
fn rules_with_the_same_text_keep_their_sessions() {
    let lines = ["add-stateful ip-ttl 7 udp-dport 80 mod ip-dscp 9 accept", "add all drop"];
    let frame = |ttl, dscp: u8| {
        let ip = Ip4 { ttl, tos: dscp << 2, ..Ip4::new(CLIENT.0, SERVER.0) };
        Frame::new(ip, Udp::new(CLIENT.1, SERVER.1))
    };
    let mut net = Net::new(&lines);
    net.becomes(IN, &frame(7, 0), &frame(7, 9));
    let mut new = later(&lines, 1, 10);
    assert_eq!(hand_over(&mut net, &mut new, 0), []);
    new.becomes(IN, &frame(64, 0), &frame(64, 9));
    assert_eq!(new.matched(1), 1, "packets of the old process are not counted again");
}

/// Mappings that the pools do not cover any more, and translations whose rule is gone, do not go on.
#[test]
fn translations_go_on_if_they_are_still_wanted() {
    let cases: [(&[&str], NotRestored); 4] = [
        (&["nat pool add p 200.0.0.2", USE], NotRestored::NoMapping),
        (&["nat pool add p 200.0.0.1 ports 1024-2047", USE], NotRestored::NoMapping),
        (&["nat pool add q 200.0.0.1", "add-stateful ip-saddr 10.0.0.0/8 nat q"], NotRestored::NotAllowed),
        (&["add-stateful ip-saddr 10.0.0.0/8 accept"], NotRestored::NotAllowed),
    ];
    for (new, expected) in cases {
        let mut net = Net::new(&[POOL, USE]);
        net.becomes(IN, &udp(CLIENT, SERVER), &udp((NAT, CLIENT.1), SERVER));
        let mut next = later(new, 1, 10);
        assert_eq!(hand_over(&mut net, &mut next, 0), [expected], "{new:?}");
        assert_eq!((next.views(), next.harness.workers()[0].nat().mappings()), (vec![], 0));
    }
}

/// Mappings serve new sessions and keep their ports from others, sessions from outside go on, and so do
/// forwards and hairpins.
#[test]
fn mappings_and_forwards_go_on() {
    let lines = [
        "nat pool add p 200.0.0.1 filtering endpoint-independent",
        "nat forward add tcp 200.0.0.1 443 to 10.0.0.9 8443",
        USE,
        "add-stateful ip-saddr 10.0.0.0/8 accept",
    ];
    let (shown, stranger): (End, End) = ((NAT, CLIENT.1), ([198, 51, 100, 1], 9));
    let (web, inside): (End, End) = ((NAT, 443), ([10, 0, 0, 9], 8443));
    for workers in [1, 2, 3] {
        let mut net = Net::with(rules(&lines), workers, 100);
        net.becomes(IN, &udp(CLIENT, SERVER), &udp(shown, SERVER));
        net.becomes(OUT, &udp(stranger, shown), &udp(stranger, CLIENT));
        net.becomes(OUT, &tcp(stranger, web, SYN, 1, 0), &tcp(stranger, inside, SYN, 1, 0));
        // A host inside talks to the address of another one.
        let hairpin = net.one(IN, &udp(OTHER, shown));
        let mut new = later(&lines, 4 - workers, 100);
        assert_eq!(hand_over(&mut net, &mut new, 0), []);
        assert_eq!(gist(&new), gist(&net));
        new.becomes(OUT, &udp(stranger, shown), &udp(stranger, CLIENT));
        new.becomes(IN, &udp(CLIENT, stranger), &udp(shown, stranger));
        new.becomes(IN, &tcp(inside, stranger, SYN | ACK, 9, 2), &tcp(web, stranger, SYN | ACK, 9, 2));
        new.becomes(OUT, &udp(([9, 9, 9, 9], 9), shown), &udp(([9, 9, 9, 9], 9), CLIENT));
        let again = new.one(IN, &udp(OTHER, shown));
        assert_eq!(
            (again.0, source(&again.1), destination(&again.1)),
            (hairpin.0, source(&hairpin.1), CLIENT)
        );
        // One mapping for all that an inside end talks to, and another port for another host.
        new.becomes(IN, &udp(CLIENT, ([9, 9, 9, 8], 53)), &udp(shown, ([9, 9, 9, 8], 53)));
        assert_ne!(source(&new.one(IN, &udp(([10, 0, 0, 3], CLIENT.1), SERVER)).1).1, shown.1);
        new.wait(20_000_000);
        let mappings: usize = new.harness.workers().iter().map(|sessions| sessions.nat().mappings()).sum();
        assert_eq!((new.views(), mappings), (vec![], 1), "the forward stays");
    }
}

/// A table that is too small takes what it can. A session that is there already stays.
#[test]
fn room_is_limited() {
    let lines = [POOL, USE];
    let mut net = Net::new(&lines);
    for n in 0..8 {
        net.one(IN, &udp(([10, 0, 0, n], 1000), SERVER));
    }
    let mut small = later(&lines, 1, 5);
    assert_eq!(hand_over(&mut net, &mut small, 0), [NotRestored::NoRoom; 3]);
    assert_eq!((small.views().len(), small.harness.workers()[0].nat().mappings()), (5, 5));
    let mut twice = later(&lines, 1, 100);
    assert_eq!(hand_over(&mut net, &mut twice, 0), []);
    assert_eq!(hand_over(&mut net, &mut twice, 0), [NotRestored::NoRoom; 8]);
    assert_eq!((twice.views().len(), twice.harness.workers()[0].nat().mappings()), (8, 8));
    twice.wait(20_000_000);
    assert_eq!((twice.views(), twice.harness.workers()[0].nat().mappings()), (vec![], 0));
}

/// Sources keep their count: the limit of a source holds for sessions of both processes together.
#[test]
fn sources_are_counted() {
    let settings =
        SessionSettings { source_limit: mmb_flow::SourceLimit::Sessions(2), ..SessionSettings::default() };
    let lines = ["add-stateful ip-proto udp accept"];
    let mut net = Net::with(rules_with(&lines, settings, None), 1, 10);
    net.passes(IN, &udp(CLIENT, SERVER));
    net.passes(IN, &udp(CLIENT, ([192, 0, 2, 8], 80)));
    let mut new = Net::with(rules_with(&lines, settings, None), 1, 10);
    assert_eq!(hand_over(&mut net, &mut new, 0), []);
    new.drops(IN, &udp(CLIENT, ([192, 0, 2, 9], 80)), DropReason::SessionLimit);
    assert_eq!(new.one(IN, &udp(OTHER, SERVER)).0, Outcome::Out(OUT));
}

/// Sessions in chains go on, and join them again in the middle. Those that a function translates are left
/// out, since the function chooses anew.
#[test]
fn sessions_in_chains_go_on_unless_functions_translate_them() {
    let net = |chain: &str| {
        let lines = [
            POOL,
            "nf add a acl allow ip-saddr 10.0.0.0/8 deny",
            "nf add l lb 192.0.2.11 192.0.2.12 by hash",
            "nf add n nat p",
            &format!("chain add web {chain}"),
            "add-stateful in port0 chain web",
        ];
        let registry = mmb_nf_builtin::registry();
        let rules = RuleSet::parse_with(&lines, SessionSettings::default(), None, &registry, 1);
        Net::with(rules.unwrap_or_else(|error| panic!("{error}")), 1, 10)
    };
    for (chain, goes_on) in [("a", true), ("n", false), ("a | l", false)] {
        let (mut old, mut new) = (net(chain), net(chain));
        assert_eq!(old.one(IN, &udp(CLIENT, SERVER)).0, Outcome::Out(OUT));
        assert!(old.view().chain.is_some());
        let saved = save(&mut old);
        assert_eq!((saved.sessions.len(), saved.left_out), if goes_on { (1, 0) } else { (0, 1) }, "{chain}");
        assert_eq!(hand_over(&mut old, &mut new, 0), []);
        assert_eq!(new.views().len(), usize::from(goes_on));
        if goes_on {
            assert_eq!(new.view().chain, None);
            new.passes(OUT, &udp(SERVER, CLIENT));
            assert_eq!(new.view().chain.as_deref(), Some("web"));
        }
    }
}
