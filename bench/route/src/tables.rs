//! `rte_fib` and `rte_lpm` beside mmb's FIB: the same routes, the same addresses, 256 at a time, in turn.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use mmb_route::{Fib4, NextHopId};

use crate::prefixes::Prefixes;
use crate::{checked, median, peer_ticks};

// SAFETY: the functions take and return numbers only, keep their data themselves, and check every index.
unsafe extern "C" {
    safe fn tables_room(count: u32) -> i32;
    safe fn tables_address(number: u32, address: u32) -> i32;
    safe fn tables_result(number: u32) -> u32;
    safe fn fib_new(bytes: u32, routes: u32, groups: u32) -> i32;
    safe fn fib_end();
    safe fn fib_route(address: u32, length: u32, hop: u32) -> i32;
    safe fn fib_choose(kind: u32) -> i32;
    safe fn fib_lookup(first: u32, count: u32) -> u64;
    safe fn lpm_new(routes: u32, groups: u32) -> i32;
    safe fn lpm_end();
    safe fn lpm_route(address: u32, length: u32, hop: u32) -> i32;
    safe fn lpm_lookup(first: u32, count: u32, by_four: u32) -> u64;
}

const VECTOR: usize = 256;
/// Addresses of a round, at random within the routes.
const ADDRESSES: usize = 1 << 18;
/// Implementations of DIR24_8 by their numbers in `enum rte_fib_lookup_type`.
const FIB_KINDS: [(&str, u32); 2] = [("avx512", 4), ("scalar", 1)];
/// Most routes that `rte_lpm` gets: it looks for each new one among all of its length.
const LPM_MOST: usize = 100_000;
/// Groups of 256 for routes longer than /24; `rte_fib` with next hops of 2 bytes has no numbers for more.
const GROUPS: u32 = 32_767;

/// One contender's rounds: of each, the ticks of each vector.
struct Contender {
    name: String,
    filled: Duration,
    rounds: Vec<Vec<u64>>,
    run: Box<dyn Fn(usize, usize) -> u64>,
}

/// Compares lookups at each number of routes.
pub fn compare(numbers: &[usize], repeat: usize, seed: u64) -> Result<(), String> {
    println!(
        "lookups of 256 random destinations within the routes, ticks an address (median of {repeat} rounds)"
    );
    for &number in numbers {
        compare_at(number, repeat, seed)?;
    }
    Ok(())
}

fn compare_at(number: usize, repeat: usize, seed: u64) -> Result<(), String> {
    let prefixes = Prefixes::new(number, false, seed);
    let addresses: Vec<u32> = (0..ADDRESSES as u64).map(|n| prefixes.address(n) as u32).collect();
    checked("there is no memory for the addresses", tables_room(ADDRESSES as u32))?;
    for (number, address) in (0..).zip(&addresses) {
        checked("an address cannot be added", tables_address(number, *address))?;
    }
    let (fib, filled) = mmb(prefixes);
    let mut ours = Vec::new();
    let mut hops = [0; VECTOR];
    // With next hops of 2 bytes and of 4 one behind the other: two tables at a time would be in each other's
    // way.
    for bytes in [4, 2] {
        let mut peers = fill_fib(prefixes, bytes)?;
        if bytes == 4 && number <= LPM_MOST {
            peers.extend(fill_lpm(prefixes)?);
        }
        for round in 0..=repeat {
            let mut ticks = Vec::new();
            for first in (0..ADDRESSES).step_by(VECTOR) {
                let start = peer_ticks();
                fib.lookup_batch(&addresses[first..first + VECTOR], &mut hops);
                ticks.push(peer_ticks() - start);
                std::hint::black_box(&hops);
            }
            ours.push(ticks);
            for peer in &mut peers {
                let run = |first| (peer.run)(first, VECTOR);
                peer.rounds.push((0..ADDRESSES).step_by(VECTOR).map(run).collect());
                if round == 0 {
                    agreed(&peer.name, &fib, &addresses)?;
                }
            }
        }
        print(number, &mut ours, filled, &mut peers);
        ours.clear();
        fib_end();
        lpm_end();
    }
    Ok(())
}

