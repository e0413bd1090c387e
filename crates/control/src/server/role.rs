//! Roles of clients, and what each may do.
//!
//! Theory of operation. The kernel decides who may connect to a socket, by its group. The daemon has a socket
//! for operators and may have one for readers, so the socket tells the role. The owner is root, or the user
//! of the daemon, by the credentials of the connection (unix(7), SO_PEERCRED).

use std::sync::atomic::Ordering::Relaxed;

use axum::http::Method;
use mmb_lang::Command;

use crate::error::Refusal;
use crate::transaction::Control;

/// The role of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// May read everything, and change nothing.
    Reader,
    /// May change the configuration.
    Operator,
    /// An operator with connections and memory of its own.
    Owner,
}

impl Role {
    /// Checks whether the role permits a request. Lines of commands are checked by [`Role::check_line`].
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check_request(self, method: &Method, path: &str) -> Result<(), Refusal> {
        // Lines are checked one by one; frames and captures change nothing.
        let is_checked = matches!(path, "/v1/command" | "/v1/print" | "/v1/explain" | "/v1/explain/capture");
        match self {
            Role::Reader if *method != Method::GET && *method != Method::HEAD && !is_checked => {
                Err(refusal(&format!("{method} {path}")))
            }
            _ => Ok(()),
        }
    }

    /// Checks whether the role permits a line of the language. An invalid line passes: its error is clearer.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check_line(self, line: &str) -> Result<(), Refusal> {
        let Ok(Some(command)) = mmb_lang::parse_line(line) else { return Ok(()) };
        if self != Role::Reader || is_query(&command) {
            return Ok(());
        }
        let text = command.to_string();
        Err(refusal(text.split(' ').next().unwrap_or_default()))
    }
}

impl Control {
    /// Checks whether a role permits a line of the language, and counts refusals.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check_role(&self, role: Role, line: &str) -> Result<(), Refusal> {
        let permitted = role.check_line(line);
        if permitted.is_err() {
            self.api_counters().forbidden.fetch_add(1, Relaxed);
        }
        permitted
    }
}

fn refusal(what: &str) -> Refusal {
    Refusal::forbidden(format!(
        "the role read does not permit `{what}`; use the socket or a token of an operator"
    ))
}

/// Whether a command changes nothing.
fn is_query(command: &Command) -> bool {
    matches!(
        command,
        Command::List { .. }
            | Command::Show { .. }
            | Command::ShowFib { .. }
            | Command::ShowSet { .. }
            | Command::ShowNeighbors { .. }
            | Command::ShowConnections { .. }
            | Command::History { .. }
            | Command::Trace { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_read() {
        for line in [
            "list",
            "show config",
            "show connections tcp-dport 80",
            "show fib",
            "show neighbors",
            "history",
            "trace tcp-dport 80 count 3",
            "",
            "nonsense",
        ] {
            assert!(Role::Reader.check_line(line).is_ok(), "{line}");
        }
        for line in [
            "add all drop",
            "del 1",
            "flush",
            "clear connections",
            "interface add a null",
            "set tcp-pickup on",
            "rollback",
            "confirm",
            "capture drops",
        ] {
            assert!(Role::Operator.check_line(line).is_ok(), "{line}");
            let refusal = Role::Reader.check_line(line).unwrap_err();
            assert!(refusal.message.contains(line.split(' ').next().unwrap()), "{refusal}");
        }
        for (method, path, permitted) in [
            (Method::GET, "/v1/rules", true),
            (Method::GET, "/metrics", true),
            (Method::POST, "/v1/print", true),
            (Method::POST, "/v1/explain", true),
            (Method::POST, "/v1/explain/capture", true),
            (Method::POST, "/v1/rules", false),
            (Method::DELETE, "/v1/connections", false),
            (Method::POST, "/v1/apply", false),
            (Method::POST, "/v1/check", false),
        ] {
            assert_eq!(Role::Reader.check_request(&method, path).is_ok(), permitted, "{method} {path}");
            assert!(Role::Operator.check_request(&method, path).is_ok());
        }
    }
}
