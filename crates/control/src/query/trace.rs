//! Traces of packets as documents.

use std::fmt;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mmb_dataplane::{
    LiveTrace, NextTrace, PacketTrace, Policy, PortId, TraceDetail, TraceEnd, TraceSelection, TraceStep,
    TracedSession,
};
use mmb_flow::Direction;
use mmb_lang::{Action, Diagnostic, FieldId, Match, MatchExpr, Rule, RuleKind, RuleRef, SourceSpan};
use mmb_nf::Verdict;
use mmb_packet::Kind;
use mmb_policy::RuleView;
use mmb_policy::explain::{FieldChange, HeaderFields, differences, explain_matches};

use super::connections::entry;
use super::ports::PortNames;
use crate::api::{
    TraceChange, TraceCheck, TraceEntry, TraceFunction, TraceNode, TraceRule, TraceRules, TraceSession,
    TraceWhy,
};
use crate::config::Config;
use crate::error::CommandError;
use crate::render;
use crate::transaction::Control;

/// How often a trace without packets looks whether its reader is there.
const PATIENCE: Duration = Duration::from_millis(250);

/// Packets of `trace`, written while they are processed.
#[derive(Clone)]
pub struct TraceListing {
    trace: Arc<LiveTrace>,
    config: Arc<Config>,
    /// The index of a rule to explain match by match.
    why: Option<u32>,
    limits: (u32, Option<u32>),
}

impl fmt::Debug for TraceListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceListing").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Control {
    /// `trace`, with the rule to explain, the number of packets and the time in seconds. Checks the matches
    /// and begins.
    pub(crate) fn trace(
        &self,
        matches: &[Match],
        why: Option<&RuleRef>,
        limits: (u32, Option<u32>),
    ) -> Result<TraceListing, CommandError> {
        let config = self.state().config;
        let filter = packet_filter(matches, &config)?;
        let why = why.map(|rule| config.rule_index(rule)).transpose()?;
        let selection =
            TraceSelection { filter, wants: Arc::new(|_| true), count: limits.0, detail: TraceDetail::Path };
        let trace = self.begin_trace(&selection)?;
        Ok(TraceListing { trace: Arc::new(trace), config: Arc::new(config), why, limits })
    }

    /// Begins to trace packets.
    pub(super) fn begin_trace(&self, selection: &TraceSelection) -> Result<LiveTrace, CommandError> {
        self.engine().trace(selection).ok_or_else(|| {
            let message = "another trace or capture runs; try again when it has ended".to_owned();
            CommandError::conflict(message, SourceSpan::default())
        })
    }
}

/// A policy of one rule that accepts packets with these matches. None: all packets.
pub(super) fn packet_filter(matches: &[Match], config: &Config) -> Result<Option<Policy>, CommandError> {
    if matches.is_empty() {
        return Ok(None);
    }
    mmb_lang::check_matches(matches)?;
    config.check_matches(matches)?;
    let reads_out = |one: &&Match| matches!(one.what, MatchExpr::Field { field: FieldId::Out, .. });
    if let Some(one) = matches.iter().find(reads_out) {
        let message = "`out` is not known when a packet comes in, and packets are selected there";
        return Err(Diagnostic::new(one.span.span(), message).with_help("match `in`, or addresses").into());
    }
    let targets = vec![Action::Accept.into()];
    let rule = Rule {
        kind: RuleKind::Add,
        matches: matches.to_vec(),
        targets,
        span: SourceSpan::default(),
        label: None,
    };
    let mut policy = Policy::new().with_sets(config.policy().sets().clone());
    policy.add(&rule, &|name: &str| config.port_of(name))?;
    Ok(Some(policy))
}

