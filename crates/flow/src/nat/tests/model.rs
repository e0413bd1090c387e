//! NAT against a plain model: lists that are searched from end to end.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

/// An internal or external endpoint: protocol, address, port.
type End = (u8, Ipv4Addr, u16);

/// A session that holds a mapping.
#[derive(Clone, Copy, Debug)]
struct Session {
    id: MappingId,
    key: Key,
    inside: End,
    outside: End,
    remote: Ipv4Addr,
    /// Whether the internal host opened the session.
    outward: bool,
    forward: bool,
}

/// A step of the test.
#[derive(Clone, Debug)]
enum Step {
    /// A packet from one of a few ports of a host to a remote address.
    Out { proto: u8, host: u16, port: u16, remote: u16 },
    /// A packet from a remote address to an external endpoint, of a session or invented.
    In { session: usize, made_up: Option<(u8, u16)>, remote: u16 },
    /// A session ends.
    End(usize),
    /// A change to another of the configurations.
    Adopt(usize),
}

fn steps(adopt: u32) -> impl Strategy<Value = Vec<Step>> {
    let proto = prop::sample::select(vec![6u8, 17, 1]);
    let ports = prop::sample::select(vec![1000u16, 1001, 2000, 2001, 2002, 2003, 5000, 5001]);
    let out = (proto.clone(), 0u16..12, ports, 0u16..5).prop_map(|(proto, host, port, remote)| Step::Out {
        proto,
        host,
        port,
        remote,
    });
    let inward = (any::<usize>(), prop::option::of((proto, 1995u16..2010)), 0u16..5)
        .prop_map(|(session, made_up, remote)| Step::In { session, made_up, remote });
    let end = any::<usize>().prop_map(Step::End);
    let step = prop_oneof![10 => out, 4 => inward, 6 => end, adopt => (0usize..6).prop_map(Step::Adopt)];
    prop::collection::vec(step, 1..300)
}

fn web() -> ForwardConfig {
    ForwardConfig::new(PortProto::Tcp, (outer(1), 2003), (host(3), 2000)).unwrap()
}

fn dns() -> ForwardConfig {
    ForwardConfig::new(PortProto::Udp, (outer(2), 2001), (host(4), 5000)).unwrap()
}

/// Forwards of all TCP ports of a block of three, and of more.
fn block_of_forwards() -> Vec<ForwardConfig> {
    let forward =
        |port| ForwardConfig::new(PortProto::Tcp, (outer(1), port), (host(4), port + 4000)).unwrap();
    (2001..2006).map(forward).collect()
}

/// Pools of several kinds, small enough to be exhausted.
fn kinds() -> impl Strategy<Value = PoolConfig> {
    prop::sample::select(vec![
        pool(2).with_ports(2000, 2009).unwrap(),
        pool(1).with_ports(1010, 1033).unwrap().with_filtering(Filtering::EndpointIndependent),
        pool(2).with_ports(1000, 1013).unwrap().with_filtering(Filtering::AddressAndPortDependent),
        pool(2).with_ports(2000, 2023).unwrap().with_block(2).unwrap(),
        pool(1).with_ports(1999, 2030).unwrap().with_block(3).unwrap().with_limit(6).unwrap(),
        pool(3).with_ports(2000, 2005).unwrap().with_limit(3).unwrap(),
    ])
}

struct Model {
    nat: Nat,
    sessions: Vec<Session>,
    config: Arc<NatConfig>,
    /// The host of each block.
    blocks: HashMap<(Ipv4Addr, (u16, u16)), Ipv4Addr>,
}

/// The key of a packet from an internal endpoint to a remote address, or from a remote address to an external
/// endpoint.
fn out_key(inside: End, remote: Ipv4Addr) -> Key {
    key(inside.0, (inside.1, inside.2), (remote, if inside.0 == 1 { ECHO } else { 80 }))
}

fn in_key(outside: End, remote: Ipv4Addr) -> Key {
    key(outside.0, (remote, if outside.0 == 1 { ECHO } else { 7 }), (outside.1, outside.2))
}

