//! Mappings go on in another process.

use proptest::prelude::*;

use super::*;

/// A session of a mapping: its key, and its key after translation.
#[derive(Clone, Copy, Debug)]
struct Session {
    key: Key,
    to: Key,
    is_inbound: bool,
    pool: Option<PoolId>,
}

fn workers(config: &Arc<NatConfig>, n: usize) -> Vec<Nat> {
    let owners = Arc::<PortOwners>::default();
    let worker = |worker| Nat::of_worker(config.clone(), ROOM, (worker, n), 1, owners.clone()).unwrap();
    (0..n).map(worker).collect()
}

/// Opens sessions from inside, and one from outside to each mapping that admits it.
fn opened(all: &mut [Nat], flows: &[(u16, u16, u16, u8)]) -> Vec<Session> {
    let config = all[0].config().clone();
    let mut sessions = Vec::new();
    for &(from, port, to, proto) in flows {
        let session = key(proto, (host(from), port), (remote(to), if proto == ICMP { ECHO } else { 80 }));
        let worker = config.opening_worker(P, &session, all.len());
        let Ok(mapped) = all[worker].map(&session, P, inside(), 0) else { continue };
        let pool = all[worker].pool_of(mapped.id);
        let mut to = session;
        to.source[..4].copy_from_slice(&mapped.address);
        to.source_port = mapped.port;
        sessions.push(Session { key: session, to, is_inbound: false, pool });
        let back = key(proto, (remote(to.source_port[1].into()), 9), outside(&mapped));
        if let Ok(inbound) = all[worker].map_inbound(&back) {
            let mut to = back;
            to.destination[..4].copy_from_slice(&inbound.address);
            to.destination_port = inbound.port;
            sessions.push(Session { key: back, to, is_inbound: true, pool });
        }
    }
    sessions
}

fn restore(nat: &mut Nat, session: &Session) -> Option<MappingId> {
    let Session { key, to, is_inbound, pool, .. } = session;
    let location = Some(inside());
    nat.restore(&SavedMapping { key, to, is_inbound: *is_inbound, pool: *pool, location }, 0)
}

/// Hosts, ports, blocks and sessions in use, over all workers.
fn usage(all: &[Nat]) -> (u64, [u64; 3], u64, u64) {
    let usage = all.iter().map(|nat| nat.usage()[0].clone());
    usage.fold((0, [0; 3], 0, 0), |(hosts, ports, blocks, sessions), one| {
        let ports = std::array::from_fn(|proto| ports[proto] + one.ports[proto]);
        (hosts + one.hosts, ports, blocks + one.blocks, sessions + one.sessions)
    })
}

proptest! {
    /// The mappings of all sessions are as before, in any order and with any number of workers; they keep
    /// others away from their ports, and are gone with their sessions.
    #[test]
    fn mappings_go_on(
        flows in prop::collection::vec((0u16..40, 1000u16..1020, 0u16..3, prop_oneof![Just(UDP), Just(TCP), Just(ICMP)]), 1..120),
        block in prop_oneof![Just(None), Just(Some(64u16))],
        counts in (1usize..4, 1usize..4),
        is_reversed: bool,
    ) {
        let base = pool(3).with_ports(1000, 3000).unwrap().with_filtering(Filtering::EndpointIndependent);
        let config = config(&[block.map_or(base.clone(), |size| base.clone().with_block(size).unwrap())], &[]);
        let mut old = workers(&config, counts.0);
        let mut sessions = opened(&mut old, &flows);
        if is_reversed {
            sessions.reverse();
        }
        let mut new = workers(&config, counts.1);
        let mut held = Vec::new();
        for session in &sessions {
            let (from, out) = if session.is_inbound { (session.to.destination, session.key.destination) } else { (session.key.source, session.to.source) };
            let worker = NatConfig::mapping_worker(session.key.proto, from, out, counts.1);
            let id = restore(&mut new[worker], session);
            prop_assert!(id.is_some(), "{session:?}");
            held.push((worker, id.unwrap(), session));
        }
        prop_assert_eq!(usage(&new), usage(&old));
        for (worker, _, session) in held.iter().filter(|(_, _, session)| !session.is_inbound) {
            let again = new[*worker].map(&session.key, P, inside(), 0).unwrap();
            prop_assert_eq!((again.address, again.port), (session.to.source[..4].try_into().unwrap(), session.to.source_port));
            prop_assert_eq!(new[*worker].owner_worker(&session.to.reversed()), Some(*worker));
            new[*worker].release(again.id, &session.key, 0);
        }
        for (worker, id, session) in held {
            new[worker].release(id, &session.key, 0);
        }
        prop_assert_eq!(usage(&new), (0, [0; 3], 0, 0));
        prop_assert_eq!(new.iter().map(Nat::mappings).sum::<usize>(), 0);
    }
}

/// What the configuration does not cover, or what others have, is not given out.
#[test]
fn a_mapping_that_cannot_go_on_is_refused() {
    let mut old = workers(&config(&[pool(2)], &[]), 1);
    let sessions = opened(&mut old, &[(1, 1000, 1, UDP), (2, 1000, 1, UDP), (1, 0, 1, 47)]);
    let refused = |nat: &mut Nat, session: &Session| {
        let before = (nat.usage(), nat.mappings());
        assert_eq!(restore(nat, session), None, "{session:?}");
        assert_eq!((nat.usage(), nat.mappings()), before, "nothing is left behind");
    };
    let moved = PoolConfig::new("p", outer(9), outer(9)).unwrap();
    let narrow = pool(2).with_ports(5000, 6000).unwrap();
    for other in [moved, narrow] {
        let mut nat = nat(other);
        sessions
            .iter()
            .filter(|session| session.key.proto == UDP)
            .for_each(|session| refused(&mut nat, session));
    }
    // Another host has the port.
    let mut nat = nat(pool(1));
    let first = open(&mut nat, UDP, (host(9), 7000), (remote(1), 80)).unwrap();
    let key = key(UDP, (host(1), 1000), (remote(1), 80));
    let mut to = key;
    (to.source, to.source_port) = (super::key(UDP, outside(&first), (remote(1), 80)).source, first.port);
    let session = Session { key, to, is_inbound: false, pool: Some(P) };
    refused(&mut nat, &session);
    refused(&mut nat, &Session { pool: Some(PoolId(7)), ..session });
    refused(&mut nat, &Session { pool: None, ..session });
}

/// Sessions of forwards hold the mapping of the forward, if it is still there.
#[test]
fn forwards_keep_their_sessions() {
    let forward = |inside| ForwardConfig::new(PortProto::Tcp, (outer(1), 80), (host(inside), 8080)).unwrap();
    let key = key(TCP, (remote(1), 4000), (outer(1), 80));
    let mut to = key;
    (to.destination, to.destination_port) =
        (super::key(TCP, (host(1), 8080), (host(1), 8080)).source, 8080u16.to_be_bytes());
    let session = Session { key, to, is_inbound: true, pool: None };
    for (inside, goes_on) in [(1, true), (2, false)] {
        let mut nat = Nat::new(config(&[], &[forward(inside)]), ROOM, 1).unwrap();
        let id = restore(&mut nat, &session);
        assert_eq!(id.is_some(), goes_on);
        if let Some(id) = id {
            assert!(nat.is_forward(id));
            nat.release(id, &key, 0);
        }
        assert_eq!(nat.mappings(), 1);
    }
}
