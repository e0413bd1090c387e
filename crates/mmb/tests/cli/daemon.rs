//! The daemon and its commands, without devices and privileges.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use crate::support::{Daemon, Files, mmb, mmb_with_input};

#[test]
fn a_session_with_the_daemon() {
    let files = Files::new();
    let config = files
        .write("start.mmb", "interface add a null\ninterface add b null\nwire a b\nadd in a ip-df drop\n");
    let daemon = Daemon::start(&files.path("s"), &["-c", &config]);
    for words in ["interface a: null", "interface b: null", "wire a b", "1 rule\n", "listening on "] {
        assert!(daemon.banner.contains(words), "{}", daemon.banner);
    }
    let mode = std::fs::metadata(&daemon.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o660);

    assert_eq!(daemon.mmb(&["add", "tcp-dport", "80", "!", "ip-df", "drop"]).good(), "rule 2 added\n");
    let added: serde_json::Value =
        serde_json::from_str(&daemon.mmb(&["add all accept", "--json"]).good()).unwrap();
    assert_eq!((&added["done"], &added["index"]), (&"rule 3 added".into(), &3.into()));
    let warnings = added["warnings"].as_array().unwrap();
    assert!(
        warnings[1].as_str().unwrap().starts_with("rule 2 (`add tcp-dport 80 ! ip-df drop`) never drops")
    );
    daemon.mmb(&["del", "1"]).good();
    let list = daemon.mmb(&["list"]).good();
    assert_eq!(list.lines().nth(1), Some("    2        0      0        0  add tcp-dport 80 ! ip-df drop"));
    let json: serde_json::Value = serde_json::from_str(&daemon.mmb(&["list", "--json"]).good()).unwrap();
    assert_eq!(json["rules"][0]["index"], 2);
    assert_eq!(json["rules"][0]["text"], "add tcp-dport 80 ! ip-df drop");
    for what in [
        "tables",
        "interfaces",
        "runtime",
        "drops",
        "fields",
        "version",
        "config",
        "nat",
        "connections",
        "chains",
        "functions",
        "fast-path",
    ] {
        assert!(!daemon.mmb(&["show", what]).good().is_empty(), "{what}");
        let json = daemon.mmb(&["show", what, "verbose", "--json"]).good();
        assert!(serde_json::from_str::<serde_json::Value>(&json).unwrap().is_object(), "{what}");
    }
    let file = files.write("next.mmb", "add all accept\nadd ip-proto udp drop\n");
    let diff = daemon.mmb(&["diff", &file]).good();
    assert_eq!(diff, "- add tcp-dport 80 ! ip-df drop\n+ add ip-proto udp drop\n");
    let applied = daemon.mmb(&["apply", &file]).good();
    let (done, rest) = applied.split_once('\n').unwrap();
    assert_eq!(done, "2 rules (1 added, 1 removed, 1 kept), 2 interfaces");
    assert!(rest.starts_with("- add tcp-dport 80 ! ip-df drop\nwarning: rule 2"), "{rest}");
    assert_eq!(daemon.mmb(&["diff", &file]).good(), "");
    daemon.mmb(&["flush"]).good();
    assert_eq!(daemon.mmb(&["list"]).good(), "no rules\n");

    let socket = daemon.socket.clone();
    let (status, err) = daemon.stop("-TERM");
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(!std::path::Path::new(&socket).exists());
}

/// A program whose `main` does not begin with `mmb::run` gets an error, and not a chain of daemons.
#[test]
fn a_supervisor_starts_no_daemon() {
    let files = Files::new();
    let socket = files.path("s");
    let mut command = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("mmb"));
    let output = command
        .env("MMB_FUNCTION_SUPERVISOR", "1")
        .args(["run", "--memory", "64", "--socket", socket.to_str().unwrap()])
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("`main` must call `mmb::run` first"), "{error}");
}

