//! `docs/nat-compliance.md` keeps to the facts: whatever it says is met names tests, and they exist.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use mmb_flow::Timeouts;

/// The topmost directory of the tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below a directory whose names end so.
fn files(directory: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, end, found);
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
}

/// Names of the functions in a text that stand behind `keyword`, if the lines above say that they are tests.
fn functions(text: &str, keyword: &str, is_test: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut names = vec![];
    for (n, line) in lines.iter().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix(keyword) else { continue };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let above = n.checked_sub(1).and_then(|above| lines.get(above)).copied().unwrap_or("");
        if is_test(&name, above.trim()) {
            names.push(name);
        }
    }
    names
}

/// The names of all tests: functions under `#[test]` (also within `proptest!`), and pytest's.
fn tests() -> HashSet<String> {
    let (mut rust, mut python) = (vec![], vec![]);
    files(&root().join("crates"), ".rs", &mut rust);
    files(&root().join("tests/e2e"), ".py", &mut python);
    let read = |path: &PathBuf| fs::read_to_string(path).expect("a text");
    let rust = rust.iter().map(read).flat_map(|text| functions(&text, "fn ", |_, above| above == "#[test]"));
    let python = python
        .iter()
        .map(read)
        .flat_map(|text| functions(&text, "def ", |name, _| name.starts_with("test_")));
    rust.chain(python).collect()
}

struct Row {
    document: String,
    requirement: String,
    status: String,
    tests: Vec<String>,
}

/// The rows of the page's tables.
fn rows() -> Vec<Row> {
    let page = fs::read_to_string(root().join("docs/nat-compliance.md")).expect("the page");
    let mut document = String::new();
    let mut rows = vec![];
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            document = title.split(':').next().unwrap_or(title).into();
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let &[requirement, _, status, _, shown] = cells.as_slice() else { continue };
        if line.starts_with('|') && requirement != "requirement" && !requirement.starts_with('-') {
            let tests = shown.split_whitespace().map(|name| name.trim_matches('`').into()).collect();
            let document = document.clone();
            rows.push(Row { document, requirement: requirement.into(), status: status.into(), tests });
        }
    }
    rows
}

#[test]
fn the_page_names_tests_that_exist() {
    let tests = tests();
    for Row { document, requirement, status, tests: named } in rows() {
        let row = format!("{document} {requirement}");
        match status.as_str() {
            "met" | "partly" => assert!(!named.is_empty(), "{row} is {status} and names no test"),
            "not met" | "n/a" => assert!(named.is_empty(), "{row} is {status} and names tests"),
            _ => panic!("{row}: what is {status}?"),
        }
        for name in named {
            assert!(tests.contains(&name), "{row}: there is no test {name}");
        }
    }
}

/// Requirements as the RFCs number them, and sections of the one that does not.
#[test]
fn the_page_has_every_requirement() {
    let listed: Vec<(String, String)> =
        rows().into_iter().map(|row| (row.document, row.requirement)).collect();
    for (document, last) in [("RFC 4787", 14), ("RFC 5382", 10), ("RFC 5508", 11)] {
        for n in 1..=last {
            let is = |(of, requirement): &&(String, String)| {
                let number = requirement.strip_prefix("REQ-").unwrap_or("").split(' ').next();
                of == document && number == Some(&n.to_string())
            };
            assert!(listed.iter().any(|row| is(&row)), "{document} REQ-{n}");
        }
    }
    for section in ["2", "2.1", "2.2", "3", "4", "5", "6", "7", "7.1", "8", "9", "10", "11", "12"] {
        assert!(listed.contains(&("RFC 7857".into(), section.into())), "RFC 7857 section {section}");
    }
    assert_eq!(listed.iter().collect::<HashSet<_>>().len(), listed.len(), "no requirement is listed twice");
}

/// RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 5508 REQ-2, RFC 7857 sections 2.1 and 2.2, in seconds.
#[test]
fn default_timeouts_keep_what_the_rfcs_ask_for() {
    let of = Timeouts::default();
    assert!(of.udp_unreplied >= 120_000 && of.udp_replied >= 300_000);
    assert!(of.tcp_established >= 7_440_000);
    for transitory in [of.tcp_handshake, of.tcp_half_closed, of.tcp_closed, of.tcp_reset] {
        assert!(transitory >= 240_000);
    }
    assert!(of.icmp >= 60_000);
}
