//! Replies as text: aligned columns, one record per line.

use std::fmt::Write;

use indexmap::IndexMap;
use mmb_packet::DropReason;

use crate::api::{
    ApplyReply, DiffReply, Done, DropList, FieldList, InterfaceEntry, InterfaceList, InterfaceState,
    RuleList, Runtime, TableList, VersionEntry,
};
use crate::text::count;

mod brokers;
mod chains;
mod columns;
mod domains;
mod fast_path;
mod history;
mod routing;
mod sessions;
mod sets;
mod trace;

pub(crate) use brokers::brokers;
pub use chains::{chains, functions};
use columns::Align::{Left, Right};
use columns::Columns;
pub(crate) use domains::domains;
pub(crate) use fast_path::fast_path;
pub(crate) use history::history;
pub use routing::neighbors;
pub(crate) use routing::{FibColumns, routing};
pub(crate) use sessions::ConnectionColumns;
pub use sessions::nat;
pub use sets::{set_elements, sets};
pub use trace::trace;
pub(crate) use trace::{capture_comment, captured};

/// `list`.
pub fn rules(list: &RuleList) -> String {
    if list.rules.is_empty() {
        return "no rules\n".to_owned();
    }
    let numbers = ["index", "packets", "bytes", "decided"].map(|name| (name, Right));
    let [index, packets, bytes, decided] = numbers;
    let mut columns = Columns::new([index, packets, bytes, decided, ("rule", Left)]);
    for r in &list.rules {
        columns.row([
            r.index.to_string(),
            r.packets.to_string(),
            r.bytes.to_string(),
            r.decided.map_or("-".to_owned(), |n| n.to_string()),
            r.text.clone(),
        ]);
    }
    columns.render()
}

/// `show tables`: the top parts of the classifier, with the sums of the parts below them; `verbose` shows all
/// parts.
pub fn tables(list: &TableList, verbose: bool) -> String {
    if list.tables.is_empty() {
        return "no tables: there are no rules\n".to_owned();
    }
    let mut columns = Columns::new([
        ("structure", Left),
        ("rules", Right),
        ("keys", Right),
        ("full", Right),
        ("longest", Right),
        ("parts", Right),
        ("bytes", Right),
        ("fields", Left),
    ]);
    let mut at = 0;
    while let Some(top) = list.tables.get(at) {
        let below = list.tables[at + 1..].iter().take_while(|t| !verbose && t.depth > top.depth);
        let (mut parts, mut bytes, mut longest) = (0, top.bytes, top.longest);
        for part in below {
            (parts, bytes, longest) = (parts + 1, bytes + part.bytes, longest.max(part.longest));
        }
        at += 1 + parts;
        let is_hash = top.structure == "hash";
        columns.row([
            format!("{:indent$}{}", "", top.structure, indent = 2 * top.depth as usize),
            top.rules.to_string(),
            if is_hash { top.keys.to_string() } else { "-".to_owned() },
            if is_hash { format!("{} %", 100 * top.keys / top.capacity.max(1)) } else { "-".to_owned() },
            longest.to_string(),
            if verbose { top.nodes.to_string() } else { parts.to_string() },
            bytes.to_string(),
            top.fields.clone(),
        ]);
    }
    columns.render()
}

/// `show interfaces`; `verbose` adds device, error counters and capabilities.
pub fn interfaces(list: &InterfaceList, verbose: bool) -> String {
    if list.interfaces.is_empty() {
        return "no interfaces; add one with `interface add NAME KIND …`\n".to_owned();
    }
    let mut columns = Columns::new([
        ("name", Left),
        ("kind", Left),
        ("state", Left),
        ("wire", Left),
        ("rules", Left),
        ("rx-packets", Right),
        ("rx-bytes", Right),
        ("tx-packets", Right),
        ("tx-bytes", Right),
    ]);
    for i in &list.interfaces {
        let state = match i.state {
            InterfaceState::Down => "down",
            InterfaceState::Up if i.link => "up",
            InterfaceState::Up => "up, no link",
        };
        columns.row([
            i.name.clone(),
            i.kind.clone(),
            state.to_owned(),
            match (&i.wire, &i.routed) {
                (Some(peer), _) => peer.clone(),
                (None, Some(_)) => "routed".to_owned(),
                (None, None) => "-".to_owned(),
            },
            if i.enabled { "enabled" } else { "disabled" }.to_owned(),
            i.rx_packets.to_string(),
            i.rx_bytes.to_string(),
            i.tx_packets.to_string(),
            i.tx_bytes.to_string(),
        ]);
    }
    let mut text = columns.render();
    for i in &list.interfaces {
        interface_details(&mut text, i, verbose);
    }
    text
}

/// The lines below the table: reason, routing and notes; `verbose` adds the rest.
fn interface_details(text: &mut String, i: &InterfaceEntry, verbose: bool) {
    if let Some(reason) = &i.reason {
        let _ = writeln!(text, "{}: down: {reason}", i.name);
        return;
    }
    if verbose {
        let _ = writeln!(text, "{}: {} by {}, mac {}, mtu {}", i.name, i.device, i.driver, i.mac, i.mtu);
        let _ = writeln!(
            text,
            "{}: rx-missed {}, rx-errors {}, tx-errors {}, tx-merged {}",
            i.name, i.rx_missed, i.rx_errors, i.tx_errors, i.tx_merged
        );
        for c in &i.capabilities {
            let supported = if c.supported { "yes" } else { "no" };
            let _ = writeln!(text, "{}: {}: {supported} ({})", i.name, c.name, c.detail);
        }
    }
    if let Some(routed) = &i.routed {
        let _ = writeln!(text, "{}: {}", i.name, routing::addresses(routed));
    }
    if (verbose || i.routed.is_some()) && !i.drops.is_empty() {
        let drops: Vec<_> = i.drops.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
        let _ = writeln!(text, "{}: dropped: {}", i.name, drops.join(", "));
    }
    for note in &i.notes {
        let _ = writeln!(text, "{}: note: {note}", i.name);
    }
}

