//! NAT with several workers.

use super::*;

fn workers(config: &Arc<NatConfig>, n: usize) -> Vec<Nat> {
    let owners = Arc::<PortOwners>::default();
    let worker = |worker| Nat::of_worker(config.clone(), ROOM, (worker, n), 1, owners.clone()).unwrap();
    (0..n).map(worker).collect()
}

/// The external port leads back to the worker that allocated it, whichever worker is asked.
#[test]
fn replies_come_back_to_the_worker_that_gave_the_port() {
    for (pool, n) in [
        (pool(3), 2),
        (pool(1), 7),
        (pool(2).with_block(64).unwrap(), 3),
        (pool(2).with_block(100).unwrap(), 2),
        (pool(1).with_ports(40_000, 40_007).unwrap(), 2),
        (pool(1).with_ports(1001, 1500).unwrap(), 4),
    ] {
        let total = u64::from(pool.ports_each()) * u64::from(pool.len());
        let config = config(&[pool], &[]);
        let mut all = workers(&config, n);
        let mut given = vec![0; n];
        for h in 0..2000 {
            for proto in [6, 17] {
                let session = key(proto, (host(h), 5000 + h), (remote(1), 80));
                let home = config.opening_worker(P, &session, n);
                let Ok(mapped) = all[home].map(&session, P, inside(), 0) else { continue };
                given[home] += 1;
                let back = key(proto, (remote(1), 80), outside(&mapped));
                assert!(all.iter().all(|nat| nat.owner_worker(&back) == Some(home)));
                assert!(all[home].map_inbound(&back).is_ok());
            }
        }
        assert!(given.iter().all(|&n| n > 0), "{given:?}");
        let sum: u64 = all.iter().map(|nat| nat.usage()[0].ports_total).sum();
        let left_over = config.pools()[0].block().map_or(0, u64::from) + 1024;
        assert!(
            sum <= total && sum + left_over * u64::from(config.pools()[0].len()) >= total,
            "{sum} of {total}"
        );
    }
}

/// One host gets all ports of an address, with its own source port where it is free, from any number of
/// workers.
#[test]
fn one_host_can_have_all_ports() {
    let ports = 2_000;
    for n in [1, 2, 4] {
        for pool in [pool(1), pool(1).with_block(64).unwrap()] {
            let pool = pool.with_ports(2000, 2000 + ports - 1).unwrap().with_limit(70_000).unwrap();
            let usable = pool.block().map_or(ports, |size| ports / size * size);
            let config = config(&[pool], &[]);
            let mut all = workers(&config, n);
            let first = key(17, (host(1), 2000), (remote(1), 80));
            let home = config.opening_worker(P, &first, n);
            let mut kept = 0;
            for port in 2000..2000 + usable {
                let session = key(17, (host(1), port), (remote(1), 80));
                let mapped = all[home].map(&session, P, inside(), 0).unwrap();
                kept += usize::from(outside(&mapped).1 == port);
            }
            assert_eq!(kept, usize::from(usable), "{n} workers");
            let more = key(17, (host(1), 9), (remote(1), 80));
            assert_eq!(all[home].map(&more, P, inside(), 0), Err(NatError::Exhausted));
        }
    }
}

/// A port that one worker has released serves another worker, even if it is the only one.
#[test]
fn a_single_port_serves_every_worker() {
    for n in [1, 2, 4] {
        let config = config(&[pool(1).with_ports(5000, 5000).unwrap()], &[]);
        let mut all = workers(&config, n);
        for h in 1..40 {
            let (mine, other) =
                (key(6, (host(h), 7), (remote(1), 80)), key(6, (host(h + 1), 7), (remote(1), 80)));
            let home = config.opening_worker(P, &mine, n);
            let now = u32::from(h) * 1000;
            let mapped = all[home].map(&mine, P, inside(), now).unwrap();
            assert_eq!(outside(&mapped), (outer(1), 5000));
            let elsewhere = config.opening_worker(P, &other, n);
            assert_eq!(all[elsewhere].map(&other, P, inside(), now), Err(NatError::Exhausted));
            all[home].release(mapped.id, &mine, now);
            let back = key(6, (remote(1), 80), outside(&mapped));
            assert_eq!(all[elsewhere].owner_worker(&back), if n == 1 { Some(0) } else { None });
        }
    }
}

