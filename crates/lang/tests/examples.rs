//! Lines that the language must accept.

use mmb_lang::{Command, Rule, Timeout, check, parse_line};

fn rule(line: &str) -> Rule {
    match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        Ok(other) => panic!("{line}: {other:?}"),
        Err(error) => panic!("{}", error.render(line)),
    }
}

/// Parses a line, prints it as `canonical`, and parses that to the same command.
fn prints(line: &str, canonical: &str) {
    let command = match parse_line(line) {
        Ok(Some(command)) => command,
        Ok(None) => panic!("{line}: nothing"),
        Err(error) => panic!("{}", error.render(line)),
    };
    assert_eq!(command.to_string(), canonical);
    assert_eq!(parse_line(canonical), Ok(Some(command)));
}

#[test]
fn the_papers_examples() {
    let runs = [
        "mmb add tcp-dport 80 mod tcp-dport 443",
        "mmb add ip-proto != udp ip-proto != tcp drop",
        "mmb add all mod ip-ecn 0",
        "mmb add ip-proto tcp drop",
        "mmb add tcp-opt-mss > 1460 mod tcp-opt-mss 1460",
        "mmb add tcp-opt-timestamp strip ! tcp-opt-mss strip ! tcp-opt-wscale",
        "mmb add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept",
        "mmb add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport mod ip-saddr 200.0.0.1",
        "mmb add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp map ip-saddr 200.0.0.1 shuffle tcp-sport",
        "mmb add-stateful ip-proto tcp tcp-dport 80 chain web",
    ];
    for line in runs {
        prints(line, &line[4..]);
        check(&rule(line)).unwrap();
    }
}

#[test]
fn rules_have_one_canonical_text() {
    prints("add tcp-dport == 0x50 drop", "add tcp-dport 80 drop");
    prints("add tcp-dport eq x1bb drop 100", "add tcp-dport 443 drop");
    prints("add not tcp-syn ! all drop 0.50%", "add ! tcp-syn ! all drop 0.5");
    prints("add !tcp-syn ip-ttl!=64 drop 0.01", "add ! tcp-syn ip-ttl != 64 drop 0.01");
    prints("add ip-ttl ne 64 accept", "add ip-ttl != 64 accept");
    prints("add ip-ttl lt 1 ip-ttl le 2 drop 1.20", "add ip-ttl < 1 ip-ttl <= 2 drop 1.2");
    prints("add ip-ttl gt 1 ip-ttl ge 2 drop 33", "add ip-ttl > 1 ip-ttl >= 2 drop 33");
    prints(
        "add ip-saddr 10.1.2.3/8 ip-daddr 10.0.0.1/32 drop",
        "add ip-saddr 10.0.0.0/8 ip-daddr 10.0.0.1 drop",
    );
    prints("add ip6-saddr 2001:DB8:0::1/32 drop", "add ip6-saddr 2001:db8::/32 drop");
    prints("add ip-proto 6 ip-proto 200 drop", "add ip-proto tcp ip-proto 200 drop");
    prints("add ip-proto icmpv6 ip-proto ipv6-icmp drop", "add ip-proto icmp6 ip-proto icmp6 drop");
    prints("add ip-proto icmp-udp drop", "add ip-proto 1-17 drop");
    prints("add net-proto ip4 net-proto 0x86dd drop", "add net-proto ip net-proto ip6 drop");
    prints("add net-proto 0x9000 drop", "add net-proto 0x9000 drop");
    prints("add ip-ce ip-ce 1 ip-ce != 0 drop", "add ip-ce ip-ce ip-ce drop");
    prints("add ip-ce 0 ip-ect0 != 1 drop", "add ip-ecn != 3 ip-ecn != 2 drop");
    prints("add all mod ip-ect1 1", "add all mod ip-ecn 1");
    prints("add tcp-dport { 80 , 443 , 8000-0x1fa4 } drop", "add tcp-dport {80,443,8000-8100} drop");
    prints("add tcp-dport {80} drop", "add tcp-dport 80 drop");
    prints(
        "add ip-saddr {10.0.0.0/8,10.0.0.1-10.0.0.9} drop",
        "add ip-saddr {10.0.0.0/8,10.0.0.1-10.0.0.9} drop",
    );
    prints("add in eth0.100 out {a-b,c} drop", "add in eth0.100 out {a-b,c} drop");
    prints("add tcp-payload \"GET /\" drop", "add tcp-payload \"GET /\" drop");
    prints("add tcp-payload 0x474554 drop", "add tcp-payload \"GET\" drop");
    prints(
        "add tcp-payload contains {\"\\\"\",x00ff} drop",
        "add tcp-payload contains {\"\\\"\",0x00ff} drop",
    );
    prints("add tcp-opt 30 tcp-opt {2,5-8} tcp-opt drop", "add tcp-opt 30 tcp-opt {2,5-8} tcp-opt drop");
    prints("add ip6-eh ip6-eh-esp ! ip6-eh-shim6 drop", "add ip6-eh ip6-eh-esp ! ip6-eh-shim6 drop");
}

