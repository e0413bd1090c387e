//! A frame simulator with chains.

use std::sync::{Arc, MutexGuard};

use mmb_dataplane::{DEFAULT_SCRATCHPAD, Forwarding, Policy, PortConfig, PortId};
use mmb_flow::NatConfig;
use mmb_lang::{Command, Match, parse_line};
use mmb_nf::{Order, Program, ProgramSpec};
use mmb_packet::build::{Frame, Ip4, Udp};
use mmb_policy::pool_config;
use mmb_route::{L3Interface, NextHop, NextHopKind, RouteTable, Routes};
use mmb_simulate::FrameSimulator;

use super::common::alone;
use super::functions::registry;

pub const LEFT: PortId = PortId(0);
pub const RIGHT: PortId = PortId(1);
/// A port without a wire.
pub const SIDE: PortId = PortId(2);
pub const INSIDE: [u8; 4] = [10, 0, 0, 5];
pub const OUTSIDE: [u8; 4] = [198, 51, 100, 9];

pub fn port(name: &str) -> Option<u16> {
    let of = |port: PortId| Some(port.0);
    match name {
        "left" => of(LEFT),
        "right" => of(RIGHT),
        "side" => of(SIDE),
        _ => None,
    }
}

/// The configuration of these lines between the ends of a wire; instances of `before` are kept.
pub fn forwarding(lines: &[&str], before: Option<&Forwarding>) -> Forwarding {
    let (mut rules, mut functions, mut chains, mut pools) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for line in lines {
        match parse_line(line) {
            Ok(Some(Command::Add(rule))) => rules.push(rule),
            Ok(Some(Command::NfAdd(add))) => functions.push(add),
            Ok(Some(Command::ChainAdd(chain))) => chains.push(chain),
            Ok(Some(Command::NatPoolAdd(pool))) => {
                let range = pool.addresses.range().expect("fixed addresses");
                pools.push(pool_config(&pool, range).expect("a pool"));
            }
            other => panic!("{line}: {other:?}"),
        }
    }
    let program = Program::compile(&ProgramSpec {
        functions: &functions,
        chains: &chains,
        registry: &registry(),
        resolve_port: &port,
        has_pool: &|name| pools.iter().any(|pool| pool.name() == name),
        workers: 2,
        seed: 1,
        files: &Default::default(),
        processes: Default::default(),
        previous: before.map(|before| &*before.chains),
        scratchpad_limit: DEFAULT_SCRATCHPAD,
        order: Order::Maximal,
    });
    let program = program.expect("a sound program");
    let class =
        |name: &str| -> Option<Vec<Match>> { program.chain(name).map(|chain| program.class(chain).to_vec()) };
    let none = Policy::new();
    let policy = before.map_or(&none, |before| &before.policy).replace_with(&rules, &port, &class);
    Forwarding {
        policy: policy.expect("sound rules"),
        chains: Arc::new(program),
        nat: Arc::new(NatConfig::new(pools, Vec::new()).expect("pools")),
        ports: vec![PortConfig::wire(LEFT, RIGHT), PortConfig::wire(RIGHT, LEFT)],
        ..Forwarding::default()
    }
}

/// The configuration on a router with one route, by `RIGHT`.
pub fn routed(lines: &[&str]) -> Forwarding {
    let ports = [LEFT, RIGHT].map(|id| PortConfig::routed(id, None)).to_vec();
    Forwarding { ports, ..forwarding(lines, None) }
}

pub const LEFT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const RIGHT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const NEIGHBOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn routes() -> Routes {
    let mut routes = Routes::default();
    let face = |mac| Some(L3Interface { table: 0, mac, ip4: None, ip6: None });
    routes.interfaces = vec![face(LEFT_MAC), face(RIGHT_MAC)];
    let mut table = RouteTable::default();
    for (id, network, port, mac) in [(1, OUTSIDE, RIGHT, RIGHT_MAC), (2, INSIDE, LEFT, LEFT_MAC)] {
        let mut hop = NextHop {
            kind: NextHopKind::Forward,
            port: port.0,
            mtu: 1500,
            interface: 6,
            ..NextHop::default()
        };
        hop.header[..6].copy_from_slice(&NEIGHBOR_MAC);
        hop.header[6..].copy_from_slice(&mac);
        routes.hops.set(id, hop);
        table.ip4.insert(network.into(), 24, id);
    }
    routes.tables = vec![table];
    routes
}

/// A frame simulator, with the lock that a process needs for it.
pub struct World {
    pub lab: FrameSimulator,
    _alone: MutexGuard<'static, ()>,
}

pub fn world(forwarding: Forwarding) -> World {
    world_of(1, forwarding)
}

pub fn world_of(workers: usize, forwarding: Forwarding) -> World {
    let alone = alone();
    let lab = FrameSimulator::with_workers(workers, forwarding, routes(), 4096).expect("a lab");
    World { lab, _alone: alone }
}

impl World {
    /// The frames that leave after a frame arrives, at time 0.
    pub fn send(&mut self, port: PortId, frame: &[u8]) -> Vec<(PortId, Vec<u8>)> {
        self.lab.run(0, vec![(port, frame.to_vec())])
    }

    /// Dropped packets by reason.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        self.lab.drops().into_iter().map(|(reason, n)| (reason.name(), n)).collect()
    }
}

/// A datagram from inside with this source port.
pub fn there(port: u16, payload: &[u8]) -> Vec<u8> {
    let net = Ip4 { id: 0, ..Ip4::new(INSIDE, OUTSIDE) };
    Frame::new(net, Udp::new(port, 53)).macs(NEIGHBOR_MAC, LEFT_MAC).payload(payload).build()
}

/// The answer to that datagram.
pub fn back(port: u16, payload: &[u8]) -> Vec<u8> {
    let net = Ip4 { id: 0, ..Ip4::new(OUTSIDE, INSIDE) };
    Frame::new(net, Udp::new(53, port)).macs(NEIGHBOR_MAC, RIGHT_MAC).payload(payload).build()
}
