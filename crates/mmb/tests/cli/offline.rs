//! Commands that need no daemon: check, replay, bench, and the command line itself.

use crate::support::{Files, mmb, mmb_with_input};

#[test]
fn version_and_help() {
    assert!(mmb(&["--version"]).good().starts_with("mmb "));
    let help = mmb(&["help"]).good();
    for word in
        ["run", "check", "apply", "diff", "replay", "bench", "add", "list", "interface", "wire", "route"]
    {
        assert!(help.contains(word), "{help}");
    }
}

#[test]
fn invalid_command_lines_exit_with_2() {
    let lines: [&[&str]; 6] = [
        &["frobnicate"],
        &["list", "--frob"],
        &["check"],
        &["run", "--workers", "many"],
        &["run", "--json"],
        &["--json"],
    ];
    for line in lines {
        let run = mmb(line);
        assert_eq!(run.status, 2, "{line:?}: {run:?}");
        assert!(run.err.starts_with("error: "), "{run:?}");
    }
}

#[test]
fn without_a_daemon_the_error_names_the_command_that_starts_one() {
    let socket = Files::new().path("none.sock");
    let socket = socket.to_str().unwrap();
    let sentence = format!("error: no mmb daemon answers at {socket}; start one with `mmb run`\n");
    let lines: [&[&str]; 4] =
        [&["list"], &["add", "all", "drop"], &["diff", "-"], &["show", "drops", "--json"]];
    for line in lines {
        let run = mmb(&[line, &["--socket", socket]].concat());
        assert_eq!((run.status, run.err.as_str(), run.out.as_str()), (1, sentence.as_str(), ""), "{line:?}");
    }
    let run = mmb_with_input(&["--socket", socket], b"\nlist\n");
    run.refused(&["line 1: error: no mmb daemon answers"]);
}

/// Files with an error: text, line, column, words of the message.
const BAD: [(&str, u32, u32, &[&str]); 26] = [
    ("add tcp-dprot 80 drop\n", 1, 5, &["tcp-dprot", "did you mean `tcp-dport`?"]),
    ("# fine\nadd tcp-dport htpt drop\n", 2, 15, &["htpt"]),
    ("add tcp-dport 65536 drop\n", 1, 15, &["65536", "65535"]),
    ("add ip-ttl 10/4 drop\n", 1, 12, &["10/4"]),
    ("add ip-saddr 10.0.0.0/33 drop\n", 1, 14, &["33"]),
    ("add ip-proto tcp udp-dport 53 drop\n", 1, 18, &["udp-dport"]),
    ("add ip6-hop-limit 3 mod ip-ttl 3\n", 1, 21, &["ip-ttl"]),
    ("add\n", 1, 4, &[]),
    ("add tcp-dport 80\n", 1, 17, &[]),
    ("add in lan drop\n", 1, 8, &["`lan`"]),
    ("interface add a null\ninterface add a null\n", 2, 15, &["`a`", "already"]),
    ("interface add a null\nwire a b\n", 2, 8, &["`b`"]),
    ("add-stateful ip-proto tcp chain web\n", 1, 33, &["`web`", "`chain add web FUNCTION …`"]),
    ("nf add a count\nchain add w a | b\n", 2, 17, &["`b`", "a"]),
    ("nf add a cuont\n", 1, 10, &["`cuont`", "did you mean `count`?"]),
    ("\nnf add a count\nnf add p police\n", 3, 10, &["police"]),
    ("nf add a count\nchain add w a | a\n", 2, 17, &["`a`"]),
    ("nf add n nat office\n", 1, 10, &["office"]),
    ("nf add s synproxy\nchain add w s\nadd-stateful ip-proto udp chain w\n", 3, 27, &["tcp"]),
    ("nat pool add p 192.0.2.1\nadd-stateful all nat q\n", 2, 22, &["`q`", "p"]),
    ("nat pool add p 192.0.2.1-192.0.2.3\n\nnat pool add q 192.0.2.2\n", 3, 14, &["p", "q"]),
    ("add all mod ip-checksum 0\n", 1, 9, &["ip-checksum"]),
    (
        "interface add a null\ninterface add b null\nwire a b\nroute b\n",
        4,
        7,
        &["wired to `a`", "`wire del b` first"],
    ),
    ("interface add lan af-packet lan\nroute lan\n", 2, 7, &["twin", "another name"]),
    ("list\n", 1, 1, &["`list`"]),
    ("\u{1b}[31madd all drop\n", 1, 1, &["U+001B"]),
];

#[test]
fn check_shows_errors_with_their_place() {
    let files = Files::new();
    for (text, line, column, words) in BAD {
        let path = files.write("bad.mmb", text);
        let run = mmb(&["check", &path]);
        run.refused(words);
        assert!(run.err.starts_with(&format!("{path}:{line}:{column}: ")), "{text}: {run:?}");
        assert!(run.err.lines().any(|l| l.trim_start().starts_with('^')), "no caret: {run:?}");
        assert_eq!(run.out, "", "{text}");
    }
}