#[test]
fn chains_from_the_command_line() {
    let files = Files::new();
    let config = files.write(
        "chains.mmb",
        "nf add stats count\nnf add wall acl deny tcp-dport 23 allow all\nchain add web wall | stats\n\
         add-stateful ip-proto tcp chain web\n",
    );
    let daemon = Daemon::start(&files.path("s"), &["-c", &config, "--scratchpad", "512"]);
    assert_eq!(daemon.mmb(&["show", "config"]).good(), std::fs::read_to_string(&config).unwrap());
    assert_eq!(daemon.mmb(&["nf", "add", "more", "monitor"]).good(), "function more added: monitor\n");
    // `then` in place of `|`, which the shell would interpret; or a whole line in quotes.
    assert_eq!(daemon.mmb(&["chain", "set", "web", "wall", "then", "more"]).good(), "chain web replaced\n");
    let diff = daemon.mmb(&["diff", &config]).good();
    assert_eq!(diff, "- nf add more monitor\n- chain add web wall | more\n+ chain add web wall | stats\n");
    daemon.mmb(&["chain set web wall | stats | more"]).good();
    daemon.mmb(&["nf", "del", "stats"]).refused(&["`stats`", "chain `web`", "^"]);
    daemon.mmb(&["chain", "del", "web"]).refused(&["rule 1", "`del 1` first", "^"]);
    daemon.mmb(&["chain", "add", "x", "wal"]).refused(&["did you mean `wall`?", "^"]);
    let text = daemon.mmb(&["show", "chains", "verbose"]).good();
    assert!(text.contains("wall | stats | more") && text.contains("of 512 bytes"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&daemon.mmb(&["show", "functions", "--json"]).good()).unwrap();
    assert_eq!(
        (&json["functions"][1]["name"], &json["functions"][1]["type"]),
        (&"wall".into(), &"acl".into())
    );
    let applied = daemon.mmb(&["apply", &config]).good();
    assert!(applied.starts_with("1 rule (0 added, 0 removed, 1 kept), 0 interfaces\n"), "{applied}");
    assert!(applied.ends_with("\n- nf add more monitor\n- chain add web wall | stats | more\n"), "{applied}");
    daemon.mmb(&["flush"]).good();
    daemon.mmb(&["chain", "del", "web"]).good();
    let (status, err) = daemon.stop("-TERM");
    assert_eq!((status, err.as_str()), (Some(0), ""));
}

#[test]
fn the_configuration_is_saved_reloaded_and_taken_back() {
    let files = Files::new();
    let text = "add ip-proto udp drop\n";
    let config = files.write("start.mmb", text);
    let daemon = Daemon::start(&files.path("s"), &["-c", &config]);
    daemon.mmb(&["add", "ip-ttl", "1", "drop"]).good();
    assert_eq!(daemon.mmb(&["save"]).good(), format!("2 lines saved to {config}\n"));
    assert_eq!(std::fs::read_to_string(&config).unwrap(), format!("{text}add ip-ttl 1 drop\n"));
    let copy = files.path("copy.mmb");
    let saved: serde_json::Value =
        serde_json::from_str(&daemon.mmb(&["save", copy.to_str().unwrap(), "--json"]).good()).unwrap();
    assert_eq!(saved["lines"], 2);
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&config).unwrap());
    daemon.mmb(&["save", "/nonexistent/x"]).refused(&["cannot write /nonexistent/x: No such file"]);

    // SIGHUP reads the file again. A file with an error changes nothing.
    let wait_for = |config: &str| {
        let end = Instant::now() + Duration::from_secs(30);
        while daemon.mmb(&["show", "config"]).good() != config {
            assert!(Instant::now() < end, "{}", daemon.mmb(&["show", "config"]).good());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // The pipe tells when the daemon has read it.
    std::fs::remove_file(&config).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&config).status().unwrap().success());
    daemon.signal("-HUP");
    std::fs::write(&config, "add nonsense\n").unwrap();
    std::fs::remove_file(&config).unwrap();
    std::fs::write(&config, "add tcp-dport 23 drop\n").unwrap();
    daemon.signal("-HUP");
    wait_for("add tcp-dport 23 drop\n");
    let history = daemon.mmb(&["history"]).good();
    assert_eq!(history.matches("reload of").count(), 1, "{history}");

    let applied =
        mmb_with_input(&["--socket", &daemon.socket, "apply", "--confirm", "1s", "--allow-empty", "-"], b"");
    assert!(applied.good().contains("; it is taken back in 1 second without `mmb confirm`\n"));
    wait_for("add tcp-dport 23 drop\n");
    assert!(
        daemon.mmb(&["rollback", "1"]).good().starts_with("revision 1 is the configuration again: 1 rule")
    );
    wait_for(text);
    daemon.mmb(&["confirm"]).refused(&["no change waits for a confirmation"]);
    let (status, err) = daemon.stop("-TERM");
    assert_eq!(status, Some(0));
    assert!(err.contains("start.mmb is not reloaded: line 1: unknown field `nonsense`"), "{err}");
    assert!(err.contains("warning: the change was not confirmed; revision"), "{err}");
}

