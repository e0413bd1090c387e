//! `import`: output of `iptables-save` and `nft -j list ruleset`, and filter sets of ClassBench.

use crate::support::{Files, Run, mmb, mmb_with_input};

/// Output of the kernel's tools, and its conversion. All rules were loaded into a kernel and read back.
const RULES: [(&str, &[u8], &str); 3] = [
    ("iptables-save", include_bytes!("../data/iptables-save.txt"), include_str!("../data/iptables-save.mmb")),
    (
        "iptables-save",
        include_bytes!("../data/ip6tables-save.txt"),
        include_str!("../data/ip6tables-save.mmb"),
    ),
    ("nft", include_bytes!("../data/nft.json"), include_str!("../data/nft.mmb")),
];

fn import(format: &str, input: &[u8], options: &[&str]) -> Run {
    mmb_with_input(&[&["import", format, "-"], options].concat(), input)
}

#[test]
fn rules_of_the_kernels_packet_filters() {
    let summaries = [
        "19 of 21 rules converted, 0 with a difference\n",
        "5 of 5 rules converted, 2 with a difference\n",
        "23 of 25 rules converted, 1 with a difference\n",
    ];
    for ((format, input, expected), summary) in RULES.into_iter().zip(summaries) {
        let run = import(format, input, &[]);
        assert_eq!(run.out, expected, "{format}");
        let is_whole = !expected.contains("# not mapped: ") && !expected.contains("# differs: ");
        assert_eq!(run.status, if is_whole { 0 } else { 3 }, "{run:?}");
        assert!(run.err.ends_with(summary) && is_whole == (run.err == summary), "{run:?}");
    }
}

#[test]
fn the_output_is_a_configuration() {
    let files = Files::new();
    for (format, input, _) in RULES {
        let interfaces = "interface add eth0 null\ninterface add eth1 null\n";
        let path = files.write("rules.mmb", interfaces.to_owned() + &import(format, input, &[]).out);
        assert!(mmb(&["check", &path]).good().ends_with("2 interfaces: ok\n"));
    }
}

#[test]
fn json_has_rules_and_remarks() {
    let run = import("iptables-save", RULES[0].1, &["--json"]);
    let document: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(document["rules"][1], "nat pool add eth1 interface eth1");
    let remarks = document["remarks"].as_array().unwrap();
    assert!(remarks.iter().any(|remark| remark["kind"] == "not-mapped"), "{document}");
    assert_eq!(run.status, 3);
}

/// A reset in answer to TCP is what mmb sends, too. Other answers differ, which a note tells.
#[test]
fn rejections() {
    let import_rule = |answer: &str| {
        let rule = format!("-A FORWARD -p tcp -j REJECT{answer}");
        let run = import(
            "iptables-save",
            format!("*filter\n:FORWARD ACCEPT [0:0]\n{rule}\nCOMMIT\n").as_bytes(),
            &[],
        );
        assert!(
            run.status == 0 && run.out.ends_with(&format!("# line 3: {rule}\nadd ip-proto tcp reject\n")),
            "{run:?}"
        );
        run.out.contains("# note: line 3")
    };
    assert!(!import_rule(" --reject-with tcp-reset"));
    assert!(import_rule(" --reject-with icmp-port-unreachable") && import_rule(""));
}

#[test]
fn another_chain() {
    let rules =
        b"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n[5:60] -A INPUT -p tcp -j DROP\nCOMMIT\n";
    let dropped = "# line 4: [5:60] -A INPUT -p tcp -j DROP\nadd ip-proto tcp drop\n";
    let run = import("iptables-save", rules, &[]);
    assert!(run.status == 0 && run.out.ends_with(dropped), "{run:?}");
    let run = import("iptables-save", rules, &["--chain", "FORWARD"]);
    assert!(run.status == 0 && run.out.contains("--chain INPUT converts this one"), "{run:?}");
    import("iptables-save", rules, &["--chain", "NONE"]).refused(&["standard input", "NONE"]);
}

/// The pool and the forwards of docker's rules need the interface and the address of the machine.
#[test]
fn what_the_machine_is() {
    let rules = b"*nat\n-A PREROUTING -m addrtype --dst-type LOCAL -p tcp -m tcp --dport 80 -j DNAT \
        --to-destination 172.17.0.2\n-A POSTROUTING ! -o docker0 -j MASQUERADE\nCOMMIT\n";
    assert_eq!(import("iptables-save", rules, &[]).status, 3);
    let machine = ["--outside", "eth0", "--local", "192.0.2.1", "--local", "192.0.2.2"];
    let run = import("iptables-save", rules, &machine);
    assert_eq!(run.status, 0, "{run:?}");
    for line in [
        "nat pool add eth0 interface eth0\n",
        "nat forward add tcp 192.0.2.1 80 to 172.17.0.2 80\n",
        "nat forward add tcp 192.0.2.2 80 to 172.17.0.2 80\n",
    ] {
        assert!(run.out.contains(line), "{run:?}");
    }
}

#[test]
fn a_filter_set_of_classbench() {
    let set = b"@10.0.0.0/8\t192.0.2.1/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0200/0x1200\t\n\
        @0.0.0.0/0\t192.0.2.0/24\t1024 : 65535\t0 : 65535\t0x00/0x00\t0x0000/0x0000\t\n";
    let run = import("classbench", set, &["--target", "mod ip-dscp 8"]);
    assert_eq!((run.status, run.err.as_str()), (0, "2 of 2 rules converted, 0 with a difference\n"));
    assert_eq!(
        run.out,
        "# from standard input, a filter set of ClassBench; every rule: mod ip-dscp 8\n\
         add ip-saddr 10.0.0.0/8 ip-daddr 192.0.2.1 ip-proto tcp tcp-dport 80 tcp-syn tcp-ack 0 mod ip-dscp 8\n\
         add ip-daddr 192.0.2.0/24 ip-proto tcp tcp-sport 1024-65535 mod ip-dscp 8\n\
         add ip-daddr 192.0.2.0/24 ip-proto udp udp-sport 1024-65535 mod ip-dscp 8\n"
    );
    let run = import("classbench", b"@10.0.0.0/8 nonsense\n", &[]);
    assert_eq!(run.status, 3);
    assert!(run.out.contains("# not mapped: line 1: @10.0.0.0/8 nonsense\n"), "{run:?}");
}

#[test]
fn other_input_is_refused() {
    import("nft", b"table inet filter {\n}\n", &[]).refused(&["standard input", "JSON"]);
    import("nft", b"{}", &[]).refused(&["nft -j list ruleset"]);
    import("nft", br#"{"nftables": []}"#, &[]).refused(&["--chain"]);
    import("iptables-save", b"hello\n", &[]).refused(&["line 1", "hello"]);
    import("iptables-save", b"*filter\n:FORWARD DROP\nhello\n", &[]).refused(&["line 3", "hello"]);
    mmb(&["import", "classbench", "/no/such/file"]).refused(&["cannot read /no/such/file"]);
    assert_eq!(mmb(&["import", "cisco", "-"]).status, 2);
}