#[test]
fn check_accepts_good_files_and_standard_input() {
    let files = Files::new();
    let path = files
        .write("good.mmb", "interface add lan null\nadd in lan ! ip-proto udp drop 0.5 # half a percent\n");
    assert_eq!(mmb(&["check", &path]).good(), format!("{path}: 1 rule, 1 interface: ok\n"));
    let run = mmb_with_input(&["check", "-", "--json"], b"mmb add all accept\n");
    assert_eq!(run.good(), "{\"rules\":1,\"interfaces\":0}\n");
    mmb_with_input(&["check", "-"], b"add all acept\n").refused(&["standard input:1:9: "]);
    mmb(&["check", "/no/such/file"]).refused(&["cannot read /no/such/file"]);
}

#[test]
fn check_survives_long_lines_and_garbage() {
    let files = Files::new();
    let long = files.write("long", format!("add all drop\nadd tcp-dport {} drop\n", "8".repeat(10 << 20)));
    let run = mmb(&["check", &long]);
    run.refused(&[":2:"]);
    assert!(run.err.len() < 1000, "{} bytes", run.err.len());
    let garbage: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let garbage = files.write("garbage", garbage);
    let run = mmb(&["check", &garbage]);
    run.refused(&[":1:"]);
    assert!(run.err.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", run.err);
}

#[test]
fn check_finds_the_one_bad_line_among_100_000() {
    let mut text = String::new();
    for i in 0..100_000 {
        match i {
            77_777 => text.push_str("add ip-saddr 10.0.0.1 tcp-dport 99999 drop\n"),
            _ => text.push_str(&format!("add ip-saddr 10.1.{}.{} drop\n", i / 256 % 256, i % 256)),
        }
    }
    let path = Files::new();
    let path = path.write("many.mmb", text);
    let run = mmb(&["check", &path]);
    run.refused(&[&format!("{path}:77778:33: ")]);
    assert!(run.err.lines().count() <= 4, "{run:?}");
}

/// A capture with one UDP packet to each of the ports 1 to 10, in the classic format (little endian,
/// microseconds).
fn capture() -> Vec<u8> {
    let mut file: Vec<u8> = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    for port in 1u16..=10 {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x66, 0xcf, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x10, 0, 0, port as u8, 0, 8, 0, 0]);
        let len = frame.len() as u32;
        file.extend([u32::from(port), 0, len, len].map(u32::to_le_bytes).concat());
        file.extend(frame);
    }
    file
}