#[test]
fn sessions_and_nat_from_the_command_line() {
    let files = Files::new();
    let daemon = Daemon::start(&files.path("s"), &["--sessions", "1000"]);
    let stateless = "no connections: the policy is stateless; `add-stateful` rules open sessions\n";
    assert_eq!(daemon.mmb(&["show", "connections"]).good(), stateless);
    assert_eq!(
        daemon.mmb(&["show", "connections", "tcp-dport", "80", "--json"]).good(),
        "{\"connections\":[]}\n"
    );
    assert_eq!(daemon.mmb(&["nat", "pool", "add", "p", "192.0.2.1-192.0.2.2"]).good(), "NAT pool p added\n");
    daemon.mmb(&["add-stateful", "ip-saddr", "10.0.0.0/8", "nat", "p"]).good();
    daemon.mmb(&["nat", "forward", "add", "tcp", "192.0.2.1", "80", "to", "10.0.0.1", "8080"]).good();
    daemon.mmb(&["set", "timeout", "udp-replied", "60"]).good();
    assert_eq!(daemon.mmb(&["show", "connections"]).good(), "no connections\n");
    assert_eq!(daemon.mmb(&["clear", "connections", "ip-proto", "tcp"]).good(), "0 connections ended\n");
    assert_eq!(
        daemon.mmb(&["clear", "connections", "--json"]).good(),
        "{\"done\":\"0 connections ended\",\"cleared\":0}\n"
    );
    daemon.mmb(&["show", "connections", "tcp-win", "3"]).refused(&["tcp-win", "^"]);
    daemon.mmb(&["nat", "pool", "del", "p"]).refused(&["rule 1", "^"]);
    let config = "set timeout udp-replied 60\nnat pool add p 192.0.2.1-192.0.2.2\n\
                  nat forward add tcp 192.0.2.1 80 to 10.0.0.1 8080\nadd-stateful ip-saddr 10.0.0.0/8 nat p\n";
    assert_eq!(daemon.mmb(&["show", "config"]).good(), config);
    let runtime: serde_json::Value =
        serde_json::from_str(&daemon.mmb(&["show", "runtime", "--json"]).good()).unwrap();
    assert_eq!(
        (&runtime["sessions"]["capacity"], &runtime["workers"][0]["sessions"]),
        (&1000.into(), &0.into())
    );
    daemon.mmb(&["interface", "add", "lan", "null"]).good();
    let out = mmb_with_input(&["--socket", &daemon.socket], b"route ?\nhelp route\nshow ?\n").good();
    for line in ["\nlan", "del ", "route: ", "\nfib ", "\nneighbors "] {
        assert!(out.contains(line), "{line} in {out}");
    }
    let script =
        "set tcp-pickup off\nadd-stateful all nat ?\nhelp tcp-window-check\nshow connections verbose\n";
    let out = mmb_with_input(&["--socket", &daemon.socket], script.as_bytes()).good();
    assert!(
        out.contains("\np ") && out.contains("tcp-window-check: ") && out.ends_with("no connections\n"),
        "{out}"
    );
}

