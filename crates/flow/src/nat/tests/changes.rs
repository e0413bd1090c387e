//! Forwards, and changes of the configuration.

use std::collections::HashSet;

use super::*;

fn forward(external: (Ipv4Addr, u16), internal: (Ipv4Addr, u16)) -> ForwardConfig {
    ForwardConfig::new(PortProto::Tcp, external, internal).unwrap()
}

/// A forward admits any source, is the external endpoint of its host, and is not given to others.
#[test]
fn forwards_are_permanent_mappings() {
    let web = forward((outer(1), 8080), (host(1), 80));
    let mut nat = Nat::new(config(&[pool(1)], &[web]), ROOM, 1).unwrap();
    assert_eq!(nat.mappings(), 1);
    let session = key(TCP, (remote(1), 999), (outer(1), 8080));
    let arrived = nat.map_inbound(&session).unwrap();
    assert_eq!((arrived.address, arrived.port, arrived.location), (host(1).octets(), [0, 80], None));
    nat.learn(arrived.id, inside());
    assert_eq!(nat.host_location(arrived.id), Some(inside()));
    assert_eq!(nat.map_inbound(&key(UDP, (remote(1), 999), (outer(1), 8080))), Err(InboundError::Unmapped));
    let out = nat.map(&key(TCP, (host(1), 80), (remote(2), 5)), P, inside(), 0).unwrap();
    assert_eq!((out.id, outside(&out)), (arrived.id, (outer(1), 8080)));
    for h in 2..50 {
        assert_ne!(outside(&open(&mut nat, TCP, (host(h), 8080), (remote(2), 5)).unwrap()), (outer(1), 8080));
    }
    nat.release(arrived.id, &session, 0);
    nat.release(out.id, &key(TCP, (host(1), 80), (remote(2), 5)), 0);
    assert!(nat.is_live(arrived.id) && nat.map_inbound(&session).is_ok());
}

/// A pool of two blocks; all TCP ports of the first one are forwarded.
fn half_forwarded() -> Arc<NatConfig> {
    let pool = pool(1).with_ports(2000, 2127).unwrap().with_block(64).unwrap().with_limit(1000).unwrap();
    let forwards: Vec<_> = (2000..2064).map(|port| forward((outer(1), port), (host(9), port))).collect();
    config(&[pool], &forwards)
}

/// A block whose ports are all forwarded for a protocol does not keep hosts from other blocks, and still
/// serves other protocols.
#[test]
fn a_block_of_forwards_is_passed_over() {
    for workers in [1, 2] {
        let config = half_forwarded();
        let owners = Arc::<PortOwners>::default();
        let worker = |n| Nat::of_worker(config.clone(), ROOM, (n, workers), 1, owners.clone()).unwrap();
        let mut all: Vec<_> = (0..workers).map(worker).collect();
        let mut random = 0u16;
        for port in (2000..2128).chain(5000..5100) {
            random = random.wrapping_mul(25_173).wrapping_add(13_849);
            let session = key(TCP, (host(random), port), (remote(1), 80));
            let home = config.opening_worker(P, &session, workers);
            let mapped = all[home].map(&session, P, inside(), 0).unwrap();
            assert!(outside(&mapped).1 >= 2064, "source port {port}: {:?}", outside(&mapped));
            assert!((2000..2064).contains(&port) || port > 2127 || outside(&mapped).1 == port);
            let datagram = key(UDP, (host(random + 1), 2000), (remote(1), 53));
            let other = config.opening_worker(P, &datagram, workers);
            let udp = all[other].map(&datagram, P, inside(), 0).unwrap();
            assert_eq!(outside(&udp).1, 2000);
            all[other].release(udp.id, &datagram, 0);
            all[home].release(mapped.id, &session, 0);
            let usage: Vec<_> = all.iter().map(|nat| nat.usage()[0].clone()).collect();
            assert!(usage.iter().all(|usage| (usage.blocks, usage.exhausted) == (0, 0)), "{usage:?}");
        }
        // Nothing is left but the forwards: another host gets no TCP port of the first block.
        let [first, second] = [1, 2].map(|h| key(TCP, (host(h), 5000), (remote(1), 80)));
        let [one, two] = [&first, &second].map(|key| config.opening_worker(P, key, workers));
        all[one].map(&first, P, inside(), 1000).unwrap();
        assert_eq!(all[two].map(&second, P, inside(), 1000), Err(NatError::Exhausted));
    }
}