impl TraceListing {
    /// Writes packets as text, each as soon as it has left the graph.
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.for_each(out, |out, entry| out.write_all(render::trace(entry).as_bytes()))
    }

    /// Writes a [`crate::api::TraceList`], one packet per line.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut separator = "\n";
        out.write_all(b"{\"packets\":[")?;
        self.for_each(out, |mut out, entry| {
            out.write_all(separator.as_bytes())?;
            separator = ",\n";
            Ok(serde_json::to_writer(&mut out, entry)?)
        })?;
        out.write_all(b"]}")
    }

    fn for_each(
        &self,
        out: &mut dyn Write,
        mut write: impl FnMut(&mut dyn Write, &TraceEntry) -> io::Result<()>,
    ) -> io::Result<()> {
        let view = TraceView { why: self.why, ..TraceView::default() };
        let write =
            |out: &mut dyn Write, trace: &PacketTrace| write(out, &trace_entry(trace, &self.config, view));
        for_each_packet(&self.trace, self.limits, || false, out, write)
    }
}

/// Calls `write` with packets as they leave the graph, until there are enough, the time in seconds is over,
/// or `is_over` returns true, which is asked several times a second.
///
/// # Errors
/// Those of the writer: above all, the reader has gone.
pub(super) fn for_each_packet(
    trace: &LiveTrace,
    (count, seconds): (u32, Option<u32>),
    mut is_over: impl FnMut() -> bool,
    out: &mut dyn Write,
    mut write: impl FnMut(&mut dyn Write, &PacketTrace) -> io::Result<()>,
) -> io::Result<()> {
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    let (mut left, mut has_asked) = (count, Instant::now());
    let mut has_ended = false;
    while left > 0 {
        let rest = end.map_or(PATIENCE, |end| end.saturating_duration_since(Instant::now()));
        if rest.is_zero() {
            break;
        }
        if !has_ended && has_asked.elapsed() >= PATIENCE {
            (has_ended, has_asked) = (is_over(), Instant::now());
        }
        // Packets that have left before the end are written, too.
        match trace.next(if has_ended { Duration::ZERO } else { rest.min(PATIENCE) }) {
            NextTrace::Packet(packet) => {
                write(out, &packet)?;
                left -= 1;
            }
            NextTrace::TimedOut if has_ended => break,
            NextTrace::TimedOut => {}
            NextTrace::Ended => break,
        }
        // Sends what was written; fails if the reader has gone.
        out.flush()?;
    }
    Ok(())
}

/// What a document tells beside the path.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceView {
    /// The index of a rule to explain match by match.
    pub why: Option<u32>,
    /// Bytes of payloads that functions have changed.
    pub shows_payload: bool,
}

/// The document of a trace under a configuration.
pub fn trace_entry(trace: &PacketTrace, config: &Config, view: TraceView) -> TraceEntry {
    let names = PortNames::of(config);
    let first = trace.steps.first();
    let parsed = first.map(|step| parse(&step.head, step.len, trace.in_port.0, step.meta.out_port));
    let (out, reason) = match trace.end {
        TraceEnd::Sent(port) => (names.get(port), None),
        TraceEnd::Dropped(reason) => (None, Some(reason)),
        TraceEnd::HandedOver | TraceEnd::Consumed | TraceEnd::Kept => (None, None),
    };
    TraceEntry {
        packet: trace.number,
        time_ns: trace.time_ns,
        worker: trace.worker as u64,
        in_: names.get(trace.in_port),
        length: first.map_or(0, |step| step.len as u64),
        summary: match &parsed {
            Some(Ok(fields)) => summary(fields),
            _ => "not readable".to_owned(),
        },
        parse_error: parsed.and_then(Result::err).map(|reason| reason.name().to_owned()),
        nodes: nodes(trace, view.shows_payload),
        rules: rules(trace, config),
        session: trace.session.as_ref().map(|session| session_entry(session, &names)),
        why: view.why.and_then(|index| explain_rule(trace, config, &names, index)),
        result: result(trace.end).to_owned(),
        out,
        gateway: trace.steps.iter().rev().find_map(|step| step.gateway).map(|gateway| gateway.to_string()),
        reason: reason.map(|reason| reason.name().to_owned()),
        reason_help: reason.map(|reason| reason.help().to_owned()),
    }
}

