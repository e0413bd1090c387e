//! Source addresses as rules, and as the elements of a named set.

use std::time::{Duration, Instant};

use mmb_classify::{Classifier, Pattern};
use mmb_packet::Window;

use crate::questions::pattern;
use crate::rules::Random;
use crate::{KnownFlows, measure, ticks_per_ns};

/// Addresses that are added and removed for the cost of a change.
const CHANGES: u32 = 1000;

/// Rules that drop packets from `n` addresses, and the addresses.
pub fn rules(n: usize, random: &mut Random) -> (Vec<Pattern>, Vec<u32>) {
    let addresses: Vec<u32> = (0..n).map(|_| random.next() as u32).collect();
    let line = |a: &u32| format!("add ip-saddr {} drop", std::net::Ipv4Addr::from(*a));
    (addresses.iter().map(|address| pattern(&line(address))).collect(), addresses)
}

/// Packets from these addresses.
pub fn packets_from(addresses: &[u32], packets: &[Window], random: &mut Random) -> Vec<Window> {
    let from = |packet: &Window| {
        let mut packet = *packet;
        let address = addresses[random.below(addresses.len() as u64) as usize];
        packet.bytes_mut()[..4].copy_from_slice(&address.to_be_bytes());
        packet
    };
    packets.iter().map(from).collect()
}

/// Measures one rule with a set of the addresses, and prints a line like those of the other cases.
pub fn report(name: &str, addresses: &[u32], packets: &[Window], seed: u64) {
    let rule = pattern("add ip-saddr @s drop");
    let mut classifier = Classifier::with_seed(seed);
    let start = Instant::now();
    classifier.insert(0, &rule);
    while classifier.unfilled_set().is_some() {
        classifier.fill_set(addresses.iter().map(|address| (u128::from(*address), u128::from(*address))));
    }
    let build = start.elapsed();
    let other = pattern("add ip-ttl 255 ip-id 1 drop");
    let [flow, hosts, nothing] = [KnownFlows::Flow, KnownFlows::Hosts, KnownFlows::Nothing]
        .map(|known| measure(&classifier, packets, known, &other));
    let (insert, remove) = change_cost(&classifier);
    println!(
        "{name:<28} {:>8} {:>8.1} {:>8.1} {:>8.1} {:>8.2} {:>9.1} {insert:>9.1} {remove:>9.1} {:>8.0}",
        addresses.len(),
        flow.1 * ticks_per_ns(),
        hosts.1 * ticks_per_ns(),
        nothing.1 * ticks_per_ns(),
        flow.0,
        build.as_secs_f64() * 1e3,
        classifier.bytes() as f64 / addresses.len() as f64
    );
}

/// Mean time in microseconds to add an element, and to remove it, in a clone while the older value is kept.
fn change_cost(classifier: &Classifier) -> (f64, f64) {
    let (mut insert, mut remove) = (Duration::ZERO, Duration::ZERO);
    for n in 0..CHANGES {
        let address = u128::from(n.wrapping_mul(0x9e37_79b9));
        let mut next = classifier.clone();
        let start = Instant::now();
        next.insert_element("s", 32, (address, address));
        insert += start.elapsed();
        let mut after = next.clone();
        let start = Instant::now();
        after.remove_element("s", 32, (address, address));
        remove += start.elapsed();
    }
    let micros = |time: Duration| time.as_nanos() as f64 / f64::from(CHANGES) / 1000.0;
    (micros(insert), micros(remove))
}