/// A forward works with an address that is in no pool.
#[test]
fn forwards_need_no_pool() {
    let config = config(&[], &[forward((outer(9), 22), (host(1), 22))]);
    let to = |port| key(TCP, (remote(1), 999), (outer(9), port));
    assert!(config.is_nat_destination(&to(22)) && !config.is_nat_destination(&to(23)));
    assert!(!config.is_forwarded(&to(22).reversed()));
    assert!(config.is_forwarded(&key(TCP, (host(1), 22), (remote(1), 1))));
    let mut nat = Nat::new(config, ROOM, 1).unwrap();
    assert!(nat.map_inbound(&to(22)).is_ok());
    assert_eq!(nat.map_inbound(&to(23)), Err(InboundError::Unmapped));
    assert_eq!(
        open(&mut nat, TCP, (host(1), 22), (remote(1), 1)),
        Err(NatError::Unsupported),
        "there is no pool"
    );
}

/// A new forward of a port in use has priority, and the sessions of the host end. The port is free again
/// after the forward is deleted.
#[test]
fn a_forward_replaces_and_restores_mappings() {
    let mut nat = nat(pool(1));
    let session = key(TCP, (host(2), 8080), (remote(1), 80));
    let mapped = nat.map(&session, P, inside(), 0).unwrap();
    assert_eq!(outside(&mapped), (outer(1), 8080));
    nat.adopt(config(&[pool(1)], &[forward((outer(1), 8080), (host(1), 80))]));
    assert!(!nat.is_live(mapped.id));
    let again = nat.map(&session, P, inside(), 0).unwrap();
    assert_ne!(outside(&again).1, 8080);
    let from_outside = key(TCP, (remote(3), 3), (outer(1), 8080));
    let arrived = nat.map_inbound(&from_outside).unwrap();
    assert_eq!(arrived.address, host(1).octets());
    nat.release(mapped.id, &session, 0);
    assert!(nat.is_live(again.id) && nat.is_live(arrived.id));
    // Deleted: the session that the forward admitted ends, and the port is free again.
    nat.adopt(config(&[pool(1)], &[]));
    assert!(!nat.is_live(arrived.id) && nat.is_live(again.id));
    assert_eq!(nat.map_inbound(&from_outside), Err(InboundError::Unmapped));
    nat.release(arrived.id, &from_outside, 0);
    assert_eq!(outside(&open(&mut nat, TCP, (host(3), 8080), (remote(1), 80)).unwrap()).1, 8080);
    assert_eq!(nat.mappings(), 2);
}

/// Pools that are unchanged, extended, or have another filtering continue. Other pools start anew.
#[test]
fn mappings_survive_changes_that_keep_their_pool() {
    let mut nat = nat(pool(1));
    let session = key(UDP, (host(1), 5000), (remote(1), 53));
    let mapped = nat.map(&session, P, inside(), 0).unwrap();
    let other = PoolConfig::new("other", outer(100), outer(100)).unwrap();
    for pools in [
        vec![pool(1)],
        vec![other.clone(), pool(1)],
        vec![pool(70), other.clone()],
        vec![pool(70).with_filtering(Filtering::EndpointIndependent).with_limit(9).unwrap()],
    ] {
        nat.adopt(config(&pools, &[]));
        assert!(nat.is_live(mapped.id));
        let id = nat.config().pool("p").unwrap();
        assert_eq!(nat.map(&session, id, inside(), 0), Ok(mapped));
        nat.release(mapped.id, &session, 0);
    }
    let stranger = key(UDP, (remote(9), 9), outside(&mapped));
    let arrived = nat.map_inbound(&stranger).unwrap();
    nat.release(arrived.id, &stranger, 0);
    let used: HashSet<_> = (2..2000)
        .map(|h| outside(&open(&mut nat, UDP, (host(h), 5000), (remote(1), 53)).unwrap()).0)
        .collect();
    assert_eq!(used.len(), 70, "added addresses are used");
}