#[test]
fn errors_mark_the_wrong_word_and_change_nothing() {
    let files = Files::new();
    let daemon = Daemon::start(&files.path("s"), &[]);
    daemon.mmb(&["interface", "add", "a", "null"]).good();
    daemon.mmb(&["add", "in", "a", "ip-df", "drop"]).good();
    let before = daemon.mmb(&["show", "config"]).good();
    let run = daemon.mmb(&["add", "tcp-dprot", "80", "drop"]);
    assert_eq!(
        run.err,
        "error: unknown field `tcp-dprot`\n  add tcp-dprot 80 drop\n      ^^^^^^^^^\n  help: did you mean `tcp-dport`?\n"
    );
    let run = daemon.mmb(&["del", "9"]);
    assert!(run.err.starts_with("error: there is no rule 9\n  del 9\n      ^\n"), "{run:?}");
    assert_eq!(
        daemon.mmb(&["show", "fib"]).good(),
        "no routes: no interface is routed; `route NAME` routes the packets of one\n"
    );
    assert_eq!(
        daemon.mmb(&["show", "fib", "10.0.0.0/8", "--json"]).good(),
        "{\"routes\":[],\"more\":false}\n"
    );
    assert_eq!(daemon.mmb(&["show", "neighbours"]).good(), "no neighbors\n");
    assert_eq!(daemon.mmb(&["show", "neighbors", "--json"]).good(), "{\"neighbors\":[]}\n");
    let lines: [&[&str]; 12] = [
        &["add"],
        &["add", "ip-ttl", "-5", "drop"],
        &["add", "tcp-dport", "70000", "drop"],
        &["add", "in", "b", "drop"],
        &["add-stateful", "all", "nat", "nowhere"],
        &["interface", "add", "a", "null"],
        &["interface", "del", "a"],
        &["wire", "a", "b"],
        &["route", "b"],
        &["route", "del", "a"],
        &["show", "fib", "10.0.0.0/40"],
        &["nf", "add", "x", "y"],
    ];
    for line in lines {
        let run = daemon.mmb(line);
        run.refused(&["error: ", "^"]);
        assert_eq!(run.err.matches("error: ").count(), 1, "{run:?}");
        assert_eq!(run.out, "");
    }
    let bad = files.write("bad.mmb", "add ip-df drop\nadd ip-fd drop\n");
    daemon.mmb(&["apply", &bad]).refused(&[&format!("{bad}:2:5: ")]);
    daemon.mmb(&["diff", &bad]).refused(&[&format!("{bad}:2:5: ")]);
    assert_eq!(daemon.mmb(&["show", "config"]).good(), before);
}

#[test]
fn scripts_stop_at_the_first_error_and_name_the_line() {
    let files = Files::new();
    let daemon = Daemon::start(&files.path("s"), &[]);
    let script = "interface add a null\n# comment\n\nadd in a drop\nadd in b drop\nadd all drop\n";
    let run = mmb_with_input(&["--socket", &daemon.socket], script.as_bytes());
    run.refused(&["line 5, column 8: ", "`b`"]);
    assert_eq!(daemon.mmb(&["list"]).good().lines().count(), 2);
    let run = mmb_with_input(&["--socket", &daemon.socket], b"list\n\xff\xfe\n");
    run.refused(&["line 2: "]);
    let run = mmb_with_input(&["--socket", &daemon.socket], b"help tcp-syn\nadd tcp-d?\nexit\nbogus\n");
    let out = run.good();
    assert!(out.contains("tcp-syn (TCP, 1 bits)") && out.contains("tcp-dport"), "{out}");
}

