//! A router with two ports, its routes, and helpers for frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mmb_dataplane::{Forwarding, Policy, PortConfig, PortId};
use mmb_lang::{Command, parse_line};
use mmb_packet::build::{Frame, Ip4, Ip6, Net, Udp};
use mmb_packet::checksum::{fold, sum};
use mmb_route::{L3Interface, NextHop, NextHopId, NextHopKind, RouteTable, Routes};
use mmb_simulate::FrameSimulator;

pub const LAN: PortId = PortId(0);
pub const WAN: PortId = PortId(1);
/// The port to the kernel.
pub const TWIN: PortId = PortId(2);
pub const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const LAN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x10];
pub const WAN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const HOST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5);
pub const ROUTER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
/// The kernel's index of the interface at WAN.
pub const WAN_INTERFACE: u32 = 7;

/// Next hops by purpose.
pub mod hops {
    pub const FAR: u32 = 1;
    pub const PUNT: u32 = 2;
    pub const NEAR: u32 = 3;
    pub const FAILED: u32 = 4;
    pub const BLACKHOLE: u32 = 5;
    pub const UNREACHABLE: u32 = 6;
    pub const PROHIBIT: u32 = 7;
    pub const GROUP: u32 = 8;
    pub const NARROW: u32 = 9;
    pub const HOME: u32 = 10;
    pub const GATEWAY: u32 = 11;
    pub const STALE: u32 = 12;
    pub const MEMBERS: [u32; 3] = [20, 21, 22];
}

/// Destinations of IPv4 and IPv6, and their next hop.
pub const WAYS: &[(&str, &str, NextHopId)] = &[
    ("198.51.100.0/24", "2001:db8:a::/48", hops::FAR),
    ("240.0.0.0/4", "2001:db8:b::/48", hops::FAR),
    ("10.0.0.1/32", "2001:db8:1::1/128", hops::PUNT),
    ("10.0.0.0/24", "2001:db8:1::/64", hops::HOME),
    ("192.0.2.0/24", "2001:db8:2::/64", hops::NEAR),
    ("192.0.2.9/32", "2001:db8:2::9/128", hops::FAILED),
    ("203.0.113.0/28", "2001:db8:5::/48", hops::BLACKHOLE),
    ("203.0.113.16/28", "2001:db8:6::/48", hops::UNREACHABLE),
    ("203.0.113.32/28", "2001:db8:7::/48", hops::PROHIBIT),
    ("198.18.0.0/15", "2001:db8:8::/48", hops::GROUP),
    ("100.64.0.0/10", "2001:db8:9::/48", hops::NARROW),
    ("172.16.0.0/12", "2001:db8:c::/48", hops::GATEWAY),
    ("203.0.113.48/28", "2001:db8:d::/48", hops::STALE),
];

/// The Ethernet address of the neighbour behind a next hop.
pub fn neighbor(hop: NextHopId) -> [u8; 6] {
    if hop == hops::HOME { HOST_MAC } else { [2, 0, 0, 0, 1, hop as u8] }
}

fn forward(id: NextHopId, port: PortId, mtu: u16) -> NextHop {
    let own = if port == LAN { LAN_MAC } else { WAN_MAC };
    let mut hop =
        NextHop { kind: NextHopKind::Forward, port: port.0, mtu, interface: 6, ..NextHop::default() };
    hop.header[..6].copy_from_slice(&neighbor(id));
    hop.header[6..].copy_from_slice(&own);
    hop
}

fn on_wan(kind: NextHopKind, gateway: Option<IpAddr>) -> NextHop {
    NextHop { kind, gateway, port: WAN.0, mtu: 1500, interface: WAN_INTERFACE, ..NextHop::default() }
}

pub fn insert(table: &mut RouteTable, prefix: &str, hop: NextHopId) {
    let (address, length) = prefix.split_once('/').expect("a prefix");
    let length = length.parse().expect("a length");
    match address.parse().expect("an address") {
        IpAddr::V4(address) => table.ip4.insert(address, length, hop),
        IpAddr::V6(address) => table.ip6.insert(address, length, hop),
    }
}

pub fn routes() -> Routes {
    let mut routes = Routes::default();
    let face = |mac, ip4, ip6| Some(L3Interface { table: 0, mac, ip4: Some(ip4), ip6: Some(ip6) });
    let wan6 = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
    routes.interfaces =
        vec![face(LAN_MAC, ROUTER, ROUTER6), face(WAN_MAC, Ipv4Addr::new(192, 0, 2, 1), wan6)];
    let gateway = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254)));
    let kind = |kind| NextHop { kind, ..NextHop::default() };
    let all = [
        (hops::FAR, forward(hops::FAR, WAN, 1500)),
        (hops::PUNT, kind(NextHopKind::Punt)),
        (hops::NEAR, on_wan(NextHopKind::Resolve, None)),
        (hops::FAILED, on_wan(NextHopKind::Failed, None)),
        (hops::BLACKHOLE, kind(NextHopKind::Blackhole)),
        (hops::UNREACHABLE, kind(NextHopKind::Unreachable)),
        (hops::PROHIBIT, kind(NextHopKind::Prohibit)),
        (hops::GROUP, NextHop { kind: NextHopKind::Group, first: 1, members: 3, ..NextHop::default() }),
        (hops::NARROW, forward(hops::NARROW, WAN, 1000)),
        (hops::HOME, forward(hops::HOME, LAN, 1500)),
        (hops::GATEWAY, on_wan(NextHopKind::Resolve, gateway)),
        (
            hops::STALE,
            NextHop { neighbor_stale: true, interface: WAN_INTERFACE, ..forward(hops::STALE, WAN, 1500) },
        ),
    ];
    all.into_iter().for_each(|(id, hop)| routes.hops.set(id, hop));
    hops::MEMBERS.into_iter().for_each(|id| routes.hops.set(id, forward(id, WAN, 1500)));
    *routes.hops.members_mut() = [&[0], &hops::MEMBERS[..]].concat();
    let mut table = RouteTable::default();
    for (ip4, ip6, hop) in WAYS {
        insert(&mut table, ip4, *hop);
        insert(&mut table, ip6, *hop);
    }
    routes.tables = vec![table];
    routes
}

