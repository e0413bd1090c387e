//! The rights that the daemon keeps.
//!
//! Theory of operation. Ports are added at run time, so the daemon keeps what opening a port needs, and gives
//! up everything else for good: capabilities (capabilities(7)), new privileges by `execve`, and the system
//! calls that it does not make ([`super::seccomp`]). This happens after the configuration and the socket are
//! there, and before any other thread is, since these rights belong to threads and are inherited. One thread
//! is made in between: it needs CAP_SYS_ADMIN, for a moment, to get a network namespace of its own, in which
//! transparent brokers work.

use std::ffi::CString;
use std::os::unix::fs::chown;
use std::path::Path;

use mmb_control::{Namespace, NamespaceError};
use nix::unistd::{Gid, Uid, User};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::seccomp;
use crate::failure::Failure;

/// What ports need: interfaces, netlink and settings in /proc/sys/net (NET_ADMIN), packet sockets (NET_RAW),
/// XDP programs and their maps (BPF), XDP programs without the barriers that the kernel adds to those of
/// others (PERFMON), memory that a device shares (IPC_LOCK).
const PORTS: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK);

/// What network cards without an IOMMU need besides: physical addresses, and ports of the processor.
const PHYSICAL: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_RAWIO);

/// Descriptors that the daemon needs at least: 24 of its own, and some for ports and clients.
const DESCRIPTORS: u64 = 64;

/// What the administrator wants the daemon to be.
pub struct Wanted<'a> {
    /// The user whose identity it takes; none: it stays what it is.
    pub user: Option<&'a str>,
    /// Whether it may make any system call.
    pub any_system_call: bool,
    /// Whether brokers may listen on ports below 1024.
    pub low_ports: bool,
    /// Directories that the user has to own.
    pub directories: Vec<&'a Path>,
}

/// Gives up all rights that the daemon does not need. Returns the network namespace of transparent brokers.
///
/// # Errors
/// The user does not exist, or the system refuses.
pub fn restrict(wanted: &Wanted<'_>) -> Result<Result<Namespace, NamespaceError>, Failure> {
    let failed =
        |what: &'static str| move |error: std::io::Error| Failure::new(format!("cannot {what}: {error}"));
    raise_descriptors()?;
    let physical = mmb_dataplane::needs_physical_addresses();
    let mut needed = if physical { PORTS | PHYSICAL } else { PORTS };
    needed.set(CapabilitySet::NET_BIND_SERVICE, wanted.low_ports);
    drop_bounds(needed);
    if let Some(name) = wanted.user {
        become_user(name, &wanted.directories)?;
    }
    let held = capabilities(None).map_err(|error| failed("read the capabilities")(error.into()))?;
    keep(held.permitted & (needed | CapabilitySet::SYS_ADMIN)).map_err(failed("give up capabilities"))?;
    rustix::thread::set_no_new_privs(true).map_err(|error| failed("give up new privileges")(error.into()))?;
    let namespace = Namespace::start(move || keep(held.permitted & needed));
    keep(held.permitted & needed).map_err(failed("give up capabilities"))?;
    if !wanted.any_system_call {
        let limited = seccomp::limit_process(physical);
        limited.map_err(|reason| {
            Failure::new(format!("cannot limit system calls: {reason}; see --no-seccomp"))
        })?;
    }
    Ok(namespace)
}

/// Gives up all capabilities of the calling thread but these.
fn keep(kept: CapabilitySet) -> std::io::Result<()> {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

/// Raises the limit of open descriptors as far as the process may.
///
/// # Errors
/// It is too low for a daemon with a few ports and clients.
fn raise_descriptors() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    // With fewer descriptors, fewer ports can be opened.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    match getrlimit(Resource::Nofile).current {
        Some(most) if most < DESCRIPTORS => Err(Failure::new(format!(
            "the process may open {most} files, and needs {DESCRIPTORS}; raise the limit (ulimit -n, LimitNOFILE=)"
        ))),
        _ => Ok(()),
    }
}

/// Removes capabilities from those that the process could ever get.
fn drop_bounds(needed: CapabilitySet) {
    for capability in CapabilitySet::all().difference(needed).iter() {
        // Who may not do this has nothing to give up, and the kernel may not know the newest ones.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
}

/// Takes the identity of a user and keeps the capabilities.
fn become_user(name: &str, directories: &[&Path]) -> Result<(), Failure> {
    let user = User::from_name(name).ok().flatten();
    let user = user.ok_or_else(|| Failure::new(format!("there is no user `{name}`; see useradd(8)")))?;
    let (uid, gid) = (user.uid, user.gid);
    for directory in directories {
        chown(directory, Some(uid.as_raw()), Some(gid.as_raw())).map_err(|error| {
            Failure::new(format!("cannot give {} to the user `{name}`: {error}", directory.display()))
        })?;
    }
    let failed = |error| Failure::new(format!("cannot become the user `{name}`: {error}"));
    let c_name = CString::new(name).map_err(|_| Failure::new(format!("there is no user `{name}`")))?;
    rustix::thread::set_keep_capabilities(true).map_err(|error| failed(error.to_string()))?;
    take_identity(&c_name, uid, gid).map_err(|error| failed(error.to_string()))
}

fn take_identity(name: &CString, uid: Uid, gid: Gid) -> nix::Result<()> {
    nix::unistd::initgroups(name, gid)?;
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)
}
