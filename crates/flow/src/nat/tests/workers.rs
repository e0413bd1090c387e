//! NAT with several workers.

use super::*;

fn workers(config: &Arc<NatConfig>, n: usize) -> Vec<Nat> {
    (0..n).map(|worker| Nat::new(config.clone(), ROOM, worker, n, 1).unwrap()).collect()
}

/// The external port leads back to the worker that allocated it, and every port belongs to a worker.
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
                assert_eq!(config.owner_worker(&back, n), home);
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
            assert_eq!(config.owner_worker(&key(47, (remote(1), 0), outside(&mapped)), n), home);
        }
        let request = key(6, (remote(1), 999), (outer(1), 80));
        let owner = config.owner_worker(&request, n);
        assert_eq!(owner, NatConfig::host_worker(host(7).octets(), n));
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
