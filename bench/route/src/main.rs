//! DPDK's forwarding nodes (`ip4_lookup`, `ip4_rewrite` of librte_node) and its route tables (`rte_fib`,
//! `rte_lpm`) beside mmb's: the same routes, the same packets, the same run.
//!
//! `bench-route tables ROUTES …` compares lookups in one process; all must find the same next hops, or the
//! run fails. `bench-route nodes MMB` runs DPDK's graph and `mmb bench --mode routed` in turn. Routes and
//! frames come from the very code that `mmb bench` makes them with. From the environment: `ROUTE_HUGE` (1:
//! DPDK's memory is in huge pages, which have to be reserved; 0), `ROUTE_REPEAT` (runs, 5), `ROUTE_SECONDS`
//! (of each run of the nodes, 2), `ROUTE_SEED` (1).

mod nodes;
mod tables;

// Seen from here, they have more than is needed.
#[allow(dead_code)]
#[path = "../../../crates/simulate/src/bench/prefixes.rs"]
mod prefixes;
#[allow(dead_code)]
#[path = "../../../crates/simulate/src/bench/traffic/mod.rs"]
mod traffic;

use std::process::ExitCode;

// SAFETY: the functions take and return numbers only.
unsafe extern "C" {
    safe fn peer_start(megabytes: u32, huge: u32) -> i32;
    safe fn peer_ticks() -> u64;
}

/// Memory for DPDK's tables with a million routes.
const TABLES_MB: u32 = 1_024;
const NODES_MB: u32 = 192;
/// Routes and flows of the comparison of nodes.
const NODES: [(usize, u32); 4] = [(10, 1_000), (1_000, 1_000), (1_000, 1_000_000), (1_000_000, 1_000_000)];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (repeat, seed) = (option("ROUTE_REPEAT", 5)? as usize, option("ROUTE_SEED", 1)?);
    let seconds = option("ROUTE_SECONDS", 2)? as f64;
    match words.as_slice() {
        ["tables", numbers @ ..] if !numbers.is_empty() => {
            let numbers: Vec<usize> = numbers.iter().map(|n| number(n)).collect::<Result<_, _>>()?;
            start(TABLES_MB)?;
            tables::compare(&numbers, repeat.max(1), seed)
        }
        ["nodes", mmb] => {
            NODES.iter().try_for_each(|&(routes, flows)| nodes::compare(mmb, routes, flows, seconds, repeat))
        }
        ["peer", routes, flows, seconds] => {
            start(NODES_MB)?;
            nodes::peer(number(routes)?, number(flows)?, number(seconds)?, seed)
        }
        _ => Err("usage: bench-route tables ROUTES … | nodes MMB".into()),
    }
}

fn start(megabytes: u32) -> Result<(), String> {
    let huge = option("ROUTE_HUGE", 0)? != 0;
    checked("DPDK cannot be started", peer_start(megabytes, huge.into()))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

/// A number from the environment.
fn option(name: &str, default: u64) -> Result<u64, String> {
    match std::env::var(name) {
        Ok(text) => number(&text).map_err(|error| format!("{name}: {error}")),
        Err(_) => Ok(default),
    }
}

fn checked(what: &str, done: i32) -> Result<(), String> {
    match done {
        0 => Ok(()),
        error => Err(format!("{what}: {}", std::io::Error::from_raw_os_error(error.saturating_neg()))),
    }
}

/// The median; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
