//! Test support: a network namespace for each test, lookups by the kernel, and a fake engine.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use mmb_route::{NextHop, NextHopKind, Routes};
use mmb_router::{
    Device, ForwardingPlane, LocalTraffic, NeighborRequest, PortNumber, PortState, RoutedPort, Router,
};
use netlink_packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::sched::{CloneFlags, unshare};
use nix::sys::eventfd::EventFd;

/// Timeout of all waits.
pub const TIMEOUT: Duration = Duration::from_secs(15);

/// Runs a test in a network namespace of its own thread. Prints a message if that is not possible.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: no network namespace (it takes root)");
            return;
        }
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("skipped: no network namespace ({e})");
            return;
        }
        ip("link set lo up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}

/// Runs many commands.
pub fn ip_batch(commands: &str) {
    let mut child = Command::new("ip")
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    child.wait().unwrap();
}

pub fn sysctl(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
}

pub fn read_sysctl(path: &str) -> String {
    std::fs::read_to_string(format!("/proc/sys/net/{path}")).unwrap().trim().to_owned()
}

pub fn index_of(interface: &str) -> u32 {
    std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or_else(|| nix::net::if_::if_nametoindex(interface).unwrap())
}

/// A fake engine that records what the mirror tells it.
pub struct FakeEngine {
    recorded: Mutex<Recorded>,
    changed: Condvar,
    event: EventFd,
}

#[derive(Default)]
pub struct Recorded {
    pub routes: Routes,
    pub publications: u64,
    pub local: Vec<(PortNumber, Option<LocalTraffic>)>,
    pub state: Option<PortState>,
    /// Publications without a route to this address are counted.
    pub watched: Option<IpAddr>,
    pub interruptions: u64,
    requests: Vec<NeighborRequest>,
    /// Publications wait from the moment when the mirror takes requests.
    hold_after_requests: bool,
    is_holding: bool,
}

impl FakeEngine {
    pub fn new() -> Arc<FakeEngine> {
        Arc::new(FakeEngine {
            recorded: Mutex::default(),
            changed: Condvar::new(),
            event: EventFd::new().unwrap(),
        })
    }

    pub fn routes(&self) -> Routes {
        self.recorded.lock().unwrap().routes.clone()
    }

    pub fn recorded<R>(&self, f: impl FnOnce(&mut Recorded) -> R) -> R {
        f(&mut self.recorded.lock().unwrap())
    }

    /// Makes changes and a request that the mirror takes in one turn. Their publication waits for
    /// [`FakeEngine::release_publications`].
    pub fn request_neighbor_with(&self, request: NeighborRequest, changes: impl FnOnce()) {
        let mut recorded = self.recorded.lock().unwrap();
        changes();
        recorded.requests.push(request);
        recorded.hold_after_requests = true;
        self.event.write(1).unwrap();
    }

    pub fn release_publications(&self) {
        self.recorded(|recorded| (recorded.hold_after_requests, recorded.is_holding) = (false, false));
        self.changed.notify_all();
    }

    /// Waits for a condition. Returns the waiting time.
    pub fn wait(&self, what: &str, mut so: impl FnMut(&Recorded) -> bool) -> Duration {
        let start = Instant::now();
        let recorded = self.recorded.lock().unwrap();
        let (_told, waited) =
            self.changed.wait_timeout_while(recorded, TIMEOUT, |recorded| !so(recorded)).unwrap();
        assert!(!waited.timed_out(), "never: {what}");
        start.elapsed()
    }

    /// Waits until packets to an address have such a next hop. Returns the waiting time.
    pub fn wait_for_hop(&self, address: &str, so: impl Fn(&NextHop) -> bool) -> Duration {
        let to: IpAddr = address.parse().unwrap();
        self.wait(address, |recorded| hops(&recorded.routes, 0, to).iter().any(&so))
    }

    pub fn request_neighbor(&self, interface: u32, address: &str) {
        self.recorded
            .lock()
            .unwrap()
            .requests
            .push(NeighborRequest { interface, address: address.parse().unwrap() });
        self.event.write(1).unwrap();
    }
}

impl ForwardingPlane for FakeEngine {
    type Error = Infallible;

    fn publish_routes(&self, routes: Routes) {
        let recorded = self.recorded.lock().unwrap();
        let mut recorded = self.changed.wait_while(recorded, |recorded| recorded.is_holding).unwrap();
        recorded.routes = routes;
        recorded.publications += 1;
        if let Some(to) = recorded.watched {
            recorded.interruptions += u64::from(mirrored(&recorded.routes, to).contains(&Fate::None));
        }
        self.changed.notify_all();
    }

    fn set_local_traffic(&self, port: PortNumber, local: Option<&LocalTraffic>) -> Result<(), Infallible> {
        self.recorded.lock().unwrap().local.push((port, local.cloned()));
        self.changed.notify_all();
        Ok(())
    }

    fn neighbor_requests_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn take_neighbor_requests(&self) -> Vec<NeighborRequest> {
        let mut recorded = self.recorded.lock().unwrap();
        let requests = std::mem::take(&mut recorded.requests);
        if !requests.is_empty() {
            recorded.is_holding = recorded.hold_after_requests;
            let _ = self.event.read();
        }
        requests
    }

    fn port_state(&self, _: PortNumber) -> Option<PortState> {
        self.recorded.lock().unwrap().state
    }
}

/// Ports on these kernel interfaces, numbered from 0.
pub fn ports(names: &[&str]) -> Vec<RoutedPort> {
    let port = |(id, name): (usize, &&str)| RoutedPort {
        port: id as u16,
        name: format!("p{id}"),
        ifname: name.to_string(),
        device: Device::Xdp,
    };
    names.iter().enumerate().map(port).collect()
}

/// A mirror with ports on these interfaces.
pub fn mirror(names: &[&str]) -> (Arc<FakeEngine>, Router) {
    let fake = FakeEngine::new();
    let router = Router::start(fake.clone(), None).unwrap();
    router.set_ports(ports(names), Vec::new()).unwrap();
    (fake, router)
}

/// The possible next hops of packets to an address.
pub fn hops(routes: &Routes, table: usize, to: IpAddr) -> Vec<NextHop> {
    let table = &routes.tables[table];
    let id = match to {
        IpAddr::V4(to) => table.ip4.lookup(to.into()),
        IpAddr::V6(to) => table.ip6.lookup(to.into()),
    };
    let hop = *routes.hops.get(id);
    if hop.kind != NextHopKind::Group {
        return vec![hop];
    }
    let members = &routes.hops.members()[hop.first as usize..][..usize::from(hop.members)];
    members.iter().map(|id| *routes.hops.get(*id)).collect()
}

/// The treatment of a packet, in terms that the kernel and the mirror share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Via(u32, IpAddr),
    Kernel,
    None,
    Blackhole,
    Unreachable,
    Prohibit,
}

