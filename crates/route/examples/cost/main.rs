//! Cost of lookups in TSC ticks per address, with vectors of 256 addresses, for tables of many sizes.
//!
//! `cargo run --release -p mmb-route --example cost -- [--seed N] [ROUTES ...]`
//!
//! *inside*: destinations are random addresses of random routes; *any*: random unicast addresses.

#![forbid(unsafe_code)]

mod routes;

use std::hint::black_box;
use std::time::{Duration, Instant};

use mmb_route::{Address, Fib};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use routes::{Route, any4, any6, ip4, ip6, within};

/// Addresses per lookup batch.
const VECTOR: usize = 256;
/// Number of destinations; large enough that caches hold nothing of the previous round.
const DESTINATIONS: usize = 2048 * VECTOR;

fn main() {
    let mut seed = 1;
    let mut sizes = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &arg[..] {
            "--seed" => seed = args.next().and_then(|s| s.parse().ok()).unwrap_or(seed),
            size => sizes.extend(size.parse::<usize>()),
        }
    }
    if sizes.is_empty() {
        sizes = vec![10, 1000, 100_000, 200_000, 1_000_000];
    }
    println!(
        "{:<7} {:>9} {:>8} {:>8} {:>9} {:>10} {:>10} {:>9} {:>9}",
        "family", "routes", "inside", "any", "build ms", "insert us", "remove us", "read MiB", "rest MiB"
    );
    for size in &sizes {
        let mut rng = SmallRng::seed_from_u64(seed);
        let routes = ip4(*size, &mut rng);
        let inside: Vec<u32> = within(&routes, DESTINATIONS, &mut rng);
        let any: Vec<u32> = (0..DESTINATIONS).map(|_| any4(&mut rng)).collect();
        report("IPv4", &routes, [&inside, &any], &mut rng);
    }
    for size in &sizes {
        let mut rng = SmallRng::seed_from_u64(seed);
        let routes = ip6(*size, &mut rng);
        let inside: Vec<u128> = within(&routes, DESTINATIONS, &mut rng);
        let any: Vec<u128> = (0..DESTINATIONS).map(|_| any6(&mut rng)).collect();
        report("IPv6", &routes, [&inside, &any], &mut rng);
    }
}

/// Measures one table and prints one line.
fn report<A: Address>(family: &str, routes: &[Route<A>], destinations: [&Vec<A>; 2], rng: &mut SmallRng) {
    let start = Instant::now();
    let mut table = Fib::default();
    routes.iter().for_each(|route| table.insert(route.prefix.into(), route.length, route.hop));
    let build = start.elapsed();
    let [inside, any] = destinations.map(|destinations| measure(&table, destinations) * ticks_per_ns());
    let (insert, remove) = updates(&table, routes, rng);
    let (read, rest) = table.bytes();
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    println!(
        "{family:<7} {:>9} {inside:>8.1} {any:>8.1} {:>9.1} {insert:>10.1} {remove:>10.1} {:>9.1} {:>9.1}",
        routes.len(),
        build.as_secs_f64() * 1e3,
        mib(read),
        mib(rest)
    );
}

/// TSC frequency in GHz from the kernel's BogoMIPS; 1 if unknown.
fn ticks_per_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("bogomips"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.map_or(1.0, |bogomips| bogomips / 2000.0)
}

/// Nanoseconds per lookup. Each vector counts with its shortest time, to exclude other load.
fn measure<A: Address>(table: &Fib<A>, destinations: &[A]) -> f64 {
    let mut hops = [0; VECTOR];
    let mut times = vec![Duration::MAX; destinations.len() / VECTOR];
    let end = Instant::now() + Duration::from_millis(500);
    for round in 0.. {
        if round >= 5 && Instant::now() > end {
            break;
        }
        for (vector, time) in destinations.chunks_exact(VECTOR).zip(&mut times) {
            let start = Instant::now();
            table.lookup_batch(black_box(vector), &mut hops);
            *time = start.elapsed().min(*time);
            black_box(&hops);
        }
    }
    times.iter().sum::<Duration>().as_nanos() as f64 / destinations.len() as f64
}

/// Median microseconds to change one route's next hop and to remove it, in a clone whose original is dropped.
fn updates<A: Address>(table: &Fib<A>, routes: &[Route<A>], rng: &mut SmallRng) -> (f64, f64) {
    let mut shared = table.clone();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..400 {
        let mut route = routes[rng.random_range(0..routes.len())];
        route.hop += 1;
        for (remove, times) in [false, true].into_iter().zip(&mut times) {
            let start = Instant::now();
            let mut next = shared.clone();
            if remove {
                next.remove(route.prefix.into(), route.length)
            } else {
                next.insert(route.prefix.into(), route.length, route.hop)
            }
            shared = next;
            times.push(start.elapsed());
        }
        shared.insert(route.prefix.into(), route.length, route.hop);
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_nanos() as f64 / 1e3
    };
    let [insert, remove] = &mut times;
    (median(insert), median(remove))
}
