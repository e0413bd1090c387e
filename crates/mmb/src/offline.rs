//! Commands without a daemon: checking a file, replaying a capture.

use std::path::Path;
use std::sync::Arc;

use mmb_control::api::RuleEntry;
use mmb_control::count;
use mmb_control::{Config, Platform, file, render};
use mmb_dataplane::{Forwarding, PortConfig, PortId, RuleCounters};
use mmb_nf::Registry;
use mmb_simulate::replay::{self, ReplayConfig, ReplayReport};
use serde::Serialize;

use crate::cli::{CheckArgs, ReplayArgs, SessionMemoryArgs};
use crate::failure::Failure;
use crate::pager::Pager;
use crate::remote::{name, read_file};

/// Seed of random numbers, so that runs are equal.
const SEED: u64 = 1;

/// An empty configuration for functions that run in this process, with one worker.
pub fn base(functions: Arc<Registry>, scratchpad: usize) -> Config {
    Config::with_platform(Platform {
        functions,
        workers: 1,
        seed: SEED,
        scratchpad,
        files: Arc::default(),
        processes: None,
        supervisor: None,
    })
}

/// Loads a complete configuration file, starting from `base`.
pub fn load(path: &Path, base: &Config) -> Result<Config, Failure> {
    let text = read_file(path)?;
    file::load(&text, base).map_err(|refusal| Failure::of_file(&name(path), &text, &refusal))
}

/// `mmb check FILE`.
pub fn check(args: &CheckArgs, functions: Arc<Registry>, json: bool, pager: &Pager) -> Result<(), Failure> {
    let path = &args.file;
    let text = read_file(path)?;
    match file::check(&text, &base(functions, args.scratchpad)) {
        Ok(reply) if json => pager.print_json(&reply),
        Ok(reply) => {
            let (rules, interfaces) = (count(reply.rules, "rule"), count(reply.interfaces, "interface"));
            let warnings = render::warnings(&reply.warnings);
            pager.print(&format!("{}: {rules}, {interfaces}: ok\n{warnings}", name(path)))
        }
        Err(refusal) => {
            if json {
                pager.print_json(&refusal.clone().into_reply())?;
            }
            Err(Failure::of_file(&name(path), &text, &refusal))
        }
    }
}

/// The summary of a replay as JSON.
#[derive(Serialize)]
struct ReplaySummary<'a> {
    packets: u64,
    forwarded: u64,
    dropped: &'a std::collections::BTreeMap<&'static str, u64>,
    unedited: &'a std::collections::BTreeMap<&'static str, u64>,
    /// Frames that are not packets of the capture: ICMP errors, SYN cookies, frames of functions.
    emitted: u64,
    /// Packets in whose place functions sent others with the edited bytes, or none.
    consumed: u64,
    foreign: u64,
    /// Packets that were skipped, as they had left by an interface.
    outbound: u64,
    damage: Option<&'a str>,
    rules: Vec<RuleEntry>,
}

/// `mmb replay`.
pub fn replay(args: &ReplayArgs, functions: Arc<Registry>, json: bool, pager: &Pager) -> Result<(), Failure> {
    let config = load(&args.config, &base(functions, args.memory.scratchpad))?;
    let (forwarding, in_port) = forwarding_of(&config, args.interface.as_deref())?;
    let interfaces = interfaces_of(&config, args.interface.as_deref());
    let SessionMemoryArgs { sessions, scratchpad } = args.memory;
    let setup = ReplayConfig { forwarding, in_port, interfaces, sessions, scratchpad };
    let report = replay::run(&setup, &args.input, args.output.as_deref()).map_err(Failure::new)?;
    let rules = rule_entries(&config, &report.rules);
    if json {
        pager.print_json(&ReplaySummary {
            packets: report.packets,
            forwarded: report.forwarded,
            dropped: &report.drops,
            unedited: &report.unedited,
            emitted: report.emitted,
            consumed: report.consumed,
            foreign: report.foreign,
            outbound: report.outbound,
            damage: report.damage.as_deref(),
            rules,
        })?;
    } else {
        pager.print(&replay_text(&report, rules))?;
    }
    match report.damage {
        None => Ok(()),
        Some(damage) => Err(Failure::new(format!(
            "{}: {damage}; {} before that: processed",
            args.input.display(),
            count(report.packets, "packet")
        ))),
    }
}

fn replay_text(report: &ReplayReport, rules: Vec<RuleEntry>) -> String {
    let mut text = format!(
        "{}: {} forwarded, {} dropped\n",
        count(report.packets, "packet"),
        report.forwarded,
        report.dropped
    );
    for (reason, n) in &report.drops {
        text.push_str(&format!("dropped, {reason}: {n}\n"));
    }
    for (reason, n) in &report.unedited {
        text.push_str(&format!("forwarded unedited, {reason}: {n}\n"));
    }
    if report.consumed > 0 {
        text.push_str(&format!("replaced by edited ones: {}\n", report.consumed));
    }
    if report.emitted > 0 {
        text.push_str(&format!("emitted, not in the capture: {}\n", report.emitted));
    }
    if report.foreign > 0 {
        text.push_str(&format!("skipped, not Ethernet: {}\n", report.foreign));
    }
    if report.outbound > 0 {
        text.push_str(&format!("skipped, left by an interface: {}\n", report.outbound));
    }
    text + &render::rules(&mmb_control::api::RuleList { rules })
}

/// The forwarding of a configuration, and the ingress port of the packets. A configuration without interfaces
/// gets two wired ports without names.
pub fn forwarding_of(config: &Config, interface: Option<&str>) -> Result<(Forwarding, PortId), Failure> {
    if let Some(routed) = config.interfaces().iter().find(|i| i.routed.is_some()) {
        return Err(Failure::new(format!(
            "the file routes `{0}`, and a replay has no routes of a kernel; replay a copy of the file with `wire` lines instead \
             of `route {0}`",
            routed.name
        )));
    }
    let mut forwarding = config.forwarding(|_| true);
    let known = || config.interfaces().iter().map(|i| i.name.as_str()).collect::<Vec<_>>().join(", ");
    match (interface, config.interfaces().first()) {
        (Some(wanted), Some(_)) => match config.interface(wanted) {
            Some(i) => Ok((forwarding, i.id)),
            None => Err(Failure::new(format!(
                "there is no interface `{wanted}` in the file; there are: {}",
                known()
            ))),
        },
        (Some(wanted), None) => Err(Failure::new(format!("there is no interface `{wanted}` in the file"))),
        (None, Some(first)) => Ok((forwarding, first.id)),
        (None, None) => {
            let (a, b) = (PortId(0), PortId(1));
            forwarding.ports = vec![PortConfig::wire(a, b), PortConfig::wire(b, a)];
            Ok((forwarding, a))
        }
    }
}

/// The ports by the names of interfaces, unless an interface is given at which all packets arrive.
pub fn interfaces_of(config: &Config, interface: Option<&str>) -> Vec<(String, PortId)> {
    match interface {
        Some(_) => Vec::new(),
        None => config.interfaces().iter().map(|i| (i.name.clone(), i.id)).collect(),
    }
}

/// The rules with their counters. `counters` is sorted by slot.
pub fn rule_entries(config: &Config, counters: &[(u32, RuleCounters)]) -> Vec<RuleEntry> {
    let count = |slot| match counters.binary_search_by_key(&slot, |(slot, _)| *slot) {
        Ok(at) => counters[at].1,
        Err(_) => RuleCounters::default(),
    };
    let policy = config.policy();
    policy.rules().map(|view| RuleEntry::new(policy, &view, count(view.slot))).collect()
}