fn end(proto: PortProto, end: Endpoint) -> End {
    (proto.number(), end.address.into(), end.port)
}

impl Model {
    fn new(config: Arc<NatConfig>) -> Model {
        let nat = Nat::new(config.clone(), ROOM, 7).unwrap();
        Model { nat, sessions: vec![], config, blocks: HashMap::new() }
    }

    fn pool(&self) -> &PoolConfig {
        &self.config.pools()[0]
    }

    fn forward(&self, is: impl Fn(End, End) -> bool) -> Option<(End, End)> {
        let ends = |f: &ForwardConfig| (end(f.proto(), f.internal()), end(f.proto(), f.external()));
        self.config.forwards().iter().map(ends).find(|&(inside, outside)| is(inside, outside))
    }

    /// Sessions with mappings of hosts.
    fn dynamic(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter().filter(|session| !session.forward)
    }

    /// The external ports that a new mapping of an internal endpoint may get at an address.
    fn candidates(&self, inside: End, address: Ipv4Addr) -> Vec<u16> {
        let (low, high) = self.pool().ports();
        let class =
            |port: u16| (inside.0 == 1 && port >= 32) || inside.2 < 1024 || port >= 1024 || high < 1024;
        let free = |port: u16| {
            let outside = (inside.0, address, port);
            class(port)
                && !self.dynamic().any(|session| session.outside == outside)
                && self.forward(|_, external| external == outside).is_none()
                && self.may_allocate(inside.1, address, port)
        };
        (low..=high).filter(|&port| free(port)).collect()
    }

    /// Whether a port lies in a block that belongs to the host, or may become its block.
    fn may_allocate(&self, host: Ipv4Addr, address: Ipv4Addr, port: u16) -> bool {
        let Some(size) = self.pool().block() else { return true };
        let (low, high) = self.pool().ports();
        let first = low + (port - low) / size * size;
        let owner = self.blocks.get(&(address, (first, first + size - 1)));
        first + (size - 1) <= high && owner.is_none_or(|&owner| owner == host)
    }

    fn addresses(&self, host: Ipv4Addr) -> Vec<Ipv4Addr> {
        match self.dynamic().find(|session| session.inside.1 == host) {
            Some(session) => vec![session.outside.1],
            None => (1..=self.pool().len() as u16).map(outer).collect(),
        }
    }

    fn out(&mut self, inside: End, remote: Ipv4Addr) -> Result<(), TestCaseError> {
        let known = self.dynamic().find(|session| session.inside == inside).map(|session| session.outside);
        let forward =
            self.forward(|internal, external| internal == inside && self.pool().contains(external.1.into()));
        let own = self.dynamic().filter(|session| session.outward && session.inside.1 == inside.1).count();
        let limited = self.pool().limit().is_some_and(|limit| own >= limit as usize);
        let key = out_key(inside, remote);
        let mapped = self.nat.map(&key, P, inside_at(inside.1), 0);
        match mapped {
            Err(NatError::Limit) => prop_assert!(limited && (known.is_some() || forward.is_none())),
            Err(NatError::Exhausted) => {
                prop_assert!(known.is_none() && forward.is_none() && !limited);
                let left = self.addresses(inside.1).iter().any(|&a| !self.candidates(inside, a).is_empty());
                prop_assert!(!left, "{:?}", inside);
            }
            Err(NatError::Unsupported) => prop_assert!(false, "all of this is supported"),
            Ok(mapped) => {
                let (address, port) = outside(&mapped);
                let got = (inside.0, address, port);
                match (known, forward) {
                    (Some(known), _) => prop_assert_eq!(known, got),
                    (None, Some((_, external))) => prop_assert_eq!(external, got),
                    (None, None) => self.check_fresh(inside, address, port)?,
                }
                let forward = known.is_none() && forward.is_some();
                prop_assert!(forward || !limited);
                prop_assert_eq!(self.nat.host_location(mapped.id), Some(inside_at(inside.1)));
                self.sessions.push(Session {
                    id: mapped.id,
                    key,
                    inside,
                    outside: got,
                    remote,
                    outward: true,
                    forward,
                });
            }
        }
        Ok(())
    }