fn result(end: TraceEnd) -> &'static str {
    match end {
        TraceEnd::Sent(_) => "sent",
        TraceEnd::Dropped(_) => "dropped",
        TraceEnd::HandedOver => "handed-over",
        TraceEnd::Consumed => "consumed",
        TraceEnd::Kept => "kept",
    }
}

fn parse(
    head: &[u8],
    len: usize,
    in_port: u16,
    out_port: u16,
) -> Result<HeaderFields<'_>, mmb_packet::DropReason> {
    HeaderFields::parse(head, len, [in_port, out_port])
}

/// Protocol, addresses, ports and flags in one line.
pub(super) fn summary(packet: &HeaderFields<'_>) -> String {
    let text = |field: FieldId| packet.text(field, &|_| None).unwrap_or_default();
    let kind = packet.meta().kind;
    let [source, destination, proto] = match kind.l3() {
        Kind::IP4 => [FieldId::IpSaddr, FieldId::IpDaddr, FieldId::IpProto].map(text),
        Kind::IP6 => {
            let proto = packet.meta().proto;
            let name = mmb_lang::protocol_name(proto).map_or_else(|| proto.to_string(), str::to_owned);
            [text(FieldId::Ip6Saddr), text(FieldId::Ip6Daddr), name]
        }
        _ => return format!("{} (no IP)", text(FieldId::NetProto)),
    };
    let ends = |[from, to]: [FieldId; 2]| {
        let end = |address: &str, port: FieldId| match address.parse() {
            Ok(IpAddr::V6(address)) => format!("[{address}]:{}", text(port)),
            _ => format!("{address}:{}", text(port)),
        };
        format!("{proto} {} > {}", end(&source, from), end(&destination, to))
    };
    match kind.l4() {
        Kind::TCP => format!("{} {}", ends([FieldId::TcpSport, FieldId::TcpDport]), flags(packet)),
        Kind::UDP => ends([FieldId::UdpSport, FieldId::UdpDport]),
        Kind::ICMP => icmp(&proto, [&source, &destination], [FieldId::IcmpType, FieldId::IcmpCode].map(text)),
        Kind::ICMP6 => {
            icmp(&proto, [&source, &destination], [FieldId::Icmp6Type, FieldId::Icmp6Code].map(text))
        }
        _ => format!("{proto} {source} > {destination}"),
    }
}

fn icmp(proto: &str, [source, destination]: [&str; 2], [kind, code]: [String; 2]) -> String {
    format!("{proto} {source} > {destination} type {kind} code {code}")
}

/// The names of the TCP flags that are set.
fn flags(packet: &HeaderFields<'_>) -> String {
    let flags = [
        (FieldId::TcpSyn, "syn"),
        (FieldId::TcpFin, "fin"),
        (FieldId::TcpRst, "rst"),
        (FieldId::TcpPush, "push"),
        (FieldId::TcpAck, "ack"),
        (FieldId::TcpUrg, "urg"),
        (FieldId::TcpEce, "ece"),
        (FieldId::TcpCwr, "cwr"),
    ];
    let set = flags.iter().filter(|(field, _)| packet.text(*field, &|_| None).as_deref() == Some("1"));
    let names: Vec<_> = set.map(|(_, name)| *name).collect();
    if names.is_empty() { "no flags".to_owned() } else { names.join(",") }
}

/// The nodes, each with what differs in front of the next one.
fn nodes(trace: &PacketTrace, shows_payload: bool) -> Vec<TraceNode> {
    let changes = |before: (&[u8], usize), after: (&[u8], usize)| match (
        parse(before.0, before.1, 0, 0),
        parse(after.0, after.1, 0, 0),
    ) {
        (Ok(before), Ok(after)) => {
            differences(&before, &after).into_iter().map(|c| change(c, shows_payload)).collect()
        }
        _ => Vec::new(),
    };
    let node = |(at, step): (usize, &TraceStep)| {
        let mut before: (&[u8], usize) = (&step.head, step.len);
        let mut functions = Vec::new();
        for visit in &step.functions {
            // A function sees the whole frame, unless it is in several buffers.
            let after = (&*visit.head, if step.head.len() == step.len { visit.head.len() } else { step.len });
            functions.push(TraceFunction {
                function: visit.function.to_string(),
                verdict: verdict(visit.verdict),
                changes: changes(before, after),
            });
            before = after;
        }
        let next = trace.steps.get(at + 1);
        let changes = next.map(|next| changes(before, (&next.head, next.len))).unwrap_or_default();
        TraceNode { node: step.node.to_owned(), functions, changes }
    };
    trace.steps.iter().enumerate().map(node).collect()
}

