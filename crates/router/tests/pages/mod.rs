//! Parses pages of requirements and the names of existing tests.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A row of a page's tables.
pub struct Row {
    /// The document, from the heading.
    pub document: String,
    /// The requirement in this document.
    pub requirement: String,
    /// The status that the page gives.
    pub status: String,
    /// Names of tests.
    pub tests: Vec<String>,
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Collects all files below a directory whose names end with `end`.
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

/// Names of functions that follow `keyword`, for which `is_test` accepts the name and the line above.
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

/// Names of all tests: functions under `#[test]` (also within `proptest!`), and those of pytest.
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

/// The rows of a page's tables: requirement, level, status, explanation, names of tests.
pub fn rows(page: &str) -> Vec<Row> {
    let page = fs::read_to_string(root().join(page)).expect("the page");
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

/// Asserts that all named tests exist, that rows with status met name some, and that rows with status not met
/// name none.
pub fn check(page: &str) {
    let tests = tests();
    for Row { document, requirement, status, tests: named } in rows(page) {
        let row = format!("{document} {requirement}");
        match status.as_str() {
            "met" | "partly" => assert!(!named.is_empty(), "{row} is {status} and names no test"),
            "not met" | "n/a" => assert!(named.is_empty(), "{row} is {status} and names tests"),
            "kernel" => {}
            _ => panic!("{row}: what is {status}?"),
        }
        for name in named {
            assert!(tests.contains(&name), "{row}: there is no test {name}");
        }
    }
}
