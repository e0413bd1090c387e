//! `mmb bench`: the cost of a policy. The engine measures ([`mmb_simulate::bench`]); this module makes rules
//! and packets.
//!
//! Theory of operation. The rules are those of a configuration, or generated for a case. Generated rules pass
//! parser, checks and compiler as text. If the packets are generated too, no stateless rule may match one of
//! them: all flows are evaluated, and rules that match are generated again until none does.

mod cases;
mod chains;
mod field_masks;
mod sessions;
mod trace;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mmb_control::api::RuleEntry;
use mmb_control::count;
use mmb_control::{Config, Platform, file, render};
use mmb_dataplane::DEFAULT_SESSIONS;
use mmb_nf::Registry;
use mmb_packet::VecPacket;
use mmb_policy::{Evaluator, PacketContext, Policy};
use mmb_simulate::bench::{
    self, BenchConfig, BenchReport, Generated, Generator, MAX_PREFIXES, Prefixes, Traffic, resident,
};
use serde::Serialize;

use crate::cli::{BenchArgs, Case, Mode, Order, Proto};
use crate::failure::Failure;
use crate::offline::{load, rule_entries};
use crate::pager::Pager;
use crate::remote::{name, read_file};
use cases::{RuleGenerator, RuleRandom};

/// Maximum number of times that matching rules are generated again.
const MAX_DRAWS: usize = 100;

/// The report as JSON.
#[derive(Serialize)]
struct BenchSummary<'a> {
    #[serde(flatten)]
    report: &'a BenchReport,
    /// The case, if the rules were generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    case: Option<&'a CaseSummary>,
    /// All rules of a configuration, or the rules of a case that matched.
    rules: Vec<RuleEntry>,
}

/// The rules of a case.
#[derive(Serialize)]
struct CaseSummary {
    name: String,
    rules: usize,
    seed: u64,
    /// Time from the text of all rules to the policy, in seconds.
    load_seconds: f64,
    /// Memory that was allocated for it, in bytes.
    load_bytes: u64,
}

/// `mmb bench`.
pub fn bench(args: &BenchArgs, functions: Arc<Registry>, json: bool, pager: &Pager) -> Result<(), Failure> {
    let base = Config::with_platform(Platform {
        functions,
        workers: u16::try_from(args.workers).unwrap_or(u16::MAX),
        seed: args.seed,
        scratchpad: args.scratchpad,
        files: Arc::default(),
        processes: None,
        supervisor: None,
    });
    let routes = routes(args)?;
    let traffic = traffic(args, routes)?;
    let (mut against, is_stateless) = (None, |case| sessions::Kind::of(case).is_none());
    let (config, case) = match (args.case, &args.chain) {
        (Some(case), _) => {
            let (config, summary) = config_of_case(case, args, &traffic)?;
            if let Some(other) = args.turns.against {
                if !is_stateless(case) || !is_stateless(other) {
                    return Err(Failure::usage("--against compares cases of stateless rules"));
                }
                against = Some(config_of_case(other, args, &traffic)?.0.forwarding(|_| true));
            }
            (config, Some(summary))
        }
        (None, Some(chain)) => {
            let (config, summary) = config_of_chain(chain, args, &base)?;
            (config, Some(summary))
        }
        (None, None) => {
            (args.config.as_deref().map_or_else(|| Ok(base.clone()), |path| load(path, &base))?, None)
        }
    };
    let forwarding = config.forwarding(|_| true);
    let sessions = args.sessions.unwrap_or_else(|| (args.flows as usize * 2).max(DEFAULT_SESSIONS));
    let (seconds, workers) = (args.seconds, args.workers);
    let (scratchpad, counting) = (args.scratchpad, args.turns.counting);
    let bench = BenchConfig {
        forwarding,
        routes,
        traffic,
        seconds,
        workers,
        sessions,
        scratchpad,
        counting,
        against,
    };
    let report = bench::run(&bench).map_err(Failure::new)?;
    let mut rules = rule_entries(&config, &report.rules);
    if case.is_some() {
        rules.retain(|rule| rule.packets > 0);
    }
    if json {
        return pager.print_json(&BenchSummary { report: &report, case: case.as_ref(), rules });
    }
    pager.print(&(case.as_ref().map_or_else(String::new, case_text) + &bench_text(&report, rules)))
}

