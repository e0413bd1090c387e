//! Time and memory to load rules and to change one, for growing numbers of 5-tuple rules.
//!
//! `cargo run --release -p mmb-policy --example load [SEED]`

#![forbid(unsafe_code)]

use std::time::Instant;

use mmb_lang::{Command, Rule, parse_line};
use mmb_policy::Policy;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn line(random: &mut SmallRng) -> String {
    let (a, b) = (random.random::<u64>(), random.random::<u64>());
    let proto = if b >> 63 == 0 { "tcp" } else { "udp" };
    let [source, destination] =
        [(a & 0xff_ffff | 0x0a00_0000) as u32, (a >> 32) as u32].map(std::net::Ipv4Addr::from);
    let (sport, dport) = (b & 0xffff, b >> 16 & 0xffff);
    format!(
        "add ip-saddr {source} ip-daddr {destination} ip-proto {proto} {proto}-sport {sport} {proto}-dport {dport} drop"
    )
}

fn rule(random: &mut SmallRng) -> Rule {
    match parse_line(&line(random)) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{other:?}"),
    }
}

/// Resident memory in MiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kib = line.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

/// CPU seconds of this thread, independent of other load (Linux: `proc_pid_schedstat(5)`).
fn ran() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

fn no_interfaces(_: &str) -> Option<u16> {
    None
}

fn main() {
    let seed = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut random = SmallRng::seed_from_u64(seed);
    println!(
        "clone+add, clone+del: one change with the older policy kept meanwhile, mean and median of 1,000, µs"
    );
    println!(
        "{:>9} {:>8} {:>8} {:>8} {:>16} {:>16} {:>10}",
        "rules", "parse s", "add s", "MiB", "clone+add", "clone+del", "replace s"
    );
    for n in [1_000, 100_000, 1_000_000] {
        let before = resident();
        let mut policy = Policy::new();
        let (mut parse, mut add) = (0.0, 0.0);
        for first in (0..n).step_by(1000) {
            let start = ran();
            let rules: Vec<Rule> = (first..n).take(1000).map(|_| rule(&mut random)).collect();
            parse += ran() - start;
            let start = ran();
            for rule in &rules {
                policy.add(rule, &no_interfaces).expect("a good rule");
            }
            add += ran() - start;
        }
        let memory = resident() - before;
        let rules: Vec<Rule> = (0..1000).map(|_| rule(&mut random)).collect();
        let adds = changes(&mut policy, |next, i| next.add(&rules[i], &no_interfaces).is_ok());
        let dels = changes(&mut policy, |next, i| next.del(1 + (i * 7919 % n) as u32).is_some());
        let replace = if n > 100_000 { f64::NAN } else { replace(&policy) };
        println!("{n:>9} {parse:>8.3} {add:>8.3} {memory:>8.1} {adds:>16} {dels:>16} {replace:>10.3}");
    }
}

/// Mean and median time to clone the policy, change the clone, and drop the old one.
fn changes(policy: &mut Policy, mut change: impl FnMut(&mut Policy, usize) -> bool) -> String {
    let mut times = Vec::new();
    for i in 0..1000 {
        let start = Instant::now();
        let mut next = policy.clone();
        assert!(change(&mut next, i));
        *policy = next;
        times.push(start.elapsed().as_nanos() as f64 / 1000.0);
    }
    times.sort_by(f64::total_cmp);
    format!("{:.1} / {:.1}", times.iter().sum::<f64>() / times.len() as f64, times[times.len() / 2])
}

/// Seconds to replace a policy by its own rules.
fn replace(policy: &Policy) -> f64 {
    let rules: Vec<Rule> = policy.rules().filter_map(|view| view.rule().ok()).collect();
    let start = ran();
    let replaced = policy.replace(&rules, &no_interfaces).expect("good rules");
    let seconds = ran() - start;
    assert!(policy.rules().map(|view| view.slot).eq(replaced.rules().map(|view| view.slot)));
    seconds
}
