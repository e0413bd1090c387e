//! The cost of NAT: ticks of the time-stamp counter per mapping created, reused and released.
//!
//! `cargo run --release -p mmb-flow --example nat_cost [MAPPINGS …]`. Creates this number of mappings for
//! hosts with 16 ports each, in groups of 256. For each group, the minimum of several rounds counts. `fresh`:
//! the source port is free. `crowded`: all hosts send from the same 16 ports. `full`: 99 % of the ports are
//! taken. `again`: another session of an existing mapping. `inbound`: a session from outside. `release`: the
//! end of a session.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mmb_flow::{HostLocation, Key, MappingId, Nat, NatConfig, PoolConfig, PoolId};
use mmb_packet::Kind;

const VECTOR: usize = 256;
const ROUNDS: usize = 8;
const POOL: PoolId = PoolId(0);

fn main() {
    let sizes: Vec<u32> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 64_000, 1_000_000] } else { sizes };
    println!("{:>10} {:>8} {:>7} {:>7} {:>8} {:>8}", "mappings", "", "map", "again", "inbound", "release");
    for &mappings in &sizes {
        for (name, spread, percent) in [("fresh", true, 50), ("crowded", false, 50), ("full", false, 99)] {
            row(name, mappings, spread, percent);
        }
    }
}

fn key(from: (u32, u16), to: (u32, u16)) -> Key {
    let wide = |address: u32| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&address.to_be_bytes());
        bytes
    };
    Key {
        source: wide(from.0),
        destination: wide(to.0),
        source_port: from.1.to_be_bytes(),
        destination_port: to.1.to_be_bytes(),
        kind: Kind::IP4 | Kind::UDP,
        proto: 17,
        asks: [0; 2],
    }
}

/// A pool with `percent` of its ports used by `mappings`.
fn nat(mappings: u32, percent: u32) -> Nat {
    let addresses = (u64::from(mappings) * 100).div_ceil(u64::from(percent) * 64_512) as u32;
    let ports = (u64::from(mappings) * 100).div_ceil(u64::from(percent) * u64::from(addresses)).min(64_512);
    let first = Ipv4Addr::new(203, 0, 113, 1);
    let pool = PoolConfig::new("p", first, Ipv4Addr::from(u32::from(first) + addresses - 1))
        .and_then(|pool| pool.with_ports(1024, 1023 + ports as u16));
    let config = pool.and_then(|pool| NatConfig::new(vec![pool], vec![])).expect("a pool");
    Nat::new(Arc::new(config), 2 * mappings as usize, 0x5eed).expect("memory")
}

fn row(name: &str, mappings: u32, spread: bool, percent: u32) {
    let mut nat = nat(mappings, percent);
    let keys: Vec<Key> = (0..mappings)
        .map(|n| {
            let (host, nth) = (n / 16, (n % 16) as u16);
            let port =
                if spread { 2048 + (host.wrapping_mul(7919) % 56_000) as u16 + nth } else { 40_000 + nth };
            key((0x0a00_0000 + host, port), (0xc612_0001, 53))
        })
        .collect();
    let others: Vec<Key> = keys.iter().map(|key| Key { destination_port: [1, 0], ..*key }).collect();
    let mut best = vec![[Duration::MAX; 4]; keys.len().div_ceil(VECTOR)];
    let mut refused = 0;
    for _ in 0..ROUNDS {
        let mut held = Vec::with_capacity(keys.len());
        for (keys, best) in keys.chunks(VECTOR).zip(&mut best) {
            time(&mut best[0], || refused += make(&mut nat, keys, &mut held));
        }
        let mut again = Vec::with_capacity(keys.len());
        for (keys, best) in others.chunks(VECTOR).zip(&mut best) {
            time(&mut best[1], || _ = make(&mut nat, keys, &mut again));
        }
        for (held, best) in held.chunks(VECTOR).zip(&mut best) {
            let arriving: Vec<Key> = held.iter().map(|held| key((0xc612_0001, 99), held.2)).collect();
            let arrived = time(&mut best[2], || {
                arriving
                    .iter()
                    .filter_map(|key| Some((nat.map_inbound(key).ok()?.id, key)))
                    .collect::<Vec<_>>()
            });
            for (id, key) in arrived {
                nat.release(id, key, 0);
            }
        }
        again.iter().for_each(|held| nat.release(held.0, &held.1, 0));
        for (held, best) in held.chunks(VECTOR).zip(&mut best) {
            time(&mut best[3], || held.iter().for_each(|held| nat.release(held.0, &held.1, 0)));
        }
        assert_eq!(nat.mappings(), 0);
    }
    let each = |step: usize| {
        let sum: Duration = best.iter().map(|best| best[step]).sum();
        sum.as_nanos() as f64 * ticks_per_ns() / f64::from(mappings)
    };
    let [map, again, inbound, release] = [0, 1, 2, 3].map(each);
    println!("{mappings:>10} {name:>8} {map:>7.0} {again:>7.0} {inbound:>8.0} {release:>8.0}");
    if refused > 0 {
        println!("           {} were refused in each round", refused / ROUNDS);
    }
}

type Held = (MappingId, Key, (u32, u16));

/// Opens sessions, and returns how many got no port.
fn make(nat: &mut Nat, keys: &[Key], held: &mut Vec<Held>) -> usize {
    let before = held.len();
    for key in keys {
        nat.prefetcher(POOL).iter().for_each(|ahead| ahead.prefetch(key));
    }
    for key in keys {
        if let Ok(mapped) = black_box(nat.map(key, POOL, HostLocation::default(), 0)) {
            held.push((
                mapped.id,
                *key,
                (u32::from_be_bytes(mapped.address), u16::from_be_bytes(mapped.port)),
            ));
        }
    }
    keys.len() - (held.len() - before)
}

fn time<T>(best: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    *best = start.elapsed().min(*best);
    result
}
fn ticks_per_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("bogomips"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.map_or(1.0, |bogomips| bogomips / 2000.0)
}
