//! Traces of packets as text.

use std::fmt::Write;

use super::sessions::{end, rules};
use crate::api::{CapturedEntry, TraceChange, TraceEntry, TraceNode, TraceRules, TraceSession, TraceWhy};

/// A captured packet as a line.
pub(crate) fn captured(entry: &CapturedEntry) -> String {
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    let comment = match capture_comment(entry) {
        comment if comment.is_empty() => comment,
        comment => format!(", {comment}"),
    };
    let path = format!("{} > {}", name(&entry.in_), name(&entry.out));
    let translated = entry.summary_out.as_ref().map_or_else(String::new, |out| format!(", leaves as {out}"));
    format!("{path}  {} bytes, {}{translated}{comment}\n", entry.length, entry.summary)
}

/// Why a packet was dropped, or which rule let it pass; empty if nothing decided about it.
pub(crate) fn capture_comment(entry: &CapturedEntry) -> String {
    let rule = match (&entry.rule, &entry.rule_text) {
        (Some(index), Some(text)) => format!("rule {index} ({text})"),
        _ => String::new(),
    };
    match &entry.reason {
        Some(reason) if reason == "rule" && !rule.is_empty() => format!("dropped by {rule}"),
        Some(reason) => format!("dropped: {reason}"),
        None if rule.is_empty() => String::new(),
        None => format!("passed by {rule}"),
    }
}

/// A trace, with a blank line behind it.
pub fn trace(entry: &TraceEntry) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_trace(&mut text, entry);
    text
}

fn write_trace(out: &mut String, entry: &TraceEntry) -> std::fmt::Result {
    let interface = entry.in_.as_deref().map_or_else(String::new, |name| format!("in {name}, "));
    writeln!(out, "packet {}: {interface}{} bytes, {}", entry.packet, entry.length, entry.summary)?;
    if let Some(error) = &entry.parse_error {
        writeln!(out, "  malformed: {error}")?;
    }
    let width = entry.nodes.iter().map(|node| node.node.len()).max().unwrap_or(0);
    for node in &entry.nodes {
        write_node(out, node, width)?;
    }
    if let Some(rules) = &entry.rules {
        write_rules(out, rules)?;
    }
    if let Some(session) = &entry.session {
        write_session(out, session)?;
    }
    write_result(out, entry)?;
    if let Some(why) = &entry.why {
        write_why(out, why)?;
    }
    writeln!(out)
}

fn write_node(out: &mut String, node: &TraceNode, width: usize) -> std::fmt::Result {
    let mut lines: Vec<String> = Vec::new();
    for function in &node.functions {
        let changes = changes(&function.changes);
        let separator = if changes.is_empty() { "" } else { "; " };
        lines.push(format!("{}: {}{separator}{changes}", function.function, function.verdict));
    }
    let own = changes(&node.changes);
    if !own.is_empty() || lines.is_empty() {
        lines.push(own);
    }
    for (at, line) in lines.iter().enumerate() {
        let name = if at == 0 { node.node.as_str() } else { "" };
        writeln!(out, "{}", format!("  {name:width$}  {line}").trim_end())?;
    }
    Ok(())
}

fn changes(changes: &[TraceChange]) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    let one = |c: &TraceChange| format!("{} {} -> {}", c.field, value(&c.before), value(&c.after));
    changes.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn write_rules(out: &mut String, rules: &TraceRules) -> std::fmt::Result {
    if rules.matched.is_empty() && rules.of_session.is_empty() {
        return writeln!(out, "  no rule matches");
    }
    let all = rules.matched.iter().map(|rule| (rule, "matches"));
    let all = all.chain(rules.of_session.iter().map(|rule| (rule, "rule of the session")));
    for (rule, how) in all {
        let decides = if rules.decider == Some(rule.index) { ", decides" } else { "" };
        writeln!(out, "  rule {} {how}{decides}: {}", rule.index, rule.text)?;
    }
    Ok(())
}

fn write_session(out: &mut String, session: &TraceSession) -> std::fmt::Result {
    let TraceSession { is_new, direction, connection: c } = session;
    let what = if *is_new { "session opened" } else { "session found" };
    let flow = |f: &crate::api::FlowEntry| {
        format!("{} > {}", end(&f.source, f.source_port), end(&f.destination, f.destination_port))
    };
    write!(
        out,
        "  {what}: {direction}, {} {}, {}, replies {}",
        c.protocol,
        c.state,
        flow(&c.forward),
        flow(&c.reverse)
    )?;
    if c.translated {
        write!(out, ", translated")?;
    }
    if let Some(chain) = &c.chain {
        write!(out, ", chain {chain}")?;
    }
    if let Some(reason) = &c.refused {
        write!(out, ", refused: {reason}")?;
    }
    writeln!(out, ", rules {}", rules(&c.rules))
}

fn write_result(out: &mut String, entry: &TraceEntry) -> std::fmt::Result {
    let gateway = entry.gateway.as_deref().map_or_else(String::new, |gateway| format!(" via {gateway}"));
    match (entry.result.as_str(), &entry.out, &entry.reason) {
        ("sent", Some(out_name), _) => writeln!(out, "  sent to {out_name}{gateway}"),
        ("sent", None, _) => writeln!(out, "  sent{gateway}"),
        (_, _, Some(reason)) => {
            let help = entry.reason_help.as_deref().unwrap_or_default();
            writeln!(out, "  dropped: {reason} ({help})")
        }
        ("handed-over", ..) => writeln!(out, "  handed over to the worker that owns its flow"),
        ("consumed", ..) => {
            writeln!(out, "  consumed: its bytes leave in other frames, or nothing is left of them")
        }
        _ => writeln!(out, "  kept in the last node"),
    }
}

fn write_why(out: &mut String, why: &TraceWhy) -> std::fmt::Result {
    let verb = if why.matches { "matches" } else { "does not match" };
    writeln!(out, "  rule {} {verb}: {}", why.index, why.text)?;
    for check in &why.checks {
        let holds = if check.holds { "holds" } else { "does not hold" };
        match &check.value {
            Some(value) => writeln!(out, "    {}: {holds}, the packet has {value}", check.match_)?,
            None if check.match_ == "all" => writeln!(out, "    all: {holds}")?,
            None => writeln!(out, "    {}: {holds}, the packet has no such field", check.match_)?,
        }
    }
    why.note.as_ref().map_or(Ok(()), |note| writeln!(out, "    {note}"))
}
