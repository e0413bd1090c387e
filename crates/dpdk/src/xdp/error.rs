//! What the kernel refuses, and how it is reported.

use crate::error::{NO_LOCKED_MEMORY, PortError, strerror};

/// A step that the kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {step}: {}", strerror(*errno))]
pub struct XdpError {
    /// The step, as the end of a sentence that begins with "cannot".
    pub(crate) step: &'static str,
    /// The kernel's error number (positive).
    pub(crate) errno: i32,
}

impl XdpError {
    /// Names the step at which an error number occurred.
    pub(crate) fn at(step: &'static str) -> impl Fn(i32) -> XdpError {
        move |errno| XdpError { step, errno }
    }
}

/// What some drivers return for EOPNOTSUPP: a number that only the kernel defines.
pub(crate) const ENOTSUPP: i32 = 524;

/// The error of a port whose AF_XDP socket or XDP program was refused. `message` is the driver's own, if any.
pub(crate) fn port_error(port: &str, interface: &str, error: XdpError, message: Option<&str>) -> PortError {
    let XdpError { step, errno } = error;
    let port = port.to_owned();
    let words = strerror(errno);
    let reason = match errno {
        libc::EPERM | libc::EACCES => {
            let capability = "cap_net_raw, cap_net_admin and cap_bpf";
            return PortError::NotPermitted { port, what: "use AF_XDP", capability };
        }
        // A program in the driver, one before the kernel's stack, or a socket.
        libc::EBUSY | libc::EEXIST => {
            format!(
                "another program uses XDP on {interface} (see: ip link show {interface}; or use af-packet)"
            )
        }
        libc::EOPNOTSUPP | ENOTSUPP | libc::EINVAL => {
            format!("the driver of {interface} cannot do this with XDP (use af-packet): {words}")
        }
        libc::ERANGE => format!(
            "the MTU of {interface} or of its peer is too large for XDP (lower it, or use af-packet): {words}"
        ),
        libc::ENOBUFS => format!("{NO_LOCKED_MEMORY}: {words}"),
        libc::E2BIG => {
            format!("more than {} addresses of one family are local", mmb_dpdk_sys::STEER_LOCAL_MAX)
        }
        _ => message.map_or_else(|| words.clone(), |message| format!("{message}: {words}")),
    };
    PortError::Driver { port, step, errno, reason }
}
