//! Errors of the mirror.

use std::io;

/// Why the mirror does not work.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// A resource of the mirror cannot be opened.
    #[error("cannot mirror the kernel's routes: no {resource}: {error}")]
    Start {
        /// What is missing: `eventfd`, `netlink socket` or `thread`.
        resource: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// The kernel's state is not known yet. The ports are used once it is.
    #[error("the kernel's routes are not all known after {seconds} s; they are used once they are")]
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
    Engine(String),
    /// The kernel has no such interface.
    #[error("{port}: the kernel has no interface {ifname}; it routes once there is one")]
    NoInterface {
        /// The operator's name for the port.
        port: String,
        /// The kernel's interface.
        ifname: String,
    },
    /// The twin of a port cannot be configured.
    #[error("{port}: its twin {ifname} does not take the port's MAC address, MTU or carrier: {error}")]
    Twin {
        /// The operator's name for the port.
        port: String,
        /// The twin's name.
        ifname: String,
        /// The kernel's reason.
        error: io::Error,
    },
    /// The interface for packets to the kernel cannot get an address.
    #[error("{ifname} gets no address, so that the kernel may drop what comes from it: {error}")]
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
    #[error("the kernel goes on forwarding on {ifname} by itself, since {path} cannot be set: {error}")]
    Isolation {
        /// The kernel's interface.
        ifname: String,
        /// The setting.
        path: String,
        /// The system's reason.
        error: io::Error,
    },
}