/// mmb's table, and how long it took.
fn mmb(prefixes: Prefixes) -> (Fib4, Duration) {
    let start = Instant::now();
    let mut fib = Fib4::default();
    for prefix @ (network, length) in prefixes.each() {
        fib.insert(Ipv4Addr::from(network as u32), length, hop(prefix));
    }
    (fib, start.elapsed())
}

fn hop(prefix: (u128, u8)) -> NextHopId {
    NextHopId::from(Prefixes::hop(prefix)) + 1
}

fn fill_fib(prefixes: Prefixes, bytes: u32) -> Result<Vec<Contender>, String> {
    let start = Instant::now();
    checked("rte_fib has no memory", fib_new(bytes, prefixes.count() as u32 + 1, GROUPS))?;
    for prefix @ (network, length) in prefixes.each() {
        checked("rte_fib refuses a route", fib_route(network as u32, length.into(), hop(prefix)))?;
    }
    let filled = start.elapsed();
    let kinds = FIB_KINDS.into_iter().filter(|(_, kind)| fib_choose(*kind) == 0);
    let contender = |(name, kind)| Contender {
        name: format!("rte_fib {bytes}B {name}"),
        filled,
        rounds: Vec::new(),
        run: Box::new(move |first, count| {
            fib_choose(kind);
            fib_lookup(first as u32, count as u32)
        }),
    };
    Ok(kinds.map(contender).collect())
}

fn fill_lpm(prefixes: Prefixes) -> Result<Vec<Contender>, String> {
    let start = Instant::now();
    checked("rte_lpm has no memory", lpm_new(prefixes.count() as u32, GROUPS))?;
    for prefix @ (network, length) in prefixes.each() {
        checked("rte_lpm refuses a route", lpm_route(network as u32, length.into(), hop(prefix)))?;
    }
    let filled = start.elapsed();
    let contender = |(name, by_four)| Contender {
        name: format!("rte_lpm {name}"),
        filled,
        rounds: Vec::new(),
        run: Box::new(move |first, count| lpm_lookup(first as u32, count as u32, by_four)),
    };
    Ok([("bulk", 0), ("x4", 1)].into_iter().map(contender).collect())
}

/// Whether a peer found the next hop that mmb finds, for every address.
fn agreed(name: &str, fib: &Fib4, addresses: &[u32]) -> Result<(), String> {
    for (number, &address) in (0..).zip(addresses) {
        let (ours, theirs) = (fib.lookup(address), tables_result(number));
        if ours != theirs {
            let address = Ipv4Addr::from(address);
            return Err(format!("{address}: mmb says next hop {ours}, {name} says {theirs} (0: none)"));
        }
    }
    Ok(())
}

/// Ticks an address: the sum over the vectors of the median of their rounds, the first round left out.
fn ticks(rounds: &[Vec<u64>]) -> f64 {
    let vectors = rounds.first().map_or(0, Vec::len);
    let of = |vector: usize| median(rounds.iter().skip(1).map(|round| round[vector] as f64).collect());
    (0..vectors).map(of).sum::<f64>() / (vectors * VECTOR) as f64
}

fn print(number: usize, ours: &mut [Vec<u64>], filled: Duration, peers: &mut [Contender]) {
    let mmb = ticks(ours);
    println!("{number:>9} routes  {:<20} {mmb:6.1}          filled in {:.2} s", "mmb", filled.as_secs_f64());
    for peer in peers {
        let theirs = ticks(&peer.rounds);
        let (name, filled) = (&peer.name, peer.filled.as_secs_f64());
        println!("{:>17} {name:<20} {theirs:6.1}  mmb {:.2} x  filled in {filled:.2} s", "", mmb / theirs);
    }
}