/// The configuration of a case.
fn config_of_case(case: Case, args: &BenchArgs, traffic: &Traffic) -> Result<(Config, CaseSummary), Failure> {
    if let Some(kind) = sessions::Kind::of(case) {
        return config_of_sessions(kind, case, args, traffic);
    }
    if args.ip6 && case == Case::Classbench {
        return Err(Failure::usage("ClassBench's filter sets are about IPv4; leave out --ip6"));
    }
    let destinations = match traffic {
        Traffic::Generated(config) => config.destinations,
        _ => None,
    };
    let generator =
        match (RuleGenerator::new(case, RuleRandom::new(args.seed, args.ip6, destinations)), &args.filters) {
            (None, Some(filters)) => return config_of_filters(filters, args.seed),
            (None, None) => return Err(Failure::usage("the case classbench needs the FILE of a filter set")),
            (Some(_), Some(_)) => return Err(Failure::usage("only the case classbench takes a FILE")),
            (Some(generator), None) => generator,
        };
    if args.rules > generator.max_rules() {
        let max = generator.max_rules();
        return Err(Failure::new(format!(
            "invalid number of rules {}; the case has at most {max}",
            args.rules
        )));
    }
    let frames = match traffic {
        Traffic::Generated(config) => {
            let traffic = Generator::new(config, 0);
            (0..config.flows).map(|flow| traffic.flow(flow)).collect()
        }
        _ => Vec::new(),
    };
    generate_rules(generator, args, case, &frames)
}

fn name_of(case: Case) -> String {
    clap::ValueEnum::to_possible_value(&case).map_or_else(String::new, |v| v.get_name().to_owned())
}

/// The configuration of a case in which every packet belongs to a session, or opens one.
fn config_of_sessions(
    kind: sessions::Kind,
    case: Case,
    args: &BenchArgs,
    traffic: &Traffic,
) -> Result<(Config, CaseSummary), Failure> {
    let Traffic::Generated(traffic) = traffic else {
        return Err(Failure::usage("the cases of sessions generate their packets"));
    };
    if args.filters.is_some() {
        return Err(Failure::usage("only the case classbench takes a FILE"));
    }
    if kind.nat && traffic.ip6 {
        return Err(Failure::usage("the cases of NAT are about IPv4; leave out --ip6"));
    }
    let lines = sessions::lines(kind, args.rules, traffic, args.seed);
    load_text(&lines.join("\n"), name_of(case), args.seed, &Config::new())
}

/// The configuration of `--chain`: one rule and one chain.
fn config_of_chain(chain: &str, args: &BenchArgs, base: &Config) -> Result<(Config, CaseSummary), Failure> {
    let functions = chains::functions(chain).map_err(Failure::new)?;
    let lines = chains::lines(&functions, args.independent, args.flows);
    let apart = if args.independent { ", each with a table of its own" } else { "" };
    load_text(&lines.join("\n"), format!("chain {chain}{apart}"), args.seed, base)
}

