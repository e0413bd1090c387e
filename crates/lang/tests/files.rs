//! Configuration files: allowed lines, and positions of errors.

use mmb_lang::{Command, Diagnostic, load_file, parse_file};

fn rendered(text: &[u8]) -> Vec<String> {
    let errors: Vec<Diagnostic> = load_file(text).err().unwrap_or_default();
    errors.iter().map(|error| error.render_in_file("policy.mmb", text)).collect()
}

#[test]
fn a_policy() {
    let text = b"\xef\xbb\xbf# two ports\r\ninterface add lan af-xdp eth0\r\nmmb interface add wan af-packet eth1\n\n\
        wire lan wan\n  enable lan wan # both\nadd ip-proto udp drop\ninterface del wan\n\
        wire del lan\ndisable lan\nset on-error drop\n\
        route lan wan\nroute del wan\nnat pool add office 192.0.2.1\nset timeout icmp 30\nadd-stateful in lan nat office\n\
        nf add c count\nchain add web c\nchain set web c | c2\nadd-stateful in lan chain web";
    let commands = load_file(text).unwrap();
    let lines: Vec<String> = commands.iter().map(|at| format!("{} {}", at.line, at.item)).collect();
    assert_eq!(
        lines,
        [
            "2 interface add lan af-xdp eth0",
            "3 interface add wan af-packet eth1",
            "5 wire lan wan",
            "6 enable lan wan",
            "7 add ip-proto udp drop",
            "8 interface del wan",
            "9 wire del lan",
            "10 disable lan",
            "11 set on-error drop",
            "12 route lan wan",
            "13 route del wan",
            "14 nat pool add office 192.0.2.1",
            "15 set timeout icmp 30",
            "16 add-stateful in lan nat office",
            "17 nf add c count",
            "18 chain add web c",
            "19 chain set web c | c2",
            "20 add-stateful in lan chain web",
        ]
    );
    assert_eq!(load_file(b"").unwrap(), []);
}

#[test]
fn queries_and_deletions_are_not_configuration() {
    let text =
        b"show tables\nlist\ndel 1\n flush\nclear connections\nshow connections\nshow fib\nshow neighbours\nnf set a b\n";
    let help = "  help: a file describes what there shall be: interface, wire, route, enable, disable, set, nat, \
        domain, nf, chain, broker and add lines";
    assert_eq!(
        rendered(text),
        [
            format!("policy.mmb:1:1: `show` has no place in a file\n  show tables\n  ^^^^\n{help}"),
            format!("policy.mmb:2:1: `list` has no place in a file\n  list\n  ^^^^\n{help}"),
            format!("policy.mmb:3:1: `del` has no place in a file\n  del 1\n  ^^^\n{help}"),
            format!("policy.mmb:4:2: `flush` has no place in a file\n   flush\n   ^^^^^\n{help}"),
            format!("policy.mmb:5:1: `clear` has no place in a file\n  clear connections\n  ^^^^^\n{help}"),
            format!("policy.mmb:6:1: `show` has no place in a file\n  show connections\n  ^^^^\n{help}"),
            format!("policy.mmb:7:1: `show` has no place in a file\n  show fib\n  ^^^^\n{help}"),
            format!("policy.mmb:8:1: `show` has no place in a file\n  show neighbours\n  ^^^^\n{help}"),
            format!("policy.mmb:9:1: `nf set` has no place in a file\n  nf set a b\n  ^^\n{help}"),
        ]
    );
}

#[test]
fn one_bad_line_among_many() {
    let mut text = String::new();
    for line in 1..=100_000 {
        let port = if line == 77_777 { "80808".to_owned() } else { (line % 65_536).to_string() };
        text += &format!("add ip-saddr 10.0.0.0/8 tcp-dport {port} drop\n");
    }
    let errors = parse_file(text.as_bytes()).unwrap_err();
    let shown: Vec<String> = errors.iter().map(|error| error.render_in_file("f", text.as_bytes())).collect();
    assert_eq!(
        shown,
        ["f:77777:35: `80808` is out of range: `tcp-dport` takes 0 to 65535\n  \
            add ip-saddr 10.0.0.0/8 tcp-dport 80808 drop\n                                    ^^^^^"]
    );
}

#[test]
fn parser_and_check_report_together_in_order() {
    let text = b"add tcp-dport 80 drop\nadd all map tcp-sport 80\nadd tcp-dprot 80 drop\nadd tcp-syn udp-len 8 drop\n";
    let lines: Vec<u32> = load_file(text).unwrap_err().iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 3, 4]);
    let lines: Vec<u32> = parse_file(text).unwrap_err().iter().map(|error| error.line).collect();
    assert_eq!(lines, [3]);
}

#[test]
fn no_more_than_twenty_errors() {
    let errors = parse_file("nonsense\n".repeat(1000).as_bytes()).unwrap_err();
    assert_eq!(errors.len(), 20);
    assert_eq!(errors[19].line, 20);
}

#[test]
fn invalid_utf8_has_one_error() {
    let text = b"add all drop\nadd \xc3\xa9 \xff\xfe drop\n\xff\n\xff\n";
    assert_eq!(
        rendered(text),
        [
            "policy.mmb:2:7: the file is not text: this is not valid UTF-8\n  add \u{e9} \u{fffd}\u{fffd} drop\n        ^"
        ]
    );
    // Cut within a character.
    assert_eq!(rendered(b"add \xe2\x82").len(), 1);
    let elf = b"\x7fELF\x02\x01\x01\0\0\0\n\0\n\0\n";
    assert_eq!(
        rendered(elf),
        ["policy.mmb:1:1: the line contains the control character U+007F; rules are plain text\n  \
            \u{fffd}ELF\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\n  ^"]
    );
}

#[test]
fn ten_megabytes_in_one_line() {
    let text = vec![b'a'; 10 << 20];
    assert_eq!(
        load_file(&text).unwrap_err()[0].message,
        "the line has 10485760 bytes; a line may have 1048576 at most"
    );
    assert!(rendered(&text)[0].len() < 500);
}

#[test]
fn rules_of_a_file_are_those_of_the_shell() {
    let [located] = &load_file(b"add all accept").unwrap()[..] else { panic!("one command") };
    let Command::Add(rule) = &located.item else { panic!("a rule") };
    assert_eq!(Some(Command::Add(rule.clone())), mmb_lang::parse_line("mmb add all accept\n").unwrap());
}
