//! `mmb explain`: what happens to the packets of a capture, and why.

use std::sync::Arc;

use mmb_control::{Config, TraceView, count, render, trace_entry};
use mmb_lang::RuleRef;
use mmb_nf::Registry;
use mmb_simulate::explain;
use mmb_simulate::replay::ReplayConfig;

use crate::cli::{ExplainArgs, SessionMemoryArgs};
use crate::failure::Failure;
use crate::offline::{base, forwarding_of, interfaces_of, load};
use crate::pager::Pager;

/// Tells about the packets one by one, as they are processed.
pub fn run(args: &ExplainArgs, functions: Arc<Registry>, json: bool, pager: &Pager) -> Result<(), Failure> {
    let config = load(&args.config, &base(functions, args.memory.scratchpad))?;
    let why = args.why.as_ref().map(|rule| rule_index(rule, &config)).transpose()?;
    let (forwarding, in_port) = forwarding_of(&config, args.interface.as_deref())?;
    let interfaces = interfaces_of(&config, args.interface.as_deref());
    let SessionMemoryArgs { sessions, scratchpad } = args.memory;
    let setup = ReplayConfig { forwarding, in_port, interfaces, sessions, scratchpad };
    let view = TraceView { why, shows_payload: true };
    let (mut out, mut shown) = (pager.output(), 0u64);
    if json {
        out.write(b"{\"packets\":[");
    }
    let report = explain::run(&setup, &args.input, args.packet, |trace| {
        let entry = trace_entry(&trace, &config, view);
        let text = match json {
            true => serde_json::to_string(&entry)
                .map(|document| format!("{}{document}", if shown > 0 { ",\n" } else { "\n" }))
                .unwrap_or_default(),
            false => render::trace(&entry),
        };
        shown += 1;
        out.write(text.as_bytes())
    });
    let report = report.map_err(Failure::new)?;
    if json {
        out.write(b"]}\n");
    }
    out.end()?;
    let (name, read) = (args.input.display(), count(report.packets, "packet"));
    match (args.packet, report.damage) {
        (_, Some(damage)) => Err(Failure::new(format!("{name}: {damage}; {read} before that: processed"))),
        (Some(number), None) if shown == 0 && number <= report.packets + report.outbound => {
            Err(Failure::new(format!(
                "packet {number} of {name} left by an interface: --in IFACE lets all packets arrive"
            )))
        }
        (Some(number), None) if shown == 0 => {
            Err(Failure::new(format!("there is no packet {number}: {name} has {read}")))
        }
        _ => Ok(()),
    }
}

/// The index of a rule that the configuration has.
fn rule_index(rule: &RuleRef, config: &Config) -> Result<u32, Failure> {
    config.rule_index(rule).map_err(|_| {
        let n = count(config.policy().len() as u64, "rule");
        Failure::new(format!("there is no rule {rule}: the file has {n}, with indexes from 1"))
    })
}