/// Generates rules until none matches a frame.
fn generate_rules(
    mut generator: RuleGenerator,
    args: &BenchArgs,
    case: Case,
    frames: &[Vec<u8>],
) -> Result<(Config, CaseSummary), Failure> {
    let name = name_of(case);
    let mut lines: Vec<String> = (0..args.rules).map(|position| generator.line(position)).collect();
    // Only the first load allocates all its memory; later ones reuse what it freed.
    let mut most_bytes = 0;
    for _ in 0..MAX_DRAWS {
        let (config, mut summary) = load_text(&lines.join("\n"), name.clone(), args.seed, &Config::new())?;
        most_bytes = summary.load_bytes.max(most_bytes);
        summary.load_bytes = most_bytes;
        let matching = matching(config.policy(), frames);
        if matching.is_empty() && case == Case::Set {
            drop(config);
            return load_text(&cases::as_set(&lines).join("\n"), name, args.seed, &Config::new());
        }
        if matching.is_empty() {
            return Ok((config, summary));
        }
        drop(config);
        for position in matching.into_iter().map(|index| index as usize - 1) {
            lines[position] = generator.line(position);
        }
    }
    Err(Failure::new(format!("rules matched the packets {MAX_DRAWS} times; use fewer --flows")))
}

/// Indexes of the rules that match any frame.
fn matching(policy: &Policy, frames: &[Vec<u8>]) -> BTreeSet<u32> {
    let mut evaluator = Evaluator::new();
    let around = PacketContext::wire(0, 1);
    let run = |frame: &Vec<u8>| evaluator.evaluate(policy, &mut VecPacket::new(frame), around, || 0).matched;
    frames.iter().flat_map(run).collect()
}

/// The configuration of a ClassBench filter set.
fn config_of_filters(path: &Path, seed: u64) -> Result<(Config, CaseSummary), Failure> {
    let text = String::from_utf8_lossy(&read_file(path)?).into_owned();
    load_text(
        &mmb_import::from_classbench(&text, "drop").text(),
        "classbench".to_owned(),
        seed,
        &Config::new(),
    )
}

fn load_text(text: &str, name: String, seed: u64, base: &Config) -> Result<(Config, CaseSummary), Failure> {
    let (start, before) = (Instant::now(), resident());
    let config = file::load(text.as_bytes(), base)
        .map_err(|refusal| Failure::of_file("a rule of the case", text.as_bytes(), &refusal))?;
    let load_seconds = start.elapsed().as_secs_f64();
    let load_bytes = resident().saturating_sub(before);
    let rules = config.policy().len();
    Ok((config, CaseSummary { name, rules, seed, load_seconds, load_bytes }))
}

fn case_text(case: &CaseSummary) -> String {
    format!(
        "{}, seed {}: {} loaded in {:.2} s, {:.1} MiB\n",
        case.name,
        case.seed,
        count(case.rules as u64, "rule"),
        case.load_seconds,
        case.load_bytes as f64 / f64::from(1 << 20)
    )
}

/// Default number of routes of the mode routed.
const DEFAULT_ROUTES: usize = 10;

/// The routes of the mode routed; none in the mode wire.
fn routes(args: &BenchArgs) -> Result<Option<Prefixes>, Failure> {
    match (args.mode, args.routes) {
        (Mode::Wire, None) => Ok(None),
        (Mode::Wire, Some(_)) => Err(Failure::usage("--routes needs --mode routed")),
        (Mode::Routed, routes) => {
            let routes = routes.unwrap_or(DEFAULT_ROUTES);
            if !(1..=MAX_PREFIXES).contains(&routes) {
                return Err(Failure::new(format!(
                    "invalid number of routes {routes}; use 1 to {MAX_PREFIXES}"
                )));
            }
            Ok(Some(Prefixes::new(routes, args.ip6, args.seed)))
        }
    }
}