/// `show runtime`; `verbose` adds the nodes without packets.
pub fn runtime(runtime: &Runtime, verbose: bool) -> String {
    let mut text = runtime.routing.as_ref().map(routing).unwrap_or_default();
    for source in &runtime.sessions.limited_sources {
        let (limit, ago) = (count(source.limit.into(), "session"), count(source.seconds_ago, "second"));
        let _ = writeln!(text, "source {} reached its limit of {limit}, {ago} ago", source.address);
    }
    for w in &runtime.workers {
        let cpu = w.cpu.map_or_else(String::new, |cpu| format!(", core {cpu}"));
        let (sleeps, repairs) = (w.sleeps, w.checksum_repairs);
        let sessions = count(w.sessions, "session");
        let _ = writeln!(
            text,
            "worker {}{cpu}, {sleeps} sleeps, {repairs} checksums completed, {sessions}",
            w.worker
        );
        let shown = w.nodes.iter().filter(|(_, n)| verbose || n.packets > 0);
        text.push_str(&nodes(
            shown.map(|(name, n)| (name.as_str(), n.packets, n.vectors, n.ticks_per_packet)),
        ));
    }
    text
}

/// Graph nodes as columns. Each item is name, packets, vectors, and clock ticks (TSC) per packet.
pub fn nodes<'a>(nodes: impl Iterator<Item = (&'a str, u64, u64, f64)>) -> String {
    let mut columns = Columns::new([
        ("node", Left),
        ("packets", Right),
        ("vectors", Right),
        ("packets/vector", Right),
        ("ticks/packet", Right),
    ]);
    for (name, packets, vectors, ticks) in nodes {
        let fill = if vectors == 0 { 0.0 } else { packets as f64 / vectors as f64 };
        let numbers = [packets.to_string(), vectors.to_string(), format!("{fill:.1}"), format!("{ticks:.1}")];
        let [packets, vectors, fill, ticks] = numbers;
        columns.row([name.to_owned(), packets, vectors, fill, ticks]);
    }
    columns.render()
}

/// `show drops`: reasons that have occurred; `verbose` shows all.
pub fn drops(list: &DropList, verbose: bool) -> String {
    let mut text = reasons(&list.drops, verbose).unwrap_or_else(|| "no drops\n".to_owned());
    if let Some(columns) = reasons(&list.unedited, verbose) {
        text.push_str("forwarded unedited:\n");
        text.push_str(&columns);
    }
    text
}

/// Packets by reason; none if there is nothing to show.
fn reasons(counts: &IndexMap<String, u64>, verbose: bool) -> Option<String> {
    let mut columns = Columns::new([("reason", Left), ("packets", Right), ("meaning", Left)]);
    for (name, &packets) in counts.iter().filter(|&(_, &packets)| verbose || packets > 0) {
        let reason = DropReason::find(name);
        columns.row([name.clone(), packets.to_string(), reason.map_or("", |r| r.help()).to_owned()]);
    }
    (!columns.is_empty()).then(|| columns.render())
}

/// `show fields`.
pub fn fields(list: &FieldList) -> String {
    let mut columns = Columns::new([
        ("field", Left),
        ("protocol", Left),
        ("bits", Right),
        ("match", Left),
        ("write", Left),
        ("meaning", Left),
    ]);
    for f in &list.fields {
        let bits = if f.bits == 0 { "-".to_owned() } else { f.bits.to_string() };
        columns.row([
            f.name.clone(),
            f.protocol.clone(),
            bits,
            f.matched.clone(),
            f.written.clone(),
            f.help.clone(),
        ]);
    }
    columns.render()
}

/// `show version`.
pub fn version(v: &VersionEntry) -> String {
    format!(
        "mmb {}\nengine: {}\nprocess {}, up {} s, {}\n",
        v.version,
        v.engine,
        v.pid,
        v.uptime_seconds,
        count(v.rules, "rule")
    )
}

/// A change: a sentence, and warnings.
pub fn done(done: &Done) -> String {
    format!("{}\n", done.done) + &warnings(&done.warnings)
}

/// Warnings, one a line.
pub fn warnings(warnings: &[String]) -> String {
    warnings.iter().map(|warning| format!("warning: {warning}\n")).collect()
}

/// `apply`: a sentence, the removed lines with `-`, and warnings.
pub fn applied(reply: &ApplyReply) -> String {
    let mut text = format!("{}\n", reply.done);
    for line in &reply.removed_lines {
        let _ = writeln!(text, "- {line}");
    }
    if let Some(more @ 1..) = reply.removed.checked_sub(ApplyReply::NAMED_RULES as u64) {
        let _ = writeln!(text, "# and {} more", count(more, "rule"));
    }
    text + &warnings(&reply.warnings)
}

/// `diff`: removed lines with `-`, added lines with `+`; empty without changes.
pub fn diff(d: &DiffReply) -> String {
    let mut text = String::new();
    for (sign, lines) in [('-', &d.removed), ('+', &d.added)] {
        for line in lines {
            let _ = writeln!(text, "{sign} {line}");
        }
    }
    if d.reordered {
        text.push_str("# the order of the remaining rules changes\n");
    }
    text
}

#[cfg(test)]
mod tests;