    /// A port for a host without mappings is one of the permitted ports, and the best of them.
    fn check_fresh(&self, inside: End, address: Ipv4Addr, port: u16) -> Result<(), TestCaseError> {
        prop_assert!(self.addresses(inside.1).contains(&address));
        let candidates = self.candidates(inside, address);
        prop_assert!(candidates.contains(&port), "{} of {:?}", port, candidates);
        if self.pool().block().is_some() {
            return Ok(());
        }
        if candidates.contains(&inside.2) {
            prop_assert_eq!(port, inside.2, "ports are preserved");
        } else if candidates.iter().any(|c| (*c < 1024) == (inside.2 < 1024)) {
            prop_assert_eq!(port < 1024, inside.2 < 1024, "low for low, high for high");
            let like = |c: &&u16| (**c < 1024) == (inside.2 < 1024) && **c % 2 == inside.2 % 2;
            if candidates.iter().find(like).is_some() {
                prop_assert_eq!(port % 2, inside.2 % 2, "parity is kept");
            }
        }
        Ok(())
    }

    fn inward(&mut self, to: End, remote: Ipv4Addr) -> Result<(), TestCaseError> {
        let forward = self.forward(|_, external| external == to);
        let holders: Vec<Session> = self.dynamic().filter(|session| session.outside == to).copied().collect();
        let expected = match (forward, holders.first(), self.pool().filtering()) {
            (Some((internal, _)), _, _) => Ok(internal),
            (None, None, _) => Err(InboundError::Unmapped),
            (None, Some(holder), Filtering::EndpointIndependent) => Ok(holder.inside),
            (None, Some(holder), Filtering::AddressDependent)
                if holders.iter().any(|s| s.remote == remote) =>
            {
                Ok(holder.inside)
            }
            (None, Some(_), _) => Err(InboundError::Filtered),
        };
        let key = in_key(to, remote);
        let arrived = self.nat.map_inbound(&key);
        let got = arrived.map(|a| (to.0, Ipv4Addr::from(a.address), u16::from_be_bytes(a.port)));
        prop_assert_eq!(got, expected);
        if let (Ok(arrived), Ok(inside)) = (arrived, expected) {
            let forward = forward.is_some();
            self.sessions.push(Session {
                id: arrived.id,
                key,
                inside,
                outside: to,
                remote,
                outward: false,
                forward,
            });
        }
        Ok(())
    }

    /// A block belongs to one host at a time: the host that has a port in it.
    fn check_blocks(&mut self) -> Result<(), TestCaseError> {
        while let Some(event) = self.nat.event() {
            match event.what {
                NatEventKind::BlockAllocated(block) => {
                    prop_assert_eq!(self.blocks.insert((block.address, block.ports), event.host), None);
                }
                NatEventKind::BlockFreed(block) => {
                    prop_assert_eq!(self.blocks.remove(&(block.address, block.ports)), Some(event.host));
                }
                NatEventKind::Exhausted(_) => {}
            }
        }
        if self.pool().block().is_none() {
            return Ok(());
        }
        let mut needed = HashSet::new();
        for session in self.dynamic() {
            let (_, address, port) = session.outside;
            let within = |((at, (first, last)), owner): &(&(Ipv4Addr, (u16, u16)), &Ipv4Addr)| {
                *at == address && (*first..=*last).contains(&port) && **owner == session.inside.1
            };
            let block = self.blocks.iter().find(within);
            prop_assert!(block.is_some(), "{:?}", session);
            needed.extend(block.map(|(block, _)| *block));
        }
        prop_assert_eq!(needed.len(), self.blocks.len(), "no block is kept for nothing");
        Ok(())
    }

