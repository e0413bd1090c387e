//! Rulesets as people have them: a home router, docker, firewalld, ufw and a web server. All were loaded
//! into a kernel and read back, except the web server's, which needs ipset. They are converted wholly, to the
//! rules beside them, which were reviewed.

use std::path::Path;

use mmb_import::{Kind, Machine, Script, from_iptables, from_nft};

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Converts a file, and compares with the expected rules.
fn converted(name: &str, expected: &str, chain: Option<&str>, machine: &Machine) -> Script {
    let text = data(name);
    let script = match name.ends_with(".json") {
        true => from_nft(&text, chain, machine),
        false => from_iptables(&text, chain, machine),
    };
    let script = script.expect("a ruleset");
    assert_eq!(script.text(), data(expected), "{name}");
    let lost = script.remarks().find(|remark| remark.kind == Kind::NotMapped);
    assert_eq!(lost, None, "{name}");
    script
}

#[test]
fn typical_rulesets_are_converted_wholly() {
    let none = Machine::default();
    let host = Machine { outside: Some("eth0".into()), addresses: vec![[198, 51, 100, 2].into()] };
    let summary =
        |name: &str, expected: &str, chain, machine| converted(name, expected, chain, machine).summary();
    for (name, expected, chain, machine, rules) in [
        ("home-router.rules", "home-router.mmb", None, &none, "8 of 8 rules converted, 2 with a difference"),
        (
            "home-router.json",
            "home-router-nft.mmb",
            None,
            &none,
            "7 of 7 rules converted, 1 with a difference",
        ),
        ("docker.rules", "docker.mmb", None, &host, "17 of 17 rules converted, 0 with a difference"),
        ("ufw.rules", "ufw.mmb", None, &none, "16 of 16 rules converted, 1 with a difference"),
        ("firewalld.json", "firewalld.mmb", None, &none, "19 of 19 rules converted, 1 with a difference"),
        (
            "web-server.rules",
            "web-server.mmb",
            Some("INPUT"),
            &none,
            "8 of 8 rules converted, 0 with a difference",
        ),
    ] {
        assert_eq!(summary(name, expected, chain, machine), rules, "{name}");
    }
}

/// Without the addresses of the machine, the ports that docker publishes have no equal.
#[test]
fn what_the_ruleset_does_not_say_is_asked_for() {
    let script = from_iptables(&data("docker.rules"), None, &Machine::default()).expect("a ruleset");
    let failures = script.failures();
    assert!(
        failures.contains("`--local ADDRESS`") && failures.contains("`--outside INTERFACE`"),
        "{failures}"
    );
}

/// The lines that PPPoE routers have, as `iptables-save` prints them. Linux only lowers the value, too.
#[test]
fn segment_sizes_are_clamped() {
    let clamp = "-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS";
    let rules = format!(
        "*mangle\n-A FORWARD -o ppp0 {clamp} --set-mss 1452\n[3:180] -A POSTROUTING {clamp} --set-mss 1400\n\
         -A FORWARD {clamp} --clamp-mss-to-pmtu\n-A OUTPUT {clamp} --set-mss 1400\nCOMMIT\n\
         *filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
    );
    let script = from_iptables(&rules, None, &Machine::default()).expect("a ruleset");
    let text = script.text();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let flags = "ip-proto tcp tcp-rst 0 tcp-syn tcp-opt-mss";
    assert_eq!(
        lines,
        [
            format!("add out ppp0 {flags} 1453-65535 mod tcp-opt-mss 1452"),
            format!("add {flags} 1401-65535 mod tcp-opt-mss 1400"),
        ],
        "{text}"
    );
    assert_eq!(script.summary(), "2 of 4 rules converted, 0 with a difference");
    assert!(text.contains("add tcp-syn tcp-opt-mss > N mod tcp-opt-mss N"), "the way out for the path's MTU");
}