#[test]
fn a_second_daemon_is_refused_and_the_first_keeps_its_socket() {
    let files = Files::new();
    let daemon = Daemon::start(&files.path("s"), &[]);
    let run = mmb(&["run", "--socket", &daemon.socket]);
    let sentence =
        format!("another mmb daemon is already running on {}; stop it or use --socket", daemon.socket);
    assert_eq!((run.status, run.err), (1, format!("error: {sentence}\n")));
    daemon.mmb(&["add", "all", "accept"]).good();
    // SIGKILL leaves the socket behind, and the next daemon replaces it.
    let path = files.path("s");
    daemon.stop("-KILL");
    assert!(path.exists());
    let daemon = Daemon::start(&path, &[]);
    assert_eq!(daemon.mmb(&["list"]).good(), "no rules\n");
}

#[test]
fn sockets_and_files_of_other_programs_are_kept() {
    let files = Files::new();
    let plain = files.write("plain", "precious");
    mmb(&["run", "--socket", &plain]).refused(&["exists and is not a socket"]);
    assert_eq!(std::fs::read_to_string(&plain).unwrap(), "precious");
    let taken = files.path("taken");
    let _listener = UnixListener::bind(&taken).unwrap();
    mmb(&["run", "--socket", taken.to_str().unwrap()]).refused(&["another program listens"]);
}

#[test]
fn a_wrong_file_prevents_the_start_and_a_missing_device_does_not() {
    let files = Files::new();
    let path = files.path("s");
    let bad = files.write("bad.mmb", "interface add a null\nadd in b drop\n");
    mmb(&["run", "-c", &bad, "--socket", path.to_str().unwrap()]).refused(&[&format!("{bad}:2:8: "), "`b`"]);
    assert!(!path.exists());

    let half = "interface add a null\ninterface add b af-packet no-such-if0\nwire a b\nadd in b drop\n";
    let half = files.write("half.mmb", half);
    let daemon = Daemon::start(&path, &["-c", &half]);
    let show: serde_json::Value =
        serde_json::from_str(&daemon.mmb(&["show", "interfaces", "--json"]).good()).unwrap();
    assert_eq!(show["interfaces"][0]["state"], "up");
    assert_eq!(show["interfaces"][1]["state"], "down");
    assert!(show["interfaces"][1]["reason"].as_str().unwrap().contains("no-such-if0"), "{show}");
    assert_eq!(show["interfaces"][1]["wire"], "a");
    daemon.mmb(&["interface", "add", "b", "af-packet", "no-such-if1"]).refused(&["no-such-if1"]);
    daemon.mmb(&["interface", "add", "b", "null"]).good();
    let config = daemon.mmb(&["show", "config"]).good();
    assert_eq!(config, "interface add a null\ninterface add b null\nwire a b\nadd in b drop\n");
    let (status, err) = daemon.stop("-INT");
    assert_eq!(status, Some(0));
    assert!(err.starts_with("error: interface `b` is down: ") && err.lines().count() == 1, "{err}");
}

#[test]
fn the_service_manager_is_notified() {
    let files = Files::new();
    let path = files.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let daemon = Daemon::start_with(&files.path("s"), &[], &[("NOTIFY_SOCKET", &path)]);
    let notification = || {
        let mut buffer = [0; 64];
        let n = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..n].to_vec()).unwrap()
    };
    assert_eq!(notification().trim(), "READY=1");
    daemon.stop("-TERM");
    assert_eq!(notification().trim(), "STOPPING=1");
}

#[test]
fn open_connections_do_not_delay_the_end() {
    let files = Files::new();
    let daemon = Daemon::start(&files.path("s"), &[]);
    let _idle = UnixStream::connect(&daemon.socket).unwrap();
    let mut half = UnixStream::connect(&daemon.socket).unwrap();
    std::io::Write::write_all(
        &mut half,
        b"POST /v1/apply HTTP/1.1\r\nHost: mmb\r\nContent-Length: 99\r\n\r\nadd",
    )
    .unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    assert_eq!(daemon.stop("-TERM").0, Some(0));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