#[test]
fn targets() {
    prints(
        "add all add tcp-opt-mss 1400 add tcp-opt-sackp",
        "add all add tcp-opt-mss 1400 add tcp-opt-sackp",
    );
    prints("add all add tcp-opt-fast-open add tcp-opt 254", "add all add tcp-opt-fast-open add tcp-opt 254");
    prints("add all strip all add tcp-opt 254 0xf989", "add all strip all add tcp-opt 254 0xf989");
    prints("add all strip tcp-opt strip tcp-opt 19", "add all strip tcp-opt strip tcp-opt 19");
    prints("add all strip not tcp-opt-mss", "add all strip ! tcp-opt-mss");
    prints("add all mod tcp-opt 30 \"ab\"", "add all mod tcp-opt 30 \"ab\"");
    prints("add all mod out wan mod ip-saddr 10.0.0.1", "add all mod out wan mod ip-saddr 10.0.0.1");
    prints("add all map tcp-sport 1024-65535", "add all map tcp-sport 1024-65535");
    prints("add all lb 10.0.0.1 2001:db8::1 accept", "add all lb 10.0.0.1 2001:db8::1 accept");
    prints(
        "add-stateful all shuffle tcp-sport {x400-2000,3000} shuffle ip-id nat office accept",
        "add-stateful all shuffle tcp-sport {1024-2000,3000} shuffle ip-id nat office accept",
    );
    prints("add-stateful all shuffle ip-saddr 10.0.0.9/8", "add-stateful all shuffle ip-saddr 10.0.0.0/8");
}

/// A target without a field means the one field of the matches that it can act on.
#[test]
fn services_are_ports() {
    prints("add tcp-dport http drop", "add tcp-dport 80 drop");
    prints("add udp-sport != domain drop", "add udp-sport != 53 drop");
    prints("add tcp-dport {ssh,http-alt,1000-2000} drop", "add tcp-dport {22,8080,1000-2000} drop");
    prints("add tcp-dport 80 mod http-alt", "add tcp-dport 80 mod tcp-dport 8080");
    prints(
        "add-stateful tcp-dport https map tcp-dport pcsync-https",
        "add-stateful tcp-dport 443 map tcp-dport 8443",
    );
    prints("list tcp-dport ssh", "list tcp-dport 22");
}

#[test]
fn commands_can_be_abbreviated() {
    prints("sh int", "show interfaces");
    prints("sho conn verbose tcp-dport 80", "show connections verbose tcp-dport 80");
    prints("int add lan af-packet eth0", "interface add lan af-packet eth0");
    prints("li", "list");
    // They cannot do harm, and files are read alike by later releases.
    assert!(parse_line("flu").is_err() && parse_line("cle connections").is_err());
    assert!(mmb_lang::parse_file(b"int add lan null").is_err());
}

