//! DPDK's `rte_acl` beside mmb's classifier: the same ClassBench rules, the same packets, the same run.
//!
//! Both classify vectors of 256 packets whose keys (`rte_acl`) or windows (mmb) have just been made; making
//! them is not counted. Repetitions alternate, so that whatever else the machine does hits both. `rte_acl`
//! runs with each implementation the machine has, and its best one is compared. It finds the first rule that
//! matches, mmb finds all of them; the first of those must be the same for every packet, or the run fails.
//!
//! Usage: `bench-acl RULES [TRACE]`, both plain text; without a trace, packets are sampled from the rules.
//! From the environment: `ACL_MEMORY` (MiB for `rte_acl`, 1024), `ACL_HUGE` (1: they are huge pages, which
//! have to be reserved; 0), `ACL_PACKETS` (sampled packets, 20000), `ACL_REPEAT` (repetitions, 15),
//! `ACL_SEED` (1).

mod acl;
mod rules;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use mmb_packet::{Kind, Meta, fill_window, parse};
use mmb_policy::{Batch, Policy, VECTOR};

use rules::{Key, Rule};

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
    let (path, trace) = match arguments.as_slice() {
        [rules] => (rules, None),
        [rules, trace] => (rules, Some(trace)),
        _ => return Err("usage: bench-acl RULES [TRACE]".into()),
    };
    let rules = rules::read_rules(&read(path)?)?;
    if rules.is_empty() {
        return Err(format!("{path} has no rules"));
    }
    let packets = match trace {
        Some(trace) => rules::read_trace(&read(trace)?)?,
        None => rules::sample(&rules, option("ACL_PACKETS", 20_000)? as usize, option("ACL_SEED", 1)?),
    };
    println!("{path}: {} rules, {} packets", rules.len(), packets.len());
    let (mmb, mmb_build) = Mmb::build(&rules, &packets)?;
    println!("mmb: built in {:.2} s", mmb_build.as_secs_f64());
    let huge = option("ACL_HUGE", 0)? != 0;
    let built = acl::load(option("ACL_MEMORY", 1024)? as u32, huge, &rules, &packets)?;
    let pages = if huge { "huge" } else { "ordinary" };
    println!("rte_acl: built in {:.2} s, {pages} pages", built.as_secs_f64());
    compare(mmb, &rules, packets.len(), option("ACL_REPEAT", 15)? as usize)
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}

/// A number from the environment.
fn option(name: &str, default: u64) -> Result<u64, String> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name}: `{text}` is no number")),
        Err(_) => Ok(default),
    }
}

/// Runs both in turn, checks that they agree, and prints ticks per packet and their ratio.
fn compare(mut mmb: Mmb, rules: &[Rule], packets: usize, repeat: usize) -> Result<(), String> {
    let algorithms = acl::algorithms();
    let mut theirs = vec![Rounds::default(); algorithms.len()];
    let [mut ours, mut hosts, mut strangers] = [const { Rounds(Vec::new()) }; 3];
    // The first round warms up and is checked, not counted.
    for round in 0..=repeat.max(1) {
        for ((_, number), rounds) in algorithms.iter().zip(&mut theirs) {
            acl::choose(*number);
            rounds.0.push(vectors(packets).map(|(first, count)| acl::classify(first, count)).collect());
        }
        strangers.0.push(mmb.classify(Flows::Unknown)?);
        hosts.0.push(mmb.classify(Flows::Hosts(round as u16))?);
        ours.0.push(mmb.classify(Flows::Known)?);
        if round == 0 {
            check(&mmb.first, rules)?;
            theirs.iter_mut().for_each(|rounds| rounds.0.clear());
            ours.0.clear();
            hosts.0.clear();
            strangers.0.clear();
        }
    }
    for ((name, _), rounds) in algorithms.iter().zip(&theirs) {
        println!("rte_acl {name}: {:.1} ticks a packet", rounds.ticks() / packets as f64);
    }
    let best = (0..algorithms.len()).min_by(|a, b| theirs[*a].ticks().total_cmp(&theirs[*b].ticks()));
    let best = best.ok_or("rte_acl has no implementation for this machine")?;
    let found = mmb.hits as f64 / packets as f64;
    println!("mmb finds {found:.2} matching rules a packet");
    let cases = [
        ("flows that came before", &ours),
        ("flows with new source ports", &hosts),
        ("nothing known of any flow", &strangers),
    ];
    for (which, ours) in cases {
        let (low, high) = ours.ratios(&theirs[best]);
        let (ticks, ratio) = (ours.ticks() / packets as f64, ours.ticks() / theirs[best].ticks());
        let peer = algorithms[best].0;
        println!(
            "mmb, {which}: {ticks:.1} ticks a packet, {ratio:.2} of rte_acl {peer} (rounds: {low:.2} to {high:.2})"
        );
    }
    Ok(())
}

/// Ticks of each vector, round by round.
#[derive(Clone, Default)]
struct Rounds(Vec<Vec<u64>>);

impl Rounds {
    /// Ticks of all vectors: of each the median of its rounds, so that an interruption does not count.
    fn ticks(&self) -> f64 {
        let vectors = self.0.first().map_or(0, Vec::len);
        let median = |vector: usize| {
            let mut ticks: Vec<u64> = self.0.iter().map(|round| round[vector]).collect();
            ticks.sort_unstable();
            ticks[ticks.len() / 2] as f64
        };
        (0..vectors).map(median).sum()
    }