/// Workers never give out the same port, and none stays lost, whatever they take and release.
#[test]
fn workers_share_all_ports() {
    for (n, pool) in [(2, pool(1)), (4, pool(2)), (2, pool(1).with_block(16).unwrap())] {
        let pool = pool.with_ports(1024, 1024 + 255).unwrap();
        let room = u64::from(pool.ports_each()) * u64::from(pool.len());
        let config = config(&[pool], &[]);
        let mut all = workers(&config, n);
        let mut random = 1u32;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) as usize % below
        };
        let mut open = std::collections::HashMap::new();
        for step in 0..20_000u32 {
            if draw(100) < 45 && !open.is_empty() {
                let at = *open.keys().nth(draw(open.len())).unwrap();
                let (home, id, session): (usize, MappingId, Key) = open.remove(&at).unwrap();
                all[home].release(id, &session, step);
                continue;
            }
            let session = key(17, (host(draw(500) as u16), 1024 + draw(4000) as u16), (remote(1), 80));
            let home = config.opening_worker(P, &session, n);
            let Ok(mapped) = all[home].map(&session, P, inside(), step) else { continue };
            match open.insert((outside(&mapped), mapped.id, home), (home, mapped.id, session)) {
                // A second session of the same mapping.
                Some((home, id, session)) => all[home].release(id, &session, step),
                None => {
                    let holders = open.keys().filter(|(end, ..)| *end == outside(&mapped)).count();
                    assert_eq!(holders, 1, "two workers gave out {:?}", outside(&mapped));
                }
            }
        }
        for (home, id, session) in open.into_values() {
            all[home].release(id, &session, 20_000);
        }
        // Now one worker can give out all of them.
        let hosts = (0..u16::MAX).filter(|h| NatConfig::host_worker(host(*h).octets(), n) == 1);
        let sessions = hosts.map(|h| key(17, (host(h), 2000), (remote(1), 80)));
        let given = sessions.take(4000).filter(|key| all[1].map(key, P, inside(), 30_000).is_ok()).count();
        let wanted = config.pools()[0].block().map_or(room, |size| room / u64::from(size));
        assert_eq!(given as u64, wanted);
    }
}

/// Hosts with consecutive addresses are distributed so evenly that all ports of an address can be used.
#[test]
fn consecutive_hosts_fill_both_workers_alike() {
    let config = config(&[pool(1)], &[]);
    let mut all = workers(&config, 2);
    for h in 0..64_000 {
        let session = key(6, (host(h), 40_000), (remote(1), 80));
        let home = config.opening_worker(P, &session, 2);
        all[home].map(&session, P, inside(), 0).unwrap();
    }
    assert!(all.iter().all(|nat| nat.mappings() > 31_900));
}

/// For protocols without ports, and for forwards, both directions lead to the same worker.
#[test]
fn protocols_without_ports_have_one_worker() {
    let web = ForwardConfig::new(PortProto::Tcp, (outer(1), 80), (host(7), 8080)).unwrap();
    let config = config(&[pool(8)], &[web]);
    for n in [1, 2, 5] {
        let mut all = workers(&config, n);
        for h in 0..100 {
            let session = key(47, (host(h), 0), (remote(1), 0));
            let home = config.opening_worker(P, &session, n);
            let mapped = all[home].map(&session, P, inside(), 0).unwrap();
            let back = key(47, (remote(1), 0), outside(&mapped));
            assert_eq!(all[0].owner_worker(&back), Some(home));
        }
        let request = key(6, (remote(1), 999), (outer(1), 80));
        let owner = NatConfig::host_worker(host(7).octets(), n);
        assert_eq!(all[0].owner_worker(&request), Some(owner));
        assert_eq!(all[owner].map_inbound(&request).map(|a| a.address), Ok(host(7).octets()));
        let out = key(6, (host(7), 8080), (remote(2), 1));
        assert_eq!(config.opening_worker(P, &out, n), owner);
        assert_eq!(all[owner].map(&out, P, inside(), 0).map(|m| outside(&m)), Ok((outer(1), 80)));
    }
}

/// NAT destinations are the addresses of pools and the external endpoints of forwards, and nothing else.
#[test]
fn claims_are_exact() {
    let low = PoolConfig::new("low", outer(10), outer(20)).unwrap().with_ports(1, 999).unwrap();
    let high = PoolConfig::new("high", outer(15), outer(30)).unwrap().with_ports(1000, 2000).unwrap();
    let config = config(&[low, high, pool(4)], &[]);
    for n in 0..40 {
        for port in [0, 5, 1500, 9999] {
            let key = key(17, (remote(1), 5), (outer(n), port));
            assert_eq!(
                config.is_nat_destination(&key),
                (1..=4).contains(&n) || (10..=30).contains(&n),
                "{n}"
            );
        }
    }
    assert_eq!(config.pool_at(Endpoint { address: outer(15).into(), port: 1500 }), Some(PoolId(1)));
    assert_eq!(config.pool_at(Endpoint { address: outer(15).into(), port: 5 }), Some(PoolId(0)));
    let six = Key { kind: Kind::IP6, ..key(17, (remote(1), 5), (outer(1), 5)) };
    assert!(!config.is_nat_destination(&six));
}
