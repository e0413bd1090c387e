//! History, rollback, and changes that wait for a confirmation.

use std::time::{Duration, Instant};

use mmb_control::api::{DiffReply, HistoryList};

use crate::harness::{Daemon, daemon};

fn history(daemon: &Daemon) -> HistoryList {
    daemon.client().get("/v1/history").unwrap()
}

/// Waits until the configuration is `text`.
fn wait_for(daemon: &Daemon, text: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    while daemon.control.config().config != text {
        assert!(Instant::now() < end, "{}", daemon.control.config().config);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_history_tells_who_changed_what_and_leads_back() {
    let daemon = daemon();
    daemon.send("add ip-proto udp drop");
    let before = history(&daemon).revisions[0].clone();
    assert_eq!(before.change, "add ip-proto udp drop");
    assert_eq!(before.user, Some(nix::unistd::geteuid().as_raw()));
    assert_eq!(before.process, Some(std::process::id() as i32));
    daemon.send("set tcp-pickup off");
    daemon.client().apply(b"add ip-proto tcp drop\nadd ip-ttl 1 drop\n".to_vec(), false, None).unwrap();
    let changes: Vec<_> = history(&daemon).revisions.into_iter().take(2).map(|r| r.change).collect();
    assert_eq!(changes, ["apply (40 bytes)", "set tcp-pickup off"]);
    let last = history(&daemon).revisions[0].revision;
    assert_eq!(last, before.revision + 2);
    let diff: DiffReply = daemon.client().get(&format!("/v1/history/{last}")).unwrap();
    assert_eq!(diff.removed, ["set tcp-pickup off", "add ip-proto udp drop"]);
    assert_eq!(diff.added, ["add ip-proto tcp drop", "add ip-ttl 1 drop"]);
    assert_eq!(
        daemon.run(&format!("history {last}")).unwrap(),
        "- set tcp-pickup off\n- add ip-proto udp drop\n+ add ip-proto tcp drop\n+ add ip-ttl 1 drop\n"
    );
    // What has not changed makes no revision.
    daemon.client().apply(b"add ip-proto tcp drop\nadd ip-ttl 1 drop\n".to_vec(), false, None).unwrap();
    assert_eq!(history(&daemon).revisions[0].revision, last);
    daemon.run("rollback").unwrap();
    assert_eq!(daemon.control.config().config, "set tcp-pickup off\nadd ip-proto udp drop\n");
    daemon.send(&format!("rollback {}", before.revision));
    assert_eq!(daemon.control.config().config, "add ip-proto udp drop\n");
    let now = history(&daemon).revisions[0].clone();
    assert_eq!((now.revision, now.change), (last + 2, format!("rollback {}", before.revision)));
}

#[test]
fn a_change_that_nobody_confirms_is_taken_back() {
    let daemon = daemon();
    daemon.send("interface add a null");
    daemon.send("add in a ip-proto udp drop");
    let before = daemon.control.config().config;
    let revision = history(&daemon).revisions[0].revision;
    // Not even an interface that the change adds stays.
    let file = b"interface add a null\ninterface add b null\nwire a b\nadd all drop\n";
    let reply = daemon.client().apply(file.to_vec(), false, Some(1)).unwrap();
    assert!(reply.done.ends_with("; it is taken back in 1 second without `mmb confirm`"), "{}", reply.done);
    wait_for(&daemon, &before);
    let last = history(&daemon).revisions[0].clone();
    assert_eq!(last.change, format!("no confirmation: back to revision {revision}"));
    assert_eq!((last.user, history(&daemon).pending), (None, None));
    daemon.send("flush");
    daemon.send("interface del a");
}

#[test]
fn a_change_that_is_confirmed_stays() {
    let daemon = daemon();
    daemon.send("add ip-proto udp drop");
    let refused = daemon.run("confirm").unwrap_err();
    assert!(refused.contains("no change waits for a confirmation"), "{refused}");
    daemon.client().apply(b"add all drop\n".to_vec(), false, Some(3600)).unwrap();
    let pending = history(&daemon).pending.unwrap();
    assert!((3500..=3600).contains(&pending.seconds), "{pending:?}");
    assert!(daemon.run("history").unwrap().contains(" comes back in "));
    daemon.run("confirm").unwrap();
    assert_eq!(history(&daemon).pending, None);
    // A file that needs no confirmation confirms what waits, and so does the way back.
    for line in ["apply", "rollback"] {
        daemon.client().apply(b"add ip-ttl 1 drop\n".to_vec(), false, Some(3600)).unwrap();
        match line {
            "apply" => drop(daemon.client().apply(b"add ip-ttl 2 drop\n".to_vec(), false, None).unwrap()),
            _ => drop(daemon.run("rollback").unwrap()),
        }
        assert_eq!(history(&daemon).pending, None, "{line}");
        assert_eq!(daemon.control.config().config, "add ip-ttl 2 drop\n");
    }
    // A change that fails leaves nothing that waits.
    assert!(daemon.client().apply(b"add nonsense\n".to_vec(), false, Some(5)).is_err());
    assert_eq!(history(&daemon).pending, None);
}

#[test]
fn what_cannot_be_done_is_refused_with_a_sentence() {
    let daemon = daemon();
    daemon.send("add ip-proto udp drop");
    let current = history(&daemon).revisions[0].revision;
    for (line, sentence) in [
        (format!("rollback {current}"), format!("revision {current} is in force")),
        ("rollback 999999".to_owned(), "there is no revision 999999".to_owned()),
        ("history 999999".to_owned(), "there is no revision 999999".to_owned()),
        ("rollback x".to_owned(), "`x` is not the number of a revision".to_owned()),
        ("rollback 0".to_owned(), "`0` is not the number of a revision".to_owned()),
    ] {
        let refused = daemon.run(&line).unwrap_err();
        assert!(refused.contains(&sentence), "{line}: {refused}");
    }
    for seconds in [0, 86_401] {
        let refused = daemon.client().apply(b"add all drop\n".to_vec(), false, Some(seconds)).unwrap_err();
        assert!(refused.to_string().contains("for 1 to 86400 seconds"), "{refused}");
    }
    let file = daemon.client().apply(b"rollback\n".to_vec(), false, None).unwrap_err().to_string();
    assert!(file.contains("`rollback` has no place in a file"), "{file}");
    assert_eq!(daemon.control.config().config, "add ip-proto udp drop\n");
}
