//! A network namespace of the process, in which the kernel accepts connections to any address.
//!
//! Theory of operation. Connections to the addresses of others are accepted on the kernel's TCP, which must
//! take these addresses for its own. In the network namespace of the machine this would concern its own
//! traffic: it would take policy routes, and pass the machine's firewall. So a thread has a namespace of its
//! own, with nothing in it but `lo` and the TAPs that lead to mmb. What comes in by a TAP is local, whatever
//! its destination; what the kernel sends leaves by a TAP. The kernel removes all of it with the process,
//! however the process ends.
//!
//! A namespace belongs to threads, and sockets to the namespace of the thread that makes them. So everything
//! that is to be in the namespace is made by jobs of its thread ([`Namespace::run`]). Descriptors can then be
//! used anywhere.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};

use crate::netlink::NetlinkSocket;

/// The table of the routes that make all destinations local.
const LOCAL_TABLE: u8 = 100;
/// Settings of interfaces that are made later. The kernel has no address in the namespace, checks no source
/// against routes, and sends nothing of its own accord.
const SETTINGS: [(&str, &str); 8] = [
    // Other ports than those that clients use: the address may be that of a client.
    ("ipv4/ip_local_port_range", "10240 32767"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/router_solicitations", "0"),
];
/// Both address families.
const FAMILIES: [libc::c_int; 2] = [libc::AF_INET, libc::AF_INET6];

/// The reason for which the daemon has no network namespace of its own.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The process may not make one.
    #[error(
        "the daemon was started without the right to make a network namespace; start it as root, or with \
         CAP_SYS_ADMIN, which it gives up after the start"
    )]
    NotPermitted,
    /// The kernel refuses.
    #[error("the kernel makes no network namespace for it: {0}")]
    Refused(io::Error),
}

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace, with a thread in it. Both end when the value is dropped, as soon as no socket is left
/// in the namespace.
pub struct Namespace(Sender<Job>);

impl Namespace {
    /// Makes a namespace. `give_up`: called by its thread when it needs no right to make one any more.
    ///
    /// # Errors
    /// The process may not, or has no room for a thread. `give_up` fails.
    pub fn start(
        give_up: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<Namespace, NamespaceError> {
        let (jobs, received) = channel::<Job>();
        let (started, result) = channel();
        let thread = thread::Builder::new().name("mmb-namespace".to_owned()).spawn(move || {
            let made = unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
            let is_made = started.send(give_up().and(made).and_then(|()| prepare()));
            if is_made.is_ok() {
                received.into_iter().for_each(|job| job());
            }
        });
        thread.map_err(NamespaceError::Refused)?;
        match result.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())) {
            Ok(()) => Ok(Namespace(jobs)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(NamespaceError::NotPermitted)
            }
            Err(error) => Err(NamespaceError::Refused(error)),
        }
    }

    /// Runs a job in the namespace, and waits for it.
    ///
    /// # Errors
    /// A job before has panicked.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (sender, result) = channel();
        let gone = || io::Error::other("the thread of the network namespace has ended");
        self.0.send(Box::new(move || drop(sender.send(job())))).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())
    }

    /// Makes the kernel send what is for others by a TAP of the namespace, and returns its index. Of several
    /// TAPs it uses any.
    ///
    /// # Errors
    /// There is no such interface, or the kernel refuses.
    pub fn connect(&self, tap: &str) -> io::Result<u32> {
        let tap = tap.to_owned();
        self.run(move || {
            let index = if_nametoindex(tap.as_str())?;
            let mut netlink = NetlinkSocket::requests()?;
            // Without ARP, the kernel needs no address of a neighbour.
            netlink.add_link_flags(index, libc::IFF_UP | libc::IFF_NOARP)?;
            for family in FAMILIES {
                let table = libc::RT_TABLE_MAIN;
                ignore_no_ip6(
                    family,
                    netlink.add_default_route(family, table, libc::RTN_UNICAST, (index, index)),
                )?;
            }
            Ok(index)
        })?
    }
}

/// Prepares the namespace of the calling thread.
fn prepare() -> io::Result<()> {
    for (setting, value) in SETTINGS {
        // Where settings are read-only, the defaults mostly work.
        let _ = std::fs::write(format!("/proc/sys/net/{setting}"), value);
    }
    let mut netlink = NetlinkSocket::requests()?;
    let lo = if_nametoindex("lo")?;
    netlink.add_link_flags(lo, libc::IFF_UP)?;
    for family in FAMILIES {
        ignore_no_ip6(family, netlink.add_default_route(family, LOCAL_TABLE, libc::RTN_LOCAL, (lo, 0)))?;
        // What the kernel sends itself comes in by `lo`, for routes.
        ignore_no_ip6(family, netlink.add_rule_except(family, "lo", LOCAL_TABLE))?;
    }
    Ok(())
}

/// A kernel without IPv6 refuses its routes, and needs none.
fn ignore_no_ip6(family: libc::c_int, result: io::Result<()>) -> io::Result<()> {
    let has_ip6 = || std::path::Path::new("/proc/sys/net/ipv6").exists();
    if family == libc::AF_INET6 && !has_ip6() { Ok(()) } else { result }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Needs the right to make a namespace, as other tests of this crate do.
    #[test]
    fn everything_is_local_to_the_namespace() {
        let Ok(namespace) = Namespace::start(|| Ok(())) else { return };
        let addresses = ["192.0.2.1:0", "[2001:db8::1]:0"];
        for address in addresses {
            assert!(TcpListener::bind(address).is_err(), "the machine itself has not changed");
        }
        let interfaces =
            namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
        assert_eq!(interfaces.lines().count(), 3, "two lines of titles, and lo: {interfaces}");
        let routes =
            namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap()).unwrap();
        assert!(routes.contains("Id 100:") && routes.contains("/0 host LOCAL"), "{routes}");
        assert!(namespace.connect("none").is_err());
    }
}