    fn check_usage(&self) -> Result<(), TestCaseError> {
        let usage = &self.nat.usage()[0];
        let ends: HashSet<End> = self.dynamic().map(|session| session.outside).collect();
        let insides: HashSet<End> = self.dynamic().map(|session| session.inside).collect();
        prop_assert_eq!(ends.len(), insides.len(), "one inside, one outside");
        let hosts: HashSet<_> = insides.iter().map(|end| end.1).collect();
        prop_assert_eq!(usage.hosts, hosts.len() as u64);
        for proto in PortProto::ALL {
            let n = ends.iter().filter(|end| end.0 == proto.number()).count() as u64;
            prop_assert_eq!(usage.ports[proto as usize], n);
        }
        prop_assert_eq!(usage.sessions, self.dynamic().filter(|session| session.outward).count() as u64);
        prop_assert_eq!(usage.blocks, self.blocks.len() as u64);
        prop_assert_eq!(self.nat.mappings(), ends.len() + self.config.forwards().len());
        Ok(())
    }

    fn release(&mut self, at: usize) {
        let session = self.sessions.swap_remove(at);
        self.nat.release(session.id, &session.key, 0);
    }
}

fn inside_at(host: Ipv4Addr) -> HostLocation {
    HostLocation { mac: [2, 0, host.octets()[2], host.octets()[3], 0, 1], in_port: 3 }
}

/// After all sessions have ended, all ports of the pool can be allocated again.
fn check_all_ports(nat: &mut Nat, kind: &PoolConfig) -> Result<(), TestCaseError> {
    let all = kind.clone().with_filtering(Filtering::default());
    let each =
        kind.block().map_or(kind.ports_each(), |size| kind.ports_each() / u32::from(size) * u32::from(size));
    prop_assert_eq!(nat.usage()[0].ports_total, u64::from(each * all.len()));
    // Every host takes one port, or a whole block. Then nothing is left, and no port was lost.
    let ports = kind.block().unwrap_or(1).min(kind.limit().unwrap_or(u32::MAX) as u16);
    let given = (0..300)
        .flat_map(|h| (0..ports).map(move |n| (h, n)))
        .filter(|&(h, n)| nat.map(&key(17, (host(h), 40_000 + n), (remote(1), 53)), P, inside(), 0).is_ok());
    let low = u32::from(1024u16.saturating_sub(kind.ports().0)).min(kind.ports_each());
    let reachable = if low == kind.ports_each() { each } else { each - low };
    prop_assert_eq!(given.count() as u32, reachable * kind.len());
    Ok(())
}