#[test]
fn replay_counts_and_writes_packets() {
    let files = Files::new();
    let rules =
        files.write("rules.mmb", "add udp-dport 3 drop\nadd ip-proto udp mod ip-ttl 9\nadd tcp-syn drop\n");
    let input = files.write("in.pcap", capture());
    let output = files.path("out.pcap");
    let run = mmb(&["replay", "-c", &rules, &input, "-w", output.to_str().unwrap(), "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&run.good()).unwrap();
    assert_eq!(summary["packets"], 10);
    assert_eq!(summary["forwarded"], 9);
    assert_eq!(summary["dropped"], serde_json::json!({ "rule": 1 }));
    let hits: Vec<_> =
        summary["rules"].as_array().unwrap().iter().map(|r| r["packets"].as_u64().unwrap()).collect();
    assert_eq!(hits, [1, 10, 0]);
    assert_eq!(summary["rules"][0]["text"], "add udp-dport 3 drop");
    assert_eq!(std::fs::read(&output).unwrap().len(), 24 + 9 * (16 + 42));
    let text = mmb(&["replay", "-c", &rules, &input]).good();
    assert!(text.starts_with("10 packets: 9 forwarded, 1 dropped\n"), "{text}");
}

#[test]
fn replay_sends_packets_through_chains() {
    let files = Files::new();
    let rules = files.write(
        "chain.mmb",
        "nf add stats monitor\nnf add wall acl deny udp-dport 3 deny udp-dport 5 allow all\n\
         chain add c stats | wall\nadd-stateful all chain c\n",
    );
    let input = files.write("in.pcap", capture());
    let line = ["replay", "-c", &rules, &input, "--json"];
    let first = mmb(&line).good();
    let summary: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(summary["forwarded"], 8);
    assert_eq!(summary["dropped"], serde_json::json!({ "acl": 2 }));
    assert_eq!(mmb(&line).good(), first, "runs are equal");
    for command in ["check", "replay"] {
        let mut line = vec![command, "--scratchpad", "16"];
        line.extend(if command == "check" { vec![rules.as_str()] } else { vec!["-c", &rules, &input] });
        let run = mmb(&line);
        run.refused(&[":3:11: ", "--scratchpad", "16"]);
    }
}

/// Functions in processes run in the process of a command without a daemon, with the same results.
#[test]
fn commands_run_functions_of_processes() {
    let files = Files::new();
    let lines = |place: &str| {
        format!(
            "domain add d zero-copy buffers 64\nnf add stats monitor{place}\n\
             nf add wall acl deny udp-dport 3 deny udp-dport 5 allow all{place}\nnf add page respond 200 hi{place}\n\
             chain add c stats | wall\nchain add site page\nbroker add web listen 127.0.0.1:8080 chain site\n\
             add-stateful all chain c\n"
        )
    };
    let input = files.write("in.pcap", capture());
    let [local, apart] =
        [("local.mmb", ""), ("apart.mmb", " process d")].map(|(name, place)| files.write(name, lines(place)));
    for command in [&["replay", "--json"][..], &["explain", "--json"]] {
        let run = |rules: &str| mmb(&[command, &["-c", rules, &input]].concat()).good();
        assert_eq!(run(&local), run(&apart), "{command:?}");
    }
    let run = mmb(&["bench", "-c", &apart, "--seconds", "0.1", "--flows", "10", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&run.good()).unwrap();
    assert!(report["nodes"]["chain"]["ticks_per_packet"].as_f64().unwrap() > 0.0, "{report}");
    mmb(&["check", &apart]).good();
}

#[test]
fn explain_tells_rules_functions_and_drops() {
    let files = Files::new();
    let rules = files.write(
        "chain.mmb",
        "nf add stats monitor\nnf add wall acl deny udp-dport 3 allow all\nchain add c stats | wall\n\
         add-stateful all chain c\nadd udp-dport 4 drop name four\n",
    );
    let input = files.write("in.pcap", capture());
    let text = mmb(&["explain", "-c", &rules, &input]).good();
    assert_eq!(text.lines().filter(|line| line.starts_with("packet ")).count(), 10, "{text}");
    let why = |rule: &str| mmb(&["explain", "-c", &rules, &input, "--why", rule, "--json"]).good();
    assert_eq!(why("2"), why("four"));
    let list: serde_json::Value = serde_json::from_str(&why("2")).unwrap();
    let packets = list["packets"].as_array().unwrap();
    let of = |port: u64| {
        packets.iter().find(|p| p["summary"].as_str().unwrap().ends_with(&format!(":{port}"))).unwrap()
    };
    assert_eq!((&of(3)["result"], &of(3)["reason"]), (&"dropped".into(), &"acl".into()));
    let chain = of(3)["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "chain").unwrap();
    let functions = chain["functions"].as_array().unwrap();
    let verdicts: Vec<_> =
        functions.iter().map(|f| (f["function"].as_str(), f["verdict"].as_str())).collect();
    assert_eq!(verdicts, [(Some("stats"), Some("pass")), (Some("wall"), Some("refuse acl"))]);
    assert_eq!(of(3)["why"]["checks"][0]["value"], "3");
    assert_eq!(of(3)["why"]["matches"], false);
    assert_eq!((&of(4)["reason"], &of(4)["rules"]["decider"]), (&"rule".into(), &2.into()));
    assert_eq!((&of(5)["result"], &of(5)["session"]["is_new"]), (&"sent".into(), &true.into()));
    let third = mmb(&["explain", "-c", &rules, &input, "--packet", "3"]).good();
    assert!(third.starts_with("packet 3: "), "{third}");
    mmb(&["explain", "-c", &rules, &input, "--packet", "11"]).refused(&["no packet 11", "10 packets"]);
    mmb(&["explain", "-c", &rules, &input, "--why", "3"]).refused(&["no rule 3", "2 rules"]);
    mmb(&["explain", "-c", &rules, &input, "--why", "five"]).refused(&["no rule five", "2 rules"]);
    assert_eq!(mmb(&["explain", "-c", &rules, &input, "--packet", "0"]).status, 2);
}

#[test]
fn replay_of_a_truncated_capture_fails_after_its_packets() {
    let files = Files::new();
    let rules = files.write("rules.mmb", "");
    let capture = capture();
    let input = files.write("in.pcap", &capture[..capture.len() - 20]);
    let run = mmb(&["replay", "-c", &rules, &input]);
    run.refused(&[&input, "9 packets"]);
    assert!(run.out.starts_with("9 packets: 9 forwarded"), "{run:?}");
    mmb(&["replay", "-c", &rules, "/no/such.pcap"]).refused(&["/no/such.pcap"]);
    let other = files.write("other", "not a capture");
    mmb(&["replay", "-c", &rules, &other]).refused(&[&other]);
}

#[test]
fn replay_refuses_routed_interfaces() {
    let files = Files::new();
    let rules = files.write("p.mmb", "interface add a null\ninterface add b null\nroute a b\n");
    let run = mmb(&["replay", "-c", &rules, "/no/such.pcap"]);
    run.refused(&["routes `a`", "`wire` lines"]);
    assert_eq!(run.err.lines().count(), 1, "{run:?}");
}

#[test]
fn replay_receives_on_the_given_interface() {
    let files = Files::new();
    let rules = files.write(
        "rules.mmb",
        "interface add a null\ninterface add b af-xdp no-such-if0\nwire a b\nadd in b drop\n",
    );
    let input = files.write("in.pcap", capture());
    assert!(
        mmb(&["replay", "-c", &rules, &input]).good().starts_with("10 packets: 10 forwarded, 0 dropped\n")
    );
    let text = mmb(&["replay", "-c", &rules, &input, "--in", "b"]).good();
    assert!(text.starts_with("10 packets: 0 forwarded, 10 dropped\n"), "{text}");
    mmb(&["replay", "-c", &rules, &input, "--in", "c"]).refused(&["`c`", "a, b"]);
}

#[test]
fn bench_measures_and_refuses_invalid_options() {
    let files = Files::new();
    let rules = files.write("rules.mmb", "add ip-proto udp drop\n");
    let run = mmb(&["bench", "-c", &rules, "--seconds", "0.1", "--flows", "10", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&run.good()).unwrap();
    for key in ["packets", "seconds", "pps", "ticks_per_packet", "nodes", "drops", "rules"] {
        assert!(!report[key].is_null(), "{key}: {report}");
    }
    assert!(report["nodes"]["classify"]["ticks_per_packet"].as_f64().unwrap() > 0.0);
    assert!(report["rules"][0]["packets"].as_u64().unwrap() > 0);
    let text = mmb(&["bench", "--seconds", "0.1"]).good();
    assert!(text.contains("ticks a packet") && text.contains("l2-input"), "{text}");
    assert!(report["case"].is_null());
    let text = mmb(&["bench", "--mode", "routed", "--routes", "20", "--seconds", "0.1"]).good();
    assert!(text.contains("20 routes") && text.contains("ip4-rewrite"), "{text}");
    assert_eq!(mmb(&["bench", "--routes", "20"]).status, 2);
    mmb(&["bench", "--seconds", "0"]).refused(&["seconds"]);
    assert_eq!(mmb(&["bench", "--pcap", "x", "--flows", "3"]).status, 2);
}

#[test]
fn bench_generates_rules_that_do_not_match_and_packets_of_a_trace() {
    for (case, rules) in [("exact", 2_000), ("mixed", 500), ("masks", 300), ("options", 300), ("ranges", 300)]
    {
        let rules = rules.to_string();
        let line =
            ["bench", "--case", case, "--rules", &rules, "--seconds", "0.05", "--flows", "100", "--json"];
        let report: serde_json::Value = serde_json::from_str(&mmb(&line).good()).unwrap();
        assert_eq!(report["case"]["name"], case);
        assert_eq!(report["case"]["rules"].to_string(), rules);
        assert_eq!(report["rules"], serde_json::json!([]), "{case}: none matches");
        assert!(report["nodes"]["classify"]["packets"].as_u64().unwrap() > 0);
    }
    let files = Files::new();
    let filters = files.write(
        "filters",
        "@10.0.0.0/8\t192.0.2.0/24\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0000/0x0000\t\n\
         @10.0.0.1/32\t192.0.2.7/32\t53 : 53\t0 : 1023\t0x11/0xFF\t0x0000/0x0000\t\n",
    );
    let trace = files
        .write("trace", "167772161\t3221225991\t53\t80\t6\t0\t0\n167772161\t3221225991\t53\t80\t17\t0\t1\n");
    let line = ["bench", "--case", "classbench", &filters, "--trace", &trace, "--seconds", "0.05"];
    let text = mmb(&line).good();
    assert!(text.contains("2 rules loaded") && text.contains("classify"), "{text}");
    let report: serde_json::Value =
        serde_json::from_str(&mmb(&[&line[..], &["--json"]].concat()).good()).unwrap();
    assert_eq!(report["rules"].as_array().unwrap().len(), 2, "both match: {report}");
    let run = mmb(&["bench", "--case", "classbench"]);
    assert!(run.status == 2 && run.err.contains("needs the FILE"), "{run:?}");
    let run = mmb(&["bench", "--case", "exact", &filters]);
    assert!(run.status == 2 && run.err.contains("only the case classbench"), "{run:?}");
    mmb(&["bench", "--case", "masks", "--rules", "5000"]).refused(&["1156"]);
    mmb(&["bench", "--trace", &filters]).refused(&["line 1 is not a packet"]);
    assert_eq!(mmb(&["bench", "--case", "exact", "-c", "x"]).status, 2);
}
