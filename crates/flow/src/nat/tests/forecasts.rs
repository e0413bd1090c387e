//! Mappings that are looked up and created with what was computed ahead.

use proptest::prelude::*;

use super::*;

/// The forecast for a packet, as for one of a vector.
fn forecast(nat: &Nat, key: &Key) -> Option<MappingForecast> {
    nat.prefetcher(P)?.foresee(&key.pack())
}

proptest! {
    /// Forecasts of a whole vector change nothing, whichever of them have become wrong meanwhile.
    #[test]
    fn a_forecast_does_not_change_the_mapping(
        addresses in 1u16..4,
        blocks in any::<bool>(),
        vectors in prop::collection::vec(
            prop::collection::vec((0u16..6, 0u16..6, 0u16..3, 0usize..4), 1..20),
            1..12,
        ),
    ) {
        let pool = pool(addresses).with_ports(2000, 2063).unwrap();
        let pool = if blocks { pool.with_block(8).unwrap() } else { pool };
        let (mut ahead, mut plain) = (nat(pool.clone()), nat(pool));
        let mut open = Vec::new();
        for vector in vectors {
            let keys: Vec<Key> = vector
                .iter()
                .map(|&(from, port, to, proto)| {
                    // The last protocol has no ports.
                    let (port, to_port) = [(2000 + port, 80), (2000 + port, 80), (2000 + port, ECHO), (0, 0)][proto];
                    key([UDP, TCP, ICMP, 47][proto], (host(from), port), (remote(to), to_port))
                })
                .collect();
            let forecasts: Vec<_> = keys.iter().map(|key| forecast(&ahead, key)).collect();
            for (key, forecast) in keys.iter().zip(&forecasts) {
                let mapped = ahead.map_foreseen(key, P, (inside(), 0), forecast.as_ref());
                prop_assert_eq!(mapped, plain.map(key, P, inside(), 0));
                if let Ok(mapped) = mapped {
                    open.push((mapped.id, *key));
                    let back = super::key(key.proto, (remote(1), 9), outside(&mapped));
                    prop_assert_eq!(ahead.is_mapped(&back), plain.is_mapped(&back));
                }
            }
            // Every third session ends.
            let mut n = 0;
            open.retain(|(id, key)| {
                n += 1;
                if n % 3 == 0 {
                    ahead.release(*id, key, 0);
                    plain.release(*id, key, 0);
                }
                n % 3 != 0
            });
        }
        for (id, key) in open {
            ahead.release(id, &key, 0);
            plain.release(id, &key, 0);
        }
        prop_assert!(ahead.is_empty() && plain.is_empty());
        prop_assert_eq!(ahead.usage(), plain.usage());
    }
}

/// A forecast for one pool serves no other one.
#[test]
fn a_forecast_is_for_its_pool() {
    let pools = [pool(1), PoolConfig::new("q", outer(9), outer(9)).unwrap()];
    let mut nat = Nat::new(config(&pools, &[]), ROOM, 1).unwrap();
    let session = key(UDP, (host(1), 5000), (remote(1), 53));
    let forecast = forecast(&nat, &session);
    let [first, other] = [0, 1]
        .map(|pool| nat.map_foreseen(&session, PoolId(pool), (inside(), 0), forecast.as_ref()).unwrap());
    assert_eq!((outside(&first).0, outside(&other).0), (outer(1), outer(9)));
    for pool in [0, 1] {
        assert!(nat.map(&session, PoolId(pool), inside(), 0).is_ok());
    }
    assert_eq!(nat.mappings(), 2, "both are found again");
}

/// More sessions than the record of a mapping counts.
#[test]
fn a_mapping_may_have_many_sessions_with_one_remote_address() {
    let mut nat = nat(pool(1).with_filtering(Filtering::AddressDependent));
    let session = |n: u32, to: u16| key(UDP, (host(1), 5000), (remote(to), n as u16));
    let many = u32::from(u16::MAX) + 100;
    let mapped = nat.map(&session(0, 1), P, inside(), 0).unwrap();
    for n in 1..many {
        assert_eq!(nat.map(&session(n, 1), P, inside(), 0), Ok(mapped));
    }
    assert_eq!(nat.map(&session(0, 2), P, inside(), 0), Ok(mapped));
    let admits =
        |nat: &Nat, from: u16| nat.inbound_address(&key(UDP, (remote(from), 9), outside(&mapped))).is_some();
    assert_eq!([1, 2, 3].map(|from| admits(&nat, from)), [true, true, false]);
    for n in 1..many {
        nat.release(mapped.id, &session(n, 1), 0);
    }
    assert_eq!([1, 2].map(|from| admits(&nat, from)), [true, true]);
    nat.release(mapped.id, &session(0, 1), 0);
    assert_eq!([1, 2].map(|from| admits(&nat, from)), [false, true]);
    nat.release(mapped.id, &session(0, 2), 0);
    assert!(nat.is_empty());
    let again = nat.map(&session(0, 3), P, inside(), 0).unwrap();
    assert_eq!(outside(&again), outside(&mapped));
    assert_eq!([1, 3].map(|from| admits(&nat, from)), [false, true]);
}
