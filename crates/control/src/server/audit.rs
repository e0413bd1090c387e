//! The log of changes: who changed what.
//!
//! Theory of operation. The kernel tells the user and the process of a connection (unix(7), SO_PEERCRED). A
//! request that changed something is logged after it, with both. What the client sent is shortened, and
//! control characters are escaped, so that no client writes lines of its own. Queries are not logged, nor is
//! what was refused, because it changed nothing.

use axum::http::Method;
use mmb_system::log;
use serde::Deserialize;

use crate::history::Author;

/// The user and the process at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub user: u32,
    pub process: Option<i32>,
}

/// Most characters of a line that the log has.
const SHOWN: usize = 200;

/// The line in the body of `/v1/command` and `/v1/print`.
#[derive(Deserialize)]
struct CommandLine {
    line: String,
}

/// The rule in the body of `POST /v1/rules`.
#[derive(Deserialize)]
struct AddedRule {
    rule: String,
}

/// Returns what a request changes, if it succeeds. None: nothing.
pub(super) fn change(method: &Method, path: &str, query: Option<&str>, body: &[u8]) -> Option<String> {
    let text = match (method.as_str(), path) {
        ("POST", "/v1/command" | "/v1/print") => {
            let CommandLine { line } = serde_json::from_slice(body).ok()?;
            let word = line.split_whitespace().next()?;
            if matches!(word, "list" | "show" | "history" | "trace" | "capture") || word.starts_with('#') {
                return None;
            }
            line
        }
        ("POST", "/v1/apply") => {
            let options = query.map(apply_options).unwrap_or_default();
            format!("apply{options} ({} bytes)", body.len())
        }
        ("POST", "/v1/confirm") => "confirm".to_owned(),
        ("POST", "/v1/rollback") => {
            format!(
                "rollback {}",
                query.and_then(|query| query.strip_prefix("revision=")).unwrap_or_default()
            )
        }
        ("POST", "/v1/rules") => {
            let AddedRule { rule } = serde_json::from_slice(body).ok()?;
            rule
        }
        ("DELETE", path) => format!("DELETE {path}{}{}", query.map_or("", |_| "?"), query.unwrap_or("")),
        _ => return None,
    };
    Some(shortened(&text))
}

/// The author of a change, for the history.
pub(super) fn author(peer: Option<Peer>, change: Option<&str>) -> Author {
    Author {
        user: peer.map(|peer| peer.user),
        process: peer.and_then(|peer| peer.process),
        change: change.unwrap_or_default().to_owned(),
    }
}

/// Logs a change.
pub(super) fn log(peer: Option<Peer>, change: &str) {
    let author = match peer {
        Some(Peer { user, process: Some(process) }) => format!("user {user}, process {process}"),
        Some(Peer { user, process: None }) => format!("user {user}"),
        None => "unknown user".to_owned(),
    };
    log::info(format!("change by {author}: {change}\n"));
}

/// The options of `mmb apply` for those of the request.
fn apply_options(query: &str) -> String {
    let option = |part: &str| match part.split_once('=')? {
        ("allow_empty", "true") => Some(" --allow-empty".to_owned()),
        ("confirm", seconds) => Some(format!(" --confirm {seconds}")),
        _ => None,
    };
    query.split('&').filter_map(option).collect()
}

fn shortened(text: &str) -> String {
    let mut characters = text.trim().chars();
    let mut shown = String::new();
    for character in characters.by_ref().take(SHOWN) {
        match character.is_control() {
            true => shown.extend(character.escape_unicode()),
            false => shown.push(character),
        }
    }
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: Method, path: &str, body: &str) -> Option<String> {
        change(&method, path, None, body.as_bytes())
    }

    #[test]
    fn changes_are_described_and_queries_are_not() {
        let line = |line: &str| format!("{{\"line\":{}}}", serde_json::json!(line));
        for query in ["list", "show config", "history 3", "  show connections tcp-dport 80", "", "# a remark"]
        {
            assert_eq!(of(Method::POST, "/v1/command", &line(query)), None, "{query}");
        }
        for text in ["add all drop", "flush", "clear connections", "nf set b drain 10.0.0.1"] {
            for path in ["/v1/command", "/v1/print"] {
                assert_eq!(of(Method::POST, path, &line(text)).as_deref(), Some(text));
            }
        }
        assert_eq!(of(Method::POST, "/v1/apply", "add all drop\n").as_deref(), Some("apply (13 bytes)"));
        assert_eq!(
            change(&Method::POST, "/v1/apply", Some("allow_empty=true&confirm=60"), b"").as_deref(),
            Some("apply --allow-empty --confirm 60 (0 bytes)")
        );
        assert_eq!(
            change(&Method::POST, "/v1/rollback", Some("revision=3"), b"").as_deref(),
            Some("rollback 3")
        );
        assert_eq!(
            of(Method::POST, "/v1/rules", "{\"rule\":\"add all drop\"}").as_deref(),
            Some("add all drop")
        );
        assert_eq!(of(Method::DELETE, "/v1/rules/7", "").as_deref(), Some("DELETE /v1/rules/7"));
        assert_eq!(
            change(&Method::DELETE, "/v1/connections", Some("match=ip-proto%20tcp"), b"").as_deref(),
            Some("DELETE /v1/connections?match=ip-proto%20tcp")
        );
        assert_eq!(of(Method::GET, "/v1/rules", ""), None);
        assert_eq!(of(Method::POST, "/v1/diff", "add all drop\n"), None);
    }

    #[test]
    fn a_client_writes_no_line_of_its_own() {
        let body = serde_json::json!({"line": "add all drop\nchange by user 0: \u{1b}[2J"}).to_string();
        let text = of(Method::POST, "/v1/command", &body).unwrap();
        assert!(!text.contains(char::is_control), "{text:?}");
        let long = serde_json::json!({"line": format!("add {}", "é".repeat(1 << 20))}).to_string();
        assert_eq!(of(Method::POST, "/v1/command", &long).unwrap().chars().count(), SHOWN + 1);
    }
}