#[test]
fn names_and_comments() {
    prints("add all drop comment text name web", "add all drop name web comment \"text\"");
    prints(r#"add all drop comment "say \"no\", \\ #5""#, r#"add all drop comment "say \"no\", \\ #5""#);
    prints("add all drop comment it's,{so} # why", "add all drop comment \"it's,{so}\"");
    prints("add-stateful in lan nat office name masq", "add-stateful in lan nat office name masq");
    // Where a target may have a value, the words are no values.
    for target in [
        "add tcp-opt-fast-open",
        "add tcp-opt 34",
        "add tcp-opt-sackp",
        "strip tcp-opt",
        "strip",
        "mod 1400",
        "drop",
        "drop 5",
        "accept",
    ] {
        let line = |label: &str| format!("add tcp-opt-mss {target} {label}");
        let written = rule(&line("comment \"why\" name web"));
        assert_eq!((written.name().map(|name| &*name.text), written.comment()), (Some("web"), Some("why")));
        assert_eq!(written.targets, rule(&line("")).targets, "{target}");
        assert_eq!(written.body().to_string(), rule(&line("")).to_string());
        check(&written).unwrap();
    }
    let stateful = rule("add-stateful in lan lb 10.0.0.1 10.0.0.2 name web");
    assert_eq!(stateful.targets.len(), 1);
    assert_eq!(rule("add-stateful all shuffle tcp-sport comment x").comment(), Some("x"));
    prints("del web", "del web");
    prints("del 3", "del 3");
    let longest = "é".repeat(127);
    assert!(parse_line(&format!("add all drop comment {longest}")).is_ok());
    assert!(parse_line(&format!("add all drop comment {longest}éx")).is_err());
    // A text that turns the direction of writing could show another rule than there is.
    assert!(parse_line("add all drop comment \"a \u{202e}b\"").is_err());
}

#[test]
fn shortened_targets() {
    for (line, canonical) in [
        ("add tcp-opt-mss > 1460 mod 1460", "add tcp-opt-mss > 1460 mod tcp-opt-mss 1460"),
        ("add ip-proto tcp tcp-dport 80 mod 443", "add ip-proto tcp tcp-dport 80 mod tcp-dport 443"),
        ("add ip-saddr 10.0.0.1 mod 10.0.0.2", "add ip-saddr 10.0.0.1 mod ip-saddr 10.0.0.2"),
        ("add ip6-saddr ::1 mod ::2 accept", "add ip6-saddr ::1 mod ip6-saddr ::2 accept"),
        ("add out lan mod wan", "add out lan mod out wan"),
        ("add tcp-syn mod 0", "add tcp-syn mod tcp-syn 0"),
        ("add ip-ce mod 1", "add ip-ce mod ip-ecn 3"),
        ("add tcp-opt-sack mod 0x0011", "add tcp-opt-sack mod tcp-opt-sack 0x0011"),
        ("add tcp-opt 254 mod \"ab\"", "add tcp-opt 254 mod tcp-opt 254 \"ab\""),
        ("add tcp-opt mod 254 \"ab\"", "add tcp-opt mod tcp-opt 254 \"ab\""),
        ("add tcp-opt-timestamp strip", "add tcp-opt-timestamp strip tcp-opt-timestamp"),
        ("add tcp-opt strip", "add tcp-opt strip tcp-opt"),
        ("add tcp-opt 19 ip-ttl 1 strip accept", "add tcp-opt 19 ip-ttl 1 strip tcp-opt 19 accept"),
        ("add tcp-opt-mss strip add tcp-opt-mss 9", "add tcp-opt-mss strip tcp-opt-mss add tcp-opt-mss 9"),
    ] {
        prints(line, canonical);
        check(&rule(line)).unwrap();
    }
}

/// Every condition of a single match runs.
#[test]
fn matches_of_every_form() {
    for line in [
        "add tcp-dport 1024-65535 tcp-dport != {8080,9000-9999} drop",
        "add ip-ttl < 5 ip-len >= 1000 ip-saddr > 10.0.0.5 drop",
        "add ip-saddr {10.0.0.0/8,192.168.0.0-192.168.1.7} drop",
        "add in {lan,wan} net-proto {ip,ip6} drop",
        "add tcp-opt {2,5-8} tcp-opt != 30 drop",
        "add tcp-opt >= 0 tcp-opt < 3 ! tcp-opt-mptcp drop",
        "add tcp-opt-timestamp < 4294967296 tcp-opt-wscale {7,8} tcp-opt-sackp drop",
        "add tcp-opt-mptcp contains 0x00ff tcp-opt-fast-open != 0x01 drop",
        "add ip6-eh ip6-eh-fragment ! ip6-eh-routing drop",
        "add tcp-payload \"GET \" tcp-payload contains {0x0d0a0d0a,\"HTTP/1\"} drop",
        "add ip-payload ! udp-payload icmp-payload != 0x00 drop",
        "add ip6-payload contains \"x\" icmp6-payload drop",
    ] {
        prints(line, line);
        check(&rule(line)).unwrap();
    }
}

#[test]
fn commands() {
    for line in [
        "del 7",
        "flush",
        "list",
        "enable lan",
        "disable lan wan",
        "show tables",
        "show connections verbose",
        "show version",
        "show config",
        "interface add lan af-xdp eth0",
        "interface add lan af-packet eth0.100",
        "interface add lan tap",
        "interface add tap tap tap0",
        "interface add nic pci 0000:03:00.0",
        "interface add m memif /run/a=b!.sock",
        "interface add m memif \"/run/a b \\\"c\\\"\\x1b\"",
        "interface add file pcap in.pcap \"# out.pcap\"",
        "interface add hole null",
        "interface del hole",
        "wire lan wan",
        "wire del lan",
        "route lan",
        "route lan wan eth0.100",
        "route del lan",
        "show fib",
        "show fib 192.0.2.1",
        "show fib 0.0.0.0/0",
        "show fib 2001:db8::/32",
        "show neighbors",
        "show neighbors fe80::1",
        "set on-error forward",
        "set on-error drop",
        "add-stateless all accept",
    ] {
        prints(line, line);
    }
    prints("show fib 10.1.2.3/8", "show fib 10.0.0.0/8");
    prints("show fib 10.1.2.3/32", "show fib 10.1.2.3");
    prints("show neighbours 2001:DB8:0::1/128", "show neighbors 2001:db8::1");
    prints("interface add nic pci 3B:1f.7", "interface add nic pci 0000:3b:1f.7");
    for blank in ["", " \t", "# comment", "  # mmb add all drop", "\n"] {
        assert_eq!(parse_line(blank), Ok(None));
    }
}

#[test]
fn commands_about_sessions() {
    for line in [
        "show connections",
        "show connections verbose",
        "show connections ip-saddr 10.0.0.0/8 ! tcp-dport {80,443}",
        "show connections verbose in lan",
        "show nat",
        "clear connections",
        "clear connections all",
        "trace in lan tcp-dport {80,443} count 3",
        "trace all count 10 seconds 5",
        "trace udp-dport 53 why 7 count 10",
        "trace udp-dport 53 why web count 10",
        "capture ip-proto udp drops rule 3 count 100 seconds 60",
        "capture rule web count 1000",
        "capture session 0.12.345 count 1000",
        "nat pool add office 192.0.2.1",
        "nat pool add office 192.0.2.1-192.0.2.9 ports 1024-65535 block 64 limit 4 filtering endpoint-independent",
        "nat pool add office 192.0.2.1 filtering address-and-port-dependent",
        "nat pool add office 192.0.2.0/28 limit 4",
        "nat pool add office interface wan ports 1024-65535",
        "nat pool del office",
        "nat forward add tcp 192.0.2.1 80 to 10.0.0.9 8080",
        "nat forward add udp 192.0.2.1 53 to 10.0.0.9 53",
        "nat forward del tcp 192.0.2.1 80",
        "show fast-path",
        "show brokers verbose",
        "show domains",
        "show domains verbose",
        "broker add all listen 192.0.2.1:80 chain site",
        "broker add web listen [2001:db8::1]:8080 chain site connections 9 body-limit 0 tunnel-timeout 604800",
        "broker add all transparent chain site",
        "broker add all transparent keep-source chain site header-timeout 3",
        "broker add both listen [::]:80 transparent chain site connections 9",
        "broker del web",
        "add in left tcp-dport 80 broker all",
        "add-stateful tcp-dport 80 nat p broker name",
    ] {
        prints(line, line);
    }
    prints(
        "nat pool add p 192.0.2.1-192.0.2.1 limit 9 filtering address-dependent block 8 ports 1-65535",
        "nat pool add p 192.0.2.1 block 8 limit 9",
    );
    prints("show connections not tcp-dport eq x50", "show connections ! tcp-dport 80");
}

#[test]
fn settings() {
    for line in [
        "set timeout tcp-established 2000000",
        "set timeout fragment 1",
        "set punt-limit neighbor 500",
        "set punt-limit local off",
        "set session-limit source 1000",
        "set session-limit source default",
        "set session-limit source off",
        "set tcp-pickup off",
        "set tcp-window-check on",
        "set stream-pickup inspect",
        "set stream-overflow reset",
        "set stream-mptcp pass",
        "set stream-hold-time 0",
        "set martian-check off",
        "set rpf strict",
        "set rpf loose",
        "set rpf off",
        "set rpf strict left right",
        "set rpf default left",
        "set fast-path auto",
        "set log-format json",
        "set log-to syslog",
        "set worker-mode poll",
        "set worker-mode event",
        "set worker-mode adaptive",
        "set gro on",
        "set gro off",
    ] {
        prints(line, line);
    }
    // The former name.
    prints("set xdp-fast-path on", "set fast-path xdp");
    prints("set xdp-fast-path off", "set fast-path off");
    for timeout in Timeout::ALL {
        prints(&format!("set timeout {} 60", timeout.word()), &format!("set timeout {} 60", timeout.word()));
    }
}

#[test]
fn functions_and_chains() {
    for line in [
        "nf add c count",
        "nf add nat nat office",
        "nf add lb lb 10.0.0.1:80 [2001:db8::1]:80 by least-connections check tcp 80 every 2",
        "nf add fw acl allow ip-saddr 10.0.0.0/8 tcp-dport {80, 443} deny all",
        r##"nf add log log file "/var/log/a b.txt" "#1" "say \"x\"""##,
        "nf add x an-external-type-of-thirty-one",
        "domain add tenant1 private",
        "domain add tenant1 private buffers 8192 on-failure pass",
        "domain add tenant1 zero-copy",
        "domain add tenant1 zero-copy buffers 128 on-failure pass",
        "domain del tenant1",
        "nf add fw acl deny tcp-dport 23 process tenant1",
        "nf add x hello process d process e",
        "nf add stats count process tenant1 event",
        "nf add stats count process tenant1 poll",
        "nf add stats count process tenant1 cpu 1",
        "nf add stats count process tenant1 poll cpu 1023",
        "nf add stats count process cpu cpu 0",
        "nf add x hello process cpu 1",
        "nf add x hello process d cpu 1 more",
        r#"nf add x hello "process" d cpu 1"#,
        r#"nf add x hello "process" d cpu"#,
        "nf add x hello process process poll",
        "nf add x hello process process process event",
        "nf add x hello process d event more",
        r#"nf add x hello "process" d event"#,
        r#"nf add x hello "process" "process" poll"#,
        r#"nf add x hello "process" d"#,
        r#"nf add x hello "process""#,
        "nf add x hello process d more",
        "nf set lb drain 10.0.0.1",
        "nf del nat",
        "chain add web acl1",
        "chain add web acl1 | nat | c",
        "chain set web split [a: nat1 | count, b: drop, c: pass] | log",
        "chain add web [monitor, filter | log]",
        "chain add web in | [http, dns [query: count, answer: pass] | q, else: pass] | out",
        "chain add web [[a, b], [[c, else: drop]]]",
        "chain add web f [drop: drop, then: b, tcp-syn: c, else: a]",
        "chain del web",
        "show chains",
        "show chains verbose",
        "show functions",
        "show functions verbose",
    ] {
        prints(line, line);
    }
    prints("nf add c count \"a\"   b # c", "nf add c count a b");
    prints("nf add c count process d adaptive", "nf add c count process d");
    prints("nf add c count process d adaptive cpu 007", "nf add c count process d cpu 7");
    prints(r#"nf add c count process d "cpu" 1"#, r#"nf add c count "process" d cpu 1"#);
    prints(r#"nf add c count process d "event""#, r#"nf add c count "process" d event"#);
    prints("domain add d private on-failure drop buffers 4096", "domain add d private");
    prints("chain add web acl1 then nat then c", "chain add web acl1 | nat | c");
    prints(
        "chain add web acl1|split[a:nat1|count,b:drop]|c #x",
        "chain add web acl1 | split [a: nat1 | count, b: drop] | c",
    );
    prints("chain set web[ a ,else :pass ]then b", "chain set web [a, else: pass] | b");
}

/// Every stateful target runs.
#[test]
fn stateful_rules() {
    for line in [
        "add-stateful all accept",
        "add-stateful tcp-dport 80 drop",
        "add-stateful tcp-opt-mss > 1460 mod tcp-opt-mss 1460 mod ip-ttl 9 accept",
        "add-stateful all map ip-saddr 192.0.2.1 map ip6-saddr 2001:db8::1 shuffle tcp-sport shuffle udp-sport",
        "add-stateful all map ip-saddr {192.0.2.0/28,192.0.2.77-192.0.2.99} map tcp-sport 1024-2047",
        "add-stateful tcp-syn shuffle tcp-seq-num map tcp-ack-num 7 shuffle ip-id map ip6-flow-label 0",
        "add-stateful tcp-dport 80 lb 10.0.0.1 10.0.0.2 2001:db8::2 mod tcp-dport 8080",
        "add-stateful all lb 2001:db8::1 mod ip-daddr 10.0.0.1",
        "add-stateful out wan nat office mod ip-daddr 10.0.0.1 map udp-dport 53 accept",
        "add-stateful out wan nat office map ip6-saddr 2001:db8::1",
        "add-stateful ip-saddr 10.0.0.0/8 lb 192.0.2.1 nat office",
        "add-stateful all mod ip-id 0 mod tcp-seq-num 0 drop 0.5",
        "add-stateful out wan nat office mod ip-ttl 9 chain web accept",
    ] {
        prints(line, line);
        check(&rule(line)).unwrap_or_else(|error| panic!("{}", error.render(line)));
    }
}

#[test]
fn rules_compare_without_their_spans() {
    use std::collections::HashSet;
    let rules: HashSet<Rule> =
        ["add tcp-dport 80 drop", "mmb  add  tcp-dport == 0x50   drop 100"].map(rule).into_iter().collect();
    assert_eq!(rules.len(), 1);
    assert_ne!(rule("add tcp-dport 80 drop"), rule("add tcp-dport 81 drop"));
}