/// The treatment of packets to an address by the mirror.
pub fn mirrored(routes: &Routes, to: IpAddr) -> BTreeSet<Fate> {
    let fate = |hop: &NextHop| match hop.kind {
        NextHopKind::NoRoute => Fate::None,
        NextHopKind::Forward | NextHopKind::Resolve | NextHopKind::Failed => {
            Fate::Via(hop.interface, hop.gateway.unwrap_or(to))
        }
        NextHopKind::Punt => Fate::Kernel,
        NextHopKind::Blackhole => Fate::Blackhole,
        NextHopKind::Unreachable => Fate::Unreachable,
        NextHopKind::Prohibit => Fate::Prohibit,
        NextHopKind::Group => panic!("a group in a group"),
    };
    hops(routes, 0, to).iter().map(fate).collect()
}

/// Lookups by the kernel.
pub struct Kernel(Socket);

impl Kernel {
    pub fn new() -> Kernel {
        let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
        socket.bind_auto().unwrap();
        Kernel(socket)
    }

    /// The treatment of packets to an address by the kernel: `ip route get`.
    pub fn fate(&self, to: IpAddr) -> Fate {
        let mut question = RouteMessage::default();
        let (family, length) = if to.is_ipv4() { (libc::AF_INET, 32) } else { (libc::AF_INET6, 128) };
        question.header.address_family = (family as u8).into();
        question.header.destination_prefix_length = length;
        question.attributes.push(RouteAttribute::Destination(to.into()));
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::GetRoute(question));
        message.header.flags = NLM_F_REQUEST;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0).unwrap();
        let mut answer = Vec::with_capacity(4096);
        self.0.recv(&mut answer, 0).unwrap();
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).unwrap().payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => of_route(&route, to),
            NetlinkPayload::Error(error) => match -error.code.unwrap().get() {
                libc::ENETUNREACH => Fate::None,
                libc::EHOSTUNREACH => Fate::Unreachable,
                libc::EACCES => Fate::Prohibit,
                libc::EINVAL => Fate::Blackhole,
                other => panic!("{to}: error {other}"),
            },
            other => panic!("{to}: {other:?}"),
        }
    }
}

fn of_route(route: &RouteMessage, to: IpAddr) -> Fate {
    match route.header.kind {
        RouteType::Unicast => {}
        RouteType::BlackHole => return Fate::Blackhole,
        RouteType::Unreachable => return Fate::Unreachable,
        RouteType::Prohibit => return Fate::Prohibit,
        _ => return Fate::Kernel,
    }
    let (mut interface, mut gateway) = (0, to);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = *index,
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => gateway = (*address).into(),
            RouteAttribute::Gateway(RouteAddress::Inet6(address)) => gateway = (*address).into(),
            RouteAttribute::Via(RouteVia::Inet6(address)) => gateway = (*address).into(),
            _ => {}
        }
    }
    Fate::Via(interface, gateway)
}

/// Compares the mirror with the kernel for these addresses.
pub fn compare(fake: &FakeEngine, addresses: impl IntoIterator<Item = IpAddr>) {
    let (routes, kernel) = (fake.routes(), Kernel::new());
    let mut compared = 0;
    for to in addresses {
        let (ours, theirs) = (mirrored(&routes, to), kernel.fate(to));
        assert!(ours.contains(&theirs), "{to}: the mirror says {ours:?}, the kernel {theirs:?}");
        compared += 1;
    }
    println!("{compared} destinations compared");
}

/// Runs many commands for IPv6.
pub fn ip6_batch(commands: &str) {
    let mut child = Command::new("ip")
        .args(["-6", "-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    child.wait().unwrap();
}
