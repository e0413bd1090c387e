//! What a lookup costs: ticks of the time-stamp counter per address, vectors of 256, for tables of many sizes.
//!
//! `cargo run --release -p mmb-route --example cost -- [--seed N] [ROUTES ...]`
//!
//! *inside*: each destination is a random address of a random route; *any*: a random address of the family's unicast space.

#![forbid(unsafe_code)]

mod routes;

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use mmb_route::{Fib4, Fib6, NextHopId};
use routes::{Random, Route, any4, any6, ip4, ip6, within};

/// Addresses that are looked up together.
const VECTOR: usize = 256;
/// Different destinations: no cache keeps what the first ones touched until they come again.
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
        let mut random = Random(seed);
        let routes = ip4(*size, &mut random);
        let inside: Vec<u32> = within(&routes, DESTINATIONS, &mut random);
        let any: Vec<u32> = (0..DESTINATIONS).map(|_| any4(&mut random)).collect();
        report::<Fib4>("IPv4", &routes, [&inside, &any], &mut random);
    }
    for size in &sizes {
        let mut random = Random(seed);
        let routes = ip6(*size, &mut random);
        let inside: Vec<u128> = within(&routes, DESTINATIONS, &mut random);
        let any: Vec<u128> = (0..DESTINATIONS).map(|_| any6(&mut random)).collect();
        report::<Fib6>("IPv6", &routes, [&inside, &any], &mut random);
    }
}

/// A table of either family.
trait Table: Clone + Default {
    type Address: Copy;
    fn insert(&mut self, route: &Route<Self::Address>);
    fn remove(&mut self, route: &Route<Self::Address>);
    fn lookup(&self, addresses: &[Self::Address], hops: &mut [NextHopId]);
    fn bytes(&self) -> (usize, usize);
}

impl Table for Fib4 {
    type Address = u32;

    fn insert(&mut self, route: &Route<u32>) {
        self.insert(Ipv4Addr::from(route.prefix), route.length, route.hop);
    }

    fn remove(&mut self, route: &Route<u32>) {
        self.remove(Ipv4Addr::from(route.prefix), route.length);
    }

    fn lookup(&self, addresses: &[u32], hops: &mut [NextHopId]) {
        self.lookup_batch(addresses, hops);
    }

    fn bytes(&self) -> (usize, usize) {
        self.bytes()
    }
}

impl Table for Fib6 {
    type Address = u128;

    fn insert(&mut self, route: &Route<u128>) {
        self.insert(Ipv6Addr::from(route.prefix), route.length, route.hop);
    }

    fn remove(&mut self, route: &Route<u128>) {
        self.remove(Ipv6Addr::from(route.prefix), route.length);
    }

    fn lookup(&self, addresses: &[u128], hops: &mut [NextHopId]) {
        self.lookup_batch(addresses, hops);
    }

    fn bytes(&self) -> (usize, usize) {
        self.bytes()
    }
}

/// Measures one table and prints a line.
fn report<T: Table>(
    family: &str,
    routes: &[Route<T::Address>],
    destinations: [&Vec<T::Address>; 2],
    random: &mut Random,
) {
    let start = Instant::now();
    let mut table = T::default();
    routes.iter().for_each(|route| table.insert(route));
    let build = start.elapsed();
    let [inside, any] = destinations.map(|destinations| measure(&table, destinations) * ticks_per_ns());
    let (insert, remove) = updates(&table, routes, random);
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

/// The rate of the time-stamp counter, as far as the kernel tells it.
fn ticks_per_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("bogomips"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.map_or(1.0, |bogomips| bogomips / 2000.0)
}

/// Nanoseconds per lookup: for each vector the shortest time of many, so that other work on the machine hardly counts.
fn measure<T: Table>(table: &T, destinations: &[T::Address]) -> f64 {
    let mut hops = [0; VECTOR];
    let mut times = vec![Duration::MAX; destinations.len() / VECTOR];
    let end = Instant::now() + Duration::from_millis(500);
    for round in 0.. {
        if round >= 5 && Instant::now() > end {
            break;
        }
        for (vector, time) in destinations.chunks_exact(VECTOR).zip(&mut times) {
            let start = Instant::now();
            table.lookup(black_box(vector), &mut hops);
            *time = start.elapsed().min(*time);
            black_box(&hops);
        }
    }
    times.iter().sum::<Duration>().as_nanos() as f64 / destinations.len() as f64
}

/// Microseconds to change one route's next hop, and to remove it, in a clone, the older value dropped: medians.
fn updates<T: Table>(table: &T, routes: &[Route<T::Address>], random: &mut Random) -> (f64, f64) {
    let mut shared = table.clone();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..400 {
        let mut route = routes[random.below(routes.len())];
        route.hop += 1;
        for (remove, times) in [false, true].into_iter().zip(&mut times) {
            let start = Instant::now();
            let mut next = shared.clone();
            if remove {
                next.remove(&route)
            } else {
                next.insert(&route)
            }
            shared = next;
            times.push(start.elapsed());
        }
        shared.insert(&route);
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_nanos() as f64 / 1e3
    };
    let [insert, remove] = &mut times;
    (median(insert), median(remove))
}
