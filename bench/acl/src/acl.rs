//! `rte_acl`, by way of `acl.c`. One context for the process, used by one thread.

use std::time::{Duration, Instant};

use crate::rules::{Key, Rule};

// SAFETY: the functions take and return numbers only, keep their data themselves, and check every index.
unsafe extern "C" {
    safe fn acl_start(megabytes: u32, huge: u32, rules: u32, room: u32) -> i32;
    safe fn acl_rule(
        number: u32,
        source: u32,
        source_bits: u32,
        destination: u32,
        destination_bits: u32,
        source_ports: u32,
        destination_ports: u32,
        protocol: u32,
        protocol_mask: u32,
    ) -> i32;
    safe fn acl_packet(number: u32, source: u32, destination: u32, ports: u32, protocol: u32) -> i32;
    safe fn acl_build() -> i32;
    safe fn acl_algorithm(algorithm: u32) -> i32;
    safe fn acl_ticks() -> u64;
    safe fn acl_classify(first: u32, count: u32) -> u64;
    safe fn acl_result(packet: u32) -> u32;
}

/// The implementations that a machine may have, by their numbers in `enum rte_acl_classify_alg`.
const ALGORITHMS: [(&str, u32); 5] =
    [("avx512x32", 7), ("avx512x16", 6), ("avx2", 3), ("sse", 2), ("scalar", 1)];

/// The time stamp counter.
pub fn ticks() -> u64 {
    acl_ticks()
}

/// Starts DPDK with memory in huge pages or ordinary ones, adds rules and packets and builds; how long the
/// build took.
pub fn load(megabytes: u32, huge: bool, rules: &[Rule], packets: &[Key]) -> Result<Duration, String> {
    checked(
        "DPDK cannot be started",
        acl_start(megabytes, huge.into(), rules.len() as u32, packets.len() as u32),
    )?;
    let ports = |(low, high): (u16, u16)| u32::from(low) << 16 | u32::from(high);
    for rule in rules {
        let five = &rule.five_tuple;
        let done = acl_rule(
            rule.number,
            five.source.0.into(),
            five.source.1.into(),
            five.destination.0.into(),
            five.destination.1.into(),
            ports(five.source_ports),
            ports(five.destination_ports),
            rule.protocol.unwrap_or(0).into(),
            if rule.protocol.is_some() { 0xff } else { 0 },
        );
        checked("a rule cannot be added", done)?;
    }
    for (number, key) in (0..).zip(packets) {
        let ports = ports((key.source_port, key.destination_port));
        let done = acl_packet(number, key.source.into(), key.destination.into(), ports, key.protocol.into());
        checked("a packet cannot be added", done)?;
    }
    let start = Instant::now();
    checked("rte_acl cannot be built", acl_build())?;
    Ok(start.elapsed())
}

fn checked(what: &str, done: i32) -> Result<(), String> {
    match done {
        0 => Ok(()),
        error => Err(format!("{what}: {}", std::io::Error::from_raw_os_error(error.saturating_neg()))),
    }
}

/// The names of the implementations that this machine has.
pub fn algorithms() -> Vec<(&'static str, u32)> {
    ALGORITHMS.into_iter().filter(|(_, number)| acl_algorithm(*number) == 0).collect()
}

/// Chooses an implementation that [`algorithms`] named.
pub fn choose(algorithm: u32) {
    acl_algorithm(algorithm);
}

/// Classifies `count` packets (a vector at most) from `first` on; the ticks it took.
pub fn classify(first: usize, count: usize) -> u64 {
    acl_classify(first as u32, count as u32)
}

/// The number of the rule that a packet matched; 0: none.
pub fn result(packet: usize) -> u32 {
    acl_result(packet as u32)
}