/// The ports of a deleted or changed pool stay allocated until its sessions are gone.
#[test]
fn ports_of_a_changed_pool_are_free_when_its_sessions_have_gone() {
    let mut nat = nat(pool(1).with_ports(2000, 2003).unwrap());
    let session = |h| key(UDP, (host(h), 2000), (remote(1), 53));
    let old: Vec<_> = (0..3).map(|h| nat.map(&session(h), P, inside(), 0).unwrap()).collect();
    nat.adopt(config(&[pool(1).with_ports(2000, 2004).unwrap()], &[]));
    assert!(old.iter().all(|mapped| !nat.is_live(mapped.id)));
    assert_eq!(nat.map_inbound(&key(UDP, (remote(1), 53), outside(&old[0]))), Err(InboundError::Unmapped));
    let taken: HashSet<_> = old.iter().map(outside).collect();
    let fresh: Vec<_> = (10..20).filter_map(|h| nat.map(&session(h), P, inside(), 0).ok()).collect();
    assert_eq!(fresh.len(), 2);
    assert!(fresh.iter().all(|mapped| !taken.contains(&outside(mapped)) && nat.is_live(mapped.id)));
    for (h, mapped) in (0..).zip(&old) {
        nat.release(mapped.id, &session(h), 0);
    }
    let rest = (20..30).filter_map(|h| nat.map(&session(h), P, inside(), 0).ok()).count();
    assert_eq!((rest, nat.mappings()), (3, 5));
    nat.adopt(Arc::default());
    assert_eq!(nat.usage(), []);
    assert_eq!(nat.map(&session(1), P, inside(), 0), Err(NatError::Unsupported));
}

/// Messages for invalid configurations.
#[test]
fn configuration_is_checked() {
    let new = |a, b| PoolConfig::new("p", a, b);
    let wrong = |result: Result<PoolConfig, NatConfigError>, part: &str| {
        let sentence = result.unwrap_err().to_string();
        assert!(sentence.contains(part), "{sentence}");
    };
    wrong(PoolConfig::new("", outer(1), outer(1)), "name");
    wrong(new(outer(2), outer(1)), "below the first");
    wrong(new(outer(1), outer(1 + 4096)), "4097 addresses");
    wrong(new(Ipv4Addr::new(224, 0, 0, 1), Ipv4Addr::new(224, 0, 0, 1)), "224.0.0.1");
    wrong(new(Ipv4Addr::new(0, 0, 0, 1), Ipv4Addr::new(0, 0, 0, 1)), "0.0.0.1");
    wrong(pool(1).with_ports(0, 5), "port 0");
    wrong(pool(1).with_ports(6, 5), "below the first");
    wrong(pool(1).with_block(0), "at least one");
    wrong(pool(1).with_ports(10, 19).unwrap().with_block(11), "10-19");
    wrong(pool(1).with_block(11).unwrap().with_ports(10, 19), "10-19");
    wrong(pool(1).with_limit(0), "limit");
    let both = |a: PoolConfig, b: PoolConfig| NatConfig::new(vec![a, b], vec![]);
    let other = |first: u16| PoolConfig::new("q", outer(first), outer(first + 3)).unwrap();
    assert!(both(pool(1), pool(1)).unwrap_err().to_string().contains("the name p"));
    assert!(both(pool(4), other(4)).unwrap_err().to_string().contains("share"));
    assert!(both(pool(4), other(5)).is_ok());
    assert!(both(pool(4).with_ports(1, 999).unwrap(), other(4).with_ports(1000, 2000).unwrap()).is_ok());
    let to = |port| forward((outer(1), port), (host(1), 80));
    assert!(NatConfig::new(vec![], vec![to(1), to(1)]).unwrap_err().to_string().contains("two forwards"));
    let inward = forward((outer(100), 80), (outer(1), 80));
    assert!(NatConfig::new(vec![pool(1)], vec![inward]).unwrap_err().to_string().contains("pool p"));
    assert!(ForwardConfig::new(PortProto::Icmp, (outer(1), 1), (host(1), 1)).is_err());
    assert!(ForwardConfig::new(PortProto::Udp, (outer(1), 0), (host(1), 1)).is_err());
    assert!(ForwardConfig::new(PortProto::Udp, (host(1), 1), (host(1), 2)).is_err());
}