fn traffic(args: &BenchArgs, destinations: Option<Prefixes>) -> Result<Traffic, Failure> {
    if let Some(path) = &args.pcap {
        return Ok(Traffic::Pcap(path.clone()));
    }
    if let Some(path) = &args.trace {
        let text = String::from_utf8_lossy(&read_file(path)?).into_owned();
        let frames = trace::frames(&text, args.size);
        return frames.map(Traffic::Frames).map_err(|error| Failure::new(format!("{}: {error}", name(path))));
    }
    if args.null_ports {
        return Ok(Traffic::NullPorts(args.size));
    }
    // Only TCP segments have options.
    let default = if args.case == Some(Case::Options) { Proto::Tcp } else { Proto::Mix };
    Ok(Traffic::Generated(Generated {
        flows: args.flows,
        size: args.size,
        proto: match args.proto.unwrap_or(default) {
            Proto::Tcp => bench::Proto::Tcp,
            Proto::Udp => bench::Proto::Udp,
            Proto::Mix => bench::Proto::Mix,
        },
        order: match args.order {
            _ if args.case.and_then(sessions::Kind::of).is_some_and(|kind| kind.opens) => bench::Order::Fresh,
            Order::Uniform => bench::Order::Uniform,
            Order::Zipf => bench::Order::Zipf,
            Order::Burst => bench::Order::Burst,
        },
        ip6: args.ip6,
        answered: args.answers.answered,
        in_flight: args.answers.in_flight,
        payload: args.payload.clone().into_bytes(),
        seed: args.seed,
        destinations,
    }))
}

/// Maximum number of rules in the text; the JSON has all.
const MAX_RULES_SHOWN: usize = 20;

fn bench_text(report: &BenchReport, rules: Vec<RuleEntry>) -> String {
    let mut text = format!(
        "{} packets in {:.2} s: {:.2} million packets a second, {:.1} ticks a packet ({:.2} GHz)\n",
        report.packets,
        report.seconds,
        report.pps / 1e6,
        report.ticks_per_packet,
        report.tsc_hz as f64 / 1e9
    );
    if let Some(routed) = &report.routed {
        let routes = count(routed.routes as u64, "route");
        let (filled, path) = (routed.routes_seconds, routed.plain_path);
        text.push_str(&format!("{routes} loaded in {filled:.2} s; plain path: {path:.1} ticks a packet"));
        let ratio = routed.ratio.map(|ratio| format!("; rules and sessions: {ratio:.2} times that"));
        text.push_str(&format!("{}\n", ratio.unwrap_or_default()));
    }
    if let Some(sessions) = &report.sessions {
        text.push_str(&format!("{}, {:.0} bytes each\n", count(sessions.open, "session"), sessions.bytes));
    }
    let nodes = report.nodes.iter().filter(|(_, n)| n.packets > 0);
    text.push_str(&render::nodes(
        nodes.map(|(name, n)| (name.as_str(), n.packets, n.vectors, n.ticks_per_packet)),
    ));
    if let Some(cost) = &report.chains {
        text.push_str(&chains::text(cost));
    }
    if let Some(cost) = &report.counting {
        text.push_str(&format!(
            "counting: {:.1} ticks a packet, {:.1} % (median of {} rounds, least {:.1} %); clock of nodes: {:.1} ticks, \
             {:.1} %\n",
            cost.counters.ticks_per_packet,
            cost.counters.percent,
            cost.counters.rounds,
            cost.counters.least_percent,
            cost.clock_ticks_per_packet,
            cost.clock_percent
        ));
    }
    if let Some(cost) = &report.against {
        text.push_str(&format!(
            "more than the other case: {:.1} ticks a packet, {:.1} % (median of {} rounds, least {:.1} %)\n",
            cost.ticks_per_packet, cost.percent, cost.rounds, cost.least_percent
        ));
    }
    for (reason, n) in &report.drops {
        text.push_str(&format!("dropped, {reason}: {n}\n"));
    }
    for (reason, n) in &report.unedited {
        text.push_str(&format!("forwarded unedited, {reason}: {n}\n"));
    }
    let matched: Vec<_> = rules.into_iter().filter(|r| r.packets > 0).collect();
    let more = matched.len().saturating_sub(MAX_RULES_SHOWN);
    if !matched.is_empty() {
        let rules = matched.into_iter().take(MAX_RULES_SHOWN).collect();
        text.push_str(&render::rules(&mmb_control::api::RuleList { rules }));
    }
    if more > 0 {
        text.push_str(&format!("and {more} more rules that matched; --json shows all\n"));
    }
    text
}