/// Two routed ports, their twin, and rules.
pub fn forwarding(rules: &[&str]) -> Forwarding {
    let mut policy = Policy::new();
    let port = |name: &str| {
        Some(match name {
            "lan" => LAN.0,
            "wan" => WAN.0,
            _ => return None,
        })
    };
    for line in rules {
        let Ok(Some(Command::Add(rule))) = parse_line(line) else { panic!("{line}") };
        policy.add(&rule, &port).expect("a sound rule");
    }
    let enabled = !rules.is_empty();
    let routed = |id| PortConfig { enabled, ..PortConfig::routed(id, Some(TWIN)) };
    let twin = PortConfig { enabled: false, ..PortConfig::wire(TWIN, LAN) };
    Forwarding { policy, ports: vec![routed(LAN), routed(WAN), twin], ..Forwarding::default() }
}

/// DPDK runs once per process, and the tests of a file are threads of one process.
static ALONE: Mutex<()> = Mutex::new(());

/// A frame simulator, with the lock that a process needs for it.
pub struct World {
    pub lab: FrameSimulator,
    _alone: MutexGuard<'static, ()>,
}

pub fn world(forwarding: Forwarding) -> World {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    World { lab: FrameSimulator::new(forwarding, routes(), 1024).expect("a lab"), _alone: alone }
}

impl World {
    /// The frames that leave after a frame arrives at the LAN.
    pub fn send(&mut self, frame: &[u8]) -> Vec<(PortId, Vec<u8>)> {
        self.lab.run(0, vec![(LAN, frame.to_vec())])
    }

    /// Dropped packets by reason.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        self.lab.drops().into_iter().map(|(reason, n)| (reason.name(), n)).collect()
    }
}

pub fn ip4(to: &str) -> Ip4 {
    Ip4::new(HOST, to.parse::<Ipv4Addr>().expect("an address"))
}

pub fn ip6(to: &str) -> Ip6 {
    Ip6::new(HOST6, to.parse::<Ipv6Addr>().expect("an address"))
}

/// A datagram from the host to the router's Ethernet address.
pub fn udp(net: impl Into<Net>, payload: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..payload).map(|i| (i % 251) as u8).collect();
    Frame::new(net, Udp::new(5000, 53)).macs(HOST_MAC, LAN_MAC).payload(bytes).build()
}

/// The frame with the Ethernet addresses of a next hop.
pub fn behind(hop: NextHopId, frame: &[u8]) -> Vec<u8> {
    let own = if hop == hops::HOME { LAN_MAC } else { WAN_MAC };
    [&neighbor(hop)[..], &own, &frame[12..]].concat()
}

/// Type, code and the word behind the checksum of an ICMP error to the host that quotes this packet. Its
/// checksums are valid, it left by the LAN, and its TTL is not decremented.
pub fn error_about(out: &[(PortId, Vec<u8>)], packet: &[u8]) -> (u8, u8, u32) {
    let [(LAN, frame)] = out else { panic!("{} frames", out.len()) };
    assert_eq!(frame[..12], [HOST_MAC, LAN_MAC].concat());
    let (icmp, quoted) = if frame[12..14] == [8, 0] {
        assert_eq!(fold(sum(&frame[14..34], 0)), 0xffff, "header checksum");
        assert_eq!((frame[14], frame[22], frame[23]), (0x45, 64, 1));
        assert_eq!(frame[26..34], [ROUTER.octets(), HOST.octets()].concat());
        assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), frame.len() - 14);
        assert_eq!(fold(sum(&frame[34..], 0)), 0xffff, "ICMP checksum");
        (&frame[34..], 576 - 28)
    } else {
        assert_eq!((&frame[12..14], frame[20], frame[21]), (&[0x86, 0xdd][..], 58, 64));
        assert_eq!(frame[22..54], [ROUTER6.octets(), HOST6.octets()].concat());
        assert_eq!(usize::from(u16::from_be_bytes([frame[18], frame[19]])), frame.len() - 54);
        let pseudo = sum(&frame[22..54], 58 + (frame.len() - 54) as u32);
        assert_eq!(fold(sum(&frame[54..], pseudo)), 0xffff, "ICMPv6 checksum");
        (&frame[54..], 1280 - 48)
    };
    let original = &packet[14..];
    assert_eq!(icmp[8..], original[..original.len().min(quoted)], "quotation");
    (icmp[0], icmp[1], u32::from_be_bytes([icmp[4], icmp[5], icmp[6], icmp[7]]))
}
