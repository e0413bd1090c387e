//! Rights: capabilities and limits of the process that would be the daemon.

use rustix::process::{Resource, geteuid, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::finding::Finding;

/// Descriptors below which the daemon does not start.
const FEWEST: u64 = 64;
/// Descriptors for all connections of clients, and ports.
const ENOUGH: u64 = 1024;

/// The capabilities that this process has.
pub(super) fn held() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

pub(super) fn check() -> Vec<Finding> {
    let user = geteuid().as_raw();
    vec![capability_finding(held(), user), descriptors(getrlimit(Resource::Nofile).maximum), group()]
}

fn capability_finding(held: CapabilitySet, user: u32) -> Finding {
    const NEEDED: [(CapabilitySet, &str); 2] =
        [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), (CapabilitySet::NET_RAW, "CAP_NET_RAW")];
    const XDP: [(CapabilitySet, &str); 2] =
        [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")];
    let missing = |of: &[(CapabilitySet, &str)]| {
        let missing = of.iter().filter(|(capability, _)| !held.contains(*capability));
        missing.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    };
    let (needed, xdp) = (missing(&NEEDED), missing(&XDP));
    if !needed.is_empty() {
        return Finding::failure(
            "capabilities",
            format!("user {user} has no {needed}: only `null` and `pcap` interfaces can be opened"),
            "run the daemon as root (it gives up what it does not need), or by its systemd unit",
        );
    }
    // CAP_SYS_ADMIN includes them (capabilities(7)).
    if !xdp.is_empty() && !held.contains(CapabilitySet::SYS_ADMIN) {
        return Finding::warning(
            "capabilities",
            format!("user {user} has no {xdp}: `af-xdp` interfaces cannot be opened or are slower"),
            "give them, or use `af-packet`",
        );
    }
    Finding::ok("capabilities", format!("user {user} has those of all kinds of interfaces"))
}

fn descriptors(most: Option<u64>) -> Finding {
    let advice = "raise the limit (ulimit -Hn, LimitNOFILE=)";
    match most {
        Some(n) if n < FEWEST => {
            Finding::failure("descriptors", format!("{n} files may be open, and {FEWEST} are needed"), advice)
        }
        Some(n) if n < ENOUGH => {
            Finding::warning("descriptors", format!("only {n} files may be open"), advice)
        }
        Some(n) => Finding::ok("descriptors", format!("{n} files may be open")),
        None => Finding::ok("descriptors", "not limited"),
    }
}

fn group() -> Finding {
    match nix::unistd::Group::from_name("mmb") {
        Ok(Some(_)) => Finding::ok("group", "members of the group mmb may use the socket"),
        _ => {
            Finding::ok("group", "there is no group mmb: only the daemon's user and root may use the socket")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        let all = CapabilitySet::all();
        for (held, status, word) in [
            (all, Status::Ok, "all kinds"),
            (all.difference(CapabilitySet::NET_RAW), Status::Failure, "no CAP_NET_RAW:"),
            (CapabilitySet::empty(), Status::Failure, "no CAP_NET_ADMIN, CAP_NET_RAW:"),
            (all.difference(CapabilitySet::BPF), Status::Ok, "all kinds"),
            (CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW, Status::Warning, "no CAP_BPF, CAP_PERFMON:"),
        ] {
            let finding = capability_finding(held, 7);
            assert_eq!(finding.status, status);
            assert!(finding.text.contains(word), "{finding:?}");
        }
    }

    #[test]
    fn descriptors_have_two_limits() {
        let statuses = [Some(63), Some(64), Some(1023), Some(1024), None].map(|n| descriptors(n).status);
        assert_eq!(statuses, [Status::Failure, Status::Warning, Status::Warning, Status::Ok, Status::Ok]);
    }
}