/// Configurations that add, change, extend, shrink and remove the pool and its forwards.
fn configurations(kind: &PoolConfig) -> [Arc<NatConfig>; 6] {
    let other = PoolConfig::new("other", outer(50), outer(50)).unwrap();
    let longer = PoolConfig::new("p", kind.addresses().0, outer(5)).unwrap();
    let longer = longer.with_ports(kind.ports().0, kind.ports().1).unwrap();
    let open = kind.clone().with_filtering(Filtering::EndpointIndependent);
    [
        config(std::slice::from_ref(kind), &[]),
        config(std::slice::from_ref(kind), &[web()]),
        config(&[open, other.clone()], &[dns(), web()]),
        config(&[longer], &[dns()]),
        config(&[kind.clone().with_ports(1000, 2050).unwrap()], &[web()]),
        config(&[other], &[]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// For any input, NAT agrees with the model, and nothing is left after all sessions have ended.
    #[test]
    fn nat_agrees_with_its_model(pool in kinds(), forwards in 0..3, steps in steps(0)) {
        let forwards = match forwards {
            1 => vec![web(), dns()],
            // The free blocks of an address are counted for all protocols. So a host may get an address of
            // which only forwarded blocks are left, although another address has others.
            2 if pool.len() == 1 => block_of_forwards(),
            _ => vec![],
        };
        let mut model = Model::new(config(&[pool], &forwards));
        for step in steps {
            match step {
                Step::Out { proto, host: h, port, remote: r } => model.out((proto, host(h), port), remote(r))?,
                Step::In { session, made_up, remote: r } => {
                    let count = model.sessions.len().max(1);
                    let known = model.sessions.get(session % count).map(|session| session.outside);
                    let made_up = made_up.map(|(proto, port)| (proto, outer(1), port));
                    if let Some(to) = made_up.or(known) {
                        model.inward(to, remote(r))?;
                    }
                }
                Step::End(n) if !model.sessions.is_empty() => model.release(n % model.sessions.len()),
                Step::End(_) | Step::Adopt(_) => {}
            }
            model.check_blocks()?;
            model.check_usage()?;
        }
        while !model.sessions.is_empty() {
            model.release(0);
        }
        model.check_blocks()?;
        model.check_usage()?;
        prop_assert!(model.blocks.is_empty());
    }

    /// The configuration changes repeatedly. Live mappings never share an external endpoint, sessions learn
    /// that their mapping has ended, and in the end all ports can be allocated again.
    #[test]
    fn configurations_change_repeatedly(kind in kinds(), steps in steps(2)) {
        let configs = configurations(&kind);
        let mut nat = Nat::new(configs[0].clone(), ROOM, 7).unwrap();
        let mut sessions: Vec<Session> = vec![];
        for step in steps {
            let pool = nat.config().pool("p");
            match step {
                Step::Out { proto, host: h, port, remote: r } => {
                    let (inside, remote) = ((proto, host(h), port), remote(r));
                    let key = out_key(inside, remote);
                    let Some(Ok(mapped)) = pool.map(|pool| nat.map(&key, pool, inside_at(inside.1), 0)) else { continue };
                    prop_assert!(nat.is_live(mapped.id));
                    let (address, port) = outside(&mapped);
                    let forward = nat.is_forward(mapped.id);
                    let outside = (proto, address, port);
                    sessions.push(Session { id: mapped.id, key, inside, outside, remote, outward: true, forward });
                }
                Step::In { session, remote: r, .. } => {
                    let Some(&known) = sessions.get(session % sessions.len().max(1)) else { continue };
                    let key = in_key(known.outside, remote(r));
                    let Ok(arrived) = nat.map_inbound(&key) else { continue };
                    let inside = (known.inside.0, Ipv4Addr::from(arrived.address), u16::from_be_bytes(arrived.port));
                    let forward = nat.is_forward(arrived.id);
                    let new = Session { id: arrived.id, key, inside, outward: false, remote: remote(r), forward, ..known };
                    sessions.push(new);
                }
                Step::End(n) if !sessions.is_empty() => {
                    let session = sessions.swap_remove(n % sessions.len());
                    nat.release(session.id, &session.key, 0);
                }
                Step::End(_) => {}
                Step::Adopt(n) => {
                    let extends = |pool: &PoolConfig| {
                        let old = nat.config().pool("p").map(|id| &nat.config().pools()[usize::from(id.0)]);
                        old.is_some_and(|old| pool.extends(old))
                    };
                    let stays = configs[n].pool("p").is_some_and(|id| extends(&configs[n].pools()[usize::from(id.0)]));
                    let live: Vec<bool> = sessions.iter().map(|session| nat.is_live(session.id)).collect();
                    nat.adopt(configs[n].clone());
                    for (session, was) in sessions.iter().zip(live) {
                        let ends = |f: &ForwardConfig| (end(f.proto(), f.internal()), end(f.proto(), f.external()));
                        let mut forwards = configs[n].forwards().iter().map(ends);
                        let is = match session.forward {
                            true => forwards.any(|ends| ends == (session.inside, session.outside)),
                            false => stays && forwards.all(|ends| ends.1 != session.outside),
                        };
                        prop_assert_eq!(nat.is_live(session.id), was && is, "{:?}", session);
                    }
                }
            }
            let mut taken: HashMap<End, End> = HashMap::new();
            for session in sessions.iter().filter(|session| nat.is_live(session.id)) {
                let inside = *taken.entry(session.outside).or_insert(session.inside);
                prop_assert_eq!(inside, session.inside, "one outside, one inside");
            }
        }
        for session in sessions.drain(..) {
            nat.release(session.id, &session.key, 0);
        }
        nat.adopt(configs[0].clone());
        prop_assert_eq!((nat.mappings(), nat.usage()[0].hosts), (0, 0));
        check_all_ports(&mut nat, &kind)?;
    }
}