fn change(change: FieldChange, shows_payload: bool) -> TraceChange {
    let FieldChange { field, before, after } = change;
    let is_shown = shows_payload || !field.contains("-payload");
    let value =
        |value: Option<String>| value.filter(|_| is_shown).or((!is_shown).then(|| "(hidden)".to_owned()));
    TraceChange { before: value(before), after: value(after), field }
}

fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Pass => "pass".to_owned(),
        Verdict::Branch(output) => format!("output {output}"),
        Verdict::Drop(reason) => format!("drop {reason}"),
        Verdict::Consume => "consume".to_owned(),
        Verdict::Refuse(reason) => format!("refuse {reason}"),
        Verdict::End(reason) => format!("end {reason}"),
        Verdict::Hold => "hold".to_owned(),
    }
}

fn rules(trace: &PacketTrace, config: &Config) -> Option<TraceRules> {
    let applied = trace.rules.as_ref()?;
    let rule = |index: &u32| TraceRule {
        index: *index,
        text: config.policy().rule(*index).map_or_else(String::new, |rule| rule.text.to_owned()),
    };
    let of_session = trace.session.iter().flat_map(|session| &session.view.rules);
    Some(TraceRules {
        matched: applied.matched.iter().map(rule).collect(),
        of_session: of_session.filter(|index| !applied.matched.contains(index)).map(rule).collect(),
        decider: applied.decider,
    })
}

fn session_entry(session: &TracedSession, names: &PortNames) -> TraceSession {
    TraceSession {
        is_new: session.is_new,
        direction: if session.direction == Direction::Forward { "forward" } else { "reverse" }.to_owned(),
        connection: entry(&session.view, names),
    }
}

/// Evaluates a rule match by match on the packet as rules saw it.
fn explain_rule(trace: &PacketTrace, config: &Config, names: &PortNames, index: u32) -> Option<TraceWhy> {
    let view = config.policy().rule(index)?;
    let note = |note: &str| TraceWhy {
        index,
        text: view.text.to_owned(),
        matches: false,
        note: Some(note.to_owned()),
        checks: Vec::new(),
    };
    let Some(applied) = &trace.rules else {
        return Some(note("no rule was asked about the packet: it took another path before the rules"));
    };
    let step = trace.steps.get(applied.step)?;
    let Ok(fields) = parse(&step.head, step.len, trace.in_port.0, applied.out_port) else {
        return Some(note("the headers of the packet are malformed"));
    };
    let port_names = |port: u16| names.get(PortId(port));
    why(&view, config, &fields, &port_names, applied.matched.contains(&index))
}

/// A rule match by match. `matches`: whether it matches the packet.
pub(super) fn why(
    view: &RuleView<'_>,
    config: &Config,
    fields: &HeaderFields<'_>,
    port_names: &dyn Fn(u16) -> Option<String>,
    matches: bool,
) -> Option<TraceWhy> {
    let ports = |name: &str| config.port_of(name);
    let checks = explain_matches(&view.rule().ok()?, config.policy(), fields, &ports, port_names).ok()?;
    let is_denied_by_chain = !matches && checks.iter().all(|check| check.holds);
    let check = |check: mmb_policy::explain::MatchOutcome| TraceCheck {
        match_: check.text,
        holds: check.holds,
        value: check.value,
    };
    Some(TraceWhy {
        index: view.index,
        text: view.text.to_owned(),
        matches,
        note: is_denied_by_chain
            .then(|| "the service chain of the rule does not accept this traffic".to_owned()),
        checks: checks.into_iter().map(check).collect(),
    })
}
