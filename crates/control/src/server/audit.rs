//! The log of changes: who changed what.
//!
//! Theory of operation. The kernel tells the user and the process of a local connection (unix(7),
//! SO_PEERCRED); a client on the network has a name and an address. A request that changed something is
//! logged after it, with both. One that was to change something and was refused is logged with its status.
//! What the client sent is shortened, and control characters are escaped, so that no client writes lines of
//! its own. Queries are not logged; what is not known as a query is a change.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{Method, StatusCode};
use mmb_system::log;

use crate::api::{CommandRequest, ElementRequest, RuleRequest};
use crate::history::Author;

/// The client at the other end of a connection.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    /// A process of this machine, and its user.
    Local { user: u32, process: Option<i32> },
    /// A user of the API on the network.
    Network { name: Arc<str>, address: IpAddr },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Local { user, process: Some(process) } => write!(f, "user {user}, process {process}"),
            Peer::Local { user, process: None } => write!(f, "user {user}"),
            Peer::Network { name, address } => write!(f, "{name} at {address}"),
        }
    }
}

/// Most characters of a line that the log has.
const SHOWN: usize = 200;

/// Returns what a request changes, if it succeeds. None: nothing.
pub(super) fn change(method: &Method, path: &str, query: Option<&str>, body: &[u8]) -> Option<String> {
    let set = path.strip_prefix("/v1/sets/").and_then(|rest| rest.strip_suffix("/elements"));
    let text = match (method.as_str(), path) {
        ("GET" | "HEAD" | "OPTIONS", _)
        | ("POST", "/v1/diff" | "/v1/check" | "/v1/capture" | "/v1/explain" | "/v1/explain/capture") => {
            return None;
        }
        ("POST", "/v1/command" | "/v1/print") => {
            let CommandRequest { line, .. } = serde_json::from_slice(body).ok()?;
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
            let RuleRequest { rule } = serde_json::from_slice(body).ok()?;
            rule
        }
        ("POST" | "DELETE", _) if let Some(set) = set => {
            let word = if *method == Method::POST { "add" } else { "del" };
            format!("set {set} {word} {}", elements(body)?)
        }
        (method, path) => format!("{method} {path}{}{}", query.map_or("", |_| "?"), query.unwrap_or("")),
    };
    Some(shortened(&text))
}

/// The elements of a request for a set, and the time that they stay.
fn elements(body: &[u8]) -> Option<String> {
    let ElementRequest { elements, timeout, .. } = serde_json::from_slice(body).ok()?;
    let timeout = timeout.map_or_else(String::new, |seconds| format!(" timeout {seconds}s"));
    Some(elements.join(" ") + &timeout)
}

/// The author of a change, for the history.
pub(super) fn author(peer: Option<&Peer>, change: Option<&str>) -> Author {
    let mut author = Author { change: change.unwrap_or_default().to_owned(), ..Author::default() };
    match peer {
        Some(Peer::Local { user, process }) => (author.user, author.process) = (Some(*user), *process),
        Some(Peer::Network { name, address }) => {
            (author.name, author.address) = (Some(name.to_string()), Some(*address));
        }
        None => {}
    }
    author
}

/// Logs a change, or that it was refused.
pub(super) fn log(peer: Option<&Peer>, change: &str, status: StatusCode) {
    let author = peer.map_or_else(|| "unknown user".to_owned(), Peer::to_string);
    match status.is_success() {
        true => log::info(format!("change by {author}: {change}\n")),
        false => log::info(format!("refused change by {author} ({}): {change}\n", status.as_u16())),
    }
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

/// One line of what a client sent, of a limited length.
pub(super) fn shortened(text: &str) -> String {
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
        let elements = serde_json::json!({"elements": ["192.0.2.7", "192.0.2.8"], "timeout": 60}).to_string();
        for (method, change) in [(Method::POST, "add"), (Method::DELETE, "del")] {
            assert_eq!(
                of(method, "/v1/sets/blocked/elements", &elements),
                Some(format!("set blocked {change} 192.0.2.7 192.0.2.8 timeout 60s"))
            );
        }
        assert_eq!(of(Method::GET, "/v1/rules", ""), None);
        assert_eq!(of(Method::POST, "/v1/diff", "add all drop\n"), None);
        assert_eq!(of(Method::PUT, "/v1/unknown", "").as_deref(), Some("PUT /v1/unknown"));
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