    /// The least and the greatest ratio of two rounds that ran one behind the other.
    fn ratios(&self, other: &Rounds) -> (f64, f64) {
        let sum = |round: &Vec<u64>| round.iter().sum::<u64>() as f64;
        let ratios = self.0.iter().zip(&other.0).map(|(ours, theirs)| sum(ours) / sum(theirs));
        ratios.fold((f64::INFINITY, 0.0), |(low, high), ratio| (ratio.min(low), ratio.max(high)))
    }
}

/// Whether the first rule that mmb found for each packet is the one that `rte_acl` found.
fn check(first: &[u32], rules: &[Rule]) -> Result<(), String> {
    for (packet, &slot) in first.iter().enumerate() {
        let ours = rules.get(slot as usize).map_or(0, |rule| rule.number);
        let theirs = acl::result(packet);
        if ours != theirs {
            return Err(format!(
                "packet {packet}: mmb says rule {ours}, rte_acl says rule {theirs} (0: none)"
            ));
        }
    }
    let matched = first.iter().filter(|&&slot| slot != NONE).count();
    println!("agreed on all {} packets, of which {matched} match a rule", first.len());
    Ok(())
}

/// First packet and number of packets of each vector.
fn vectors(packets: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..packets).step_by(VECTOR).map(move |first| (first, VECTOR.min(packets - first)))
}

/// No rule matched.
const NONE: u32 = u32::MAX;

/// What mmb may remember of the round before.
enum Flows {
    /// Its results for the same packets.
    Known,
    /// Packets between the same hosts, but each round has another source port, one of those that Linux takes
    /// by itself. (What `rte_acl` does with the same packets does not depend on that.)
    Hosts(u16),
    /// Nothing: a rule came and went.
    Unknown,
}

/// mmb's side.
struct Mmb {
    policy: Policy,
    /// As many rules, one of which is added and deleted again.
    other: (Policy, mmb_lang::Rule),
    /// For each of [`Flows`].
    batches: [Batch; 3],
    packets: Vec<(Vec<u8>, Meta)>,
    /// The lowest slot that matched each packet in the last round, or [`NONE`].
    first: Vec<u32>,
    /// How many rules matched in the last round.
    hits: usize,
}

impl Mmb {
    /// Compiles the rules, in slots that follow their order; how long that took.
    fn build(rules: &[Rule], packets: &[Key]) -> Result<(Mmb, Duration), String> {
        let texts: Vec<String> = rules.iter().map(Rule::text).collect::<Result<_, _>>()?;
        let start = Instant::now();
        let parsed: Result<Vec<_>, _> = texts.iter().map(|text| mmb_lang::parse_line(text)).collect();
        let mut lines = Vec::with_capacity(rules.len());
        for command in parsed.map_err(|error| error.message)? {
            lines.extend(match command {
                Some(mmb_lang::Command::Add(rule)) => Some(rule),
                _ => None,
            });
        }
        let policy = Policy::new().replace(&lines, &|_| None);
        let policy = policy.map_err(|(position, error)| format!("{}: {}", texts[position], error.message))?;
        let elapsed = start.elapsed();
        let packets = packets.iter().map(|key| prepared(key.frame())).collect::<Result<Vec<_>, _>>()?;
        let first = vec![NONE; packets.len()];
        let other = (policy.clone(), lines.swap_remove(0));
        let batches = std::array::from_fn(|_| Batch::new());
        Ok((Mmb { policy, batches, other, packets, first, hits: 0 }, elapsed))
    }

    /// Classifies all packets; the ticks of each vector.
    fn classify(&mut self, flows: Flows) -> Result<Vec<u64>, String> {
        if let Flows::Unknown = flows {
            let (policy, rule) = &mut self.other;
            let index = policy.add(rule, &|_| None).map_err(|error| error.message)?;
            let slot = policy.del(index).ok_or("the rule that came is not there")?;
            policy.release(slot);
        }
        let [known, hosts, unknown] = &mut self.batches;
        let (policy, batch, sport) = match flows {
            Flows::Known => (&self.policy, known, None),
            Flows::Hosts(round) => (&self.policy, hosts, Some(32_768 + round % 28_000)),
            Flows::Unknown => (&self.other.0, unknown, None),
        };
        let chunks = policy.classifier().chunks();
        let (mut ticks, mut hits) = (Vec::new(), 0);
        for (first, count) in vectors(self.packets.len()) {
            for (window, (frame, meta)) in batch.windows.iter_mut().zip(&self.packets[first..first + count]) {
                fill_window(frame, meta, 0, 1, chunks, window);
                if let Some(sport) = sport
                    && matches!(meta.kind.l4(), Kind::TCP | Kind::UDP)
                {
                    window.bytes_mut()[8..10].copy_from_slice(&sport.to_be_bytes());
                }
            }
            batch.len = count;
            let start = acl::ticks();
            policy.classifier().classify(batch);
            ticks.push(acl::ticks() - start);
            hits += batch.hits.len();
            self.first[first..first + count].fill(NONE);
            for hit in &batch.hits {
                let slot = &mut self.first[first + usize::from(hit.pkt)];
                *slot = (*slot).min(hit.slot);
            }
        }
        self.hits = hits;
        Ok(ticks)
    }
}

fn prepared(frame: Vec<u8>) -> Result<(Vec<u8>, Meta), String> {
    let mut meta = Meta::default();
    parse(&frame, frame.len(), &mut meta).map_err(|reason| format!("a packet is dropped as {reason:?}"))?;
    Ok((frame, meta))
}
