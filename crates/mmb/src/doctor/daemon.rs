//! The daemon, if one runs: its socket, its release and what is down; and what a killed one has left.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use mmb_control::api::{InterfaceList, InterfaceState, VersionEntry};
use mmb_control::{Client, ClientError, client_path};
use mmb_system::InterfaceFiles;

use super::finding::Finding;
use crate::state_dir;

/// Directories of files about interfaces, in the state directory, and what they tell.
const LEFT: [(&str, &str); 2] =
    [("offloads", "receive offloads"), ("kernel-settings", "settings of the kernel")];

pub(super) fn check(socket: Option<PathBuf>, state: Option<&Path>) -> Vec<Finding> {
    let path = socket.unwrap_or_else(client_path);
    let (mut findings, runs) = running(&path);
    match state_dir::path(state) {
        Some(directory) => findings.extend(state_directory(&directory, runs)),
        None => findings.push(Finding::warning(
            "state",
            "no state directory: neither XDG_STATE_HOME nor HOME is set",
            "use `--state-dir`",
        )),
    }
    findings
}

/// The daemon at a socket, and whether it runs.
fn running(path: &Path) -> (Vec<Finding>, bool) {
    let shown = path.display();
    let asked = Client::new(path)
        .map_err(|error| error.to_string())
        .map(|mut client| (client.get::<VersionEntry>("/v1/version"), client));
    let (version, mut client) = match asked {
        Ok((Ok(version), client)) => (version, client),
        Ok((Err(ClientError::NoDaemon(_)), _)) => return (vec![absent(path)], false),
        Ok((Err(ClientError::Permission(_)), _)) => {
            let text = format!("this user may not use {shown}");
            return (vec![Finding::warning("daemon", text, "run as root, or join the group mmb")], true);
        }
        Ok((Err(error), _)) => {
            return (vec![Finding::failure("daemon", error.to_string(), "restart the daemon")], true);
        }
        Err(error) => return (vec![Finding::failure("daemon", error, "close other programs")], true),
    };
    let own = env!("CARGO_PKG_VERSION");
    let text = format!("mmb {} runs as process {}: {}", version.version, version.pid, version.engine);
    let mut findings = vec![if version.version == own {
        Finding::ok("daemon", text)
    } else {
        Finding::warning("daemon", format!("{text}; this program is {own}"), "restart the daemon")
    }];
    let interfaces = client.get::<InterfaceList>("/v1/interfaces").unwrap_or_default().interfaces;
    for interface in interfaces.iter().filter(|i| i.state != InterfaceState::Up) {
        let reason = interface.reason.as_deref().unwrap_or("no reason is known");
        findings.push(Finding::failure(
            &format!("interface {}", interface.name),
            format!("down: {reason}"),
            "it is opened as soon as its device is there and up",
        ));
    }
    (findings, true)
}

/// No daemon answers.
fn absent(path: &Path) -> Finding {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Finding::warning(
            "daemon",
            format!("{shown} was left by a daemon that was killed"),
            "the next start replaces it",
        ),
        Ok(_) => {
            Finding::failure("daemon", format!("{shown} is not a socket"), "remove it, or use `--socket`")
        }
        Err(_) => Finding::ok("daemon", format!("none runs with the socket {shown}")),
    }
}

/// The state directory, and what is in it while no daemon runs.
fn state_directory(directory: &Path, runs: bool) -> Vec<Finding> {
    let shown = directory.display();
    if !directory.exists() {
        return vec![Finding::ok("state", format!("{shown} does not exist; the daemon makes it"))];
    }
    if nix::unistd::access(directory, nix::unistd::AccessFlags::W_OK).is_err() {
        let text = format!("this user may not write to {shown}");
        return vec![Finding::warning("state", text, "run as the daemon's user, or use `--state-dir`")];
    }
    let mut findings = vec![Finding::ok("state", format!("{shown} can be written"))];
    if runs {
        return findings;
    }
    for (name, what) in LEFT {
        let left = InterfaceFiles::new(directory.join(name)).left();
        findings.extend(left.iter().map(|file| {
            Finding::warning(
                &format!("interface {}", file.interface),
                format!("a daemon that was killed has left its {what} changed"),
                "the next start restores them",
            )
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::super::finding::{Status, status};
    use super::*;

    #[test]
    fn sockets_that_nobody_serves_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("mmb.sock");
        assert_eq!(absent(&path).status, Status::Ok);
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(status(&running(&path).0, "daemon"), Status::Warning);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(absent(&path).status, Status::Failure);
    }

    #[test]
    fn what_a_killed_daemon_left_is_found() {
        let root = tempfile::tempdir().unwrap();
        InterfaceFiles::new(root.path().join("offloads")).write("eth0", "gro").unwrap();
        assert_eq!(status(&state_directory(root.path(), false), "interface eth0"), Status::Warning);
        assert_eq!(state_directory(root.path(), true).len(), 1);
    }
}
