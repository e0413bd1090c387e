//! Errors outside the packet path.

mod graph;
mod memory;

use std::ffi::CStr;

use mmb_dpdk_sys as sys;

pub use graph::GraphError;
pub use memory::{PoolError, RingError};

/// An error of the engine, in one sentence that names its object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The environment is needed, but [`crate::Eal::init`] was not called.
    #[error("the packet engine is not started yet")]
    NotStarted,
    /// [`crate::Eal::init`] was called a second time.
    #[error("the packet engine is started already; a process has only one")]
    StartedAlready,
    /// The environment does not start.
    #[error("the packet engine does not start: {reason}")]
    Start {
        /// EAL's reason.
        reason: String,
    },
    /// A packet pool cannot be made.
    #[error("cannot make the packet pool '{name}': {error}")]
    Pool {
        /// Its name.
        name: String,
        /// The reason.
        error: PoolError,
    },
    /// A ring cannot be made.
    #[error("cannot make the ring '{name}': {error}")]
    Ring {
        /// Its name.
        name: String,
        /// The reason.
        error: RingError,
    },
    /// A graph cannot be built.
    #[error("cannot make the graph '{name}': {error}")]
    Graph {
        /// Its name.
        name: String,
        /// The reason.
        error: GraphError,
    },
    /// The thread cannot be registered.
    #[error("this thread cannot become a worker: {reason} (at most {} threads can)", sys::RTE_MAX_LCORE - 1)]
    Thread {
        /// Why not.
        reason: String,
    },
    /// A port cannot be opened or asked.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// Why a port cannot be opened, or what it refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The kernel has no interface of that name.
    #[error("port {port}: there is no network interface '{interface}' (see: ip link)")]
    NoInterface {
        /// Name of the port.
        port: String,
        /// Name of the interface.
        interface: String,
    },
    /// The interface is not up, and this kind of port needs it to be.
    #[error("port {port}: interface {interface} is down (try: ip link set {interface} up)")]
    InterfaceDown {
        /// Name of the port.
        port: String,
        /// Name of the interface.
        interface: String,
    },
    /// The process lacks a privilege.
    #[error("port {port}: not permitted to {what} (run as root, or give the program {capability})")]
    NotPermitted {
        /// Name of the port.
        port: String,
        /// The refused operation.
        what: &'static str,
        /// The capability that allows it.
        capability: &'static str,
    },
    /// The frames of the interface are longer than the port can take.
    #[error("port {port}: frames of MTU {mtu} do not fit, {limit} is the maximum {reason}")]
    MtuTooLarge {
        /// Name of the port.
        port: String,
        /// MTU of the interface, or the requested one.
        mtu: u32,
        /// The largest MTU this port takes.
        limit: u32,
        /// The reason of the limit, and the remedy.
        reason: String,
    },
    /// The interface has several receive queues, and this kind of port uses only the first.
    #[error(
        "port {port}: interface {interface} spreads its traffic over {queues} queues, and XDP uses one \
         (try: ethtool -L {interface} combined 1)"
    )]
    TooManyQueues {
        /// Name of the port.
        port: String,
        /// Name of the interface.
        interface: String,
        /// Receive queues it has.
        queues: u32,
    },
    /// The packet pool is unsuitable for this kind of port.
    #[error("port {port}: its packet pool {reason}")]
    Pool {
        /// Name of the port.
        port: String,
        /// The pool's fault, as the end of a sentence.
        reason: String,
    },
    /// PCI devices need huge pages, and there are none.
    #[error(
        "port {port}: a PCI device needs huge pages, and the engine runs without \
         (try: sysctl vm.nr_hugepages=512, then start again)"
    )]
    NeedsHugePages {
        /// Name of the port.
        port: String,
    },
    /// A string that cannot stand in a device argument.
    #[error("port {port}: '{value}' cannot stand in a device argument")]
    BadArgument {
        /// Name of the port.
        port: String,
        /// The offending text.
        value: String,
    },
    /// Any other refusal of the driver.
    #[error("port {port}: cannot {step}: {reason}")]
    Driver {
        /// Name of the port.
        port: String,
        /// The failed step, as the end of a sentence that begins with "cannot".
        step: &'static str,
        /// The error number (positive), 0 if the driver gave none.
        errno: i32,
        /// The driver's last message, or the error number in words.
        reason: String,
    },
}

/// Why memory that the kernel shares with a port cannot be had.
pub(crate) const NO_LOCKED_MEMORY: &str =
    "the process may not lock enough memory (try: ulimit -l unlimited, or give it cap_ipc_lock)";

/// The description of an error number; its sign is ignored.
pub(crate) fn strerror(errno: i32) -> String {
    // SAFETY: rte_strerror returns a static or thread-local zero-terminated string for any number.
    unsafe { CStr::from_ptr(sys::rte_strerror(errno.saturating_abs())) }.to_string_lossy().into_owned()
}

/// The calling thread's last DPDK error number.
pub(crate) fn last_errno() -> i32 {
    // SAFETY: reads a thread-local variable of EAL.
    unsafe { sys::mmb_errno() }
}
