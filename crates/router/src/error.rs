//! Errors of the mirror.

use std::io;

/// Why the mirror does not work.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// A resource of the mirror cannot be opened.
    #[error("cannot mirror the kernel's routes: no {resource}: {error}")]
    Start {
        /// The missing thing: `eventfd`, `netlink socket` or `thread`.
        resource: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// The kernel's state is not known yet. The ports are used once it is.
    #[error(
        "timed out: the kernel's routes are not all known after {seconds} s; they take effect once they are"
    )]
    TimedOut {
        /// Waiting time in seconds.
        seconds: u64,
    },
    /// Something could not be done for some ports. The others are used.
    #[error("{}", .0.iter().map(PortFault::to_string).collect::<Vec<_>>().join("; "))]
    Ports(Vec<PortFault>),
}

/// Something that could not be done for a routed port.
#[derive(Debug, thiserror::Error)]
pub enum PortFault {
    /// The engine cannot leave the kernel's packets to the kernel.
    #[error("{0}")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The kernel has no such interface.
    #[error("{port}: the kernel has no interface {ifname}; the port routes once it exists")]
    NoInterface {
        /// The operator's name for the port.
        port: String,
        /// The kernel's interface.
        ifname: String,
    },
    /// The twin of a port cannot be configured.
    #[error("{port}: cannot set MAC address, MTU or carrier of its twin {ifname}: {error}")]
    Twin {
        /// The operator's name for the port.
        port: String,
        /// The twin's name.
        ifname: String,
        /// The kernel's reason.
        error: io::Error,
    },
    /// The interface for packets to the kernel cannot get an address.
    #[error("cannot give {ifname} an address, so the kernel may drop packets from it: {error}")]
    PuntAddress {
        /// The interface's name.
        ifname: &'static str,
        /// The kernel's reason.
        error: io::Error,
    },
    /// The interface behind a port does not exist.
    #[error("the kernel has no interface {ifname}")]
    NoRealInterface {
        /// The kernel's interface.
        ifname: String,
    },
    /// The kernel cannot be kept from forwarding on the interface behind a port.
    #[error("the kernel still forwards on {ifname} itself: cannot write {path}: {error}")]
    Isolation {
        /// The kernel's interface.
        ifname: String,
        /// The setting.
        path: String,
        /// The system's reason.
        error: io::Error,
    },
}
